"""Stopping a model that is being loaded, where libraries offer nothing for it: between two layers,
two weights, two pieces of a download.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

__all__ = ["stoppable_load"]


@contextmanager
def stoppable_load(check: Callable[[], None]) -> Iterator[None]:
    """Load inside: ``check`` is called often, and what it raises ends the loading as Ctrl-C would.

    On this thread before each layer, parameter and buffer that a module of torch gets; on whichever
    thread before each piece of a file that huggingface_hub downloads. A file that is being read
    from the disk is read to its end.
    """
    from torch.nn.modules import module

    own = threading.get_ident()

    def look(*_: Any) -> None:
        if threading.get_ident() == own:
            check()

    with ExitStack() as stack:
        for register in (
            module.register_module_module_registration_hook,
            module.register_module_parameter_registration_hook,
            module.register_module_buffer_registration_hook,
        ):
            stack.callback(register(look).remove)
        stack.enter_context(_checked_download(check))
        yield


@contextmanager
def _checked_download(check: Callable[[], None]) -> Iterator[None]:
    """The hub tells its bar of progress of each piece, even one that is not shown."""
    from huggingface_hub import utils

    bar: Any = utils.tqdm  # type: ignore[attr-defined]
    usual = bar.update

    def update(self: Any, n: float | None = 1) -> Any:
        check()
        return usual(self, n)

    bar.update = update
    try:
        yield
    finally:
        bar.update = usual
