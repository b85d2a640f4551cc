"""Cache folder and disk, access to the model hub, and the models that the package carries."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path

from t2x.doctor.downloads import TIMEOUT
from t2x.doctor.findings import Finding, within
from t2x.failures import explain, first_line, without_secrets
from t2x.hub_failures import offline_switch
from t2x.memory.machine import readable_bytes

LITTLE = 20 * 10**9  # bytes; a picture model of today and its text encoders
PATIENCE = 3.0  # seconds for counting the cache

__all__ = ["check_cache", "check_embedded", "check_hub"]


def check_cache() -> list[Finding]:
    """Where downloads go: whether one may write there, its size, broken downloads, free disk."""
    from huggingface_hub.constants import HF_HUB_CACHE

    folder = Path(HF_HUB_CACHE)
    there = next(p for p in (folder, *folder.parents) if p.exists())
    free = shutil.disk_usage(there).free
    size, broken = _size(folder)
    facts = {"folder": str(folder), "size": size, "free": free, "incomplete": broken}
    said = f"{folder}: {readable_bytes(size)}, {readable_bytes(free)} free on its disk"
    if not _can_write(there):
        advice = "set HF_HOME to a folder that you may write to"
        return [Finding("cache", "problem", f"{said}; you may not write there", advice, facts)]
    if free < LITTLE:
        advice = "free some (hf cache ls, hf cache rm), or set HF_HOME to a folder on another disk"
        return [Finding("cache", "warning", said, advice, facts)]
    if broken:
        said += f"; {broken} downloads were broken off"
        advice = "the same command goes on with them; hf cache prune removes them"
        return [Finding("cache", "ok", said, advice, facts)]
    return [Finding("cache", "ok", said, facts=facts)]


def _can_write(folder: Path) -> bool:
    """Try it: access rights alone don't know of read-only file systems and quotas."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _size(folder: Path) -> tuple[int | None, int]:
    """Bytes of all files once (snapshots are links), and downloads that are not whole; None where
    counting takes too long."""
    end, total, broken = time.monotonic() + PATIENCE, 0, 0
    for place, _, names in os.walk(folder):
        for name in names:
            path = Path(place, name)
            if not path.is_symlink() and path.exists():
                total += path.stat().st_size
                broken += name.endswith(".incomplete")
        if time.monotonic() > end:
            return None, broken
    return total, broken


def check_hub() -> list[Finding]:
    """Whether the hub answers, whose token is sent, and what keeps the libraries offline."""
    from huggingface_hub import get_token
    from huggingface_hub.constants import ENDPOINT

    token, shown = bool(get_token()), without_secrets(ENDPOINT)
    facts: dict[str, object] = {"endpoint": shown, "token": token}
    if switch := offline_switch():
        said = f"{switch} is set: only what is in the cache can be loaded"
        advice = "unset it to download models"
        return [Finding("hub", "warning", said, advice, {**facts, "offline": switch})]
    try:
        within(2 * TIMEOUT, lambda: _ask(ENDPOINT))
    except Exception as error:
        said = f"{shown} can't be reached ({first_line(error, 100)})"
        advice = (
            "the embedded models and the cache work without; else check the network and its proxy "
            "(HTTPS_PROXY), or name a mirror (HF_ENDPOINT)"
        )
        return [Finding("hub", "warning", said, advice, {**facts, "reachable": False})]
    facts["reachable"] = True
    if not token:
        said = f"{shown} answers; no token"
        advice = "needed for gated models alone: hf auth login (or set HF_TOKEN)"
        return [Finding("hub", "ok", said, advice, facts)]
    return [_account(ENDPOINT, facts)]


def _ask(endpoint: str) -> None:
    """Any answer will do, refusals too."""
    from huggingface_hub import get_session

    get_session().head(endpoint, timeout=TIMEOUT)


def _account(endpoint: str, facts: dict[str, object]) -> Finding:
    from huggingface_hub import HfApi

    shown = without_secrets(endpoint)
    try:
        name = str(within(2 * TIMEOUT, HfApi(endpoint=endpoint).whoami).get("name"))
    except Exception as error:
        said = explain(error, endpoint)
        reason = first_line(said or error, 160)
        advice = "log in again: hf auth login, or unset an old HF_TOKEN"
        text = f"{shown} answers; the token is not taken: {reason}"
        return Finding("hub", "problem", text, advice, {**facts, "account": None})
    return Finding(
        "hub", "ok", f"{shown} answers; token of {name}", facts={**facts, "account": name}
    )


def check_embedded() -> list[Finding]:
    """The small trained models inside the package."""
    from t2x.world.weights import EMBEDDED, is_present

    there = [name for name in EMBEDDED if is_present(name)]
    absent = [name for name in EMBEDDED if name not in there]
    facts = {"present": there, "absent": absent}
    if absent:
        said = f"not there: {', '.join(absent)}"
        advice = "install t2x again (a checkout needs its large files), or t2x world train NAME"
        return [Finding("embedded models", "problem", said, advice, facts)]
    return [Finding("embedded models", "ok", ", ".join(there), facts=facts)]
