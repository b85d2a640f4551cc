"""What a control of the step hook is given: the call, and each step of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.guidance.levels import Level

if TYPE_CHECKING:
    from t2x.guidance.latents import LatentSpace

__all__ = ["DENOISERS", "Call", "CallSettings", "Control", "Step"]

DENOISERS = ("unet", "transformer", "transformer_2")


@dataclass
class Call:
    """One call of the pipeline: what its own methods were given.

    ``prompts``: one for each of the N rows of the latents. ``arguments``: of ``prepare_latents``
    by name (height, width, num_frames, ...), sizes in pixels. ``index``: of the step at hand.
    ``negative``: whether a negative prompt was given.
    """

    pipe: Any
    prompts: list[str] = field(default_factory=list)
    arguments: dict[str, Any] = field(default_factory=dict)
    steps: int = 0
    index: int = 0
    negative: bool = False

    @cached_property
    def space(self) -> LatentSpace:
        """The latent space of this call: decodes and encodes."""
        from t2x.guidance.latents import latent_space

        return latent_space(self.pipe, self.arguments, turn=lambda: self.index)


class Step:
    """One evaluation of the denoiser, before the scheduler uses it.

    ``level``: alpha, sigma, index. ``visit``: 0 ... visits - 1 of this level; the scheduler steps
    on the last. ``sample``: x_t, ``output``: the model's, ``clean``: x0_hat, all (N, ...) float32,
    in the pipeline's own layout (packed where it packs), without gradients. Set ``clean`` to steer.
    ``predicted``: x0_hat before any edit.
    """

    def __init__(
        self,
        call: Call,
        level: Level,
        sample: Tensor,
        output: Tensor,
        *,
        visit: int,
        visits: int,
        corrections: list[Tensor],
        scheduler: Any,
        controls: Sequence[Control] = (),
    ) -> None:
        self.call, self.level, self.visit, self.visits = call, level, visit, visits
        call.index = level.index
        self._controls = controls
        self._leaf = sample if sample.requires_grad else None
        wide = level.clean(sample.float(), output.float())
        self._graph: Tensor | None = wide if self._leaf is not None else None
        self.sample = sample.detach().float()
        self.output = output.detach().float()
        self._clean = wide.detach()
        self.predicted = self._clean
        self.edited = False
        self.scheduler = scheduler
        self.corrections = corrections
        self.moved: Tensor | None = None
        self.rows: Tensor | None = None  # as reordered

    @property
    def index(self) -> int:
        """Of the step, from 0."""
        return self.level.index

    @property
    def clean(self) -> Tensor:
        """x0_hat (N, ...), as edited so far."""
        return self._clean

    @clean.setter
    def clean(self, value: Tensor) -> None:
        if value.shape != self._clean.shape:
            raise ValueError(f"x0_hat is {tuple(self._clean.shape)}, got {tuple(value.shape)}")
        self._clean = value.detach()
        self.edited = True

    @property
    def last_visit(self) -> bool:
        """Whether the scheduler steps on this visit."""
        return self.visit == self.visits - 1

    @property
    def evaluations(self) -> int:
        """Samples that the denoiser evaluated for this step: 2 N with classifier-free guidance."""
        return sum(len(output) for output in self.corrections) or len(self.sample)

    @property
    def has_graph(self) -> bool:
        """Whether ``pull_back`` can reach x_t: J was asked for, and this step is guided."""
        return self._graph is not None

    def pull_back(self, gradient: Tensor) -> Tensor:
        """J^T g: carry a gradient at x0_hat through the denoiser to x_t, (N, ...) float32.

        Once for each step: the graph is freed. Raises T2XError where there is none, for a pipeline
        that detaches its latents, say.
        """
        if self._graph is None or self._leaf is None:
            raise T2XError("this step has no graph through the denoiser; ask for it by `gradient`")
        graph, self._graph = self._graph, None
        if not graph.requires_grad:
            raise T2XError(
                f"no gradient passes {type(self.call.pipe).__name__} from x0_hat to x_t (compiled "
                'or quantised denoisers have none, offloaded ones may not); use mode "E"'
            )
        (found,) = torch.autograd.grad(graph, self._leaf, gradient.to(graph.dtype))
        return found.detach().float()

    def drop_graph(self) -> None:
        """Free the graph of a step whose gradient nobody wants."""
        self._graph = None

    def cfg_correction(self) -> Tensor | None:
        """Conditional less unconditional output of this evaluation, (N, ...), where the pipeline
        evaluates both, in one batch or one after the other; else None."""
        pair = self._predictions()
        return None if pair is None else pair[0] - pair[1]

    def cfg_scale(self) -> Tensor:
        """Scale s (N,) of classifier-free guidance, read off the output u + s (c - u), since
        pipelines keep it in several places, or nowhere; 1 without guidance."""
        pair = self._predictions()
        if pair is None:
            return torch.ones(len(self.sample), device=self.output.device)
        return _scale(self.output, *pair)[0]

    def _predictions(self) -> tuple[Tensor, Tensor] | None:
        """Conditional and unconditional output, (N, ...) float32, in the scheduler's sign."""
        halves, n = self.corrections, len(self.sample)
        if halves and len(halves[0]) == 2 * n:  # SD3 may add a pass without some layers
            first, second = (self._fitted(half) for half in halves[0].chunk(2))
            if first is None or second is None:
                return None
            # Unconditional first; Z-Image has it last and flips the sign.
            ways = ((second, first), (-first, -second))
            misses = [_scale(self.output, *way)[1].sum() for way in ways]
            return ways[int(misses[1] < misses[0])]
        if len(halves) == 2 and len(halves[0]) == len(halves[1]) == n:
            first, second = (self._fitted(half) for half in halves)
            return None if first is None or second is None else (first, second)
        return None

    def _fitted(self, output: Tensor) -> Tensor | None:
        """What a denoiser gave in the shape of the sample; None if it has another."""
        found = output.float()
        if found.ndim == self.sample.ndim + 1:  # Z-Image: an axis of one frame
            found = found.squeeze(2)
        if found.shape[1] == 2 * self.sample.shape[1]:  # PixArt: a variance as well
            found = found.chunk(2, dim=1)[0]
        return found if found.shape == self.sample.shape else None

    def move(self, sample: Tensor) -> None:
        """On a visit that is not the last: go on from another x_t of the same level."""
        if self.last_visit:
            raise T2XError("x_t can't be moved on the last visit of a level; edit x0_hat")
        self.moved = sample.detach()

    def restore(self) -> None:
        """Take all edits of x0_hat back: the scheduler gets the model's own output."""
        self._clean, self.edited = self.predicted, False

    def reorder(self, rows: Tensor) -> None:
        """Take rows (N,) of everything that belongs to samples: x_t, output, x0_hat, the solver's
        memory, and what controls keep (their ``reorder``). Frees the graph.

        Raises T2XError for a row of another prompt, whose conditioning does not come along.
        """
        prompts = self.call.prompts
        if prompts and [prompts[row] for row in rows.tolist()] != prompts:
            raise T2XError("rows can only be taken from samples of the same prompt")
        self._graph = None
        shape = self.sample.shape
        self.sample, self.output = self.sample[rows], self.output[rows]
        self._clean, self.predicted = self._clean[rows], self.predicted[rows]
        self.corrections[:] = []
        self.rows = rows if self.rows is None else self.rows[rows]
        for name, value in vars(self.scheduler).items():
            setattr(self.scheduler, name, _reordered(value, rows, shape))
        for control in self._controls:
            if hasattr(control, "reorder"):
                control.reorder(rows)


def _scale(output: Tensor, conditional: Tensor, unconditional: Tensor) -> tuple[Tensor, Tensor]:
    """(s, miss), (N,) each, of the least squares |u + s (c - u) - output|^2."""
    d = (conditional - unconditional).flatten(1)
    rest = (output - unconditional).flatten(1)
    scale = (rest * d).sum(1) / d.pow(2).sum(1).clamp_min(torch.finfo(d.dtype).tiny)
    return scale, (rest - scale[:, None] * d).pow(2).sum(1)


def _reordered(value: Any, rows: Tensor, shape: torch.Size) -> Any:
    """Memory of a solver: tensors, and lists of tensors, of the sample's shape."""
    if isinstance(value, Tensor) and value.shape == shape:
        return value[rows]
    if isinstance(value, list):
        return [_reordered(item, rows, shape) for item in value]
    return value


class Control(Protocol):
    """What acts at each step. ``gradient(index, total)`` says whether a step needs ``pull_back``;
    ``visits(index, total)`` how often a level is evaluated: 1 or more, or 0 for the first levels of
    a run that starts later, which cost nothing.

    A control may also have ``start(call, latents) -> latents``: see the first x_t (N, ...) that the
    pipeline prepared, and give another; ``place(call, level, latents) -> latents``: the same once
    the level of the first step is known; ``reorder(rows)``: take rows (N,) of what it keeps for
    each sample, whenever a control resamples; ``trades_noise``: whether it trades predicted noise
    for new noise, which one control can do; ``chain = True``: samples stay in one graph from the
    first x_t to the last, with gradients on for every step, and no step may be edited.
    """

    def begin(self, call: Call, scheduler: Any) -> None:
        """A call begins: its timesteps are set."""

    def gradient(self, index: int, total: int) -> bool:
        """Whether this step needs the graph through the denoiser."""

    def visits(self, index: int, total: int) -> int:
        """How often this level is evaluated."""

    def edit(self, step: Step) -> None:
        """See a step, and change ``step.clean`` or (before the last visit) ``step.move``."""

    def after(self, step: Step, sample: Tensor) -> Tensor:
        """Change the sample that the scheduler gave, (N, ...) float32."""

    def end(self, call: Call) -> None:
        """The last step is done."""


class CallSettings:
    """Control that tells a call's latent space of ``settings``, arguments of the call beside those
    of ``prepare_latents``: LTX's decode_timestep and decode_noise_scale. It changes no step."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = {k: v for k, v in settings.items() if k.startswith("decode_")}

    def start(self, call: Call, latents: Tensor) -> Tensor:
        """The call's arguments are known, and its space is not made yet."""
        call.arguments = {**self.settings, **call.arguments}
        return latents

    def begin(self, call: Call, scheduler: Any) -> None:
        """Nothing is left to do."""

    def gradient(self, index: int, total: int) -> bool:
        """It asks for none."""
        return False

    def visits(self, index: int, total: int) -> int:
        """It asks for none more."""
        return 1

    def edit(self, step: Step) -> None:
        """It changes nothing."""

    def after(self, step: Step, sample: Tensor) -> Tensor:
        """It changes nothing."""
        return sample

    def end(self, call: Call) -> None:
        """Nothing is left to do."""
