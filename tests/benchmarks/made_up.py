"""Files in the form of the official ones, with lines that no benchmark has, and what the official
evaluators read of a folder, told in our own words from their sources.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from t2x.testing import FakeGenerator
from t2x.types import Media

GENEVAL = [
    {
        "tag": "single_object",
        "include": [{"class": "kite", "count": 1}],
        "prompt": "one striped kite",
    },
    {
        "tag": "counting",
        "include": [{"class": "boat", "count": 3}],
        "exclude": [{"class": "boat", "count": 4}],
        "prompt": "three paper boats, “folded”",
    },
    {
        "tag": "position",
        "include": [{"class": "cup", "count": 1}, {"class": "pear", "position": ["above", 0]}],
        "prompt": "a pear floating over a tin cup",
    },
]
COMPBENCH = {
    "color": ["a mauve kettle and a teal broom", "An ochre glove beside a pink bell."],
    "complex": ["The dented tin robot waters a tall purple fern."],
}
DPG = {
    "7": "A long and made-up description of a kite shop, with tin stars.\nAnd its owner.",
    "COCOval2014000000999999": "Another made-up description.",
    "vrd3": "A third one.",
}
PARTI = [
    ("a kite made of maps", "Artifacts", "Imagination", "n/a"),
    ('"HELLO" on a tin sign, and a "quoted" word', "Artifacts", "Writing & Symbols", ""),
    ("seven pears", "Produce & Plants", "Quantity", "a note"),
]
GENAI = ["a mapmaker folding a kite", "more pears than cups, and no spoon", "a plain tin cup"]
SKILLS = {"basic": [0, 2], "advanced": [1], "comparison": [1], "scene": [0]}
VBENCH = [
    {"prompt_en": "a kite, seen from a moored boat", "dimension": ["temporal_flickering"]},
    {
        "prompt_en": "A tin robot waters a fern. close-up",
        "dimension": ["appearance_style"],
        "auxiliary_info": {"appearance_style": {"appearance_style": "close-up"}},
    },
    {"prompt_en": "a pear rolling", "dimension": ["subject_consistency", "dynamic_degree"]},
    {
        "prompt_en": "A tin robot waters a fern. close-up",
        "dimension": ["overall_consistency", "aesthetic_quality"],
    },
]


def write_all(folder: Path) -> dict[str, Path]:
    """Write every file under ``folder``; give what --prompts takes, by benchmark."""
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in GENEVAL)
    (folder / "evaluation_metadata.jsonl").write_text(lines, "utf-8")
    dataset = folder / "dataset"
    dataset.mkdir()
    for category, prompts in COMPBENCH.items():
        (dataset / f"{category}_val.txt").write_bytes("\r\n".join(prompts).encode())
    (folder / "prompts").mkdir()
    for name, prompt in DPG.items():
        (folder / "prompts" / f"{name}.txt").write_text(prompt, "utf-8")
    rows = [("Prompt", "Category", "Challenge", "Note"), *PARTI]
    tsv = "".join("\t".join(row) + "\n" for row in rows)
    (folder / "PartiPrompts.tsv").write_text(tsv, "utf-8")
    genai = {f"{i:05d}": {"id": f"{i:05d}", "prompt": p, "models": {}} for i, p in enumerate(GENAI)}
    (folder / "genai_image.json").write_text(json.dumps(genai), "utf-8")
    (folder / "genai_skills.json").write_text(json.dumps(SKILLS), "utf-8")
    (folder / "VBench_full_info.json").write_text(json.dumps(VBENCH), "utf-8")
    return {
        "geneval": folder / "evaluation_metadata.jsonl",
        "t2i-compbench": dataset,
        "dpg": folder / "prompts",
        "parti": folder / "PartiPrompts.tsv",
        "genai-bench": folder / "genai_image.json",
        "vbench": folder / "VBench_full_info.json",
    }


class CountingGenerator(FakeGenerator):
    """Plain colours two at a time; counts what it draws, and breaks after ``most`` pictures."""

    batch_size = 2

    def __init__(self, most: int | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.most = most
        self.drawn: list[tuple[str, int]] = []

    def generate(self, prompts: Sequence[str], *, seeds: Sequence[int], **options: Any) -> Media:
        if self.most is not None and len(self.drawn) + len(prompts) > self.most:
            raise RuntimeError("the power went out")
        self.drawn += zip(prompts, seeds, strict=True)
        return super().generate(prompts, seeds=seeds, **options)


def colour(text: str, seed: int) -> tuple[int, ...]:
    """The colour that the generator draws for a text and a seed, in bytes."""
    picture: Any = FakeGenerator().generate([text], seeds=[seed])
    return tuple(int(v) for v in picture[0, :, 0, 0].mul(255).round())


def read_geneval(folder: Path) -> list[tuple[dict[str, Any], Path]]:
    """Metadata and picture, as evaluate_images.py pairs them."""
    found = []
    for name in os.listdir(folder):
        if not (folder / name).is_dir() or not name.isdigit():
            continue
        with (folder / name / "metadata.jsonl").open(encoding="utf-8") as file:
            metadata = json.load(file)
        for picture in os.listdir(folder / name / "samples"):
            path = folder / name / "samples" / picture
            if path.is_file() and re.match(r"\d+\.png", picture):
                found.append((metadata, path))
    return sorted(found, key=lambda pair: pair[1])


def read_compbench(folder: Path) -> list[tuple[str, Path]]:
    """Prompt and picture in the order of the question ids, as BLIP_vqa.py, UniDet_eval/ and
    numeracy_eval.py read them of the names."""
    names = os.listdir(folder / "samples")
    names.sort(key=lambda x: int(x.split("_")[-1].split(".")[0]))
    ids = [int(name.split("_")[1].split(".")[0]) for name in names]
    assert ids == [int(name.split(".png")[0].split("_")[1]) for name in names]
    assert ids == list(range(len(names)))  # 3_in_1.py goes by position
    return [(name.split("_")[0], folder / "samples" / name) for name in names]


def read_dpg(folder: Path, *, resolution: int, pic_num: int) -> dict[str, list[Any]]:
    """Cut pictures by the prompt's id, as compute_dpg_bench.py does."""
    from PIL import Image

    found = {}
    for name in os.listdir(folder):
        whole = Image.open(folder / name).convert("RGB")
        corners = [(0, 0), (resolution, 0), (0, resolution), (resolution, resolution)][:pic_num]
        boxes = [(x, y, x + resolution, y + resolution) for x, y in corners]
        found[name.split(".")[0]] = [whole.crop(box) for box in boxes]
    return found


def read_vbench(folder: Path, dimension: str) -> dict[str, list[Path]]:
    """Videos by prompt for a dimension, as VBench.build_full_info_json finds them."""
    names = os.listdir(folder)
    ending = Path(names[0]).suffix
    found: dict[str, list[Path]] = {}
    for row in VBENCH:
        if dimension in row["dimension"]:
            wanted = [f"{row['prompt_en']}-{i}{ending}" for i in range(5)]
            found[str(row["prompt_en"])] = [folder / name for name in wanted if name in names]
    return found
