"""Rewriting a file of prompts: a million lines are an ordinary input.

Batches are cut by the index of the input line, so that a run that was killed and resumed writes the
bytes of one that was not, and memory does not grow with the file.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any, TypeAlias

from t2x.errors import T2XError
from t2x.jobs.lines import Line, Source, file_source, read_lines
from t2x.jobs.output import open_output, side_files

if TYPE_CHECKING:
    from t2x.rewriters.guarded import Guarded
    from t2x.types import Rewrite, Rewriter

log = logging.getLogger(__name__)

BATCH = 64  # lines; also what a kill can cost
BROKEN = 8  # so many prompts that fail together, with none that passes: it is not the prompts
Progress: TypeAlias = "Callable[[int, int | None], None]"  # lines done, lines in all if known
Record: TypeAlias = "dict[str, Any]"

__all__ = ["BATCH", "Batch", "Job", "Outcome", "Progress", "rewrite_batches", "rewrite_file"]


@dataclass(frozen=True)
class Job:
    """What decides the text: rewriter by name or loaded, seed, rewrites per prompt, and the
    generator whose token limits hold."""

    rewriter: str | Rewriter = "emoji-rewriter"
    num: int = 1
    seed: int = 0
    target: str | None = None

    @cached_property
    def guarded(self) -> Guarded:
        """The rewriter in its guard, loaded when the first prompt needs it."""
        from t2x.rewriters.loading import load_guarded

        return load_guarded(self.rewriter, generator=self.target)

    def load(self) -> None:
        """Load the rewriter now, or raise what says why it can't be."""
        _ = self.guarded

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
            "t2x": __version__,
        }


@dataclass(frozen=True)
class Batch:
    """Records of the good lines and of the bad ones; ``end`` lines of the input are done."""

    end: int
    records: list[Record]
    errors: list[Record]


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
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Outcome:
    """Rewrite every prompt of a file into ``out``, one line of JSON each, with its index.

    Lines without a prompt go to ``OUT.errors`` with index, line number and reason. A run that finds
    an output of the same job goes on where it stops; ``overwrite`` starts anew.

    Args:
        source: JSONL with a text or an object with a text under "prompt" per line, or plain lines.
        out: the file to write; ``OUT.job`` beside it holds what the job was.
        rewriter: a name as ``load_rewriter`` takes it, or a loaded one; it is wrapped in
            ``Guarded``.
        num: rewrites per prompt.
        seed: same prompt, seed and model: same text.
        target: generator whose token limits a rewrite must keep.
        overwrite: start anew, whatever ``out`` holds.
        progress: hears (lines done, lines in all) after every batch.

    Raises T2XError for an output of another job or of none, and whatever the rewriter raises if it
    fails on ``BROKEN`` prompts or more and passes none of a batch.
    """
    given = source if isinstance(source, Source) else file_source(Path(source))
    path = Path(out)
    _check_apart(given, path)
    job = Job(rewriter, num, seed, target)
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


def rewrite_batches(source: Source, job: Job, *, after: int = -1) -> Iterator[Batch]:
    """Rewrite batch by batch, from the one that holds the line behind index ``after``."""
    lines = read_lines(source)
    for _ in islice(lines, (after + 1) // BATCH * BATCH):
        pass
    while chunk := list(islice(lines, BATCH)):
        prompts = [line for line in chunk if line.prompt]
        needed = any(line.index > after for line in prompts)
        answers = _answers(job, [line.prompt for line in prompts]) if needed else []
        records, errors = [], [_error(line, line.error) for line in chunk if line.error]
        for line, answer in zip(prompts, answers, strict=needed):
            if isinstance(answer, str):
                errors.append(_error(line, answer))
            else:
                records.append(_record(line, answer))
        yield Batch(chunk[-1].index + 1, records, sorted(errors, key=lambda row: row["index"]))


def _answers(job: Job, prompts: Sequence[str]) -> list[list[Rewrite] | str]:
    """Give the rewrites of each prompt, or the reason why there are none.

    If the rewriter fails on a batch its prompts are tried one by one, so that one that breaks it
    does not take the others along.
    """
    guarded = job.guarded
    try:
        return [*guarded.rewrite(prompts, num_generations=job.num, seed=job.seed)]
    except Exception as error:
        log.info("a batch failed, its prompts are tried alone", exc_info=True)
        failure = error
    alone = [_alone(guarded, prompt, job) for prompt in prompts]
    if len(prompts) >= BROKEN and all(isinstance(answer, str) for answer in alone):
        raise failure
    return alone


def _alone(guarded: Guarded, prompt: str, job: Job) -> list[Rewrite] | str:
    try:
        return guarded.rewrite([prompt], num_generations=job.num, seed=job.seed)[0]
    except Exception as error:
        reason = shorten(str(error), 300, placeholder=" ...")
        return f"the rewriter failed: {type(error).__name__}: {reason}"


def _record(line: Line, answer: Sequence[Rewrite]) -> Record:
    rewrites = [_rewrite_record(item) for item in answer]
    return {"index": line.index, "prompt": line.prompt, "rewrites": rewrites}


def _rewrite_record(item: Rewrite) -> Record:
    """Give the fields of a rewrite that a reader of the output needs."""
    fields = asdict(item)
    fields["checks"] = [c for c in fields["checks"] if c["reason"] or not c["passed"]]
    return {key: value for key, value in fields.items() if key not in ("original", "raw")}


def _error(line: Line, reason: str) -> Record:
    return {"index": line.index, "line": line.index + 1, "error": reason}


def _weights(name: str) -> str | None:
    """Name the bytes of a local rewriter, so that one that was trained again is another."""
    from t2x.generators.identity import folder_digest
    from t2x.world.weights import EMBEDDED, require_model

    folder = str(require_model(name)) if name in EMBEDDED else name
    return folder_digest(folder) if os.path.isdir(folder) else None


def _check_apart(source: Source, out: Path) -> None:
    for path in (out, *side_files(out)):
        if source.path is not None and path.exists() and path.samefile(source.path):
            raise T2XError(
                f"--out {str(out)!r} would write over the input {str(source.path)!r}; give another"
            )
