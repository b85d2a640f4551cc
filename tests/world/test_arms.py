"""Names of arms, and what a guarded rewriter proposed before it was reverted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from t2x.errors import T2XError, UnknownNameError
from t2x.rewriters.domain import domain_named
from t2x.testing import FakeGenerator
from t2x.types import Rewrite
from t2x.world import arms as module
from t2x.world.arms import check_arms, load_arm, named_arms
from t2x.world.drift import measure_drift, text_similarity
from t2x.world.prompts import validation_prompts


class Drifts:
    """Answers every prompt with a cat, and every second one not at all."""

    model_id = "drifts"
    domain = domain_named("emoji")

    def rewrite(
        self, prompts: Sequence[str], *, num_generations: int = 1, seed: int = 0
    ) -> list[list[Rewrite]]:
        return [
            [
                Rewrite(p, "a photo of a cat", raw="<answer>")
                if i % 2
                else Rewrite(p, p, status="failed", raw="<think>")
            ]
            for i, p in enumerate(prompts)
        ]


def test_a_recipe_is_the_model_of_its_run() -> None:
    with pytest.raises(T2XError, match=r"t2x train grpo --config world/grpo`"):
        named_arms(["raw", "grpo"])
    folder = Path("runs/grpo/model")
    folder.mkdir(parents=True)
    assert named_arms(["raw", "grpo", "old=runs/x"]) == {
        "raw": "raw",
        "grpo": str(folder),
        "old": "runs/x",
    }


@pytest.mark.parametrize(
    ("arms", "words"),
    [(["raw", "raw=none"], "each once"), (["=x"], "NAME=FOLDER"), (["x="], "NAME=FOLDER")],
)
def test_names_that_are_none(arms: list[str], words: str) -> None:
    with pytest.raises(T2XError, match=words):
        named_arms(arms)


def test_an_unknown_source_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="unknown arm 'nowhere'"):
        check_arms({"mine": "nowhere"}, 30)
    with pytest.raises(UnknownNameError, match="there is no folder 'nowhere'"):
        check_arms({"mine": "nowhere"}, 30)
    with pytest.raises(T2XError, match="there is no folder 'runs/nowhere'"):
        check_arms({"mine": "runs/nowhere"}, 30)
    check_arms({"mine": "owner/model"}, 30)


def test_the_folder_of_a_run_is_its_model_once_it_is_there(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("{}\n")
    with pytest.raises(T2XError, match="holds no trained model"):
        named_arms([f"k={tmp_path}"])
    (tmp_path / "model").mkdir()
    assert named_arms([f"k={tmp_path}"]) == {"k": str(tmp_path / "model")}


def test_drift_is_that_of_proposals_though_the_guard_reverts_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "Drifts", Drifts, raising=False)
    arm = load_arm("t2x.world.arms:Drifts", FakeGenerator(), 0)
    prompts = [p for p in validation_prompts(60, 1) if "cat" not in p.text][:20]
    written = arm.write(prompts)
    assert [text for text, _ in written] == [p.text for p in prompts]
    drift = measure_drift(prompts, arm.proposals, text_similarity())
    summary = drift.summary()
    assert summary["violations"] == 1 and summary["failed"] == 10
    assert summary["words"] == 5 and summary["exact"] == 0
    assert "content_kept" in summary["broken"] or "things_kept" in summary["broken"]
    assert 0 < summary["similarity"] < 0.9


def test_tokens_written_are_those_of_the_completion() -> None:
    rewriter = load_arm("rewrite", FakeGenerator(), 0)
    rewriter.write(validation_prompts(6, 1))
    assert 5 < rewriter.tokens_written < 128
