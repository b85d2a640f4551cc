"""Measuring, for real, what tests of memory compare with: bytes of weights and of everything that
operations make, at the fullest moment."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from t2x.memory.counting import Live

__all__ = ["Meter", "phases_of"]


def phases_of(pipe: Any, run: Callable[[], Any]) -> dict[str, int]:
    """Most bytes beside weights in each phase of a call: text, encode, denoise, decode."""
    live, peaks, now = Live(fake=False), {}, ["text"]

    def enter(phase: str) -> None:
        if phase != now[0]:
            peaks[now[0]] = max(peaks.get(now[0], 0), live.peak)
            live.peak, now[0] = live.now, phase

    with ExitStack() as stack:
        for name, part in pipe.components.items():
            if not isinstance(part, torch.nn.Module):
                continue
            if name.startswith("vae"):
                for method in ("encode", "decode"):
                    vars(part)[method] = _entering(getattr(part, method), enter, method)
                    stack.callback(vars(part).pop, method)
                continue
            denoises = name.startswith(("unet", "transformer"))
            phase = "denoise" if denoises else "encode" if "image" in name else "text"
            hook = part.register_forward_pre_hook(lambda *_, p=phase: enter(p))
            stack.callback(hook.remove)
        with live:
            run()
    enter("end")
    return peaks


def _entering(method: Any, enter: Any, phase: str) -> Any:
    def run(*args: Any, **kwargs: Any) -> Any:
        enter(phase)
        return method(*args, **kwargs)

    return run


class Meter:
    """Counts all inside ``running``: ``peak`` is the most of weights and activations together."""

    def __init__(self) -> None:
        self.live = Live(fake=False)
        self.weights = self.peak = 0
        self._known: set[int] = set()
        self._inside = False
        self._before: set[int] = set()

    @contextmanager
    def running(self) -> Iterator[None]:
        self._before = {id(p) for p in self._parameters()}
        hook = torch.nn.modules.module.register_module_forward_pre_hook(self._look)
        try:
            with self.live:
                yield
        finally:
            hook.remove()
            self._flush()

    def _look(self, module: torch.nn.Module, _: Any) -> None:
        """At the first call of each class of modules, see which weights are there."""
        if id(module) in self._known or not any(True for _ in module.children()):
            return
        self._known.update(id(part) for part in module.modules())
        self.scan()

    def scan(self) -> None:
        """See which weights are there now: call it when a model was freed."""
        self._flush()
        there = {p.untyped_storage().data_ptr(): p for p in self._parameters()}
        own = [p.untyped_storage() for p in there.values() if id(p) not in self._before]
        self.weights = sum(s.nbytes() for s in own if not self.live.size(s))  # else it is in live

    def _flush(self) -> None:
        self.peak = max(self.peak, self.weights + self.live.peak)
        self.live.peak = self.live.now

    def _parameters(self) -> list[torch.nn.Parameter]:
        return [thing for thing in gc.get_objects() if type(thing) is torch.nn.Parameter]
