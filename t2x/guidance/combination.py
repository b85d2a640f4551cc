"""Another combination of a pipeline's predictions than its own classifier-free guidance.

    with combined(pipe, lambda p: p.unconditional + 3 * (p.conditional - p.unconditional)):
        pipe("a cat", guidance_scale=7.5)

The pipeline goes on to combine u + s (c - u) itself. The denoiser hands it the u for which that is
what is wanted, and the conditional prediction as it is, so that whatever the pipeline does with it
besides (rescaling to its size, skipped layers) stays right.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.functional.classifier_free import unconditional_for
from t2x.generators.calls import default_arguments, guidance_acts
from t2x.guidance.step import DENOISERS

__all__ = ["Combine", "Predictions", "combined", "guidance_scale_of"]

_UNBATCHED = ("image_rotary_emb", "img_ids", "txt_ids", "img_shapes")  # of a position, not a row
_Half: TypeAlias = Literal["whole", "first", "second"]


@dataclass(frozen=True)
class Predictions:
    """Of one evaluation, (N, ...) float32 each: without text, of the call's prompts, and of the
    originals where some were given. ``scale`` is the pipeline's own."""

    unconditional: Tensor
    conditional: Tensor
    original: Tensor | None
    scale: float


@dataclass(frozen=True)
class _Part:
    """Where in a batch of ``rows`` the prompts are."""

    half: _Half
    rows: int

    def of(self, value: Any) -> Any:
        """These rows of a tensor or list that has all of them; anything else as it is."""
        sized = isinstance(value, list) or value.ndim > 0
        if not sized or len(value) != self.rows or self.half == "whole":
            return value
        half = self.rows // 2
        return value[:half] if self.half == "first" else value[half:]


Combine: TypeAlias = Callable[[Predictions], "Tensor | None"]


@contextmanager
def combined(
    pipe: Any, combine: Combine, *, originals: Sequence[str] | Mapping[str, str] | None = None
) -> Iterator[None]:
    """Let ``combine`` give the prediction (N, ...) of each step of every call of ``pipe`` inside.

    ``originals``: other texts, one for each prompt of the call or by prompt, for which the denoiser
    is evaluated once more per step. Gradients pass. Nothing stays on the pipeline. Raises T2XError
    for a call without classifier-free guidance, and for a pipeline that is combined already or
    lacks ``encode_prompt``.
    """
    kind = type(pipe)
    if hasattr(kind, "_combined"):
        raise T2XError(f"{kind.__name__} is combined anew already; leave that `with` first")
    if not hasattr(kind, "encode_prompt"):
        raise T2XError(
            f"{kind.__name__} has no encode_prompt; nothing says which text is the user's"
        )
    session = _Session(pipe, combine, originals)
    with ExitStack() as stack:
        pipe.__class__ = session.watched(kind)
        stack.callback(setattr, pipe, "__class__", kind)
        if own := vars(pipe).get("encode_prompt"):  # the hook's, on a pipeline that checks nothing
            object.__setattr__(pipe, "encode_prompt", session.encoder(own))
            stack.callback(object.__setattr__, pipe, "encode_prompt", own)
        for name in DENOISERS:
            module = getattr(pipe, name, None)
            if isinstance(module, torch.nn.Module):
                session.wrap(module, stack)
        yield


def guidance_scale_of(pipe: Any, kind: type, given: dict[str, Any]) -> float:
    """The s of u + s (c - u) in a call of ``kind`` with the arguments ``given``.

    Raises T2XError where the call has no classifier-free guidance: distilled models, scales that
    switch it off, and a missing negative prompt where the class needs one.
    """
    name = kind.__name__
    if given.get("use_dynamic_cfg"):
        raise T2XError(f"{name}: use_dynamic_cfg changes the scale from step to step; leave it off")
    known: tuple[str, ...] = ("true_cfg_scale", "guidance_scale")
    scales: dict[str, Any] = {key: given[key] for key in known if key in given}
    empty = given.get("negative_prompt") is None and given.get("negative_prompt_embeds") is None
    if "true_cfg_scale" in scales and empty:
        raise T2XError(
            f"{name} guides by its true_cfg_scale only beside a negative prompt; give "
            'negative_prompt="" (and a true_cfg_scale of 4, say)'
        )
    if not guidance_acts(kind, default_arguments(kind), scales, pipe):
        raise T2XError(_unguided(pipe, name, scales))
    scale = float(scales.get("true_cfg_scale", scales.get("guidance_scale", 1.0)))
    return 1 + scale if name.startswith("ZImage") else scale  # its c + g (c - u)


def _unguided(pipe: Any, name: str, scales: dict[str, Any]) -> str:
    unet, transformer = getattr(pipe, "unet", None), getattr(pipe, "transformer", None)
    distilled = getattr(getattr(unet, "config", None), "time_cond_proj_dim", None) is not None
    distilled |= bool(getattr(getattr(transformer, "config", None), "guidance_embeds", False))
    shown = ", ".join(f"{key}={value}" for key, value in scales.items()) or "no scale"
    if distilled and "true_cfg_scale" not in scales:
        return (
            f"this {name} is distilled: it takes the guidance scale as an input and never predicts "
            "without text, so that there is nothing to combine; use a model that is not distilled"
        )
    return f"{name} runs without classifier-free guidance ({shown}); raise the scale, to 5 say"


class _Session:
    """One pipeline whose predictions are combined anew."""

    def __init__(
        self, pipe: Any, combine: Combine, given: Sequence[str] | Mapping[str, str] | None
    ) -> None:
        self.pipe, self.combine, self.given = pipe, combine, given
        self.originals: list[str] | None = None  # of the running call
        self.scale, self.scale_2 = 1.0, 1.0
        self.texts: list[tuple[Any, Any]] = []  # of the prompts and of the originals, in pairs
        self.waiting: tuple[Tensor, Tensor | None] | None = None  # first of two passes
        self.used = 0

    # ---- the call and its texts -------------------------------------------------------------

    def watched(self, kind: type) -> type:
        """``kind``, but it tells of calls: Python looks ``__call__`` up on classes only."""

        @functools.wraps(kind.__call__)
        def call(pipe: Any, *args: Any, **kwargs: Any) -> Any:
            self._begin(kind, _arguments(types.MethodType(kind.__call__, pipe), *args, **kwargs))
            found = kind.__call__(pipe, *args, **kwargs)
            if not self.used:
                raise T2XError(f"{kind.__name__} combines predictions in a way that is not known")
            return found

        @functools.wraps(kind.encode_prompt)  # type: ignore[attr-defined]
        def encode_prompt(pipe: Any, *args: Any, **kwargs: Any) -> Any:
            own = types.MethodType(kind.encode_prompt, pipe)  # type: ignore[attr-defined]
            return self.encoder(own)(*args, **kwargs)

        body = {"__call__": call, "encode_prompt": encode_prompt, "_combined": True}
        body |= {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
        return type(kind.__name__, (kind,), body)

    def encoder(self, own: Callable[..., Any]) -> Callable[..., Any]:
        """``own``, but the first text of a call is encoded beside its original."""

        @functools.wraps(own)
        def encode_prompt(*args: Any, **kwargs: Any) -> Any:
            given = _arguments(own, *args, **kwargs)
            found = own(*args, **kwargs)
            if not self.texts:
                self._pair(found, own, given)
            return found

        return encode_prompt

    def _begin(self, kind: type, given: dict[str, Any]) -> None:
        self.scale = self.scale_2 = guidance_scale_of(self.pipe, kind, given)
        if given.get("guidance_scale_2") is not None:
            self.scale_2 = float(given["guidance_scale_2"])
        self.originals = self._of_call(given.get("prompt"))
        for name in DENOISERS:
            if getattr(getattr(self.pipe, name, None), "is_cache_enabled", False):
                raise T2XError(f"{name} of {kind.__name__} caches features; disable_cache() first")
        self.texts, self.waiting, self.used = [], None, 0

    def _of_call(self, prompt: Any) -> list[str] | None:
        if self.given is None:
            return None
        prompts = [prompt] if isinstance(prompt, str) else prompt
        if isinstance(self.given, Mapping):
            missing = [text for text in prompts or [None] if text not in self.given]
            if missing:
                raise T2XError(f"no original is given for the prompt {missing[0]!r}")
            return [self.given[text] for text in prompts]
        if prompts is not None and len(prompts) != len(self.given):
            raise T2XError(
                f"{len(prompts)} prompts and {len(self.given)} originals; give one for each"
            )
        return list(self.given)

    def _pair(self, found: Any, encode: Callable[..., Any], given: dict[str, Any]) -> None:
        """Keep what the text became, beside what the originals become."""
        found = found if isinstance(found, tuple) else (found,)
        if self.originals is None:
            self.texts = [(item, None) for item in found if item is not None]
            return
        changes = dict.fromkeys(
            key for key in given if key.startswith("prompt") or key == "pooled_prompt_embeds"
        )
        changes |= {"prompt": list(self.originals), "do_classifier_free_guidance": False}
        other = encode(**{**given, **{k: v for k, v in changes.items() if k in given}})
        other = other if isinstance(other, tuple) else (other,)
        pairs = zip(found, other, strict=True)
        self.texts = [(a, b) for a, b in pairs if a is not None and b is not None]
        if not self.texts or len(self.texts[0][0]) != len(self.texts[0][1]):
            raise T2XError("the originals don't match the prompts of the call; give one for each")

    # ---- one evaluation ---------------------------------------------------------------------

    def wrap(self, module: torch.nn.Module, stack: ExitStack) -> None:
        """Put our forward on the module (beside its hooks); the stack takes it off."""
        original, own = module.forward, "forward" in vars(module)
        scale = "scale_2" if module is getattr(self.pipe, "transformer_2", None) else "scale"

        @functools.wraps(original)
        def forward(*args: Any, **kwargs: Any) -> Any:
            return self._forward(original, args, kwargs, getattr(self, scale))

        module.forward = forward
        if own:
            stack.callback(setattr, module, "forward", original)
        else:
            stack.callback(delattr, module, "forward")

    def _forward(self, original: Callable[..., Any], args: Any, kwargs: Any, scale: float) -> Any:
        if not self.texts or kwargs.get("skip_layers") is not None:
            return original(*args, **kwargs)  # a pass of its own (SD3's skipped layers)
        result = original(*args, **kwargs)
        part = self._part((args, kwargs))
        if part is not None and part.half != "whole":
            return self._both(result, original, (args, kwargs), part, scale)
        if self.waiting is not None:
            conditional, other = self.waiting
            self.waiting = None
            return _put(result, self._missing(_prediction(result), conditional, other, scale))
        if part is not None:
            self.waiting = (_prediction(result), self._other(original, (args, kwargs), part))
        return result

    def _both(
        self, result: Any, original: Callable[..., Any], given: Any, part: _Part, scale: float
    ) -> Any:
        first, second = _prediction(result).chunk(2)
        u, c = (second, first) if part.half == "first" else (first, second)
        u = self._missing(u, c, self._other(original, given, part), scale)
        return _put(result, torch.cat([c, u] if part.half == "first" else [u, c]))

    def _missing(self, u: Tensor, c: Tensor, other: Tensor | None, scale: float) -> Tensor:
        """The u that makes the pipeline's own combination what is wanted."""
        self.used += 1
        wide = None if other is None else other.float()
        target = self.combine(Predictions(u.float(), c.float(), wide, scale))
        return u if target is None else unconditional_for(target, c.float(), scale).to(u.dtype)

    def _other(self, original: Callable[..., Any], given: Any, part: _Part) -> Tensor | None:
        """The prediction for the originals, from the same x_t."""
        if self.originals is None:
            return None
        args, kwargs = self._told(given, part)
        return _prediction(original(*args, **kwargs))

    def _part(self, given: Any) -> _Part | None:
        """Where in this evaluation's batch the prompts are, if they are."""
        text = self.texts[0][0]
        halves: tuple[_Half, ...] = ("first" if isinstance(text, list) else "second", "whole")
        for leaf in _leaves(given):
            for half in halves:
                part = _Part(half, 0 if isinstance(leaf, Tensor) and not leaf.ndim else len(leaf))
                odd = half != "whole" and part.rows % 2
                if not odd and _same(part.of(leaf), text):
                    return part
        return None

    def _told(self, value: Any, part: _Part, name: str = "") -> Any:
        """The same arguments for the conditional rows alone, with the originals' text."""
        if isinstance(value, dict):
            return {key: self._told(item, part, str(key)) for key, item in value.items()}
        if name in _UNBATCHED and part.half != "whole":
            return value
        if isinstance(value, Tensor) or _is_tensors(value):
            rows = part.of(value)
            for text, other in self.texts:
                if _same(rows, text):
                    return _like(other, rows)
            return rows
        if isinstance(value, (tuple, list)):
            return type(value)(self._told(item, part) for item in value)
        return value


def _leaves(value: Any) -> Iterator[Any]:
    """Tensors, and lists of tensors, within arguments."""
    if isinstance(value, Tensor) or _is_tensors(value):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _leaves(item)


def _is_tensors(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, Tensor) for v in value)


def _same(value: Any, text: Any) -> bool:
    """Whether ``value`` is ``text`` in another number format; of lists, each item may come several
    times."""
    if isinstance(value, list) != isinstance(text, list):
        return False
    if isinstance(value, list):
        copies, rest = divmod(len(value), len(text))
        if rest or not copies:
            return False
        return all(_same(item, text[i // copies]) for i, item in enumerate(value))
    return value.shape == text.shape and bool(torch.equal(value, text.to(value)))


def _like(other: Any, value: Any) -> Any:
    """``other`` in the number format of ``value``, as often as that holds its items."""
    if isinstance(value, list):
        copies = len(value) // len(other)
        return [item.to(value[0]) for item in other for _ in range(copies)]
    return other.to(value)


def _prediction(result: Any) -> Tensor:
    """What the denoiser gives: (rows, ...)."""
    found = result[0] if isinstance(result, (tuple, list)) else result.sample
    return torch.stack(found) if isinstance(found, list) else found


def _put(result: Any, prediction: Tensor) -> Any:
    """The same result with another prediction."""
    if not isinstance(result, (tuple, list)):
        result.sample = prediction
        return result
    listed = isinstance(result[0], list)
    return type(result)([list(prediction) if listed else prediction, *result[1:]])


def _arguments(function: Callable[..., Any], *args: Any, **kwargs: Any) -> dict[str, Any]:
    """Arguments by name, those that were not given too; what goes into ``**kwargs`` beside them."""
    signature = inspect.signature(function)
    found = signature.bind(*args, **kwargs)
    found.apply_defaults()
    given = dict(found.arguments)
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            given |= given.pop(parameter.name, {})
    return given
