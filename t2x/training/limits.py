"""What a recipe does not do, said before it begins instead of being passed over."""

from __future__ import annotations

import os
from dataclasses import MISSING, fields
from typing import Any

from t2x.errors import T2XError

__all__ = ["refuse_unused", "require_one_process"]


def require_one_process(recipe: str) -> None:
    """Raise T2XError where several processes were launched for a recipe that is made for one."""
    number = int(os.environ.get("WORLD_SIZE", "1"))  # set by accelerate, torchrun and DeepSpeed
    if number > 1:
        raise T2XError(
            f"{recipe} runs in one process, and {number} were launched; start it as `t2x train "
            f"{recipe}`, without `accelerate launch`"
        )


def refuse_unused(recipe: str, name: str, section: Any, *options: str) -> None:
    """Raise T2XError if one of ``options`` of the dataclass ``section``, called ``name`` in the
    configuration, differs from its default: the recipe makes no use of it.
    """
    known = {field.name: field for field in fields(section)}
    for option in options:
        field = known[option]
        default = field.default if field.default_factory is MISSING else field.default_factory()
        given = getattr(section, option)
        if given != default:
            raise T2XError(
                f"{name}.{option} is {given!r}, which has no effect in {recipe}; leave it out"
            )
