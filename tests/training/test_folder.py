"""A run's folder is that of one run."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from t2x.errors import T2XError
from t2x.training.config import DataConfig, RunConfig
from t2x.training.folder import take_folder
from t2x.watching.config import WatchConfig


@dataclass(frozen=True)
class Config:
    run: RunConfig
    data: DataConfig
    watch: WatchConfig = field(default_factory=WatchConfig)
    trainer: dict[str, Any] = field(default_factory=dict)


@pytest.fixture
def begun(tmp_path: Path) -> Config:
    """A run that has a checkpoint."""
    config = Config(RunConfig(tmp_path / "run", seed=1), DataConfig("a"), trainer={"max_steps": 2})
    take_folder(config)
    (config.run.out / "checkpoint-2").mkdir()
    (config.run.out / "log.jsonl").write_text('{"step": 2}\n')
    return config


def stored(config: Config) -> Any:
    return yaml.safe_load((config.run.out / "config.yaml").read_text())


def test_the_same_run_goes_on(begun: Config) -> None:
    more = replace(
        begun,
        run=replace(begun.run, threads=1),
        trainer={"max_steps": 9},
        watch=WatchConfig(bar=False),
    )
    take_folder(more)
    assert (begun.run.out / "checkpoint-2").is_dir()
    assert stored(begun)["trainer"] == {"max_steps": 9}
    text = (begun.run.out / "config.yaml").read_text()
    (begun.run.out / "config.yaml").write_text(text.replace("  train_split: train\n", ""))
    take_folder(more)  # a setting that is newer than the run has its default


@pytest.mark.parametrize("part", ["checkpoint-2", "rounds", "turns"])
def test_other_settings_are_refused(begun: Config, part: str) -> None:
    (begun.run.out / "checkpoint-2").rename(begun.run.out / part)
    trainer = {"max_steps": 2, "learning_rate": 1.0}
    other = Config(replace(begun.run, seed=9), DataConfig("b"), trainer=trainer)
    with pytest.raises(T2XError) as raised:
        take_folder(other)
    for said in (
        "run.seed given is 9, stored is 1",
        "data.train given is 'b', stored is 'a'",
        "trainer.learning_rate given is 1.0, stored is None",
        "run.resume=false",
    ):
        assert said in str(raised.value)
    assert stored(begun)["run"]["seed"] == 1


def test_starting_over_leaves_nothing_to_go_on_from(begun: Config) -> None:
    (begun.run.out / "rounds" / "0").mkdir(parents=True)
    (begun.run.out / "notes.txt").touch()
    take_folder(replace(begun, run=replace(begun.run, seed=9, resume=False)))
    assert sorted(p.name for p in begun.run.out.iterdir()) == ["config.yaml", "notes.txt"]
    assert stored(begun)["run"]["seed"] == 9


def test_a_run_without_checkpoints_may_change(begun: Config) -> None:
    (begun.run.out / "checkpoint-2").rmdir()
    take_folder(replace(begun, data=DataConfig("b")))
    assert stored(begun)["data"]["train"] == "b"


def test_a_record_that_cannot_be_read_is_said(begun: Config) -> None:
    (begun.run.out / "config.yaml").write_text("run: [")
    with pytest.raises(T2XError, match=r"are of another run: .*not valid YAML"):
        take_folder(begun)
