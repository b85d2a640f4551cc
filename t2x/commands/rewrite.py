"""``t2x rewrite``: prompts from the command line or from a file of any length, each rewritten once
or more."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from t2x.commands.console import check_prompts, job_progress, note, print_json, print_table
from t2x.errors import T2XError, UnknownNameError
from t2x.jobs.engines import Engine
from t2x.jobs.lines import Format

if TYPE_CHECKING:
    from t2x.jobs.lines import Source
    from t2x.jobs.rewriting import Job

__all__ = ["rewrite"]


def rewrite(  # noqa: PLR0913 - a command has a parameter for each of its options
    prompts: Annotated[list[str] | None, typer.Argument(help="What you want to see.")] = None,
    source: Annotated[
        str | None,
        typer.Option("--in", help="File with one prompt per line; - is stdin. See --format."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Write JSONL here; a run that was stopped goes on where it was."),
    ] = None,
    model: Annotated[
        str, typer.Option("--model", help="A name from `t2x list`, a folder, or a hub id.")
    ] = "emoji-rewriter",
    num: Annotated[int, typer.Option("--num", "-n", min=1, help="Rewrites per prompt.")] = 1,
    seed: Annotated[int, typer.Option(help="Same prompt, seed and model: same text.")] = 0,
    target: Annotated[
        str | None,
        typer.Option(
            help="Generator that will draw, whose token limits a rewrite must keep and whose kind "
            "of text it is asked for; or a kind alone: sd15, sdxl, sd3, flux, z-image, qwen-image, "
            "wan, cogvideox."
        ),
    ] = None,
    form: Annotated[
        Format,
        typer.Option(
            "--format",
            help="jsonl: a text or {'prompt': ...} per line; text: plain lines; csv: a column of a "
            "table; auto: by the name of the file, else by its first line.",
        ),
    ] = "auto",
    column: Annotated[
        str | None, typer.Option(help="Column of a CSV file that holds prompts; `prompt` without.")
    ] = None,
    engine: Annotated[
        Engine,
        typer.Option(
            help="local: this process; ray: a Ray cluster, which writes the same bytes; vllm: "
            "vLLM on a GPU."
        ),
    ] = "local",
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Processes of --engine ray; all there is room for without."),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Start --out anew, whatever it holds.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON lines.")] = False,
) -> None:
    """Rewrite prompts so that the generator understands them.

    Every rewrite is checked against the prompt; what breaks a check is given back unchanged, with
    the reason. A file is JSONL, plain lines or CSV; what is written is JSONL. Lines that hold no
    prompt never stop the rest: with --out they go to OUT.errors, else to standard error.
    """
    from t2x.jobs.lines import input_source, prompt_source
    from t2x.jobs.rewriting import Job

    if bool(prompts) == (source is not None):
        raise T2XError("give prompts on the command line or a file with --in, one of both")
    check_prompts(prompts or [])
    if target is not None:
        _check_target(target)
    if source is None:
        lines = prompt_source(prompts or [])
    else:
        lines = input_source(source, form, column=column)
    job = Job(model, num, seed, target, engine, workers)
    if out is None:
        _to_screen(lines, job, as_json or source is not None)
    elif out.suffix.lower() in (".csv", ".tsv"):
        raise T2XError(
            f"what is written is JSON Lines; give a name like {out.with_suffix('.jsonl')}"
        )
    else:
        _to_file(lines, out, overwrite, job)


def _check_target(name: str) -> None:
    """Refuse what can be no generator: its tokenizers would only be missing."""
    from t2x.registry import GENERATORS, known_names
    from t2x.rewriters.targets import TARGETS

    known = [*known_names("generators"), *TARGETS]
    if name not in known and "/" not in name and ":" not in name and not Path(name).is_dir():
        raise UnknownNameError(
            f"unknown generator {name!r} for --target: known are: "
            f"{', '.join([*GENERATORS, *TARGETS])}, a name of `t2x list generators`, a local "
            "folder, or a hub id owner/model"
        )


def _to_file(lines: Source, out: Path, overwrite: bool, job: Job) -> None:
    from t2x.jobs.output import side_files
    from t2x.jobs.rewriting import rewrite_file

    with job_progress("lines") as show:
        done = rewrite_file(
            lines, out, rewriter=job.rewriter, num=job.num, seed=job.seed, target=job.target,
            engine=job.engine, workers=job.workers, overwrite=overwrite, progress=show,
        )  # fmt: skip
    total = done.written + done.bad
    before = f"; {done.resumed} of the {total} are from an earlier run" if done.resumed else ""
    if done.bad:
        raise T2XError(
            f"{done.bad} of {total} lines were not rewritten{before}; see {side_files(out)[0]}"
        )
    note(f"{done.written} lines written to {out}{before}")


def _to_screen(lines: Source, job: Job, as_json: bool) -> None:
    from t2x.jobs.rewriting import rewrite_batches

    bad = total = 0
    rows: list[tuple[str, str, str]] = []
    for batch in rewrite_batches(lines, job):
        bad, total = bad + len(batch.errors), total + len(batch.records) + len(batch.errors)
        for error in batch.errors:
            note(f"line {error['line']}: {error['error']}")
        for record in batch.records:
            if as_json:
                print_json(record, indent=None)
            else:
                rows += _rows(record)
    if rows:
        print_table("", ("prompt", "rewrite", "status"), rows)
    if bad:
        raise T2XError(f"{bad} of {total} lines were not rewritten; the reasons are above")


def _rows(record: dict[str, Any]) -> list[tuple[str, str, str]]:
    rows = []
    for item in record["rewrites"]:
        reasons = "; ".join(check["reason"] or check["name"] for check in item["checks"])
        status = f"{item['status']}: {reasons}" if reasons else item["status"]
        rows.append((record["prompt"], item["text"], status))
    return rows
