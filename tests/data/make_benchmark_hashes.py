"""Makes ``t2x/data/benchmarks.safetensors`` and ``benchmarks.json`` from clones of the benchmarks'
repositories:

    python tests/data/make_benchmark_hashes.py FOLDER

FOLDER holds a clone, bare or not, of each repository below as OWNER+NAME. Only hashes are written.
"""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from t2x.data import decontaminate

OUT = Path(decontaminate.__file__).parent


@dataclass(frozen=True)
class Source:
    """Prompts of one benchmark: ``read`` makes them of each file whose path matches ``files``."""

    benchmark: str
    repository: str
    commit: str
    licence: str
    files: str
    read: Callable[[str], Iterable[str]]
    note: str = ""


def lines(text: str) -> list[str]:
    return text.splitlines()


def whole(text: str) -> list[str]:
    return [text]


def first_column(text: str) -> list[str]:
    rows = csv.reader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE)
    return [row[0] for row in rows][1:]


def genai_prompts(text: str) -> list[str]:
    return [row["prompt"] for row in json.loads(text).values()]


def vbench_info(text: str) -> list[str]:
    return [row["prompt_en"] for row in json.loads(text)]


SOURCES = (
    Source(
        "geneval", "djghosh13/geneval", "af4902f24d3ca90ebbb446dd9891a59e0f82725f", "MIT",
        r"prompts/generation_prompts\.txt", lines,
    ),
    Source(
        "t2i-compbench", "Karine-Huang/T2I-CompBench", "1b7094991a57f3c22abdd4f6e8ba6c1a15517073",
        "MIT", r"examples/dataset/(?!new_objects).*\.txt", lines,
        "T2I-CompBench and ++, training and validation files alike",
    ),
    Source(
        "partiprompts", "google-research/parti", "5a657978134374ce28973948331b319adef164bd",
        "Apache-2.0", r"PartiPrompts\.tsv", first_column,
    ),
    Source(
        "dpg-bench", "TencentQQGYLab/ELLA", "3c228f1dc6c4d3cad0a47493816151a419f14db3",
        "Apache-2.0", r"dpg_bench/prompts/.*\.txt", whole,
    ),
    Source(
        "genai-bench", "linzhiqiu/t2v_metrics", "60ce07b144b9bff24b8dac5317cb28586b1b2509",
        "Apache-2.0", r"genai_image\.json", genai_prompts, "the 527 with human ratings",
    ),
    Source(
        "genai-bench", "BoatHermit/T2I-RL-Eval", "0afae46fec93b246fb9b45858ee6a00cec517581",
        "none stated; the benchmark's own repository is Apache-2.0",
        r"data/evaluation/genai_bench/raw/genai_image\.json", genai_prompts,
        "a copy of all 1,600, which the benchmark's authors publish on a model hub",
    ),
    Source(
        "vbench", "Vchitect/VBench", "45e79ec14e69a2187202c675d2dbce1a71843d53", "Apache-2.0",
        r"prompts/all_(dimension|category)\.txt|VBench-2\.0/prompts/VBench2_full_text\.txt", lines,
        "VBench and VBench-2.0 in English; prompts that a model has lengthened are left out",
    ),
    Source(
        "vbench", "Vchitect/VBench", "45e79ec14e69a2187202c675d2dbce1a71843d53", "Apache-2.0",
        r"vbench2_beta_(i2v/vbench2_i2v_full_info|trustworthiness/vbench2_trustworthy)\.json",
        vbench_info, "VBench++: image to video, trustworthiness",
    ),
)  # fmt: skip
# Texts to measure errors on: captions of COCO that people wrote (ordinary prompts), and another
# copy of PartiPrompts (which must be found), both in the inputs of TIFA v1.0 (Apache-2.0).
CONTROLS = (
    "BoatHermit/T2I-RL-Eval",
    "0afae46fec93b246fb9b45858ee6a00cec517581",
    "data/evaluation/tifa/raw/tifa_v1.0_text_inputs.json",
)


def git(folder: Path, repository: str, *arguments: str) -> str:
    clone = folder / repository.replace("/", "+")
    clone = next(p for p in (clone / ".git", clone / "repo", clone) if (p / "HEAD").is_file())
    command = ("git", f"--git-dir={clone}", *arguments)
    return subprocess.run(command, check=True, capture_output=True).stdout.decode("utf-8")


def prompts_of(folder: Path, source: Source) -> list[str]:
    names = git(folder, source.repository, "ls-tree", "-r", "--name-only", source.commit)
    wanted = [n for n in names.splitlines() if re.fullmatch(source.files, n)]
    show = [git(folder, source.repository, "show", f"{source.commit}:{n}") for n in wanted]
    return [prompt for text in show for prompt in source.read(text)]


def control_rates(folder: Path) -> dict[str, Any]:
    repository, commit, path = CONTROLS
    rows = json.loads(git(folder, repository, "show", f"{commit}:{path}"))
    rates = {}
    for name, prefix in (("COCO captions", "coco"), ("PartiPrompts of another copy", "parti")):
        texts = [row["caption"] for row in rows if row["id"].startswith(prefix)]
        found = [decontaminate.find_benchmark(text) for text in texts]
        kinds = [match.kind for match in found if match]
        rates[name] = {"texts": len(texts), **{k: kinds.count(k) for k in ("exact", "near")}}
    return {"source": "TIFA v1.0, " + "/".join(CONTROLS[:1]), "found": rates}


def main(folder: Path) -> None:
    prompts: dict[str, list[str]] = {}
    card: dict[str, Any] = {"benchmarks": {}, "sources": []}
    for source in SOURCES:
        found = prompts_of(folder, source)
        prompts.setdefault(source.benchmark, []).extend(found)
        fields = ("benchmark", "repository", "commit", "licence", "files", "note")
        row = {name: getattr(source, name) for name in fields}
        card["sources"].append({**row, "prompts": len(found)})
    arrays = {}
    for name, texts in prompts.items():
        for part, hashes in zip(
            ("wholes", "spans"), decontaminate.hash_prompts(texts), strict=True
        ):
            arrays[f"{name}/{part}"] = np.array(hashes, np.uint64)
        card["benchmarks"][name] = {
            part: len(arrays[f"{name}/{part}"]) for part in ("wholes", "spans")
        }
    save_file(arrays, OUT / "benchmarks.safetensors")
    (OUT / "benchmarks.safetensors").chmod(0o644)
    card["controls"] = control_rates(folder)
    (OUT / "benchmarks.json").write_text(json.dumps(card, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
