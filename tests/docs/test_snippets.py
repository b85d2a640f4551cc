"""Guides say what is so: each page's commands and Python run, in order and in one folder.

A block that can't run here says why in its fence; its command must parse, its Python must import
what there is and give loaders what they take.
"""

from __future__ import annotations

import inspect
import shlex
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import typer

import t2x
from t2x.cli import app, run
from t2x.registry import REWARDS, check_names, import_attr
from t2x.testing import FakeGenerator, FakeReward, FakeRewriter
from t2x.testing.snippets import Block, checked_loader, commands, fenced_blocks

GUIDES = {
    path.stem: fenced_blocks(path.read_text("utf-8"))
    for path in sorted((Path(__file__).parents[2] / "docs").glob("*.md"))
    # The first two hold commands of the past, the others are made by the build.
    if path.stem not in ("design", "log", "commands", "papers", "generator-list", "reward-list")
}
# How many blocks may say so: a marker is added here too, on purpose.
NOT_RUN = {"install": 2, "hub": 14, "gpu": 3, "long": 12, "app": 4}


def run_shell(block: Block) -> None:
    for line in commands(block):
        if line.startswith("t2x "):
            assert run(shlex.split(line, comments=True)[1:]) == 0, line
        else:
            subprocess.run(line, shell=True, check=True)


@pytest.mark.parametrize("page", sorted(GUIDES))
def test_what_a_guide_shows_runs(page: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TQDM_DISABLE", "1")
    names: dict[str, Any] = {"__name__": page}
    for block in GUIDES[page]:
        if block.not_run:
            continue
        if block.language == "bash":
            run_shell(block)
        elif block.language == "python":
            code = compile("\n" * block.line + block.text, f"docs/{page}.md", "exec")
            exec(code, names)


def test_blocks_that_are_not_run_are_counted():
    assert Counter(b.not_run for blocks in GUIDES.values() for b in blocks if b.not_run) == NOT_RUN
    languages = {block.language for blocks in GUIDES.values() for block in blocks}
    assert languages <= {"bash", "python", "yaml", "{toctree}"}


def parse(words: list[str]) -> None:
    """Read a command as ``t2x`` would, without running it."""
    command, name, rest, parent = typer.main.get_command(app), "t2x", words, None
    while True:
        context = command.make_context(name, rest, parent=parent)
        if not hasattr(command, "resolve_command"):
            return
        left = [*context._protected_args, *context.args]
        name, command, rest = command.resolve_command(context, left)
        parent = context


def test_commands_that_are_not_run_parse():
    blocks = [b for page in GUIDES.values() for b in page if b.not_run and b.language == "bash"]
    lines = [line for block in blocks for line in commands(block) if "t2x " in line]
    assert len(lines) > 5
    for line in lines:
        if not line.startswith(("git ", "pip ")):
            parse(shlex.split(line.partition("t2x ")[2], comments=True))


def test_python_that_is_not_run_gives_loaders_what_they_take(monkeypatch):
    diffusion = "t2x.generators.diffusion:DiffusionGenerator.from_pretrained"
    language = "t2x.rewriters.language_model:LanguageModelRewriter.from_pretrained"

    def load_reward(name: str, **options: Any) -> FakeReward:
        inspect.signature(import_attr(REWARDS[name])).bind(**options)
        return FakeReward()

    def load_generator(name: str, **options: Any) -> FakeGenerator:
        check_names("generators", [name])
        return checked_loader(diffusion, FakeGenerator())(name, **options)

    monkeypatch.setattr(t2x, "load_generator", load_generator)
    monkeypatch.setattr(t2x, "load_rewriter", checked_loader(language, FakeRewriter()))
    monkeypatch.setattr(t2x, "load_reward", load_reward)
    blocks = [b for page in GUIDES.values() for b in page if b.not_run and b.language == "python"]
    blocks = [b for b in blocks if b.not_run != "app"]  # tests/apps/browser runs those
    assert len(blocks) >= 2
    for block in blocks:
        exec(compile(block.text, "not run", "exec"), {})


def test_a_command_with_an_unknown_option_would_not_parse():
    with pytest.raises(Exception, match="No such option"):
        parse(["rewrite", "--colour", "red"])
