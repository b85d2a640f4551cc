"""T2I-CompBench and T2I-CompBench++: attributes, relations, numbers and complex prompts.

Read in Karine-Huang/T2I-CompBench at 1b709499: Readme.md (layout, commands), examples/dataset/
(CATEGORY_val.txt, 300 lines each, a prompt per line, CRLF in some),
GORS_finetune/inference_eval.py (10 pictures of each prompt, running numbers of six digits, seed
42 + n for picture n of every prompt), BLIPvqa_eval/BLIP_vqa.py, CLIPScore_eval/CLIP_similarity.py,
2D_spatial_eval.py, 3D_spatial_eval.py and numeracy_eval.py in UniDet_eval/, 3_in_1_eval/3_in_1.py.

Every evaluator reads the prompt from the file's name, up to its first underscore, and the number
behind it; it lists the whole folder ``samples``, so that nothing else may lie there. Each category
is evaluated alone, so each has a folder. 3_in_1.py has 10 pictures a prompt built in.
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
    check_file_name,
    read_lines,
)
from t2x.errors import T2XError

CATEGORIES = (
    "color",
    "shape",
    "texture",
    "spatial",
    "3d_spatial",
    "numeracy",
    "non_spatial",
    "complex",
)
COMPLEX_SAMPLES = 10  # 3_in_1.py takes so many for each prompt
_NUMBER = re.compile(r"\d+")

__all__ = ["BENCHMARK", "CATEGORIES"]

FACTS = Facts(
    title="T2I-CompBench(++)",
    repository="Karine-Huang/T2I-CompBench",
    commit="1b7094991a57f3c22abdd4f6e8ba6c1a15517073",
    licence="MIT",
    read_in=(
        "Readme.md",
        "GORS_finetune/inference_eval.py",
        "BLIPvqa_eval/BLIP_vqa.py",
        "CLIPScore_eval/CLIP_similarity.py",
        "UniDet_eval/2D_spatial_eval.py",
        "UniDet_eval/3D_spatial_eval.py",
        "UniDet_eval/numeracy_eval.py",
        "3_in_1_eval/3_in_1.py",
    ),
    prompts=2400,
    samples=10,
    layout="CATEGORY/samples/PROMPT_NNNNNN.png, numbers running through a category from 0",
    seeds="official: 42 + i for picture i, the same for every prompt; here seed + i likewise",
    evaluator="BLIPvqa_eval, UniDet_eval, CLIPScore_eval, 3_in_1_eval; the category decides",
    unverified="the readers of MLLM_eval (ShareGPT4V, GPT-4V), beyond that they use the same names",
)


def _read(path: Path) -> list[Item]:
    items: list[Item] = []
    for category, file in _files_of(path).items():
        lines = [line.split("\t")[0].strip() for line in read_lines(file)]
        prompts = [line for line in lines if line]
        if not prompts:
            raise T2XError(f"{str(file)!r} holds no prompt; give the official file")
        for number, prompt in enumerate(prompts):
            check_file_name(f"{prompt}_000000.png", prompt, without="/\0_")
            key = f"{category}/{number}"
            items.append(Item(len(items), key, prompt, (category,), group=category))
    return items


def _files_of(path: Path) -> dict[str, Path]:
    """Files of prompts by category: one, or the validation files of a folder."""
    if path.is_file():
        return {path.stem.removesuffix("_val"): path}
    for folder in (path, path / "examples" / "dataset", path / "dataset"):
        found = {c: folder / f"{c}_val.txt" for c in CATEGORIES}
        found = {category: file for category, file in found.items() if file.is_file()}
        if found:
            return found
    raise T2XError(
        f"there is no CATEGORY_val.txt at {str(path)!r}; give a file of the official "
        f"examples/dataset, or that folder; categories: {', '.join(CATEGORIES)}"
    )


def _files(item: Item, samples: int) -> list[str]:
    first = int(item.key.partition("/")[2]) * samples
    return [f"{item.group}/samples/{item.prompt}_{first + i:06d}.png" for i in range(samples)]


def _write(folder: OfficialFolder, item: Item, samples: Sequence[Sample]) -> None:
    for relative, sample in zip(_files(item, len(samples)), samples, strict=True):
        folder.put_png(relative, item, sample)


def _find(folder: Path, items: Sequence[Item], samples: Mapping[str, int]) -> Mapping[str, int]:
    found: Counter[str] = Counter()
    for group in sorted({item.group for item in items}):
        names = [file.name for file in (folder / group / "samples").iterdir()]
        numbers = [name.split("_")[1].partition(".")[0] for name in names if "_" in name]
        if len(numbers) < len(names) or not all(map(_NUMBER.fullmatch, numbers)):
            continue  # the evaluators sort by that number, and one name without it ends them
        found.update(f"{group}/{name.split('_')[0]}" for name in names)
    return found


def _commands(folder: Path, prompts: Path, items: Sequence[Item], samples: int) -> list[str]:
    lines = []
    for group in dict.fromkeys(item.group for item in items):
        lines += _category_commands(group, shlex.quote(str(folder / group)), prompts, samples)
    return lines


def _category_commands(group: str, folder: str, prompts: Path, samples: int) -> list[str]:
    blip = f"(cd BLIPvqa_eval && python BLIP_vqa.py --out_dir={folder})"
    if group in ("color", "shape", "texture"):
        return [blip]
    if group in ("spatial", "3d_spatial", "numeracy"):
        script = {"spatial": "2D_spatial_eval", "3d_spatial": "3D_spatial_eval"}.get(group)
        script = script or "numeracy_eval"
        return [f"(cd UniDet_eval && python {script}.py --outpath={folder})"]
    if group == "non_spatial":
        return [f"python CLIPScore_eval/CLIP_similarity.py --outpath={folder}"]
    if group != "complex":
        return [f"# {group} is none of the categories; choose among the evaluators for {folder}"]
    data = shlex.quote(str(_files_of(prompts)[group].parent))
    lines = [
        blip,
        f"(cd UniDet_eval && python 2D_spatial_eval.py --outpath={folder} --complex=True)",
        f"python CLIPScore_eval/CLIP_similarity.py --outpath={folder} --complex=True",
        f"(cd 3_in_1_eval && python 3_in_1.py --outpath={folder} --data_path={data})",
    ]
    if samples != COMPLEX_SAMPLES:
        lines.append(
            f"# 3_in_1.py takes {COMPLEX_SAMPLES} pictures a prompt, and there are {samples}"
        )
    return lines


BENCHMARK = Benchmark(
    name="t2i-compbench",
    modality="image",
    facts=FACTS,
    read=_read,
    files=_files,
    write=_write,
    find=_find,
    seen_as=lambda item: f"{item.group}/{item.prompt}",
    commands=_commands,
    same_seeds=True,
)
