"""The README does what it says: code that runs, complete tables, links that lead somewhere."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import t2x
from t2x.media import load_picture
from t2x.registry import COMMANDS, REWARDS
from t2x.testing import FakeGenerator, FakeReward, FakeRewriter
from t2x.testing.snippets import checked_loader, fenced_blocks
from t2x.world.weights import EMBEDDED

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
BLOCKS = [block.text for block in fenced_blocks(README) if block.language == "python"]


def test_the_python_example_runs_on_the_embedded_models(capsys: pytest.CaptureFixture[str]):
    names: dict[str, Any] = {}
    exec(compile(BLOCKS[0], "README.md", "exec"), names)
    rewrite, pictures, scores = (names[name] for name in ("rewrite", "pictures", "scores"))
    assert rewrite.status in ("accepted", "unchanged", "reverted", "failed")
    assert pictures.shape == (2, 3, 64, 64) and pictures.std() > 0.01
    assert scores.shape == (2,) and torch.isfinite(scores).all()
    assert torch.equal(load_picture("rewritten.png")[0], pictures[1])
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == f"{rewrite.status} {rewrite.text}" and len(printed) == 2
    assert len([line for line in BLOCKS[0].splitlines() if line.strip()]) <= 12


def test_the_example_with_real_checkpoints_gives_its_loaders_what_they_take(monkeypatch):
    diffusion = "t2x.generators.diffusion:DiffusionGenerator.from_pretrained"
    language = "t2x.rewriters.language_model:LanguageModelRewriter.from_pretrained"
    monkeypatch.setattr(t2x, "load_generator", checked_loader(diffusion, FakeGenerator()))
    monkeypatch.setattr(t2x, "load_rewriter", checked_loader(language, FakeRewriter()))
    monkeypatch.setattr(t2x, "load_reward", checked_loader(REWARDS["clip"], FakeReward()))
    exec(compile(BLOCKS[1], "README.md", "exec"), {})
    assert sorted(os.listdir("out")) == ["compare.png", "report.html", "result.json"]


@pytest.mark.hub
@pytest.mark.gpu
def test_the_example_with_real_checkpoints_runs():
    exec(compile(BLOCKS[1], "README.md", "exec"), {})
    assert Path("out/compare.png").is_file()


def test_it_is_short_and_names_no_machine():
    assert len(README.splitlines()) <= 150
    assert not re.search(r"(^|[\s(\"'`])/(work|root|tmp|home|opt)/", README)


def test_every_embedded_model_and_reward_has_a_row():
    first_cells = re.findall(r"^\| ([^|]+) \|", README, re.MULTILINE)
    for name in EMBEDDED:
        assert first_cells.count(name) == 1, f"{name} needs one row"
    rewards = re.findall(r"`([\w.-]+)`", " ".join(first_cells))
    for name in REWARDS:
        assert rewards.count(name) == 1, f"{name} needs one row"


def test_commands_and_files_that_it_names_exist():
    from t2x.cli import app

    known = {command.name or command.callback.__name__ for command in app.registered_commands}
    known |= {group.name for group in app.registered_groups}
    named = set(re.findall(r"(?:`|^)t2x ([a-z]+)\b", README, re.MULTILINE))
    assert {"demo", "rewrite", "generate", "score", "list", "world"} <= named
    assert named <= known
    assert not set(re.findall(r"t2x world train ([a-z-]+)", README)) - set(COMMANDS)
    for target in re.findall(r"\]\(([^)]+)\)", README):
        assert target.startswith("https://") or (ROOT / target).is_file(), target
    developing = README.partition("## Developing")[2]
    folders = re.findall(r"`(\w+)/`", developing)
    assert len(folders) >= 8
    for name in folders:
        assert (ROOT / name).is_dir() or (ROOT / "t2x" / name).is_dir(), name
    for name in re.findall(r"\b(\w+\.(?:py|md))\b", developing):
        found = (*ROOT.glob(f"t2x/**/{name}"), *ROOT.glob(f"*/{name}"), *ROOT.glob(name))
        assert found, name
