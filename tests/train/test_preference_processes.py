"""Two processes that share the batches of Sem-DPO and REBEL learn what one does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from .preference_runs import pair_rows, sft_rows, write

pytestmark = [pytest.mark.extra("train"), pytest.mark.slow]

SCRIPT = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from preference_runs import run
recipe, out, values = sys.argv[2], Path(sys.argv[3]), json.loads(sys.argv[4])
run(recipe, out, values)
"""


def settings(recipe: str, folder: Path, *, processes: int) -> dict[str, Any]:
    rows = sft_rows(16) if recipe == "rebel" else pair_rows(16)
    given: dict[str, Any] = {
        "data": {"train": write(folder / "rows.jsonl", rows)},
        "watch": {"bar": False, "report": 0},
        "trainer": {"per_device_train_batch_size": 4 // processes, "learning_rate": 1e-4},
    }
    if recipe == "rebel":
        more = {"reward": {"rewards": {"clip": 10.0}}, "rebel": {"rounds": 2, "prompts": 4}}
        return given | more
    given["trainer"]["max_steps"] = 3
    return given | {"semantic": {"embedder": "clip", "alpha": 5.0}}


@pytest.mark.parametrize("recipe", ["sem_dpo", "rebel"])
def test_two_processes_equal_one(recipe: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    outs = []
    for processes in (1, 2):
        outs.append(tmp_path / f"run{processes}")
        given = json.dumps(settings(recipe, tmp_path, processes=processes))
        launch = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
        subprocess.run(
            [
                sys.executable,
                *(launch if processes == 2 else []),
                *map(str, (script, Path(__file__).parent, recipe, outs[-1], given)),
            ],
            check=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
            timeout=280,
        )
    one, two = (load_file(out / "model" / "model.safetensors") for out in outs)
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, rtol=0, atol=1e-4, msg=name)
    start = load_file(_start())
    moved = max((one[name] - value.float()).abs().max().item() for name, value in start.items())
    assert moved > 1.5e-4  # more than what the two may differ by


def _start() -> Path:
    from t2x.world.weights import require_model

    return require_model("emoji-rewriter") / "model.safetensors"
