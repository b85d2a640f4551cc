"""From the section ``watch`` of a configuration to what watches the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2x.errors import T2XError
from t2x.types import Generator
from t2x.watching.config import HeldOutSection, WatchConfig

if TYPE_CHECKING:
    from t2x.rollouts.scorer import RolloutScorer
    from t2x.training.policy import Policy
    from t2x.watching.held_out import HeldOut
    from t2x.watching.watch import Watch

__all__ = ["build_watch"]


def build_watch(
    config: WatchConfig,
    folder: str | Path,
    policy: Policy,
    *,
    validation: Sequence[str] = (),
    generator: str | Generator | None = None,
    generator_options: Mapping[str, Any] | None = None,
    training_rewards: Sequence[str] = (),
    scorer: RolloutScorer | None = None,
    negative: str = "",
) -> Watch:
    """Load what a run is watched with.

    Args:
        config: the section ``watch``.
        folder: of the run.
        policy: what is trained.
        validation: the users' words of the validation rows.
        generator, generator_options: the training's own, where it draws.
        training_rewards: names of its rewards.
        scorer: of its rollouts, whose generator is used again in place of a second one in memory,
            unless it draws in other processes.
        negative: negative prompt of every picture, as in its rollouts.

    Raises T2XError where held-out measurements are asked for and there is nothing to measure them
    on, or only rewards that are trained on.
    """
    from t2x.watching.watch import Watch

    section = config.held_out
    if section is None:
        return Watch(folder, config, policy=policy)
    if not set(section.rewards) - set(training_rewards):
        raise T2XError(
            f"watch.held_out.rewards are {', '.join(section.rewards)}, and all of them are trained "
            "on, so that they can't show what is gained by their faults; give at least one other"
        )
    prompts = validation[: section.prompts]
    source = section.generator or generator
    if not prompts or source is None:
        missing = "prompts: give data.validation" if not prompts else "generator"
        raise T2XError(f"watch.held_out has no {missing}, or leave the section out")
    own = section.generator is None
    options = dict(generator_options or {}) if own else {}
    lender = partial(_generator, source, options, scorer if own else None)
    held_out = _held_out(section, prompts, lender, negative=negative)
    return Watch(folder, config, policy=policy, held_out=held_out)


def _generator(source: Any, options: dict[str, Any], scorer: RolloutScorer | None) -> Generator:
    """The generator that the rollouts draw with, or one of its own."""
    from t2x.registry import load_generator

    drawing = None if scorer is None else getattr(scorer.measurer.drawer, "generator", None)
    if isinstance(drawing, Generator):
        return drawing
    return load_generator(source, **options)


def _held_out(
    section: HeldOutSection,
    prompts: Sequence[str],
    generator: Callable[[], Generator],
    *,
    negative: str,
) -> HeldOut:
    from t2x.registry import load_reward
    from t2x.rewriters.similarity import load_similarity
    from t2x.watching.held_out import HeldOut

    rewards = [load_reward(name, **section.options.get(name, {})) for name in section.rewards]
    weights = dict(zip((r.name for r in rewards), section.rewards.values(), strict=True))
    return HeldOut(
        prompts,
        generator,
        rewards,
        weights=weights,
        pictures=section.pictures,
        similarity=load_similarity(section.similarity) if section.similarity else None,
        negative=negative,
    )
