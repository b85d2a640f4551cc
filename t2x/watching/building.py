"""From the section ``watch`` of a configuration to what watches the run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2x.errors import T2XError
from t2x.watching.config import HeldOutSection, WatchConfig

if TYPE_CHECKING:
    from t2x.training.policy import Policy
    from t2x.types import Generator
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
    training_rewards: Sequence[str] = (),
) -> Watch:
    """Load what a run is watched with.

    ``validation``: the users' words of the validation rows; ``generator``: the training's own;
    ``training_rewards``: names of its rewards. Raises T2XError where held-out measurements are
    asked for and there is nothing to measure them on, or only rewards that are trained on.
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
    held_out = _held_out(section, validation[: section.prompts], generator)
    return Watch(folder, config, policy=policy, held_out=held_out)


def _held_out(section: HeldOutSection, prompts: Sequence[str], generator: Any) -> HeldOut:
    from t2x.registry import load_generator, load_reward
    from t2x.rewriters.similarity import load_similarity
    from t2x.watching.held_out import HeldOut

    source = section.generator or generator
    if not prompts or source is None:
        missing = "prompts: give data.validation" if not prompts else "generator"
        raise T2XError(f"watch.held_out has no {missing}, or leave the section out")
    rewards = [load_reward(name, **section.options.get(name, {})) for name in section.rewards]
    weights = dict(zip((r.name for r in rewards), section.rewards.values(), strict=True))
    return HeldOut(
        prompts,
        load_generator(source),
        rewards,
        weights=weights,
        pictures=section.pictures,
        similarity=load_similarity(section.similarity) if section.similarity else None,
    )
