"""Rows with pictures: which of two is better (reward models), and short answers to questions about
one (key-point evaluators).

Two forms, in any file that ``t2x.training.data.load_rows`` reads. Pictures are paths (relative to
the file), bytes of a picture file, or what ``datasets`` calls an Image:

    {"original_prompt": "two cats", "chosen": "a.png", "rejected": "b.png"}
    {"original_prompt": "two cats", "picture": "a.png", "question": "How many cats?",
     "answer": "two", "wanted": ["two"], "against": ["one", "three", "four"]}

``answer`` is the true one. ``wanted`` and ``against`` (yes and no if they are left out) are the
answers that count for the picture and against it. ``point``, a name of
``t2x.scoring.key_points.KEY_POINTS``, stands in for ``question``, and names the row.

``world:preferences?n=...&seed=...`` and ``world:key-points?...`` draw as many from scene truth
(``t2x.world.preferences``): the judge labels nothing. ``fresh=true`` gives pictures that no
training draws. Of the spoilt ones a fifth goes through the generator: half of those through its
autoencoder, of half it draws the last part itself; ``redrawn=false`` saves the time.
"""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import torch
from torch import Tensor
from torch.utils.data import Dataset

from t2x.errors import T2XError
from t2x.media import from_pil, load_picture
from t2x.scoring.key_points import KEY_POINTS, OVERALL
from t2x.scoring.vlm_encoder import Question
from t2x.training.data import load_rows
from t2x.world.captions import caption
from t2x.world.corruption import corrupt, partly_denoised, to_pictures, vae_round_trip
from t2x.world.key_points import emoji_key_points, true_answer
from t2x.world.preferences import Shown, preference_pair
from t2x.world.truth import satisfies

__all__ = [
    "AnsweredQuestion",
    "PicturePair",
    "Rows",
    "load_pairs",
    "load_questions",
    "world_range",
]

FRESH = 10**9  # number of the first world row that no training draws
_STRIDE = 10**10  # between seeds
_WORLD = 20_000
_TRIES = 8  # preferences that a question about a key point is looked for in
_WHOLE = 0.2
_REDRAWN = 0.2
_KEYS = ("n", "seed", "fresh", "redrawn")


@dataclass(frozen=True)
class PicturePair:
    """``chosen`` and ``rejected``, (3, H, W) in [0, 1], are pictures of ``prompt``."""

    prompt: str
    chosen: Tensor
    rejected: Tensor


@dataclass(frozen=True)
class AnsweredQuestion:
    """A question with its true ``answer``; ``picture`` (3, H, W) in [0, 1], None for a question
    about words alone. ``point`` names what is asked about.
    """

    picture: Tensor | None
    question: Question
    answer: str
    point: str = ""

    @property
    def right(self) -> bool | None:
        """Whether the answer counts for the picture; None if it counts for neither."""
        said = self.answer.casefold()
        if said in {w.strip().casefold() for w in self.question.yes}:
            return True
        return False if said in {w.strip().casefold() for w in self.question.no} else None


class Rows(Dataset[Any]):
    """``number`` rows that are made when they are asked for, the same every time."""

    def __init__(self, number: int, make: Callable[[int], Any]) -> None:
        self.number, self.make = number, make

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < self.number:
            raise IndexError(index)
        return self.make(index)


def load_pairs(source: str, *, limit: int | None = None, split: str = "train") -> Rows:
    """Rows of :class:`PicturePair` from a file or ``world:preferences``; T2XError says what a row
    lacks."""
    if (drawn := world_range(source, "preferences", limit)) is not None:
        drawer = _drawer(source)
        return Rows(len(drawn), lambda i: _world_pair(drawn[i], drawer))
    rows, folder = _read(source, limit, split, ("chosen", "rejected"))
    return Rows(
        len(rows),
        lambda i: PicturePair(
            str(rows[i]["original_prompt"]),
            _picture(rows[i]["chosen"], folder),
            _picture(rows[i]["rejected"], folder),
        ),
    )


def load_questions(source: str, *, limit: int | None = None, split: str = "train") -> Rows:
    """Rows of :class:`AnsweredQuestion` from a file or ``world:key-points``; T2XError says what a
    row lacks."""
    if (drawn := world_range(source, "key-points", limit)) is not None:
        drawer = _drawer(source)
        return Rows(len(drawn), lambda i: _world_question(drawn[i], drawer))
    rows, folder = _read(source, limit, split, ("picture", "answer"))
    return Rows(len(rows), lambda i: _question(rows[i], folder))


# ---- files --------------------------------------------------------------------------------------


def _read(source: str, limit: int | None, split: str, needed: Sequence[str]) -> tuple[Any, Path]:
    rows = load_rows(source, limit=limit, split=split)
    if missing := [name for name in needed if name not in rows.column_names]:
        raise T2XError(
            f"{source!r} has no column {missing[0]}; rows hold original_prompt, "
            f"{', '.join(needed)}, and what t2x.training.picture_rows says"
        )
    return rows, Path(source).parent


def _picture(value: Any, folder: Path) -> Tensor:
    """A picture as (3, H, W) in [0, 1] from a path, bytes, a PIL picture or a datasets Image."""
    from PIL import Image

    if isinstance(value, Mapping):  # a datasets Image that was not decoded
        value = value.get("bytes") or value.get("path")
    if isinstance(value, bytes):
        value = Image.open(io.BytesIO(value))
    if isinstance(value, (str, Path)):
        return load_picture(folder / value)[0]
    if hasattr(value, "convert"):
        return from_pil([value])[0]
    raise T2XError(f"a picture is a path, bytes or a picture, got {type(value).__name__}")


def _question(row: Mapping[str, Any], folder: Path) -> AnsweredQuestion:
    point, prompt = row.get("point") or "", str(row["original_prompt"])
    if text := row.get("question"):
        asked = Question(str(text))
    elif point in KEY_POINTS:
        asked = KEY_POINTS[point].question(prompt)
    elif point == "overall":
        asked = Question(OVERALL.replace("{prompt}", prompt))
    else:
        raise T2XError(
            f"a row has neither a question nor a key point, point is {point!r}; allowed: "
            f"{', '.join(KEY_POINTS)}, overall"
        )
    wanted, against = (tuple(row.get(name) or ()) for name in ("wanted", "against"))
    asked = Question(asked.text, yes=wanted or asked.yes, no=against or asked.no)
    shown = row.get("picture")
    picture = None if shown is None else _picture(shown, folder)
    return AnsweredQuestion(picture, asked, str(row["answer"]), point)


# ---- the world ----------------------------------------------------------------------------------


def world_range(source: str, kind: str, limit: int | None = None) -> range | None:
    """Which numbers of the world's rows ``world:KIND?n=...&seed=...&fresh=...`` means; None for
    another source, T2XError for a wrong one."""
    if source.partition("?")[0] != f"world:{kind}":
        return None
    given = _query(source)
    if unknown := sorted(set(given) - set(_KEYS)):
        raise T2XError(f"{source!r}: unknown {', '.join(unknown)}; allowed: {', '.join(_KEYS)}")
    try:
        number, seed = int(given.get("n", _WORLD)), int(given.get("seed", 0))
    except ValueError as error:
        raise T2XError(f"{source!r}: n and seed are whole numbers") from error
    if number < 1 or seed < 0:
        raise T2XError(f"{source!r}: give n of at least 1 and seed of at least 0")
    first = seed * _STRIDE + (FRESH if given.get("fresh") == "true" else 0)
    return range(first, first + (number if limit is None else min(number, limit)))


def _query(source: str) -> dict[str, str]:
    return dict(parse_qsl(source.partition("?")[2], keep_blank_values=True))


def _drawer(source: str) -> Any:
    """The generator that some pictures go through, loaded once for all rows; None without."""
    return None if _query(source).get("redrawn") == "false" else _loaded_drawer()


@cache
def _loaded_drawer() -> Any:
    from t2x.world.flow import load_drawer

    return load_drawer()


def _spoilt(shown: Shown, number: int, drawer: Any, *, clean: float) -> Tensor:
    """A render as a generator might have drawn it; a share ``clean`` stays as it is."""
    generator = torch.Generator().manual_seed(number)
    pictures = to_pictures([shown.picture])
    chance, kept, level = torch.rand(3, generator=generator).tolist()
    if kept < clean:
        return pictures[0]
    if drawer is None or chance >= _REDRAWN:
        return corrupt(pictures, generator, clean=0)[0][0]
    if chance < _REDRAWN / 2:
        return vae_round_trip(pictures, drawer.vae)[0]
    sigma = torch.tensor([0.3 + 0.4 * level])
    text = caption(shown.scene, "sentence", 0)
    return partly_denoised(drawer, pictures, [text], generator, sigma=sigma).float()[0]


def _world_pair(number: int, drawer: Any) -> PicturePair:
    pair = preference_pair(number)
    sides = zip((pair.chosen, pair.rejected), pair.degrade, strict=True)
    pictures = [
        _spoilt(shown, 2 * number + i, drawer, clean=0.0 if spoilt else 1.0)
        for i, (shown, spoilt) in enumerate(sides)
    ]
    return PicturePair(pair.prompt, *pictures)


def _world_question(number: int, drawer: Any) -> AnsweredQuestion:
    """A key point, or one time in ``1 / _WHOLE`` the whole, of one picture of a preference whose
    prompt raises some."""
    rng = random.Random(f"key point {number}")
    whole = rng.random() < _WHOLE
    for pair in map(preference_pair, range(number * _TRIES, (number + 1) * _TRIES)):
        shown = rng.choice((pair.chosen, pair.rejected))
        points = _answers(pair.prompt, shown.placed)
        if points and not whole:
            point, asked, answer = rng.choice(points)
            break
    else:  # no prompt in question raises any, which is rare
        point, asked = "overall", Question(OVERALL.replace("{prompt}", pair.prompt))
        # Of a preference each picture either shows its scene or is one change away: never unsure.
        answer = "yes" if satisfies(pair.scene, shown.placed) else "no"
    return AnsweredQuestion(_spoilt(shown, number, drawer, clean=0.3), asked, answer, point)


def _answers(prompt: str, placed: Any) -> list[tuple[str, Question, str]]:
    """Key points of a prompt with their true answers, unsure ones left out."""
    asked = ((name, q, true_answer(q.text, placed)) for name, q in emoji_key_points(prompt))
    return [(name, q, answer) for name, q, answer in asked if answer is not None]
