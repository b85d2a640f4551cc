"""Python, processor, memory and accelerators of this machine."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from t2x.doctor.findings import Finding
from t2x.memory.machine import available_bytes, readable_bytes

SMALL = 4 * 10**9  # bytes; below it only the embedded models are comfortable
CONTAINER = Path("/sys/fs/cgroup/memory.max")

__all__ = ["check_accelerators", "check_memory", "check_processor", "check_python"]


def check_python() -> list[Finding]:
    """Version of Python and the platform; the installer has refused what is too old."""
    version = platform.python_version()
    said = f"{version}, {platform.platform(terse=True)}, {platform.machine()}"
    facts = {"python": version, "platform": platform.platform(), "executable": sys.executable}
    return [Finding("python", "ok", said, facts=facts)]


def check_processor() -> list[Finding]:
    """Threads, and whether bfloat16 is computed or emulated."""
    import torch

    from t2x.devices import fast_bfloat16

    cores, threads, fast = os.cpu_count(), torch.get_num_threads(), fast_bfloat16("cpu")
    said = f"{cores} cores, torch uses {threads} threads, bfloat16 is " + (
        "fast" if fast else "emulated (40 times slower than float32)"
    )
    advice = "" if fast else "on the CPU leave dtype out or give auto: it is float32 here"
    facts = {"cores": cores, "threads": threads, "fast_bfloat16": fast}
    return [Finding("processor", "ok", said, advice, facts)]


def check_memory() -> list[Finding]:
    """Main memory: all, what is left, and what a container allows."""
    total, left, allowed = _total(), available_bytes("cpu"), _allowed()
    said = f"{readable_bytes(left)} of {readable_bytes(total)} available"
    facts = {"total": total, "available": left, "container_limit": allowed}
    if allowed is not None and (total is None or allowed < total):
        said += f"; this container may use {readable_bytes(allowed)}"
        left = min(allowed, left or allowed)
    if left is not None and left < SMALL:
        advice = "enough for the embedded models; close other programs before larger ones"
        return [Finding("memory", "warning", said, advice, facts)]
    return [Finding("memory", "ok", said, facts=facts)]


def _total() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def _allowed() -> int | None:
    try:
        text = CONTAINER.read_text("ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None


def check_accelerators() -> list[Finding]:
    """GPUs that torch can use, and ones that are there and that it can't."""
    import torch

    cards = _cards()
    if torch.cuda.is_available():
        return [_cuda(index, cards) for index in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        return [Finding("accelerator", "ok", "Apple GPU (MPS)", facts={"kind": "mps"})]
    if cards:
        said = f"{', '.join(name for name, _ in cards)} is there, and this PyTorch can't use it"
        built = torch.version.cuda
        why = f"built for CUDA {built}" if built else "built for the CPU"
        advice = (
            f"PyTorch {torch.__version__} is {why}, driver {cards[0][1]}: install a build that "
            "fits the driver (pytorch.org, Get started)"
        )
        return [Finding("accelerator", "problem", said, advice, {"cards": cards})]
    said = "none: everything runs on the CPU"
    return [Finding("accelerator", "ok", said, facts={"kind": "cpu"})]


def _cuda(index: int, cards: list[tuple[str, str]]) -> Finding:
    import torch

    about = torch.cuda.get_device_properties(index)
    free, total = torch.cuda.mem_get_info(index)
    driver = cards[index][1] if index < len(cards) else None
    facts = {
        "kind": "cuda",
        "index": index,
        "name": about.name,
        "capability": [about.major, about.minor],
        "total": total,
        "free": free,
        "driver": driver,
        "cuda": torch.version.cuda,
    }
    said = (
        f"cuda:{index} {about.name}, {readable_bytes(free)} of {readable_bytes(total)} free, "
        f"compute capability {about.major}.{about.minor}, driver {driver or 'unknown'}"
    )
    if not _runs(torch.cuda.get_arch_list(), about.major, about.minor):
        advice = (
            f"PyTorch {torch.__version__} was not built for it: install a build that names "
            f"{about.major}.{about.minor} (a newer one for a newer card, an older one for an old)"
        )
        return Finding("accelerator", "problem", said, advice, facts)
    if free < total // 2:
        advice = "another program holds more than half of its memory: see nvidia-smi"
        return Finding("accelerator", "warning", said, advice, facts)
    return Finding("accelerator", "ok", said, facts=facts)


def _runs(built: Sequence[str], major: int, minor: int) -> bool:
    """Whether a card can run what torch was built for: machine code (sm_86) of its own generation
    up to itself, or code that the driver compiles (compute_90) of any up to itself."""
    if not built:  # not NVIDIA's, or a build that does not say
        return True
    for name in built:
        found = re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", name)
        if found is None:
            return True  # of another maker, as gfx90a
        own = int(found[2]), int(found[3])
        same = own[0] == major or found[1] == "compute"
        if same and own <= (major, minor) and (found[4] != "a" or own == (major, minor)):
            return True
    return False


def _cards() -> list[tuple[str, str]]:
    """Name and driver of each NVIDIA GPU, whatever torch makes of them."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    command = [tool, "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    rows = (line.rpartition(",") for line in done.stdout.splitlines() if "," in line)
    return [(name.strip(), driver.strip()) for name, _, driver in rows]
