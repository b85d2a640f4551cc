"""Training and validation rows of a recipe are two sets, and what they share is said."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from t2x.data.decontaminate import Match
from t2x.errors import T2XError
from t2x.training import run
from t2x.training.config import DataConfig, PolicyConfig
from t2x.training.policy import Policy, load_policy
from t2x.training.run import load_data

pytestmark = pytest.mark.extra("train")

ANIMALS = ["cat", "dog", "bear", "horse", "sheep"]
TRAIN = [f"{n} {a}s on a shelf" for n in ("two", "three", "four", "five", "six") for a in ANIMALS]
HELD = [f"{n} {a}s by a house" for n in ("two", "three", "four", "five", "six") for a in ANIMALS]


@pytest.fixture(scope="module")
def policy() -> Policy:
    return load_policy(PolicyConfig())


def write(path: Path, prompts: list[str]) -> str:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps({"original_prompt": p}) + "\n" for p in prompts))
    return str(path)


def test_every_set_is_its_own_split_of_a_folder(policy: Policy, tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    write(folder / "train.jsonl", TRAIN)
    write(folder / "validation.jsonl", HELD)
    found = load_data(DataConfig(str(folder), str(folder)), policy)
    assert list(found.train["original_prompt"]) == TRAIN
    assert found.prompts == HELD
    turned = DataConfig(str(folder), str(folder), None, "validation", "train")
    assert load_data(turned, policy).prompts == TRAIN
    with pytest.raises(T2XError, match=r"split 'none'.* can't be read"):
        load_data(DataConfig(str(folder), str(folder), validation_split="none"), policy)


def test_validation_is_apart_from_training(
    policy: Policy, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train = write(tmp_path / "train.jsonl", TRAIN)
    same = write(tmp_path / "same.jsonl", [f"{p.upper()}!" for p in TRAIN])
    with pytest.raises(T2XError, match="25 of 25 validation prompts"):
        load_data(DataConfig(train, same), policy)
    few = write(tmp_path / "few.jsonl", [*HELD, TRAIN[3]])
    caplog.clear()
    assert len(load_data(DataConfig(train, few), policy).prompts) == len(HELD) + 1
    assert "1 of 26 validation prompts" in caplog.text


def test_benchmark_prompts_are_counted(
    policy: Policy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    train = write(tmp_path / "train.jsonl", TRAIN)
    with caplog.at_level(logging.WARNING):
        load_data(DataConfig(train), policy)
        assert "benchmark" not in caplog.text
        known = {TRAIN[0]: Match("geneval", "exact"), TRAIN[1]: Match("parti", "near")}
        monkeypatch.setattr(run, "find_benchmark", known.get)
        load_data(DataConfig(train), policy)
    assert "2 training rows" in caplog.text
    assert "geneval 1, parti 1" in caplog.text
