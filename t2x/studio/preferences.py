"""What a user likes, from thumbs and from "this one is better", kept on this machine; and the
reward that is fitted to it.

    tastes = Tastes(home)
    tastes.choose("ada", prompt, better, worse)
    studio.offer_reward(TASTE, tastes.reward)

Of a picture its embedding is kept, never its pixels. A thumb up and a thumb down of one prompt are
a pair; the fit is PAL's (``t2x.rewards.pal``) with prototypes that come from the user's own
choices, so that it needs no other users and works with any encoder. The model is a folder,
``t2x score PICTURES --rewards pal:FOLDER``.
"""

from __future__ import annotations

import hashlib
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from t2x.databases import switch_to_wal
from t2x.errors import T2XError
from t2x.files import made_folder

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor

    from t2x.types import RewardModel

TASTE = "my taste"
LEAST = 5  # pairs; see docs/log.md for what so many are worth
MOST = 400  # pairs that are fitted, the newest
_TABLES = ("thumbs", "pairs")
_SCHEMA = """
CREATE TABLE IF NOT EXISTS thumbs (
    number INTEGER PRIMARY KEY AUTOINCREMENT, user TEXT NOT NULL, encoder TEXT NOT NULL,
    prompt TEXT NOT NULL, picture TEXT NOT NULL, liked INTEGER NOT NULL, vector BLOB NOT NULL,
    UNIQUE (user, encoder, picture)
);
CREATE TABLE IF NOT EXISTS pairs (
    number INTEGER PRIMARY KEY AUTOINCREMENT, user TEXT NOT NULL, encoder TEXT NOT NULL,
    prompt TEXT NOT NULL, better TEXT NOT NULL, worse TEXT NOT NULL, vectors BLOB NOT NULL,
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
            f"{self.missing} more choices are needed before {TASTE!r} can score: say which of two "
            "pictures is better, or give thumbs up and down to pictures of one prompt."
        )


class Tastes:
    """The tastes of all users under ``home``; several processes may share it.

    ``encoder`` is the CLIP that looks at pictures (``t2x.scoring.clip_encoder.load_clip``): one
    that knows the kind of pictures that are drawn.
    """

    def __init__(self, home: str | Path, *, encoder: str = "emoji-clip") -> None:
        self.home, self.encoder = Path(home) / "tastes", encoder
        self._lock = threading.Lock()
        made_folder(self.home)
        try:
            self._prepare()
        except sqlite3.OperationalError as error:
            raise self._unusable(error) from error
        except sqlite3.DatabaseError:
            aside = self._index.with_name(f"tastes.damaged-{time.time():.0f}.sqlite")
            self._index.replace(aside)
            self._prepare()

    # ---- clicks -----------------------------------------------------------------------------

    def thumb(self, user: str, prompt: str, picture: Image, *, liked: bool | None) -> TasteState:
        """Keep a thumb up or down, in place of one before; None takes it away."""
        digest = _digest(picture)
        with self._open() as db:
            key = (user, self.encoder, digest)
            db.execute("DELETE FROM thumbs WHERE user = ? AND encoder = ? AND picture = ?", key)
        if liked is not None:
            vector = self._embedded([picture])[0].tobytes()
            with self._open() as db:
                db.execute(
                    "INSERT OR REPLACE INTO thumbs "
                    "(user, encoder, picture, prompt, liked, vector) VALUES (?, ?, ?, ?, ?, ?)",
                    (*key, prompt, int(liked), vector),
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
        vectors = self._embedded([better, worse]).tobytes()
        with self._open() as db:
            db.execute(
                "DELETE FROM pairs WHERE user = ? AND encoder = ? AND better = ? AND worse = ?",
                (user, self.encoder, names[1], names[0]),
            )
            db.execute(
                "INSERT OR REPLACE INTO pairs (user, encoder, better, worse, prompt, vectors) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                (user, self.encoder, *names, prompt, vectors),
            )
        return self.state(user)

    def forget(self, user: str) -> None:
        """Delete all that is known of a user's taste."""
        import shutil

        with self._open() as db:
            for table in _TABLES:
                db.execute(f"DELETE FROM {table} WHERE user = ?", (user,))
        shutil.rmtree(self.folder(user), ignore_errors=True)

    def state(self, user: str) -> TasteState:
        """How much is known."""
        better, _ = self._pairs(user)
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
        missing = max(0, LEAST - len(better))
        return TasteState(len(better), counts.get(1, 0), counts.get(0, 0), missing, clicks)

    # ---- reward -----------------------------------------------------------------------------

    def folder(self, user: str) -> Path:
        """The folder of a user's fitted model, whatever the name is."""
        return self.home / hashlib.sha256(user.encode("utf-8", "surrogatepass")).hexdigest()[:20]

    def reward(self, user: str) -> RewardModel:
        """The user's taste as a reward of pictures, fitted to all choices so far and saved.

        Raises T2XError that says how many choices are missing.
        """
        from t2x.registry import REWARD_PARTS, import_attr, load_reward

        better, worse = self._pairs(user)
        if len(better) < LEAST:
            raise T2XError(self.state(user).said)
        fit = import_attr(REWARD_PARTS["pal-own-taste"])
        model = fit(user, _tensor(better), _tensor(worse), encoder=self.encoder)
        model.save(self.folder(user))
        return load_reward("pal", source=model, name=TASTE)

    def _pairs(self, user: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Embeddings (M, D) of the better and the worse picture of each pair, the newest last."""
        with self._open() as db:
            key = (user, self.encoder)
            chosen = db.execute(
                "SELECT vectors FROM pairs WHERE user = ? AND encoder = ? ORDER BY number", key
            ).fetchall()
            thumbs = db.execute(
                "SELECT a.vector, b.vector FROM thumbs a JOIN thumbs b USING (user, encoder, "
                "prompt) WHERE user = ? AND encoder = ? AND a.liked AND NOT b.liked "
                "ORDER BY max(a.number, b.number)",
                key,
            ).fetchall()
        rows = [np.frombuffer(a + b, np.float32) for a, b in thumbs]
        rows += [np.frombuffer(row[0], np.float32) for row in chosen]
        both = np.stack(rows[-MOST:]) if rows else np.zeros((0, 2), np.float32)
        half = both.shape[1] // 2
        return both[:, :half], both[:, half:]

    def _embedded(self, pictures: list[Image]) -> np.ndarray[Any, Any]:
        """Unit embeddings (N, D), float32."""
        import torch
        from torch.nn import functional as F

        from t2x.media import from_pil
        from t2x.scoring.clip_encoder import load_clip

        with self._lock, torch.no_grad():
            clip = load_clip(self.encoder)
            rows = [clip.encode_image(from_pil([p])).float() for p in pictures]
            found: np.ndarray[Any, Any] = F.normalize(torch.cat(rows), dim=-1).cpu().numpy()
        return found

    # ---- database ---------------------------------------------------------------------------

    @property
    def _index(self) -> Path:
        return self.home / "tastes.sqlite"

    def _prepare(self) -> None:
        with self._connect() as db:
            switch_to_wal(db)
            db.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")

    @contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        db = sqlite3.connect(self._index, timeout=60, isolation_level=None)
        try:
            yield db
        finally:
            db.close()

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            with self._connect() as db:
                db.execute("BEGIN IMMEDIATE")
                yield db
                db.execute("COMMIT")
        except sqlite3.DatabaseError as error:
            raise self._unusable(error) from error

    def _unusable(self, error: Exception) -> T2XError:
        return T2XError(
            f"cannot use the tastes in {str(self.home)!r}: {error}; see that you may write there "
            "and that there is space"
        )


def _digest(picture: Image) -> str:
    from t2x.generators.sources import source_digest

    return source_digest(picture)


def _tensor(rows: np.ndarray[Any, Any]) -> Tensor:
    import torch

    return torch.from_numpy(rows.copy())
