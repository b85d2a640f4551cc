"""What a pipeline's call holds beside its weights, phase by phase, without computing it.

The pipeline's own ``__call__`` runs with real latents, schedulers and tokenizers, while its
networks get tensors that have shapes and no data (torch's FakeTensorMode). So batch, size, frames,
number format, classifier-free guidance, tiles and slices are what the pipeline itself makes of
them. The same shapes are run once.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.utils._pytree import tree_map

from t2x.generators.calls import default_arguments
from t2x.generators.loading import quiet
from t2x.memory.counting import (
    Footprint,
    Live,
    RealIntegers,
    count_graph,
    is_tensor,
    shadow,
)
from t2x.memory.weights import module_bytes

__all__ = ["PHASES", "phases_of_part", "pipeline_activations", "without_data"]

log = logging.getLogger(__name__)

PHASES = ("encode", "text", "denoise", "decode")
STEPS = 4  # enough for the memory of solvers and for both experts of a pair
MEDIA_COPIES = 3  # beside what was decoded: the output, the batch, and one while it is rounded
DENSE = 2**26  # bytes; an output that is larger takes none here
_DENOISERS = ("unet", "transformer", "prior", "decoder")


def converted(module: torch.nn.Module, number: torch.dtype, fake: FakeTensorMode) -> None:
    """Give weights without data the number format ``number``, in place."""
    with fake:
        for part in module.modules():
            tables: tuple[dict[str, Any], ...] = (part._parameters, part._buffers)
            for held in tables:
                for name, value in held.items():
                    if value is None or not value.is_floating_point() or value.dtype == number:
                        continue
                    new = torch.empty(value.shape, dtype=number)
                    is_weight = isinstance(value, torch.nn.Parameter)
                    held[name] = torch.nn.Parameter(new, False) if is_weight else new


class _Done(Exception):
    """Pictures are there."""


def pipeline_activations(
    pipeline: Any,
    arguments: Mapping[str, Any],
    *,
    fake: FakeTensorMode | None = None,
    media_there: bool = True,
    prepared: Callable[[Any], AbstractContextManager[None]] | None = None,
    graphs: dict[str, Footprint | None] | None = None,
) -> tuple[dict[str, int | None], tuple[int, int] | None]:
    """Give the most bytes beside weights in each phase of a call, and (height, width) of what it
    draws. Phases: "encode" (a source picture), "text", "denoise" and "decode"; one that there is
    not is missing.

    Args:
        pipeline: a loaded one, which stays as it is, or one of ``t2x.memory.skeletons``.
        arguments: of its call: prompts, size, frames, guidance. At most ``STEPS`` steps are run.
        fake: the mode in which the pipeline's weights were made, if they have no data.
        media_there: whether finished media lie in the same memory, as on a CPU.
        prepared: makes of the pipeline that is run what the call is made in, as one that encodes
            long prompts in several windows.
        graphs: phases whose graph of gradients is to be counted, too, which is written there; None
            where it can't be.

    None, from where the run ended, is what could not be counted: networks that look at their data.
    """
    mode = fake or FakeTensorMode(allow_non_fake_inputs=True)
    counted = _Counted(mode, MEDIA_COPIES if media_there else 0, graphs)
    twin = counted.twin(pipeline)
    steps = arguments.get("num_inference_steps")
    call = dict(arguments)
    if steps is not None:
        call["num_inference_steps"] = min(int(steps), STEPS)
    if "output_type" in default_arguments(type(pipeline)):
        call["output_type"] = "pt"
    try:
        as_prepared = nullcontext() if prepared is None else prepared(twin)
        with quiet(), torch.no_grad(), counted.outside, as_prepared:
            twin(**call)
    except _Done:
        pass
    except Exception as error:
        log.info("memory of %s after %s: %r", type(pipeline).__name__, counted.phase, error)
        log.debug("where it happened", exc_info=True)
        counted.enter(counted.phase)
        rest = PHASES[PHASES.index(counted.phase) :]
        return {**counted.peaks, **{name: None for name in rest if name != "encode"}}, None
    counted.enter(counted.phase)
    found = {name: counted.peaks[name] for name in PHASES if name in counted.peaks}
    return {**found}, counted.drawn


def phases_of_part(name: str) -> dict[str, str]:
    """Give the phase of each method of a pipeline's part that counts, by the part's name."""
    if name.startswith(("vae", "vq")):
        return {"encode": "encode", "decode": "decode"}
    if name.startswith(_DENOISERS):
        return {"forward": "denoise"}
    return {"forward": "encode" if "image" in name else "text"}


def without_data(module: torch.nn.Module, fake: FakeTensorMode) -> torch.nn.Module:
    """The same network with weights of ``fake``; the given one stays as it is."""
    twin = shadow(module)
    for part in twin.modules():
        vars(part).pop("forward", None)  # of hooks that move weights, bound to the given module
        tables: tuple[dict[str, Any], ...] = (part._parameters, part._buffers)
        for held in tables:
            for name, value in held.items():
                if value is not None and not isinstance(value, FakeTensor):
                    held[name] = fake.from_tensor(value)
    return twin


def _without_full_mask(kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments without a mask of padding that masks nothing: transformers looks at its data
    and then makes no square one, which it can't tell of a mask without data."""
    mask = kwargs.get("attention_mask")
    if not isinstance(mask, Tensor) or isinstance(mask, FakeTensor):
        return kwargs
    if mask.ndim == 2 and bool(mask.all()):
        return {**kwargs, "attention_mask": None}
    return kwargs


class _Counted:
    """The run's state: which phase it is in, and the most bytes of each."""

    def __init__(
        self,
        fake: FakeTensorMode,
        media_copies: int = 0,
        graphs: dict[str, Footprint | None] | None = None,
    ) -> None:
        self._graphs = {} if graphs is None else graphs
        self._to_count = set(self._graphs)
        self.fake, self.media_copies = fake, media_copies
        self.outside = Live(fake=False)
        self.peaks: dict[str, int] = {}
        self.phase = "text"
        self._finishing = False
        self.drawn: tuple[int, int] | None = None
        self._known: dict[str, tuple[int, int, Any]] = {}
        self._kept: list[Tensor] = []  # what stands for weights that grow

    def enter(self, phase: str) -> None:
        """What was held since the last change counts to the phase that ends."""
        self._raise_to(self.outside.peak)
        self.outside.peak = self.outside.now
        self.phase = phase

    def _raise_to(self, size: int) -> None:
        self.peaks[self.phase] = max(self.peaks.get(self.phase, 0), size)

    # ---- the pipeline -----------------------------------------------------------------------

    def twin(self, pipeline: Any) -> Any:
        """The same pipeline of networks without data, each of which tells its phase."""
        twin = copy.copy(pipeline)
        for name, part in pipeline.components.items():
            if isinstance(part, torch.nn.Module):
                own = without_data(part, self.fake)
                self._convertible(own)
                vars(twin)[name] = self._listening(name, own)
            elif name == "scheduler":
                vars(twin)[name] = copy.deepcopy(part)
        if getattr(pipeline, "safety_checker", None) is not None:
            vars(twin)["safety_checker"] = None  # it looks at the pictures
        for name in ("image_processor", "video_processor"):
            processor = copy.copy(vars(pipeline).get(name))
            for method in ("postprocess", "postprocess_video"):
                if hasattr(processor, method):
                    vars(processor)[method] = self._last(getattr(processor, method))
            vars(twin)[name] = processor
        twin.set_progress_bar_config(disable=True)
        return twin

    def _listening(self, name: str, module: Any) -> Any:
        for method, phase in phases_of_part(name).items():
            run = self._counted(f"{name}.{method}", module, method, phase)
            vars(module)[method] = run
        return module

    def _convertible(self, part: torch.nn.Module) -> None:
        """Let a pipeline change the number format of a part or of layers in it, as those do whose
        decoder overflows in float16; what the weights grow by counts from then on."""
        whole = module_bytes(part)
        grown = torch.zeros(())

        def to(module: torch.nn.Module, *args: Any, **kwargs: Any) -> torch.nn.Module:
            number = torch._C._nn._parse_to(*args, **kwargs)[1]
            if number is not None:
                converted(module, number, self.fake)
                more = max(module_bytes(part) - whole, 0)
                self.outside.add(grown.untyped_storage(), more)
            return module

        self._kept.append(grown)
        for module in part.modules():
            vars(module)["to"] = partial(to, module)

    def _counted(self, name: str, module: Any, method_name: str, phase: str) -> Callable[..., Any]:
        method = getattr(module, method_name)

        def run(*args: Any, **kwargs: Any) -> Any:
            if phase != self.phase:
                self.enter(phase)
            kwargs = _without_full_mask(kwargs)
            given = tree_map(lambda v: (v.shape, v.dtype) if is_tensor(v) else v, (args, kwargs))
            key = f"{name} {module.dtype} {given}"
            if key not in self._known:
                self._known[key] = self._run(method, args, kwargs)
            if phase in self._to_count:
                self._to_count.remove(phase)
                self._graphs[phase] = self._graph(module, method, args, kwargs)
            peak, held, found = self._known[key]
            self._raise_to(self.outside.now + peak)
            return self._real(found, held)

        return run

    def _last(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """What makes pictures of the decoder's output ends the run."""

        def run(*args: Any, **kwargs: Any) -> Any:
            if self._finishing:
                return method(*args, **kwargs)
            self._finishing = True
            try:
                peak, media, found = self._run(method, args, kwargs)
                height, width = found.shape[-2:]
                self.drawn = int(height), int(width)
            except Exception as error:
                log.info("what makes pictures is not counted: %r", error)
                peak = media = 0
            self._raise_to(self.outside.now + max(peak, self.media_copies * media))
            raise _Done

        return run

    # ---- one network ------------------------------------------------------------------------

    def _run(self, method: Callable[..., Any], args: Any, kwargs: Any) -> tuple[int, int, Any]:
        """Most bytes at any moment, bytes that are left at the end, and the output."""
        given, named = tree_map(self._fake, (args, kwargs))
        try:
            with self.fake:
                return self._count(method, given, named)
        except (DataDependentOutputException, DynamicOutputShapeException):
            whole = tree_map(lambda v: self._fake(v, whole_numbers=False), (args, kwargs))
            with RealIntegers(self.fake):
                return self._count(method, *whole)

    def _count(self, method: Callable[..., Any], args: Any, kwargs: Any) -> tuple[int, int, Any]:
        with Live(fake=True, mode=self.fake) as live:
            found = method(*args, **kwargs)
            held = live.now
        return live.peak, held, found

    def _graph(self, module: Any, method: Any, args: Any, kwargs: Any) -> Footprint | None:
        """What going back through a network to its first argument holds, weights as they are."""
        for weight in module.parameters():
            weight.requires_grad_(False)
        leaves: list[Tensor] = []

        def asked(value: Any) -> Any:
            made = self._fake(value)
            if not leaves and isinstance(made, Tensor) and made.is_floating_point():
                leaves.append(made.requires_grad_())
            return made

        try:
            with self.fake:
                given, named = tree_map(asked, (args, kwargs))
                return count_graph(lambda: method(*given, **named), leaves, fake=True)
        except Exception as error:
            log.info("the graph of %s is not counted: %r", type(module).__name__, error)
            return None

    def _fake(self, value: Any, whole_numbers: bool = True) -> Any:
        if not isinstance(value, Tensor) or isinstance(value, FakeTensor):
            return value
        if not whole_numbers and not value.is_floating_point():
            return value
        if value.untyped_storage().nbytes() < value.numel() * value.element_size():
            with self.fake:
                return torch.empty(value.shape, dtype=value.dtype)
        return self.fake.from_tensor(value.detach())

    def _real(self, found: Any, held: int) -> Any:
        """Zeros in place of an output, counted at its full size; what else is ``held`` by the
        output, such as a cache of keys and values, counts to the first."""
        made: dict[int, Tensor] = {}

        def zeros(value: Any) -> Any:
            if not isinstance(value, FakeTensor):
                return value
            size, key = value.numel() * value.element_size(), id(value)
            if key not in made:
                if size <= DENSE:
                    made[key] = torch.zeros(value.shape, dtype=value.dtype)
                else:
                    one = torch.zeros((), dtype=value.dtype)
                    self.outside.add(one.untyped_storage(), size)
                    made[key] = one.expand(value.shape)
            return made[key]

        real = tree_map(zeros, found)
        if made:
            first = next(iter(made.values())).untyped_storage()
            shown = sum(tensor.numel() * tensor.element_size() for tensor in made.values())
            self.outside.add(first, self.outside.size(first) + max(held - shown, 0))
        return real
