"""VBench: text to video in 16 dimensions.

Read in Vchitect/VBench at 45e79ec1: prompts/README.md (naming, 5 videos of each prompt and 25 for
temporal_flickering, seeds, ``write_video(..., fps=8)``), prompts/all_dimension.txt (946 lines, 944
different), prompts/prompts_per_dimension/, vbench/VBench_full_info.json, vbench/__init__.py,
vbench/utils.py, evaluate.py, static_filter.py, dimension_to_folder.json, integrity_check/README.md,
prompts/augmented_prompts/gpt_enhanced_prompts/README.md (videos of rewritten prompts are named by
the original one; of temporal_flickering it draws 40, here both arms get the same 25).

The evaluator takes the ending of the *first file that the system lists* for that of all videos, and
looks for PROMPT-0 to PROMPT-4 with it, so that a folder may hold nothing but videos. Prompts that
are there twice share their videos. For temporal_flickering a filter first keeps those of all videos
that don't move, up to five of each prompt.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from t2x.benchmarks.layout import (
    Benchmark,
    Facts,
    Item,
    OfficialFolder,
    Sample,
    check_file_name,
    read_json,
    read_lines,
    read_text,
)
from t2x.errors import T2XError

DIMENSIONS = (
    "subject_consistency",
    "background_consistency",
    "temporal_flickering",
    "motion_smoothness",
    "dynamic_degree",
    "aesthetic_quality",
    "imaging_quality",
    "object_class",
    "multiple_objects",
    "human_action",
    "color",
    "spatial_relationship",
    "scene",
    "temporal_style",
    "appearance_style",
    "overall_consistency",
)
# Which dimensions are measured on the videos of which file of prompts.
SUITES = {
    "subject_consistency": ("subject_consistency", "motion_smoothness", "dynamic_degree"),
    "scene": ("scene", "background_consistency"),
    "overall_consistency": ("overall_consistency", "aesthetic_quality", "imaging_quality"),
}
FLICKERING, FLICKERING_SAMPLES = "temporal_flickering", 25
READ = 5  # videos of each prompt that the evaluator looks for

__all__ = ["BENCHMARK", "DIMENSIONS"]

FACTS = Facts(
    title="VBench",
    repository="Vchitect/VBench",
    commit="45e79ec14e69a2187202c675d2dbce1a71843d53",
    licence="Apache-2.0",
    read_in=(
        "prompts/README.md",
        "prompts/augmented_prompts/gpt_enhanced_prompts/README.md",
        "vbench/__init__.py",
        "vbench/utils.py",
        "vbench/VBench_full_info.json",
        "evaluate.py",
        "static_filter.py",
        "integrity_check/README.md",
    ),
    prompts=944,
    samples=READ,
    layout="PROMPT-I.mp4, I from 0, in one folder; PROMPT is the original also for rewrites",
    seeds="official: another seed for every video, recorded; here seed + 100 n + i for video i of "
    "prompt n",
    evaluator="evaluate.py --videos_path ... --dimension ..., after static_filter.py for "
    "temporal_flickering",
    unverified="a frame count or size: the table of sampled videos shows each model's own",
)


def _read(path: Path) -> list[Item]:
    found: dict[str, list[str]] = {}
    for prompt, dimensions in _rows(path):
        known = found.setdefault(prompt, [])
        known += [name for name in dimensions if name not in known]
    items = []
    for position, (prompt, names) in enumerate(found.items()):
        check_file_name(f"{prompt}-00.mp4", prompt)
        number = FLICKERING_SAMPLES if FLICKERING in names else None
        items.append(Item(position, f"{position:05d}", prompt, tuple(names), samples=number))
    return items


def _rows(path: Path) -> Iterable[tuple[str, Sequence[str]]]:
    """Prompts with the dimensions that they are for, as far as the file says so."""
    if path.suffix == ".json" and path.is_file():
        return _info_rows(path)
    files = [path] if path.is_file() else []
    if path.is_dir():
        for file in (path / "vbench" / "VBench_full_info.json", path / "VBench_full_info.json"):
            if file.is_file():
                return _info_rows(file)
        folder = path / "prompts_per_dimension"
        files = sorted((folder if folder.is_dir() else path).glob("*.txt"))
    rows = [(p, _suite(file)) for file in files for p in map(str.strip, read_lines(file))]
    rows = [(prompt, names) for prompt, names in rows if prompt]
    if not rows:
        raise T2XError(
            f"there are no prompts at {str(path)!r}; give the official VBench_full_info.json, "
            "prompts/prompts_per_dimension, or a file of prompts with one per line"
        )
    return rows


def _suite(file: Path) -> tuple[str, ...]:
    """Dimensions of a file of prompts by its name; none of the combined file's."""
    if file.stem not in DIMENSIONS:
        return ()
    return SUITES.get(file.stem, (file.stem,))


def _info_rows(file: Path) -> list[tuple[str, Sequence[str]]]:
    rows: Any = read_json(read_text(file), str(file))
    try:
        found = [
            (str(row["prompt_en"]).strip(), [str(n) for n in row["dimension"]]) for row in rows
        ]
    except (TypeError, KeyError) as error:
        raise T2XError(
            f"{str(file)!r} is no list of objects with 'prompt_en' and 'dimension'; give the "
            "official VBench_full_info.json"
        ) from error
    return [(prompt, names) for prompt, names in found if prompt]


def _files(item: Item, samples: int) -> list[str]:
    return [f"{item.prompt}-{i}.mp4" for i in range(samples)]


def _write(folder: OfficialFolder, item: Item, samples: Sequence[Sample]) -> None:
    for relative, sample in zip(_files(item, len(samples)), samples, strict=True):
        _write_video(folder, relative, sample)


def _write_video(folder: OfficialFolder, relative: str, sample: Sample) -> None:
    from t2x.media import save_video

    folder.put(relative, lambda path: save_video(sample.media, path, fps=folder.fps))


def _find(folder: Path, items: Sequence[Item], samples: Mapping[str, int]) -> Mapping[str, int]:
    names = os.listdir(folder)
    ending = Path(names[0]).suffix if names else ""
    there = set(names)
    return {
        item.prompt: sum(
            f"{item.prompt}-{i}{ending}" in there for i in range(samples.get(item.key, READ))
        )
        for item in items
    }


def _commands(folder: Path, prompts: Path, items: Sequence[Item], samples: int) -> list[str]:
    arm = shlex.quote(str(folder))
    named = {name for item in items for name in item.categories}
    wanted = [name for name in DIMENSIONS if name in named or not named]
    lines = []
    if FLICKERING in wanted:
        wanted.remove(FLICKERING)
        kept = shlex.quote(str(folder.with_name(f"{folder.name}-static")))
        lines = [
            f"python static_filter.py --videos_path {arm} --result_path {kept}",
            f"python evaluate.py --videos_path {kept}/filtered_videos --dimension {FLICKERING}",
        ]
    if wanted:
        lines.insert(0, f"python evaluate.py --videos_path {arm} --dimension {' '.join(wanted)}")
    return lines


BENCHMARK = Benchmark(
    name="vbench",
    modality="video",
    facts=FACTS,
    read=_read,
    files=_files,
    write=_write,
    find=_find,
    seen_as=lambda item: item.prompt,
    commands=_commands,
    most_samples=100,
    compressed=True,
)
