"""How fast rewriting is: many prompts together against one ``generate`` call for each, and whether
the cost of a prompt stays the same in a long job.

*Alone* is what published scripts do: a loop over prompts, each with its chat template, one call of
``generate`` with its key-value cache, and the text read off. Both use the same model, number
format, threads, tokens and sampling (greedy), on the same prompts.
"""

from __future__ import annotations

import json
import random
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.jobs.rewriting import rewrite_file
from t2x.rewriters.language_model import Completion, LanguageModelRewriter
from t2x.rewriters.sampling import RowSampler
from t2x.world.prompts import training_prompts

if TYPE_CHECKING:
    from t2x.rewriters.guarded import Guarded

NEAR_TIE = 1e-3  # logits between the best and the second-best token

__all__ = ["NEAR_TIE", "bench_cost", "bench_together", "mixed_prompts"]

Progress: TypeAlias = "Callable[[str, int, int], None] | None"
_LENGTHS = (1, 1, 1, 2, 2, 3, 4, 6)  # sentences of a prompt


def mixed_prompts(n: int, seed: int = 0) -> list[str]:
    """Prompts of 2 to about 100 words, half of them short, as people's are."""
    rng = random.Random(seed)
    texts = [prompt.text for prompt in training_prompts(max(50, n), seed)]
    return [
        ". ".join(rng.choice(texts).rstrip(".") for _ in range(rng.choice(_LENGTHS)))
        for _ in range(n)
    ]


def bench_together(
    rewriter: LanguageModelRewriter,
    prompts: Sequence[str],
    *,
    alone: int = 64,
    clock: Callable[[], float] = time.perf_counter,
    progress: Progress = None,
) -> dict[str, Any]:
    """Time ``prompts`` together, and the first ``alone`` of them one by one.

    Gives ``speedup`` (prompts per second together over alone), ``identical`` (share of the
    ``compared`` completions that are the same), ``differences`` with the row's closest choice in
    logits, ``near_ties`` (whether each is below ``NEAR_TIE``), how many rows were
    ``repeated_alone``, and speeds and memory (MB) of both.

    Raises T2XError for a rewriter that samples.
    """
    if rewriter.temperature != 0:
        raise T2XError("only greedy texts can be compared; load the rewriter with temperature=0")
    told = progress or (lambda what, done, total: None)
    name = rewriter.model_id
    told(f"{name}: warming up", 0, 1)
    rewriter.complete(prompts[:2])
    _one_by_one(rewriter, prompts[0])
    loaded = _memory()
    expected, spent, peak = [], [], loaded
    for i, prompt in enumerate(prompts[:alone], 1):
        start = clock()
        expected.append(_one_by_one(rewriter, prompt))
        spent.append(clock() - start)
        peak = max(peak, _memory())
        told(f"{name}: one generate call per prompt", i, min(alone, len(prompts)))
    single = _speed(sum(spent), len(spent)) | {"memory_mb": peak}
    told(f"{name}: {len(prompts)} prompts together", 0, 1)
    before, start = rewriter.repeated, clock()
    found = [group[0] for group in rewriter.complete(prompts)]
    together = _speed(clock() - start, len(prompts)) | {"memory_mb": _peak_memory()}
    different = [i for i, one in enumerate(expected) if one != found[i]]
    gaps = [_closest(rewriter, prompts[i]) for i in different]
    return {
        "speedup": together["prompts_per_second"] / single["prompts_per_second"],
        "identical": 1 - len(different) / len(expected),
        "compared": len(expected),
        "differences": [
            {"prompt": prompts[i], "gap": gap} for i, gap in zip(different, gaps, strict=True)
        ],
        "near_ties": all(gap < NEAR_TIE for gap in gaps),
        "repeated_alone": rewriter.repeated - before,
        "alone": single,
        "together": together,
        "loaded_mb": loaded,
        "dtype": str(rewriter.model.dtype).removeprefix("torch."),
        "batch_size": rewriter.batch_size,
        "prompt_tokens": _spread([len(rewriter.encoder.encode(p)) for p in prompts]),
        "answer_tokens": _spread([_length(rewriter, done) for done in found]),
    }


def bench_cost(
    guarded: Guarded,
    sizes: Sequence[int],
    *,
    clock: Callable[[], float] = time.perf_counter,
    progress: Progress = None,
) -> dict[str, Any]:
    """Rewrite files of ``sizes`` different prompts as a job does, checks and writing included.

    Gives seconds per prompt and peak memory (MB) of each, and ``flat``: the largest over the
    smallest cost.
    """
    cost: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for size in sizes:
            source, out = Path(folder) / f"{size}.jsonl", Path(folder) / f"{size}.out.jsonl"
            rng = random.Random(size)
            texts = [prompt.text for prompt in training_prompts(min(size, 5000), size)]
            with source.open("w", encoding="utf-8") as file:
                file.writelines(
                    json.dumps(f"{texts[i % len(texts)]} {_number(rng)}".strip()) + "\n"
                    for i in range(size)
                )
            start = clock()
            rewrite_file(
                source, out, rewriter=guarded,
                progress=lambda done, total: progress and progress("job", done, total or 0),
            )  # fmt: skip
            seconds = clock() - start
            cost[str(size)] = {"seconds_per_prompt": seconds / size, "memory_mb": _peak_memory()}
    costs = [one["seconds_per_prompt"] for one in cost.values()]
    return {"cost": cost, "flat": max(costs) / min(costs)}


def _number(rng: random.Random) -> str:
    return f"please, this is wish number {rng.randrange(10**9)}"


def _one_by_one(rewriter: LanguageModelRewriter, prompt: str) -> Completion:
    ids = torch.tensor([rewriter.encoder.encode(prompt)], device=rewriter.model.device)
    eos = rewriter._eos_ids()
    penalty = rewriter.template.repetition_penalty
    sampler = RowSampler(repetition_penalty=penalty)

    def penalise(input_ids: Tensor, scores: Tensor) -> Tensor:
        return sampler.penalised(scores, input_ids[:, ids.shape[1] :])

    with torch.inference_mode():
        output = rewriter.model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            generation_config=rewriter._generation_config(eos, rewriter._pad_id(eos)),
            logits_processor=[penalise] if penalty != 1 else [],
        )
    return rewriter._completion(output[0, ids.shape[1] :].tolist(), eos)


def _closest(rewriter: LanguageModelRewriter, prompt: str) -> float:
    (row,) = rewriter._rows(prompt, 1, 0)
    if isinstance(row, Completion):
        return float("inf")
    return rewriter._generate([row])[1][0]


def _length(rewriter: LanguageModelRewriter, done: Completion) -> int:
    return len(rewriter.tokenizer(done.text, add_special_tokens=False)["input_ids"])


def _speed(seconds: float, prompts: int) -> dict[str, float]:
    return {
        "prompts": prompts,
        "seconds": seconds,
        "prompts_per_second": prompts / seconds if seconds else float("nan"),
    }


def _spread(values: Sequence[int]) -> dict[str, float]:
    return {"mean": statistics.fmean(values), "min": min(values), "max": max(values)}


def _memory() -> float:
    """Memory that this process has now, in MB; where the system doesn't tell, its peak so far."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return _peak_memory()
    return pages * resource.getpagesize() / 2**20


def _peak_memory() -> float:
    """Largest memory of this process so far, in MB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10
