"""What the build writes is whole: every function with its tests, every name, every command."""

from __future__ import annotations

import ast
import importlib
import inspect
import io
import pkgutil
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import ClassVar

import pytest
import typer
from docutils import core, nodes
from docutils.parsers.rst import Directive, directives, roles
from sphinx.ext.napoleon import GoogleDocstring

import t2x
import t2x.functional
from t2x.cli import app
from t2x.generators.presets import presets
from t2x.registry import REWARDS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def pages() -> dict[str, ModuleType]:
    names = ("papers_page", "reference_pages", "listing_pages")
    sys.path.insert(0, str(ROOT / "docs" / "_ext"))
    try:
        return {name: importlib.import_module(name) for name in names}
    finally:
        sys.path.pop(0)


def public_functions() -> set[tuple[str, str]]:
    """Found by importing, where the page reads sources."""
    found = set()
    for info in pkgutil.iter_modules(t2x.functional.__path__, "t2x.functional."):
        module = importlib.import_module(info.name)
        found |= {
            (info.name, name) for name in module.__all__ if inspect.isfunction(vars(module)[name])
        }
    return found


def test_every_equation_is_in_the_table_with_a_test_that_exists(pages):
    functions = pages["papers_page"].functions()
    listed = {(function.module, function.name) for function in functions}
    assert listed == public_functions() and len(functions) == len(listed) > 100
    for function in functions:
        assert function.tests, f"{function.module}.{function.name} has no test"
        for test in function.tests:
            file, _, name = test.partition("::")
            assert re.search(rf"^def {name}\(", (ROOT / file).read_text("utf-8"), re.MULTILINE)
    page = pages["papers_page"].papers_page()
    for module, name in listed:
        assert f"{{py:func}}`{name} <{module}.{name}>`" in page


def test_papers_are_read_from_docstrings(pages):
    read = pages["papers_page"].citations
    vqa = read("P(yes) (VQAScore, Lin et al. 2024, arXiv 2404.01291, eq. 1): (N,) in [0, 1].")
    assert [(c.paper, c.arxiv, c.place) for c in vqa] == [
        ("VQAScore, Lin et al. 2024", "2404.01291", "eq. 1")
    ]
    (named,) = read("The advantage of GRPO (Shao et al. 2024, arXiv 2402.03300, section 4.1.2).")
    assert named.paper == "GRPO, Shao et al. 2024" and named.place == "section 4.1.2"
    two = read(
        "A weight (DAS; twisted sampler, Wu et al. 2023, arXiv 2306.17775), by (Kitagawa 1996)."
    )
    assert [c.arxiv for c in two] == ["2306.17775", ""] and two[1].paper == "Kitagawa 1996"
    assert read("Mean over N (rows), of (N, K) -> (K,).") == ()


def test_papers_with_an_equation_say_where(pages):
    page = pages["papers_page"].papers_page()
    row = next(line for line in page.splitlines() if "`dpo_loss <" in line)
    assert row.startswith("| eq. 7 |") and "test_preference_losses.py" in row


def test_every_public_name_and_module_is_in_the_reference(pages):
    found = pages["reference_pages"].reference_pages()
    for name in t2x.__all__:
        assert len(re.findall(rf"^- [:`a-z]*`t2x\.{name}[` ]", found["index.rst"], re.M)) == 1, name
    described = re.findall(r"automodule:: (\S+)", "\n".join(found.values()))
    assert len(described) == len(set(described)) > 300
    for module in pkgutil.walk_packages(t2x.__path__, "t2x."):
        private = any(part.startswith("_") for part in module.name.split("."))
        left_out = module.name.startswith(("t2x.commands", "t2x.cli", "t2x.configs"))
        assert private or left_out or module.name in described, module.name
    assert {"t2x.rewards.clip_score", "t2x.train.grpo", "t2x.guidance.guide"} <= set(described)


def test_docstrings_become_restructured_text(pages):
    lines = ["Norm |x_ - y| of ``|z|``.", "", "    code |a|", "", "Args:", "    x: its |size|."]
    pages["reference_pages"]._as_restructured_text(None, "", "", None, None, lines)
    assert lines == [
        r"Norm \|x\_ - y\| of ``|z|``.", "", "::", "", "    code |a|", "", "Args:",
        r"    x: its \|size\|.",
    ]  # fmt: skip


def test_every_command_has_a_section(pages):
    page = pages["listing_pages"].commands_page()
    for name, command in typer.main.get_command(app).commands.items():
        assert f"\n## `t2x {name}`\n" in page
        for inner in getattr(command, "commands", ()):
            assert f"\n### `t2x {name} {inner}`\n" in page


def test_every_reward_has_a_row(pages):
    rows = re.findall(r"^\| `([^`]+)` \|", pages["listing_pages"].rewards_page(), re.MULTILINE)
    assert rows == sorted(REWARDS)


def test_every_published_generator_has_a_row_and_where_it_was_read(pages):
    page = pages["listing_pages"].generators_page()
    rows = re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)
    assert rows == list(presets())
    assert page.count("\n: Read in ") == len(rows)
    assert "| `flux.1-dev` | t2i, i2i | `black-forest-labs/FLUX.1-dev` | 50 | 3.5 |" in page


class Attribute(Directive):
    """What napoleon makes of "Attributes:", with its text parsed."""

    required_arguments, final_argument_whitespace, has_content = 1, True, True
    option_spec: ClassVar = {"type": str}

    def run(self) -> list[nodes.Node]:
        parent = nodes.section()
        self.state.nested_parse(self.content, self.content_offset, parent)
        return parent.children


def test_every_docstring_is_read_without_a_warning(pages):
    """What the build would stop at, in seconds; what it links to is for the build."""
    reference = pages["reference_pages"]
    for role in ("func", "class", "meth", "mod", "attr", "data", "obj", "exc"):
        roles.register_generic_role(role, nodes.literal)
    directives.register_directive("attribute", Attribute)
    warned, seen = [], 0
    for module, file in reference.files_by_module().items():
        parts = []
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            described = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
            if described and not getattr(node, "name", "").startswith("_"):
                lines = (ast.get_docstring(node) or "").splitlines()
                reference._as_restructured_text(None, "", "", None, None, lines)
                parts += [str(GoogleDocstring(lines)), "", f".. {getattr(node, 'name', '')}", ""]
                seen += 1
        errors = io.StringIO()
        settings = {"warning_stream": errors, "report_level": 2}
        core.publish_doctree("\n".join(parts), settings_overrides=settings)
        warned += [f"{module}: {line}" for line in errors.getvalue().splitlines() if line.strip()]
    assert not warned and seen > 2000
