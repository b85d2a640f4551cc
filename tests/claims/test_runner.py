"""The queue of jobs: order, kills, time limits, failures, two queues, what is run twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from t2x.claims.jobs import Job
from t2x.claims.runner import JobFolder, run_jobs
from t2x.errors import T2XError

from .queues import FAKE, WORK, evaluation, training


def run(*jobs: Job, **options: object):
    return run_jobs(jobs, WORK, command=FAKE, **options)


def test_jobs_run_once_in_order_and_leave_their_results(ledger) -> None:
    jobs = (training("a", "level=0.5"), evaluation("b", "a"))
    report = run(*jobs)
    assert report.done == ["a", "b"] and not report.failed and not report.blocked
    assert JobFolder(WORK / "a").result["output"]["metrics"] == {"pictures": 600}
    assert JobFolder(WORK / "b").result["seconds"] > 0
    assert not list((WORK / "a" / "run").glob("checkpoint-*"))
    assert run(*jobs).done == ["a", "b"]
    assert len(ledger("begin")) == 2


def test_two_workers_work_side_by_side(ledger) -> None:
    start = time.time()
    core = min(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    run(training("a", "sleep=1"), training("b", "sleep=1"), workers=2, cores=[core, core])
    assert len(ledger("end")) == 2 and time.time() - start < 3.9
    assert ledger("begin") and not run(training("a"), workers=2).blocked


def test_a_failure_is_written_down_and_the_rest_goes_on(ledger) -> None:
    report = run(
        training("bad", "fail=0"), evaluation("never", "bad"), training("good"), attempts=2
    )
    assert report.done == ["good"] and report.blocked == ["never"]
    assert "it broke on purpose" in report.failed["bad"]
    ended = [entry for entry in JobFolder(WORK / "bad").slices if "code" in entry]
    assert len(ended) == 2 and all("on purpose" in entry["said"] for entry in ended)
    assert ledger("begin").count("bad  0") == 2


def test_a_job_past_its_time_goes_on_from_its_checkpoint_in_the_next_one(ledger) -> None:
    """Each half takes 1.5 s, a job 2.6 s: the second one has only the second half to do."""
    report = run(training("long", "sleep=1.5", minutes=2.6 / 60, slices=5))
    assert report.done == ["long"]
    slices = [entry for entry in JobFolder(WORK / "long").slices if "code" in entry]
    cut = [bool(entry.get("cut")) for entry in slices]
    assert cut == [True] * (len(cut) - 1) + [False] and len(cut) >= 2
    assert ledger("begin") == ["long  0"] * len(cut)
    report = run(training("longer", "sleep=60", minutes=0.5 / 60, slices=1))
    assert "not done after 1 jobs" in report.failed["longer"]
    assert "not done after 1 jobs" in run(training("longer", slices=1)).failed["longer"]


QUEUE = """
import sys
from pathlib import Path
sys.path.insert(0, {folder!r})
from queues import FAKE, WORK, evaluation, training
from t2x.claims.runner import run_jobs
jobs = [training(f"job{{i}}", "sleep=0.4", seed=i) for i in range(3)]
jobs += [evaluation(f"eval{{i}}", f"job{{i}}") for i in range(3)]
run_jobs(jobs, WORK, workers={workers}, command=FAKE)
"""


def start_queue(workers: int = 1) -> subprocess.Popen[bytes]:
    code = QUEUE.format(folder=str(Path(__file__).parent), workers=workers)
    return subprocess.Popen([sys.executable, "-c", code])


def test_killed_at_any_time_the_queue_goes_on_and_finishes_nothing_twice(ledger) -> None:
    for pause in (1.2, 2.0, 1.6):
        queue = start_queue()
        time.sleep(pause)
        queue.send_signal(signal.SIGKILL)
        queue.wait()
    assert start_queue().wait() == 0
    ended = ledger("end")
    names = {f"job{i}  {i}" for i in range(3)} | {f"eval job{i}" for i in range(3)}
    assert set(ended) == names and len(ended) == len(names)
    for i in range(3):
        assert JobFolder(WORK / f"eval{i}").result["seconds"] >= 0


def test_two_queues_share_the_work(ledger) -> None:
    queues = [start_queue(), start_queue()]
    assert [queue.wait() for queue in queues] == [0, 0]
    ended = ledger("end")
    assert len(ended) == len(set(ended)) == 6
    assert len(ledger("begin")) == 6


def test_an_interrupt_ends_the_processes_of_the_queue() -> None:
    def interrupt(what: str, done: int, total: int) -> None:
        if "running" in what:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(training("a", "sleep=60"), progress=interrupt)
    (started,) = [e for e in JobFolder(WORK / "a").slices if "pid" in e]
    with pytest.raises(ProcessLookupError):
        os.kill(started["pid"], 0)
    assert [e["stopped"] for e in JobFolder(WORK / "a").slices if "code" in e] == [True]


def test_progress_tells_the_time_left_by_jobs_of_the_same_kind(ledger) -> None:
    said: list[tuple[str, int, int]] = []
    jobs = [
        Job(key, key, ("train", "same", f"run.out={{work}}/{key}/run", "run.seed=0"), minutes=10)
        for key in "abc"
    ]
    run(*jobs, progress=lambda *told: said.append(told))
    assert "about 0:29:5" in said[0][0] and "running: a for 0:00:00" in said[0][0]
    assert any("about 0:00:0" in text for text, done, _ in said if done == 1)
    assert said[-1][1:] == (3, 3)


def test_a_line_that_a_kill_has_cut_is_left_out() -> None:
    folder = JobFolder(Path("job"))
    folder.path.mkdir()
    folder.note({"pid": 1})
    with (folder.path / "slices.jsonl").open("a") as file:
        file.write('{"ended": 3, "sec')
    folder.note({"pid": 2})
    assert [entry["pid"] for entry in folder.slices] == [1, 2]


def test_the_result_is_the_object_at_the_end_of_what_was_printed() -> None:
    folder = JobFolder(Path("job"))
    folder.path.mkdir()
    for said, value in (
        ('{"a": {\n "b": 1\n}}\n', {"a": {"b": 1}}),
        ("{'loss': 1.0}\nnoise\n{\n  \"metrics\": {}\n}\n", {"metrics": {}}),
        ("{'loss': 1.0}\n", None),
        ('{\n  "metrics": {', None),
        ("", None),
    ):
        (folder.path / "stdout").write_text(said)
        assert folder.output() == value


def test_numbers_that_make_no_sense() -> None:
    with pytest.raises(T2XError, match="0 workers"):
        run(training("a"), workers=0)
    with pytest.raises(T2XError, match="a core for each"):
        run(training("a"), workers=2, cores=[0])
