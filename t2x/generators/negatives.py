"""Whether a generator takes a negative prompt, and giving it one only then.

A pipeline without the argument refuses it, one whose guidance is off or distilled into the weights
ignores it: what a user ruled out would be lost without a word.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from t2x.errors import T2XError
from t2x.generators.calls import default_arguments, negative_matters
from t2x.generators.defaults import stored_sampling
from t2x.generators.tokenizers import stored_class
from t2x.settings import read_object

if TYPE_CHECKING:
    from t2x.types import Generator

log = logging.getLogger(__name__)

PARTS = ("unet", "transformer")

__all__ = ["takes_negative", "usable_negatives"]


def takes_negative(generator: str | Path | Generator) -> bool | None:
    """Whether a negative prompt has an effect on what will draw: by name, folder, hub id or loaded.

    None where that can't be found out without loading it. A loaded generator says so by its
    attribute ``supports_negative``; one without takes them, as the protocol has the argument. Of a
    hub id only small files are downloaded. Raises UnknownNameError for a name that is nothing.
    """
    if not isinstance(generator, (str, Path)):
        return bool(getattr(generator, "supports_negative", True))
    from t2x.registry import generator_source

    source = generator_source(generator)
    if source is None:
        return None
    try:
        return _stored(source, stored_sampling(generator, source))
    except (T2XError, OSError, ValueError) as error:
        log.info("whether %s takes a negative prompt is unknown: %s", generator, error)
    except Exception as error:  # offline, gated, no such repository
        log.info("whether %s takes a negative prompt is unknown: %r", generator, error)
    return None


def _stored(source: str, own: Mapping[str, Any]) -> bool:
    """Ask the class of a stored pipeline, with its settings and the configurations of its parts."""
    folder, kind = stored_class(source)
    local = Path(source).is_dir()
    parts = {
        name: SimpleNamespace(
            config=_Config(_part(name, Path(source) if local else folder, folder))
        )
        for name in PARTS
    }
    return negative_matters(kind, default_arguments(kind), own, SimpleNamespace(**parts))


def _part(name: str, first: Path, base: Path) -> dict[str, Any]:
    """The configuration of a part: of the folder itself, or of its base."""
    paths = (folder / name / "config.json" for folder in (first, base))
    return next((read_object(path) for path in paths if path.is_file()), {})


class _Config(SimpleNamespace):
    """A configuration that says None of what it does not hold."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__(**values)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None


def usable_negatives(generator: Generator, negatives: Sequence[str]) -> list[str] | None:
    """Give ``negatives`` as a call of ``generator`` takes them: None if all are empty or it takes
    none, with a line in the log in that case.
    """
    if not any(negatives):
        return None
    if takes_negative(generator):
        return list(negatives)
    log.warning("%s takes no negative prompt: it is left out", generator.model_id)
    return None
