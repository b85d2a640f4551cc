"""What this machine has and what a run needs, before anything is downloaded: ``t2x doctor``.

findings.py      one line of the report: ok, a warning or a problem, and what to do
machine.py       Python, processor, memory, accelerators
packages.py      versions against what t2x asks for, extras
hub.py           cache folder, disk, hub, token, offline switches, embedded models
downloads.py     what loading a hub id downloads, and what of it is in the cache already
plan.py          a chosen run: downloads, licences, memory of each phase, options to pass
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from t2x.doctor.downloads import Download, find_download
    from t2x.doctor.findings import Finding, examine
    from t2x.doctor.plan import RunReport, plan_report

_HOME = {
    "Download": "downloads",
    "Finding": "findings",
    "RunReport": "plan",
    "examine": "findings",
    "find_download": "downloads",
    "plan_report": "plan",
}

__all__ = ["Download", "Finding", "RunReport", "examine", "find_download", "plan_report"]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that nothing of torch loads before."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
