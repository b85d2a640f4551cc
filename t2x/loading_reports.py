"""Weights that a checkpoint lacks, as diffusers and transformers tell them.

Both load such a checkpoint, leave those weights random and log a warning, which nobody sees once
the libraries are quiet. Neither gives a caller of a pipeline the same in data, so it is read from
what they log; ``tests/test_failures.py`` fails if a version words it otherwise.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

_LOGGERS = ("diffusers.models.modeling_utils", "transformers.modeling_utils")
_STYLE = re.compile(r"\x1b\[[0-9;]*m")
_TABLE = re.compile(r"(\w+) LOAD REPORT")
_ROW = re.compile(
    r"^(\S.*?) *\| *(MISSING|UNEXPECTED|MISMATCH)\b(?:.*ckpt: (.*) vs model:(.*?) *$)?",
    re.MULTILINE,
)
_NEW = re.compile(r"Some weights of (\w+) were not initialized .*newly initialized: \[(.*?)\]")
_UNUSED = re.compile(r"were not used when initializing (\w+): \s*\[['\"](.*?)['\"]\]")

# What torch and diffusers say of torchao when they import it: of its code, of parts it renamed.
LIBRARY_LOGGERS = ("diffusers.quantizers", "torch.utils._pytree")

__all__ = ["LIBRARY_LOGGERS", "Report", "quiet_imports", "watch_reports"]


@contextmanager
def quiet_imports() -> Iterator[None]:
    """Keep what libraries say to each other, when one imports another, from the user."""
    loggers = [logging.getLogger(name) for name in LIBRARY_LOGGERS]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


@dataclass
class Report:
    """What loading said: weights as "name of Class"; several layers may share one name.

    ``unused`` are those that a model of diffusers has no place for, ``unexpected`` the same of
    transformers, where that is ordinary: a text encoder is often cut out of a larger checkpoint.
    """

    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)
    mismatched: list[str] = field(default_factory=list)

    def add(self, text: str) -> None:
        """Read one message of a library."""
        text = _STYLE.sub("", text)
        if table := _TABLE.search(text):
            kinds = {
                "MISSING": self.missing,
                "UNEXPECTED": self.unexpected,
                "MISMATCH": self.mismatched,
            }
            for name, kind, *shapes in sorted(_ROW.findall(text)):
                named = f"{name} of {table[1]}"
                if all(shapes):
                    stored, built = (
                        shape.removeprefix("torch.Size").strip("()") for shape in shapes
                    )
                    named += f" is {stored} in the file, {built} in the configuration"
                kinds[kind].append(named)
        elif found := _NEW.search(text):
            names = sorted(name.strip(" '\"") for name in found[2].split(","))
            self.missing += [f"{name} of {found[1]}" for name in names]
        elif found := _UNUSED.search(text):
            names = sorted(name.strip() for name in found[2].split(","))
            self.unused += [f"{name} of {found[1]}" for name in names]


@contextmanager
def watch_reports() -> Iterator[Report]:
    """Collect what is loaded inside, at any verbosity, without a word printed.

    Loggers belong to the process, so this is for one thread at a time.
    """
    report = Report()
    handler = _Collector(report)
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    before = [(logger, logger.level, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.INFO)  # at WARNING transformers says more, of sharding
        logger.propagate = False
        logger.addHandler(handler)
    try:
        yield report
    finally:
        for logger, level, propagate in before:
            logger.removeHandler(handler)
            logger.setLevel(level)
            logger.propagate = propagate


class _Collector(logging.Handler):
    def __init__(self, report: Report) -> None:
        super().__init__(logging.WARNING)
        self._report = report

    def emit(self, record: logging.LogRecord) -> None:
        self._report.add(record.getMessage())
