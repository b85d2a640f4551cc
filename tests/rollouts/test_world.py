"""With the embedded models: what is scored against the rewrite would win here, and must not."""

from __future__ import annotations

from t2x.rewriters.templates import Template
from t2x.rollouts import CompletionReader, RolloutConfig, RolloutScorer, rollout_seeds
from t2x.rollouts.measuring import build_measurer
from t2x.training.config import RewardConfig

from .worlds import answer

REWRITES = {
    "a laptop and an airplane": "two objects. left: a laptop. right: an airplane.",
    "photo of a red bus": "one object. center: a red bus.",
    "zebra": "one object. center: a zebra.",
}


def test_a_photo_of_a_cat_to_everything_loses_by_its_pictures() -> None:
    """Without any check between: the scores alone must show it (trap 1)."""
    config = RewardConfig({"clip": 1.0, "vqa": 1.0}, generator_options={"dtype": "auto"})
    settings = RolloutConfig(batch_size=16)
    scorer = RolloutScorer(
        build_measurer(config, settings),
        CompletionReader(Template(require_answer=True), checks=()),
        config.rewards,
        combine="standardised",
        config=settings,
    )
    rows = [(p, t) for p, good in REWRITES.items() for t in ("a photo of a cat", good)]
    found = scorer.score(
        [p for p, _ in rows],
        [answer(t) for _, t in rows],
        seeds=[rollout_seeds(0, 0, p, 2) for p, _ in rows],
    )
    for constant, good in zip(found[::2], found[1::2], strict=True):
        assert constant.kind == "rewrite"  # drawn and scored, not refused
        assert max(constant.scores["vqa"]) < 0.2 < min(good.scores["vqa"])
        assert constant.advantage < 0 < good.advantage
