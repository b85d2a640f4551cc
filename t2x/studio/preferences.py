"""What a user likes, from thumbs and from "this one is better", kept on this machine; and the
reward that is fitted to it.

    tastes = Tastes(home)
    tastes.choose("ada", prompt, better, worse)
    studio.offer_reward(TASTE, tastes.reward)

Of a picture its embedding is kept and eight numbers of how it looks (``t2x.functional.look``),
never its pixels. A thumb up and a thumb down of one prompt are a pair; the fit is PAL's
(``t2x.rewards.pal.own_taste``) from the user's own choices, so that it needs no other users and
works with any encoder. The model is a folder, ``t2x score PICTURES --rewards pal:FOLDER``.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from t2x.databases import PATIENCE, check_version, erase_deleted, switch_to_wal, what_to_do
from t2x.errors import T2XError
from t2x.files import made_folder
from t2x.studio.hurry import LOADING
from t2x.studio.users import folder_name

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor

    from t2x.scoring.clip_encoder import ClipEncoder
    from t2x.types import RewardModel

_Array: TypeAlias = "np.ndarray[Any, Any]"

TASTE = "my taste"
LEAST = 5  # pairs; see docs/log.md for what so many are worth
MOST = 400  # pairs that are fitted, the newest
_VERSION = 1  # of the tables; what a newer t2x wrote is left alone
_TABLES = ("thumbs", "pairs")
_SCHEMA = """
CREATE TABLE IF NOT EXISTS thumbs (
    number INTEGER PRIMARY KEY AUTOINCREMENT, user TEXT NOT NULL, encoder TEXT NOT NULL,
    prompt TEXT NOT NULL, picture TEXT NOT NULL, liked INTEGER NOT NULL, vector BLOB NOT NULL,
    look BLOB,
    UNIQUE (user, encoder, picture)
);
CREATE TABLE IF NOT EXISTS pairs (
    number INTEGER PRIMARY KEY AUTOINCREMENT, user TEXT NOT NULL, encoder TEXT NOT NULL,
    prompt TEXT NOT NULL, better TEXT NOT NULL, worse TEXT NOT NULL, vectors BLOB NOT NULL,
    look BLOB,
    UNIQUE (user, encoder, better, worse)
);
"""

__all__ = ["LEAST", "TASTE", "TasteState", "Tastes"]


@dataclass(frozen=True)
class TasteState:
    """How much is known of a user's taste: ``clicks`` that are kept, and the ``pairs`` that they
    make. ``missing`` pairs are needed before it is a reward."""

    pairs: int
    liked: int
    disliked: int
    missing: int
    clicks: int = 0

    @property
    def counted(self) -> str:
        """The clicks, in words."""
        return "1 choice" if self.clicks == 1 else f"{self.clicks} choices"

    @property
    def said(self) -> str:
        """One line about it."""
        if not self.missing:
            choices = "choice" if self.pairs == 1 else "choices"
            return f"Your taste is known from {self.pairs} {choices}: score by {TASTE!r}."
        return (
            f"{TASTE!r} can score from {LEAST} pairs on, and there are {self.pairs}: say which of "
            "two pictures is better, or give thumbs up and down to pictures of one prompt."
        )


class Tastes:
    """The tastes of all users under ``home``; several processes may share it.

    Nothing is raised where they can't be used, but T2XError by what needs them, each time anew.

    ``encoder`` is the CLIP that looks at pictures (``t2x.scoring.clip_encoder.load_clip``): one
    that knows the kind of pictures that are drawn.
    """

    def __init__(self, home: str | Path, *, encoder: str = "emoji-clip") -> None:
        self.home, self.encoder = Path(home) / "tastes", encoder
        self._lock = threading.Lock()
        self._clip: ClipEncoder | None = None
        self._is_ready = False
        with suppress(T2XError):  # told where it is needed, when it may have been mended
            self._make_ready()

    def _make_ready(self) -> None:
        if self._is_ready:
            return
        made_folder(self.home, option="--home")
        try:
            self._prepare()
        except sqlite3.OperationalError as error:
            raise self._unusable(error) from error
        except sqlite3.DatabaseError:
            aside = self._index.with_name(f"tastes.damaged-{time.time():.0f}.sqlite")
            self._index.replace(aside)
            self._prepare()
        self._is_ready = True

    # ---- clicks -----------------------------------------------------------------------------

    def thumb(self, user: str, prompt: str, picture: Image, *, liked: bool | None) -> TasteState:
        """Keep a thumb up or down, in place of one before; None takes it away."""
        digest = _digest(picture)
        with self._open() as db:
            key = (user, self.encoder, digest)
            db.execute("DELETE FROM thumbs WHERE user = ? AND encoder = ? AND picture = ?", key)
        if liked is not None:
            with self._open() as db:
                db.execute(
                    "INSERT OR REPLACE INTO thumbs (user, encoder, picture, prompt, liked, vector, "
                    "look) VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (*key, prompt, int(liked), *self._measured([picture])),
                )
        return self.state(user)

    def thumb_of(self, user: str, picture: Image) -> bool | None:
        """What was said of a picture: True up, False down, None nothing."""
        with self._open() as db:
            row = db.execute(
                "SELECT liked FROM thumbs WHERE user = ? AND encoder = ? AND picture = ?",
                (user, self.encoder, _digest(picture)),
            ).fetchone()
        return None if row is None else bool(row[0])

    def choose(self, user: str, prompt: str, better: Image, worse: Image) -> TasteState:
        """Keep which of two pictures is better; the same two again replace what was said before.

        Raises T2XError for two pictures that are the same.
        """
        names = _digest(better), _digest(worse)
        if names[0] == names[1]:
            raise T2XError("both are the same picture; choose between two that differ")
        measured = self._measured([better, worse])
        with self._open() as db:
            db.execute(
                "DELETE FROM pairs WHERE user = ? AND encoder = ? AND better = ? AND worse = ?",
                (user, self.encoder, names[1], names[0]),
            )
            db.execute(
                "INSERT OR REPLACE INTO pairs (user, encoder, better, worse, prompt, vectors, look)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                (user, self.encoder, *names, prompt, *measured),
            )
        return self.state(user)

    def forget(self, user: str) -> None:
        """Delete all that is known of a user's taste."""
        import shutil

        with self._open() as db:
            for table in _TABLES:
                db.execute(f"DELETE FROM {table} WHERE user = ?", (user,))
        with self._connect() as db:
            erase_deleted(db)
        shutil.rmtree(self.folder(user), ignore_errors=True)

    def state(self, user: str) -> TasteState:
        """How much is known."""
        pairs = len(self._pairs(user)[0])
        with self._open() as db:
            counts = dict(
                db.execute(
                    "SELECT liked, count(*) FROM thumbs WHERE user = ? AND encoder = ? "
                    "GROUP BY liked",
                    (user, self.encoder),
                ).fetchall()
            )
            clicks = 0
            for table in _TABLES:  # of every encoder: all of them would be forgotten
                query = f"SELECT count(*) FROM {table} WHERE user = ?"
                clicks += int(db.execute(query, (user,)).fetchone()[0])
        missing = max(0, LEAST - pairs)
        return TasteState(pairs, counts.get(1, 0), counts.get(0, 0), missing, clicks)

    # ---- reward -----------------------------------------------------------------------------

    def folder(self, user: str) -> Path:
        """The folder of a user's fitted model, whatever the name is."""
        return self.home / folder_name(user)

    def reward(self, user: str) -> RewardModel:
        """The user's taste as a reward of pictures, fitted to all choices so far and saved.

        Raises T2XError that says how many choices are missing.
        """
        from t2x.registry import REWARD_PARTS, import_attr, load_reward

        pairs = self._pairs(user)
        if len(pairs[0]) < LEAST:
            raise T2XError(self.state(user).said)
        with LOADING:
            better, worse, *looks = map(_tensor, pairs)
            fit = import_attr(REWARD_PARTS["pal-own-taste"])
            model = fit(user, better, worse, looks=tuple(looks), encoder=self.encoder)
            model.save(self.folder(user))
            return load_reward("pal", source=model, name=TASTE)

    def _pairs(self, user: str) -> tuple[_Array, _Array, _Array, _Array]:
        """Embeddings (M, D) of the better and the worse picture of each pair, the newest last, and
        how they look (M, 8), NaN where an older version did not ask."""
        from t2x.functional.look import LOOK

        with self._open() as db:
            key = (user, self.encoder)
            rows = db.execute(
                "SELECT CAST(a.vector || b.vector AS BLOB), CAST(a.look || b.look AS BLOB) FROM "
                "thumbs a JOIN thumbs b USING (user, encoder, prompt) "
                "WHERE user = ? AND encoder = ? AND a.liked AND NOT b.liked "
                "ORDER BY max(a.number, b.number)",
                key,
            ).fetchall()
            rows += db.execute(
                "SELECT vectors, look FROM pairs WHERE user = ? AND encoder = ? ORDER BY number",
                key,
            ).fetchall()
        unknown = np.full(2 * len(LOOK), np.nan, np.float32).tobytes()
        vectors = [np.frombuffer(vector, np.float32) for vector, _ in rows[-MOST:]]
        looks = [np.frombuffer(look or unknown, np.float32) for _, look in rows[-MOST:]]
        return (*_halves(vectors), *_halves(looks))

    def _measured(self, pictures: list[Image]) -> tuple[bytes, bytes]:
        """Unit embeddings (N, D) and looks (N, 8), float32, as they are kept."""
        clip = self._loaded()
        import torch
        from torch.nn import functional as F

        from t2x.functional.look import picture_look
        from t2x.media import from_pil

        with self._lock, torch.no_grad():
            media = [torch.as_tensor(from_pil([picture])) for picture in pictures]
            vectors = F.normalize(torch.cat([clip.encode_image(m).float() for m in media]), dim=-1)
            looks = torch.cat([picture_look(m) for m in media])
        return vectors.cpu().numpy().tobytes(), looks.numpy().tobytes()

    def _loaded(self) -> ClipEncoder:
        """What looks at pictures; waits for a model that loads, the first time only."""
        if self._clip is None:
            with LOADING:
                from t2x.scoring.clip_encoder import load_clip

                self._clip = load_clip(self.encoder)
        return self._clip

    # ---- database ---------------------------------------------------------------------------

    @property
    def _index(self) -> Path:
        return self.home / "tastes.sqlite"

    def _prepare(self) -> None:
        with self._connect() as db:
            switch_to_wal(db)
            check_version(db, _VERSION, "tastes")
            db.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")
            for table in _TABLES:  # those of before have no look
                if "look" not in {row[1] for row in db.execute(f"PRAGMA table_info({table})")}:
                    db.execute(f"ALTER TABLE {table} ADD COLUMN look BLOB")
            db.execute(f"PRAGMA user_version = {_VERSION}")

    @contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        db = sqlite3.connect(self._index, timeout=PATIENCE, isolation_level=None)
        try:
            db.execute("PRAGMA secure_delete=ON")
            yield db
        finally:
            db.close()

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        self._make_ready()
        try:
            with self._connect() as db:
                db.execute("BEGIN IMMEDIATE")
                yield db
                db.execute("COMMIT")
        except sqlite3.DatabaseError as error:
            raise self._unusable(error) from error

    def _unusable(self, error: Exception) -> T2XError:
        return T2XError(
            f"cannot use the tastes in {str(self.home)!r}: {error}; {what_to_do(error)}"
        )


def _digest(picture: Image) -> str:
    from t2x.generators.sources import source_digest

    return source_digest(picture)


def _halves(rows: list[_Array]) -> tuple[_Array, _Array]:
    """Rows of two vectors each, one after the other: (M, D) and (M, D)."""
    both = np.stack(rows) if rows else np.zeros((0, 2), np.float32)
    half = both.shape[1] // 2
    return both[:, :half], both[:, half:]


def _tensor(rows: _Array) -> Tensor:
    import torch

    return torch.from_numpy(rows.copy())
