"""What a generator samples with where the caller says nothing.

A folder's own ``t2x.json`` wins over the preset of a published model, which wins over what the
parts of the pipeline let presume, which wins over the pipeline's defaults.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from t2x.errors import T2XError
from t2x.generators.calls import default_arguments
from t2x.generators.folders import folder_settings
from t2x.generators.presets import NOT_RUN, ModelPreset, preset_for, preset_named
from t2x.generators.presumed import Presumption, presumed
from t2x.weight_files import names_file

log = logging.getLogger(__name__)

__all__ = [
    "SamplingDefaults",
    "chosen_preset",
    "is_recorded",
    "sampling_defaults",
    "stored_sampling",
]


@dataclass(frozen=True)
class SamplingDefaults:
    """``sampling``: arguments of the pipeline's call, what was given included; ``negative``:
    negative prompt that stands in where none is given; ``preset``: that they are from, if any;
    ``assumptions``: what was presumed and why, in words.
    """

    sampling: dict[str, Any]
    negative: str = ""
    preset: ModelPreset | None = None
    assumptions: tuple[str, ...] = ()


def chosen_preset(source: Any, name: str | None) -> ModelPreset | None:
    """Give the preset of that name, none for "none", and that of ``source`` for None."""
    if not isinstance(name, str | None):
        raise T2XError(f"preset is {name!r}; give a name of `t2x list generators`, or 'none'")
    if name == "none":
        return None
    return preset_for(source) if name is None else preset_named(name)


def stored_sampling(name: str | Path, source: str) -> dict[str, Any]:
    """Give what a generator that is not loaded is sampled with, as far as its name and its folder
    tell; ``source`` is where its whole pipeline lies (``t2x.registry.generator_source``)."""
    preset = preset_for(name)
    own = {} if preset is None else preset.sampling
    return {**own, **(folder_settings(source) if Path(source).is_dir() else {})}


def is_recorded(source: Any) -> bool:
    """Whether a source is known only by what it says of its origin, and may have changed since: a
    loaded pipeline, one file, or a folder other than the hub's cache."""
    if not isinstance(source, (str, Path)) or names_file(source):
        return True
    return Path(source).is_dir() and "models--" not in str(source)


def sampling_defaults(
    pipeline: Any,
    *,
    preset: ModelPreset | None,
    given: Mapping[str, Any],
    name: str = "",
    recorded: bool = False,
    say: bool = True,
) -> SamplingDefaults:
    """Complete what was ``given`` by the caller and the folder.

    ``name`` is what a pipeline without a preset was loaded by. ``recorded``: the preset is only
    that of the origin (``is_recorded``), and does not hold if the parts of the pipeline say that it
    was distilled since. What is presumed is logged once, if ``say``. Raises T2XError for a preset
    of another class of pipelines.
    """
    arguments = default_arguments(type(pipeline))
    kind = type(pipeline).__name__
    if preset is not None and kind not in preset.pipelines.values():
        raise T2XError(
            f"the preset {preset.name} is for {', '.join(sorted(set(preset.pipelines.values())))}, "
            f"not for {kind}; give another, or preset='none'"
        )
    if preset is not None and recorded and not preset.few_step:
        found = presumed(pipeline, name=name, given=given)
        if found.few_step and set(found.sampling) - set(given):
            told = f"it was made from {preset.hub[0]}, whose settings do not hold for it any more"
            return _presumed(found, given, (name or kind) if say else "", (told,))
    if preset is not None:
        own = preset.sampling_for(arguments, given)
        differs = tuple(_other_scheduler(preset, pipeline))
        said = "; ".join((f"preset {preset.name}, {NOT_RUN}", *differs))
        if say:
            log.info("%s: sampled as its authors do (%s)", name or kind, said)
        return SamplingDefaults({**own, **given}, preset.negative, preset, differs)
    found = presumed(pipeline, name=name, given=given)
    whole = {"num_inference_steps", "guidance_scale"} <= given.keys()
    if whole and not found.negative:
        return SamplingDefaults(dict(given))
    return _presumed(found, given, (name or kind) if say else "")


def _presumed(
    found: Presumption, given: Mapping[str, Any], name: str, before: tuple[str, ...] = ()
) -> SamplingDefaults:
    """Logged under ``name``, if it has one."""
    reasons = (*before, *found.reasons)
    changed = bool(set(found.sampling) - set(given)) or bool(found.negative)
    level = logging.WARNING if changed else logging.INFO
    if name:
        log.log(level, "%s is no model that is known here; presumed: %s", name, "; ".join(reasons))
    return SamplingDefaults({**found.sampling, **given}, found.negative, None, reasons)


def _other_scheduler(preset: ModelPreset, pipeline: Any) -> list[str]:
    """Where the scheduler of a pipeline is not as the preset wants it, in words."""
    scheduler = getattr(pipeline, "scheduler", None)
    kind, config = type(scheduler).__name__, getattr(scheduler, "config", {})
    said = [] if kind == preset.scheduler else [f"scheduler {kind}, not {preset.scheduler}"]
    for key, value in preset.scheduler_changes.items():
        if key in config and config[key] != value:
            said.append(f"the scheduler's {key} is {config[key]!r}, not {value!r}")
    return [f"{text} as its authors'; left as it is" for text in said]
