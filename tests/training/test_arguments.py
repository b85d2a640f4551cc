"""The ``trainer`` section of a YAML becomes TRL's own arguments, checked by name and type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from t2x import devices
from t2x.config import ConfigError
from t2x.errors import T2XError
from t2x.training.arguments import checkpoints, last_checkpoint, trainer_arguments
from t2x.training.config import RunConfig

pytestmark = pytest.mark.extra("train")


def test_defaults_then_given(tmp_path: Path) -> None:
    from trl import SFTConfig

    run = RunConfig(tmp_path, seed=5)
    given = {"learning_rate": "1e-4", "max_steps": 3}
    arguments = trainer_arguments(SFTConfig, run, given, max_steps=9, logging_steps=1)
    assert arguments.learning_rate == 1e-4
    assert (arguments.max_steps, arguments.logging_steps, arguments.seed) == (3, 1, 5)
    assert arguments.output_dir == str(tmp_path)
    assert arguments.report_to == []


def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    from trl import SFTConfig

    run = RunConfig(tmp_path)
    with pytest.raises(ConfigError, match="did you mean 'learning_rate'"):
        trainer_arguments(SFTConfig, run, {"learning_rte": 1.0})
    with pytest.raises(T2XError, match=r"given as run\.seed"):
        trainer_arguments(SFTConfig, run, {"seed": 1})
    with pytest.raises(T2XError, match="unknown tracker 'wandbb'"):
        trainer_arguments(SFTConfig, run, {"report_to": "wandbb"})


@pytest.mark.parametrize("fast", [True, False])
def test_bf16_is_true_only_where_it_is_fast_unless_it_is_said(
    fast: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from transformers import TrainingArguments
    from trl import GRPOConfig, SFTConfig

    devices._warn_once.cache_clear()
    monkeypatch.setattr("t2x.training.arguments.fast_bfloat16", lambda device: fast)
    monkeypatch.setattr("t2x.devices.fast_bfloat16", lambda device: fast)

    def bf16(cls: type[Any], **given: Any) -> bool:
        found: bool = trainer_arguments(cls, RunConfig(tmp_path), {"use_cpu": True} | given).bf16
        return found

    for cls in (SFTConfig, GRPOConfig):
        assert bf16(cls) is bf16(cls, bf16="auto") is fast
    assert bf16(TrainingArguments, bf16="auto") is fast
    assert bf16(TrainingArguments) is False  # HF's own default
    assert bf16(SFTConfig, bf16=False) is False
    assert not caplog.records
    assert bf16(SFTConfig, bf16=True) is bf16(SFTConfig, bf16=True) is True
    told = [r.getMessage() for r in caplog.records]
    assert len(told) == (0 if fast else 1)
    assert all(m.startswith("trainer.bf16: true: this CPU has no") for m in told)
    with pytest.raises(ConfigError, match="bf16"):
        bf16(SFTConfig, bf16="sometimes")


def test_last_checkpoint(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert last_checkpoint(RunConfig(tmp_path / "none")) is None
    for step in (5, 10, 9, 11):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        if step < 11:  # 11 was broken off
            (folder / "trainer_state.json").write_text('{"global_step": 1}')
    assert last_checkpoint(RunConfig(tmp_path)) == str(tmp_path / "checkpoint-10")
    assert last_checkpoint(RunConfig(tmp_path, resume=False)) is None
    (tmp_path / "checkpoint-10" / "trainer_state.json").write_text('{"global_st')
    caplog.clear()
    assert last_checkpoint(RunConfig(tmp_path)) == str(tmp_path / "checkpoint-9")
    assert "checkpoint-10 was broken off (trainer_state.json)" in caplog.text
    (tmp_path / "checkpoint-5" / "rollouts.json").write_text("{}")
    (tmp_path / "checkpoint-9" / "rollouts.json").write_text("{")
    found = last_checkpoint(RunConfig(tmp_path), needs="rollouts.json")
    assert found == str(tmp_path / "checkpoint-5")
    assert [p.name for p in checkpoints(tmp_path)] == [f"checkpoint-{n}" for n in (5, 9, 10, 11)]
