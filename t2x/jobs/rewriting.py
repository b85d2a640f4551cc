"""Rewriting a file of prompts: a million lines are an ordinary input.

Batches are cut by the index of the input line, so that a run that was killed and resumed writes the
bytes of one that was not, and memory does not grow with the file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import islice, tee
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from t2x.errors import T2XError
from t2x.jobs.engines import Answer, Engine, answer_all, answer_on_ray
from t2x.jobs.lines import Line, Source, file_source, prompt_lines, read_lines
from t2x.jobs.output import open_output, side_files

if TYPE_CHECKING:
    from t2x.types import Rewrite, Rewriter

BATCH = 256  # lines; also what a kill can cost
Progress: TypeAlias = "Callable[[int, int | None], None]"  # lines done, lines in all if known
Record: TypeAlias = "dict[str, Any]"

__all__ = [
    "BATCH",
    "Batch",
    "Job",
    "Outcome",
    "Progress",
    "Result",
    "rewrite_batches",
    "rewrite_file",
    "rewrite_stream",
]


@dataclass(frozen=True)
class Job:
    """What decides the text (rewriter by name or loaded, seed, rewrites per prompt, the generator
    whose token limits hold), and what computes it.

    ``engine``: "local" is this process, "ray" a Ray cluster, which needs a rewriter by name and
    writes the same bytes; "vllm" samples by itself and writes other ones. ``workers`` of Ray have
    one CPU thread each; None is as many as the cluster has room for.
    """

    rewriter: str | Rewriter = "emoji-rewriter"
    num: int = 1
    seed: int = 0
    target: str | None = None
    engine: Engine = "local"
    workers: int | None = None

    def __post_init__(self) -> None:
        if self.engine != "local" and not isinstance(self.rewriter, str):
            raise T2XError(
                f"engine {self.engine!r} loads the rewriter itself; give its name, a folder or a "
                "hub id"
            )
        if self.workers is not None and (self.engine != "ray" or self.workers < 1):
            raise T2XError(
                f"workers is {self.workers} with engine {self.engine!r}; they are for engine "
                "'ray', 1 or more"
            )

    @cached_property
    def guarded(self) -> Rewriter:
        """The rewriter in its guard, loaded when the first prompt needs it."""
        from t2x.rewriters.loading import load_guarded

        name = self.rewriter
        if self.engine == "vllm" and isinstance(name, str):
            name = f"vllm:{_folder(name).removeprefix('vllm:')}"
        return load_guarded(name, generator=self.target)

    def load(self) -> None:
        """Load the rewriter now, or raise what says why it can't be; Ray's workers do it later."""
        if self.engine != "ray":
            _ = self.guarded

    def answers(self, batches: Iterable[Sequence[str]]) -> Iterator[list[Answer]]:
        """Answer batches of prompts in their order; the rewriter is loaded for the first one that
        is not empty."""
        if self.engine == "ray":
            yield from answer_on_ray(
                batches, rewriter=str(self.rewriter), target=self.target, num=self.num,
                seed=self.seed, workers=self.workers,
            )  # fmt: skip
            return
        for batch in batches:
            yield answer_all(self.guarded, batch, num=self.num, seed=self.seed) if batch else []

    def settings(self, source: Source) -> Record:
        """Give what must be the same for a run to go on where another stopped."""
        from t2x import __version__

        name = self.rewriter if isinstance(self.rewriter, str) else self.rewriter.model_id
        return {
            "input": source.digest,
            "format": source.form,
            "rewriter": name,
            "weights": _weights(name),
            "seed": self.seed,
            "num": self.num,
            "target": self.target,
            "batch": BATCH,
            "engine": "vllm" if self.engine == "vllm" else None,  # the others write the same
            "column": source.column,
            "t2x": __version__,
        }


@dataclass(frozen=True)
class Batch:
    """Records of the good lines and of the bad ones; ``end`` lines of the input are done."""

    end: int
    records: list[Record]
    errors: list[Record]


@dataclass(frozen=True)
class Result:
    """What became of one prompt of a stream: its rewrites, or the ``error`` for which it has
    none."""

    index: int
    prompt: str
    rewrites: tuple[Rewrite, ...] = ()
    error: str = ""


@dataclass(frozen=True)
class Outcome:
    """Lines with rewrites and lines without, of all runs of the job together; ``resumed`` of them
    were there before this run."""

    written: int
    bad: int
    resumed: int


def rewrite_file(
    source: str | Path | Source,
    out: str | Path,
    *,
    rewriter: str | Rewriter = "emoji-rewriter",
    num: int = 1,
    seed: int = 0,
    target: str | None = None,
    engine: Engine = "local",
    workers: int | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Outcome:
    """Rewrite every prompt of a file into ``out``, one line of JSON each, with its index.

    Lines without a prompt go to ``OUT.errors`` with index, line number and reason. A run that finds
    an output of the same job goes on where it stops; ``overwrite`` starts anew.

    Args:
        source: JSONL with a text or an object with a text under "prompt" per line, plain lines, or
            CSV with a column "prompt".
        out: the file to write; ``OUT.job`` beside it holds what the job was.
        rewriter: a name as ``load_rewriter`` takes it, or a loaded one; it is wrapped in
            ``Guarded``.
        num: rewrites per prompt.
        seed: same prompt, seed and model: same text.
        target: generator whose token limits a rewrite must keep.
        engine: "local", "vllm" or "ray"; see ``Job``.
        workers: processes of Ray.
        overwrite: start anew, whatever ``out`` holds.
        progress: hears (lines done, lines in all) after every batch.

    Raises T2XError for an output of another job or of none, and whatever the rewriter raises if it
    fails on ``BROKEN`` prompts or more and passes none of a batch.
    """
    given = source if isinstance(source, Source) else file_source(Path(source))
    path = Path(out)
    _check_apart(given, path)
    job = Job(rewriter, num, seed, target, engine, workers)
    if overwrite:
        job.load()  # first: a name that nobody knows must not cost the results that are there
    with open_output(path, job.settings(given), overwrite=overwrite) as output:
        before = output.written + output.bad
        if progress is not None:
            progress(output.last + 1, given.total)
        for batch in rewrite_batches(given, job, after=output.last):
            output.write(batch.records, batch.errors)
            if progress is not None:
                progress(batch.end, given.total)
        return Outcome(output.written, output.bad, before)


def rewrite_stream(
    prompts: Iterable[str],
    *,
    rewriter: str | Rewriter = "emoji-rewriter",
    num: int = 1,
    seed: int = 0,
    target: str | None = None,
    engine: Engine = "local",
    workers: int | None = None,
    batch: int | None = None,
) -> Iterator[Result]:
    """Rewrite prompts of any iterable, endless ones included, in their order.

    A batch is taken, rewritten and given before the next one is taken (with Ray, two for each
    worker), so that memory does not grow; ``batch`` is how many, None for ``BATCH``, and changes no
    text. The other arguments are those of ``rewrite_file``; what is no prompt (an empty text,
    something else than a text) has an error and stops nothing.
    """
    if batch is not None and batch < 1:
        raise T2XError(f"batch is {batch}; give at least 1")
    job = Job(rewriter, num, seed, target, engine, workers)
    for chunk, answers in _answered(prompt_lines(prompts), job, size=batch or BATCH):
        found = iter(answers)
        for line in chunk:
            answer = next(found) if line.prompt else line.error
            if isinstance(answer, str):
                yield Result(line.index, line.prompt, error=answer)
            else:
                yield Result(line.index, line.prompt, tuple(answer))


def rewrite_batches(source: Source, job: Job, *, after: int = -1) -> Iterator[Batch]:
    """Rewrite batch by batch, from the one that holds the line behind index ``after``."""
    lines = read_lines(source)
    for _ in islice(lines, (after + 1) // BATCH * BATCH):
        pass
    for chunk, answers in _answered(lines, job, after, size=BATCH):
        prompts = [line for line in chunk if line.prompt]
        records, errors = [], [_error(line, line.error) for line in chunk if line.error]
        for line, answer in zip(prompts, answers, strict=bool(answers)):
            if isinstance(answer, str):
                errors.append(_error(line, answer))
            else:
                records.append(_record(line, answer))
        yield Batch(chunk[-1].index + 1, records, sorted(errors, key=lambda row: row["index"]))


def _answered(
    lines: Iterator[Line], job: Job, after: int = -1, *, size: int
) -> Iterator[tuple[list[Line], list[Answer]]]:
    """Give chunks of ``size`` lines with the answers of their prompts; none if every prompt is one
    that was answered before (index up to ``after``)."""
    chunks, again = tee(iter(lambda: list(islice(lines, size)), []))
    asked = ([line.prompt for line in c if line.prompt] if _is_new(c, after) else [] for c in again)
    yield from zip(chunks, job.answers(asked), strict=True)


def _is_new(chunk: Sequence[Line], after: int) -> bool:
    return any(line.index > after for line in chunk if line.prompt)


def _record(line: Line, answer: Sequence[Rewrite]) -> Record:
    rewrites = [_rewrite_record(item) for item in answer]
    return {"index": line.index, "prompt": line.prompt, "rewrites": rewrites}


def _rewrite_record(item: Rewrite) -> Record:
    """Give the fields of a rewrite that a reader of the output needs."""
    fields = asdict(item)
    fields["checks"] = [c for c in fields["checks"] if c["reason"] or not c["passed"]]
    return {key: value for key, value in fields.items() if key not in ("original", "raw")}


def _error(line: Line, reason: str) -> Record:
    return {"index": line.index, "line": line.number or line.index + 1, "error": reason}


def _weights(name: str) -> str | None:
    """Name the bytes of a local rewriter, so that one that was trained again is another."""
    from t2x.generators.identity import folder_digest

    folder = _folder(name)
    return folder_digest(folder) if os.path.isdir(folder) else None


def _folder(name: str) -> str:
    from t2x.world.weights import EMBEDDED, require_model

    return str(require_model(name)) if name in EMBEDDED else name


def _check_apart(source: Source, out: Path) -> None:
    for path in (out, *side_files(out)):
        if source.path is not None and path.exists() and path.samefile(source.path):
            raise T2XError(
                f"--out {str(out)!r} would write over the input {str(source.path)!r}; give another"
            )
