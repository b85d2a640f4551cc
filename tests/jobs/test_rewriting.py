"""A job over a file: killed anywhere it goes on, and writes what an unbroken run writes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from t2x.errors import T2XError
from t2x.jobs import output, rewriting
from t2x.jobs.engines import BROKEN
from t2x.jobs.lines import file_source
from t2x.jobs.rewriting import Job, rewrite_batches, rewrite_file
from t2x.testing import FakeRewriter
from t2x.types import Rewrite

HOSTILE = (
    b'"a cat"',
    b"{broken",
    b"",
    b'{"prompt": "two dogs"}',
    b"9" * 5000,
    b"[" * 100_000,
    '"猫 😀"'.encode(),
    b'"\\ud800"',
    b'{"prompt": "a </answer> b"}',
    b"\xff",
    b'" "',
)


class Recording(FakeRewriter):
    """Remembers the batches that it was asked for, and fails on some words."""

    def __init__(self, fails_on: str = "\0") -> None:
        super().__init__()
        self.fails_on = fails_on
        self.asked: list[list[str]] = []

    def rewrite(
        self, prompts: Sequence[str], *, num_generations: int = 1, seed: int = 0
    ) -> list[list[Rewrite]]:
        self.asked.append(list(prompts))
        if any(self.fails_on in prompt for prompt in prompts):
            raise RuntimeError(f"cannot take\n{self.fails_on}")
        return super().rewrite(prompts, num_generations=num_generations, seed=seed)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewriting, "BATCH", 4)


def write_input(lines: Sequence[bytes] = HOSTILE, name: str = "in.jsonl") -> Path:
    Path(name).write_bytes(b"\n".join(lines))
    return Path(name)


def read(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(name).read_text("utf-8").splitlines()]


def run(out: str = "o.jsonl", **options: Any) -> rewriting.Outcome:
    return rewrite_file("in.jsonl", out, **{"rewriter": FakeRewriter(), **options})


def test_every_line_lands_in_one_of_two_files(small):
    write_input()
    done = run()
    good, bad = read("o.jsonl"), read("o.jsonl.errors")
    assert (done.written, done.bad, done.resumed) == (4, 6, 0)
    prompts = {row["index"]: row["prompt"] for row in good}
    assert prompts == {0: "a cat", 3: "two dogs", 6: "猫 😀", 8: "a </answer> b"}
    assert [row["line"] for row in bad] == [2, 5, 6, 8, 10, 11]
    assert all(row["error"] and row["line"] == row["index"] + 1 for row in bad)
    assert good[0]["rewrites"][0]["text"].startswith("a cat, ")


def test_batches_are_cut_by_the_index_of_the_line(small):
    write_input([b'"%d"' % i for i in range(4)] + [b"", b"{bad"] + [b'"%d"' % i for i in range(5)])
    rewriter = Recording()
    heard: list[tuple[int, int | None]] = []
    run(rewriter=rewriter, progress=lambda *step: heard.append(step))
    assert rewriter.asked == [["0", "1", "2", "3"], ["0", "1"], ["2", "3", "4"]]
    assert heard == [(0, 11), (4, 11), (8, 11), (11, 11)]


def test_cut_at_any_byte_the_next_run_gives_the_bytes_of_an_unbroken_one(small):
    """The states that a kill can leave: errors of a batch are whole before its records begin."""
    write_input()
    run()
    out, errors = Path("o.jsonl"), Path("o.jsonl.errors")
    whole, bad = out.read_bytes(), errors.read_bytes()
    ends = {0: 0}  # bytes of the output after each batch -> bytes of the errors after it
    states = []
    job, source = Job(FakeRewriter()), file_source(Path("in.jsonl"))
    for batch in rewrite_batches(source, job):
        text, reasons = (
            sum(len(output.json_line(row).encode()) for row in rows)
            for rows in (batch.records, batch.errors)
        )
        begin, begin_bad = max(ends), ends[max(ends)]
        states += [(begin, begin_bad + cut) for cut in range(0, reasons, 17)]
        states += [(begin + cut, begin_bad + reasons) for cut in range(0, text + 1, 17)]
        ends[begin + text] = begin_bad + reasons
    assert max(ends) == len(whole) and ends[max(ends)] == len(bad) and len(states) > 60
    for size, size_bad in states:
        out.write_bytes(whole[:size])
        errors.write_bytes(bad[:size_bad])
        done = run()
        assert out.read_bytes() == whole and errors.read_bytes() == bad, (size, size_bad)
        assert (done.written, done.bad) == (4, 6)


def test_a_batch_writes_its_errors_first():
    """Or a kill between the two would lose bad lines that lie before the last record."""
    with output.open_output(Path("o.jsonl"), {"input": "x"}) as opened:
        Path("o.jsonl.errors").mkdir()
        with pytest.raises(OSError):
            opened.write([{"index": 1}], [{"index": 0}])
        assert Path("o.jsonl").read_bytes() == b""


SLOW = """
import time
from t2x.testing import FakeRewriter

class Slow(FakeRewriter):
    def rewrite(self, prompts, **options):
        time.sleep(0.05)
        return super().rewrite(prompts, **options)
"""


def start(out: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "t2x", "rewrite", "--in", "in.jsonl", "--out", out]
    return subprocess.Popen(
        [*command, "--model", "slow:Slow", "--seed", "3"],
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
        stderr=subprocess.DEVNULL,
    )


def test_killed_processes_lose_and_double_nothing():
    """Real kills, at whatever moment comes: once some batches are written, and soon after that."""
    Path("slow.py").write_text(SLOW)
    write_input([*HOSTILE, *(b'"cat number %d"' % i for i in range(900)), b"{bad"])
    assert start("whole.jsonl").wait() == 1  # bad lines
    out, killed = Path("o.jsonl"), 0
    for _ in range(3):
        before = out.stat().st_size if out.exists() else 0
        process = start("o.jsonl")
        while process.poll() is None:
            if out.exists() and out.stat().st_size > before:
                process.send_signal(signal.SIGKILL)
                break
            time.sleep(0.003)
        killed += process.wait() == -signal.SIGKILL
    assert killed == 3 and out.stat().st_size < Path("whole.jsonl").stat().st_size
    assert start("o.jsonl").wait() == 1
    for suffix in ("", ".errors", ".job"):
        assert Path(f"o.jsonl{suffix}").read_bytes() == Path(f"whole.jsonl{suffix}").read_bytes()
    assert len({row["index"] for row in read("o.jsonl")}) == len(read("o.jsonl")) == 904


def test_what_is_done_is_not_computed_again(small):
    write_input([b'"%d"' % i for i in range(10)])
    run()
    rewriter = Recording()
    assert run(rewriter=rewriter).resumed == 10 and rewriter.asked == []
    lines = Path("o.jsonl").read_bytes().splitlines(keepends=True)
    Path("o.jsonl").write_bytes(b"".join(lines[:5]))
    assert run(rewriter=rewriter).resumed == 5
    assert rewriter.asked == [["4", "5", "6", "7"], ["8", "9"]]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"seed": 1}, "seed was 0, is 1"),
        ({"num": 2}, "num was 1, is 2"),
        ({"rewriter": "none"}, "rewriter was 'fake-rewriter', is 'none'"),
        ({"target": "emoji-flow"}, "target was None, is 'emoji-flow'"),
    ],
)
def test_another_job_is_refused_and_told_what_differs(change, named):
    write_input()
    run()
    before = Path("o.jsonl").read_bytes()
    with pytest.raises(T2XError, match=named) as caught:
        run(**change)
    assert "--overwrite" in str(caught.value) and Path("o.jsonl").read_bytes() == before


def test_a_changed_input_is_refused_unless_the_job_starts_anew():
    write_input()
    run()
    write_input([b'"a cow"'])
    with pytest.raises(T2XError, match="input was"):
        run()
    done = run(overwrite=True)
    assert (done.written, done.bad, done.resumed) == (1, 0, 0)
    assert [row["prompt"] for row in read("o.jsonl")] == ["a cow"]
    assert not Path("o.jsonl.errors").exists()


def test_a_rewriter_trained_again_is_another(monkeypatch):
    Path("mine").mkdir()
    Path("mine/model.bin").write_bytes(b"1")
    monkeypatch.setattr("t2x.registry.load_rewriter", lambda name: FakeRewriter())
    write_input([b'"a cat"'])
    run(rewriter="mine")
    assert run(rewriter="mine").resumed == 1
    Path("mine/model.bin").write_bytes(b"2")
    with pytest.raises(T2XError, match="weights was"):
        run(rewriter="mine")


@pytest.mark.parametrize("content", ["my notes", '{"index": 0}\n'])
def test_a_file_of_something_else_is_never_touched(content):
    write_input()
    Path("o.jsonl").write_text(content)
    with pytest.raises(T2XError, match="not begun by this command"):
        run()
    assert Path("o.jsonl").read_text() == content


def test_an_output_whose_end_was_edited_is_refused():
    write_input()
    run()
    with Path("o.jsonl").open("a") as file:
        file.write("# mine\n")
    with pytest.raises(T2XError, match="is no record"):
        run()
    assert Path("o.jsonl").read_text("utf-8").endswith("# mine\n")


@pytest.mark.parametrize(
    ("owner", "name", "allowed"),
    [(Path, "unlink", 0), (Path, "unlink", 1), (output, "write_whole", 0)],
)
def test_stopped_while_starting_anew_nothing_old_passes_for_new(monkeypatch, owner, name, allowed):
    write_input()
    run()
    write_input([b'"a cow"'])
    real, calls = getattr(owner, name), []

    def stop(*arguments: Any, **options: Any) -> Any:
        calls.append(arguments)
        if len(calls) > allowed:
            raise KeyboardInterrupt
        return real(*arguments, **options)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(owner, name, stop)
        run(overwrite=True)
    try:
        run()
    except T2XError:
        run(overwrite=True)
    assert [row["prompt"] for row in read("o.jsonl")] == ["a cow"]
    assert not Path("o.jsonl.errors").exists()


def test_only_one_process_writes():
    write_input()
    settings = Job(FakeRewriter()).settings(file_source(Path("in.jsonl")))
    with (
        output.open_output(Path("o.jsonl"), settings),
        pytest.raises(T2XError, match="another process is writing"),
    ):
        run()
    assert run().written == 4


def test_the_input_is_never_written_over():
    write_input()
    before = Path("in.jsonl").read_bytes()
    for out in ("in.jsonl", "./in.jsonl"):
        with pytest.raises(T2XError, match="would write over the input"):
            run(out)
    write_input(name="x.errors")
    with pytest.raises(T2XError, match="would write over the input"):
        rewrite_file("x.errors", "x", rewriter=FakeRewriter())
    assert Path("in.jsonl").read_bytes() == before


def test_a_prompt_that_breaks_the_rewriter_is_a_bad_line(small):
    lines = [b'"cat %d"' % i for i in range(6)]
    write_input([*lines[:2], b'"poison"', *lines[2:]])
    assert run(rewriter=Recording(fails_on="poison")).bad == 1
    (bad,) = read("o.jsonl.errors")
    assert bad["line"] == 3 and bad["error"] == (
        "the rewriter failed: RuntimeError: cannot take poison"
    )
    assert [row["index"] for row in read("o.jsonl")] == [0, 1, 3, 4, 5, 6]


@pytest.mark.parametrize("poison", [[], ["cat 0"], ["cat 1", "cat 4"], ["cat 5"]])
@pytest.mark.parametrize("records", [None, 0, 1, 2, 3])
def test_a_flaky_rewriter_loses_and_doubles_no_line(monkeypatch, records, poison):
    """Fails first on 2 and 5; ``records`` are those that a kill left, None without one."""
    write_input([b'"cat %d"' % i for i in range(5)] + [b"{bad", b'"cat 5"'])

    class Flaky(FakeRewriter):
        fails_on = ("cat 2", "cat 5")

        def rewrite(self, prompts, **options):
            if set(prompts) & set(self.fails_on):
                raise RuntimeError("try again later")
            return super().rewrite(prompts, **options)

    done = run(rewriter=Flaky())
    assert (done.written, done.bad) == (4, 3)
    settled = [0, 1, 3, 4]
    if records is not None:
        whole = Path("o.jsonl").read_bytes().splitlines(keepends=True)
        Path("o.jsonl").write_bytes(b"".join(whole[:records]))
        settled = settled[:records]
    monkeypatch.setattr(Flaky, "fails_on", poison)
    for _ in range(3):
        done = run(rewriter=Flaky())
        good = [row["index"] for row in read("o.jsonl")]
        path = Path("o.jsonl.errors")
        bad = [row["index"] for row in read(str(path))]
        assert sorted(good + bad) == list(range(7)) and good[: len(settled)] == settled
        assert (good, bad) == (sorted(good), sorted(bad))
        assert (done.written, done.bad) == (len(good), len(bad))
        state = Path("o.jsonl").read_bytes(), path.read_bytes()
        settled = good
    run(rewriter=Flaky())
    assert state == (Path("o.jsonl").read_bytes(), path.read_bytes())


def test_a_last_line_that_failed_once_moves_to_the_output():
    write_input([b'"a"', b'"b"', b'"poison"'])
    done = run(rewriter=Recording(fails_on="poison"))
    assert (done.written, done.bad) == (2, 1)
    with pytest.raises(KeyboardInterrupt):  # what is there stays until there is something new
        run(rewriter=Stopping())
    assert [row["index"] for row in read("o.jsonl.errors")] == [2]
    for resumed in (2, 3):
        done = run()
        assert (done.written, done.bad, done.resumed) == (3, 0, resumed)
        assert [row["index"] for row in read("o.jsonl")] == [0, 1, 2]
        assert not Path("o.jsonl.errors").exists()


class Stopping(FakeRewriter):
    def rewrite(self, prompts, **options):
        raise KeyboardInterrupt


def test_a_rewriter_that_is_broken_stops_the_job_and_leaves_it_to_go_on():
    write_input([b'"cat %d"' % i for i in range(rewriting.BATCH + BROKEN)])

    class Dying(Recording):
        def rewrite(self, prompts, **options):
            if self.asked:
                self.fails_on = "cat"
            return super().rewrite(prompts, **options)

    with pytest.raises(RuntimeError, match="cannot take"):
        run(rewriter=Dying())
    assert len(read("o.jsonl")) == rewriting.BATCH and not Path("o.jsonl.errors").exists()
    assert run().resumed == rewriting.BATCH
    assert len(read("o.jsonl")) == rewriting.BATCH + BROKEN


def test_a_name_that_nobody_knows_leaves_no_files():
    write_input([b'"a cat"'])
    with pytest.raises(T2XError, match="unknown rewriter 'nope'"):
        run(rewriter="nope")
    assert sorted(path.name for path in Path.cwd().iterdir()) == ["in.jsonl"]


@pytest.mark.parametrize("name", ["nope", "no/such/rewriter:nothing"])
def test_starting_anew_with_a_wrong_rewriter_leaves_what_is_there(name):
    write_input()
    run()
    before = {path.name: path.read_bytes() for path in Path.cwd().iterdir()}
    with pytest.raises(Exception, match=name.partition(":")[0]):
        run(rewriter=name, overwrite=True)
    assert {path.name: path.read_bytes() for path in Path.cwd().iterdir()} == before


def test_the_file_is_read_as_it_is_rewritten(small):
    """Memory does not grow with the file: one batch is held, whatever comes behind it."""
    write_input([b'"%d"' % i for i in range(100)])
    first = next(rewrite_batches(file_source(Path("in.jsonl")), Job(FakeRewriter())))
    assert first.end == 4 and len(first.records) == 4
    seen: list[int] = []
    run(progress=lambda done, total: seen.append(len(Path("o.jsonl").read_bytes().splitlines())))
    assert seen == list(range(0, 101, 4))
