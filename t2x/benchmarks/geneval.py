"""GenEval: objects, counts, colours and positions, checked by a detector.

Read in djghosh13/geneval at af4902f2: README.md (layout, commands), evaluation_metadata.jsonl in
prompts/ (one JSON object per line), generation/diffusers_generate.py (4 pictures, seed 42 set anew
for every prompt, five digits in the names of folders and pictures; README says four),
evaluate_images.py and summary_scores.py in evaluation/.

The evaluator takes every subfolder whose name is digits, reads ``metadata.jsonl`` as one JSON
object, and takes every file in ``samples`` whose name *begins* as digits and ``.png``, whatever
follows; so nothing unfinished may lie there. It reads the prompt from the metadata alone. Its
overall score is the mean of the six task means.
"""

from __future__ import annotations

import re
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

METADATA = "evaluation_metadata.jsonl"
_SAMPLE = re.compile(r"\d+\.png")
_FIELDS = ("prompt", "tag")

__all__ = ["BENCHMARK", "METADATA"]

FACTS = Facts(
    title="GenEval",
    repository="djghosh13/geneval",
    commit="af4902f24d3ca90ebbb446dd9891a59e0f82725f",
    licence="MIT",
    read_in=(
        "README.md",
        "generation/diffusers_generate.py",
        "evaluation/evaluate_images.py",
        "evaluation/summary_scores.py",
        "prompts/evaluation_metadata.jsonl",
    ),
    prompts=553,
    samples=4,
    layout="NNNNN/metadata.jsonl, NNNNN/samples/NNNNN.png, NNNNN/grid.png (optional)",
    seeds="official: seed 42 set anew for every prompt, one stream for its pictures; here seed + i "
    "for picture i, the same for every prompt",
    evaluator="evaluation/evaluate_images.py (Mask2Former, CLIP; CUDA), then summary_scores.py",
)


def _read(path: Path) -> list[Item]:
    file = _metadata_file(path)
    items: list[Item] = []
    for number, line in enumerate(read_lines(file), 1):
        if not line.strip():
            continue
        value = read_json(line, f"{file}:{number}")
        prompt, tag = (value.get(name) if isinstance(value, dict) else None for name in _FIELDS)
        if not isinstance(prompt, str) or not prompt.strip() or not isinstance(tag, str):
            raise T2XError(
                f"{file}:{number} has no texts under 'prompt' and 'tag', which the evaluator reads;"
                f" give the official {METADATA}"
            )
        position = len(items)
        key = f"{position:05d}"
        items.append(Item(position, key, prompt, (tag,), metadata=line.strip()))
    if not items:
        raise T2XError(f"{str(file)!r} holds no prompt; give the official {METADATA}")
    return items


def _metadata_file(path: Path) -> Path:
    for file in (path, path / METADATA, path / "prompts" / METADATA):
        if file.is_file():
            if file.suffix == ".txt":
                raise T2XError(
                    f"{str(file)!r} has prompts alone, and the evaluator needs {METADATA}, which "
                    "lies beside it; give that"
                )
            return file
    raise T2XError(f"there is no {METADATA} at {str(path)!r}; give the official file")


def _files(item: Item, samples: int) -> list[str]:
    return [f"{item.key}/samples/{i:05d}.png" for i in range(samples)]


def _write(folder: OfficialFolder, item: Item, samples: Sequence[Sample]) -> None:
    from t2x.benchmarks.grids import grid, same_size

    folder.put_text(f"{item.key}/metadata.jsonl", item.metadata)
    pictures = [sample.media for sample in samples]
    if same_size(pictures):  # it is optional, and nothing reads it
        folder.put(f"{item.key}/grid.png", lambda path: grid(pictures, columns=2).save(path))
    for relative, sample in zip(_files(item, len(samples)), samples, strict=True):
        folder.put_png(relative, item, sample)


def _find(folder: Path, items: Sequence[Item], samples: Mapping[str, int]) -> Mapping[str, int]:
    found: Counter[str] = Counter()
    for sub in folder.iterdir():
        if not sub.is_dir() or not sub.name.isdigit():
            continue
        prompt = read_json(read_text(sub / "metadata.jsonl"), str(sub / "metadata.jsonl"))["prompt"]
        names = (file.name for file in (sub / "samples").iterdir() if file.is_file())
        found[prompt] += sum(1 for name in names if _SAMPLE.match(name))
    return found


def _commands(folder: Path, prompts: Path, items: Sequence[Item], samples: int) -> list[str]:
    arm, results = (shlex.quote(str(p)) for p in (folder, folder.with_name(f"{folder.name}.jsonl")))
    return [
        f"python evaluation/evaluate_images.py {arm} --outfile {results} "
        "--model-path OBJECT_DETECTOR_FOLDER",
        f"python evaluation/summary_scores.py {results}",
    ]


BENCHMARK = Benchmark(
    name="geneval",
    modality="image",
    facts=FACTS,
    read=_read,
    files=_files,
    write=_write,
    find=_find,
    seen_as=lambda item: item.prompt,
    commands=_commands,
    same_seeds=True,
)
