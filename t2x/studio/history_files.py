"""The folder of a history: one PNG for each picture, in a folder for each user, and an SQLite index
over them (WAL mode) that several processes may share.

A picture's file is written before its row, and holds its recipe: an index that is lost or damaged
is made anew from the files. No path is stored anywhere; it follows from user and id.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2x.databases import PATIENCE, check_version, erase_deleted, switch_to_wal, what_to_do
from t2x.errors import T2XError
from t2x.files import made_folder, take_lock, write_whole
from t2x.studio.recipes import Recipe, stored_recipe, write_picture
from t2x.studio.users import folder_name

if TYPE_CHECKING:
    from PIL.Image import Image

log = logging.getLogger(__name__)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS pictures (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL, user TEXT NOT NULL,
    job TEXT NOT NULL, arm TEXT NOT NULL, made REAL NOT NULL, bytes INTEGER NOT NULL,
    source TEXT NOT NULL, words TEXT NOT NULL, recipe TEXT NOT NULL,
    scores TEXT NOT NULL DEFAULT '{}', favourite INTEGER NOT NULL DEFAULT 0,
    deleted INTEGER NOT NULL DEFAULT 0, UNIQUE (user, id)
);
CREATE INDEX IF NOT EXISTS by_user ON pictures (user, number);
CREATE INDEX IF NOT EXISTS by_job ON pictures (job, arm);
"""
_ID = re.compile(r"[0-9a-z]{8,32}-[a-z]{1,16}-\d{1,6}")
_OWNERS = "owners"  # whose each folder is; beside the pictures, which are served
_OLD_OWNER = "user.txt"  # was among them
EXPORTS = "exports"  # files made for a download, in the folder of a user
_KEPT = 3600  # seconds that a file waits for its download
_ALONE = 60  # seconds that another process may take to open or mend it
_VERSION = 1  # of the table; what a newer t2x wrote is left alone

__all__ = ["EXPORTS", "HistoryFiles", "checked_id", "picture_id", "tidy"]


def picture_id(job: str, arm: str, index: int) -> str:
    """The id of a job's picture: ``Drawn.arm`` and ``Drawn.index`` of the job."""
    return checked_id(f"{job}-{arm}-{index}")


def checked_id(text: str) -> str:
    """Refuse what is no id, a path for instance."""
    if not isinstance(text, str) or not _ID.fullmatch(text):
        raise T2XError(f"{str(text)[:40]!r} is no picture of the history; choose one that is shown")
    return text


def words_of(recipe: Recipe) -> str:
    """What a search looks through."""
    said = (recipe.prompt, recipe.text, recipe.negative, str(recipe.edit.get("instruction", "")))
    return "\n".join(dict.fromkeys(part.casefold() for part in (*said, recipe.model) if part))


class HistoryFiles:
    """Opens index and folder; ``problems`` says in words what was lost, and what became of it."""

    def __init__(self, home: str | Path) -> None:
        self.home = Path(home)
        self.problems: list[str] = []
        self._is_ready = False
        with suppress(T2XError):  # told where it is needed, when it may have been mended
            self._make_ready()

    def _make_ready(self) -> None:
        if self._is_ready:
            return
        made_folder(self.home / "pictures", option="--home")
        with self._alone():
            try:
                try:
                    self._prepare()
                except sqlite3.OperationalError:
                    raise
                except sqlite3.DatabaseError as error:
                    self._mend(error)
                self._take_in()
            except (sqlite3.OperationalError, OSError) as error:
                raise self._unusable(error) from error
        self._is_ready = True

    # ---- paths ------------------------------------------------------------------------------

    def folder(self, user: str) -> Path:
        """The folder of a user, whatever the name is."""
        return self.home / "pictures" / folder_name(user)

    def path(self, user: str, id: str) -> Path:
        """The file of a picture."""
        return self.folder(user) / f"{checked_id(id)}.png"

    def source_path(self, user: str, digest: str) -> Path:
        """The file of a picture that was edited."""
        if not re.fullmatch(r"[0-9a-f]{16}", digest):
            raise T2XError(f"{digest[:40]!r} names no picture")
        return self.folder(user) / "sources" / f"{digest}.png"

    # ---- files ------------------------------------------------------------------------------

    def write(
        self,
        path: Path,
        picture: Image,
        recipe: Recipe | None,
        *,
        user: str,
        frames: Sequence[Image] = (),
        fps: int = 8,
    ) -> int:
        """Write a whole file or none; give its bytes. A video is an animated PNG."""
        path.parent.mkdir(parents=True, exist_ok=True)
        owner = self._owner_file(self.folder(user))
        if not owner.exists():
            owner.parent.mkdir(exist_ok=True)
            write_whole(owner, json.dumps(user))
        handle, part = tempfile.mkstemp(dir=path.parent, suffix=".part")
        try:
            with os.fdopen(handle, "wb") as file:
                write_picture(file, picture, recipe, frames=frames, fps=fps)
            size = Path(part).stat().st_size
            os.replace(part, path)
        except BaseException:
            Path(part).unlink(missing_ok=True)
            raise
        return size

    def _owner_file(self, folder: Path) -> Path:
        return self.home / _OWNERS / f"{folder.name}.json"

    def _owner(self, folder: Path) -> str | None:
        """Whose folder it is."""
        with suppress(OSError, ValueError):
            name = json.loads(self._owner_file(folder).read_text(encoding="utf-8"))
            return name if isinstance(name, str) else None
        return None

    def _hide_owner(self, folder: Path) -> None:
        """Take from a folder that is served what an older t2x wrote there."""
        old, owner = folder / _OLD_OWNER, self._owner_file(folder)
        if old.exists():
            owner.parent.mkdir(exist_ok=True)
            old.replace(owner)

    # ---- index ------------------------------------------------------------------------------

    @contextmanager
    def open(self, *, to_read: bool = False) -> Iterator[sqlite3.Connection]:
        """A connection in a transaction, which is undone if something is raised; ``to_read`` does
        not wait for a process that writes. Raises T2XError where the history can't be used."""
        self._make_ready()
        try:
            with self._connect() as db:
                db.execute("BEGIN" if to_read else "BEGIN IMMEDIATE")
                yield db
                db.execute("COMMIT")
        except sqlite3.OperationalError as error:
            raise self._unusable(error) from error
        except sqlite3.DatabaseError as error:
            log.warning("the index of the history is damaged", exc_info=True)
            with self._alone():
                self._mend(error)
                self._take_in()
            said = self.problems[-1] if self.problems else "the history's index was damaged"
            raise T2XError(f"{said}; try again") from error

    def erase_deleted(self) -> None:
        """Leave nothing of what was deleted in the index."""
        with self._connect() as db:
            erase_deleted(db)

    @contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        db = sqlite3.connect(self._index, timeout=PATIENCE, isolation_level=None)
        db.row_factory = sqlite3.Row
        try:
            db.execute("PRAGMA synchronous=NORMAL")
            db.execute("PRAGMA secure_delete=ON")
            yield db
        finally:
            db.close()

    @property
    def _index(self) -> Path:
        return self.home / "history.sqlite"

    def _unusable(self, error: Exception) -> T2XError:
        return T2XError(
            f"cannot use the history in {str(self.home)!r}: {error}; {what_to_do(error)}"
        )

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """No other process opens or mends the same history meanwhile."""
        try:
            file = (self.home / "history.lock").open("a+b")
        except OSError as error:
            raise self._unusable(error) from error
        with file:
            end = time.monotonic() + _ALONE
            while not take_lock(file):
                if time.monotonic() > end:
                    raise T2XError(f"another process holds {str(self.home)!r}; wait for it")
                time.sleep(0.05)
            yield

    def _prepare(self) -> None:
        with self._connect() as db:
            switch_to_wal(db)
            check_version(db, _VERSION, "pictures of the history")
            db.executescript(
                f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version = {_VERSION}; COMMIT;"
            )
            db.execute("SELECT id, favourite, deleted FROM pictures LIMIT 1")
            said = db.execute("PRAGMA quick_check(1)").fetchone()[0]
        if said != "ok":
            raise sqlite3.DatabaseError(said)

    def _mend(self, error: Exception) -> None:
        """Put a damaged index aside, unless another process has done so, and begin a new one."""
        try:
            self._prepare()
            return
        except sqlite3.DatabaseError:
            pass
        number = 1
        while (aside := self._index.with_name(f"history.damaged-{number}.sqlite")).exists():
            number += 1
        self._index.replace(aside)
        for ending in ("-wal", "-shm"):
            self._index.with_name(self._index.name + ending).unlink(missing_ok=True)
        self._prepare()
        self.problems.append(
            f"the history's index was damaged ({error}); its pictures were read back from their "
            f"files, marks and scores are lost; the damaged one is {aside.name}"
        )

    def _take_in(self) -> None:
        """Finish what a kill has interrupted: files without a row get one, rows marked as deleted
        lose their file."""
        with self._connect() as db:
            for row in db.execute("SELECT user, id FROM pictures WHERE deleted").fetchall():
                self.path(row["user"], row["id"]).unlink(missing_ok=True)
            db.execute("DELETE FROM pictures WHERE deleted")
            known = {self.path(row["user"], row["id"]) for row in _rows(db)}
            lost = 0
            for folder in (self.home / "pictures").iterdir():
                tidy(folder)
                self._hide_owner(folder)
                files = [f for f in folder.glob("*.png") if f not in known]
                if not files or (user := self._owner(folder)) is None:
                    continue
                for file in sorted(files, key=lambda f: f.stat().st_mtime):
                    lost += not self._take_file(db, user, file)
        if lost:
            self.problems.append(f"{lost} files of the history can't be read, and are left out")

    def _take_file(self, db: sqlite3.Connection, user: str, file: Path) -> bool:
        from PIL import Image

        job, _, rest = file.stem.partition("-")
        try:
            checked_id(file.stem)
            with Image.open(file) as image:
                recipe = stored_recipe(image)
            stat = file.stat()
        except (T2XError, OSError, ValueError, SyntaxError):
            return False
        if recipe is not None:
            values = row_values(recipe, id=file.stem, user=user, job=job, arm=rest.split("-")[0])
            insert(db, values | {"made": stat.st_mtime, "bytes": stat.st_size})
        return recipe is not None


def tidy(folder: Path) -> None:
    """Remove from the folder of a user what was made for a download more than an hour ago, and what
    a kill has left half written."""
    before = time.time() - _KEPT
    for path in [*folder.glob(f"{EXPORTS}/*"), *folder.rglob("*.part")]:
        with suppress(OSError):
            if path.stat().st_mtime >= before:
                continue
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


def _rows(db: sqlite3.Connection) -> list[sqlite3.Row]:
    found: list[sqlite3.Row] = db.execute("SELECT user, id FROM pictures").fetchall()
    return found


def row_values(recipe: Recipe, *, id: str, user: str, job: str, arm: str) -> dict[str, Any]:
    """What a row says of a picture, without time and size."""
    return {
        "id": id,
        "user": user,
        "job": job,
        "arm": arm,
        "source": str(recipe.source.get("digest", "")),
        "words": words_of(recipe),
        "recipe": json.dumps(recipe.record(), ensure_ascii=False),
    }


def insert(db: sqlite3.Connection, values: Mapping[str, Any]) -> None:
    """Add a row; one that is there stays."""
    names = ", ".join(values)
    marks = ", ".join(f":{name}" for name in values)
    db.execute(f"INSERT OR IGNORE INTO pictures ({names}) VALUES ({marks})", dict(values))
