"""GenAI-Bench (images): compositional prompts with skill tags, checked by VQAScore.

Read in linzhiqiu/t2v_metrics at 6ecb74f9: genai_bench/generate.py (one picture of each prompt,
saved by PIL as JPEG at its default quality, one stream from seed 42), genai_bench/evaluate.py,
dataset.py (GenAIBench_Image), README.md, V_3.0_README.md. The form of genai_image.json (an object
by prompt id of five digits, with "prompt") and genai_skills.json (lists of numbers by skill) was
read in a copy, BoatHermit/T2I-RL-Eval at 0afae46f: the benchmark's own are on a model hub.

The evaluator walks the ids of its own genai_image.json, asks for OUTPUT_DIR/GEN_MODEL/ID.jpeg and
stops where one is missing. So an arm is a GEN_MODEL. It reads prompts from its own file.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from t2x.benchmarks.layout import (
    Benchmark,
    Facts,
    Item,
    OfficialFolder,
    Sample,
    read_json,
    read_text,
)
from t2x.errors import T2XError

PROMPTS, SKILLS = "genai_image.json", "genai_skills.json"
_NUMBER = re.compile(r"[0-9]{1,18}")  # names a file
WHOLE = (527, 1600)  # sizes that the evaluator knows

__all__ = ["BENCHMARK", "PROMPTS", "SKILLS"]

FACTS = Facts(
    title="GenAI-Bench (images)",
    repository="linzhiqiu/t2v_metrics",
    commit="6ecb74f92028f42c7e64546d3a71e98c8c73068f",
    licence="Apache-2.0",
    read_in=(
        "README.md",
        "V_3.0_README.md",
        "genai_bench/generate.py",
        "genai_bench/evaluate.py",
        "dataset.py",
    ),
    prompts=1600,
    samples=1,
    layout="ID.jpeg in a folder named as the model, ID as in genai_image.json",
    seeds="official: one stream from seed 42 through all prompts; here seed + 100 n of prompt n",
    evaluator="genai_bench/evaluate.py (VQAScore; the paper's CLIP-FlanT5 needs t2v-metrics 3.0)",
    unverified="the benchmark's own genai_image.json and genai_skills.json, which are on a hub; a "
    "copy was read. The set of 527 prompts is taken to have the same form",
)


def _read(path: Path) -> list[Item]:
    file = path / PROMPTS if path.is_dir() else path
    if not file.is_file():
        raise T2XError(f"there is no {PROMPTS} at {str(path)!r}; give the official file")
    rows = read_json(read_text(file), str(file))
    if not isinstance(rows, dict) or not rows:
        raise T2XError(f"{str(file)!r} is no JSON object by prompt id; give the official {PROMPTS}")
    skills = _skills(file.with_name(SKILLS))
    items = []
    for position, (key, row) in enumerate(rows.items()):
        prompt = row.get("prompt") if isinstance(row, dict) else None
        if not isinstance(prompt, str) or not prompt.strip() or not _NUMBER.fullmatch(key):
            raise T2XError(
                f"{key!r} in {str(file)!r} is no number with a text under 'prompt'; give the "
                f"official {PROMPTS}"
            )
        items.append(Item(position, key, prompt, skills.get(int(key), ())))
    return items


def _skills(file: Path) -> dict[int, tuple[str, ...]]:
    """Skills by the number of the prompt; none where the file is not beside the prompts."""
    if not file.is_file():
        return {}
    found: dict[int, tuple[str, ...]] = {}
    value: Any = read_json(read_text(file), str(file))
    try:
        for skill, numbers in value.items():
            for number in numbers:
                found[int(number)] = (*found.get(int(number), ()), str(skill))
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        raise T2XError(
            f"{str(file)!r} is no object with a list of prompt numbers by skill; give the official "
            f"{SKILLS}, or take it away"
        ) from error
    return found


def _files(item: Item, samples: int) -> list[str]:
    return [f"{item.key}.jpeg"]


def _write(folder: OfficialFolder, item: Item, samples: Sequence[Sample]) -> None:
    from t2x.media import to_pil

    picture = to_pil(samples[0].media.unsqueeze(0))[0]
    folder.put(f"{item.key}.jpeg", lambda path: picture.save(path, format="JPEG"))


def _find(folder: Path, items: Sequence[Item], samples: Mapping[str, int]) -> Mapping[str, int]:
    return {item.key: int((folder / f"{item.key}.jpeg").is_file()) for item in items}


def _commands(folder: Path, prompts: Path, items: Sequence[Item], samples: int) -> list[str]:
    number = len(items)
    line = (
        f"python -m genai_bench.evaluate --model clip-flant5-xxl --num_prompts {number} "
        f"--output_dir {shlex.quote(str(folder.parent))} --gen_model {shlex.quote(folder.name)}"
    )
    if number in WHOLE:
        return [line]
    whole = " or ".join(map(str, WHOLE))
    return [f"# the evaluator takes {whole} prompts and stops where a picture is missing", line]


BENCHMARK = Benchmark(
    name="genai-bench",
    modality="image",
    facts=FACTS,
    read=_read,
    files=_files,
    write=_write,
    find=_find,
    seen_as=lambda item: item.key,
    commands=_commands,
    most_samples=1,
    compressed=True,
)
