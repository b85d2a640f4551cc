"""Rewriter behind any OpenAI-compatible endpoint: OpenAI, vLLM, llama.cpp, Ollama, ``t2x serve``.

One request per prompt and generation, so many at a time; the order of the answer is that of the
prompts. A prompt whose request fails is *failed* with the reason, and the others go on; a key that
is not accepted stops all at once. The row's own seed goes along, so that an endpoint which keeps
its promise gives the same text for the same prompt, seed and model.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from copy import copy
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

from t2x.errors import T2XError
from t2x.rewriters.chat_client import DEFAULT_URL, ChatClient, RequestFailed, Session
from t2x.rewriters.completion import Completion, answer
from t2x.rewriters.presets import preset_template
from t2x.rewriters.rows import check_sampling, complete_rows, generation_seed
from t2x.rewriters.sampling import row_seed
from t2x.rewriters.targets import Target
from t2x.rewriters.templates import GENERAL, Template
from t2x.types import Rewrite

__all__ = ["OpenAIRewriter"]

_SEEDS = 0x7FFFFFFF  # every server knows integers of 31 bits


@dataclass(frozen=True)
class _Ask:
    prompt: str
    seed: int
    temperature: float


class OpenAIRewriter:
    """Rewrites prompts with a chat model behind an endpoint.

    Args:
        model: name of the model there.
        base_url: address with its version, such as http://localhost:8000/v1; None is the
            environment variable OPENAI_BASE_URL, else OpenAI's own.
        key_variable: environment variable that holds the key.
        template: words around the prompt; overrides ``preset``. None is ``GENERAL``.
        preset: a name of ``t2x.rewriters.presets.PRESETS`` that is made for chat models.
        temperature: None is "the first generation at 0, the others at the template's temperature".
        concurrency: requests at a time.
        parameters: fields of the request that are added or replaced; None leaves a field out, for
            servers that refuse one ("seed") or call it otherwise.
        options: ``timeout`` (60 s for one attempt), ``retries`` (4) and what else ``ChatClient``
            takes.
    """

    def __init__(
        self,
        model: str = "",
        *,
        base_url: str | None = None,
        key_variable: str = "OPENAI_API_KEY",
        template: Template | None = None,
        preset: str | None = None,
        temperature: float | None = None,
        concurrency: int = 8,
        parameters: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        if not model:
            raise T2XError(
                "an endpoint needs the name of a model: openai:MODEL on the command line, "
                "load_rewriter('openai', model=..., base_url=...)"
            )
        check_sampling(temperature)
        if concurrency < 1:
            raise T2XError(f"concurrency is {concurrency}; give at least 1")
        self.template = template or preset_template(preset) or GENERAL
        if self.template.chat is False:
            raise T2XError(
                "this preset continues plain text and an endpoint takes messages; load its weights "
                "with load_rewriter instead"
            )
        url = base_url or os.environ.get("OPENAI_BASE_URL") or DEFAULT_URL
        self.client = ChatClient(url, key_variable, **options)
        self.model = model
        own = url.rstrip("/") == DEFAULT_URL
        self.model_id = f"openai:{model}" if own else f"{model} at {urlsplit(url).hostname}"
        self.temperature = temperature
        self.concurrency = concurrency
        self.parameters = dict(parameters or {})

    def for_target(self, target: Target) -> Self:
        """Give the same with instructions that ask for the target's kind of text."""
        styled = copy(self)
        styled.template = target.put_into(self.template)
        return styled

    def rewrite(
        self, prompts: Sequence[str], *, num_generations: int = 1, seed: int = 0
    ) -> list[list[Rewrite]]:
        """Give ``num_generations`` rewrites for each of B prompts: B lists of G.

        Raises ``EndpointError`` (a T2XError) for what concerns every prompt.
        """
        completions = complete_rows(
            prompts,
            lambda _, prompt: [self._ask(prompt, i, seed) for i in range(num_generations)],
            self._run,
            num_generations=num_generations,
        )
        return [
            [answer(p, c, self.template, seed=seed, model_id=self.model_id) for c in group]
            for p, group in zip(prompts, completions, strict=True)
        ]

    def _ask(self, prompt: str, generation: int, seed: int) -> _Ask:
        sampled = generation_seed(
            prompt, generation, seed=seed, temperature=self.temperature, template=self.template
        )
        if sampled is None:  # all that are not sampled are one request
            return _Ask(prompt, row_seed(seed, prompt, generation=0) & _SEEDS, 0.0)
        return _Ask(prompt, sampled & _SEEDS, self.temperature or self.template.temperature)

    def _run(self, rows: list[_Ask]) -> list[Completion]:
        self.client.check_key()
        with (
            self.client.session() as session,
            ThreadPoolExecutor(max_workers=self.concurrency) as pool,
        ):
            futures = [pool.submit(self._complete, session, row) for row in rows]
            try:
                wait(futures, return_when=FIRST_EXCEPTION)
            finally:
                # After an error that concerns every prompt, or an interrupt, nothing new is sent.
                if not all(future.done() for future in futures):
                    session.stop.set()
                    pool.shutdown(wait=False, cancel_futures=True)
            for future in futures:
                if not future.cancelled() and (error := future.exception()) is not None:
                    raise error
            return [future.result() for future in futures]

    def _complete(self, session: Session, row: _Ask) -> Completion:
        body = {
            "model": self.model,
            "messages": self._messages(row.prompt),
            "max_tokens": self.template.max_new_tokens,
            "temperature": row.temperature,
            "top_p": self.template.top_p if row.temperature else 1.0,
            "seed": row.seed,
        } | self.parameters
        sent = {key: value for key, value in body.items() if value is not None}
        try:
            return _read(self.client.post(session, "chat/completions", sent))
        except RequestFailed as error:
            return Completion(problem=f"the endpoint failed: {error}")

    def _messages(self, prompt: str) -> list[dict[str, str]]:
        """Messages in their roles; the user's text is one, whatever it says."""
        template = self.template.for_prompt(prompt)
        turns = [{"role": "system", "content": template.instructions}] if template.system else []
        for shown, rewrite in template.examples:
            turns.append({"role": "user", "content": template.user.replace("{prompt}", shown)})
            turns.append({"role": "assistant", "content": rewrite})
        text = prompt.strip().encode("utf-8", "replace").decode("utf-8")  # lone surrogates
        turns.append({"role": "user", "content": template.user.replace("{prompt}", text)})
        return turns


def _read(value: Any) -> Completion:
    """Read the first choice of a chat completion; what has another form is a problem."""
    try:
        choice = value["choices"][0]
        message = choice["message"]
        refusal, content = message.get("refusal"), message.get("content")
        thought = message.get("reasoning_content") or message.get("reasoning")
    except (KeyError, IndexError, TypeError, AttributeError):
        return Completion(problem="the endpoint's answer is no chat completion")
    if isinstance(content, list):  # in parts
        content = "".join(str(p.get("text", "")) for p in content if isinstance(p, dict))
    if refusal:
        return Completion(problem=f"the model refused: {str(refusal)[:200]}")
    finish = choice.get("finish_reason")
    if finish == "content_filter":
        return Completion(problem="stopped by the endpoint's content filter")
    if content is not None and not isinstance(content, str):
        return Completion(problem="the endpoint's answer is no chat completion")
    text = content or ""
    if isinstance(thought, str) and thought.strip() and "</think>" not in text:
        text = f"<think>{thought}</think>{text}"
    return Completion(text, truncated=finish == "length")
