"""What guidance did: rewards, weights, step sizes, gradients and cost, per step and sample.

``RewardGuidance`` and other controls write it while a pipeline samples; the strip picture, the
command and the benchmarks read it. What was not measured is NaN, never 0; in JSON it is null.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from t2x.guidance.regions import Region
from t2x.guidance.step import DENOISERS
from t2x.plain import plain

__all__ = ["PARTS", "GuidanceTrace", "PartCost", "SampleTrace", "TracedCall", "TracedStep"]

PARTS = ("denoiser", "decoder", "reward")
NAN = float("nan")


@dataclass
class PartCost:
    """Work of one part: evaluations of single samples (a batch of N counts N; two-pass and batched
    classifier-free guidance both 2 N), and seconds of forward and backward passes."""

    forward: int = 0
    backward: int = 0
    forward_seconds: float = 0.0
    backward_seconds: float = 0.0

    def __add__(self, other: PartCost) -> PartCost:
        """Sum, field by field."""
        return PartCost(
            self.forward + other.forward,
            self.backward + other.backward,
            self.forward_seconds + other.forward_seconds,
            self.backward_seconds + other.backward_seconds,
        )

    @property
    def seconds(self) -> float:
        """Of both passes."""
        return self.forward_seconds + self.backward_seconds


def _free() -> dict[str, PartCost]:
    return {part: PartCost() for part in PARTS}


def _total(costs: Sequence[Mapping[str, PartCost]]) -> dict[str, PartCost]:
    return {part: sum((c[part] for c in costs), PartCost()) for part in PARTS}


@dataclass
class TracedStep:
    """One evaluation of a noise level for N samples and K rewards, float32 on the CPU.

    ``values`` and ``weights`` (N, K), ``eta`` (N,) step size, ``gradient_norm`` (N,) of what x0_hat
    was moved along, ``extra`` (N,) by name (log weights of particles, say), ``parents`` (N,) row of
    this step that each row of the next goes on from, ``thumbnails`` (N, 3, h, w) uint8 of x0_hat
    before the edit, or None.
    """

    index: int
    visit: int
    sigma: float
    values: Tensor
    weights: Tensor
    eta: Tensor
    gradient_norm: Tensor
    extra: dict[str, Tensor]
    parents: Tensor | None
    thumbnails: Tensor | None
    cost: dict[str, PartCost]


@dataclass
class TracedCall:
    """One call of the pipeline: N ``prompts`` that rewards score against, the steps in order, and
    of each prompt the ``regions`` that its words tell."""

    prompts: list[str]
    steps: list[TracedStep] = field(default_factory=list)
    regions: list[tuple[Region, ...]] = field(default_factory=list)

    @property
    def cost(self) -> dict[str, PartCost]:
        """Of all its steps, by part."""
        return _total([step.cost for step in self.steps])


@dataclass(frozen=True)
class SampleTrace:
    """One sample over T steps: what a strip shows.

    ``values``, ``weights`` by reward name, ``eta`` and ``gradient_norm``: T numbers each, NaN where
    not measured; ``thumbnails`` T pictures (3, h, w) uint8 or None; ``regions`` as in
    ``TracedCall``. Where particles were resampled
    these are of the ancestors of the row that was asked for.
    """

    prompt: str
    indices: tuple[int, ...]
    sigmas: tuple[float, ...]
    values: Mapping[str, tuple[float, ...]]
    weights: Mapping[str, tuple[float, ...]]
    eta: tuple[float, ...]
    gradient_norm: tuple[float, ...]
    thumbnails: tuple[Tensor | None, ...]
    regions: tuple[Region, ...] = ()


class GuidanceTrace:
    """What happened under ``guide``, call by call and step by step.

    ``rewards`` names the K columns. ``thumbnails``: longest side in pixels of the pictures of
    x0_hat that are kept; None keeps none. ``notes`` holds decisions that are not per step, as JSON
    values. ``on_step``, if it is set, hears each step as it is written, with its call.
    """

    def __init__(self, rewards: Sequence[str] = (), *, thumbnails: int | None = None) -> None:
        if thumbnails is not None and thumbnails < 1:
            raise ValueError(f"thumbnails are at least 1 pixel, got {thumbnails}")
        self.rewards = tuple(rewards)
        self.thumbnails = thumbnails
        self.calls: list[TracedCall] = []
        self.notes: dict[str, Any] = {}
        self.on_step: Callable[[TracedCall, TracedStep], None] | None = None
        self._open = _free()  # timed since the last step

    # ---- writing ----------------------------------------------------------------------------

    def begin(self, prompts: Sequence[str], *, regions: Sequence[Sequence[Region]] = ()) -> None:
        """A call of the pipeline begins, for N prompts, one a row, with regions of each or none."""
        own = regions or [()] * len(prompts)
        self.calls.append(TracedCall(list(prompts), regions=[tuple(row) for row in own]))

    @contextmanager
    def timed(self, part: str, *, rows: int, backward: bool = False) -> Iterator[None]:
        """Count ``rows`` evaluations of a part (``PARTS``) and the seconds that they take."""
        if part not in PARTS:
            raise ValueError(f"unknown part {part!r}; allowed: {', '.join(PARTS)}")
        start = _now()
        yield
        self._spend(part, rows, _now() - start, backward)

    @contextmanager
    def watching(self, pipe: Any) -> Iterator[None]:
        """Count and time the forward passes of the pipeline's denoiser inside."""
        begun: list[float] = []

        def before(module: Any, args: Any, kwargs: Any) -> None:
            begun.append(_now())

        def after(module: Any, args: Any, kwargs: Any, result: Any) -> None:
            self._spend("denoiser", _rows(args, kwargs), _now() - begun.pop(), False)

        with ExitStack() as stack:
            for name in DENOISERS:
                module = getattr(pipe, name, None)
                if not isinstance(module, torch.nn.Module):
                    continue
                first = module.register_forward_pre_hook(before, with_kwargs=True)
                last = module.register_forward_hook(after, with_kwargs=True)
                stack.callback(first.remove)
                stack.callback(last.remove)
            yield

    def add(
        self,
        index: int,
        sigma: float,
        *,
        visit: int = 0,
        values: Tensor | None = None,
        weights: Tensor | None = None,
        eta: Tensor | None = None,
        gradient_norm: Tensor | None = None,
        parents: Tensor | None = None,
        media: Tensor | None = None,
        extra: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Write down one evaluation of a level; shapes as in ``TracedStep``.

        ``media``: x0_hat decoded, (N, 3, H, W) or (N, F, 3, H, W) in [0, 1], for a thumbnail if
        those are kept (of a video its middle frame). What was timed since the last step belongs to
        this one. Raises ValueError for wrong shapes.
        """
        if not self.calls:
            raise ValueError("begin a call before its steps")
        call = self.calls[-1]
        n, k = len(call.prompts), len(self.rewards)
        small = None
        if self.thumbnails is not None and media is not None:
            small = _thumbnails(media, self.thumbnails)
        call.steps.append(
            TracedStep(
                index,
                visit,
                float(sigma),
                values=_kept("values", values, (n, k)),
                weights=_kept("weights", weights, (n, k)),
                eta=_kept("eta", eta, (n,)),
                gradient_norm=_kept("gradient_norm", gradient_norm, (n,)),
                extra={key: _kept(key, row, (n,)) for key, row in (extra or {}).items()},
                parents=None if parents is None else _kept("parents", parents, (n,)).long(),
                thumbnails=small,
                cost=self._open,
            )
        )
        self._open = _free()
        if self.on_step is not None:
            self.on_step(call, call.steps[-1])

    # ---- reading ----------------------------------------------------------------------------

    @property
    def cost(self) -> dict[str, PartCost]:
        """Of all calls and what was timed since, by part."""
        return _total([*(call.cost for call in self.calls), self._open])

    def sample(self, row: int, *, call: int = -1) -> SampleTrace:
        """One row of a call over all its steps. Raises IndexError where there is none."""
        traced = self.calls[call]
        prompt = traced.prompts[row]
        rows = _ancestors(traced.steps, range(len(traced.prompts))[row])
        pairs = list(zip(traced.steps, rows, strict=True))
        return SampleTrace(
            prompt,
            tuple(step.index for step in traced.steps),
            tuple(step.sigma for step in traced.steps),
            {k: _column([s.values[r, i] for s, r in pairs]) for i, k in enumerate(self.rewards)},
            {k: _column([s.weights[r, i] for s, r in pairs]) for i, k in enumerate(self.rewards)},
            _column([s.eta[r] for s, r in pairs]),
            _column([s.gradient_norm[r] for s, r in pairs]),
            tuple(None if s.thumbnails is None else s.thumbnails[r] for s, r in pairs),
            traced.regions[row],
        )

    def summary(self) -> dict[str, Any]:
        """Means over samples, as JSON values but for NaN: ``first`` and ``last`` value measured of
        each reward, ``weights`` over all steps, and ``cost`` by part over all calls."""
        measured = {k: self._ends(i) for i, k in enumerate(self.rewards)}
        weights = [step.weights for call in self.calls for step in call.steps]
        mean = torch.cat(weights).nanmean(0) if weights else torch.full((len(self.rewards),), NAN)
        return {
            "rewards": list(self.rewards),
            "calls": len(self.calls),
            "pictures": sum(len(call.prompts) for call in self.calls),
            "steps": sum(len(call.steps) for call in self.calls),
            "first": {k: first for k, (first, _) in measured.items()},
            "last": {k: last for k, (_, last) in measured.items()},
            "weights": dict(zip(self.rewards, mean.tolist(), strict=True)),
            "cost": plain(self.cost, exact=True),
            "notes": self.notes,
        }

    def to_json(self) -> str:
        """All but the thumbnails as one JSON text; NaN becomes null."""
        calls = [
            {
                "prompts": call.prompts,
                "regions": [[r.describe() for r in row] for row in call.regions],
                "steps": [self._step(s) for s in call.steps],
            }
            for call in self.calls
        ]
        return json.dumps(plain({**self.summary(), "trace": calls}), ensure_ascii=False)

    # ---- parts ------------------------------------------------------------------------------

    def _spend(self, part: str, rows: int, seconds: float, backward: bool) -> None:
        done = PartCost(0, rows, 0.0, seconds) if backward else PartCost(rows, 0, seconds, 0.0)
        self._open[part] = self._open[part] + done

    def _ends(self, column: int) -> tuple[float, float]:
        """Means over samples of the first and the last value that each has."""
        first, last = [], []
        for at, call in enumerate(self.calls):
            for row in range(len(call.prompts)):
                found = self.sample(row, call=at).values[self.rewards[column]]
                known = [value for value in found if value == value]
                first.append(known[0] if known else NAN)
                last.append(known[-1] if known else NAN)
        means = (torch.tensor(row, dtype=torch.float64).nanmean() for row in (first, last))
        start, end = (float(mean) for mean in means)
        return start, end

    def _step(self, step: TracedStep) -> dict[str, Any]:
        def named(table: Tensor) -> dict[str, Any]:
            return {k: table[:, i] for i, k in enumerate(self.rewards)}

        return {
            "index": step.index,
            "visit": step.visit,
            "sigma": step.sigma,
            "values": named(step.values),
            "weights": named(step.weights),
            "eta": step.eta,
            "gradient_norm": step.gradient_norm,
            "extra": step.extra,
            "parents": step.parents,
            "cost": step.cost,
        }


def _now() -> float:
    """Seconds, at the end of what an accelerator still does."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return time.perf_counter()


def _rows(args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
    """Samples in a call of a denoiser; Z-Image gives them as a list."""
    for value in (*args, *kwargs.values()):
        if isinstance(value, (Tensor, list)) and not (isinstance(value, Tensor) and value.ndim < 2):
            return len(value)
    return 1


def _kept(name: str, value: Tensor | None, shape: tuple[int, ...]) -> Tensor:
    if value is None:
        return torch.full(shape, NAN)
    if value.shape != shape:
        raise ValueError(f"{name} must be {shape}, got {tuple(value.shape)}")
    return value.detach().to("cpu", torch.float32)


def _thumbnails(media: Tensor, side: int) -> Tensor:
    """(N, 3, h, w) uint8, at most ``side`` pixels long; small pictures stay as they are."""
    pictures = media.detach()
    if pictures.ndim == 5:
        pictures = pictures[:, pictures.shape[1] // 2]
    pictures = pictures.float().nan_to_num().clamp(0, 1)
    height, width = pictures.shape[-2:]
    longest = max(height, width)
    if longest > side:
        size = (max(1, round(height * side / longest)), max(1, round(width * side / longest)))
        pictures = torch.nn.functional.interpolate(
            pictures, size, mode="bilinear", antialias=True, align_corners=False
        )
    return pictures.mul(255).round().to("cpu", torch.uint8)


def _ancestors(steps: Sequence[TracedStep], row: int) -> list[int]:
    """The row at each step that became ``row`` at the end."""
    rows = []
    for step in reversed(steps):
        if step.parents is not None:
            row = int(step.parents[row])
        rows.append(row)
    return rows[::-1]


def _column(values: Sequence[Tensor]) -> tuple[float, ...]:
    return tuple(float(value) for value in values)
