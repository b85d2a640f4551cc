"""Whether guidance fits the memory, before the first evaluation of the denoiser.

The graph that a gradient goes back through is what guidance adds. Denoiser and decoder are run on
tensors that have shapes and no data (torch's FakeTensorMode), forward and backward, and what would
be alive is counted; rewards, which look at their data, are run on one picture. The same shapes are
counted once.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from t2x.errors import T2XError
from t2x.generators.diffusion import SMALL_MODEL
from t2x.guidance.config import GuidanceConfig
from t2x.guidance.latents import latent_space
from t2x.guidance.sources import beside
from t2x.guidance.step import DENOISERS, Call, Step
from t2x.memory.counting import Footprint, count_graph, footprint, is_tensor, shadow
from t2x.memory.machine import available_bytes, readable_bytes
from t2x.memory.models import reward_weights
from t2x.scoring.pairs import context_rows

if TYPE_CHECKING:
    from t2x.guidance.objective import Objective
    from t2x.types import Context

__all__ = [
    "Estimate",
    "MemoryCheck",
    "NotEnoughMemory",
    "advice",
]

log = logging.getLogger(__name__)

SMALL_PIXELS = 512 * 512  # of all pictures of a batch; below, of a small model, nothing is counted
SAFE = 0.8  # of what is free; more is warned of


class NotEnoughMemory(T2XError, MemoryError):
    """Guidance would not fit; a generator halves its batch."""


@dataclass(frozen=True)
class Estimate:
    """What a guided step of a batch needs beyond weights; None is unknown, and of the denoiser in
    mode E not needed."""

    denoiser: Footprint | None
    decoder: Footprint | None
    rewards: Footprint | None

    @property
    def needed(self) -> int:
        """Bytes at the fullest moment: the denoiser's graph waits while decoder and rewards run,
        the decoder's while rewards do. What is unknown counts 0."""
        need = 0
        for part in (self.rewards, self.decoder, self.denoiser):
            if part is not None:
                need = max(part.peak, part.held + need)
        return need

    @property
    def unknown(self) -> tuple[str, ...]:
        """Parts that could not be counted."""
        known = {"decoder": self.decoder, "rewards": self.rewards}
        return tuple(name for name, part in known.items() if part is None)


# ---- the check ----------------------------------------------------------------------------------


class MemoryCheck:
    """A control that refuses a call which would not fit, before its first evaluation.

    Args:
        objective: whose rewards are taken the gradient of.
        config: how guidance goes back.
        context: for rewards that need more than prompt and media.
        available: bytes that are free; asked of the device without.
        chain: whether a gradient goes back through all steps at once (noise optimisation), in mode
            J: each one's graph waits for the end.

    Use it as a control, inside ``watching``. ``estimate`` is of the last call; None where a small
    model draws few pixels and nothing was counted. Raises ``NotEnoughMemory``, with advice.
    """

    def __init__(
        self,
        objective: Objective,
        config: GuidanceConfig,
        *,
        context: Context | None = None,
        available: int | None = None,
        chain: bool = False,
    ) -> None:
        self.objective, self.config, self.context = objective, config, context
        self.available, self.chain = available, chain
        self.estimate: Estimate | None = None
        self._waiting: tuple[Call, torch.Size, torch.device] | None = None

    @contextmanager
    def watching(self, pipe: Any) -> Iterator[None]:
        """See the arguments of the denoiser's first evaluation of each call inside."""
        with ExitStack() as stack:
            for name in DENOISERS:
                module = getattr(pipe, name, None)
                if isinstance(module, torch.nn.Module):
                    hook = module.register_forward_pre_hook(self._first, with_kwargs=True)
                    stack.callback(hook.remove)
            yield

    # ---- the protocol of controls -----------------------------------------------------------

    def start(self, call: Call, latents: Tensor) -> Tensor:
        """A call has made its first x_t (N, ...)."""
        self.estimate, self._waiting = None, None
        if self.config.size > 0 and not _is_small(call, len(latents)):
            self._waiting = (call, latents.shape, latents.device)
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

    # ---- parts ------------------------------------------------------------------------------

    def _first(self, module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        if self._waiting is None:
            return
        (call, shape, device), self._waiting = self._waiting, None
        known = _KNOWN.setdefault(module, {})
        key = self._key(call, args, kwargs, shape)
        if key not in known:
            known[key] = self._estimated(module, args, kwargs, call, (shape, device))
        self.estimate = known[key]
        free = self.available if self.available is not None else _free(device)
        if free is not None:
            self._judge(self.estimate, free, call, len(call.prompts))

    def _key(self, call: Call, args: Any, kwargs: Any, shape: torch.Size) -> str:
        shapes = tree_map(lambda v: (v.shape, v.dtype) if is_tensor(v) else str(v), (args, kwargs))
        rewards = [
            (reward.name, type(reward).__qualname__, reward_weights(reward))
            for reward in self.objective.ensemble.rewards
        ]
        way = (self.config, self.chain and call.steps, _evaluations(call, args, kwargs, shape[0]))
        return f"{shapes} {shape} {way} {rewards} {_savings(call.pipe)}"

    def _estimated(
        self, module: Any, args: Any, kwargs: Any, call: Call, latents: tuple[torch.Size, Any]
    ) -> Estimate:
        shape, device = latents
        media: list[torch.Size] = []

        def decode(clean: Tensor) -> Tensor:
            config = self.config
            # A space of its own: what is made here has no data.
            space = latent_space(call.pipe, call.arguments)
            found = space.decode(clean, frames=config.frames, scale=config.decode_scale)
            media.append(found.shape)
            return found

        clean = torch.empty(shape, device=device, requires_grad=True)
        decoder = _tried("decoder", lambda: footprint(decode, clean))
        denoiser = None
        if self.config.mode == "J":
            given, named = _asking(args, kwargs)
            denoiser = _tried(
                "denoiser", lambda: footprint(shadow(module).forward, *given, **named)
            )
            if denoiser is not None:
                graphs = _evaluations(call, args, kwargs, shape[0])
                graphs *= call.steps if self.chain else 1
                waiting = denoiser.held * (graphs - 1)
                denoiser = Footprint(denoiser.held + waiting, denoiser.peak + waiting)
        rewards = None
        if media:
            one = torch.full((1, *media[0][1:]), 0.5, device=device, requires_grad=True)
            found = _tried(
                "rewards", lambda: count_graph(lambda: self._score(call, one), [one], fake=False)
            )
            if found is not None:
                rewards = Footprint(found.held * shape[0], found.peak * shape[0])
        return Estimate(denoiser, decoder, rewards)

    def _score(self, call: Call, media: Tensor) -> Tensor:
        located = self.objective.located(call.prompts, self.context)
        context = beside(context_rows(located, [0]), media)
        scores = self.objective.ensemble.components(call.prompts[:1], media, context=context)
        return torch.stack([column for column in scores.values()]).nansum()

    def _judge(self, estimate: Estimate, free: int, call: Call, n: int) -> None:
        needed = estimate.needed
        if needed <= SAFE * free:
            return
        named = {
            "denoiser": estimate.denoiser,
            "decoder": estimate.decoder,
            "rewards": estimate.rewards,
        }
        parts = ", ".join(
            f"{name} {readable_bytes(part.peak)}" for name, part in named.items() if part
        )
        what, hints = f"guidance in mode {self.config.mode}", advice(self.config, call, n)
        if self.chain:
            what, hints = f"optimising noise through {call.steps} steps", _chain_advice(call, n)
        text = (
            f"{what} needs about {readable_bytes(needed)} for a batch "
            f"of {n} ({parts}), and {readable_bytes(free)} are free: {', '.join(hints)}"
        )
        if needed > free:
            raise NotEnoughMemory(text)
        log.warning("%s", text)


def advice(config: GuidanceConfig, call: Call, n: int) -> list[str]:
    """What would need less, for this configuration and call of N samples."""
    found = ["draw fewer pictures at a time (batch_size)"] if n > 1 else []
    if config.mode == "J":
        found.append("use mode E")
    if not config.checkpointing:
        found.append("switch checkpointing on, where the classes have it")
    if call.arguments.get("num_frames") and config.frames is None:
        found.append("decode some frames only (frames=1)")
    if config.decode_scale > 0.5:
        found.append("decode smaller (decode_scale=0.5)")
    return [*found, "draw smaller pictures"]


def _chain_advice(call: Call, n: int) -> list[str]:
    found = ["draw fewer pictures at a time (batch_size)"] if n > 1 else []
    found += ["take fewer steps"] if call.steps > 1 else []
    return [
        *found,
        "switch checkpointing on, where the classes have it",
        "draw smaller pictures",
        "search instead",
    ]


_KNOWN: weakref.WeakKeyDictionary[torch.nn.Module, dict[str, Estimate]] = (
    weakref.WeakKeyDictionary()
)


def _is_small(call: Call, n: int) -> bool:
    """Whether a small model draws few pixels: counting would take longer than drawing."""
    height, width = (call.arguments.get(name) for name in ("height", "width"))
    if not height or not width:
        return False
    modules = [getattr(call.pipe, name, None) for name in (*DENOISERS, "vae")]
    size = sum(p.numel() for module in modules if module is not None for p in module.parameters())
    pixels = n * height * width * (call.arguments.get("num_frames") or 1)
    return bool(size < SMALL_MODEL and pixels < SMALL_PIXELS)


def _asking(args: Any, kwargs: Any) -> tuple[Any, Any]:
    """A denoiser's arguments, of which the sample asks for gradients."""

    def ask(value: Any) -> Any:
        return tree_map(lambda v: v.detach().requires_grad_() if is_tensor(v) else v, value)

    if args:
        return (ask(args[0]), *args[1:]), kwargs
    name = _sample_name(kwargs)
    return args, {**kwargs, name: ask(kwargs[name])}


def _sample_name(kwargs: Any) -> str:
    return next(name for name in ("hidden_states", "sample", "x") if name in kwargs)


def _evaluations(call: Call, args: Any, kwargs: Any, n: int) -> int:
    """Evaluations of the denoiser in a step, of which each graph waits for the gradient: 1 where
    classifier-free guidance is one batch of 2 N or off, 2 where the prompts come in turn.

    Flux and Qwen-Image keep their ``true_cfg_scale`` to themselves: a negative prompt tells.
    """
    if not args and not kwargs:
        return 1
    if len(args[0] if args else kwargs[_sample_name(kwargs)]) > n:
        return 1
    guider = getattr(call.pipe, "guider", None)
    if guider is not None:  # HunyuanVideo-1.5
        return int(guider.num_conditions)
    guided = getattr(call.pipe, "do_classifier_free_guidance", call.negative)
    return 2 if guided else 1


def _tried(part: str, run: Callable[[], Footprint]) -> Footprint | None:
    try:
        return run()
    except Exception as error:  # code that looks at data, or that fake tensors don't know
        log.info("how much memory the %s needs is unknown: %r", part, error)
        return None


def _free(device: torch.device) -> int | None:
    """Bytes that tensors can take on a device, those in torch's own cache among them."""
    free = available_bytes(device)
    if free is None or device.type != "cuda":
        return free
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def _savings(pipe: Any) -> dict[str, list[Any]]:
    """What a user may have switched on since, to save memory: an estimate holds for these alone."""
    switches = ("gradient_checkpointing", "use_slicing", "use_tiling")
    parts = {name: getattr(pipe, name, None) for name in (*DENOISERS, "vae")}
    return {
        name: [
            getattr(module, switch)
            for module in part.modules()
            for switch in switches
            if hasattr(module, switch)
        ]
        for name, part in parts.items()
        if isinstance(part, torch.nn.Module)
    }
