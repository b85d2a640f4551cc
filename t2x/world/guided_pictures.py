"""Pictures of guided arms: drawn once, scored, judged, and kept in a store."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from t2x.devices import named_dtype
from t2x.errors import T2XError
from t2x.guidance.cost import CostModel
from t2x.guidance.metering import Counts, Meter, counted
from t2x.world.guided_arms import Arm, Bench, Order
from t2x.world.prompts import UserPrompt, validation_prompts
from t2x.world.scene import TASKS

if TYPE_CHECKING:
    from torch import Tensor

    from t2x.generators.diffusion import DiffusionGenerator
    from t2x.store import Store
    from t2x.types import RewardModel
    from t2x.world.scene import Scene

__all__ = ["Drawn", "Texts", "Workbench"]

Measure: TypeAlias = "Callable[[Tensor], Sequence[Mapping[str, float]]]"
_REWRITER = "rewriter"


@dataclass(frozen=True)
class Drawn:
    """One picture: whether it is right (1 or 0), what each optimised reward and the held-out one
    say of it, ``features`` of its look, what it took, and ``extra`` measures."""

    correct: float
    rewards: Mapping[str, float]
    heldout: float
    features: Sequence[float]
    counts: Counts
    seconds: float
    extra: Mapping[str, float] = field(default_factory=dict)

    def charged(self, counts: Counts) -> Drawn:
        """With ``counts`` more."""
        return replace(self, counts=self.counts + counts)


@dataclass(frozen=True)
class Texts:
    """What the generator reads, by the user's words, and what writing one took."""

    of: Mapping[str, str]
    charged: Counts


@dataclass
class Workbench:
    """Draws, scores and judges; ``unit`` FLOPs are a plain picture."""

    bench: Bench
    bare: Sequence[RewardModel]  # the same rewards, not metered: measuring is nobody's cost
    held_out: RewardModel
    unit: float
    store: Store | None = None
    identity: dict[str, Any] = field(default_factory=dict)
    probe: str = "two red cats to the left of a dog"

    @classmethod
    def load(
        cls,
        generator: str | DiffusionGenerator,
        rewards: Mapping[str, float] | Sequence[RewardModel],
        held_out: str | RewardModel,
        *,
        store: Store | None = None,
        dtype: str = "float32",
    ) -> Workbench:
        """Load what is given by name, and measure what each part costs. ``dtype``: of the generator
        and of what arms optimise, as ``t2x.devices.named_dtype``; the held-out reward, which costs
        no arm anything, measures in float32."""
        from t2x.generators.diffusion import DiffusionGenerator
        from t2x.registry import load_generator, load_reward

        if isinstance(generator, str):
            model: Any = load_generator(generator, dtype=dtype)
        else:
            model = generator
        if not isinstance(model, DiffusionGenerator):
            raise T2XError(f"guidance needs a diffusers pipeline; {model.model_id} is none")
        if isinstance(rewards, Mapping):
            bare = [load_reward(name, dtype=dtype) for name in rewards]
            weights = {r.name: w for r, w in zip(bare, rewards.values(), strict=True)}
        else:
            bare, weights = list(rewards), {r.name: 1.0 for r in rewards}
        meter = Meter()
        # One of each task: what a language model reads has the length of its prompt.
        texts = [p.text for p in validation_prompts(len(TASKS), 1)]
        costs = CostModel.measure(model.pipeline, bare, prompts=texts, sampling=model.sampling)
        bench = Bench(model, [meter.reward(r) for r in bare], weights, meter, costs)
        other = load_reward(held_out) if isinstance(held_out, str) else held_out
        studio = cls(bench, bare, other, unit=0.0, store=store)
        with meter.watching(model.pipeline):
            bench.draw([Order(studio.probe, studio.probe, 0)])
        studio.unit = costs.flops(meter.take())
        studio.identity = {**_identity(model, weights, other), "dtype": str(named_dtype(dtype))}
        return studio

    def calibrate(self, orders: Sequence[Order]) -> None:
        """Find how far the rewards of plain pictures spread, once for a store."""
        key = self._key("spread", prompts=[o.text for o in orders])
        found = self.store.get_result(key) if self.store is not None else None
        if found is None:
            self.bench.measure_spread(orders)
            found = {"means": self.bench.means, "spreads": self.bench.spreads}
            if self.store is not None:
                self.store.put_result(key, found)
        self.bench.means, self.bench.spreads = found["means"], found["spreads"]
        self.identity["spread"] = found

    def cost_of(self, arm: Arm, probe: Order | None = None) -> Callable[[int], float]:
        """FLOPs of a picture of an arm by size, tried on one order; kept in the store."""
        key = self._key("sizes", arm=repr(arm))
        known = (self.store.get_result(key) if self.store is not None else None) or {}
        bench, tried = self.bench, probe or Order(self.probe, self.probe, 0)

        def cost(size: int) -> float:
            if str(size) not in known:
                bench.meter.take()
                bench.meter.forget_texts()
                with bench.meter.watching(bench.generator.pipeline):
                    arm.run(bench, size, [tried])
                known[str(size)] = bench.costs.flops(bench.meter.take())
                if self.store is not None:
                    self.store.put_result(key, known)
            return float(known[str(size)])

        return cost

    def texts(self, source: str, prompts: Sequence[UserPrompt], seed: int) -> Texts:
        """What a source (``t2x.world.arms``) makes of prompts, and its FLOPs, which become a part
        of the cost model. Negative prompts are left out: not every generator takes them."""
        from t2x.world.arms import load_arm

        if source == "raw":
            return Texts({p.text: p.text for p in prompts}, Counts())
        arm = load_arm(source, self.bench.generator, seed)
        few = list(prompts[:4])
        flops = sum(counted(lambda p=p: arm.write([p])) for p in few) / len(few)  # type: ignore[misc]
        part = f"{_REWRITER} {source}"
        self.bench.costs = self.bench.costs.with_part(part, flops)
        charged = Counts()
        charged.add(part, 1)
        written = [text for text, _ in arm.write(prompts)]
        return Texts(dict(zip((p.text for p in prompts), written, strict=True)), charged)

    def drawn(
        self,
        arm: Arm,
        size: int,
        orders: Sequence[Order],
        scenes: Sequence[Scene],
        settings: Mapping[str, Any],
        measure: Measure | None = None,
    ) -> list[Drawn]:
        """Draw and judge a batch, or take it from the store if all of it is there. ``measure``
        gives the ``extra`` of each picture."""
        keys = [
            self._key("guided", **settings, prompt=o.prompt, text=o.text, seed=o.seed)
            for o in orders
        ]
        if self.store is not None:
            known = [self.store.get_result(key) for key in keys]
            if all(found is not None for found in known):
                return [_from_result(found) for found in known if found is not None]
        bench = self.bench
        bench.meter.take()
        bench.meter.forget_texts()
        begun = time.perf_counter()
        with bench.meter.watching(bench.generator.pipeline):
            media = self._run(arm, size, orders)
        seconds = (time.perf_counter() - begun) / len(orders)
        counts = bench.meter.take().scaled(1 / len(orders))
        found = self._measured(orders, scenes, media, counts, seconds)
        if measure is not None:
            found = [replace(d, extra=e) for d, e in zip(found, measure(media), strict=True)]
        if self.store is not None:
            for key, picture, drawn in zip(keys, media, found, strict=True):
                self.store.put_media(f"picture {key}", picture)
                self.store.put_result(key, _to_result(drawn))
        return found

    def _run(self, arm: Arm, size: int, orders: Sequence[Order]) -> Tensor:
        """Pictures (N, 3, H, W), drawn by as many calls as the texts need: what an arm does to a
        call is told of each of its rows."""
        import torch

        groups = self.bench.generator.groups([order.text for order in orders])
        parts = [arm.run(self.bench, size, [orders[row] for row in rows]) for rows in groups]
        rows = torch.tensor([row for group in groups for row in group])
        return torch.cat(parts)[rows.argsort()]

    def _measured(
        self,
        orders: Sequence[Order],
        scenes: Sequence[Scene],
        media: Tensor,
        counts: Counts,
        seconds: float,
    ) -> list[Drawn]:
        import torch

        from t2x.world.judge import judge_pictures

        prompts = [o.prompt for o in orders]
        with torch.no_grad():
            columns = {r.name: r.score(prompts, media).tolist() for r in self.bare}
            others = self.held_out.score(prompts, media).tolist()
            features = self._features(prompts, media).tolist()
        return [
            Drawn(
                float(verdict.correct),
                {name: column[i] for name, column in columns.items()},
                others[i],
                features[i],
                counts,
                seconds,
            )
            for i, verdict in enumerate(judge_pictures(list(scenes), media))
        ]

    def _features(self, prompts: Sequence[str], media: Tensor) -> Tensor:
        """What diversity compares, (N, D): the held-out reward's view of the pictures, which no arm
        can please, or coarse pixels where it has none."""
        from torch.nn import functional as F

        for encoder in getattr(self.held_out, "encoders", {}).values():
            found = encoder.encode(prompts, media, parts=frozenset({"image"}))
            if "image" in found:
                image: Tensor = found["image"]
                return image
        return F.adaptive_avg_pool2d(media, 8).flatten(1) - 0.5

    def _key(self, kind: str, **fields: Any) -> str:
        from t2x.store import make_key

        return make_key(kind, studio=self.identity, **fields)


def _identity(
    model: DiffusionGenerator, weights: Mapping[str, float], held_out: RewardModel
) -> dict[str, Any]:
    """All that decides a picture and its scores, beside arm, text and seed."""
    from t2x import __version__
    from t2x.world.weights import weight_digests

    return {
        "generator": model.fingerprint(),
        "rewards": dict(weights),
        "held_out": held_out.name,
        "weights": weight_digests(()),
        "t2x": __version__,
    }


def _to_result(drawn: Drawn) -> dict[str, Any]:
    return {
        "correct": drawn.correct,
        "rewards": dict(drawn.rewards),
        "heldout": drawn.heldout,
        "features": list(drawn.features),
        "counts": drawn.counts.to_dict(),
        "seconds": drawn.seconds,
        "extra": dict(drawn.extra),
    }


def _from_result(found: Mapping[str, Any]) -> Drawn:
    return Drawn(**{**found, "counts": Counts.from_dict(found["counts"])})
