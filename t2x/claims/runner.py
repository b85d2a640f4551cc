"""The queue that works off jobs: processes side by side, each with a folder of its own that says
how far it is, so that a queue that is killed at any time goes on where it was.

    WORK/KEY/job.json       what it is
    WORK/KEY/lock           held by the process of the job for as long as it lives
    WORK/KEY/slices.jsonl   when a process was started, and how it ended
    WORK/KEY/stdout, stderr what it said; stdout is its result, one JSON value, printed at its end
    WORK/KEY/run/           what it writes
    WORK/KEY/result.json    written once it is done: never run again

The lock is inherited by the process: if the queue dies, its jobs go on, another queue leaves them
alone and takes their results. A failure is written down and the rest goes on; jobs that need what
failed are not run. Nothing here knows what jobs compute.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias

from t2x.claims.jobs import Job
from t2x.errors import T2XError
from t2x.files import checkpoints, made_folder, take_lock, write_whole
from t2x.plain import json_line, lines_of

__all__ = ["JobFolder", "Report", "run_jobs"]

log = logging.getLogger(__name__)

Progress: TypeAlias = "Callable[[str, int, int], None]"
COMMAND = (sys.executable, "-m", "t2x")
_POLL = 0.2
_GRACE = 10.0  # seconds between asking a process to end and ending it
_TELL = 30.0  # seconds between two words about the same state
_TAIL = 2000  # characters of what a failed job said last


@dataclass(frozen=True)
class JobFolder:
    """What is known of one job: ``path`` is its folder."""

    path: Path

    @property
    def result(self) -> dict[str, Any] | None:
        """What the job gave, with its seconds; None while it is not done."""
        try:
            found: dict[str, Any] = json.loads((self.path / "result.json").read_text("utf-8"))
        except FileNotFoundError:
            return None
        return found

    @property
    def slices(self) -> list[dict[str, Any]]:
        """Each process of the job: started, and ended, seconds, code and what it said if it did
        not end well. One that was killed with its queue has no end."""
        return _lines(self.path / "slices.jsonl")

    @property
    def run(self) -> Path:
        """The folder that the job writes into."""
        return self.path / "run"

    def note(self, entry: dict[str, Any]) -> None:
        """Add a line to ``slices.jsonl``."""
        with (self.path / "slices.jsonl").open("ab+") as file:
            if size := file.seek(0, os.SEEK_END):
                file.seek(size - 1)
                cut = file.read(1) != b"\n"  # by a kill
                file.write(b"\n" * cut)
            file.write(json_line(entry).encode("utf-8"))

    def finish(self, output: Any) -> None:
        """Write down that the job is done, and drop the checkpoints that nobody goes on from."""
        seconds = sum(entry.get("seconds", 0.0) for entry in self.slices)
        found = {"output": output, "seconds": seconds, "slices": self.slices}
        write_whole(self.path / "result.json", json.dumps(found) + "\n")
        for checkpoint in checkpoints(self.run):
            shutil.rmtree(checkpoint, ignore_errors=True)

    def adopt(self, output: Any) -> None:
        """Write down that the job is done whose queue died before it."""
        started = [entry["started"] for entry in self.slices if "started" in entry]
        ended = (self.path / "stdout").stat().st_mtime
        seconds = max(ended - started[-1], 0.0) if started else float("nan")
        self.note({"ended": round(ended, 1), "seconds": round(seconds, 1), "code": 0})
        self.finish(output)

    def output(self) -> Any:
        """The JSON object that the process printed at its end, behind whatever libraries print;
        None if it did not come to its end."""
        try:
            text = (self.path / "stdout").read_text("utf-8", "replace")
        except OSError:
            return None
        for begin in reversed([found.start() for found in re.finditer(r"^\{", text, re.M)]):
            with suppress(ValueError):
                return json.loads(text[begin:])
        return None


@dataclass
class Report:
    """How a queue ended: keys that are ``done``, ``failed`` with the reason, and ``blocked`` by
    them."""

    done: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    blocked: list[str] = field(default_factory=list)


def run_jobs(
    jobs: Sequence[Job],
    work: Path,
    *,
    workers: int = 1,
    cores: Sequence[int] = (),
    attempts: int = 2,
    command: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> Report:
    """Run all jobs that are not done, in order, ``workers`` at a time, each as a process of one
    thread.

    Args:
        jobs: those first that others need.
        work: folder of all jobs; several queues may share it.
        workers: processes side by side.
        cores: one for each worker to stay on, where the system can do that.
        attempts: how often a job that fails is tried before it counts as failed.
        command: what the arguments of a job are given to; t2x itself without.
        progress: hears (what, jobs done, jobs in all).

    Interrupted, it ends its processes, which go on from their checkpoints the next time.
    """
    if workers < 1 or (cores and len(cores) < workers):
        raise T2XError(f"{workers} workers on cores {list(cores)}; give 1 or more, a core for each")
    queue = _Queue(jobs, made_folder(work).resolve(), command or COMMAND, attempts, progress)
    free: list[int | None] = [*cores[:workers]] if cores else [None] * workers
    try:
        while queue.step(free):
            time.sleep(_POLL)
    except BaseException:
        queue.stop()
        raise
    return queue.report()


@dataclass
class _Running:
    job: Job
    process: subprocess.Popen[bytes]
    core: int | None
    started: float
    asked: float | None = None  # when it was asked to end


class _Queue:
    """State of the jobs; ``step`` moves it on."""

    def __init__(
        self,
        jobs: Sequence[Job],
        work: Path,
        command: Sequence[str],
        attempts: int,
        progress: Progress | None,
    ) -> None:
        self.jobs = {job.key: job for job in jobs}
        self.work, self.command, self.attempts = work, tuple(command), attempts
        self.running: list[_Running] = []
        self.done = {key for key in self.jobs if self.folder(key).result is not None}
        self.failed: dict[str, str] = {}
        self.tries: Counter[str] = Counter()
        self._show, self._said = progress, ("", -1.0)

    def folder(self, key: str) -> JobFolder:
        """The folder of a job."""
        return JobFolder(self.work / key)

    # ---- one round --------------------------------------------------------------------------

    def step(self, free: list[int | None]) -> bool:
        """Look after what runs and start what can be; False when nothing is left to do."""
        for one in list(self.running):
            self._watch(one)
            if one not in self.running:
                free.append(one.core)
        elsewhere = False
        for job in self._ready():
            if not free:
                break
            started = self._start(job, free[0])
            elsewhere |= started is None
            if started:
                free.pop(0)
        self._tell()
        return bool(self.running) or elsewhere or any(self._ready())

    def _ready(self) -> Iterator[Job]:
        busy = {one.job.key for one in self.running}
        for job in self.jobs.values():
            waits = job.key not in self.done and job.key not in self.failed
            if waits and job.key not in busy and all(self._has(key) for key in job.after):
                yield job

    def _has(self, key: str) -> bool:
        return key in self.done if key in self.jobs else self.folder(key).result is not None

    def _start(self, job: Job, core: int | None) -> bool | None:
        """Start a job: true if a process runs, false if it turned out done or failed, None if some
        other queue's process has it."""
        folder = self.folder(job.key)
        made_folder(folder.run)
        with _lock(folder.path / "lock") as lock:
            if lock is None:
                self._hurry(job, folder)
                return None
            if folder.result is None and (output := folder.output()) is not None:
                folder.adopt(output)
            if folder.result is not None:
                self.done.add(job.key)
                return False
            if self._spent(job, folder):
                return False
            process = self._spawn(job, folder, lock)
        if core is not None and hasattr(os, "sched_setaffinity"):
            with suppress(ProcessLookupError):
                os.sched_setaffinity(process.pid, {core})
        self.running.append(_Running(job, process, core, time.time()))
        return True

    def _spawn(self, job: Job, folder: JobFolder, lock: int) -> subprocess.Popen[bytes]:
        arguments = [text.replace("{work}", str(self.work)) for text in job.arguments]
        settings = {"label": job.label, "arguments": list(job.arguments), "after": list(job.after)}
        write_whole(folder.path / "job.json", json.dumps(settings, indent=1) + "\n")
        (folder.path / "stdout").unlink(missing_ok=True)
        with (folder.path / "stdout").open("wb") as out, (folder.path / "stderr").open("ab") as err:
            process = subprocess.Popen(
                [*self.command, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=os.environ | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"},
                pass_fds=(lock,),
                start_new_session=True,  # an interrupt at the terminal is for the queue alone
            )
        folder.note({"started": round(time.time(), 1), "pid": process.pid})
        return process

    def _watch(self, one: _Running) -> None:
        """Take the result of a process that has ended, and end one whose time is over."""
        now = time.time()
        if one.process.poll() is not None:
            self.running.remove(one)
            self._ended(one)
        elif one.asked is not None:
            if now - one.asked > _GRACE:
                _signal(one.process.pid, signal.SIGKILL)
        elif now - one.started > 60 * one.job.minutes:
            one.asked = now
            _signal(one.process.pid, signal.SIGTERM)

    def _ended(self, one: _Running) -> None:
        folder, code = self.folder(one.job.key), one.process.returncode
        entry: dict[str, Any] = {"seconds": round(time.time() - one.started, 1), "code": code}
        output = folder.output() if code == 0 else None
        if output is not None:
            folder.note({"ended": round(time.time(), 1), **entry})
            folder.finish(output)
            self.done.add(one.job.key)
            return
        entry["cut"] = one.asked is not None
        entry["said"] = _tail(folder.path / "stderr")
        folder.note({"ended": round(time.time(), 1), **entry})
        if entry["cut"]:
            self._spent(one.job, folder)
            return
        self.tries[one.job.key] += 1
        reason = f"exit code {code}: {(entry['said'].strip().splitlines() or ['no word'])[-1]}"
        log.warning("%s (%s) failed, %s", one.job.label, one.job.key, reason)
        if self.tries[one.job.key] >= self.attempts:
            self.failed[one.job.key] = reason

    def _spent(self, job: Job, folder: JobFolder) -> bool:
        """Whether a job has used up the slices that it may take; then it has failed."""
        used = sum(bool(entry.get("cut")) for entry in folder.slices)
        if used < job.slices:
            return False
        self.failed[job.key] = f"not done after {used} jobs of {job.minutes:g} minutes"
        return True

    def _hurry(self, job: Job, folder: JobFolder) -> None:
        """End another queue's process that is past its time, once that queue can't."""
        started = [entry for entry in folder.slices if "pid" in entry]
        late = 60 * job.minutes + 2 * _GRACE
        if started and time.time() - started[-1]["started"] > late:
            _signal(int(started[-1]["pid"]), signal.SIGKILL)

    # ---- the end, and what is told ------------------------------------------------------------

    def stop(self) -> None:
        """End all processes; what they have saved stays."""
        for one in self.running:
            _signal(one.process.pid, signal.SIGTERM)
        deadline = time.time() + _GRACE
        for one in self.running:
            with suppress(subprocess.TimeoutExpired):
                one.process.wait(max(0.0, deadline - time.time()))
            _signal(one.process.pid, signal.SIGKILL)
            one.process.wait()
            self.folder(one.job.key).note(
                {"ended": round(time.time(), 1), "seconds": round(time.time() - one.started, 1)}
                | {"code": one.process.returncode, "stopped": True}
            )

    def report(self) -> Report:
        """What became of each job."""
        left = [k for k in self.jobs if k not in self.done and k not in self.failed]
        return Report([k for k in self.jobs if k in self.done], dict(self.failed), left)

    def _tell(self) -> None:
        now = time.time()
        state = f"{len(self.done)} {len(self.failed)} {[one.job.key for one in self.running]}"
        if self._show is None or (state == self._said[0] and now - self._said[1] < _TELL):
            return
        self._said = (state, now)
        names = ", ".join(
            f"{one.job.label} for {timedelta(seconds=int(now - one.started))}"
            for one in self.running
        )
        text = f"{len(self.failed)} failed, " if self.failed else ""
        text += f"about {timedelta(seconds=int(self._seconds_left()))} left"
        text += f"; running: {names}" if names else ""
        self._show(text, len(self.done), len(self.jobs))

    def _seconds_left(self) -> float:
        """From the mean time of jobs of the same kind, or the most that a job may take."""
        spent: dict[str, list[float]] = {}
        for key in self.done:
            if result := self.folder(key).result:
                spent.setdefault(self.jobs[key].kind, []).append(float(result["seconds"]))
        began = {one.job.key: time.time() - one.started for one in self.running}
        left = 0.0
        for key, job in self.jobs.items():
            if key in self.done or key in self.failed:
                continue
            known = spent.get(job.kind)
            whole = sum(known) / len(known) if known else 60 * job.minutes
            left += max(whole - began.get(key, 0.0), 0.0)
        return left / max(len(self.running), 1)


@contextmanager
def _lock(path: Path) -> Iterator[int | None]:
    """A lock that the process started under it goes on holding; None if another one has it."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        yield handle if take_lock(handle) else None
    finally:
        os.close(handle)  # a process that inherited it keeps the lock


def _signal(pid: int, number: int) -> None:
    """To a process and those that it started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _tail(path: Path) -> str:
    text = path.read_bytes().decode("utf-8", "replace") if path.exists() else ""
    return text[-_TAIL:]


def _lines(path: Path) -> list[dict[str, Any]]:
    """Whole lines of a JSONL file; one that a kill has cut is left out."""
    found = []
    for line in lines_of(path.read_text("utf-8")) if path.exists() else []:
        with suppress(ValueError):
            found.append(json.loads(line))
    return found
