"""What a recipe does not do is refused before it begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from t2x.config import load_config
from t2x.errors import T2XError
from t2x.registry import load_recipe
from t2x.training.config import PolicyConfig
from t2x.training.limits import refuse_unused, require_one_process

CONFIGS = Path(__file__).parents[2] / "configs" / "train" / "world"


@pytest.mark.extra("train")
@pytest.mark.parametrize("recipe", ["cooperative", "self_reward"])
def test_several_processes_are_refused_before_anything_is_written(
    recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    schema, main = load_recipe(recipe)
    out = tmp_path / "run"
    config = load_config(schema, CONFIGS / f"{recipe}.yaml", [f"run.out={out}"])
    with pytest.raises(T2XError, match=f"{recipe} runs in one process, and 2 were launched"):
        main(config)
    assert not out.exists()


def test_one_process_is_let_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "1")
    require_one_process("cooperative")
    monkeypatch.delenv("WORLD_SIZE")
    require_one_process("cooperative")


def test_options_without_effect_are_named() -> None:
    refuse_unused("grow", "policy", PolicyConfig("a"), "revision", "template")
    with pytest.raises(T2XError, match=r"policy\.template is {'user': 'x'}, which has no effect"):
        refuse_unused(
            "grow", "policy", PolicyConfig(template={"user": "x"}), "revision", "template"
        )
    with pytest.raises(T2XError, match=r"policy\.revision is 'main'.* in grow; leave it out"):
        refuse_unused("grow", "policy", PolicyConfig(revision="main"), "revision", "template")
