"""DPG-Bench: long, dense prompts, checked by questions to a VQA model.

Read in TencentQQGYLab/ELLA at 3c228f1d: README.md (4 pictures of each prompt in one file as a 2x2
grid; the file is named as the prompt's file), dpg_bench/prompts/ (1,065 text files, one prompt
each), dpg_bench/compute_dpg_bench.py and dist_eval.sh.

The evaluator takes the name up to its first dot as the prompt's id and cuts squares of --resolution
pixels out of the grid: left above, right above, left below, right below, the first --pic-num of
them. So a picture must be a square of just that side; of others it would cut the wrong pieces and
say nothing. It tries every file of the folder, and one that it can't score it skips, which raises
the mean.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from t2x.benchmarks.layout import Benchmark, Facts, Item, OfficialFolder, Sample, read_text
from t2x.errors import T2XError

_SOURCE = re.compile(r"[^\W\d_]+")

__all__ = ["BENCHMARK"]

FACTS = Facts(
    title="DPG-Bench",
    repository="TencentQQGYLab/ELLA",
    commit="3c228f1dc6c4d3cad0a47493816151a419f14db3",
    licence="Apache-2.0",
    read_in=("README.md", "dpg_bench/compute_dpg_bench.py", "dpg_bench/dist_eval.sh"),
    prompts=1065,
    samples=4,
    layout="NAME.png for NAME.txt: 2x2 pictures in one file, rows first",
    seeds="nothing official; here seed + 100 n + i for picture i of prompt n",
    evaluator="dpg_bench/compute_dpg_bench.py (mPLUG by modelscope)",
    unverified="dpg_bench.csv (the questions) was not read. Categories here are where a prompt is "
    "from, by the letters of its file's name: DPG's own are those of its questions",
)


def _read(path: Path) -> list[Item]:
    folder = path / "dpg_bench" if (path / "dpg_bench").is_dir() else path
    folder = folder / "prompts" if (folder / "prompts").is_dir() else folder
    files = sorted(folder.glob("*.txt")) if folder.is_dir() else []
    if not files:
        raise T2XError(
            f"there is no folder of .txt files at {str(path)!r}; give the official "
            "dpg_bench/prompts"
        )
    items = []
    for position, file in enumerate(files):
        prompt = read_text(file).strip()
        if not prompt:
            raise T2XError(f"{str(file)!r} holds no prompt; give the official dpg_bench/prompts")
        if "." in file.stem:
            raise T2XError(
                f"{str(file)!r}: the evaluator reads names up to the first dot; give the official "
                "dpg_bench/prompts"
            )
        source = _SOURCE.match(file.stem)
        items.append(Item(position, file.stem, prompt, (source[0] if source else "numbered",)))
    return items


def _files(item: Item, samples: int) -> list[str]:
    return [f"{item.key}.png"] * samples


def _write(folder: OfficialFolder, item: Item, samples: Sequence[Sample]) -> None:
    from t2x.benchmarks.grids import grid

    pictures = [sample.media for sample in samples]
    if {picture.shape[-2:] for picture in pictures} != {(pictures[0].shape[-1],) * 2}:
        sizes = sorted({"x".join(map(str, picture.shape[-2:])) for picture in pictures})
        raise T2XError(
            f"DPG's evaluator cuts squares out of a grid, and the pictures are {', '.join(sizes)}; "
            "draw squares with --size, as 1024x1024"
        )
    folder.put(f"{item.key}.png", lambda path: grid(pictures, columns=2).save(path))


def _find(folder: Path, items: Sequence[Item], samples: Mapping[str, int]) -> Mapping[str, int]:
    from PIL import Image

    found: dict[str, int] = {}
    side = _side(folder, items, samples[items[0].key])
    for file in folder.glob("*.png"):  # beside them lie what the evaluator wrote
        key = file.name.partition(".")[0]
        with Image.open(file) as image:
            size = image.size
        crops = _crops(side)[: samples.get(key, 0)]
        found[key] = sum(right <= size[0] and low <= size[1] for _, _, right, low in crops)
    return found


def _crops(side: int) -> list[tuple[int, int, int, int]]:
    """The pieces that the evaluator cuts out, as left, top, right, bottom."""
    places = [(x, y) for y in (0, side) for x in (0, side)]
    return [(x, y, x + side, y + side) for x, y in places]


def _side(folder: Path, items: Sequence[Item], samples: int) -> int:
    """Side in pixels of one picture, from the first grid."""
    from PIL import Image

    with Image.open(folder / f"{items[0].key}.png") as image:
        return image.width // min(samples, 2)


def _commands(folder: Path, prompts: Path, items: Sequence[Item], samples: int) -> list[str]:
    side = _side(folder, items, samples)
    arm = shlex.quote(str(folder))
    return [f"PIC_NUM={samples} bash dpg_bench/dist_eval.sh {arm} {side}"]


BENCHMARK = Benchmark(
    name="dpg",
    modality="image",
    facts=FACTS,
    read=_read,
    files=_files,
    write=_write,
    find=_find,
    seen_as=lambda item: item.key,
    commands=_commands,
    most_samples=4,
)
