"""Pictures of the same prompts and seeds at several steps of a training: single ones for the report
and one contact sheet per step.

samples.jsonl                    a line per step: texts and scores
samples/step-000100.png          the contact sheet
samples/step-000100/3-0.png      prompt 3, picture 0
samples/own-words/3-0.png        the same, of the user's own words
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2x.watching.steps import append_step, cut_steps

if TYPE_CHECKING:
    from t2x.evaluation.scores import Row
    from t2x.search.records import Shot
    from t2x.watching.held_out import Measured

__all__ = ["LINES", "cut_samples", "picture_path", "write_samples"]

LINES = "samples.jsonl"
_FOLDER, _OWN = "samples", "own-words"


def write_samples(
    folder: Path, step: int, measured: Measured, *, prompts: int, pictures: int
) -> None:
    """Keep the first ``pictures`` pictures of the first ``prompts`` prompts of a measurement."""
    from t2x.evaluation.contact_sheet import draw_sheet

    rewrites, rows = measured.rewrites[:prompts], measured.shots[:prompts]
    shots = [row[:pictures] for row in rows]
    for i, (rewrite, row) in enumerate(zip(rewrites, shots, strict=True)):
        _save(folder, step, i, rewrite.text, row)
        _save(folder, None, i, rewrite.original, measured.own[i][:pictures])
    cells = [c for r, row in zip(rewrites, shots, strict=True) for c in _cells(r.text, row)]
    reward = measured.metrics["reward"]
    sheet = draw_sheet(cells, f"Step {step}", f"held-out reward {reward:.4f} over all prompts")
    sheet.save(folder / _FOLDER / f"{_name(step)}.png", format="PNG")
    append_step(folder / LINES, {"step": step, "samples": list(_records(measured, shots))})


def picture_path(folder: Path, step: int | None, prompt: int, picture: int) -> Path:
    """Where a sample picture lies; ``step`` None is that of the user's own words."""
    name = _OWN if step is None else _name(step)
    return folder / _FOLDER / name / f"{prompt}-{picture}.png"


def _save(folder: Path, step: int | None, prompt: int, text: str, shots: list[Shot]) -> None:
    from t2x.media import save_png

    for j, shot in enumerate(shots):
        path = picture_path(folder, step, prompt, j)
        path.parent.mkdir(parents=True, exist_ok=True)
        save_png(shot.frame, path, text={"prompt": text, "seed": str(shot.seed)})


def cut_samples(folder: Path, step: int) -> None:
    """Remove what is of later steps than ``step``."""
    cut_steps(folder / LINES, step)
    for path in (folder / _FOLDER).glob("step-*"):
        digits = path.stem.removeprefix("step-")
        if digits.isdecimal() and int(digits) > step:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _name(step: int) -> str:
    return f"step-{step:06d}"


def _records(measured: Measured, shots: list[list[Shot]]) -> Iterator[dict[str, Any]]:
    for rewrite, row in zip(measured.rewrites, shots, strict=False):
        yield {
            "prompt": rewrite.original,
            "text": rewrite.text,
            "negative": rewrite.negative,
            "status": rewrite.status,
            "seeds": [shot.seed for shot in row],
            "scores": [shot.score for shot in row],
        }


def _cells(text: str, shots: list[Shot]) -> Iterator[Row]:
    from t2x.evaluation.picture import fitted
    from t2x.evaluation.scores import THUMBNAIL, Item, Row
    from t2x.evaluation.search_page import picture_of

    for shot in shots:
        small = fitted(picture_of(shot), THUMBNAIL)
        yield Row(Item(f"seed {shot.seed}", text), dict(shot.scores), thumbnail=small)
