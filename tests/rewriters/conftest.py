"""A Qwen-like chat model of random weights, and a rewriter that says what a test tells it to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from t2x.types import Check, Rewrite

CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="session")
def chat_tokenizer() -> Any:
    """Bytes as tokens; chat tokens are special, <think> tags added but not (as in Qwen3)."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"],
    )
    tokenizer.add_tokens([AddedToken(t, special=False) for t in ("<think>", "</think>")])
    tokenizer.chat_template = CHAT
    return tokenizer


@pytest.fixture(scope="session")
def chat_model(chat_tokenizer: Any) -> Any:
    """Qwen2 of two layers, float32, whose texts are noise that depends on the whole input."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        vocab_size=len(chat_tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        tie_word_embeddings=False,
    )
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(config).eval()
    with torch.no_grad():
        model.lm_head.weight.mul_(20)
    model.generation_config.eos_token_id = chat_tokenizer.eos_token_id
    return model


class Scripted:
    """Rewriter whose answers a test gives as a function of what it is shown."""

    model_id = "scripted"

    def __init__(self, answer: Callable[[str], str | None]) -> None:
        self.answer = answer
        self.seen: list[str] = []

    def rewrite(
        self, prompts: Sequence[str], *, num_generations: int = 1, seed: int = 0
    ) -> list[list[Rewrite]]:
        self.seen += prompts
        return [[self._one(p, seed)] * num_generations for p in prompts]

    def _one(self, prompt: str, seed: int) -> Rewrite:
        text = self.answer(prompt)
        if text is None:
            check = Check("completion", False, "cut off before its end")
            return Rewrite(prompt, prompt, status="failed", checks=(check,), raw="half a senten")
        return Rewrite(prompt, text, seed=seed, raw=text)


@pytest.fixture
def scripted() -> type[Scripted]:
    return Scripted
