"""The one training loop of the embedded models: budget in steps or minutes, progress bar,
checkpoints, resume, EMA, log.

The larger recipes of t2x run on TRL; these models are small, and must be trainable from the base
install on a CPU.
"""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from torch import Tensor, nn

from t2x.errors import T2XError

__all__ = [
    "Budget",
    "Ema",
    "Stateful",
    "autocast",
    "descend",
    "learning_rate",
    "run_training",
    "set_learning_rate",
    "set_threads",
    "write_metrics",
]

log = logging.getLogger(__name__)
_CHECKPOINT_SECONDS = 180.0
_LOG_EVERY = 50


class Stateful(Protocol):
    """Whatever can be put into a checkpoint: module, optimiser, EMA."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any: ...


@dataclass(frozen=True)
class Budget:
    """When training ends: after ``steps`` or ``minutes`` of training time in all, whichever comes
    first."""

    steps: int | None = None
    minutes: float | None = None

    def __post_init__(self) -> None:
        if self.steps is None and self.minutes is None:
            raise T2XError("a training needs a budget: give steps, minutes or both")

    @classmethod
    def given(cls, steps: int | None, minutes: float | None, default: Budget) -> Budget:
        """What the user gave, or ``default`` where neither was given."""
        return default if steps is None and minutes is None else cls(steps, minutes)

    def fraction(self, step: int, seconds: float) -> float:
        """How much of the budget is spent, in [0, 1]."""
        by_steps = step / self.steps if self.steps else 0.0
        by_time = seconds / (60 * self.minutes) if self.minutes else 0.0
        return min(1.0, max(by_steps, by_time))


class Ema:
    """Exponential moving average of a module's parameters, warmed up so that early steps do not
    linger."""

    def __init__(self, module: nn.Module, decay: float = 0.999) -> None:
        self.decay = decay
        self.updates = 0
        self.shadow = {k: v.detach().clone() for k, v in module.state_dict().items()}

    @torch.no_grad()
    def update(self, module: nn.Module) -> None:
        """Move the average towards the module's present values."""
        self.updates += 1
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        live = module.state_dict()
        floats = [k for k, v in self.shadow.items() if v.is_floating_point()]
        torch._foreach_lerp_([self.shadow[k] for k in floats], [live[k] for k in floats], 1 - decay)

    def copy_to(self, module: nn.Module) -> None:
        """Overwrite the module's values by the average."""
        module.load_state_dict(self.shadow)

    def state_dict(self) -> dict[str, Any]:
        return {"shadow": self.shadow, "updates": self.updates}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.shadow, self.updates = state_dict["shadow"], state_dict["updates"]


def learning_rate(fraction: float, peak: float, *, warmup: float = 0.02) -> float:
    """Linear warm-up over the first ``warmup`` of the budget, flat to one half, cosine to 2 % of
    ``peak``."""
    if fraction < warmup:
        return peak * max(fraction / warmup, 0.01)
    decayed = max(0.0, (fraction - 0.5) / 0.5)
    return peak * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * decayed)))


def set_learning_rate(optimizer: torch.optim.Optimizer, value: float) -> None:
    """Set one learning rate for every parameter group."""
    for group in optimizer.param_groups:
        group["lr"] = value


def descend(loss: Tensor, optimizer: torch.optim.Optimizer, rate: float) -> Tensor:
    """One step down ``loss`` at learning rate ``rate``, gradients clipped to a norm of 1; return
    the norm before."""
    set_learning_rate(optimizer, rate)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    norm = nn.utils.clip_grad_norm_(parameters, 1.0)
    optimizer.step()
    return norm.detach()


def set_threads(threads: int | None) -> None:
    """Fix the number of CPU threads; None keeps what the environment says."""
    if threads is not None:
        torch.set_num_threads(threads)


def autocast() -> torch.autocast:
    """bf16 autocast: about five times faster matrix products on CPUs that have bf16
    instructions."""
    return torch.autocast("cpu", torch.bfloat16)


def _save(path: Path, state: Mapping[str, Stateful], step: int, seconds: float) -> None:
    """Write a checkpoint beside its place and move it in, so that a kill never leaves half a
    file."""
    payload = {name: item.state_dict() for name, item in state.items()}
    temporary = path.with_suffix(".tmp")
    torch.save({"state": payload, "step": step, "seconds": seconds}, temporary)
    os.replace(temporary, path)


def _load(path: Path, state: Mapping[str, Stateful]) -> tuple[int, float]:
    data = torch.load(path, weights_only=True)
    missing = set(state) ^ set(data["state"])
    if missing:
        raise T2XError(
            f"checkpoint {path} is of another recipe (differs in {sorted(missing)}); "
            "remove it or use --no-resume"
        )
    for name, item in state.items():
        item.load_state_dict(data["state"][name])
    return int(data["step"]), float(data["seconds"])


@contextmanager
def _bar(name: str, total: float) -> Iterator[Callable[[float, str], None]]:
    columns = (TextColumn(name), BarColumn(), TextColumn("{task.fields[note]}"))
    with Progress(
        *columns, TimeElapsedColumn(), TimeRemainingColumn(), refresh_per_second=1
    ) as bar:
        task = bar.add_task(name, total=total, note="")
        yield lambda done, note: bar.update(task, completed=done, note=note)


def run_training(
    name: str,
    step_fn: Callable[[int, float], Mapping[str, float | Tensor]],
    state: Mapping[str, Stateful],
    *,
    folder: Path,
    budget: Budget,
    resume: bool = True,
    on_checkpoint: Callable[[int], None] | None = None,
) -> tuple[int, float]:
    """Call ``step_fn(step, fraction)`` until the budget is spent; return steps and seconds of
    training in all.

    ``state`` holds all that must survive a kill; it is saved to ``folder/checkpoint.pt`` every
    three minutes and at the end, and then ``on_checkpoint(step)`` is called. ``step_fn`` draws its
    data from the step number, so a resumed run sees what an unbroken one would have seen. What it
    returns is averaged and appended to ``folder/log.jsonl``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint = folder / "checkpoint.pt"
    step, spent = _load(checkpoint, state) if resume and checkpoint.exists() else (0, 0.0)
    if step == 0:
        (folder / "log.jsonl").unlink(missing_ok=True)
    started = saved = time.monotonic()
    sums: dict[str, float] = {}
    counted, note = 0, ""
    with _bar(name, 1.0) as advance:
        while (fraction := budget.fraction(step, spent + time.monotonic() - started)) < 1:
            for key, value in step_fn(step, fraction).items():
                sums[key] = sums.get(key, 0.0) + float(value)
            step, counted = step + 1, counted + 1
            now = time.monotonic()
            if step % _LOG_EVERY == 0:
                means = {k: v / counted for k, v in sums.items()}
                note = _log_line(folder, step, spent + now - started, means)
                sums, counted = {}, 0
            advance(fraction, note or f"step {step}")
            if now - saved > _CHECKPOINT_SECONDS:
                _save(checkpoint, state, step, spent + now - started)
                saved = now
                if on_checkpoint:
                    on_checkpoint(step)
    seconds = spent + time.monotonic() - started
    _save(checkpoint, state, step, seconds)
    if on_checkpoint:
        on_checkpoint(step)
    return step, seconds


def write_metrics(folder: Path, metrics: Mapping[str, float]) -> dict[str, float]:
    """Write ``folder/metrics.json`` and give the metrics back."""
    (folder / "metrics.json").write_text(json.dumps(metrics, indent=1) + "\n")
    return dict(metrics)


def _log_line(folder: Path, step: int, seconds: float, means: Mapping[str, float]) -> str:
    with (folder / "log.jsonl").open("a") as file:
        file.write(json.dumps({"step": step, "seconds": round(seconds, 1), **means}) + "\n")
    values = " ".join(f"{k} {v:.4f}" for k, v in means.items())
    return f"step {step} {values}"
