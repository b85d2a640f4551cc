"""Runs a recipe as the tests do, in one process or in several: ``run_in_processes.py RECIPE JSON``.

Completions are sampled with noise that belongs to the row of the whole batch, whatever the process
that holds it: ``generate`` itself has one random stream per process, and another number of
processes would be another draw.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

RANK = int(os.environ.get("RANK", "0"))


def sample_by_row(torch: Any) -> None:
    from transformers import GenerationMixin

    calls = {"generate": 0, "token": 0}
    generate = GenerationMixin.generate

    def counted(self: Any, *args: Any, **options: Any) -> Any:
        calls["generate"], calls["token"] = calls["generate"] + 1, 0
        return generate(self, *args, **options)

    def multinomial(chances: Any, num_samples: int = 1, **_: Any) -> Any:
        assert num_samples == 1
        calls["token"] += 1
        noise = [_noise(torch, chances.shape[1], calls, RANK * len(chances) + i)
                 for i in range(len(chances))]  # fmt: skip
        return (chances.log() + torch.stack(noise)).argmax(-1, keepdim=True)

    GenerationMixin.generate = counted
    torch.multinomial = multinomial


def _noise(torch: Any, size: int, calls: dict[str, int], row: int) -> Any:
    seed = (calls["generate"] * 4096 + calls["token"]) * 4096 + row
    uniform = torch.rand(size, generator=torch.Generator().manual_seed(seed))
    return -torch.log(-torch.log(uniform.clamp(1e-20, 1 - 1e-7)))


def main() -> None:
    import torch

    from t2x.config import build_config
    from t2x.registry import load_recipe

    recipe, values = sys.argv[1], json.loads(sys.argv[2])
    sample_by_row(torch)
    schema, train = load_recipe(recipe)
    metrics = train(build_config(schema, values))
    several = torch.distributed.is_available() and torch.distributed.is_initialized()
    metrics["processes"] = torch.distributed.get_world_size() if several else 1
    if RANK == 0:
        sys.stdout.write("\nmetrics: " + json.dumps(metrics) + "\n")


if __name__ == "__main__":
    main()
