"""The section ``rollout`` of a recipe: how completions are drawn and compared."""

from __future__ import annotations

from dataclasses import dataclass

from t2x.errors import T2XError

__all__ = ["RolloutConfig", "SetSection"]


@dataclass(frozen=True)
class SetSection:
    """Reward of what a rewrite adds to the set of its group (DPP-GRPO, arXiv 2511.20647), one more
    component named ``sets`` with its ``weight``.

    ``gain``: share of the marginal gain log det(L + I), the rest is relevance; 0.5 is the paper's.
    ``embedder``: what ``t2x.rewriters.similarity.load_embedder`` takes: ``minilm``, ``clip``, ...
    """

    embedder: str = "minilm"
    weight: float = 1.0
    gain: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.gain <= 1:
            raise T2XError(f"rollout.sets.gain is {self.gain}; give a share from 0 to 1")


@dataclass(frozen=True)
class RolloutConfig:
    """How rollouts are drawn and compared.

    Args:
        margin: how far below the prompt left as it is a policy's failure is put, in deviations of
            each reward; the worst rewrite of its group counts too.
        floor: least deviation that advantages are divided by, in the units of the combined reward;
            None measures what seeds alone do, while the run goes on. For ``gdpo`` and
            ``correlation`` in deviations of each reward by seeds alone, None is 1; for ``pareto``
            and ``dominance`` the least difference that counts, in the same unit, None is 2.83, two
            deviations of a difference.
        fixed_seeds: draw each prompt with the same seeds at every step. A policy can learn what
            suits those seeds; what is drawn once is found again in a store.
        calibrate: so many scores of every reward set the scale of ``standardised`` and of
            ``margin``; then it stays, so that rewards compare over a run. 0 goes on for ever.
        temperature: of the combiner ``correlation``.
        max_missing: stop when more than this share of the last scores of one reward is missing.
        constant_after: stop when a reward gave so many scores and all are equal; 0 never does.
        batch_size: pictures drawn and scored at a time.
        workers: processes that draw, each with a generator of its own; 0 draws in this one. A list
            ``devices`` in ``reward.generator_options`` gives each worker one in turn.
        negative: negative prompt of every picture, beside a rewrite's own; only for a generator
            that takes one.
        sets: reward of diversity inside the group.
    """

    margin: float = 1.0
    floor: float | None = None
    fixed_seeds: bool = False
    calibrate: int = 512
    temperature: float = 1.0
    max_missing: float = 0.5
    constant_after: int = 256
    batch_size: int = 32
    workers: int = 0
    negative: str = ""
    sets: SetSection | None = None

    def __post_init__(self) -> None:
        for name, allowed, good in (
            ("margin", "positive", self.margin > 0),
            ("floor", "at least 0, or left out", self.floor is None or self.floor >= 0),
            ("calibrate", "at least 0", self.calibrate >= 0),
            ("max_missing", "a share from 0 to 1", 0 <= self.max_missing <= 1),
            ("constant_after", "at least 0", self.constant_after >= 0),
            ("batch_size", "at least 1", self.batch_size >= 1),
            ("workers", "at least 0", self.workers >= 0),
        ):
            if not good:
                raise T2XError(f"rollout.{name} is {getattr(self, name)}; it must be {allowed}")
