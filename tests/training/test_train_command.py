"""``t2x train`` finds its configuration, and says what is wrong with a setting before it loads
anything."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from t2x.cli import run
from t2x.config import find_config
from t2x.errors import T2XError, UnknownNameError
from t2x.registry import RECIPES, load_recipe
from t2x.training.config import PolicyConfig
from t2x.training.data import load_rows, templated
from t2x.training.policy import load_policy


def test_a_file_or_a_name(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("run: {out: x}\n")
    assert find_config(str(path)) == path
    assert find_config("world/grpo").name == "grpo.yaml"
    with pytest.raises(T2XError, match=r"give a YAML file or one of: .*world/grpo"):
        find_config("wrld/grpo")


@pytest.mark.extra("train")
@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_has_a_configuration(name: str) -> None:
    schema, main = load_recipe(name)
    assert {"run", "trainer"} <= set(schema.__dataclass_fields__)
    assert main.__module__ == schema.__module__


def test_what_is_wrong_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "grpp"]) == 1
    assert "unknown recipe 'grpp'" in capsys.readouterr().err
    with pytest.raises(UnknownNameError):
        load_recipe("none")


@pytest.mark.extra("train")
def test_without_a_file_one_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "grpo"]) == 1
    assert "or --config world/grpo" in capsys.readouterr().err


WRONG = {
    "trainer.max_stps=1": "did you mean 'max_steps'",
    "data.train=nowhere.jsonl": "there is no file 'nowhere.jsonl'",
    "data.validation=nowhere.jsonl": "there is no file 'nowhere.jsonl'",
    "reward.rewards.clp=1.0": "unknown reward 'clp'",
    "watch.held_out.rewards={vqa2: 1.0}": "unknown reward 'vqa2'",
    "reward.generator=emoji-flo": "unknown generator 'emoji-flo'",
    "reward.generator=runs/nowhere": "there is no folder 'runs/nowhere'",
}


def loads_nothing(*args: object, **options: object) -> None:
    raise AssertionError("loaded a model")


@pytest.mark.extra("train")
@pytest.mark.parametrize(
    ("recipe", "setting"),
    [
        *(("grpo", setting) for setting in WRONG),
        ("rebel", "reward.generator=runs/nowhere"),
        ("cooperative", "reward.rewards.clp=1.0"),
        ("self_reward", "data.train=nowhere.jsonl"),
        ("reward_model", "trainer.max_stps=1"),
        ("sft", "data.train=nowhere.jsonl"),
        ("dpo", "trainer.max_stps=1"),
        ("sem_dpo", "trainer.max_stps=1"),
    ],
)
def test_wrong_settings_are_refused_before_a_model_is_loaded(
    recipe: str,
    setting: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    module = import_module(load_recipe(recipe)[1].__module__)
    for name in ("load_policy", "load_clip", "load_trainable_vlm", "begin_run"):
        if hasattr(module, name):
            monkeypatch.setattr(module, name, loads_nothing)
    out = f"run.out={tmp_path / 'run'}"
    assert run(["train", recipe, "--config", f"world/{recipe}", out, setting]) == 1
    assert WRONG[setting] in capsys.readouterr().err


@pytest.mark.extra("train")
def test_a_template_of_another_model_is_named(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"original_prompt": "two cats", "completion": "two cat"}\n')
    policy = load_policy(PolicyConfig("emoji-lm"))
    with pytest.raises(T2XError, match=r"policy\.template_of"):
        templated(load_rows(rows), policy)


@pytest.mark.extra("train")
def test_an_unknown_setting_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "sft", "--config", "world/sft", "trainr.max_steps=1"]) == 1
    assert "did you mean 'trainer'" in capsys.readouterr().err
