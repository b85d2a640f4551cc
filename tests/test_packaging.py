"""The wheel, the leaf rule, the public names, and that every extra resolves."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import t2x

ROOT = Path(__file__).parents[1]
LEAVES = ("rewards", "train", "apps")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from a copy of what git tracks, so that stray files do not hide a gap."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    names = run("git", "ls-files", "-z", cwd=ROOT).split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    pip = (sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q")
    run(*pip, "-w", folder, source, cwd=folder)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds the installed wheel and comes before the editable install."""
    site = tmp_path_factory.mktemp("site")
    pip = (sys.executable, "-m", "pip", "install", "--no-deps", "-q", "--target", site)
    run(*pip, wheel, cwd=site)
    return site


def shipped(path: Path) -> set[str]:
    """Files of the wheel without its metadata."""
    with zipfile.ZipFile(path) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def tracked(pattern: str) -> set[str]:
    """Tracked files below the packages, by the name that they have in a wheel."""
    names = run("git", "ls-files", "-z", cwd=ROOT).split("\0")
    found = set()
    for name in names:
        top = name.partition("/")[0]
        if top in (*LEAVES, "configs", "t2x") and re.search(pattern, name):
            found.add(name if top == "t2x" else f"t2x/{name}")
    return found


def test_nothing_but_t2x_lands_in_site_packages(installed):
    names = {path.name for path in installed.iterdir()} - {"bin"}
    assert names == {"t2x", f"t2x-{t2x.__version__}.dist-info"}


def test_the_wheel_holds_every_module(wheel):
    modules = {name for name in shipped(wheel) if name.endswith(".py")}
    assert modules == tracked(r"\.py$")


def test_the_wheel_holds_every_data_file(wheel):
    """Whatever is tracked inside the package is shipped: weights, cards, sprites, licences."""
    assert shipped(wheel) == tracked(r".")
    assert "t2x/py.typed" in shipped(wheel)


def test_the_packages_are_the_folders_with_an_init():
    folders = {name.removesuffix("/__init__.py") for name in tracked(r"/__init__\.py$")}
    listed = PROJECT["tool"]["setuptools"]["packages"]
    assert sorted(folder.replace("/", ".") for folder in folders) == sorted(listed)


def test_the_installed_wheel_works_from_another_folder(installed, tmp_path):
    code = (
        "import t2x, t2x.rewards, t2x.train, t2x.apps, t2x.configs; print(t2x.__file__);"
        "[getattr(t2x, name) for name in t2x.__all__]"
    )
    out = run(sys.executable, "-c", code, cwd=tmp_path, PYTHONPATH=str(installed))
    assert Path(out.strip()).parent == installed / "t2x"
    sheet = tmp_path / "scenes.png"
    command = (sys.executable, "-m", "t2x", "world", "render", "--out", sheet)
    run(*command, cwd=tmp_path, PYTHONPATH=str(installed))
    assert sheet.stat().st_size > 1000


def test_rewards_of_the_installed_wheel_find_their_weights_and_vocabularies(installed, tmp_path):
    """The same scores as here: no file that a tokenizer or a network needs was left out."""
    import torch

    names = ("aesthetic", "clip", "hps", "vqa")
    code = (
        "import torch, t2x; media = torch.linspace(0, 1, 12288).view(1, 3, 64, 64);"
        f"print([float(t2x.load_reward(n, device='cpu').score(['a cat'], media)) for n in {names}],"
        "t2x.__file__)"
    )
    out = run(sys.executable, "-c", code, cwd=tmp_path, PYTHONPATH=str(installed))
    scores, _, file = out.strip().rpartition(" ")
    assert Path(file).parent == installed / "t2x"
    media = torch.linspace(0, 1, 12288).view(1, 3, 64, 64)
    own = [float(t2x.load_reward(n, device="cpu").score(["a cat"], media)) for n in names]
    assert ast.literal_eval(scores) == pytest.approx(own, abs=1e-5)


@pytest.mark.parametrize("leaf", [*LEAVES, "configs"])
def test_a_leaf_can_not_be_imported_by_its_folder_s_name(leaf):
    done = subprocess.run(
        [sys.executable, "-c", f"import {leaf}"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 1 and f"import t2x.{leaf}" in done.stderr


def imports(path: Path, package: str) -> Iterator[str]:
    """Absolute names of every module that a file imports, at the top or inside functions."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: 1 - node.level or None] if node.level else []
            base = ".".join([*parents, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def violations(path: Path, package: str, banned: tuple[str, ...]) -> list[str]:
    names = tuple(f"{prefix}{leaf}" for leaf in banned for prefix in ("", "t2x."))
    return [name for name in imports(path, package) if f"{name}.".startswith(names_dot(names))]


def names_dot(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{name}." for name in names)


def test_core_never_imports_a_leaf():
    for path in (ROOT / "t2x").rglob("*.py"):
        package = ".".join(path.relative_to(ROOT).parent.parts)
        assert not violations(path, package, LEAVES), path


@pytest.mark.parametrize("leaf", LEAVES)
def test_leaves_never_import_each_other(leaf):
    others = tuple(name for name in LEAVES if name != leaf)
    for path in (ROOT / leaf).rglob("*.py"):
        assert not violations(path, f"t2x.{leaf}", others), path


@pytest.mark.parametrize(
    ("line", "package"),
    [
        ("import t2x.rewards.clip_score", "t2x"),
        ("from t2x import rewards", "t2x"),
        ("from t2x.rewards import clip_score", "t2x.world"),
        ("from .rewards import clip_score", "t2x"),
        ("from ..rewards.vqa import load", "t2x.world"),
        ("def f():\n    from rewards import vqa", "t2x"),
    ],
)
def test_the_rule_sees_every_way_of_importing(tmp_path, line, package):
    (tmp_path / "module.py").write_text(line)
    assert violations(tmp_path / "module.py", package, ("rewards",))
    (tmp_path / "module.py").write_text("from t2x import registry\nimport rewardsx")
    assert not violations(tmp_path / "module.py", package, ("rewards",))


def imported_at_once(path: Path) -> Iterator[str]:
    """Modules that a file imports when it is imported itself: not those of a function, and not
    those for the type checker alone."""
    left = list(ast.parse(path.read_text("utf-8")).body)
    while left:
        node = left.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            left += node.orelse
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        left += [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)]


def first_import(package: str, other: str) -> str:
    """A module of a package of core that imports one of another at once; empty if none does."""
    for path in sorted((ROOT / "t2x" / package).rglob("*.py")):
        if any(f"{name}.".startswith(f"t2x.{other}.") for name in imported_at_once(path)):
            return str(path.relative_to(ROOT))
    return ""


@pytest.mark.parametrize(("one", "other"), [("rollouts", "training"), ("claims", "commands")])
def test_packages_of_core_are_not_imported_in_a_circle(one, other):
    found = first_import(one, other), first_import(other, one)
    assert not all(found), f"a circle: {' and '.join(found)}"


def test_only_the_command_line_knows_the_commands():
    """Nowhere else, functions included: what a command and the library share is the library's."""
    for path in (ROOT / "t2x").rglob("*.py"):
        if path.parent.name != "commands" and path.name != "cli.py":
            package = ".".join(path.relative_to(ROOT).parent.parts)
            named = [n for n in imports(path, package) if n.startswith("t2x.commands")]
            assert not named, path


def test_what_is_imported_at_once_leaves_functions_and_types_out(tmp_path):
    (tmp_path / "module.py").write_text(
        "import a\nif TYPE_CHECKING:\n    import b\nelse:\n    import c\n"
        "def f():\n    import d\nclass C:\n    from e import g\n"
    )
    assert sorted(imported_at_once(tmp_path / "module.py")) == ["a", "c", "e.g"]


def test_public_names_are_sorted_and_all_importable():
    assert list(t2x.__all__) == sorted(t2x.__all__)
    assert set(t2x._LAZY) < set(t2x.__all__)
    for name in t2x.__all__:
        assert getattr(t2x, name) is not None
    assert set(t2x.__all__) <= set(dir(t2x))
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = t2x.Nothing


def test_the_checker_sees_the_same_public_names():
    """The TYPE_CHECKING imports, the lazy table and ``__all__`` agree."""
    tree = ast.parse((ROOT / "t2x" / "__init__.py").read_text("utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {alias.name: node.module for node in block.body for alias in node.names}
    assert seen == t2x._LAZY


def test_extras_of_the_registry_are_those_of_the_package():
    from t2x.registry import EXTRAS

    extras = set(PROJECT["project"]["optional-dependencies"])
    assert set(EXTRAS.values()) == extras - {"dev", "docs"}  # which no module of t2x imports


@pytest.mark.hub
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("extra", sorted(PROJECT["project"]["optional-dependencies"]))
def test_every_extra_resolves(extra, tmp_path):
    """In an empty environment: the resolver finds one set of versions for base and extra."""
    run(sys.executable, "-m", "venv", tmp_path / "env", cwd=tmp_path)
    pip = (tmp_path / "env" / "bin" / "python", "-m", "pip", "install", "--dry-run", "-q")
    run(*pip, f"t2x[{extra}] @ {ROOT.as_uri()}", cwd=tmp_path)


@pytest.mark.parametrize(
    ("body", "ci", "code", "spread"),
    [
        ("pytest.skip('no reason')", "true", 1, ()),
        ("pytest.skip('no reason')", "true", 1, ("-n", "2")),
        ("pytest.skip('no reason')", "", 0, ()),
        ("assert True", "true", 0, ("-n", "2")),
        ("pytest.xfail('known')", "true", 0, ()),
    ],
)
def test_in_ci_a_skipped_test_of_the_base_install_fails(tmp_path, body, ci, code, spread):
    (tmp_path / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text("utf-8"))
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = extra(name): x\n  gpu: y\n")
    (tmp_path / "test_it.py").write_text(
        f"import pytest\n\ndef test_it():\n    {body}\n\n"
        "@pytest.mark.gpu\ndef test_gpu():\n    pytest.skip('no device')\n\n"
        "@pytest.mark.extra('vllm')\ndef test_extra():\n    pass\n"
    )
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *spread)
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "CI": ci}, capture_output=True, text=True
    )
    assert done.returncode == code, done.stdout
    assert ("test_it.py::test_it: " in done.stdout) == bool(code)


@pytest.mark.parametrize("spread", [(), ("-n", "2")])
def test_in_ci_a_skipped_module_fails(tmp_path, spread):
    (tmp_path / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text("utf-8"))
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = extra(name): x\n")
    (tmp_path / "test_it.py").write_text("import pytest\npytest.importorskip('nothing_like_it')\n")
    (tmp_path / "test_more.py").write_text("def test_it():\n    pass\n")
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *spread)
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "CI": "true"}, capture_output=True, text=True
    )
    assert done.returncode == 1 and "test_it.py: " in done.stdout
