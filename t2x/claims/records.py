"""The runs of a claim as they are kept: ``docs/claims/NAME/runs.jsonl``, a line for the protocol,
one for each run (arm and seed) with what every prompt gave and the curve of its training, and one
for each failed or unfinished job. The verdict is computed from this file alone.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from t2x.claims.jobs import ARM, Plan
from t2x.claims.protocol import Curve
from t2x.claims.runner import JobFolder
from t2x.config import to_dict
from t2x.errors import T2XError
from t2x.files import made_folder, write_whole
from t2x.plain import json_line, lines_of

__all__ = ["Records", "Run", "collect", "read_curve", "read_records", "write_records"]

FILE = "runs.jsonl"
_POINTS = 120  # of a curve that are kept
_WIDTH = 4  # decimals of what a prompt gave


@dataclass
class Run:
    """One arm with one training seed: the ``steps`` with their seconds and metrics, the summary of
    its evaluation, what every prompt gave (``rows``), the curve of its last training."""

    arm: str
    seed: int
    steps: list[dict[str, Any]]
    evaluation: dict[str, Any]
    rows: dict[str, list[float]]
    curve: dict[str, list[float | None]] = field(default_factory=dict)


@dataclass
class Records:
    """All that was run for a claim. ``failures`` holds every process that failed or was cut,
    ``missing`` the runs that are not there, with the reason."""

    name: str
    protocol: dict[str, Any]
    digest: str
    version: str
    tasks: list[str]
    runs: list[Run]
    failures: list[dict[str, Any]] = field(default_factory=list)
    missing: list[dict[str, Any]] = field(default_factory=list)

    def of(self, arm: str) -> dict[int, Run]:
        """The runs of an arm by their seed."""
        return {run.seed: run for run in self.runs if run.arm == arm}


def collect(plan: Plan, work: Path) -> Records:
    """Gather what the jobs of a plan have left, finished or not."""
    from t2x import __version__

    claim, jobs = plan.claim, {job.key: job for job in plan.jobs}
    found = Records(claim.name, to_dict(claim), claim.digest, __version__, [], [])
    for (arm, seed), keys in plan.runs.items():
        folders = [JobFolder(work / key) for key in keys]
        results = [folder.result for folder in folders]
        if None in results:
            waits = jobs[keys[results.index(None)]].label
            found.missing.append({"arm": arm, "seed": seed, "why": f"not done: {waits}"})
            continue
        *steps, evaluation = [result for result in results if result is not None]
        given = evaluation["output"]
        found.tasks = list(given["rows"]["tasks"])
        found.runs.append(
            Run(
                arm,
                seed,
                [_step(jobs[k].label, k, r) for k, r in zip(keys[:-1], steps, strict=True)],
                _summary(given["arms"][ARM], keys[-1], evaluation["seconds"]),
                {name: _rounded(row) for name, row in given["rows"]["arms"][ARM].items()},
                read_curve(folders[-2].run / "log.jsonl", claim.curve) if steps else {},
            )
        )
    found.failures = [
        entry for key, job in jobs.items() for entry in _failures(key, job.label, work)
    ]
    return found


def write_records(records: Records, folder: Path) -> None:
    """Write ``runs.jsonl`` into the claim's folder."""
    head = {
        "claim": records.name,
        "digest": records.digest,
        "t2x": records.version,
        "protocol": records.protocol,
        "tasks": records.tasks,
    }
    lines = [head, *({"run": vars(run)} for run in records.runs)]
    lines += [{"failure": entry} for entry in records.failures]
    lines += [{"missing": entry} for entry in records.missing]
    write_whole(made_folder(folder) / FILE, "".join(map(json_line, lines)))


def read_records(folder: Path) -> Records | None:
    """Read what ``write_records`` wrote; None where nothing was run yet."""
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        head, *lines = [json.loads(line) for line in lines_of(path.read_text("utf-8"))]
        return Records(
            head["claim"],
            head["protocol"],
            head["digest"],
            head["t2x"],
            head["tasks"],
            [Run(**line["run"]) for line in lines if "run" in line],
            [line["failure"] for line in lines if "failure" in line],
            [line["missing"] for line in lines if "missing" in line],
        )
    except (ValueError, KeyError, TypeError) as error:
        raise T2XError(
            f"{str(path)!r} holds no runs of a claim ({error!r}); make it again with --run"
        ) from error


def _step(label: str, key: str, result: Mapping[str, Any]) -> dict[str, Any]:
    output = result["output"]
    metrics = output.get("metrics", {}) if isinstance(output, dict) else {}
    numbers = {k: v for k, v in metrics.items() if isinstance(v, int | float)}
    jobs = sum("pid" in entry for entry in result["slices"])
    return {"label": label, "key": key, "seconds": result["seconds"], "jobs": jobs} | {
        "metrics": numbers
    }


def _summary(arm: Mapping[str, Any], key: str, seconds: float) -> dict[str, Any]:
    kept = ("overall", "ci95", "tasks", "pools", "drift", "cost", "statuses")
    return {"key": key, "seconds": seconds} | {name: arm[name] for name in kept if name in arm}


def _failures(key: str, label: str, work: Path) -> list[dict[str, Any]]:
    """Every process that did not end well, those before a later success too."""
    return [
        {"job": label, "key": key, "at": entry["ended"], "seconds": entry["seconds"]}
        | {
            "code": entry["code"],
            "cut": entry["cut"],
            "said": _without_paths(entry["said"].strip())[-300:],
        }
        for entry in JobFolder(work / key).slices
        if "said" in entry and not entry["cut"]
    ]


def _without_paths(text: str) -> str:
    """Leave the folders of this computer out of what is published."""
    return re.sub(r"(?<![\w.])/(?:[\w.@+-]+/)+", ".../", text)


def read_curve(path: Path, keys: Curve) -> dict[str, list[float | None]]:
    """Columns of a training's log, thinned: the lines that have a held-out value, or all."""
    lines = []
    for text in lines_of(path.read_text("utf-8")) if path.is_file() else []:
        try:
            lines.append(json.loads(text))
        except ValueError:  # cut by a kill
            continue
    lines = _carried(lines, [n for n in ("step", "seconds", keys.x) if any(n in x for x in lines)])
    lines = [line for line in lines if _is_number(line.get(keys.y))] or lines
    kept = lines[:: max(1, math.ceil(len(lines) / _POINTS))]
    wanted = dict.fromkeys(("step", "seconds", keys.x, keys.y, "reward", "kl", "entropy", "length"))
    columns = {n: [line.get(n) for line in kept] for n in wanted}
    return {n: _rounded(c, 6) for n, c in columns.items() if any(map(_is_number, c))}


def _carried(lines: list[dict[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    """Give each line what was spent so far where it doesn't say so: 0 at the start."""
    last: dict[str, Any] = dict.fromkeys(names, 0.0)
    found = []
    for line in lines:
        last |= {name: line[name] for name in names if _is_number(line.get(name))}
        found.append({**line, **last})
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _rounded(values: list[Any], decimals: int = _WIDTH) -> list[Any]:
    return [_short(v, decimals) if _is_number(v) else v for v in values]


def _short(value: float, decimals: int) -> float:
    """Without the decimals that say nothing, of which a file would hold thousands."""
    near = round(value, decimals)
    return int(near) if near == int(near) else near
