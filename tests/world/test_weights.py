"""Embedded models: what counts as present, and cards that say what lies beside them."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from t2x.errors import T2XError
from t2x.registry import import_attr
from t2x.world import weights
from t2x.world.weights import EMBEDDED, is_present, model_dir, require_model

SEVERAL_RUNS = "emoji-flow"  # no single command gives its weights; the card tells the stages


def _parameters(folder: Path) -> int:
    """Numbers in all weight files of a folder, from their headers."""
    total = 0
    for path in folder.rglob("*.safetensors"):
        with path.open("rb") as file:
            header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        header.pop("__metadata__", None)
        total += sum(torch.Size(tensor["shape"]).numel() for tensor in header.values())
    return total


@pytest.mark.parametrize("name", EMBEDDED)
def test_a_recipes_own_folder_is_no_model(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trained into the package's folder by mistake: what loads is one folder further down."""
    monkeypatch.setattr(weights, "MODELS", tmp_path)
    part = "pipeline" if "flow" in name else "model"
    inner = tmp_path / name / part
    inner.mkdir(parents=True)
    save_file({"weight": torch.zeros(1)}, inner / "model.safetensors")
    assert not is_present(name)
    with pytest.raises(T2XError) as caught:
        require_model(name)
    assert f"t2x world train {name} --out runs/{name}," in str(caught.value)
    assert f"copy what is in runs/{name}/{part} to {tmp_path / name}" in str(caught.value)


@pytest.mark.parametrize("name", [n for n in EMBEDDED if model_dir(n).is_dir()])
def test_what_is_shipped_is_present(name: str) -> None:
    assert is_present(name)


def _card(name: str) -> str:
    return (model_dir(name) / "README.md").read_text(encoding="utf-8")


def _claims(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"([\d.]+) M(?:\)| parameters)", text)]


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("emoji-clip", "."),
        ("emoji-vlm", "."),
        ("emoji-lm", "."),
        ("emoji-flow", "text_encoder"),
        ("emoji-flow", "unet"),
        ("emoji-flow", "vae"),
    ],
)
def test_cards_state_the_size_of_their_weights(name: str, part: str) -> None:
    """One claim in millions rounds to what the files hold."""
    size = _parameters(require_model(name) / part) / 1e6
    claims = _claims(_card(name))
    assert any(claim in (round(size), round(size, 1)) for claim in claims), (size, claims)


def _stated(card: str, key: str) -> float:
    found = re.search(rf"^(?:\| {key} \|| ?{key}:) ([\d.]+)(?: \|)?$", card, re.MULTILINE)
    assert found is not None, f"the card states no {key}"
    return float(found[1])


@pytest.mark.parametrize("name", [n for n in EMBEDDED if is_present(n) and n != SEVERAL_RUNS])
def test_cards_state_the_budget_of_their_command(name: str) -> None:
    """Steps and seconds are those of --steps or --minutes, without them of the recipe."""
    card = _card(name)
    command = re.search(rf"t2x world train {name}(?![\w-])(?: --(steps|minutes) (\d+))?", card)
    assert command is not None
    recipe = import_attr(f"t2x.train.{name.replace('-', '_')}:main").__globals__
    unit = command[1] or ("steps" if "DEFAULT_STEPS" in recipe else "minutes")
    budget = float(command[2] or recipe[f"DEFAULT_{unit.upper()}"])
    if unit == "steps":
        assert _stated(card, "steps") == budget
    else:
        assert _stated(card, "seconds") == pytest.approx(60 * budget, rel=0.02)
