"""The training loop: budgets, checkpoints, resume, averages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from t2x.errors import T2XError
from t2x.world.training import Budget, Ema, learning_rate, run_training, set_learning_rate


def _fit(folder: Path, steps: int, *, resume: bool = True) -> nn.Linear:
    """Fit a line by SGD with momentum; the data of a step come from its number."""
    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def step_fn(step: int, fraction: float) -> Mapping[str, float | Tensor]:
        x = torch.randn(8, 2, generator=torch.Generator().manual_seed(step))
        loss = (model(x)[:, 0] - x @ torch.tensor([1.0, -2.0])).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return {"loss": loss.detach()}

    state = {"model": model, "optimizer": optimizer}
    done, seconds = run_training(
        "fit", step_fn, state, folder=folder, budget=Budget(steps), resume=resume
    )
    assert done == steps
    assert seconds > 0
    return model


def test_resumed_run_ends_where_an_unbroken_one_ends(tmp_path: Path) -> None:
    whole = _fit(tmp_path / "whole", 120)
    _fit(tmp_path / "parts", 50)
    resumed = _fit(tmp_path / "parts", 120)
    assert torch.equal(whole.weight, resumed.weight)
    assert whole.weight[0].tolist() == pytest.approx([1.0, -2.0], abs=0.05)


def test_log_holds_means_and_restarts_without_resume(tmp_path: Path) -> None:
    _fit(tmp_path, 100)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [50, 100]
    assert lines[1]["loss"] < lines[0]["loss"]
    _fit(tmp_path, 50, resume=False)
    assert len((tmp_path / "log.jsonl").read_text().splitlines()) == 1


def test_checkpoint_of_another_recipe_is_refused(tmp_path: Path) -> None:
    _fit(tmp_path, 5)
    with pytest.raises(T2XError, match="another recipe"):
        run_training(
            "x", lambda *_: {}, {"other": nn.Linear(1, 1)}, folder=tmp_path, budget=Budget(1)
        )


def test_budget_needs_an_end_and_takes_the_first_reached() -> None:
    with pytest.raises(T2XError, match="needs a budget"):
        Budget()
    assert Budget(steps=10, minutes=1.0).fraction(5, 6.0) == 0.5
    assert Budget(steps=10, minutes=1.0).fraction(1, 45.0) == 0.75
    assert Budget(minutes=1.0).fraction(10**6, 120.0) == 1.0


def test_learning_rate_schedule() -> None:
    assert learning_rate(0.01, 1.0) == pytest.approx(0.5)
    assert learning_rate(0.3, 1.0) == pytest.approx(1.0)
    assert learning_rate(0.75, 1.0) == pytest.approx(0.02 + 0.98 * 0.5)
    assert learning_rate(1.0, 1.0) == pytest.approx(0.02)
    optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=1.0)
    set_learning_rate(optimizer, 0.25)
    assert optimizer.param_groups[0]["lr"] == 0.25


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
