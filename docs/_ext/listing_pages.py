"""Writes the reference of the commands with typer's own ``typer t2x.cli utils docs``, and the
lists of rewards and published generators from the program's own facts.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from math import isinf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reference_pages import write_pages

import t2x
from t2x.generators.presets import ModelPreset, presets
from t2x.reward_facts import FACTS

if TYPE_CHECKING:
    from sphinx.application import Sphinx

__all__ = ["commands_page", "generators_page", "rewards_page", "setup"]


def commands_page() -> str:
    """Usage, arguments and options of every command, in one page."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "commands.md"
        command = ["-m", "typer", "t2x.cli", "utils", "docs", "--name", "t2x", "--output", str(out)]
        subprocess.run([sys.executable, *command], check=True, capture_output=True)
        text = out.read_text("utf-8")
    return re.sub(r"\A# `t2x`", "# Commands", text)


def rewards_page() -> str:
    """Every reward that has a name, as ``t2x rewards`` lists it."""
    lines = [
        "# List of rewards",
        "",
        "What `t2x rewards` prints. Higher is better for all. *Download* is that of what loads by",
        "the name alone; *real* names published checkpoints that the same reward loads with",
        "`source=`. Published checkpoints are not run on real weights.",
        "",
        "| name | measures | scale | range | gradient | licence | download | real | extra |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, facts in sorted(FACTS.items()):
        bounds = " to ".join("open" if isinf(bound) else f"{bound:g}" for bound in facts.range)
        gradient = "yes" if facts.differentiable else "no"
        cells = (
            f"`{name}`",
            f"{facts.modality}: {facts.measures}",
            facts.scale,
            bounds,
            gradient,
            facts.licence,
            facts.download,
            facts.real,
            facts.extra,
        )
        lines.append(f"| {' | '.join(cell.replace('|', '') for cell in cells)} |")
    return "\n".join([*lines, ""])


def generators_page() -> str:
    """Every published generator that has a name, with where its settings were read."""
    lines = [
        "# List of generators",
        "",
        "Published models that `t2x.load_generator` and `--model` know by name or hub id, and what",
        "their authors sample with. **None was run on its real weights here.** What is unknown",
        "could not be read anywhere, or two sources contradict each other.",
        "",
        "| name | tasks | repository | steps | guidance scale | size | format | licence | gated "
        "| download |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *map(_generator_row, presets().values()),
        "",
        "Height and width are in pixels, the one that a model was made for first.",
        "",
        "## What else is known, and where it was read",
        "",
    ]
    for preset in presets().values():
        facts = (preset.memory, preset.notes, f"modes of guidance: {', '.join(preset.guidance)}")
        lines += [f"`{preset.name}`", f": {_plain('; '.join(filter(None, facts)))}.", ""]
        lines += [f": Read in {_plain('; '.join(preset.read_from))}.", ""]
    return "\n".join(lines)


def _plain(text: str) -> str:
    return re.sub(r"[_*<>\[\]`]", r"\\\g<0>", text)


def _generator_row(preset: ModelPreset) -> str:
    gated = {True: "yes", False: "no", None: "unknown"}[preset.gated]
    scales = [
        preset.sampling[k] for k in ("guidance_scale", "true_cfg_scale") if k in preset.sampling
    ]
    cells = (
        f"`{preset.name}`",
        ", ".join(preset.pipelines),
        f"`{preset.hub[0]}`",
        str(preset.sampling.get("num_inference_steps", "unknown")),
        f"{scales[0]:g}" if scales else "unknown",
        ", ".join(f"{height}x{width}" for height, width in preset.sizes),
        preset.dtype,
        preset.licence or "unknown",
        gated,
        preset.size,
    )
    return f"| {' | '.join(cells)} |"


def setup(app: Sphinx) -> dict[str, Any]:
    pages = {
        "commands.md": commands_page,
        "reward-list.md": rewards_page,
        "generator-list.md": generators_page,
    }
    app.connect(
        "config-inited",
        lambda app, _: write_pages(Path(app.srcdir), {k: page() for k, page in pages.items()}),
    )
    return {"version": t2x.__version__, "parallel_read_safe": True}
