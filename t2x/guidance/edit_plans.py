"""From what a person asks of an edit to what ``t2x.guidance.editing`` takes: the target's words,
the method, weights of rewards, a region as a mask.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from t2x.errors import T2XError

if TYPE_CHECKING:
    from torch import Tensor

    from t2x.guidance.config import GuidanceConfig
    from t2x.guidance.editing import EditConfig
    from t2x.types import RewardModel

__all__ = [
    "changed_settings",
    "checked_box",
    "chosen_method",
    "edit_config",
    "parsed_box",
    "region_mask",
    "resized",
    "target_text",
    "under_own_names",
]


def target_text(instruction: str, *, source_prompt: str = "", target_prompt: str = "") -> str:
    """What the edited picture shows: ``target_prompt``, or what the instruction makes of
    ``source_prompt``. Raises T2XError where neither says anything."""
    if target_prompt.strip():
        return target_prompt
    if not instruction.strip():
        raise T2XError(
            'say what to change, like "make the cat blue", or give a target prompt: what the '
            "edited picture shows"
        )
    from t2x.guidance.instructions import instruction_to_target

    text = instruction_to_target(source_prompt, instruction)
    if not text.strip():
        raise T2XError(f"nothing is left to draw after {instruction!r}; give a target prompt")
    return text


def chosen_method(source_prompt: str, *, rewards: bool) -> str:
    """The method that what is known allows: rewardflow with rewards, flowedit with the source's
    words, else sdedit."""
    if rewards:
        return "rewardflow"
    return "flowedit" if source_prompt.strip() else "sdedit"


def edit_config(
    method: str,
    *,
    source_prompt: str,
    weights: Mapping[str, float],
    settings: Mapping[str, Any],
    mode: str | None = None,
    options: Mapping[str, Any] | Sequence[str] = (),
) -> EditConfig:
    """The configuration, with ``settings`` that are not None; ``mode`` (E without) and ``options``
    of guidance as for ``t2x.guidance.recipe.make_recipe``. Raises T2XError for rewards or
    settings that the method does not take, or lacks, and values out of range."""
    from t2x.guidance.editing import EditConfig

    given = {key: value for key, value in settings.items() if value is not None}
    if weights and method != "rewardflow":
        raise T2XError(f"rewards guide the method rewardflow; got the method {method}")
    if method != "flowedit" and (wrong := [k for k in ("source_scale", "focus") if k in given]):
        name = wrong[0].replace("_", "-")
        raise T2XError(f"{name} is for the method flowedit; leave it out with {method}")
    if method == "rewardflow":
        if not weights:
            raise T2XError("rewardflow needs rewards to guide by; give some, like vqa=1,clip=0.3")
        given["guidance"] = _guidance(weights, mode, options)
    elif mode or options:
        name = "mode" if mode else "guide-option"
        raise T2XError(f"{name} is about rewards that guide; name some, like vqa=1,clip=0.3")
    config = EditConfig(method, **given)  # type: ignore[arg-type]
    if method == "flowedit" and not source_prompt.strip():
        raise T2XError(
            "flowedit compares with what the picture shows; give the source prompt, or take the "
            "method sdedit"
        )
    return config


def _guidance(
    weights: Mapping[str, float], mode: str | None, options: Mapping[str, Any] | Sequence[str]
) -> GuidanceConfig:
    from t2x.guidance.recipe import make_recipe

    if mode not in (None, "E", "J"):
        raise T2XError(
            f"edits are guided by gradients, in mode E or J; got {mode!r}. The other modes draw "
            "new pictures"
        )
    recipe = make_recipe(weights, mode=mode or "E", options=options, loaded=list(weights))
    return recipe.config


def changed_settings(config: EditConfig) -> dict[str, Any]:
    """By name what is set of guidance, as ``edit_config`` takes it: what is not as without."""
    from t2x.guidance.config import GuidanceConfig

    plain, own = GuidanceConfig(), config.guidance or GuidanceConfig()
    names = [f.name for f in fields(GuidanceConfig) if f.name not in ("rewards", "mode")]
    return {n: getattr(own, n) for n in names if getattr(own, n) != getattr(plain, n)}


def under_own_names(config: EditConfig, rewards: Sequence[RewardModel]) -> EditConfig:
    """The same with weights under the own names of ``rewards``, loaded in the order of the
    weights, which may not be those that they are loaded by."""
    if config.guidance is None:
        return config
    weights = config.guidance.rewards.values()
    own = {reward.name: weight for reward, weight in zip(rewards, weights, strict=True)}
    return replace(config, guidance=replace(config.guidance, rewards=own))


def checked_box(box: Sequence[float]) -> tuple[float, float, float, float]:
    """Left, top, right and bottom in [0, 1]. Raises T2XError for anything else."""
    left, top, right, bottom = box if len(box) == 4 else (math.nan,) * 4
    if not (0 <= left < right <= 1 and 0 <= top < bottom <= 1):
        said = ",".join(f"{value:g}" for value in box)
        raise T2XError(f"a region is LEFT,TOP,RIGHT,BOTTOM in 0 to 1, like 0,0,0.5,1; got {said}")
    return left, top, right, bottom


def parsed_box(text: str) -> tuple[float, float, float, float]:
    """The box of a text like "0,0,0.5,1". Raises T2XError for anything else."""
    try:
        box = [float(part) for part in text.split(",")]
    except ValueError:
        box = []
    if len(box) != 4:
        raise T2XError(
            f"a region is LEFT,TOP,RIGHT,BOTTOM in 0 to 1, like 0,0,0.5,1; got {text[:40]!r}"
        )
    return checked_box(box)


def region_mask(box: tuple[float, float, float, float], media: Tensor) -> Tensor:
    """(1, 1, H, W), 1 in the box of (N, 3, H, W)."""
    height, width = media.shape[-2:]
    left, top, right, bottom = box
    region = media.new_zeros(1, 1, height, width)
    rows = slice(int(top * height), math.ceil(bottom * height))
    region[..., rows, int(left * width) : math.ceil(right * width)] = 1
    return region


def resized(media: Tensor, size: tuple[int, int]) -> Tensor:
    """(N, 3, H, W) in another size (height, width), in steps of 1/255."""
    from torch.nn.functional import interpolate

    from t2x.media import quantize

    found = quantize(interpolate(media, size=size, mode="bicubic", antialias=True))
    return found  # type: ignore[return-value]
