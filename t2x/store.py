"""A cache of pictures, videos and results that several processes may share.

Files are named by the SHA-256 of their bytes; an SQLite index (WAL mode) maps keys to files. A
key holds everything that changes a result, so that a hit is what a fresh run would give. Media
are stored as PNG (a video as its frames below one another), results as JSON. Past ``max_bytes``
the entries that were not used for longest go. A file that is damaged or gone is a miss, never an
error. One that is larger than ``max_bytes`` is refused.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from t2x.databases import switch_to_wal
from t2x.errors import T2XError
from t2x.generators.identity import SCORING_LIBRARIES, versions

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Store", "make_key", "media_key", "score_key"]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS entries (
    key TEXT PRIMARY KEY, digest TEXT NOT NULL, suffix TEXT NOT NULL,
    frames INTEGER NOT NULL, bytes INTEGER NOT NULL, used INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS by_use ON entries (used);
CREATE INDEX IF NOT EXISTS by_digest ON entries (digest);
CREATE TABLE IF NOT EXISTS files (digest TEXT PRIMARY KEY, bytes INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS total (bytes INTEGER NOT NULL);
INSERT INTO total SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM total);
CREATE TRIGGER IF NOT EXISTS added AFTER INSERT ON files
    BEGIN UPDATE total SET bytes = bytes + NEW.bytes; END;
CREATE TRIGGER IF NOT EXISTS dropped AFTER DELETE ON files
    BEGIN UPDATE total SET bytes = bytes - OLD.bytes; END;
"""


def make_key(kind: str, **fields: Any) -> str:
    """Hash a kind and named fields (plain values, nested at will) to 64 hex digits."""
    text = json.dumps([kind, fields], sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def media_key(
    prompt: str,
    *,
    fingerprint: Mapping[str, Any],
    seed: int,
    negative: str = "",
    source: str | None = None,
) -> str:
    """Key of one generated picture or video.

    ``fingerprint`` is ``DiffusionGenerator.fingerprint()``: model id and revision, scheduler,
    sampling settings and size, dtype, device and library versions. ``source`` names the picture
    that it was drawn from (``t2x.generators.sources.source_digest``), where there was one.
    """
    drawn_from = {} if source is None else {"source": source}
    return make_key(
        "media",
        prompt=prompt,
        negative=negative,
        seed=seed,
        fingerprint=dict(fingerprint),
        **drawn_from,
    )


def score_key(prompt: str, *, media_digest: str, reward: Mapping[str, Any]) -> str:
    """Key of one score.

    ``media_digest`` is ``Store.digest`` of the media's key; ``reward`` names the reward, the
    revision of its weights and the options that change a score. Library versions are added here.
    """
    return make_key(
        "score",
        prompt=prompt,
        media=media_digest,
        reward=dict(reward),
        versions=versions(SCORING_LIBRARIES),
    )


class _Row(NamedTuple):
    digest: str
    suffix: str
    frames: int


class Store:
    """Content-addressed store under ``root``; safe for several threads and processes."""

    def __init__(self, root: str | Path, *, max_bytes: int = 2 << 30) -> None:
        if max_bytes <= 0:
            raise ValueError(f"max_bytes must be positive, got {max_bytes}")
        self.root = Path(root)
        self.max_bytes = max_bytes
        try:
            (self.root / "objects").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise T2XError(f"cannot make the store {str(self.root)!r}: {error}") from error
        with self._open() as db:
            switch_to_wal(db)
            db.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")

    def put_media(self, key: str, media: Tensor) -> str:
        """Store a picture (3, H, W) or video (F, 3, H, W), [0, 1]; give the digest of the file."""
        data, frames = _encode_media(media)
        return self._put(key, data, ".png", frames)

    def get_media(self, key: str) -> Tensor | None:
        """Give the media back in the shape they were stored, float32 in [0, 1], or None."""
        found = self._get(key)
        if found is None:
            return None
        data, frames = found
        return _decode_media(data, frames)

    def put_result(self, key: str, result: Mapping[str, Any]) -> str:
        """Store plain values (numbers, texts, lists; NaN is kept); give the digest of the file."""
        data = json.dumps(dict(result), sort_keys=True, ensure_ascii=True).encode("ascii")
        return self._put(key, data, ".json", 0)

    def get_result(self, key: str) -> dict[str, Any] | None:
        """Give a stored result back, or None."""
        found = self._get(key)
        return None if found is None else cast("dict[str, Any]", json.loads(found[0]))

    def digest(self, key: str) -> str | None:
        """Give the SHA-256 of the file behind a key, or None."""
        with self._open() as db:
            row = db.execute("SELECT digest FROM entries WHERE key = ?", (key,)).fetchone()
        return None if row is None else cast("str", row[0])

    def size(self) -> int:
        """Bytes of all stored files."""
        with self._open() as db:
            return _total(db)

    def _put(self, key: str, data: bytes, suffix: str, frames: int) -> str:
        if len(data) > self.max_bytes:
            raise T2XError(
                f"{len(data)} bytes are more than the whole store {str(self.root)!r} may hold, "
                f"{self.max_bytes}; give it a larger max_bytes"
            )
        digest = hashlib.sha256(data).hexdigest()
        path = self._path(digest, suffix)
        with self._open() as db:
            # Files come and go inside the write transaction: no other process deletes meanwhile.
            db.execute("BEGIN IMMEDIATE")
            _write(path, data)
            old = db.execute("SELECT digest, suffix FROM entries WHERE key = ?", (key,)).fetchone()
            db.execute(
                "INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?, ?, "
                "(SELECT coalesce(max(used), 0) + 1 FROM entries))",
                (key, digest, suffix, frames, len(data)),
            )
            db.execute("INSERT OR IGNORE INTO files VALUES (?, ?)", (digest, len(data)))
            if old and old[0] != digest:
                self._drop_file(db, *old)
            self._evict(db)
            db.execute("COMMIT")
        return digest

    def _get(self, key: str) -> tuple[bytes, int] | None:
        with self._open() as db:
            row = _find(db, key)
            data = None if row is None else self._read(row)
            if row is not None and data is None:
                row, data = self._read_again(db, key)
            if row is None or data is None:
                return None
            db.execute(
                "UPDATE entries SET used = (SELECT max(used) + 1 FROM entries) WHERE key = ?",
                (key,),
            )
        return data, row.frames

    def _read(self, row: _Row) -> bytes | None:
        """Give the bytes behind an entry, or None if the file is damaged or gone."""
        try:
            data = self._path(row.digest, row.suffix).read_bytes()
        except OSError:
            return None
        return data if hashlib.sha256(data).hexdigest() == row.digest else None

    def _read_again(self, db: sqlite3.Connection, key: str) -> tuple[_Row | None, bytes | None]:
        """Read while no other process writes, and drop every entry of a file that is damaged.

        Since the first try another process may have stored the same file anew, or dropped it.
        """
        db.execute("BEGIN IMMEDIATE")
        row = _find(db, key)
        data = None if row is None else self._read(row)
        if row is not None and data is None:
            db.execute("DELETE FROM entries WHERE digest = ?", (row.digest,))
            self._drop_file(db, row.digest, row.suffix)
        db.execute("COMMIT")
        return row, data

    def _evict(self, db: sqlite3.Connection) -> None:
        while _total(db) > self.max_bytes:
            key, digest, suffix = db.execute(
                "SELECT key, digest, suffix FROM entries ORDER BY used LIMIT 1"
            ).fetchone()
            db.execute("DELETE FROM entries WHERE key = ?", (key,))
            self._drop_file(db, digest, suffix)

    def _drop_file(self, db: sqlite3.Connection, digest: str, suffix: str) -> None:
        used = db.execute("SELECT 1 FROM entries WHERE digest = ?", (digest,)).fetchone()
        if used is None:
            db.execute("DELETE FROM files WHERE digest = ?", (digest,))
            with suppress(OSError):
                self._path(digest, suffix).unlink()

    def _path(self, digest: str, suffix: str) -> Path:
        return self.root / "objects" / digest[:2] / f"{digest}{suffix}"

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        db = sqlite3.connect(self.root / "index.sqlite", timeout=60, isolation_level=None)
        try:
            db.execute("PRAGMA synchronous=NORMAL")
            yield db
        except sqlite3.OperationalError as error:
            raise T2XError(
                f"cannot use the store {str(self.root)!r}: {error}; free some space there and see "
                "that you may write, then run the same again: what it holds stays"
            ) from error
        finally:
            db.close()


def _total(db: sqlite3.Connection) -> int:
    """Bytes of all files, as triggers keep them: a sum over all would cost every put a scan."""
    return int(db.execute("SELECT bytes FROM total").fetchone()[0])


def _find(db: sqlite3.Connection, key: str) -> _Row | None:
    query = "SELECT digest, suffix, frames FROM entries WHERE key = ?"
    found = db.execute(query, (key,)).fetchone()
    return None if found is None else _Row(*found)


def _write(path: Path, data: bytes) -> None:
    """Write a whole file or none of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _encode_media(media: Tensor) -> tuple[bytes, int]:
    """Give PNG bytes and the number of frames, 0 for a picture."""
    from t2x.media import to_pil

    if media.ndim not in (3, 4) or media.shape[-3] != 3:
        raise ValueError(
            f"the store takes (3, H, W) or (F, 3, H, W), got shape {tuple(media.shape)}"
        )
    frames = len(media) if media.ndim == 4 else 0
    tall = media.permute(1, 0, 2, 3).flatten(1, 2) if frames else media  # (3, F * H, W)
    buffer = io.BytesIO()
    to_pil(tall.unsqueeze(0))[0].save(buffer, format="PNG")
    return buffer.getvalue(), frames


def _decode_media(data: bytes, frames: int) -> Tensor:
    from PIL.PngImagePlugin import PngImageFile

    from t2x.media import from_pil

    # Image.open refuses what has so many pixels that it may be an attack, as a long video has;
    # these bytes are those that were stored, or their digest would differ.
    tall = cast("Tensor", from_pil([PngImageFile(io.BytesIO(data))]))[0]  # (3, F * H, W)
    if not frames:
        return tall
    return tall.reshape(3, frames, -1, tall.shape[-1]).transpose(0, 1).contiguous()
