"""Writes the table of papers, equations, functions and tests, from the docstrings of
``t2x/functional`` and the tests that call them.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reference_pages import ROOT, first_sentence, write_pages

import t2x

if TYPE_CHECKING:
    from sphinx.application import Sphinx

__all__ = ["Citation", "Function", "citations", "functions", "papers_page", "setup"]

# "VQAScore (Lin et al. 2024, arXiv 2404.01291, eq. 1)", "RewardFlow's weights (arXiv 2604.08536)".
IN_BRACKETS = re.compile(r"\(([^()]*?\b(?:arXiv \d{4}\.|(?:19|20)\d\d\b)[^()]*)\)")
ARXIV = re.compile(r"arXiv (\d{4}\.\d{4,5})")
PLACE = re.compile(
    r"(?:eq\.|section|algorithms?|definition|appendix) [\w.]+(?<!\.)(?: and \w+)?[^,;]*"
)
NAME = re.compile(r"(?<![\w-])(?=[\w-]{3})[A-Z][A-Za-z0-9-]*[A-Z][A-Za-z0-9-]*(?!\w)")
NO_PAPER = "Identities, statistics and classical measures"


@dataclass(frozen=True)
class Citation:
    """``paper``: authors and year as the docstring has them, ``arxiv``: its number or "",
    ``place``: equation or section, or ""."""

    paper: str
    arxiv: str
    place: str


@dataclass(frozen=True)
class Function:
    """A public function of ``t2x/functional``; ``tests``: names as pytest knows them."""

    module: str
    name: str
    summary: str
    citations: tuple[Citation, ...]
    tests: tuple[str, ...]


def citations(docstring: str) -> tuple[Citation, ...]:
    """Papers that a docstring names in brackets, in its order, each once."""
    text = " ".join(docstring.split())
    found: dict[str, Citation] = {}
    for match in IN_BRACKETS.finditer(text):
        names = NAME.findall(text[: match.start()].rpartition(". ")[2])
        for part in match.group(1).split("; "):
            if not re.search(r"arXiv|\d{4}", part):
                continue
            number, place = ARXIV.search(part), PLACE.search(part)
            ends = [found_at.start() for found_at in (number, place) if found_at]
            paper = part[: min(ends, default=len(part))].strip(" ,")
            if names and not NAME.match(paper) and " of " not in paper:
                paper = f"{names[-1]}, {paper}".rstrip(", ")
            new = Citation(paper, number[1] if number else "", place[0].strip() if place else "")
            key = new.arxiv or paper
            if key not in found or not found[key].place:
                found[key] = new
    return tuple(found.values())


def functions() -> list[Function]:
    """Every function in ``__all__`` of the modules of ``t2x/functional``."""
    tests = tests_by_name()
    trees = {
        file.stem: ast.parse(file.read_text("utf-8"))
        for file in sorted((ROOT / "t2x" / "functional").glob("[!_]*.py"))
    }
    named = _papers_by_name(trees.values())
    found = []
    for stem, tree in trees.items():
        public, shared = _public(tree), citations(ast.get_docstring(tree) or "")
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and node.name in public:
                text = ast.get_docstring(node) or ""
                # "(FK steering)": a paper that another docstring cites in full.
                short = tuple(paper for name, paper in named.items() if f"({name})" in text)
                cited = citations(text) or short or shared
                line = first_sentence(IN_BRACKETS.sub("", text))
                module = f"t2x.functional.{stem}"
                found.append(Function(module, node.name, line, cited, tuple(tests[node.name])))
    return found


def _papers_by_name(trees: Iterable[ast.Module]) -> dict[str, Citation]:
    texts = (
        ast.get_docstring(node) or ""
        for tree in trees
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
    )
    cited = (citation for text in texts for citation in citations(text))
    return {
        citation.paper.partition(",")[0]: Citation(citation.paper, citation.arxiv, "")
        for citation in cited
        if citation.arxiv and "," in citation.paper
    }


def _public(tree: ast.Module) -> set[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


@cache
def tests_by_name() -> dict[str, list[str]]:
    """Tests that use what they import from ``t2x.functional``, by its name."""
    found: dict[str, list[str]] = defaultdict(list)
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        text = file.read_text("utf-8")
        if "t2x.functional" in text:
            for test, name in _uses(ast.parse(text)):
                found[name].append(f"{file.relative_to(ROOT)}::{test}")
    return found


def _uses(tree: ast.Module) -> Iterator[tuple[str, str]]:
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("t2x.functional")
        for alias in node.names
    }
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            words = {
                getattr(part, "id", getattr(part, "attr", ""))
                for part in ast.walk(node)
                if isinstance(part, ast.Name | ast.Attribute)
            }
            yield from ((node.name, name) for name in sorted(words & imported))


def papers_page() -> str:
    """The table as a page: a section for each paper, a row for each of its functions."""
    rows: dict[tuple[str, str], list[tuple[str, Function]]] = defaultdict(list)
    labels: dict[str, str] = {}
    for function in functions():
        for citation in function.citations:
            if citation.arxiv and len(citation.paper) > len(labels.get(citation.arxiv, "")):
                labels[citation.arxiv] = citation.paper
        for citation in function.citations or (Citation(NO_PAPER, "", ""),):
            key = ("" if citation.arxiv else citation.paper, citation.arxiv)
            rows[key].append((citation.place, function))
    lines = [
        "# Papers, equations, functions, tests",
        "",
        "Made from the docstrings of `t2x/functional` and from the tests that call each function,",
        "when the site is built. A docstring says where a function differs from its paper.",
        "",
    ]
    for (paper, arxiv), entries in sorted(rows.items(), key=lambda row: _order(row[0], labels)):
        link = f"[arXiv {arxiv}](https://arxiv.org/abs/{arxiv})"
        name = labels.get(arxiv, "")
        lines += [f"## {name + ', ' if name else ''}{link}" if arxiv else f"## {paper}", ""]
        lines += ["| place | function | what it is | tests |", "|---|---|---|---|"]
        lines += [_row(place, function) for place, function in entries]
        lines.append("")
    return "\n".join(lines)


def _order(key: tuple[str, str], labels: dict[str, str]) -> tuple[bool, str]:
    paper, arxiv = key
    return paper == NO_PAPER, (labels.get(arxiv, arxiv) or paper).lower()


def _row(place: str, function: Function) -> str:
    name = f"{function.module}.{function.name}"
    by_file: dict[str, list[str]] = defaultdict(list)
    for test in function.tests:
        file, _, own_name = test.partition("::")
        by_file[file].append(f"`{own_name}`")
    tests = "<br>".join(f"`{file}`: {', '.join(names)}" for file, names in by_file.items())
    cells = (place, f"{{py:func}}`{function.name} <{name}>`", _plain(function.summary), tests)
    return f"| {' | '.join(cells)} |"


def _plain(text: str) -> str:
    """A sentence of reStructuredText for a cell of a Markdown table."""
    text = re.sub(r":\w+:`([^`]+)`", r"`\1`", text).replace("``", "`")
    return (
        re.sub(r"(?<!\\)([|*_<\[])", r"\\\1", text) if "`" not in text else text.replace("|", "\\|")
    )


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect(
        "config-inited", lambda app, _: write_pages(Path(app.srcdir), {"papers.md": papers_page()})
    )
    return {"version": t2x.__version__, "parallel_read_safe": True}
