"""The order in which rollouts meet prompts."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from t2x.errors import T2XError
from t2x.training.rows import unrolled

pytestmark = pytest.mark.extra("train")


def test_fewer_prompts_than_a_step_needs_is_an_error() -> None:
    from datasets import Dataset

    given = {"generation_batch_size": 8, "num_generations": 2, "seed": 0, "max_steps": -1}
    rows = Dataset.from_dict({"original_prompt": ["a", "b", "c"]})
    with pytest.raises(T2XError, match="at least 4 rows"):
        unrolled(rows, SimpleNamespace(**given, num_train_epochs=1.0))
    found = unrolled(rows, SimpleNamespace(**given, num_train_epochs=3.0))
    assert len(found) == 8
    assert sorted(found["original_prompt"][:3]) == ["a", "b", "c"]
