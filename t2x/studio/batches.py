"""Files of prompts in the studio: uploaded, rewritten by ``t2x.jobs`` and drawn on demand, with
what is done so far in a folder of its own, so that a batch goes on after a stop or a restart.

    batch = batches.add("ada", path, name="prompts.csv")
    studio.run(batches.rewriting(batch), user="ada")

A folder holds ``input.*``, ``batch.json`` (name, settings), ``rewrites.jsonl`` with its errors and
its sidecar (``t2x.jobs.output``), and ``pictures/`` with one file for each that is drawn.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2x.errors import T2XError
from t2x.files import made_folder, write_whole
from t2x.jobs.columns import MAX_LINE, column_names
from t2x.jobs.lines import Source, file_source
from t2x.jobs.output import side_files
from t2x.studio.requests import TaskRequest
from t2x.studio.uploads import check_prompts_file, shown_name
from t2x.studio.users import folder_name

if TYPE_CHECKING:
    from t2x.studio.work import Work

_ID = re.compile(r"[0-9]{10}-[0-9a-f]{16}")
_SUFFIXES = (".jsonl", ".ndjson", ".csv", ".tsv", ".txt")
_TABLES = (".csv", ".tsv")
_LIKELY = ("prompt", "prompts", "text", "caption", "description")  # columns of prompts
_FEW = 8  # prompts between two tidings
_OFFERED = "downloads"
MOST = 100  # batches of one user that are kept

__all__ = ["Batch", "BatchState", "Batches"]


@dataclass(frozen=True)
class Batch:
    """A file of a user, and what is made of it: ``num`` rewrites of each prompt from ``seed``;
    ``total`` lines hold something."""

    id: str
    user: str
    name: str
    suffix: str
    column: str | None = None
    num: int = 1
    seed: int = 0
    total: int = 0


@dataclass(frozen=True)
class BatchState:
    """How far a batch is. ``errors`` are the first bad lines: number and reason."""

    total: int
    written: int
    bad: int
    drawn: int
    errors: tuple[tuple[int, str], ...] = ()

    @property
    def done(self) -> bool:
        """Whether every line is settled."""
        return self.written + self.bad >= self.total

    @property
    def said(self) -> str:
        """One line about it."""
        parts = [f"{self.written} of {self.total} lines rewritten"]
        parts += [f"{self.bad} left out"] if self.bad else []
        parts += [f"{self.drawn} pictures"] if self.drawn else []
        return ", ".join(parts) + "."


class Batches:
    """The batches of all users under ``home``."""

    def __init__(self, home: str | Path) -> None:
        self.home = Path(home) / "batches"
        for folder in self.home.glob(f"*/*/{_OFFERED}"):  # of pages that are closed
            shutil.rmtree(folder, ignore_errors=True)

    # ---- files ------------------------------------------------------------------------------

    def add(
        self,
        user: str,
        path: str | Path,
        *,
        name: str = "",
        column: str | None = None,
        num: int = 1,
        seed: int = 0,
    ) -> Batch:
        """Take a file in. ``name`` is what the user calls it; its ending says what it holds.

        Raises T2XError for what is no file of prompts, and for a table without the column.
        """
        shown = shown_name(name or str(path))
        check_prompts_file(path, name=shown)
        suffix = next((s for s in _SUFFIXES if shown.lower().endswith(s)), "")
        if not 1 <= num <= 16:
            raise T2XError(f"{num} rewrites of each prompt are asked for; give 1 to 16")
        if len(self.all(user)) >= MOST:
            raise T2XError(f"you have {MOST} batches already; delete some first")
        id = f"{int(time.time()):010d}-{secrets.token_hex(8)}"
        if suffix not in _TABLES:  # left over from another file
            column = None
        batch = Batch(id, user, shown, suffix, column or None, num, seed)
        folder = made_folder(self.folder(batch), option="--home")
        try:
            shutil.copyfile(path, self._input(batch))
            batch = replace(batch, total=_prompts(self.source(batch)))
            if not batch.total:
                raise T2XError(f"{shown} holds no prompt; give one per line")
            values = json.dumps(asdict(batch), ensure_ascii=False)
            write_whole(folder / "batch.json", values)
        except BaseException as error:
            shutil.rmtree(folder, ignore_errors=True)
            if isinstance(error, OSError):
                raise T2XError(f"{shown} can't be kept: {error}") from error
            raise
        return batch

    @staticmethod
    def columns(path: str | Path, *, name: str = "") -> tuple[list[str], str | None]:
        """The columns of a table, and the one that seems to hold the prompts; none of other files,
        and of what is no file of prompts."""
        shown = shown_name(name or str(path))
        if not shown.lower().endswith(_TABLES):
            return [], None
        try:
            check_prompts_file(path, name=shown)
            with Path(path).open("rb") as file:
                names = column_names(iter(lambda: file.readline(MAX_LINE + 2), b""))
        except (OSError, T2XError):  # told when the file is taken in
            return [], None
        by_word = {column.casefold(): column for column in reversed(names)}
        likely = [by_word[word] for word in _LIKELY if word in by_word]
        return names, next(iter(likely or names[: len(names) == 1]), None)

    def all(self, user: str) -> list[Batch]:
        """A user's batches, the newest first."""
        found = []
        for path in sorted(self._owner(user).glob("*/batch.json"), reverse=True):
            try:
                found.append(Batch(**json.loads(path.read_text(encoding="utf-8"))))
            except (OSError, ValueError, TypeError):
                continue  # being made, or damaged
        return found

    def get(self, user: str, id: str) -> Batch:
        """One batch of a user. Raises T2XError for one that is not there, or not theirs."""
        if isinstance(id, str) and _ID.fullmatch(id):
            for batch in self.all(user):
                if batch.id == id:
                    return batch
        raise T2XError("this batch is not there; choose one of the list")

    def delete(self, batch: Batch) -> None:
        """Delete a batch with all its files."""
        shutil.rmtree(self.folder(batch), ignore_errors=True)

    def folder(self, batch: Batch) -> Path:
        """The folder of a batch."""
        return self._owner(batch.user) / batch.id

    def output(self, batch: Batch) -> Path:
        """The JSONL with the rewrites so far."""
        return self.folder(batch) / "rewrites.jsonl"

    def source(self, batch: Batch) -> Source:
        """The lines. Raises T2XError for a table without the column."""
        return file_source(self._input(batch), column=batch.column)

    def _input(self, batch: Batch) -> Path:
        return self.folder(batch) / f"input{batch.suffix}"

    def _owner(self, user: str) -> Path:
        return self.home / folder_name(user)

    # ---- what is there ----------------------------------------------------------------------

    def state(self, batch: Batch, *, errors: int = 20) -> BatchState:
        """How far it is, from what lies in its folder."""
        out = self.output(batch)
        bad = side_files(out)[0]
        shown: list[tuple[int, str]] = []
        for row in _lines(bad):
            if len(shown) == errors:
                break
            shown.append((int(row["line"]), str(row["error"])))
        drawn = sum(1 for _ in self._pictures(batch).glob("*.png"))
        return BatchState(
            total=batch.total, written=_count(out), bad=_count(bad), drawn=drawn,
            errors=tuple(shown),
        )  # fmt: skip

    def records(self, batch: Batch) -> Iterator[dict[str, Any]]:
        """The records of the lines that are rewritten, in order."""
        yield from _lines(self.output(batch))

    def _pictures(self, batch: Batch) -> Path:
        return self.folder(batch) / "pictures"

    def picture(self, batch: Batch, index: int, number: int) -> Path:
        """The file of the picture of a line's rewrite ``number``."""
        return self._pictures(batch) / f"{index:08d}-{number:02d}.png"

    def offered(self, batch: Batch, path: Path, ending: str) -> Path:
        """A file of a batch as it is now, under the name that the user knows, for a download."""
        target = self._offered(batch, ending)
        try:
            target.parent.mkdir(exist_ok=True)
            target.unlink(missing_ok=True)
            try:
                os.link(path, target)
            except OSError:  # a file system without links
                shutil.copyfile(path, target)
        except OSError as error:
            raise T2XError(f"the file can't be written: {error}; free some space") from error
        return target

    def _offered(self, batch: Batch, ending: str) -> Path:
        stem = "".join(c if c.isalnum() or c in "-_" else "-" for c in Path(batch.name).stem)[:60]
        return self.folder(batch) / _OFFERED / f"{stem or 'batch'}{ending}"

    def zip(self, batch: Batch) -> Path:
        """All that was made, as one file in the folder of the batch."""
        out = self.output(batch)
        target = self._offered(batch, ".zip")
        part = target.with_suffix(".part")
        names = [out, side_files(out)[0], *sorted(self._pictures(batch).glob("*.png"))]
        there = [path for path in names if path.exists()]
        if not there:
            raise T2XError("nothing is made of this batch yet; start it first")
        try:
            target.parent.mkdir(exist_ok=True)
            with zipfile.ZipFile(part, "w", zipfile.ZIP_STORED) as file:
                for path in there:
                    file.write(path, path.relative_to(self.folder(batch)).as_posix())
            part.replace(target)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise T2XError(f"the zip can't be written: {error}; free some space") from error
        return target

    # ---- work -------------------------------------------------------------------------------

    def rewriting(self, batch: Batch) -> TaskRequest:
        """A task that rewrites all lines that are not yet; what is cancelled goes on later."""

        def run(work: Work) -> BatchState:
            from t2x.jobs.rewriting import rewrite_file

            what = f"rewriting {batch.name}"
            work.progress(what, 0, 1)
            rewriter: Any = copy(work.models.rewriter())
            inner = getattr(rewriter, "rewriter", rewriter)
            done = 0

            def tell(more: int) -> None:
                nonlocal done
                done += more
                work.progress(what, min(done, batch.total), batch.total)

            if inner is not rewriter:
                rewriter.rewriter = _Told(inner, tell)

            def progress(lines: int, total: int | None) -> None:
                nonlocal done
                done = lines
                tell(0)

            with work.phase("rewrite"), work.stoppable(inner, ("model",)):
                rewrite_file(
                    self.source(batch),
                    self.output(batch),
                    rewriter=rewriter,
                    num=batch.num,
                    seed=batch.seed,
                    progress=progress,
                )
            return self.state(batch)

        return TaskRequest("rewrite a batch", run, {"batch": batch.id})

    def drawing(self, batch: Batch) -> TaskRequest:
        """A task that draws each rewrite once, from the batch's seed plus the line's index; what is
        there stays."""

        def run(work: Work) -> BatchState:
            rows = [
                (int(record["index"]), str(record["prompt"]), number, rewrite)
                for record in self.records(batch)
                for number, rewrite in enumerate(record["rewrites"])
            ]
            if not rows:
                raise T2XError("no line of this batch is rewritten yet; start it first")
            self._pictures(batch).mkdir(exist_ok=True)
            left = [row for row in rows if not self.picture(batch, row[0], row[2]).exists()]
            for done, (index, prompt, number, rewrite) in enumerate(left):
                work.progress(f"drawing {batch.name}", done, len(left))
                self._draw(work, batch, index, prompt, number, rewrite)
            work.progress(f"drawing {batch.name}", len(left), max(1, len(left)))
            return self.state(batch)

        return TaskRequest("draw a batch", run, {"batch": batch.id})

    def _draw(
        self, work: Work, batch: Batch, index: int, prompt: str, number: int, rewrite: Any
    ) -> None:
        from t2x.registry import import_attr
        from t2x.studio.engine import JOBS
        from t2x.studio.events import Drawn
        from t2x.studio.requests import BestOfRequest

        drawn: list[Drawn] = []
        request = BestOfRequest(
            prompt,
            num=1,
            seed=batch.seed + index,
            rewrite=False,
            text=str(rewrite["text"]),
            negative=str(rewrite.get("negative", "")),
            rewards=(),
        )
        import_attr(JOBS["best_of"])(work.aside(drawn.append), request)
        _save(drawn[0], self.picture(batch, index, number))


class _Told:
    """A rewriter that tells after every few prompts; their text does not hang on it."""

    def __init__(self, rewriter: Any, tell: Callable[[int], None]) -> None:
        self._rewriter, self._tell = rewriter, tell

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rewriter, name)

    def rewrite(self, prompts: Sequence[str], **options: Any) -> list[Any]:
        """As the rewriter does."""
        found: list[Any] = []
        for start in range(0, len(prompts), _FEW):
            found += self._rewriter.rewrite(prompts[start : start + _FEW], **options)
            self._tell(len(prompts[start : start + _FEW]))
        return found


def _save(drawn: Any, path: Path) -> None:
    """Write a whole picture with its recipe, or none."""
    from t2x.studio.recipes import Recipe, write_picture

    part = path.with_suffix(".part")
    try:
        recipe = Recipe.from_record(drawn.recipe)
        with part.open("wb") as file:
            write_picture(file, drawn.picture, recipe, frames=drawn.frames, fps=drawn.fps)
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise T2XError(f"a picture of the batch can't be written: {error}") from error


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """Whole records of a file that may be being written."""
    try:
        with path.open(encoding="utf-8") as file:
            for line in file:
                if line.endswith("\n"):
                    yield json.loads(line)
    except FileNotFoundError:
        return


def _count(path: Path) -> int:
    from t2x.jobs.lines import blocks

    try:
        with path.open("rb") as file:
            return sum(block.count(b"\n") for block in blocks(file))
    except FileNotFoundError:
        return 0


def _prompts(source: Source) -> int:
    """Lines that are settled when the job is done: all but blank ones."""
    from t2x.jobs.lines import read_lines

    return sum(1 for line in read_lines(source) if line.prompt or line.error)
