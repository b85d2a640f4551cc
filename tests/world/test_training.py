"""The training loop: budgets, steps, checkpoints, resume, logs, averages."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from t2x.errors import T2XError
from t2x.world import training
from t2x.world.training import (
    Budget,
    Ema,
    descend,
    learning_rate,
    run_training,
)


class Killed(BaseException):
    """Stands for a signal."""


def _fit(folder: Path, steps: int, *, seed: int = 0, width: int = 2, **options: Any) -> nn.Linear:
    """Fit a line by SGD with momentum; the data of a step come from its number."""
    torch.manual_seed(seed)
    model = nn.Linear(width, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    killed = options.pop("killed", None)

    def step_fn(step: int, fraction: float) -> Mapping[str, float | Tensor]:
        if step == killed:
            raise Killed
        x = torch.randn(8, width, generator=torch.Generator().manual_seed(step))
        loss = (model(x)[:, 0] - x[:, 0] + 2 * x[:, 1]).pow(2).mean()
        descend(loss, optimizer, 0.05)
        return {"loss": loss.detach()}

    options.setdefault("settings", {"seed": seed})
    done, seconds = run_training(
        "fit",
        step_fn,
        {"model": model, "optimizer": optimizer},
        folder=folder,
        budget=Budget(steps),
        **options,
    )
    assert done == steps
    assert seconds > 0
    return model


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_resumed_run_ends_where_an_unbroken_one_ends(tmp_path: Path) -> None:
    whole = _fit(tmp_path / "whole", 120)
    _fit(tmp_path / "parts", 50)
    resumed = _fit(tmp_path / "parts", 120)
    assert torch.equal(whole.weight, resumed.weight)
    assert whole.weight[0].tolist() == pytest.approx([1.0, -2.0], abs=0.05)


def test_log_holds_means_and_restarts_without_resume(tmp_path: Path) -> None:
    _fit(tmp_path, 100)
    lines = _lines(tmp_path / "log.jsonl")
    assert [line["step"] for line in lines] == [50, 100]
    assert lines[1]["loss"] < lines[0]["loss"]
    _fit(tmp_path, 50, resume=False)
    assert len(_lines(tmp_path / "log.jsonl")) == 1


def test_a_killed_run_leaves_no_line_twice(tmp_path: Path) -> None:
    """Log and curve go back to the checkpoint: what came after it is written again."""
    _fit(tmp_path, 100, on_checkpoint=lambda step: {"at": step})
    assert _lines(tmp_path / "curve.jsonl") == [{"step": 100, "at": 100}]
    with pytest.raises(Killed):
        _fit(tmp_path, 300, killed=270, on_checkpoint=lambda step: {"at": step})
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write('{"step": 2')  # killed while it wrote
    with (tmp_path / "curve.jsonl").open("a") as file:
        file.write('{"step": 250, "at": 250}\n')
    assert [line["step"] for line in _lines_but_last(tmp_path / "log.jsonl")][-1] == 250
    _fit(tmp_path, 200, on_checkpoint=lambda step: {"at": step})
    assert [line["step"] for line in _lines(tmp_path / "log.jsonl")] == [50, 100, 150, 200]
    assert [line["step"] for line in _lines(tmp_path / "curve.jsonl")] == [100, 200]
    _fit(tmp_path, 200, on_checkpoint=lambda step: {"at": step})  # done already
    assert [line["step"] for line in _lines(tmp_path / "curve.jsonl")] == [100, 200]


def _lines_but_last(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()[:-1]]


def test_work_at_checkpoints_is_done_at_the_end_too_and_not_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that only the checkpoint's work moves: the run takes no time at all."""
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(training, "_CHECKPOINT_SECONDS", -1.0)
    seen: list[int] = []

    def on_checkpoint(step: int) -> None:
        nonlocal now
        now += 100.0
        seen.append(step)
        assert torch.load(tmp_path / "checkpoint.pt", weights_only=True)["step"] == step

    def step_fn(step: int, fraction: float) -> dict[str, float]:
        nonlocal now
        now += 1.0
        return {}

    done, seconds = run_training(
        "clock",
        step_fn,
        {},
        folder=tmp_path,
        budget=Budget(minutes=3 / 60),
        settings={},
        on_checkpoint=on_checkpoint,
    )
    assert seen == [1, 2, 3, 3]
    assert (done, seconds) == (3, 3.0)


def test_checkpoint_of_another_recipe_is_refused(tmp_path: Path) -> None:
    _fit(tmp_path, 5)
    with pytest.raises(T2XError, match=r"recipe given is x, stored is fit.*--no-resume"):
        run_training(
            "x",
            lambda *_: {},
            {"other": nn.Linear(1, 1)},
            folder=tmp_path,
            budget=Budget(1),
            settings={"seed": 0},
        )


def test_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    settings = {"seed": 0, "start": tmp_path / "a"}
    first = _fit(tmp_path, 5, settings=settings)
    with pytest.raises(T2XError, match="seed given is 1, stored is 0"):
        _fit(tmp_path, 6, seed=1, settings={**settings, "seed": 1})
    with pytest.raises(T2XError, match=r"start given is None, stored is .*a;"):
        _fit(tmp_path, 6, settings={"seed": 0, "start": None})
    with pytest.raises(T2XError, match=r"model.weight given is \(1, 3\), stored is \(1, 2\)"):
        _fit(tmp_path, 6, width=3, settings=settings)
    assert torch.equal(_fit(tmp_path, 5, settings=settings).weight, first.weight)
    fresh = _fit(tmp_path / "fresh", 5, seed=1)
    assert torch.equal(_fit(tmp_path, 5, seed=1, resume=False).weight, fresh.weight)


def test_budget_needs_an_end_and_takes_the_first_reached() -> None:
    with pytest.raises(T2XError, match="needs a budget"):
        Budget()
    assert Budget(steps=10, minutes=1.0).fraction(5, 6.0) == 0.5
    assert Budget(steps=10, minutes=1.0).fraction(1, 45.0) == 0.75
    assert Budget(minutes=1.0).fraction(10**6, 120.0) == 1.0


@pytest.mark.parametrize(("steps", "minutes"), [(0, None), (-1, 1.0), (None, 0.0), (5, math.nan)])
def test_a_budget_of_nothing_is_refused(steps: int | None, minutes: float | None) -> None:
    """Zero would otherwise count as no limit, and the training would never end."""
    with pytest.raises(T2XError, match="more than 0"):
        Budget(steps, minutes)
    with pytest.raises(T2XError, match="more than 0"):
        Budget.given(steps, minutes, Budget(steps=1))


def test_a_given_budget_replaces_the_default_whole() -> None:
    default = Budget(steps=7, minutes=1.0)
    assert Budget.given(None, None, default) is default
    assert Budget.given(3, None, default) == Budget(steps=3)
    assert Budget.given(None, 2.0, default) == Budget(minutes=2.0)
    assert Budget.given(3, 2.0, default) == Budget(3, 2.0)


def test_descend_closed_form() -> None:
    """Loss 3 a + 4 b has a gradient of norm 5: clipped to (0.6, 0.8), then one step of the given
    rate in both groups, whatever rate they had."""
    a, b = (nn.Parameter(torch.tensor(1.0)) for _ in range(2))
    optimizer = torch.optim.SGD([{"params": [a], "lr": 7.0}, {"params": [b]}], lr=9.0)
    a.grad = torch.tensor(100.0)  # left over: must not count
    norm = descend(3 * a + 4 * b, optimizer, 0.5)
    assert norm.item() == pytest.approx(5.0)
    assert not norm.requires_grad
    assert [a.item(), b.item()] == pytest.approx([1 - 0.5 * 0.6, 1 - 0.5 * 0.8], abs=1e-5)


def test_learning_rate_schedule() -> None:
    assert learning_rate(0.01, 1.0) == pytest.approx(0.5)
    assert learning_rate(0.3, 1.0) == pytest.approx(1.0)
    assert learning_rate(0.75, 1.0) == pytest.approx(0.02 + 0.98 * 0.5)
    assert learning_rate(1.0, 1.0) == pytest.approx(0.02)


def test_ema_closed_form() -> None:
    """With decay 0.1 the warm-up min(decay, (1 + n) / (10 + n)) is above it at once: shadow = 0.1 *
    old + 0.9 * new."""
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, 1.0)
    ema = Ema(model, 0.1)
    nn.init.constant_(model.weight, 2.0)
    ema.update(model)
    ema.copy_to(model)
    assert model.weight.item() == pytest.approx(0.1 * 1.0 + 0.9 * 2.0)
