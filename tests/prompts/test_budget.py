"""Token budgets: counted with the target's own tokenizer, per encoder, with what is lost."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from t2x.prompts.budget import TokenBudget
from t2x.testing import tiny_clip_tokenizer, tiny_stable_diffusion, tiny_word_tokenizer


def test_limit_includes_special_tokens() -> None:
    budget = TokenBudget({"clip": (tiny_clip_tokenizer(), None)})
    fits, over = budget.count("a" * 75)[0], budget.count("a" * 76)[0]
    assert (fits.used, fits.limit, fits.truncated, fits.lost) == (77, 77, False, "")
    assert (over.used, over.truncated) == (78, True)
    assert over.lost == "a"


def test_each_encoder_has_its_own_count() -> None:
    budget = TokenBudget(
        {"clip": (tiny_clip_tokenizer(16), None), "t5": (tiny_word_tokenizer(), 256)}
    )
    clip, t5 = budget.count("a red cat left of a blue dog")
    assert clip.truncated and not t5.truncated
    assert t5.used == 8
    assert "clip" in str(clip) and "/16" in str(clip)


class Pipeline:
    """What a diffusers pipeline says about its tokenizers."""

    components: ClassVar[dict[str, Any]] = {
        "tokenizer": tiny_clip_tokenizer(),
        "tokenizer_2": tiny_word_tokenizer(),
        "tokenizer_3": None,
        "unet": object(),
    }

    def __call__(self, prompt: str, max_sequence_length: int = 256) -> None: ...


@pytest.mark.parametrize(
    ("sampling", "limit"),
    [(None, 256), ({}, 256), ({"max_sequence_length": 100}, 100), ({"guidance_scale": 2.0}, 256)],
)
def test_limits_come_from_the_pipeline_and_its_sampling(
    sampling: dict[str, Any] | None, limit: int
) -> None:
    budget = TokenBudget.from_pipeline(Pipeline(), sampling)
    assert budget is not None
    counts = budget.count("a cat")
    assert [(c.encoder, c.limit) for c in counts] == [("tokenizer", 77), ("tokenizer_2", limit)]


def test_a_pipeline_without_tokenizers_has_no_budget() -> None:
    pipeline = tiny_stable_diffusion()
    assert TokenBudget.from_pipeline(pipeline) is not None
    pipeline.tokenizer = None
    assert TokenBudget.from_pipeline(pipeline) is None
