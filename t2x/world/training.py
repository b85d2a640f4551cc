"""The one training loop of the embedded models: budget in steps or minutes, progress bar,
checkpoints, resume, EMA, log.

The larger recipes of t2x run on TRL; these models are small, and must be trainable from the base
install on a CPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from t2x.devices import fast_bfloat16
from t2x.errors import T2XError
from t2x.watching.bar import training_bar
from t2x.watching.steps import Clock, append_step, cut_steps
from t2x.world.checkpoint import Checkpoint, Stateful

__all__ = [
    "Budget",
    "Ema",
    "autocast",
    "build_optimizer",
    "descend",
    "learning_rate",
    "run_training",
]

_CHECKPOINT_SECONDS = 180.0
_LOG_EVERY = 50


@dataclass(frozen=True)
class Budget:
    """When training ends: after ``steps`` or ``minutes`` of training time in all, whichever comes
    first."""

    steps: int | None = None
    minutes: float | None = None

    def __post_init__(self) -> None:
        if self.steps is None and self.minutes is None:
            raise T2XError("a training needs a budget: give steps, minutes or both")
        for name, value in (("steps", self.steps), ("minutes", self.minutes)):
            if value is not None and not value > 0:  # NaN too: it would never be reached
                raise T2XError(f"{name} is {value}; a training needs more than 0, or leave it out")

    @classmethod
    def given(cls, steps: int | None, minutes: float | None, default: Budget) -> Budget:
        """What the user gave, or ``default`` where neither was given."""
        return default if steps is None and minutes is None else cls(steps, minutes)

    def fraction(self, step: int, seconds: float) -> float:
        """How much of the budget is spent, in [0, 1]."""
        by_steps = step / self.steps if self.steps is not None else 0.0
        by_time = seconds / (60 * self.minutes) if self.minutes is not None else 0.0
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


def build_optimizer(
    parameters: Iterable[nn.Parameter], peak: float, *, betas: tuple[float, float] = (0.9, 0.98)
) -> torch.optim.AdamW:
    """AdamW with a decay of 0.05 on matrices and none on vectors and scalars."""
    parameters = list(parameters)
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": 0.05},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=peak, betas=betas)


def descend(loss: Tensor, optimizer: torch.optim.Optimizer, rate: float) -> Tensor:
    """One step down ``loss`` at learning rate ``rate``, gradients clipped to a norm of 1; return
    the norm before."""
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    norm = nn.utils.clip_grad_norm_(parameters, 1.0)
    optimizer.step()
    return norm.detach()


def autocast() -> torch.autocast:
    """bf16 autocast on CPUs that have bf16 instructions, where it makes matrix products about five
    times faster; none elsewhere, where it is emulated."""
    return torch.autocast("cpu", torch.bfloat16, enabled=fast_bfloat16("cpu"))


class _Log:
    """What the steps gave: means over ``_LOG_EVERY`` of them, a line each, and the last as text."""

    def __init__(self, path: Path, step: int) -> None:
        cut_steps(path, step)
        self.path, self.note = path, ""
        self._sums: dict[str, float] = {}
        self._counted = 0

    def add(self, step: int, seconds: float, values: Mapping[str, float | Tensor]) -> None:
        for key, value in values.items():
            self._sums[key] = self._sums.get(key, 0.0) + float(value)
        self._counted += 1
        if step % _LOG_EVERY == 0:
            means = {key: total / self._counted for key, total in self._sums.items()}
            append_step(self.path, {"step": step, "seconds": round(seconds, 1), **means})
            self.note = " ".join([f"step {step}", *(f"{k} {v:.4f}" for k, v in means.items())])
            self._sums, self._counted = {}, 0


def run_training(
    name: str,
    step_fn: Callable[[int, float], Mapping[str, float | Tensor]],
    state: Mapping[str, Stateful],
    *,
    folder: Path,
    budget: Budget,
    settings: Mapping[str, str | int | Path | None],
    resume: bool = True,
    on_checkpoint: Callable[[int], Mapping[str, Any] | None] | None = None,
) -> tuple[int, float]:
    """Call ``step_fn(step, fraction)`` until the budget is spent; return steps and seconds of
    training in all.

    ``state`` holds all that must survive a kill; it is saved to ``folder/checkpoint.pt`` every
    three minutes and at the end, and then ``on_checkpoint(step)`` is called, whose time is not
    charged to the budget; what it returns becomes a line of ``folder/curve.jsonl``. ``step_fn``
    draws its data from the step number or from ``state``, so a resumed run sees what an unbroken
    one would have seen. What it returns is averaged and appended to ``folder/log.jsonl``.

    ``settings`` (seed, start, ...) is what else makes this run what it is: a checkpoint with other
    ones is refused with ``T2XError``. Without ``resume`` an old checkpoint is removed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    run = {k: str(v.resolve()) if isinstance(v, Path) else v for k, v in settings.items()}
    checkpoint = Checkpoint(folder / "checkpoint.pt", {"recipe": name, **run}, state)
    if not resume:
        checkpoint.path.unlink(missing_ok=True)
    step, saved = checkpoint.load()
    log, curve = _Log(folder / "log.jsonl", step), folder / "curve.jsonl"
    cut_steps(curve, step)
    clock = Clock(saved)

    def keep(step: int) -> float:
        with clock.paused() as seconds:
            checkpoint.save(step, seconds)
            found = on_checkpoint(step) if on_checkpoint else None
            if found:
                cut_steps(curve, step - 1)  # a run that was done already measures its end again
                append_step(curve, {"step": step, **found})
        return seconds

    with training_bar(name, 1.0) as advance:
        while (fraction := budget.fraction(step, clock.seconds())) < 1:
            values = step_fn(step, fraction)
            step += 1
            log.add(step, clock.seconds(), values)
            advance(fraction, log.note or f"step {step}")
            if clock.seconds() - saved > _CHECKPOINT_SECONDS:
                saved = keep(step)
    return step, keep(step)
