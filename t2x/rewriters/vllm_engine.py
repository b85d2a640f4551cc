"""Rewriter over vLLM, where it is installed: the same inputs, templates and parser, another engine.

Differs from ``LanguageModelRewriter``: sampling is vLLM's own, with the row's seed, so that texts
are not those of the other engine and, as everywhere in half precision, a near tie may depend on
the batch; a repetition penalty counts the words of the prompt too; there are no beams. Not run on a
GPU: the tests use a stand-in with vLLM's interface.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from t2x.errors import T2XError
from t2x.rewriters.completion import Completion, answer, decode, line_ends
from t2x.rewriters.domain import domain_named
from t2x.rewriters.encoding import PromptEncoder
from t2x.rewriters.presets import checkpoint_template, default_template
from t2x.rewriters.rows import TokenRow, check_sampling, complete_rows, token_rows
from t2x.rewriters.targets import Target
from t2x.rewriters.templates import Template
from t2x.types import Rewrite

__all__ = ["VllmRewriter"]

logger = logging.getLogger(__name__)

_SEEDS = 0x7FFFFFFFFFFFFFFF


class VllmRewriter:
    """Rewrites prompts with a model that vLLM serves in this process.

    Args:
        llm: a ``vllm.LLM``.
        template: words around the prompt; None is ``GENERAL``, or ``BASE`` for a model without a
            chat template.
        model_id: name that goes into every result.
        temperature: as in ``LanguageModelRewriter``.
    """

    def __init__(
        self,
        llm: Any,
        *,
        template: Template | None = None,
        model_id: str = "vllm",
        temperature: float | None = None,
    ) -> None:
        check_sampling(temperature)
        self.llm = llm
        self.tokenizer = llm.get_tokenizer()
        self.template = template or default_template(self.tokenizer)
        self.model_id = model_id
        self.temperature = temperature
        self.domain = domain_named(self.template.domain)
        self.encoder = PromptEncoder(self.tokenizer, self.template)
        if self.template.num_beams > 1:
            logger.warning("%s: vLLM searches without beams; the texts differ", model_id)

    @classmethod
    def from_pretrained(
        cls,
        source: str | Path = "",
        *,
        template: Template | None = None,
        preset: str | None = None,
        temperature: float | None = None,
        **engine: Any,
    ) -> VllmRewriter:
        """Load a hub id or a folder; ``engine`` goes to ``vllm.LLM`` (dtype, revision,
        tensor_parallel_size, ...).
        """
        if not str(source):
            raise T2XError("vLLM needs a model: vllm:owner/model, or load_rewriter('vllm', ...)")
        from vllm import LLM

        chosen = template or checkpoint_template(source, preset)
        return cls(
            LLM(model=str(source), **engine),
            template=chosen,
            model_id=str(source),
            temperature=temperature,
        )

    def for_target(self, target: Target) -> Self:
        """Give the same model with instructions that ask for the target's kind of text."""
        styled = copy(self)
        styled.template = target.put_into(self.template)
        styled.encoder = PromptEncoder(self.tokenizer, styled.template)
        return styled

    def rewrite(
        self, prompts: Sequence[str], *, num_generations: int = 1, seed: int = 0
    ) -> list[list[Rewrite]]:
        """Give ``num_generations`` rewrites for each of B prompts: B lists of G."""
        completions = complete_rows(
            prompts,
            lambda _, prompt: self._rows(prompt, num_generations, seed),
            self._run,
            num_generations=num_generations,
        )
        return [
            [answer(p, c, self.template, seed=seed, model_id=self.model_id) for c in group]
            for p, group in zip(prompts, completions, strict=True)
        ]

    def _rows(self, prompt: str, num_generations: int, seed: int) -> list[TokenRow | Completion]:
        return token_rows(
            self.encoder, prompt, num_generations,
            context=self._context(), seed=seed, temperature=self.temperature,
        )  # fmt: skip

    def _context(self) -> int:
        engine = getattr(self.llm, "llm_engine", None)
        config = getattr(self.llm, "model_config", None) or getattr(engine, "model_config", None)
        return int(getattr(config, "max_model_len", None) or 2**31)

    def _run(self, rows: list[TokenRow]) -> list[Completion]:
        from vllm import SamplingParams

        template, ends = self.template, self._ends()
        settings = [
            SamplingParams(
                temperature=0.0 if row.seed is None else (self.temperature or template.temperature),
                top_p=template.top_p,
                top_k=template.top_k or -1,
                min_p=template.min_p,
                repetition_penalty=template.repetition_penalty,
                seed=None if row.seed is None else row.seed & _SEEDS,
                max_tokens=template.max_new_tokens,
                stop_token_ids=sorted(ends),
                skip_special_tokens=False,
            )
            for row in rows
        ]
        inputs = [{"prompt_token_ids": list(row.ids)} for row in rows]
        outputs = self.llm.generate(inputs, settings, use_tqdm=False)
        return [self._completion(output.outputs[0], ends) for output in outputs]

    def _completion(self, output: Any, ends: frozenset[int]) -> Completion:
        text = decode(
            self.tokenizer,
            list(output.token_ids),
            ends=ends,
            lines=self._lines(),
            prefill=self.template.prefill,
        )
        return replace(text, truncated=output.finish_reason == "length")

    def _lines(self) -> frozenset[int]:
        one_line = self.encoder.is_plain and self.template.one_line
        return line_ends(self.tokenizer) if one_line else frozenset()

    def _ends(self) -> frozenset[int]:
        eos = self.tokenizer.eos_token_id
        return self._lines() | (frozenset() if eos is None else frozenset((int(eos),)))
