"""One line of the report of ``t2x doctor``, and all of them in order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypeVar

from t2x.failures import first_line

Status: TypeAlias = Literal["ok", "warning", "problem"]
T = TypeVar("T")

__all__ = ["Finding", "Status", "examine", "within"]


@dataclass(frozen=True)
class Finding:
    """What was found about ``topic``.

    Args:
        topic: one or two words, such as "memory".
        status: "problem" is what keeps t2x from working, "warning" what may surprise.
        said: what is there, in one line.
        advice: what to do; empty where all is well.
        facts: the same as JSON values, sizes in bytes.
    """

    topic: str
    status: Status
    said: str
    advice: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


def examine() -> list[Finding]:
    """Look at the machine, the installation, the cache and the hub; seconds, without a download.

    A check that fails by itself is a warning with its reason.
    """
    from t2x.doctor import hub, machine, packages

    checks: list[tuple[str, Callable[[], list[Finding]]]] = [
        ("python", machine.check_python),
        ("processor", machine.check_processor),
        ("memory", machine.check_memory),
        ("accelerators", machine.check_accelerators),
        ("libraries", packages.check_libraries),
        ("extras", packages.check_extras),
        ("cache", hub.check_cache),
        ("hub", hub.check_hub),
        ("embedded models", hub.check_embedded),
    ]
    found: list[Finding] = []
    for topic, check in checks:
        try:
            found += check()
        except Exception as error:
            found.append(Finding(topic, "warning", f"could not be checked: {first_line(error)}"))
    return found


def within(seconds: float, ask: Callable[[], T]) -> T:
    """Give what ``ask`` gives, or raise TimeoutError: a name server may take longer than any
    connection may. What hangs is left behind in a thread that ends with the process."""
    answers: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(ask())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not answers:
        raise TimeoutError(f"no answer within {seconds:g} s")
    return answers[0]
