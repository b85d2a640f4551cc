"""gradio without its stubs: at each import it writes type stubs for editors beside its components,
into the installed package, and that is half of the time that ``import gradio`` takes.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

__all__ = ["leave_stubs"]

_WRITER = "gradio.component_meta"
_WRITES = "create_or_modify_pyi"


class _Finder(MetaPathFinder):
    """Finds the module that writes them, once."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _WRITER:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(Loader):
    """Loads it as it is, and takes the writing away."""

    def __init__(self, usual: Loader) -> None:
        self.usual = usual

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.usual.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.usual.exec_module(module)
        if hasattr(module, _WRITES):
            setattr(module, _WRITES, lambda component, name, events: None)


def leave_stubs() -> None:
    """Let gradio, when it is imported, leave its stubs as they are."""
    if _WRITER not in sys.modules and not any(isinstance(f, _Finder) for f in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
