"""What loading a hub id would download: bytes by part, what is in the cache, licence and gate.

Asks the hub for its list of files, once and with a short timeout, and downloads nothing. What is
not known is None, with the reason in ``problem``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from t2x.checkpoint_files import PICKLES, cached_folder
from t2x.failures import explain, first_line
from t2x.hub_failures import offline_switch

TIMEOUT = 5.0  # seconds for one answer of the hub
_SMALL = (".json", ".txt", ".model", ".jinja", ".md", ".py", ".spm")

__all__ = ["TIMEOUT", "Download", "find_download"]


@dataclass(frozen=True)
class Download:
    """What loading ``source`` downloads.

    Args:
        source: hub id.
        parts: bytes of each part, by folder; files at the top are "".
        missing: bytes that are not in the cache; None where that is unknown.
        gated: whether a licence must be accepted first; None where that is unknown.
        licence: tag of the licence on the hub; None where that is unknown.
        problem: why something is unknown, in one line, or empty.
        refused: whether that is an answer of the hub (gated, missing), and not its absence.
    """

    source: str
    parts: Mapping[str, int] = field(default_factory=dict)
    missing: int | None = None
    gated: bool | None = None
    licence: str | None = None
    problem: str = ""
    refused: bool = False

    @property
    def total(self) -> int | None:
        """Bytes of all parts; None where they are unknown."""
        return sum(self.parts.values()) if self.parts else None


def find_download(
    source: str,
    *,
    revision: str | None = None,
    variant: str | None = None,
    only: str = "",
    without: Collection[str] = (),
) -> Download:
    """Ask the hub what loading ``source`` downloads; never raises and never takes long.

    ``only`` is the one file that is loaded of it, ``without`` are folders that are not.
    """
    if switch := offline_switch():
        found = _cached(source, f"{switch} is set")
        what = "" if found.parts else "; unset it once, or give a local folder"
        return replace(found, problem=found.problem + what)
    from huggingface_hub import HfApi

    try:
        facts = HfApi().model_info(source, revision=revision, files_metadata=True, timeout=TIMEOUT)
    except Exception as error:  # whatever the hub or the network does
        said = str(explain(error, source) or first_line(error))
        answered = getattr(error, "response", None) is not None
        return _cached(source, said.removeprefix(f"cannot load {source!r}: "), refused=answered)
    sizes = {
        file.rfilename: int(file.size) for file in facts.siblings or () if file.size is not None
    }
    chosen = [n for n in _loaded(sizes, variant) if n.partition("/")[0] not in without]
    if only:
        chosen = [only] if only in sizes else []
    parts: dict[str, int] = {}
    for name in chosen:
        part = name.rpartition("/")[0].partition("/")[0]
        parts[part] = parts.get(part, 0) + sizes[name]
    absent = [name for name in chosen if not _is_cached(source, name, revision)]
    return Download(
        source,
        parts,
        missing=sum(sizes[name] for name in absent) if parts else None,
        gated=None if facts.gated is None else bool(facts.gated),
        licence=_licence(facts),
        problem="" if parts else "the hub lists no files with sizes",
    )


def _licence(facts: Any) -> str | None:
    tags = [tag.removeprefix("license:") for tag in facts.tags or () if tag.startswith("license:")]
    return tags[0] if tags else None


def _is_cached(source: str, name: str, revision: str | None) -> bool:
    from huggingface_hub import try_to_load_from_cache

    return isinstance(try_to_load_from_cache(source, name, revision=revision), str)


def _loaded(names: Collection[str], variant: str | None) -> list[str]:
    """The files that loading takes: of weights those in one format and of one variant, in component
    folders where there are such; and what is small. A component has a config.json beside it, files
    for other programs have none."""
    from t2x.memory.weights import _plain_files

    parts = [n for n in names if "/" not in n or f"{n.rpartition('/')[0]}/config.json" in names]
    weights = _plain_files(parts) or _plain_files(names)
    if variant is not None:
        marks = (f".{variant}.", f".{variant}-")  # the latter where it is in several files
        stored = [n for n in parts if n.endswith(".safetensors") and "/" in n]
        own = [n for n in stored if any(mark in n for mark in marks)]
        folders = {name.rpartition("/")[0] for name in own}
        kept = [n for n in weights if n.rpartition("/")[0] not in folders]
        weights = [*kept, *own]
    if not weights:
        weights = [name for name in names if Path(name).suffix in PICKLES]
    return sorted({*weights, *(name for name in names if Path(name).suffix in _SMALL)})


def _cached(source: str, problem: str, *, refused: bool = False) -> Download:
    """What the cache holds of it, where the hub does not answer."""
    folder = cached_folder(source)
    if folder is None:
        return Download(source, problem=problem, refused=refused)
    parts: dict[str, int] = {}
    for path in folder.rglob("*"):
        if path.is_file():
            inside = path.relative_to(folder).parts
            part = inside[0] if len(inside) > 1 else ""
            parts[part] = parts.get(part, 0) + path.stat().st_size
    return Download(source, parts, problem=f"{problem}; these are in the cache")
