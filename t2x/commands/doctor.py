"""``t2x doctor``: whether this machine is ready, and what a chosen run takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from t2x.commands.console import note, parse_size, print_json, print_table, split_names
from t2x.errors import T2XError

if TYPE_CHECKING:
    from t2x.doctor.plan import Need, RunReport
    from t2x.memory.plan import PhasePlan

BAR = 16  # characters of a full bar
MARKS = {"ok": "ok", "warning": "warning", "problem": "PROBLEM"}

__all__ = ["doctor"]


def doctor(  # noqa: PLR0913 - a command has a parameter for each of its options
    plan: Annotated[
        bool,
        typer.Option(
            "--plan", help="What a run downloads and how much memory each phase takes, instead."
        ),
    ] = False,
    rewriter: Annotated[str | None, typer.Option(help="Rewriter of the run.")] = None,
    generator: Annotated[
        str | None, typer.Option("--generator", "--model", help="Generator of the run.")
    ] = None,
    rewards: Annotated[
        str | None, typer.Option(help="Rewards of the run, with commas between them.")
    ] = None,
    size: Annotated[str | None, typer.Option(help="HEIGHTxWIDTH in pixels.")] = None,
    source_size: Annotated[
        str | None,
        typer.Option(help="HEIGHTxWIDTH of a picture to start from, for models that take one."),
    ] = None,
    frames: Annotated[int | None, typer.Option(min=1, help="Frames of a video.")] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Pictures at a time; 1 without.")] = None,
    dtype: Annotated[
        str | None, typer.Option(help="Number format; without, as each model loads.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="Where the run will be, as cuda or cpu; the best one here.")
    ] = None,
    memory_limit: Annotated[
        str | None,
        typer.Option(help="Memory of that device, as 24GB; without, what is available here."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Look at the machine, the installation, the cache and the hub; or, with --plan, at a run.

    Downloads no weights. Exit code 1 if there is a problem; warnings are none.
    """
    given: dict[str, Any] = {
        "rewriter": rewriter,
        "generator": generator,
        "rewards": rewards,
        "size": size,
        "source-size": source_size,
        "frames": frames,
        "batch": batch,
        "dtype": dtype,
        "device": device,
        "memory-limit": memory_limit,
    }
    named = [f"--{name}" for name, value in given.items() if value is not None]
    if not plan:
        if named:
            raise T2XError(f"{', '.join(named)} is about a run; give --plan, too")
        _examine(as_json)
        return
    if rewriter is None and generator is None and rewards is None:
        raise T2XError(
            "--plan needs a run; give for instance --rewriter promptist --generator sdxl-base "
            "--rewards clip,hps"
        )
    from t2x.doctor.plan import plan_report

    report = plan_report(
        rewriter,
        generator,
        [] if rewards is None else split_names(rewards, "reward", "--rewards clip,vqa"),
        limit=memory_limit,
        device=device,
        dtype=dtype,
        size=None if size is None else parse_size(size),
        num_frames=frames,
        batch=batch or 1,
        **({} if source_size is None else {"source_size": parse_size(source_size)}),
    )
    print_json(report.record()) if as_json else _print_plan(report)
    if report.problems():
        raise typer.Exit(1)


def _examine(as_json: bool) -> None:
    from dataclasses import asdict

    from t2x.doctor.findings import examine

    found = examine()
    if as_json:
        print_json([asdict(finding) for finding in found])
    else:
        rows = [(MARKS[f.status], f.topic, f.said, f.advice) for f in found]
        print_table("", ("", "what", "found", "what to do"), rows)
    problems = sum(finding.status == "problem" for finding in found)
    warnings = sum(finding.status == "warning" for finding in found)
    note(f"{problems} problems, {warnings} warnings")
    if problems:
        raise typer.Exit(1)


def _print_plan(report: RunReport) -> None:
    from t2x.failures import without_secrets

    print_table(
        "downloads",
        ("for", "model", "from", "to download", "licence"),
        [_need(need) for need in report.needs],
    )
    memory = report.memory
    if report.reason:
        note(f"memory: {report.reason}")
    if memory is not None:
        largest = max((p.peak or p.weight or 0 for p in memory.phases), default=0)
        full = max(memory.limit or 0, largest) or 1
        rows = [_phase(phase, memory.limit, full) for phase in memory.phases]
        print_table("memory", ("phase", "model", "weights", "beside", "peak", "of it"), rows)
        for phase in memory.phases:
            for said in phase.notes:
                note(without_secrets(f"{phase.kind} {phase.source}: {said}"))
        note(memory.summary())
    for problem in report.problems():
        note(f"problem: {problem}")
    for advice in report.advice():
        note(f"to do: {advice}")


def _need(need: Need) -> tuple[str, ...]:
    from t2x.memory.machine import readable_bytes

    if need.place != "hub":
        return need.kind, need.name, need.place, "nothing", need.licence or ""
    sources = ", ".join(download.source for download in need.downloads) or "its publisher"
    if need.missing is None:
        why = next((d.problem.partition(";")[0] for d in need.downloads if d.problem), "")
        size = need.stated or (f"unknown: {why}" if why else "unknown")
    elif need.missing == 0:
        size = "nothing, it is in the cache"
    else:
        parts = [(name or "others", s) for d in need.downloads for name, s in d.parts.items()]
        large = sorted(parts, key=lambda part: -part[1])[:4]
        shown = ", ".join(f"{name} {readable_bytes(part)}" for name, part in large)
        size = f"{readable_bytes(need.missing)} ({shown})"
    gate = {True: "gated", False: "not gated", None: "gate unknown"}[need.gated]
    return need.kind, need.name, sources, size, f"{need.licence or 'licence unknown'}, {gate}"


def _phase(phase: PhasePlan, limit: int | None, full: int) -> tuple[str, ...]:
    """A row with a bar of the peak: ``#`` weights, ``+`` what comes beside, ``|`` the limit."""
    from t2x.memory.machine import readable_bytes

    weights = round(BAR * (phase.weight or 0) / full)
    most = max(round(BAR * (phase.peak or phase.weight or 0) / full), weights)
    bar = list(("#" * weights + "+" * (most - weights)).ljust(BAR))
    if limit is not None:
        bar.insert(min(round(BAR * limit / full), BAR), "|")
    sizes = (readable_bytes(size) for size in (phase.weight, phase.activation, phase.peak))
    return (phase.kind, phase.source, *sizes, "".join(bar).rstrip())
