"""A picture changed by an instruction, by ``t2x.edit`` or by a pipeline that edits pictures."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from t2x.errors import T2XError
from t2x.studio.changes import measured_change
from t2x.studio.drawing import Brush, Shot, call_of, own_pixels
from t2x.studio.guiding import THUMBNAIL, StepTeller, steered_names, steering_rewards
from t2x.studio.scoring import score_pictures
from t2x.types import Context

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor

    from t2x.generators.diffusion import DiffusionGenerator
    from t2x.guidance.editing import EditConfig
    from t2x.guidance.trace import GuidanceTrace
    from t2x.studio.requests import EditRequest
    from t2x.studio.work import Work
    from t2x.types import Generator, RewardModel

_LEAST_MULTIPLE = 8  # of the sides of pictures; what any pipeline asks for

__all__ = ["check_plan", "edit", "edits_itself", "fitted_size", "nearest_size", "size_facts"]


def check_plan(request: EditRequest) -> None:
    """Raise T2XError for an edit of which a text-to-image model could make nothing: words that say
    nothing, or a method without what it needs. Needs no model."""
    _target(request)
    _config(request)


def edit(work: Work, request: EditRequest) -> None:
    """Tell the picture as the model sees it, then its edits, then what rewards say of both against
    the target's words."""
    brush = Brush(work, request, request.sampling, total=request.num)
    generator = _editor(brush.generator)
    source = _fitted(request, generator)
    own = edits_itself(generator.pipeline)
    target = request.instruction if own and request.instruction.strip() else _target(request)
    rewards: list[RewardModel] = []
    config = None if own else _config(request)
    if config is not None and request.weights:
        rewards = steering_rewards(work, request.weights)
        config = _named(config, rewards)

    def edited(generator: Generator, shot: Shot) -> tuple[Tensor, Mapping[str, Any]]:
        if config is None:
            given = call_of(generator, shot, request.sampling) | {"size": None}
            media = generator.generate(**given, sources=source)[0]  # type: ignore[call-arg]
            return media, {"change": measured_change(source[0], media)}
        return _changed(work, brush, request, config, rewards, source, shot)

    brush.keep(Shot("source", 0, request.source_prompt, "", request.seed), source[0], counted=False)
    for index in range(request.num):
        brush.paint(Shot("edited", index, target, "", request.seed + index), edited)
    score_pictures(
        work,
        steered_names(work, request),
        target,
        brush.media,
        context=Context(source=source),
    )


def _changed(
    work: Work,
    brush: Brush,
    request: EditRequest,
    config: EditConfig,
    rewards: list[RewardModel],
    source: Tensor,
    shot: Shot,
) -> tuple[Tensor, Mapping[str, Any]]:
    """One edit by ``t2x.edit``."""
    from t2x.guidance.edit_plans import region_mask
    from t2x.guidance.editing import edit as edit_pictures
    from t2x.media import quantize

    pipe = getattr(brush.generator, "pipeline", None)
    teller = StepTeller(work, brush, shot, pipe, tuple(reward.name for reward in rewards))
    traces: list[GuidanceTrace] = []

    def observe(trace: GuidanceTrace) -> None:
        trace.thumbnails, trace.on_step = THUMBNAIL, teller
        traces.append(trace)

    media = edit_pictures(
        brush.generator,
        source,
        source_prompts=[request.source_prompt] if request.source_prompt.strip() else None,
        target_prompts=[shot.text],
        seeds=[shot.seed],
        config=config,
        regions=None if request.region is None else region_mask(request.region, source),
        rewards=rewards,
        instructions=[request.instruction] if request.instruction.strip() else None,
        observe=observe,
    )
    change = measured_change(quantize(source)[0], media[0], request.region)
    facts: dict[str, Any] = {"change": change}
    return media[0], facts | ({"trace": traces[-1].sample(0)} if traces else {})


def _editor(generator: Generator) -> DiffusionGenerator:
    from t2x.generators.diffusion import DiffusionGenerator

    if not isinstance(generator, DiffusionGenerator):
        raise T2XError(
            f"{generator.model_id} can't edit; load a generator that is a pipeline of diffusers"
        )
    if generator.modality != "image":
        raise T2XError(f"{generator.model_id} makes videos; load one that makes pictures to edit")
    return generator


def edits_itself(pipe: Any) -> bool:
    """Whether a pipeline takes a picture and an instruction (Kontext, Qwen-Image-Edit)."""
    from t2x.generators.calls import default_arguments
    from t2x.generators.sources import needs_source

    kind = type(pipe)
    return needs_source(kind, default_arguments(kind))


def _target(request: EditRequest) -> str:
    from t2x.guidance.edit_plans import target_text

    return target_text(
        request.instruction,
        source_prompt=request.source_prompt,
        target_prompt=request.target_prompt,
    )


def _config(request: EditRequest) -> EditConfig:
    from t2x.guidance.edit_plans import chosen_method, edit_config

    names = ("strength", "source_scale", "focus", "tether")
    method = request.method or chosen_method(request.source_prompt, rewards=bool(request.weights))
    return edit_config(
        method,
        source_prompt=request.source_prompt,
        weights=request.weights,
        settings={name: getattr(request, name) for name in names},
        mode=request.mode,
        options=request.options,
    )


def _named(config: EditConfig, rewards: list[RewardModel]) -> EditConfig:
    from t2x.guidance.edit_plans import under_own_names

    return under_own_names(config, rewards)


def _fitted(request: EditRequest, generator: DiffusionGenerator) -> Tensor:
    """(1, 3, H, W): the picture in a size that the model takes."""
    from t2x.guidance.edit_plans import resized
    from t2x.media import from_pil, upright

    picture: Image = request.picture
    media = from_pil([upright(picture)])
    assert not isinstance(media, list)
    size = fitted_size(generator, media.shape[-2], media.shape[-1], asked=request.sampling.size)
    return media if size == tuple(media.shape[-2:]) else resized(media, size)


def fitted_size(
    generator: DiffusionGenerator,
    height: int,
    width: int,
    *,
    asked: tuple[int, int] | None = None,
) -> tuple[int, int]:
    """The size that is asked for, or the one nearest to (height, width) in shape that has as many
    pixels as the model's own pictures and sides that it takes."""
    if asked is not None:
        return asked[0], asked[1]
    facts = size_facts(generator)
    return nearest_size(height, width, **facts)


def size_facts(generator: DiffusionGenerator) -> dict[str, int]:
    """What decides the size of an edited picture: how many ``pixels`` the model's own pictures
    have, 0 where it does not tell, and what number a side is a ``multiple`` of."""
    factor = int(getattr(generator.pipeline, "vae_scale_factor", 0) or 0)
    return {"pixels": own_pixels(generator) or 0, "multiple": max(_LEAST_MULTIPLE, 2 * factor)}


def nearest_size(height: int, width: int, *, pixels: int, multiple: int) -> tuple[int, int]:
    """The size nearest to (height, width) in shape of about ``pixels``, as many as it has where
    that is 0."""
    scale = math.sqrt((pixels or height * width) / (height * width))

    def near(length: int) -> int:
        return max(1, round(length * scale / multiple)) * multiple

    return near(height), near(width)
