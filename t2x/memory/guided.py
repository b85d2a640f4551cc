"""What guidance by rewards adds to the phase that draws: their weights, and the graph of a step."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from t2x.errors import T2XError
from t2x.generators.loading import quiet
from t2x.memory.counting import Footprint
from t2x.memory.models import reward_graph

if TYPE_CHECKING:
    from t2x.guidance.recipe import GuidanceRecipe
    from t2x.types import RewardModel

__all__ = ["GuidanceBytes"]

log = logging.getLogger(__name__)


@dataclass
class GuidanceBytes:
    """Bytes of guidance by ``recipe``. ``graphs`` is for ``pipeline_activations`` to fill;
    ``notes`` say what could not be counted. ``rewards``: loaded ones, in place of those that it
    names.

    Modes that choose among trajectories or pictures go back through nothing; what they draw at a
    time is the generator's batch.
    """

    recipe: GuidanceRecipe
    rewards: Sequence[RewardModel] = ()
    graphs: dict[str, Footprint | None] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        mode = self.recipe.mode.partition("+")[0]
        if mode in ("E", "J"):
            self.graphs["decode"] = None
        if mode == "J":
            self.graphs["denoise"] = None
        if mode == "noise":
            self.notes.append("guidance: what mode noise holds over all steps is not counted")

    def counted(self, size: tuple[int, int] | None, batch: int) -> tuple[dict[str, int], int]:
        """Weights of the rewards, by name, and the bytes of one guided step of ``batch`` pictures
        of ``size`` beside what its phase holds anyway."""
        from t2x.memory.phases import score_plan
        from t2x.registry import load_reward

        weights, scoring = dict[str, int](), Footprint(0, 0)
        for source in self.rewards or self.recipe.config.rewards:
            name = source if isinstance(source, str) else source.name
            plan = score_plan(source, size=size or (512, 512))
            weights[f"reward {name}"] = plan.weight or 0
            if plan.activation is None or not self.graphs:
                why = "; ".join(plan.notes) or "its gradient takes nothing here"
                self.notes += [f"guidance by {name}: {why}"] if plan.activation is None else []
                scoring = Footprint(scoring.held, max(scoring.peak, plan.activation or 0))
                continue
            try:
                with quiet():
                    found = reward_graph(load_reward(source), size=size or (512, 512))
            except (RuntimeError, T2XError) as error:
                self.notes.append(f"guidance by {name}: its gradient is not counted ({error})")
                continue
            scoring = Footprint(scoring.held + found.held, max(scoring.peak, found.peak))
        need = batch * max(scoring.peak, scoring.held)
        for phase in ("decode", "denoise"):
            graph = self.graphs.get(phase)
            if graph is not None:
                need = max(graph.peak, graph.held + need)
            elif phase in self.graphs:
                self.notes.append(f"guidance: the graph of the step ({phase}) is not counted")
        return weights, need
