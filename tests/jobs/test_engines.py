"""Where batches are rewritten: the same bytes on one process and on a Ray cluster."""

from __future__ import annotations

import gc
import itertools
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from t2x.errors import T2XError
from t2x.jobs import engines, rewriting
from t2x.jobs.rewriting import Job, rewrite_file, rewrite_stream
from t2x.testing import FakeRewriter


def test_a_stream_gives_what_each_prompt_gives_alone() -> None:
    prompts = ["a cat", "", "two dogs", 3, "\ud83d", "a bus"]
    found = list(rewrite_stream(iter(prompts), rewriter=FakeRewriter(), num=2, seed=5, batch=2))
    assert [result.index for result in found] == list(range(6))
    assert [bool(result.error) for result in found] == [False, True, False, True, True, False]
    assert found[3].error == "a prompt is a text, given int"
    for result in found:
        if not result.error:
            (alone,) = rewrite_stream([result.prompt], rewriter=FakeRewriter(), num=2, seed=5)
            assert result.rewrites == alone.rewrites and len(result.rewrites) == 2


def test_a_stream_may_be_endless_and_is_taken_batch_by_batch() -> None:
    taken = itertools.count()
    prompts = (f"cat {i % 40}" for i in taken)
    stream = rewrite_stream(prompts, rewriter=FakeRewriter(), batch=4)
    assert next(stream).prompt == "cat 0" and next(taken) == 4
    tracemalloc.start()
    for _ in itertools.islice(stream, 200):
        pass
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    for _ in itertools.islice(stream, 1200):
        pass
    gc.collect()
    assert tracemalloc.get_traced_memory()[0] - before < 100_000  # a result takes over 1 kB
    tracemalloc.stop()


def test_a_stream_tells_mistakes() -> None:
    with pytest.raises(TypeError, match="one string"):
        next(rewrite_stream("a cat", rewriter=FakeRewriter()))
    with pytest.raises(T2XError, match="batch is 0"):
        next(rewrite_stream(["a cat"], rewriter=FakeRewriter(), batch=0))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rewriter": FakeRewriter(), "engine": "ray"}, "loads the rewriter itself"),
        ({"rewriter": FakeRewriter(), "engine": "vllm"}, "loads the rewriter itself"),
        ({"rewriter": "rules", "workers": 2}, "they are for engine 'ray'"),
        ({"rewriter": "rules", "engine": "ray", "workers": 0}, "1 or more"),
    ],
)
def test_what_an_engine_can_not_do_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(T2XError, match=said):
        Job(**options)


def test_vllm_is_a_rewriter_of_that_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, Any]] = []

    def load(name: str, *, generator: Any = None) -> FakeRewriter:
        asked.append((name, generator))
        return FakeRewriter()

    monkeypatch.setattr("t2x.rewriters.loading.load_guarded", load)
    Path("in.txt").write_text("a cat\n")
    for name in ("owner/model", "vllm:owner/model", "emoji-rewriter"):
        done = rewrite_file("in.txt", "o.jsonl", rewriter=name, engine="vllm", overwrite=True)
        assert done.written == 1
    folder = asked.pop()[0]
    assert asked == [("vllm:owner/model", None)] * 2
    assert folder.startswith("vllm:") and Path(folder.removeprefix("vllm:")).is_dir()
    with pytest.raises(T2XError, match="engine was 'vllm', is None"):
        rewrite_file("in.txt", "o.jsonl", rewriter="emoji-rewriter")


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(T2XError, match=r"pip install 't2x\[ray\]'"):
        next(engines.answer_on_ray([["a cat"]], rewriter="none"))


PLAYER = """
import os
from t2x.testing import FakeRewriter

class Player(FakeRewriter):
    def rewrite(self, prompts, **options):
        import torch
        assert torch.get_num_threads() == 1 and os.environ["OMP_NUM_THREADS"] == "1"
        with open(f"seen.{os.getpid()}", "a") as file:
            file.write(f"{len(prompts)}\\n")
        if any("poison" in prompt for prompt in prompts):
            raise RuntimeError("cannot take poison")
        return super().rewrite(prompts, **options)

class Broken:
    def __init__(self):
        raise ValueError("no weights here")
"""

RAY = """
import sys
from pathlib import Path
import ray
from t2x.errors import T2XError
from t2x.jobs import rewriting
from t2x.jobs.rewriting import rewrite_file

rewriting.BATCH = 32
folder = str(Path.cwd())
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
job = {"rewriter": "player:Player", "engine": "ray", "num": 2, "seed": 4}
done = rewrite_file("in.jsonl", "ray.jsonl", **job, workers=2)
print("DONE", done)
rewrite_file("in.jsonl", "one.jsonl", **job, workers=1)
text = Path("ray.jsonl").read_bytes()
Path("ray.jsonl").write_bytes(text[: len(text) // 3])
print("RESUMED", rewrite_file("in.jsonl", "ray.jsonl", **job, workers=2).resumed)
try:
    rewrite_file("in.jsonl", "x.jsonl", rewriter="player:Broken", engine="ray")
except Exception as error:
    print("BROKEN", type(error).__name__, error)
try:
    rewrite_file("in.jsonl", "x.jsonl", rewriter="none", engine="ray", workers=99)
except T2XError as error:
    print("MANY", error)
"""


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.extra("ray")
def test_two_ray_workers_write_the_bytes_of_one_process(tmp_path: Path) -> None:
    Path("player.py").write_text(PLAYER)
    lines = [f'"cat number {i}"' for i in range(600)]
    lines[300], lines[400] = "{broken", '"poison"'
    Path("in.jsonl").write_text("\n".join(lines))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"}
    environment["RAY_worker_niceness"] = "0"  # or a busy machine never comes to them
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", RAY], capture_output=True, text=True,
        env=environment, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    said = dict(line.split(" ", 1) for line in done.stdout.splitlines() if line[:1].isupper())
    assert said["DONE"] == "Outcome(written=598, bad=2, resumed=0)"
    assert 100 < int(said["RESUMED"]) < 300
    assert said["BROKEN"] == "ValueError no weights here" and "99 workers" in said["MANY"]
    local = (
        "import torch; torch.set_num_threads(1)\n"
        "from t2x.jobs import rewriting; rewriting.BATCH = 32\n"
        "rewriting.rewrite_file('in.jsonl', 'local.jsonl', rewriter='player:Player', num=2, seed=4)"
    )
    subprocess.run([sys.executable, "-c", local], env=environment, check=True)
    for suffix in ("", ".errors", ".job"):
        whole = Path(f"local.jsonl{suffix}").read_bytes()
        assert Path(f"ray.jsonl{suffix}").read_bytes() == whole
        assert Path(f"one.jsonl{suffix}").read_bytes() == whole


def test_answers_keep_their_order_and_little_is_taken_ahead() -> None:
    """The queue before Ray's workers, on a stand-in whose results come when they are asked for."""
    log: list[str] = []

    class Method:
        def __init__(self, name: str) -> None:
            self.name = name

        def remote(self, prompts: list[str], num: int, seed: int) -> tuple[str, list[str]]:
            log.append(self.name)
            return self.name, prompts

    class Worker:
        def __init__(self, name: str) -> None:
            self.answer = Method(name)

    class Ray:
        class exceptions:
            RayTaskError = RayActorError = KeyError

        @staticmethod
        def get(reference: tuple[str, list[str]]) -> list[str]:
            return [f"{reference[0]} {prompt}" for prompt in reference[1]]

    taken = itertools.count()
    batches = ([str(i)] if i % 5 else [] for i in taken)
    pool = [Worker("a"), Worker("b")]
    found = engines._in_order(Ray, pool, batches, 1, 0)
    assert [next(found) for _ in range(6)] == [[], ["a 1"], ["b 2"], ["a 3"], ["b 4"], []]
    assert next(taken) == 9  # two ahead for each worker, the sixth not yet made up for
    assert rewriting.BATCH == 256
