"""What a way to make pictures costs, in one unit for all: FLOPs, counted by
``torch.utils.flop_counter``, with backward passes, decoder, rewards and text encoders; beside it
denoiser evaluations, reward calls and seconds.

    cost = measure_cost(run, meter=meter, pipe=pipe)    # the truth, slow: once, for one picture
    model = CostModel.measure(pipe, rewards, prompts=["a red cat"], sampling={...})
    with meter.watching(pipe):                          # thousands of pictures at full speed
        ...
    cost = model.cost(meter.counts)

A ``Meter`` counts the evaluations of each part, whatever method makes them: it listens to the
modules, and to rewards that it has wrapped. A ``CostModel`` knows what one evaluation of each part
takes. Products of matrices, convolutions and attention count, as in the counter itself; attention
on a CPU too, which torch's own table leaves out.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from t2x.errors import T2XError
from t2x.guidance.metering import (
    Counts,
    Meter,
    counted,
    first_tensor,
    metered_modules,
    reward_part,
)

if TYPE_CHECKING:
    from torch import Tensor

    from t2x.types import RewardModel

__all__ = ["Cost", "CostModel", "measure_cost"]

NAN = float("nan")
_fresh = itertools.count()


# ---- costs --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cost:
    """Of something: ``flops``, denoiser evaluations ``nfe`` (classifier-free guidance counts 2),
    pictures scored and gradients taken (once for each reward), ``seconds``. NaN is not measured."""

    flops: float = NAN
    nfe: float = NAN
    reward_forwards: float = NAN
    reward_backwards: float = NAN
    seconds: float = NAN

    def __add__(self, other: Cost) -> Cost:
        """Sum, field by field; NaN if either is."""
        return Cost(*(getattr(self, k) + getattr(other, k) for k in self.__dataclass_fields__))

    def per(self, n: int) -> Cost:
        """The share of one of ``n``."""
        return Cost(*(getattr(self, k) / n for k in self.__dataclass_fields__))


def measure_cost(
    run: Callable[[], Any], *, meter: Meter | None = None, pipe: Any = None, timed: bool = True
) -> Cost:
    """Count a run in full. It runs under the counter, which is several times slower, and once more
    for the seconds unless ``timed`` is false (then they are NaN).

    ``pipe``: whose denoiser is counted, else ``nfe`` is what ``meter`` counts by itself.
    ``meter``: the one that wrapped the rewards; without, their calls are NaN. What it has counted
    before is dropped.
    """
    own = meter or Meter()
    own.take()
    with ExitStack() as stack:
        if pipe is not None:
            stack.enter_context(own.watching(pipe))
        flops = counted(run)
    counts, seconds = own.take(), NAN
    if timed:
        begun = time.perf_counter()
        run()
        seconds = time.perf_counter() - begun
        own.take()
    known = meter is not None
    return Cost(
        flops,
        counts.nfe if known or pipe is not None else NAN,
        counts.reward_forwards if known else NAN,
        counts.reward_backwards if known else NAN,
        seconds,
    )


@dataclass(frozen=True)
class CostModel:
    """FLOPs of one evaluation of each part for one sample, forward and backward (to what went in,
    the weights frozen), at the size that it was measured at."""

    forward: Mapping[str, float]
    backward: Mapping[str, float]

    @staticmethod
    def measure(
        pipe: Any,
        rewards: Sequence[RewardModel] = (),
        *,
        prompts: Sequence[str],
        sampling: Mapping[str, Any],
        backward: bool = True,
    ) -> CostModel:
        """Run the pipeline once on the first prompt, with the arguments ``sampling``, and each of
        its parts once more under the counter; each reward on that picture and every prompt, whose
        mean counts (what a language model reads has the length of the prompt).

        With checkpointing on while it is measured, what is computed again is part of the backward
        pass. ``backward``: whether gradients are measured. Raises T2XError without prompts. A
        reward that has no gradient has none here either.
        """
        if not prompts:
            raise T2XError("a cost is measured on one prompt or more; got none")
        parts, picture = _pipeline_parts(pipe, prompts[0], sampling, backward)
        for reward in rewards:
            part = reward_part(reward.name)
            own = [_reward_cost(reward, prompt, picture, backward) for prompt in prompts]
            names = (part, f"{part} text", part)
            for table, name, column in zip((0, 0, 1), names, zip(*own, strict=True), strict=True):
                parts[table][name] = sum(column) / len(column)
        return CostModel(*parts)

    def flops(self, counts: Counts) -> float:
        """Of some evaluations. Raises T2XError for a part that was not measured."""
        total = 0.0
        for table, rows in ((self.forward, counts.forward), (self.backward, counts.backward)):
            for part, number in rows.items():
                if not number:
                    continue
                if part not in table:
                    which = "backward" if table is self.backward else "forward"
                    raise T2XError(
                        f"the {which} cost of {part!r} was not measured; known: {', '.join(table)}"
                    )
                total += table[part] * number
        return total

    def cost(self, counts: Counts, seconds: float = NAN) -> Cost:
        """All numbers of some evaluations."""
        return Cost(
            self.flops(counts),
            counts.nfe,
            counts.reward_forwards,
            counts.reward_backwards,
            seconds,
        )

    def with_part(self, part: str, flops: float) -> CostModel:
        """With a part more, forward only."""
        return CostModel({**self.forward, part: flops}, self.backward)


# ---- measuring parts ----------------------------------------------------------------------------

_Call: TypeAlias = "tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]"


def _pipeline_parts(
    pipe: Any, prompt: str, sampling: Mapping[str, Any], backward: bool
) -> tuple[tuple[dict[str, float], dict[str, float]], Tensor]:
    """FLOPs of the parts of a pipeline, and the picture (1, 3, H, W) or (1, F, 3, H, W)."""
    import torch

    forward: dict[str, float] = {}
    backwards: dict[str, float] = {}
    calls: dict[str, _Call] = {}
    meter = Meter()
    with ExitStack() as stack:
        stack.enter_context(meter.watching(pipe))
        for part, module in metered_modules(pipe):
            if part == "denoiser":
                stack.callback(_keep_call(module, calls).remove)
        if hasattr(pipe, "vae"):
            stack.enter_context(_keep_decode(pipe.vae, calls))
        given = {"prompt": [prompt], "output_type": "pt", **sampling}
        noise = [torch.Generator("cpu").manual_seed(0)]
        found: list[Any] = []
        total = counted(lambda: found.append(pipe(**given, generator=noise)))
    rows = meter.counts.forward
    for part, call in calls.items():
        forward[part], backwards[part] = _both(pipe, part, call, backward)
    rest = total - sum(forward[part] * rows[part] for part in forward)
    forward["text"] = max(rest, 0.0) / max(rows["text"], 1)
    picture = _picture(found[0])
    if picture.ndim == 4 and isinstance(getattr(pipe, "vae", None), torch.nn.Module):
        forward["encoder"] = _encode_cost(pipe.vae, picture)
    return (forward, backwards), picture


def _keep_call(module: Any, calls: dict[str, _Call]) -> Any:
    """Keep what the denoiser is first called with."""

    def keep(module: Any, args: Any, kwargs: Any) -> None:
        calls.setdefault("denoiser", (module, args, dict(kwargs)))

    return module.register_forward_pre_hook(keep, with_kwargs=True)


@contextmanager
def _keep_decode(vae: Any, calls: dict[str, _Call]) -> Iterator[None]:
    """Keep what ``vae.decode`` is called with."""
    own = vae.decode

    def decode(*args: Any, **kwargs: Any) -> Any:
        calls.setdefault("decoder", (own, args, dict(kwargs)))
        return own(*args, **kwargs)

    vae.decode = decode
    try:
        yield
    finally:
        del vae.decode


def _both(pipe: Any, part: str, call: _Call, backward: bool) -> tuple[float, float]:
    """FLOPs of a call and of its gradient at the sample, for each row that a meter counts."""
    import torch

    meter, function = Meter(), call[0]
    with ExitStack() as stack:
        stack.enter_context(meter.watching(pipe))
        for module in pipe.components.values():
            if isinstance(module, torch.nn.Module):
                stack.enter_context(_frozen(module))
        args, kwargs, leaves = _with_leaf(*call[1:], backward)
        stack.enter_context(torch.set_grad_enabled(backward))
        result: list[Tensor] = []
        ahead = counted(lambda: result.append(first_tensor(function(*args, **kwargs))))
        rows, behind = max(meter.counts.forward[part], 1), NAN
        if backward and result[0].requires_grad:
            behind = counted(lambda: torch.autograd.grad(result[0].sum(), leaves))
    return ahead / rows, behind / rows


def _with_leaf(
    args: tuple[Any, ...], kwargs: dict[str, Any], backward: bool
) -> tuple[tuple[Any, ...], dict[str, Any], Any]:
    """The arguments with the sample as a leaf of its own: the first tensor, alone or in a list."""
    import torch

    places: list[tuple[int | str, Any]] = [*enumerate(args), *kwargs.items()]
    for place, value in places:
        many = isinstance(value, list) and value and isinstance(value[0], torch.Tensor)
        if not many and not (isinstance(value, torch.Tensor) and value.ndim > 2):
            continue
        tensors = list(value) if many else [value]
        leaves = [t.detach().clone().requires_grad_(backward) for t in tensors]
        given = leaves if many else leaves[0]
        if isinstance(place, int):
            return (*args[:place], given, *args[place + 1 :]), kwargs, leaves
        return args, {**kwargs, place: given}, leaves
    raise T2XError("a part of the pipeline was called without a sample; its cost can't be measured")


@contextmanager
def _frozen(module: Any) -> Iterator[None]:
    changed = [p for p in module.parameters() if p.requires_grad]
    for parameter in changed:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in changed:
            parameter.requires_grad_(True)


def _picture(output: Any) -> Tensor:
    media = output.frames if hasattr(output, "frames") else output.images
    first = media[0] if isinstance(media, list) else media
    picture: Tensor = first.detach().float().clamp(0, 1).cpu()
    return picture if picture.ndim >= 4 else picture.unsqueeze(0)


def _encode_cost(vae: Any, picture: Tensor) -> float:
    import torch

    parameter = next(vae.parameters())
    given = picture.to(parameter.device, parameter.dtype) * 2 - 1
    with torch.no_grad():
        return counted(lambda: vae.encode(given)) / len(given)


def _reward_cost(
    reward: RewardModel, prompt: str, picture: Tensor, backward: bool
) -> tuple[float, float, float]:
    """FLOPs forward, of the text the first time, and backward."""
    import torch

    # Encoders remember texts, this one can't have been asked before.
    other = f"{prompt} {next(_fresh)}"
    with torch.no_grad():
        first = counted(lambda: reward.score([other], picture))
        text = first - counted(lambda: reward.score([other], picture))
        reward.score([prompt], picture)
        ahead = counted(lambda: reward.score([prompt], picture))
    if not (backward and reward.differentiable):
        return ahead, max(text, 0.0), NAN
    leaf = picture.clone().requires_grad_()
    both = counted(lambda: torch.autograd.grad(reward.score([prompt], leaf).sum(), leaf))
    return ahead, max(text, 0.0), both - ahead
