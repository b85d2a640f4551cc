"""Pictures and their scores: what is asked for twice is drawn and scored once."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from t2x.errors import T2XError
from t2x.rollouts.rendering import Drawer, Drawing, Renderer, store_pictures
from t2x.search.evaluator import Order

if TYPE_CHECKING:
    from torch import Tensor

    from t2x.rollouts.config import RolloutConfig
    from t2x.scoring.ensemble import RewardEnsemble
    from t2x.store import Store
    from t2x.training.config import RewardConfig
    from t2x.types import Media

__all__ = ["Measurer", "build_measurer"]


class Measurer:
    """Draws and scores: the generator behind ``drawer``, the rewards of ``ensemble``.

    ``store`` keeps pictures on disk, for this run and any other. ``seconds`` are those of the last
    call by ``drawing`` and ``scoring``, ``used`` how many different pictures it needed, ``drawn``
    how many of them the store did not have.
    """

    def __init__(
        self,
        drawer: Drawer,
        ensemble: RewardEnsemble,
        *,
        store: Store | None = None,
        batch_size: int = 32,
    ) -> None:
        if drawer.modality != ensemble.modality:
            raise T2XError(
                f"the generator makes {drawer.modality}s and {ensemble.name} scores "
                f"{ensemble.modality}s; give rewards of the same kind"
            )
        if batchwise := [r.name for r in ensemble.rewards if getattr(r, "batchwise", False)]:
            raise T2XError(
                f"{batchwise[0]} gives a picture another score in another batch; give the rewards "
                "themselves, and how they are combined as reward.combine"
            )
        self.drawer, self.ensemble, self.store = drawer, ensemble, store
        self.batch_size = batch_size
        self.seconds = {"drawing": 0.0, "scoring": 0.0}
        self.used = self.drawn = 0

    def measure(self, orders: Sequence[Order]) -> Tensor:
        """Scores of N orders, each against its prompt: (N, K) float64, NaN for what a reward could
        not measure.
        """
        import torch

        begun = time.perf_counter()
        unique = list(dict.fromkeys(orders))
        drawings = {o: Drawing(o.text, o.negative, o.seed) for o in unique}
        pictures, new = store_pictures(self.drawer, list(drawings.values()), self.store)
        drawn = time.perf_counter()
        steps = range(0, len(unique), self.batch_size)
        batches = [unique[start : start + self.batch_size] for start in steps]
        rows = [
            self._scored([o.prompt for o in batch], [pictures[drawings[o]] for o in batch])
            for batch in batches
        ]
        self.seconds = {"drawing": drawn - begun, "scoring": time.perf_counter() - drawn}
        self.used, self.drawn = len(pictures), new
        number = len(self.ensemble.rewards)
        table = torch.cat(rows) if rows else torch.zeros(0, number, dtype=torch.float64)
        place = {order: i for i, order in enumerate(unique)}
        return table[[place[o] for o in orders]]

    def _scored(self, prompts: list[str], pictures: list[Tensor]) -> Tensor:
        import torch

        with torch.no_grad():
            parts = self.ensemble.components(prompts, _media(pictures))
        table = torch.stack([column.detach().cpu().double() for column in parts.values()], -1)
        return torch.where(table.isinf(), math.nan, table)


def _media(pictures: list[Tensor]) -> Media:
    import torch

    wide = [picture.float().div(255) for picture in pictures]
    if len({picture.shape for picture in wide}) == 1:
        return torch.stack(wide)
    return [picture.unsqueeze(0) for picture in wide]


def build_measurer(reward: RewardConfig, rollout: RolloutConfig) -> Measurer:
    """Load generator, rewards and store as the sections of a recipe name them."""
    from t2x.registry import load_generator, load_reward
    from t2x.scoring.ensemble import RewardEnsemble
    from t2x.store import Store

    drawer: Drawer
    common: dict[str, Any] = {"batch_size": rollout.batch_size, "negative": rollout.negative}
    if rollout.workers:
        from t2x.rollouts.workers import WorkerRenderer

        drawer = WorkerRenderer(
            reward.generator,
            options=reward.generator_options,
            workers=rollout.workers,
            **common,
        )
    else:
        drawer = Renderer(load_generator(reward.generator, **reward.generator_options), **common)
    rewards = [load_reward(name, **reward.options.get(name, {})) for name in reward.rewards]
    weights = {r.name: w for r, w in zip(rewards, reward.rewards.values(), strict=True)}
    return Measurer(
        drawer,
        RewardEnsemble(rewards, weights),
        store=None if reward.store is None else Store(reward.store),
        batch_size=rollout.batch_size,
    )
