"""The settings of each guided arm, chosen on validation prompts: as many settings, prompts and
FLOPs for every arm.

Settings are chosen by the reward that no arm optimises (``t2x.world.guided.HELD_OUT``), not by the
judge, which never tunes guidance (docs/design.md, section 4), and not by what the arms raise, which
would always prefer the longer step. On the test prompts that reward is then still unseen by every
gradient and selection, but it is what chose among a few settings of every arm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2x.config import load_config, save_config
from t2x.errors import T2XError
from t2x.world.guided import GuidedSetup, evaluate_guidance
from t2x.world.guided_names import GRIDS

if TYPE_CHECKING:
    from t2x.store import Store

__all__ = ["TunedSettings", "load_tuned", "save_tuned", "settings_for", "tune_guidance"]

_PACKAGED = "t2x.configs"


@dataclass(frozen=True)
class TunedSettings:
    """What tuning chose, and from what: ``arms`` to settings, ``tried`` to each setting of the grid
    with its mean of ``tuned_by`` on ``n`` validation prompts (the others for the record)."""

    generator: str
    tuned_by: str
    rewards: dict[str, float]
    n: int
    seed: int
    budget: float
    arms: dict[str, dict[str, Any]] = field(default_factory=dict)
    tried: dict[str, list[dict[str, Any]]] = field(default_factory=dict)


def tune_guidance(
    setup: GuidedSetup,
    *,
    budget: float,
    store: Store | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> TunedSettings:
    """Run every setting of the grids of ``setup.arms`` at ``budget`` plain pictures on validation
    prompts with the users' words; an arm without a grid is left out.

    Of equal settings the first wins; an arm whose least is above the budget keeps its default.
    Raises T2XError as ``evaluate_guidance`` does, and for arms of which none has a grid.
    """
    names = [name for name in setup.arms if name in GRIDS]
    if not names:
        raise T2XError(f"none of {', '.join(setup.arms)} is tuned; allowed: {', '.join(GRIDS)}")
    size = len(next(iter(GRIDS.values())))
    chosen: dict[str, dict[str, Any]] = {}
    tried: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    plain = replace(
        setup, split="validation", rewriters=("raw",), budgets=(budget,), arms=names, diverse=0
    )
    for number in range(size):
        settings = {name: GRIDS[name][number] for name in names}

        def say(what: str, done: int, total: int, number: int = number) -> None:
            if progress is not None:
                progress(f"setting {number + 1}, {what}", number * total + done, size * total)

        found = evaluate_guidance(replace(plain, settings=settings), store=store, progress=say)
        for name in names:
            arm = found["arms"][f"{name}@{budget:g}"]
            kept = ("heldout_reward", "reward", "size", "flops_of_budget")
            tried[name].append({"settings": settings[name], **{k: arm.get(k) for k in kept}})
    for name in names:
        scores = [_known(row["heldout_reward"]) for row in tried[name]]
        chosen[name] = dict(tried[name][scores.index(max(scores))]["settings"])
    held_out = setup.held_out if isinstance(setup.held_out, str) else setup.held_out.name
    weights = setup.rewards if isinstance(setup.rewards, Mapping) else {}
    generator = setup.generator if isinstance(setup.generator, str) else setup.generator.model_id
    return TunedSettings(
        generator,
        held_out,
        {name: float(weights.get(name, 1.0)) for name in setup.reward_names},
        setup.n,
        setup.seed,
        budget,
        chosen,
        tried,
    )


def _known(value: Any) -> float:
    return -math.inf if value is None or math.isnan(value) else float(value)


def save_tuned(tuned: TunedSettings, path: str | Path, *, command: str) -> None:
    """Write YAML that begins with what made it."""
    save_config(tuned, path)
    body = Path(path).read_text("utf-8")
    head = [
        f"Settings of guidance for {tuned.generator}, chosen by {tuned.tuned_by} on {tuned.n}",
        "validation prompts, as many for every arm. Made by:",
        f"  {command}",
    ]
    Path(path).write_text("".join(f"# {line}\n" for line in head) + body, "utf-8")


def load_tuned(name: str) -> TunedSettings | None:
    """Settings from a YAML file, or those that t2x brings for a generator of this name; None if it
    brings none."""
    from importlib.resources import files

    path = Path(name)
    if not path.is_file():
        path = Path(str(files(_PACKAGED))) / "guidance" / f"{Path(name).name}.yaml"
    return load_config(TunedSettings, path) if path.is_file() else None


def settings_for(tuned: TunedSettings | None, arms: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Tuned settings of those of ``arms`` that have any."""
    return {} if tuned is None else {k: v for k, v in tuned.arms.items() if k in arms}
