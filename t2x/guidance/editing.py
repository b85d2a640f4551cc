"""Editing of pictures without inversion: FlowEdit, SDEdit, and RewardFlow's tethered guidance.

    edit(pipe, pictures, source_prompts=["a cat"], target_prompts=["a blue cat"], seeds=[0])

Text-to-image and text-to-video pipelines, unmodified, with any scheduler that the hook reads: a
control puts x_t of the source where the run starts, and the levels before are skipped, so that they
cost nothing.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.functional.classifier_free import classifier_free
from t2x.functional.editing import displaced, focus, tethered
from t2x.functional.grounding import mask_box
from t2x.functional.langevin import posterior_variance
from t2x.functional.noise import noised
from t2x.generators.calls import check_prompts, default_arguments
from t2x.generators.diffusion import DiffusionGenerator, own_noise
from t2x.generators.loading import quiet
from t2x.generators.outputs import pixels
from t2x.generators.sources import needs_source
from t2x.guidance.combination import Predictions, combined
from t2x.guidance.config import GuidanceConfig
from t2x.guidance.guide import guide
from t2x.guidance.hook import watch_steps
from t2x.guidance.policy import own_policy
from t2x.guidance.step import Call, Step
from t2x.guidance.streams import normal_rows
from t2x.media import quantize
from t2x.registry import load_reward
from t2x.types import Context

if TYPE_CHECKING:
    from t2x.guidance.levels import Level
    from t2x.guidance.trace import GuidanceTrace
    from t2x.types import Media, RewardModel

log = logging.getLogger(__name__)

__all__ = ["METHODS", "EditConfig", "edit", "sdedit"]

METHODS = ("flowedit", "sdedit", "rewardflow")


@dataclass(frozen=True)
class EditConfig:
    """How pictures are edited.

    Args:
        method: *flowedit* follows the difference between target's and source's prediction, two
            samples a picture; *sdedit* re-noises the source and draws the target's words from
            there; *rewardflow* is that with rewards and a tether.
        strength: part of the steps that are run (0 to 1]: how far an edit can go; 24 of 28 are
            FlowEdit's own for FLUX.
        source_scale: classifier-free guidance of the source's words (flowedit); that of the call
            without.
        renoise: new noise at each step (flowedit), as in its paper; the same all along without.
        focus: change only where target and source differ by more than this part of their largest
            difference (flowedit), 0 to 0.5; 0 is everywhere.
        tether: precision, 1 / latent^2, with which x0_hat is held to the source, outside the region
            of the edit where there is one: 0 is free, infinity gives the source back. Without,
            infinity outside a region, else 0. (Flowedit keeps what is outside in any case.)
        guidance: how rewards steer.

    Raises T2XError for a value out of range.
    """

    method: Literal["flowedit", "sdedit", "rewardflow"] = "flowedit"
    strength: float = 24 / 28
    source_scale: float | None = None
    renoise: bool = True
    focus: float = 0.0
    tether: float | None = None
    guidance: GuidanceConfig | None = None

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise T2XError(f"edit: method is {self.method!r}; allowed: {', '.join(METHODS)}")
        if not 0 < self.strength <= 1:
            raise T2XError(f"edit: strength is {self.strength}; give more than 0, at most 1")
        if not 0 <= self.focus <= 0.5:
            raise T2XError(f"edit: focus is {self.focus}; give 0 to 0.5")
        if self.tether is not None and not self.tether >= 0:
            raise T2XError(f"edit: tether is {self.tether}; give 0 or more")
        if self.source_scale is not None and not math.isfinite(self.source_scale):
            raise T2XError(f"edit: source_scale is {self.source_scale}; give a finite number")

    def first(self, total: int) -> int:
        """The first of ``total`` steps that is run."""
        return total - max(1, round(self.strength * total))


def sdedit(
    generator: Any,
    sources: Media,
    *,
    target_prompts: Sequence[str],
    seeds: Sequence[int],
    strength: float = 0.6,
) -> Media:
    """Re-noise the sources and draw the target's words from there (SDEdit, arXiv 2108.01073): the
    baseline. See ``edit``."""
    config = EditConfig("sdedit", strength)
    return edit(generator, sources, target_prompts=target_prompts, seeds=seeds, config=config)


def edit(  # noqa: PLR0913 - what is edited, to what, by what, and who looks on
    generator: Any,
    sources: Media,
    *,
    target_prompts: Sequence[str],
    seeds: Sequence[int],
    source_prompts: Sequence[str] | None = None,
    config: EditConfig | None = None,
    regions: Tensor | None = None,
    rewards: Sequence[RewardModel | str] = (),
    instructions: Sequence[str] | None = None,
    context: Context | None = None,
    observe: Callable[[GuidanceTrace], None] | None = None,
) -> Media:
    """Edit N pictures (N, 3, H, W), or videos (N, F, 3, H, W), in [0, 1]; give as many, the same.

    Args:
        generator: a ``DiffusionGenerator``, whose sampling settings hold, or a pipeline.
        sources: H and W such as the pipeline takes.
        target_prompts: what the edited pictures show, as a whole.
        seeds: one for each picture, of all its noise.
        source_prompts: what the sources show (flowedit needs them).
        config: how.
        regions: (N, 1, H, W) in [0, 1], soft: where pictures may change; everywhere without. The
            box around it is where rewards of regions look. Where it is 0 the source's own pixels
            are given back: a decoder changes those beside an edit, too, and all of them a little.
        rewards: of the target's words, loaded ones or names (rewardflow).
        instructions: what was asked for ("make the cat blue"), one for each: the policy of
            ``guidance.adaptive`` reads weights, sizes and window of the steps from them; from the
            target's words without (rewardflow).
        context: for rewards that need more than prompt, media and the source, which they are given
            in any case; all N are one batch then.
        observe: is given the trace of each batch before it is drawn (rewardflow).

    Raises T2XError for numbers that don't match, for pipelines that edit pictures themselves, and
    for rewards that would guide none of the steps that are run.
    """
    config = config or EditConfig()
    if not isinstance(generator, DiffusionGenerator):
        generator = DiffusionGenerator(generator)
    _check(generator, sources, target_prompts, source_prompts, seeds, regions, config, rewards)
    if instructions is not None:
        check_prompts(instructions, negative=None, seeds=seeds)
    loaded = [load_reward(r) if isinstance(r, str) else r for r in rewards]
    if loaded:
        _check_guided(generator, config, loaded, target_prompts, instructions)
    pairs = 2 if config.method == "flowedit" else 1
    count = len(seeds) if context is not None else max(1, generator.batch_size // pairs)
    assert isinstance(sources, Tensor)
    done = []
    generator.together = []
    for start in range(0, len(seeds), count):
        rows = slice(start, start + count)
        generator.together += [len(seeds[rows])] * len(seeds[rows])
        done.append(
            _edited(
                generator,
                sources[rows],
                list((source_prompts or [])[rows]),
                list(target_prompts[rows]),
                [int(seed) for seed in seeds[rows]],
                config=config,
                region=None if regions is None else regions[rows],
                steering=_Steering(
                    loaded,
                    config.guidance or GuidanceConfig(),
                    None if instructions is None else list(instructions[rows]),
                    context,
                    observe,
                ),
            )
        )
    edited = torch.cat(done)
    if regions is not None:
        where = regions if sources.ndim == 4 else regions.unsqueeze(1)
        edited = torch.lerp(sources.to(edited), edited, where.to(edited))
    return quantize(edited)


def _check(
    generator: DiffusionGenerator,
    sources: Media,
    target_prompts: Sequence[str],
    source_prompts: Sequence[str] | None,
    seeds: Sequence[int],
    regions: Tensor | None,
    config: EditConfig,
    rewards: Sequence[Any],
) -> None:
    name = type(generator.pipeline).__name__
    kind = type(generator.pipeline)
    if needs_source(kind, default_arguments(kind)):
        raise T2XError(
            f"{name} edits pictures itself; draw with generate(sources=...), or give a "
            "text-to-image pipeline"
        )
    if not isinstance(sources, Tensor):
        raise T2XError("sources are of several sizes; edit those of each size by themselves")
    if sources.ndim != (5 if generator.modality == "video" else 4) or sources.shape[-3] != 3:
        raise T2XError(
            f"sources are {tuple(sources.shape)}; {generator.model_id} edits {generator.modality}s"
        )
    check_prompts(target_prompts, negative=None, seeds=seeds)
    if len(sources) != len(seeds):
        raise T2XError(f"{len(sources)} sources and {len(seeds)} prompts; give one for each")
    if config.method == "flowedit" and source_prompts is None:
        raise T2XError(
            "flowedit compares with what the source shows; give source_prompts, or use sdedit"
        )
    if source_prompts is not None:
        check_prompts(source_prompts, negative=None, seeds=seeds)
    if rewards and config.method != "rewardflow":
        raise T2XError(f"{config.method} takes no rewards; use the method rewardflow")
    if not rewards and config.method == "rewardflow":
        raise T2XError("rewardflow needs rewards; name some, for instance ['vqa', 'clip']")
    if regions is not None and regions.shape != (len(sources), 1, *sources.shape[-2:]):
        raise T2XError(
            f"regions are {tuple(regions.shape)}; give {(len(sources), 1, *sources.shape[-2:])}"
        )


def _check_guided(
    generator: DiffusionGenerator,
    config: EditConfig,
    rewards: Sequence[RewardModel],
    prompts: Sequence[str],
    instructions: Sequence[str] | None,
) -> None:
    """Raise T2XError where no step that is run would be guided, though it is asked for; warn where
    what the policy reads in an instruction leaves none."""
    guidance = config.guidance or GuidanceConfig()
    steps = int(generator.settings().get("num_inference_steps") or 0)
    if not steps or not guidance.size or getattr(generator.pipeline.scheduler, "order", 1) != 1:
        return  # solvers of a higher order have levels of their own number
    run = range(config.first(steps), steps)
    guided = [index for index in run if guidance.guides(index, steps)]
    told = f"{len(run)} of {steps} steps are run (strength {config.strength:.3g})"
    free = f"the last {guidance.free_last} are free"
    if not guided:
        raise T2XError(
            f"edit: rewards would guide no step: {told}, start is {guidance.start}, stop "
            f"{guidance.stop}, and {free}; take more steps, or a smaller free_last"
        )
    policy = own_policy(rewards, guidance, instructions=instructions)
    policies = [] if policy is None else policy.policies(prompts)
    lost = [p for p in policies if not any(p.start <= index / steps < p.stop for index in guided)]
    if lost:
        first = lost[0]
        log.warning(
            "%d of %d edits are not guided in any step, %r the first: %s, guided from %.0f %% to "
            "%.0f %% of the run, and %s; take more steps, or a smaller free_last",
            len(lost),
            len(policies),
            first.primitives.prompt,
            told,
            100 * first.start,
            100 * first.stop,
            free,
        )


@dataclass(frozen=True)
class _Steering:
    """What steers the edits of a batch, and who looks on."""

    rewards: Sequence[RewardModel]
    guidance: GuidanceConfig
    instructions: list[str] | None
    context: Context | None
    observe: Callable[[GuidanceTrace], None] | None

    @contextmanager
    def acting(
        self, pipe: Any, control: _Renoised, prompts: list[str], seeds: list[int]
    ) -> Iterator[None]:
        """Guide every call of ``pipe`` inside, before ``control`` acts."""
        guided = guide(
            pipe,
            self.rewards,
            self.guidance,
            prompts=prompts,
            policy=own_policy(self.rewards, self.guidance, instructions=self.instructions),
            context=self._located(control.media, control.region),
            seeds=seeds,
            controls=[control],
        )
        with guided as trace:
            if self.observe is not None:
                self.observe(trace)
            yield

    def _located(self, sources: Tensor, region: Tensor | None) -> Context:
        """The context with the media before, which some rewards compare with, and the box around
        what may change (N, 1, H, W), where some look."""
        context = self.context or Context()
        if context.source is None:
            context = replace(context, source=sources)
        if region is None or context.boxes is not None or context.mask is not None:
            return context
        return replace(context, boxes=torch.stack([mask_box(row[0]) for row in region])[:, None])


def _edited(
    generator: DiffusionGenerator,
    sources: Tensor,
    source_prompts: list[str],
    target_prompts: list[str],
    seeds: list[int],
    *,
    config: EditConfig,
    region: Tensor | None,
    steering: _Steering,
) -> Tensor:
    """Edit what goes in one batch."""
    pipe, count = generator.pipeline, len(seeds)
    both = config.method == "flowedit"
    prompts = [*source_prompts, *target_prompts] if both else target_prompts
    kind = _FlowEdit if both else _Renoised
    control = kind(sources, seeds, config, region)
    frames = sources.shape[1] if sources.ndim == 5 else None
    arguments = generator.settings(size=tuple(sources.shape[-2:]), num_frames=frames)  # type: ignore[arg-type]
    noise = own_noise(seeds * (2 if both else 1))
    with ExitStack() as stack:
        if both and config.source_scale is not None:
            stack.enter_context(combined(pipe, _source_scale(config.source_scale)))
        if steering.rewards:
            stack.enter_context(steering.acting(pipe, control, target_prompts, seeds))
        else:
            stack.enter_context(watch_steps(pipe, [control], prompts=prompts))
        stack.enter_context(quiet())
        try:
            output = pipe(prompt=list(prompts), generator=noise, output_type="pt", **arguments)
        except ValueError as error:
            if "divisible" in str(error):
                raise T2XError(f"{generator.model_id}: {error}; resize the picture") from error
            raise
    return pixels(output, generator.modality)[-count:]


def _source_scale(scale: float) -> Any:
    """The source's half of the rows at a guidance scale of its own."""

    def combine(found: Predictions) -> Tensor:
        half = len(found.conditional) // 2
        rows = [scale] * half + [found.scale] * half
        each = torch.tensor(rows).to(found.conditional)
        each = each.view(-1, *[1] * (found.conditional.ndim - 1))
        return classifier_free(found.unconditional, found.conditional, each)

    return combine


class _Renoised:
    """Control that starts from the noised source and holds x0_hat to it (SDEdit, tether)."""

    def __init__(
        self, media: Tensor, seeds: Sequence[int], config: EditConfig, region: Tensor | None
    ) -> None:
        self.media, self.seeds, self.config, self.region = media, seeds, config, region
        chosen = config.tether
        self.tether = chosen if chosen is not None else 0.0 if region is None else math.inf
        self.source = self.noise = torch.empty(0)
        self.free: Tensor | None = None  # where the latents may change

    def begin(self, call: Call, scheduler: Any) -> None:
        """All is done in ``place``."""

    def gradient(self, index: int, total: int) -> bool:
        """No."""
        return False

    def visits(self, index: int, total: int) -> int:
        """Levels before the start are skipped."""
        return 1 if index >= self.config.first(total) else 0

    def place(self, call: Call, level: Level, latents: Tensor) -> Tensor:
        """The source at the level of the first step."""
        with torch.no_grad():
            self.source = call.space.encode(self.media.to(latents)).to(latents)
        self._streams = own_noise(self.seeds)
        self.noise = normal_rows(self._streams, self.source)
        if self.region is not None:
            self.free = _latent_mask(self.region, self.source, call.space)
        return noised(self.source, self.noise, level.alpha, level.sigma)

    def edit(self, step: Step) -> None:
        """Tether x0_hat to the source, outside the region."""
        if not self.tether or step.level.sigma == 0:
            return
        held = tethered(step.clean, self.source, self.tether, _spread(step.level))
        step.clean = held if self.free is None else torch.lerp(held, step.clean, self.free)

    def after(self, step: Step, sample: Tensor) -> Tensor:
        """The scheduler's."""
        return sample

    def end(self, call: Call) -> None:
        """Nothing is left to do."""


class _FlowEdit(_Renoised):
    """Control of rows [sources, targets]: both start from the same noised source, and the targets
    go on by the difference (Kulikov et al. 2024, arXiv 2412.08629). What the scheduler makes of
    them is not used but its levels."""

    def place(self, call: Call, level: Level, latents: Tensor) -> Tensor:
        """Twice the same sample."""
        half = super().place(call, level, latents[: len(self.seeds)])
        self.displacement = self.seen = torch.zeros_like(half)
        return torch.cat([half, half])

    def after(self, step: Step, sample: Tensor) -> Tensor:
        """The source at the next level, in the place of its own sample; the target beside it."""
        level = step.level
        source, target = step.clean.chunk(2)
        target = tethered(
            target, source, 0.0 if self.free is not None else self.tether, _spread(level)
        )
        levels = (level.alpha, level.sigma), (level.next_alpha, level.next_sigma)
        self.displacement = displaced(self.displacement, target - source, *levels)
        if self.config.focus:
            self.seen = self.seen + (target - source)
            self.displacement = self.displacement * self._focused(step.call.space)
        if self.free is not None:
            self.displacement = self.displacement * self.free
        if self.config.renoise:
            self.noise = normal_rows(self._streams, self.source)
        at_next = noised(self.source, self.noise, level.next_alpha, level.next_sigma)
        return torch.cat([at_next, at_next + self.displacement])

    def _focused(self, space: Any) -> Tensor:
        """The mask of where all steps' estimates differ, in the layout of the latents."""
        apart = space.unpack(self.seen)
        mask: Tensor = space.pack(focus(apart, self.config.focus).expand_as(apart).contiguous())
        return mask

    def edit(self, step: Step) -> None:
        """Look only: the displacement is tethered."""


def _spread(level: Level) -> float:
    """Variance of x0 given x_t, of clean latents of variance 1."""
    return posterior_variance(level.alpha, level.sigma, 1.0)


def _latent_mask(region: Tensor, latents: Tensor, space: Any) -> Tensor:
    """(N, 1, H, W) for each of the latents, in their layout."""
    apart = space.unpack(latents)  # (N, C, h, w) or (N, C, f, h, w)
    small = torch.nn.functional.interpolate(region.to(apart), size=apart.shape[-2:], mode="area")
    small = small if apart.ndim == 4 else small.unsqueeze(2)
    packed: Tensor = space.pack(small.expand_as(apart).contiguous())
    return packed
