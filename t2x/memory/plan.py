"""What a run of rewriter, generator and rewards takes, phase by phase, before anything is loaded.

    plan = plan_run("Qwen/Qwen3-4B", "black-forest-labs/FLUX.1-dev", ["clip"], limit="24GB")
    print(plan.summary())
    plan.record()                       the same as JSON values

Networks are built from their configurations, without data, and run by their own pipelines'
calls; of a hub id only configurations and vocabularies are downloaded. What is unknown is None. Not
compared with an accelerator: there, the driver and torch's cache come on top, and attention may
need less than on a CPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from t2x.errors import T2XError
from t2x.memory.machine import available_bytes, parse_bytes, readable_bytes

if TYPE_CHECKING:
    import torch

    from t2x.types import Generator, RewardModel, Rewriter

__all__ = ["ON_CPU", "PLACEMENTS", "PhasePlan", "RunPlan", "plan_run", "room_on"]

# From the fastest to the one that needs least; "resident": all weights of the phase are there.
PLACEMENTS = (
    "resident",
    "8bit",
    "4bit",
    "model offload",
    "model offload, 8bit",
    "model offload, 4bit",
    "sequential offload",
)
ON_CPU = ("resident", "8bit")
ADVICE = {
    "8bit": 'load with quantize="8bit" (--quantize 8bit; needs torchao)',
    "4bit": 'load with quantize="4bit" (--quantize 4bit; needs bitsandbytes and a GPU)',
    "model offload": 'use offload="model" (--offload model)',
    "model offload, 8bit": 'use offload="model" with quantize="8bit"',
    "model offload, 4bit": 'use offload="model" with quantize="4bit"',
    "sequential offload": 'use offload="sequential" (--offload sequential; much slower)',
}


@dataclass(frozen=True)
class PhasePlan:
    """Bytes of one phase: ``weights`` by part, ``activations`` by step, ``peaks`` by placement
    (``PLACEMENTS``, those that there are); None is unknown. ``kind`` is "rewrite", "generate" or
    "score".
    """

    kind: str
    source: str
    weights: Mapping[str, int | None]
    activations: Mapping[str, int | None]
    peaks: Mapping[str, int | None]
    settings: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def weight(self) -> int | None:
        """Bytes of all weights; None if one part is unknown."""
        return _sum(self.weights.values())

    @property
    def activation(self) -> int | None:
        """Bytes beside weights at the fullest moment."""
        return _max(self.activations.values())

    @property
    def peak(self) -> int | None:
        """Bytes at the fullest moment with all weights of the phase there."""
        return self.peaks.get("resident")

    def fitting(self, limit: int, allowed: Sequence[str] = PLACEMENTS) -> str | None:
        """The fastest of the ``allowed`` placements under ``limit`` bytes; None where there is
        none or none known."""
        known = {name: self.peaks.get(name) for name in allowed}
        return next((n for n, size in known.items() if size is not None and size <= limit), None)


@dataclass(frozen=True)
class RunPlan:
    """The phases of a run in order, against ``limit`` bytes (None: nobody knows); ``placements``
    are those that the device can have."""

    phases: tuple[PhasePlan, ...]
    limit: int | None
    placements: tuple[str, ...] = PLACEMENTS

    @property
    def together_bytes(self) -> int | None:
        """Peak with everything loaded at once."""
        weights, most = _sum(p.weight for p in self.phases), _max(p.activation for p in self.phases)
        return None if weights is None or most is None else weights + most

    @property
    def phase_bytes(self) -> int | None:
        """Peak of the fullest phase, the others freed."""
        return _max(phase.peak for phase in self.phases)

    @property
    def together(self) -> bool | None:
        """Whether everything fits at once; None when that can't be known."""
        known = sum(phase.weight or 0 for phase in self.phases)
        return self._fits(self.together_bytes, known)

    @property
    def in_phases(self) -> bool | None:
        """Whether each phase fits alone; None when that can't be known."""
        known = max((phase.peak or phase.weight or 0 for phase in self.phases), default=0)
        return self._fits(self.phase_bytes, known)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Phases whose peak could not be found out."""
        return tuple(f"{p.kind} {p.source}" for p in self.phases if p.peak is None)

    @property
    def too_large(self) -> tuple[PhasePlan, ...]:
        """Phases that do not fit alone as they are."""
        if self.limit is None:
            return ()
        return tuple(p for p in self.phases if (p.peak or p.weight or 0) > self.limit)

    def _fits(self, size: int | None, known: int) -> bool | None:
        if self.limit is None:
            return None
        if known > self.limit:
            return False
        return None if size is None else size <= self.limit

    def advice(self) -> list[str]:
        """What to change, in the order in which to try it; empty where the run fits as it is."""
        if self.limit is None or self.together:
            return []
        found = []
        if self.together is False and len(self.phases) > 1:
            found.append("run in phases, each model freed before the next (t2x demo does)")
        for phase in self.too_large:
            found += [f"{phase.kind} {phase.source}: {text}" for text in self._changes(phase)]
        return found

    def _changes(self, phase: PhasePlan) -> list[str]:
        assert self.limit is not None
        found = []
        batch = phase.settings.get("batch", 1)
        if batch > 1:
            found.append(f"fewer than {batch} at a time (batch_size)")
        steps = {name: size for name, size in phase.activations.items() if size is not None}
        fullest = max(steps, key=lambda name: steps[name], default="")
        if fullest == "decode" and steps["decode"] > 0.2 * self.limit:
            found.append("decode in tiles (vae_tiling=True, --vae-tiling)")
        placement = phase.fitting(self.limit, self.placements)
        if placement in ADVICE:
            size = readable_bytes(phase.peaks[placement])
            found.append(f"{ADVICE[placement]}: about {size}")
        elif phase.peaks.get("sequential offload") is not None:
            found.append("no placement of this size fits; draw smaller or shorter")
        if not found:
            found.append(f"take a smaller one; it needs {readable_bytes(phase.peak)}")
        return found

    @property
    def verdict(self) -> str:
        """In words: fits together, in phases only, with a change, not, or unknown."""
        if self.together:
            return "fits together"
        if self.in_phases:
            return "fits in phases" if self.together is False else "fits in phases at least"
        if self.limit is not None and self.in_phases is False:
            helped = [phase.fitting(self.limit, self.placements) for phase in self.too_large]
            return "fits in phases, placed as advised" if all(helped) else "does not fit"
        return "fit unknown"

    def record(self) -> dict[str, Any]:
        """Everything as JSON values, sizes in bytes."""
        phases = [
            {
                "phase": p.kind,
                "source": p.source,
                "settings": dict(p.settings),
                "weights": dict(p.weights),
                "activations": dict(p.activations),
                "peaks": dict(p.peaks),
                "fitting": None if self.limit is None else p.fitting(self.limit, self.placements),
                "notes": list(p.notes),
            }
            for p in self.phases
        ]
        return {
            "limit": self.limit,
            "phases": phases,
            "together_bytes": self.together_bytes,
            "phase_bytes": self.phase_bytes,
            "together": self.together,
            "in_phases": self.in_phases,
            "verdict": self.verdict,
            "advice": self.advice(),
        }

    def summary(self) -> str:
        """One line for a log or a terminal."""
        parts = ", ".join(f"{p.kind} {p.source} {_size(p.peak, p.weight)}" for p in self.phases)
        there = readable_bytes(self.limit)
        total = _size(self.together_bytes, _sum(p.weight for p in self.phases))
        return f"{parts}; {total} together, {there} available: {self.verdict}"


def plan_run(
    rewriter: str | Rewriter | None = None,
    generator: str | Generator | None = None,
    rewards: Sequence[str | RewardModel] = (),
    *,
    limit: int | str | None = None,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    size: tuple[int, int] | None = None,
    num_frames: int | None = None,
    batch: int = 1,
    sampling: Mapping[str, Any] | None = None,
    **drawing: Any,
) -> RunPlan:
    """Plan a run: the bytes of each phase, whether they fit, and what to change.

    Args:
        rewriter: name from ``t2x list``, folder, hub id or loaded; None for none.
        generator: the same for what draws.
        rewards: names or loaded rewards.
        limit: bytes, or text such as "24GB"; None is what ``device`` has available now.
        device: where the run would be, also one that is not here, if ``limit`` and ``dtype`` are
            given; None is the best one here.
        dtype: number format of rewriter and generator; None as they load.
        size: (height, width) in pixels; None as the model draws.
        num_frames: of a video.
        batch: rows at a time in each phase.
        sampling: further arguments of the generator's call; ``vae_tiling`` and ``vae_slicing``
            decode in tiles or slices.
        drawing: ``source_size``, (height, width) of pictures to start from, for what can do
            without, too (else ``size`` where the generator needs one); ``prompt``, if it is longer
            than some 50 tokens, as Stable Diffusion and SDXL read it in several windows;
            ``options`` of loading the generator: preset, config of a single file, loras.

    Raises UnknownNameError for a name that is nothing, T2XError for a folder that is no checkpoint,
    for what is no device, size or number format, and for a device that is not here without a limit.
    """
    from t2x.memory.phases import generate_plan, rewrite_plan, score_plan

    where, most = room_on(device, limit)
    phases: list[PhasePlan] = []
    if rewriter is not None and rewriter != "none":
        phases.append(rewrite_plan(rewriter, device=where, dtype=dtype, batch=batch))
    drawn = size
    if generator is not None:
        phase = generate_plan(
            generator, device=where, dtype=dtype, size=size, num_frames=num_frames, batch=batch,
            sampling=sampling or {}, **drawing,
        )  # fmt: skip
        phases.append(phase)
        pixels = phase.settings.get("height"), phase.settings.get("width")
        drawn = drawn or (pixels if None not in pixels else None)  # type: ignore[assignment]
    for reward in rewards:
        phases.append(
            score_plan(reward, batch=batch, size=drawn or (512, 512), num_frames=num_frames)
        )
    return RunPlan(tuple(phases), most, ON_CPU if where.type == "cpu" else PLACEMENTS)


def room_on(
    device: str | torch.device | None, limit: int | str | None
) -> tuple[torch.device, int | None]:
    """Give the device of a plan and its bytes: ``limit``, else what is available now.

    Raises T2XError for what is no device or no size, and for a device that is not here and has no
    limit.
    """
    from t2x.devices import resolve_device

    where = resolve_device(device)
    if limit is not None:
        return where, parse_bytes(limit)
    try:
        return where, available_bytes(where)
    except (AssertionError, RuntimeError) as error:  # torch without it, no driver, no such number
        raise T2XError(
            f"{where} is not on this machine, so that its memory is not known; say how much it has "
            "(limit, --memory-limit 24GB)"
        ) from error


def _sum(sizes: Any) -> int | None:
    known = list(sizes)
    return None if None in known else sum(known)


def _size(peak: int | None, weight: int | None) -> str:
    """A peak in words; where it is unknown, what is known of it."""
    return readable_bytes(peak) if peak or not weight else f"more than {readable_bytes(weight)}"


def _max(sizes: Any) -> int | None:
    known = list(sizes)
    return None if None in known else max(known, default=0)
