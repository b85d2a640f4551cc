"""``t2x train`` finds its configuration, and says what is wrong with a setting before it loads
anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from t2x.cli import run
from t2x.config import find_config
from t2x.errors import T2XError, UnknownNameError
from t2x.registry import RECIPES, load_recipe


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
def test_an_unknown_setting_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "sft", "--config", "world/sft", "trainr.max_steps=1"]) == 1
    assert "did you mean 'trainer'" in capsys.readouterr().err
