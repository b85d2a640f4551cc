"""A run under a limit: how many pictures at a time each phase may take, or that one phase alone is
too large, before anything is loaded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from t2x.devices import resolve_device
from t2x.errors import T2XError
from t2x.memory.machine import parse_bytes, readable_bytes
from t2x.memory.phases import PROMPT, generate_plan, rewrite_plan, score_plan
from t2x.memory.plan import ON_CPU, PLACEMENTS, PhasePlan, RunPlan

if TYPE_CHECKING:
    from t2x.types import Generator, RewardModel, Rewriter

__all__ = ["Fitting", "fit_under"]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Fitting:
    """What a run does to stay under ``plan.limit``: pictures at a time that are drawn
    (``batch``), and that each reward scores, in the order of the rewards."""

    plan: RunPlan
    batch: int
    scored: tuple[int, ...]


def fit_under(
    limit: int | str,
    *,
    rewriter: str | Rewriter | None = None,
    generator: str | Generator,
    rewards: Sequence[str | RewardModel] = (),
    pictures: int = 1,
    size: tuple[int, int] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Fitting:
    """Fit a run of ``pictures`` into ``limit`` (bytes, or "20GB"), phase after phase, what was
    given by name freed after its phase.

    Args:
        rewriter: of one prompt; a name, folder, hub id or loaded, as the others. What is loaded
            already stays in memory all the time.
        size: (height, width) of the pictures; None as the model draws.
        options: of ``load_generator``: number format, device, sampling, preset, placement, what
            is added, guidance with its rewards; ``source_size`` (height, width) of a picture to
            start from and ``prompt``, the longest that is drawn, count, too.

    Raises T2XError in one line if a phase does not fit even one picture at a time, with what to
    change. A phase whose size is unknown is warned of and passes.
    """
    most = parse_bytes(limit)
    given = dict(options or {})
    device = resolve_device(given.get("device"))
    name = _placement(given)
    sampling = {**(given.get("sampling") or {}), **{k: given[k] for k in _CALL if k in given}}
    longest = max(PROMPT, given.get("prompt") or "", key=len)  # a rewrite is longer than its prompt
    phases: list[PhasePlan] = []
    if rewriter is not None and rewriter != "none":
        phases.append(rewrite_plan(rewriter, device=device))

    def draw(count: int) -> PhasePlan:
        return generate_plan(
            generator, device=device, dtype=given.get("dtype"), size=size, batch=count,
            sampling=sampling, source_size=given.get("source_size"), prompt=longest,
            options=given,
        )  # fmt: skip

    first = draw(1)
    pixels = size or (first.settings.get("height", 512), first.settings.get("width", 512))
    scores = [score_plan(reward, size=pixels) for reward in rewards]
    everything = [*phases, first, *scores]
    sources = [*([rewriter] if phases else []), generator, *rewards]
    kept = {
        id(p): p.weight or 0
        for p, source in zip(everything, sources, strict=True)
        if not isinstance(source, str)
    }
    held = {id(p): sum(size for key, size in kept.items() if key != id(p)) for p in everything}
    allowed = ON_CPU if device.type == "cpu" else PLACEMENTS
    plan = RunPlan(tuple(everything), most, allowed)
    for phase in everything:
        _check(phase, most - held[id(phase)], name if phase is first else "resident", plan)
    batch = _most(draw, first, pictures, most - held[id(first)], name)
    scored = tuple(
        _most(lambda n, r=reward: score_plan(r, batch=n, size=pixels), one, pictures,  # type: ignore[misc]
              most - held[id(one)], "resident")
        for reward, one in zip(rewards, scores, strict=True)
    )  # fmt: skip
    log.info("memory: %s", plan.summary())
    return Fitting(plan, batch, scored)


_CALL = ("num_inference_steps", "guidance_scale", "vae_tiling", "vae_slicing")


def _placement(options: Mapping[str, Any]) -> str:
    """The name in ``PLACEMENTS`` of what loading is asked for."""
    bits = options.get("quantize")
    bits = bits if isinstance(bits, str) else None
    offload = options.get("offload")
    if offload == "sequential":
        return "sequential offload"
    if offload is None:
        return bits or "resident"
    return f"model offload, {bits}" if bits else "model offload"  # groups need less


def _check(phase: PhasePlan, limit: int, placement: str, plan: RunPlan) -> None:
    needed = phase.peaks.get(placement, phase.peak)
    least = needed if needed is not None else (phase.weight or 0)
    what = f"{phase.kind} {phase.source}".replace("generate ", "drawing with ")
    if least > limit:
        alone = RunPlan((phase,), limit, plan.placements)
        changes = [text.partition(": ")[2] for text in alone.advice()]
        raise T2XError(
            f"{what} needs about {readable_bytes(least)} and {readable_bytes(max(limit, 0))} are "
            f"allowed: {'; '.join(changes) or 'take a smaller model'}"
        )
    if needed is None:
        reason = "; ".join(phase.notes) or "it could not be counted"
        log.warning("memory of %s is unknown: %s", what, reason)


def _most(
    plan: Callable[[int], PhasePlan], one: PhasePlan, count: int, limit: int, placement: str
) -> int:
    """How many of ``count`` fit at a time; between one and all, memory grows evenly."""
    least = one.peaks.get(placement, one.peak)
    if count == 1 or least is None:
        return count
    all_ = plan(count)
    whole = all_.peaks.get(placement, all_.peak)
    if whole is None or whole <= limit:
        return count
    return max(1, min(count - 1, 1 + int((limit - least) * (count - 1) / (whole - least))))
