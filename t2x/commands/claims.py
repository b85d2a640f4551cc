"""``t2x claims``: what papers claim, put to the test in the emoji world."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from t2x.commands.console import note, print_json, print_table, progress
from t2x.errors import T2XError

if TYPE_CHECKING:
    from t2x.claims.protocol import Claim
    from t2x.claims.runner import Report

__all__ = ["claims"]

WORK = Path("runs") / "claims"


def claims(
    name: Annotated[
        str | None, typer.Argument(help="A claim; without one, all are listed.")
    ] = None,
    run: Annotated[
        bool, typer.Option("--run", help="Make the runs that are not there yet, again and on.")
    ] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="List the jobs of a claim and how far they are.")
    ] = False,
    workers: Annotated[int, typer.Option(min=1, help="With --run: jobs side by side.")] = 1,
    cores: Annotated[
        str, typer.Option(help="With --run: a core for each worker to stay on, as 0,1.")
    ] = "",
    work: Annotated[Path, typer.Option(help="Folder of all jobs.")] = WORK,
    docs: Annotated[
        Path | None, typer.Option(help="Folder of the results; docs/claims of the checkout.")
    ] = None,
    protocols: Annotated[
        Path | None, typer.Option(help="Folder of claims as YAML; those of t2x without.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say whether a claim holds, from the runs that are kept beside it, or make them.

    Several queues may work in the same folder; what is done is never run twice, and a queue that
    is stopped at any time goes on where it was. `t2x claims all --run` works on every claim.
    """
    if name is None:
        if run or plan:
            raise T2XError("name a claim of `t2x claims`, or all, to plan or to run")
        _list(docs, protocols, as_json)
        return
    found = _claims(name, protocols)
    if plan:
        _show_plan(found, work, as_json)
        return
    if run:
        _run(found, work, docs, protocols, workers=workers, cores=_cores(cores))
    _show(found, docs, as_json)


def _claims(name: str, protocols: Path | None) -> list[Claim]:
    from t2x.claims.protocol import known_claims, load_claim

    names = known_claims(protocols) if name == "all" else [name]
    found = [load_claim(own, protocols) for own in names]
    return sorted(found, key=lambda claim: claim.screening)  # what can decide comes first


def _list(docs: Path | None, protocols: Path | None, as_json: bool) -> None:
    from t2x.claims.index import default_folder, read_verdict

    folder = docs or default_folder()
    found = [read_verdict(claim, folder).summary() for claim in _claims("all", protocols)]
    if as_json:
        print_json(found)
        return
    rows = [
        (
            row["name"],
            "one seed" if row["screening"] else "",
            "not run" if not row["seeds"] else _word(row["holds"]),
            row["claim"],
        )
        for row in found
    ]
    print_table("", ("claim", "", "verdict", "what it says"), rows)


def _show(claims: list[Claim], docs: Path | None, as_json: bool) -> None:
    from t2x.claims.index import default_folder, read_verdict

    folder = docs or default_folder()
    found = [read_verdict(claim, folder).summary() for claim in claims]
    if as_json:
        print_json(found[0] if len(found) == 1 else found)
        return
    for row in found:
        pairs = [(pair, "") for pair in row["comparisons"]]
        pairs += [(pair, "condition: ") for pair in row["conditions"]]
        cells = [_cells(pair, kind) for pair, kind in pairs]
        title = f"{row['name']}: {_word(row['holds'])}"
        print_table(title, ("compared", "metric", "effect", "95 %", "shown", "detectable"), cells)
        for reason in row["reasons"]:
            note(f"{row['name']}: {reason}")


def _cells(pair: dict[str, Any], kind: str) -> tuple[object, ...]:
    low, high = (float("nan") if v is None else v for v in pair["ci95"])
    return (
        f"{kind}{pair['first']} against {pair['second']}",
        pair["metric"],
        float("nan") if pair["effect"] is None else pair["effect"],
        f"{low:.4f} to {high:.4f}",
        _word(pair["holds"]),
        float("nan") if pair["minimum_detectable"] is None else pair["minimum_detectable"],
    )


def _word(holds: bool | str) -> str:
    if isinstance(holds, str):
        return holds
    return "holds" if holds else "does not hold"


def _cores(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise T2XError(f"--cores are numbers with commas between, as 0,1; got {text!r}") from error


def _show_plan(claims: list[Claim], work: Path, as_json: bool) -> None:
    from t2x.claims.jobs import make_plan
    from t2x.claims.runner import JobFolder

    jobs = {job.key: job for claim in claims for job in make_plan(claim).jobs}
    rows = []
    for key, job in jobs.items():
        folder = JobFolder(work / key)
        result, said = folder.result, [e for e in folder.slices if "said" in e]
        state = "done" if result else "failed before" if said else "to do"
        seconds = result["seconds"] if result else None
        rows.append(
            {"key": key, "job": job.label, "state": state, "seconds": seconds, "after": job.after}
        )
    if as_json:
        print_json(rows)
        return
    print_table(
        f"{len(rows)} jobs, {sum(row['state'] == 'done' for row in rows)} done",
        ("job", "state", "seconds", "key"),
        [
            (r["job"], r["state"], "" if r["seconds"] is None else r["seconds"], r["key"])
            for r in rows
        ],
    )


def _run(
    claims: list[Claim],
    work: Path,
    docs: Path | None,
    protocols: Path | None,
    *,
    workers: int,
    cores: list[int],
) -> None:
    """Work off the jobs of all claims, then write down what there is, complete or not."""
    from t2x.claims.index import default_folder, write_index, write_plot, write_verdict
    from t2x.claims.jobs import make_plan
    from t2x.claims.records import collect, write_records
    from t2x.claims.runner import run_jobs
    from t2x.claims.verdict import judge_claim

    folder = docs or default_folder()
    plans = [make_plan(claim) for claim in claims]
    jobs = {job.key: job for plan in plans for job in plan.jobs}
    with progress() as show:
        report = run_jobs(list(jobs.values()), work, workers=workers, cores=cores, progress=show)
    verdicts = []
    for plan in plans:
        records = collect(plan, work)
        write_records(records, folder / plan.claim.name)
        verdicts.append(judge_claim(plan.claim, records))
        write_verdict(verdicts[-1], folder)
    write_index(folder, protocols)
    for verdict in verdicts:  # last, so that results don't wait for a library
        write_plot(verdict, folder)
    _tell(report, {key: job.label for key, job in jobs.items()})


def _tell(report: Report, labels: dict[str, str]) -> None:
    for key, reason in report.failed.items():
        note(f"failed: {labels[key]} ({key}): {reason}")
    for key in report.blocked:
        note(f"not run, since it needs what failed: {labels[key]}")
