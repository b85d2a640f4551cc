"""Writes the pages of the API reference, one for each package, from the docstrings."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import t2x

if TYPE_CHECKING:
    from sphinx.application import Sphinx

__all__ = ["imported_names", "modules_by_package", "reference_pages", "setup", "write_pages"]

ROOT = Path(__file__).parents[2]
FOLDERS = {
    "t2x": ROOT / "t2x",
    "t2x.rewards": ROOT / "rewards",
    "t2x.train": ROOT / "train",
    "t2x.apps": ROOT / "apps",
}
# What a person types is in the reference of commands.
LEFT_OUT = ("t2x.__main__", "t2x.cli", "t2x.commands")


@cache
def files_by_module() -> dict[str, Path]:
    """File of each public module that the reference shows, packages included."""
    found = {}
    for package, folder in FOLDERS.items():
        for file in sorted(folder.rglob("*.py")):
            parts = file.relative_to(folder).with_suffix("").parts
            if parts[-1] == "__init__":
                parts = parts[:-1]
            name = ".".join((package, *parts))
            if not name.startswith(LEFT_OUT):
                found[name] = file
    return found


def modules_by_package() -> dict[str, list[str]]:
    """Modules of each package, the package itself not among them."""
    files = files_by_module()
    packages: dict[str, list[str]] = {
        name: [] for name, file in files.items() if file.name == "__init__.py"
    }
    for name, file in files.items():
        if file.name != "__init__.py":
            packages[name.rpartition(".")[0]].append(name)
    return packages


def first_sentence(docstring: str) -> str:
    text = " ".join(docstring.partition("\n\n")[0].split())
    sentence = re.split(r"(?<!\bal)(?<!\beq)(?<=[.:;])\s", text)[0]
    return sentence.rstrip(".:; ").replace(" ,", ",") + "."


def title(text: str, line: str) -> list[str]:
    return [text, line * len(text), ""]


def package_page(package: str, modules: list[str]) -> str:
    lines = [*title(package, "="), f".. automodule:: {package}", ""]
    for module in modules:
        lines += [*title(module, "-"), f".. automodule:: {module}", "   :members:", ""]
    return "\n".join(lines)


def index_page(packages: Mapping[str, list[str]]) -> str:
    """Names of ``t2x.__all__`` with links to where they are described, then the packages."""
    lines = [*title("API reference", "="), "Names that ``import t2x`` gives:", ""]
    for name in t2x.__all__:
        module = "t2x.errors" if name.endswith("Error") else t2x._LAZY.get(name, "")
        whole = f"{module}.{name}"
        described = imported_names(module).get(name) == whole
        lines.append(f"- :py:obj:`t2x.{name} <{whole}>`" if described else f"- ``t2x.{name}``")
    lines += ["", "Packages:", "", ".. toctree::", "   :maxdepth: 1", ""]
    lines += [f"   {package}" for package in packages]
    return "\n".join([*lines, ""])


def reference_pages() -> dict[str, str]:
    """Text of each page by its file name."""
    packages = modules_by_package()
    pages = {f"{name}.rst": package_page(name, modules) for name, modules in packages.items()}
    return {"index.rst": index_page(packages), **pages}


def write_pages(folder: Path, pages: Mapping[str, str]) -> None:
    """Write what is new or differs, so that a second build reads only what has changed."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages.items():
        file = folder / name
        if not file.is_file() or file.read_text("utf-8") != text:
            file.write_text(text, "utf-8")


@cache
def constants(module: str) -> set[str]:
    """Names that a module assigns."""
    file = files_by_module().get(module)
    body = ast.parse(file.read_text("utf-8")).body if file else []
    targets = [node.targets for node in body if isinstance(node, ast.Assign)]
    targets += [[node.target] for node in body if isinstance(node, ast.AnnAssign)]
    return {part.id for group in targets for part in group if isinstance(part, ast.Name)}


@cache
def imported_names(module: str) -> dict[str, str]:
    """Whole names of what a module imports or defines, those for type checkers included."""
    file = files_by_module().get(module)
    if file is None:
        return {}
    return dict(_names(module, ast.parse(file.read_text("utf-8"))))


def _names(module: str, tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node.name, f"{module}.{node.name}"


def _name_in_full(app: Sphinx, doctree: Any) -> None:
    """Make names in signatures and docstrings whole, as their module imports them: Sphinx would
    take any class of that name. What a docstring links to has to be there."""
    from docutils.nodes import literal
    from sphinx.addnodes import pending_xref

    for node in doctree.findall(pending_xref):
        if node.get("refdomain") == "py":
            first, dot, rest = node["reftarget"].partition(".")
            known = imported_names(node.get("py:module") or "")
            node["reftarget"] = known.get(first, first) + dot + rest
            node["refspecific"] = False
            # Constants have no docstring and so no place in the reference: they only have to exist.
            constant = node["reftype"] == "data" and first in constants(node.get("py:module") or "")
            node["refwarn"] = isinstance(node[0], literal) and not constant


def _as_restructured_text(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Change a docstring where its plain text would mean something else: |x| is a norm and x_ a
    symbol, an indented paragraph is code, and so is one in columns."""
    found: list[str] = []
    code, before = False, " "
    for empty, group in groupby(lines, key=lambda line: not line.strip()):
        block = list(group)
        if empty:
            found += block
            continue
        indented = all(line.startswith("    ") for line in block)
        columns = not indented and any(re.search(r"\S {3,}\S", line) for line in block)
        starts = columns or (indented and not before.startswith((" ", "-")))
        code = starts or (code and indented)
        if starts:
            found += ["::", ""]
        shift = "    " if columns else ""
        found += [shift + line if code else _escaped(line) for line in block]
        before, code = block[-1] if not columns else " ", code and not columns
    lines[:] = found


def _escaped(line: str) -> str:
    parts = line.split("``")
    parts[::2] = [re.sub(r"(?<!\\)\||(?<=\w)_(?!\w)", r"\\\g<0>", part) for part in parts[::2]]
    return "``".join(parts)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect(
        "config-inited",
        lambda app, _: write_pages(Path(app.srcdir) / "reference", reference_pages()),
    )
    # Before napoleon, which reads the sections of arguments.
    app.connect("autodoc-process-docstring", _as_restructured_text, priority=400)
    app.connect("doctree-read", _name_in_full)
    return {"version": t2x.__version__, "parallel_read_safe": True}
