"""Token budgets: counted with the target's own tokenizer, per encoder, with what is lost."""

from __future__ import annotations

import pytest

from t2x.prompts.budget import TokenBudget, estimate
from t2x.testing import tiny_clip_tokenizer, tiny_word_tokenizer


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


def test_limits_come_from_the_pipeline() -> None:
    class Pipeline:
        tokenizer = tiny_clip_tokenizer()
        tokenizer_2 = tiny_word_tokenizer()
        tokenizer_3 = None

        def __call__(self, prompt: str, max_sequence_length: int = 256) -> None: ...

    counts = TokenBudget.from_pipeline(Pipeline()).count("a cat")
    assert [(c.encoder, c.limit) for c in counts] == [("tokenizer", 77), ("tokenizer_2", 256)]


@pytest.mark.parametrize(("text", "used"), [("", 2), ("a red cat", 6), ("猫", 4), ("cat, dog", 6)])
def test_estimate(text: str, used: int) -> None:
    assert estimate(text).used == used
