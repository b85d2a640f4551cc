"""Rules of the suite: tests of absent extras are skipped, and in CI nothing else may be; torch
computes on a fixed number of threads.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from t2x.registry import EXTRAS, has_extra

ALLOWED = ("gpu", "hub", "extra")
FORBIDDEN = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[FORBIDDEN] = []
    # Read by torch when a test first imports it, and by processes that tests start: sums must not
    # change with the machine, and the models here are too small for a second thread to pay.
    os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("extra"):
        (name,) = mark.args
        if name not in EXTRAS.values():
            raise pytest.UsageError(f"{item.nodeid}: there is no extra {name!r}")
        if not has_extra(name):
            pytest.skip(f"needs pip install 't2x[{name}]'")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    expected = hasattr(report, "wasxfail") or any(map(item.get_closest_marker, ALLOWED))
    if report.skipped and not expected:
        item.config.stash[FORBIDDEN].append(f"{item.nodeid}: {report.longrepr}")
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    report = yield
    if report.skipped:
        collector.config.stash[FORBIDDEN].append(f"{collector.nodeid}: {report.longrepr}")
    return report


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Hear from a process of ``pytest -n`` that ended what it skipped."""
    output = getattr(node, "workeroutput", {})  # absent where the process crashed
    node.config.stash[FORBIDDEN].extend(output.get("skipped", []))


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    skipped = session.config.stash[FORBIDDEN]
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["skipped"] = skipped
    elif skipped and os.environ.get("CI") and exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if config.stash[FORBIDDEN] and os.environ.get("CI"):
        terminalreporter.section("skipped in CI, where the base install must run everything")
        for line in config.stash[FORBIDDEN]:
            terminalreporter.line(line)


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run every test in an empty folder, so that none writes into the checkout."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    """Remove log handlers that a test leaves: the command binds one to its test's stderr, and
    makes what is loaded known."""
    root, loading = logging.getLogger(), logging.getLogger("t2x.loading")
    before, level = list(root.handlers), root.level
    yield
    loading.handlers, loading.propagate = [], True
    loading.setLevel(logging.NOTSET)
    for handler in [h for h in root.handlers if h not in before]:
        root.removeHandler(handler)
    root.setLevel(level)


@pytest.fixture(autouse=True)
def _own_threads() -> Iterator[None]:
    """Undo what a test changes about torch's threads; tests without torch don't import it."""
    yield
    torch = sys.modules.get("torch")
    number = int(os.environ["OMP_NUM_THREADS"].partition(",")[0])
    if torch is not None and torch.get_num_threads() != number:
        torch.set_num_threads(number)
