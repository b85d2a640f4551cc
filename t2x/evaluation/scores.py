"""Scores of many files: pictures and videos read a few at a time, each reward run once per batch;
what can't be read or scored is a row with a reason and never loses the rest.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2x.errors import T2XError

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor

    from t2x.scoring.ensemble import RewardEnsemble
    from t2x.types import Modality, RewardModel

BATCH = 32
_NO_PROMPT = "no prompt was given and the file holds none; give --prompt TEXT or --prompts FILE"
VALUES = 2**26  # numbers held at a time: 256 MB of pixels
THUMBNAIL = 256

__all__ = [
    "Item",
    "Row",
    "ensemble_of",
    "find_items",
    "ranked",
    "reads_prompt",
    "score_batch",
    "score_items",
]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Item:
    """One file to score against one prompt, or the reason why it can't be."""

    picture: str
    prompt: str = ""
    error: str = ""


@dataclass
class Row:
    """What became of an item: a score per reward, NaN where there is none, and a small picture."""

    item: Item
    scores: dict[str, float] = field(default_factory=dict)
    error: str = ""
    thumbnail: Image | None = None


def find_items(
    paths: Sequence[Path], prompts: Sequence[str] = (), *, needs_prompt: bool = True
) -> list[Item]:
    """Turn files, folders (the pictures and videos anywhere below) and JSONL files with a
    ``{"picture": ..., "prompt": ...}`` per line into items.

    Paths in a JSONL file are relative to it. ``prompts``: one for all, or one for each file that is
    not from JSONL, in order; a line without a prompt takes the one for all. Without any, a picture
    that ``t2x`` drew has the prompt that it stores, and an item without a prompt says so, unless no
    reward ``needs_prompt``. Raises ``T2XError`` for another number of prompts.
    """
    found = [entry for path in paths for entry in _entries(Path(path))]
    if not prompts:
        return [_item(entry, _stored(entry), needs_prompt=needs_prompt) for entry in found]
    loose = sum(entry.prompt is None and not entry.line for entry in found)
    if len(prompts) not in (1, loose):
        raise T2XError(
            f"got {len(prompts)} prompts for {loose} pictures; give one, or one for each"
        )
    each = iter(prompts if len(prompts) != 1 else [prompts[0]] * len(found))
    one = prompts[0] if len(prompts) == 1 else ""
    return [
        _item(entry, one if entry.line else next(each), needs_prompt=needs_prompt)
        for entry in found
    ]


def reads_prompt(reward: RewardModel) -> bool:
    """Whether a reward reads prompts; one that does not say is taken to."""
    parts = getattr(reward, "parts", ("text",))
    return any(part.partition(":")[0] == "text" for part in parts)


def score_items(
    items: Sequence[Item],
    rewards: dict[str, RewardModel],
    *,
    max_frames: int = 64,
    thumbnails: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> list[Row]:
    """Score every item by every reward, rows in the order of the items.

    Rewards of pictures score videos by the mean over frames; of a picture, rewards of videos are
    NaN.
    """
    ensembles = {kind: ensemble_of(rewards, kind) for kind in ("image", "video")}
    rows: list[Row] = []
    for batch in _batches(items, max_frames):
        for row, media in batch:
            row.scores = dict.fromkeys(rewards, math.nan)
            if thumbnails and media is not None:
                row.thumbnail = _thumbnail(media)
        for kind, dimensions in (("image", 4), ("video", 5)):
            some = [(row, m) for row, m in batch if m is not None and m.ndim == dimensions]
            names, ensemble = ensembles[kind]
            if some and ensemble is not None:
                score_batch(ensemble, names, [r for r, _ in some], [m for _, m in some])
        rows += [row for row, _ in batch]
        if progress is not None:
            progress(len(rows), len(items))
    return rows


def ranked(rows: Sequence[Row], by: str) -> list[Row]:
    """Rows that were scored, the best by ``by`` first; those that it could not measure last."""
    scored = [row for row in rows if not row.error]
    return sorted(scored, key=lambda row: (math.isnan(row.scores[by]), -row.scores[by]))


@dataclass(frozen=True)
class _Entry:
    picture: str
    prompt: str | None = None
    error: str = ""
    line: int = 0  # of a JSONL file, from 1


def _entries(path: Path) -> Iterator[_Entry]:
    from t2x.media import PICTURE_SUFFIXES, VIDEO_SUFFIXES

    if path.is_dir():
        known = (*PICTURE_SUFFIXES, *VIDEO_SUFFIXES)
        files = sorted(p for p in path.rglob("*") if p.suffix.lower() in known and p.is_file())
        if not files:
            yield _Entry(str(path), error="the folder holds no picture and no video")
        yield from (_Entry(str(file)) for file in files)
    elif path.suffix.lower() == ".jsonl":
        try:
            lines = path.read_bytes().splitlines()
        except OSError as error:
            yield _Entry(str(path), error=f"cannot read the pairs: {error}", line=1)
            return
        yield from (_parse(path, i, raw) for i, raw in enumerate(lines, 1) if raw.strip())
    else:
        yield _Entry(str(path))


def _parse(path: Path, number: int, raw: bytes) -> _Entry:
    name = f"{path}:{number}"
    try:
        value = json.loads(raw)
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        return _Entry(name, error=f"not valid JSON: {error}", line=number)
    picture = value.get("picture") if isinstance(value, dict) else None
    prompt = value.get("prompt") if isinstance(value, dict) else None
    if not isinstance(picture, str) or not picture:
        return _Entry(name, error="no object with a path under 'picture'", line=number)
    if prompt is not None and not isinstance(prompt, str):
        return _Entry(name, error="what is under 'prompt' is no text", line=number)
    return _Entry(str(path.parent / picture), prompt, line=number)


def _item(entry: _Entry, prompt: str, *, needs_prompt: bool) -> Item:
    text = prompt if entry.prompt is None else entry.prompt
    error = entry.error or _missing(entry.picture)
    if needs_prompt and not error and not text.strip():
        given = text or entry.prompt is not None
        return Item(entry.picture, text, "the prompt is empty" if given else _NO_PROMPT)
    return Item(entry.picture, text, error)


def _missing(picture: str) -> str:
    """What is wrong with a picture that is not there, before anything is said of its prompt."""
    if Path(picture).is_file():
        return ""
    return f"there is no file {picture!r}; give the path of a picture"


def _stored(entry: _Entry) -> str:
    """The user's prompt that a picture of ours holds; other programs store other things under the
    same name."""
    if entry.error or entry.prompt is not None:
        return ""
    from t2x.media import png_text
    from t2x.studio.recipes import read_chunks

    try:
        recipe = read_chunks(png_text(entry.picture))
    except T2XError as error:
        log.info("%s: %s", entry.picture, error)
        return ""
    return "" if recipe is None else recipe.prompt


def ensemble_of(
    rewards: dict[str, RewardModel], kind: Modality
) -> tuple[list[str], RewardEnsemble | None]:
    """What scores media of one kind, and the names of its rewards: those of pictures score videos
    by the mean over frames; None if none of them can."""
    from t2x.scoring.ensemble import RewardEnsemble
    from t2x.scoring.frames import frames

    if kind == "image":
        chosen = {name: r for name, r in rewards.items() if r.modality == "image"}
    else:
        chosen = {n: frames(r) if r.modality == "image" else r for n, r in rewards.items()}
    return list(chosen), RewardEnsemble(list(chosen.values())) if chosen else None


def _batches(items: Sequence[Item], max_frames: int) -> Iterator[list[tuple[Row, Tensor | None]]]:
    """Read the items, as many at a time as fit."""
    from t2x.media import load_media

    batch: list[tuple[Row, Tensor | None]] = []
    held = 0
    for item in items:
        row, media = Row(item, error=item.error), None
        if not row.error:
            try:
                media = load_media(item.picture, max_frames=max_frames)
            except T2XError as error:
                row.error = str(error)
        held += 0 if media is None else media.numel()
        batch.append((row, media))
        if len(batch) == BATCH or held > VALUES:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch


def score_batch(
    ensemble: RewardEnsemble, names: Sequence[str], rows: Sequence[Row], media: list[Tensor]
) -> None:
    """Fill in the scores of media, one (1, ...) for each row; if the batch fails, each on its own,
    so that one failure is one row's."""
    try:
        columns = ensemble.components([row.item.prompt for row in rows], media)
    except (T2XError, ValueError, RuntimeError, OSError) as error:
        if len(rows) == 1:
            rows[
                0
            ].error = f"can't be scored: {' '.join(str(error).split()) or type(error).__name__}"
            return
        log.info("a batch of %d failed, each is scored alone", len(rows), exc_info=True)
        for row, item in zip(rows, media, strict=True):
            score_batch(ensemble, names, [row], [item])
        return
    for name, column in zip(names, columns.values(), strict=True):
        for row, value in zip(rows, column.tolist(), strict=True):
            row.scores[name] = value


def _thumbnail(media: Any) -> Image:
    """The picture, or the middle frame of a video, small."""
    from t2x.evaluation.picture import fitted
    from t2x.media import to_pil

    picture = media if media.ndim == 4 else media[:, media.shape[1] // 2]
    return fitted(to_pil(picture)[0], THUMBNAIL)
