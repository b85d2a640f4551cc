"""What a benchmark is here: facts, prompts, where its pictures go and what its evaluator finds."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2x.errors import T2XError

if TYPE_CHECKING:
    from torch import Tensor

    from t2x.types import Modality

NAME_BYTES = 255  # of a file, on the file systems in use
SEEDS = 100  # seeds that belong to each prompt, where prompts don't share theirs

__all__ = [
    "NAME_BYTES",
    "SEEDS",
    "Benchmark",
    "Facts",
    "Item",
    "OfficialFolder",
    "Sample",
    "check_file_name",
    "problems",
    "read_json",
    "read_lines",
    "read_text",
]


@dataclass(frozen=True)
class Facts:
    """What is known of a benchmark, and where it was read.

    ``prompts``: how many the official set has. ``samples``: pictures or videos of each prompt;
    None where nothing official says so. ``seeds``: the official rule and ours. ``unverified``: what
    could not be read anywhere.
    """

    title: str
    repository: str
    commit: str
    licence: str
    read_in: tuple[str, ...]
    prompts: int
    samples: int | None
    layout: str
    seeds: str
    evaluator: str
    unverified: str = ""


@dataclass(frozen=True)
class Item:
    """One prompt of a benchmark.

    ``position``: its place in the official set, from 0. ``key`` names it. ``categories`` are the
    benchmark's own, none or several. ``group``: the folder below the arm's, where there are
    several. ``metadata``: JSON text that goes beside the pictures as it is. ``samples``: how many
    pictures, where the prompt has a number of its own.
    """

    position: int
    key: str
    prompt: str
    categories: tuple[str, ...] = ()
    group: str = ""
    metadata: str = ""
    samples: int | None = None


@dataclass(frozen=True)
class Sample:
    """Picture number ``index`` of a prompt, (3, H, W) or (F, 3, H, W) in [0, 1], with the seed and
    the text that it was drawn from."""

    index: int
    seed: int
    text: str
    media: Tensor


@dataclass(frozen=True)
class OfficialFolder:
    """The folder of one arm. Files are made in ``parts``, on the same file system, and moved to
    their place when they are whole: official evaluators list folders and take what they find.

    ``fps``: frames a second of videos.
    """

    root: Path
    parts: Path
    fps: int = 8

    def put(self, relative: str, write: Callable[[Path], None]) -> None:
        """Let ``write`` make a file, unless it is there."""
        target = self.root / relative
        if target.exists():
            return
        part = self.parts / f"{os.getpid()}{target.suffix}"
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            write(part)
            part.replace(target)
        except OSError as error:
            raise T2XError(f"cannot write {str(target)!r}: {error}") from error
        finally:
            part.unlink(missing_ok=True)

    def put_text(self, relative: str, text: str) -> None:
        """Write a text file as UTF-8, unless it is there."""

        def write(path: Path) -> None:
            path.write_text(text, encoding="utf-8")

        self.put(relative, write)

    def put_png(self, relative: str, item: Item, sample: Sample) -> None:
        """Write a picture that holds the user's own prompt, what was drawn, and the seed."""
        from t2x.media import save_png

        text = {"prompt": item.prompt, "text": sample.text, "seed": str(sample.seed)}
        self.put(relative, lambda path: save_png(sample.media, path, text=text))


@dataclass(frozen=True)
class Benchmark:
    """One benchmark: pure functions around its official layout.

    Attributes:
        name: as the command takes it.
        modality: "image" or "video".
        facts: the record of what is known.
        read: prompts of the official file or folder; T2XError says what is wrong with it.
        files: file of each sample of a prompt, relative to the arm's folder, ``samples`` of them
            (they may be one and the same).
        write: puts the files of one prompt, all its samples at once and those of ``files`` last;
            what is there stays.
        find: how many pictures the official evaluator finds for each prompt of ``items`` in an
            arm's folder, by ``seen_as``; it is told how many there are to be, by key.
        seen_as: what a prompt is to the official evaluator.
        commands: the official evaluation of one arm, as lines for a shell.
        most_samples: the most pictures of a prompt that the layout has room for.
        same_seeds: whether every prompt is drawn from the same seeds, as the official script does.
        compressed: whether files lose something of the pixels that were drawn.
    """

    name: str
    modality: Modality
    facts: Facts
    read: Callable[[Path], list[Item]]
    files: Callable[[Item, int], list[str]]
    write: Callable[[OfficialFolder, Item, Sequence[Sample]], None]
    find: Callable[[Path, Sequence[Item], Mapping[str, int]], Mapping[str, int]]
    seen_as: Callable[[Item], str]
    commands: Callable[[Path, Path, Sequence[Item], int], list[str]]
    most_samples: int | None = None
    same_seeds: bool = False
    compressed: bool = False

    def samples_of(self, item: Item, given: int | None) -> int:
        """How many pictures a prompt gets: ``given``, else its own number, else the official."""
        return given or item.samples or self.facts.samples or 1

    def seeds_of(self, item: Item, samples: int, seed: int) -> list[int]:
        """Seeds of a prompt's pictures, the same in every arm."""
        first = seed + (0 if self.same_seeds else SEEDS * item.position)
        return [first + i for i in range(samples)]


def problems(
    benchmark: Benchmark, folder: Path, items: Sequence[Item], samples: Mapping[str, int]
) -> list[str]:
    """What the official evaluator would miss in an arm's folder, a line each; none if all is well.

    ``samples``: pictures that each prompt was given, by key.
    """
    found = benchmark.find(folder, items, samples)
    wanted: Counter[str] = Counter()
    for item in items:
        wanted[benchmark.seen_as(item)] += samples[item.key]
    return [
        f"the official evaluator finds {found.get(name, 0)} of {count} pictures of {name!r}"
        for name, count in wanted.items()
        if found.get(name, 0) != count
    ]


def read_text(path: Path) -> str:
    """Read UTF-8 with any line ends, or raise T2XError."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise T2XError(f"cannot read the prompts in {str(path)!r}: {error}") from error


def read_lines(path: Path) -> list[str]:
    """Its lines as an editor shows them: U+2028 and other signs that end lines elsewhere are part
    of a prompt. Raises T2XError."""
    return read_text(path).removesuffix("\n").split("\n")


def read_json(text: str, where: str) -> Any:
    """Read JSON, or raise T2XError that says ``where`` it was."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise T2XError(f"{where} is no valid JSON: {error}; give the official file") from error


def check_file_name(name: str, prompt: str, *, without: str = "/\0") -> None:
    """Refuse a prompt that can't be in the file's name, where the official evaluator reads it:
    one with a character of ``without``, or too long."""
    if wrong := [sign for sign in without if sign in prompt]:
        raise T2XError(
            f"the official evaluator reads the prompt from the file's name, which can't hold "
            f"{wrong[0]!r}: {prompt!r}; give the official prompts"
        )
    if len(name.encode("utf-8")) > NAME_BYTES:
        raise T2XError(
            f"the official evaluator reads the prompt from the file's name, and {name!r} has more "
            f"than {NAME_BYTES} bytes; give the official prompts"
        )
