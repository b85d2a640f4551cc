"""PartiPrompts (P2): prompts for people to look at, by category and challenge.

Read in google-research/parti at 5a657978: PartiPrompts.tsv (Prompt, Category, Challenge, Note;
tabs, no quoting, so that quotation marks belong to prompts), README.md. There is no official
evaluator, no layout and no number of pictures: the layout is ours, a folder for each row with the
row as JSON.
"""

from __future__ import annotations

import csv
import json
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from t2x.benchmarks.layout import (
    Benchmark,
    Facts,
    Item,
    OfficialFolder,
    Sample,
    read_json,
    read_lines,
    read_text,
)
from t2x.errors import T2XError

FILE = "PartiPrompts.tsv"
COLUMNS = ("Prompt", "Category", "Challenge", "Note")

__all__ = ["BENCHMARK", "COLUMNS"]

FACTS = Facts(
    title="PartiPrompts (P2)",
    repository="google-research/parti",
    commit="5a657978134374ce28973948331b319adef164bd",
    licence="Apache-2.0",
    read_in=("README.md", FILE),
    prompts=1632,
    samples=None,
    layout="ours: NNNNN/MM.png and NNNNN/prompt.json, NNNNN the row from 0",
    seeds="nothing official; here seed + 100 n + i for picture i of prompt n",
    evaluator="none: people compare pictures",
    unverified="how many pictures of each prompt the paper showed",
)


def _read(path: Path) -> list[Item]:
    file = path / FILE if path.is_dir() else path
    if not file.is_file():
        raise T2XError(f"there is no {FILE} at {str(path)!r}; give the official file")
    lines = read_lines(file)
    try:
        rows = list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    except csv.Error as error:
        raise T2XError(f"cannot read {str(file)!r}: {error}; give the official {FILE}") from error
    if not rows or not set(COLUMNS[:3]) <= set(rows[0]):
        raise T2XError(
            f"{str(file)!r} has no rows under the columns {', '.join(COLUMNS)} with tabs between; "
            f"give the official {FILE}"
        )
    items = []
    for position, row in enumerate(rows):
        prompt = (row["Prompt"] or "").strip()
        if not prompt:
            raise T2XError(f"row {position + 1} of {str(file)!r} has no prompt")
        tags = tuple(f"{name}: {row[name]}" for name in ("Category", "Challenge") if row[name])
        record = {name: row.get(name) for name in COLUMNS}
        text = json.dumps(record, ensure_ascii=False)
        items.append(Item(position, f"{position:05d}", prompt, tags, metadata=text))
    return items


def _files(item: Item, samples: int) -> list[str]:
    return [f"{item.key}/{i:02d}.png" for i in range(samples)]


def _write(folder: OfficialFolder, item: Item, samples: Sequence[Sample]) -> None:
    folder.put_text(f"{item.key}/prompt.json", item.metadata)
    for relative, sample in zip(_files(item, len(samples)), samples, strict=True):
        folder.put_png(relative, item, sample)


def _find(folder: Path, items: Sequence[Item], samples: Mapping[str, int]) -> Mapping[str, int]:
    found: Counter[str] = Counter()
    for file in folder.glob("*/prompt.json"):
        prompt = read_json(read_text(file), str(file))["Prompt"]
        found[prompt] += sum(1 for _ in file.parent.glob("*.png"))
    return found


def _commands(folder: Path, prompts: Path, items: Sequence[Item], samples: int) -> list[str]:
    return [
        f"t2x score {shlex.quote(str(folder))}  # no official evaluator: people compare pictures"
    ]


BENCHMARK = Benchmark(
    name="parti",
    modality="image",
    facts=FACTS,
    read=_read,
    files=_files,
    write=_write,
    find=_find,
    seen_as=lambda item: item.prompt,
    commands=_commands,
    most_samples=100,
)
