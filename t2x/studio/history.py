"""What was drawn, for each user: pictures with their recipes, kept one by one as they are drawn, so
that a kill loses the one that is being written and no other.

    history = History(home)
    studio.listen(history.watch)
    page = history.page("ada", words="crimson sofa")
"""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2x.errors import T2XError
from t2x.plain import plain
from t2x.studio.events import Drawn, Event, Scored
from t2x.studio.history_files import (
    EXPORTS,
    HistoryFiles,
    checked_id,
    insert,
    picture_id,
    row_values,
)
from t2x.studio.recipes import Recipe
from t2x.studio.requests import EditRequest, Request

if TYPE_CHECKING:
    import sqlite3

    from PIL.Image import Image

log = logging.getLogger(__name__)

PAGE = 24
_BLOCK = 500  # rows held at a time

__all__ = ["PAGE", "History", "Kept", "Page"]


@dataclass(frozen=True)
class Kept:
    """A picture of the history. ``made`` in seconds since 1970; ``problem`` is "" or says that the
    file is gone or damaged: then there is the recipe alone."""

    id: str
    job: str
    arm: str
    made: float
    path: Path
    recipe: Recipe
    scores: Mapping[str, float | None]
    favourite: bool
    problem: str = ""

    def record(self) -> dict[str, Any]:
        """All of it as JSON values, for the file beside the picture."""
        made = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.made))
        facts = {"id": self.id, "made": made, "favourite": self.favourite}
        return {**facts, "scores": dict(self.scores), "recipe": self.recipe.record()}

    @property
    def file_name(self) -> str:
        """A name for a download: time, id and seed."""
        made = time.strftime("%Y%m%d-%H%M%S", time.gmtime(self.made))
        return f"{made}-{self.id}-seed{self.recipe.seed}.png"


@dataclass(frozen=True)
class Page:
    """Pictures of a page, the newest first; ``number`` counts from 0. ``total`` pictures are on
    ``pages`` pages."""

    items: tuple[Kept, ...]
    number: int
    pages: int
    total: int


class History:
    """The history of all users under ``home``; several processes may share it.

    Nothing is raised where it can't be used (no space, no right to write, of a newer t2x), but
    T2XError by what needs it, each time anew. A damaged index is made anew; ``problems`` says what
    was lost.
    """

    def __init__(self, home: str | Path) -> None:
        self.files = HistoryFiles(home)

    @property
    def problems(self) -> tuple[str, ...]:
        """What was lost, one line each; empty if nothing was."""
        return tuple(self.files.problems)

    # ---- keeping ----------------------------------------------------------------------------

    def watch(self, job: str, user: str, request: Request, event: Event) -> None:
        """Keep what a job tells (``Studio.listen``)."""
        if isinstance(event, Drawn) and event.arm != "source":
            self.add(event, user=user, job=job, request=request)
        elif isinstance(event, Scored):
            self._score(job, event)

    def add(self, drawn: Drawn, *, user: str, job: str, request: Request | None = None) -> str:
        """Keep a picture; give its id."""
        recipe = Recipe.from_record(drawn.recipe)
        id = picture_id(job, drawn.arm, drawn.index)
        path = self.files.path(user, id)
        try:
            if isinstance(request, EditRequest) and request.picture is not None:
                self._keep_source(request.picture, recipe, user=user)
            size = self.files.write(
                path, drawn.picture, recipe, user=user, frames=drawn.frames, fps=drawn.fps
            )
        except OSError as error:
            said = f"the picture can't be kept: {error.strerror or error}; download it, and see to"
            raise T2XError(f"{said} {str(self.files.home)!r} (--home)") from error
        values = row_values(recipe, id=id, user=user, job=job, arm=drawn.arm)
        with self.files.open() as db:
            insert(db, values | {"made": time.time(), "bytes": size})
        return id

    def _keep_source(self, picture: Image, recipe: Recipe, *, user: str) -> None:
        path = self.files.source_path(user, str(recipe.source.get("digest", "")))
        if not path.exists():
            self.files.write(path, picture, None, user=user)

    def _score(self, job: str, scored: Scored) -> None:
        with self.files.open() as db:
            for arm, values in scored.values.items():
                for index, value in enumerate(values):
                    self._merge(db, picture_id(job, arm, index), scored.reward, value)

    def _merge(self, db: sqlite3.Connection, id: str, reward: str, value: float) -> None:
        row = db.execute("SELECT scores FROM pictures WHERE id = ?", (id,)).fetchone()
        if row is not None:
            scores = {**json.loads(row["scores"]), reward: plain(value)}
            db.execute("UPDATE pictures SET scores = ? WHERE id = ?", (json.dumps(scores), id))

    # ---- looking ----------------------------------------------------------------------------

    def page(
        self,
        user: str,
        *,
        number: int = 0,
        words: str = "",
        favourites: bool = False,
        size: int = PAGE,
    ) -> Page:
        """Give a page of a user's pictures, of those that hold all ``words``; a number past the end
        is the last one."""
        where, values = _condition(user, words, favourites)
        with self.files.open(to_read=True) as db:
            total = int(db.execute(f"SELECT count(*) FROM pictures {where}", values).fetchone()[0])
            pages = max(1, -(-total // size))
            number = min(max(0, number), pages - 1)
            rows = db.execute(
                f"SELECT * FROM pictures {where} ORDER BY number DESC LIMIT ? OFFSET ?",
                (*values, size, number * size),
            ).fetchall()
        return Page(tuple(self._kept(row) for row in rows), number, pages, total)

    def get(self, user: str, id: str) -> Kept:
        """Give one picture of a user. Raises T2XError for one that is not there, or not theirs."""
        with self.files.open(to_read=True) as db:
            row = db.execute(
                "SELECT * FROM pictures WHERE user = ? AND id = ? AND NOT deleted",
                (user, checked_id(id)),
            ).fetchone()
        if row is None:
            raise T2XError("this picture is not in your history; it may have been deleted")
        return self._kept(row)

    def each(self, user: str, ids: Iterable[str] | None = None) -> Iterator[Kept]:
        """Give a user's pictures, the newest first, or those of ``ids`` that are there."""
        if ids is not None:
            for id in ids:
                try:
                    yield self.get(user, id)
                except T2XError:
                    log.info("picture %r was not found", id)
            return
        last = 1 << 62
        while True:
            with self.files.open(to_read=True) as db:
                rows = db.execute(
                    "SELECT * FROM pictures WHERE user = ? AND number < ? AND NOT deleted "
                    "ORDER BY number DESC LIMIT ?",
                    (user, last, _BLOCK),
                ).fetchall()
            if not rows:
                return
            yield from map(self._kept, rows)
            last = rows[-1]["number"]

    def source(self, user: str, digest: str) -> Image | None:
        """Give the picture that one was edited from, if this history has it."""
        from PIL import Image

        try:
            with Image.open(self.files.source_path(user, digest)) as image:
                image.load()
                return image
        except (OSError, T2XError):
            return None

    def _kept(self, row: sqlite3.Row) -> Kept:
        path = self.files.path(row["user"], row["id"])
        try:
            problem = "" if path.stat().st_size == row["bytes"] else "its file is damaged"
        except OSError:
            problem = "its file is gone"
        return Kept(
            id=row["id"],
            job=row["job"],
            arm=row["arm"],
            made=row["made"],
            path=path,
            recipe=Recipe.from_record(json.loads(row["recipe"])),
            scores=json.loads(row["scores"]),
            favourite=bool(row["favourite"]),
            problem=problem,
        )

    # ---- changing ---------------------------------------------------------------------------

    def set_favourite(self, user: str, id: str, on: bool) -> None:
        """Mark a picture, or take the mark away."""
        with self.files.open() as db:
            db.execute(
                "UPDATE pictures SET favourite = ? WHERE user = ? AND id = ?",
                (int(on), user, checked_id(id)),
            )

    def delete(self, user: str, ids: Sequence[str] | None = None) -> int:
        """Delete pictures of a user with their files, and what they were edited from if no other
        needs it; None is all of them. Gives how many there were."""
        with self.files.open() as db:  # marked first: a kill meanwhile does not bring them back
            marks = "UPDATE pictures SET deleted = 1 WHERE user = ?"
            if ids is None:
                db.execute(marks, (user,))
            else:
                db.executemany(f"{marks} AND id = ?", [(user, checked_id(id)) for id in ids])
            rows = db.execute(
                "SELECT id, source FROM pictures WHERE user = ? AND deleted", (user,)
            ).fetchall()
        shutil.rmtree(self.files.folder(user) / EXPORTS, ignore_errors=True)
        try:
            for row in rows:
                self.files.path(user, row["id"]).unlink(missing_ok=True)
        except OSError as error:
            raise T2XError(f"a picture can't be deleted: {error}") from error
        with self.files.open() as db:
            db.execute("DELETE FROM pictures WHERE user = ? AND deleted", (user,))
            for digest in {row["source"] for row in rows if row["source"]}:
                query = "SELECT 1 FROM pictures WHERE user = ? AND source = ?"
                if db.execute(query, (user, digest)).fetchone() is None:
                    self.files.source_path(user, digest).unlink(missing_ok=True)
        self.files.erase_deleted()
        return len(rows)


def _condition(user: str, words: str, favourites: bool) -> tuple[str, tuple[Any, ...]]:
    parts = ["WHERE user = ? AND NOT deleted", *(["favourite"] if favourites else [])]
    wanted = words.casefold().split()[:20]
    parts += ["instr(words, ?) > 0"] * len(wanted)
    return " AND ".join(parts), (user, *wanted)
