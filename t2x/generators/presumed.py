"""What an unknown generator is probably sampled with, told by its own parts.

A model that was distilled to a few steps draws garbage at its pipeline's defaults, fifty steps with
classifier-free guidance, and nothing in diffusers says so. Its scheduler and its guidance embedding
mostly do; its name is a hint. Where neither speaks, the pipeline's defaults stay. What is presumed
is told in words, since it may be wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from t2x.generators.calls import default_arguments
from t2x.generators.presets import presets, whence

__all__ = ["Presumption", "presumed"]

STEPS = 4  # of a distilled model of which nothing else is known
MOST_FEW = 16  # a number before "steps" in a name above this is no distillation
_NAMED = re.compile(
    r"turbo|lightning|schnell|(?<![a-z])(?:lcm|hyper|dmd2?|sprint)(?![a-z])|"
    r"(?<!de)(?<!de[-_])(?<!un)(?<!non[-_])distill"
)
_COUNT = re.compile(r"(?<!\d)(\d{1,2})[-_ ]?steps?(?![a-z])")
# Made to walk a consistency model's few noise levels, whatever model stands behind them.
_CONSISTENCY = ("LCMScheduler", "TCDScheduler", "FlowMatchLCMScheduler")
_EULER = ("EulerDiscreteScheduler", "EulerAncestralDiscreteScheduler")
_FLUX_TOKENS = 256  # what a Flux that was distilled to a few steps reads


@dataclass(frozen=True)
class Presumption:
    """``sampling``: arguments of the call that differ from the pipeline's defaults; ``negative``:
    a negative prompt where none is given; ``reasons``: all of it in words; ``few_step``: whether
    its parts, and not only its name, say that it was distilled to a few steps.
    """

    sampling: dict[str, Any]
    reasons: tuple[str, ...]
    negative: str = ""
    few_step: bool = False


@dataclass(frozen=True)
class _Few:
    """A few steps, because of ``why``; ``guided`` if the guidance scale is an input and stays."""

    why: str
    steps: int = STEPS
    guided: bool = False
    more: dict[str, Any] = field(default_factory=dict)


def presumed(
    pipeline: Any, *, name: str = "", given: Mapping[str, Any] | None = None
) -> Presumption:
    """Read what a loaded pipeline of diffusers is probably sampled with.

    ``name`` is the repository or folder that it came from, beside what its parts remember;
    ``given`` are settings of the caller's own, of which nothing is said.
    """
    arguments = default_arguments(type(pipeline))
    told = next(_told(pipeline, arguments), None)
    few = told or _named(pipeline, arguments, name)
    reasons = [*_facts(pipeline)]
    if few is not None:
        sampling = _few_sampling(few, arguments)
        return Presumption(
            sampling, (*reasons, _said(few, _rest(sampling, given), arguments)), "", bool(told)
        )
    if _needs_negative(arguments):
        scale = arguments["true_cfg_scale"]
        why = f"true_cfg_scale {scale:g} acts only beside a negative prompt: one space stands in"
        return Presumption({}, (*reasons, why), " ")
    defaults = _shown(_rest(arguments, given))
    if _config(pipeline, "transformer", "guidance_embeds"):
        why = f"guidance is distilled, the scale is an input: the defaults stay ({defaults})"
    else:
        why = f"nothing says how its authors sample: the pipeline's defaults stay ({defaults})"
    return Presumption({}, (*reasons, why))


def _told(pipeline: Any, arguments: Mapping[str, Any]) -> Iterator[_Few]:
    """What the parts themselves say, the surest first."""
    if arguments.get("num_inference_steps", 0) <= STEPS:
        return  # the class is for few steps by itself
    scheduler = getattr(pipeline, "scheduler", None)
    kind, config = type(scheduler).__name__, getattr(scheduler, "config", {})
    embedded = _config(pipeline, "unet", "time_cond_proj_dim") is not None
    if kind in _CONSISTENCY:
        yield _Few(f"its scheduler is {kind}", guided=embedded)
    if embedded:
        yield _Few("its UNet takes the guidance scale as an input", guided=True)
    if getattr(getattr(pipeline, "config", None), "is_distilled", False):
        yield _Few("its configuration says is_distilled")
    if (
        _config(pipeline, "transformer", "guidance_embeds") is False
        and {"true_cfg_scale", "guidance_scale"} <= arguments.keys()
        and arguments["guidance_scale"]
        and not config.get("use_dynamic_shifting", True)
    ):
        why = "its transformer takes no guidance scale, and its scheduler's shift is fixed"
        limit = {"max_sequence_length": _FLUX_TOKENS}
        yield _Few(why, more=limit if "max_sequence_length" in arguments else {})
    if (
        kind in _EULER
        and config.get("timestep_spacing") == "trailing"
        and config.get("prediction_type") == "epsilon"
        and not config.get("rescale_betas_zero_snr")
    ):
        yield _Few(f"its scheduler is {kind} with 'trailing' timesteps")


def _named(pipeline: Any, arguments: Mapping[str, Any], name: str) -> _Few | None:
    """What its name hints at: the repository's, the folder's, or that of its denoiser."""
    if arguments.get("num_inference_steps", 0) <= STEPS:
        return None
    recorded = [getattr(getattr(pipeline, "config", None), "_name_or_path", None)]
    recorded += [_config(pipeline, part, "_name_or_path") for part in ("unet", "transformer")]
    for text in (name, *recorded):
        last = whence(str(text or "")).replace("\\", "/").rstrip("/").rpartition("/")[2].lower()
        if not (found := _NAMED.search(last)):
            continue
        count = next((int(n) for n in _COUNT.findall(last) if 0 < int(n) <= MOST_FEW), 0)
        why = f"{found[0]!r} in its name {last!r} is a hint, and nothing else speaks"
        guided = bool(_config(pipeline, "transformer", "guidance_embeds"))
        return _Few(why, count or _steps_of(type(pipeline).__name__), guided)
    return None


def _steps_of(kind: str) -> int:
    """What the distilled model of the same class that is known takes, but for the boldest."""
    known = [p for p in presets().values() if p.few_step and kind in p.pipelines.values()]
    return max([STEPS, *(int(p.sampling["num_inference_steps"]) for p in known)])


def _few_sampling(few: _Few, arguments: Mapping[str, Any]) -> dict[str, Any]:
    sampling: dict[str, Any] = {"num_inference_steps": few.steps, **few.more}
    if few.guided:
        return sampling
    if not arguments.get("guidance_scale"):  # not Flux, whose true_cfg_scale is off by itself
        if "true_cfg_scale" in arguments:
            sampling["true_cfg_scale"] = 1.0
    else:
        sampling["guidance_scale"] = 0.0
    return sampling


def _needs_negative(arguments: Mapping[str, Any]) -> bool:
    scale = arguments.get("true_cfg_scale")
    silent = "negative_prompt" in arguments and arguments["negative_prompt"] is None
    return bool(silent and scale is not None and scale > 1)


def _facts(pipeline: Any) -> Iterator[str]:
    """Scheduler and native size, as its parts have them."""
    scheduler = getattr(pipeline, "scheduler", None)
    config = getattr(scheduler, "config", {})
    if scheduler is not None:
        shown = {k: config.get(k) for k in ("prediction_type", "timestep_spacing", "sigma_data")}
        flow = config.get("use_flow_sigmas") or "FlowMatch" in type(scheduler).__name__
        if flow:
            dynamic = config.get("use_dynamic_shifting")
            shift = config.get("flow_shift", config.get("shift"))
            shown = {"flow matching, shift": "by size" if dynamic else shift}
        words = ", ".join(f"{key} {value}" for key, value in shown.items() if value is not None)
        yield f"scheduler {type(scheduler).__name__}" + (f" ({words})" if words else "")
    if (side := native_side(pipeline)) is not None:
        yield f"native size {side}x{side}"


def native_side(pipeline: Any) -> int | None:
    """Pixels on a side of the square pictures that a pipeline draws when no size is asked for; None
    where its parts don't tell."""
    sample, factor = _sample_size(pipeline), getattr(pipeline, "vae_scale_factor", None)
    return sample * factor if isinstance(sample, int) and isinstance(factor, int) else None


def _sample_size(pipeline: Any) -> Any:
    own = getattr(pipeline, "default_sample_size", None)
    parts = (_config(pipeline, part, "sample_size") for part in ("unet", "transformer"))
    return own or next((size for size in parts if size is not None), None)


def _rest(settings: Mapping[str, Any], given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Those that the caller did not give."""
    return {k: v for k, v in settings.items() if k not in (given or {})}


def _said(few: _Few, sampling: Mapping[str, Any], arguments: Mapping[str, Any]) -> str:
    changes = [f"{k} {v:g} in place of {arguments[k]}" for k, v in sampling.items()]
    stays = "; the guidance scale stays, since it is an input" if few.guided else ""
    so = f"so {', '.join(changes)}" if changes else "the settings are the caller's own"
    return f"distilled to a few steps: {few.why}; {so}{stays}"


def _shown(arguments: Mapping[str, Any]) -> str:
    names = ("num_inference_steps", "guidance_scale", "true_cfg_scale")
    known = {name: arguments.get(name) for name in names}
    said = ", ".join(f"{name} {value}" for name, value in known.items() if value is not None)
    return said or "but for those that are given"


def _config(pipeline: Any, part: str, key: str) -> Any:
    """A value of the configuration of a part; None if there is no such part or no such key."""
    config = getattr(getattr(pipeline, part, None), "config", None)
    return None if config is None else config.get(key)
