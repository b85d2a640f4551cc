"""A run: arms, seeds, scores; what was stopped goes on, nothing lost and nothing done twice."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from t2x.benchmarks.running import BenchmarkSetup, run_benchmark
from t2x.errors import T2XError, UnknownNameError
from t2x.testing import FakeReward, FakeRewriter
from t2x.types import Media, Rewrite

from . import made_up
from .made_up import CountingGenerator

PLAIN = len(made_up.GENEVAL) * 2  # pictures of one arm


@pytest.fixture
def setup(tmp_path: Path) -> BenchmarkSetup:
    folder = tmp_path / "official"
    folder.mkdir()
    return BenchmarkSetup(
        "geneval",
        made_up.write_all(folder)["geneval"],
        tmp_path / "o",
        generator=CountingGenerator(size=(8, 8)),
        rewriter=FakeRewriter(),
        rewards=[FakeReward()],
        samples=2,
    )


class SomeRewriter(FakeRewriter):
    """Has nothing to add to the first prompt, loses what the second says, and fails on the
    third."""

    def _rewrite(self, prompt: str, seed: int, index: int) -> Rewrite:
        if "pear" in prompt:
            return Rewrite(prompt, prompt, status="failed")
        text = "something else" if "boats" in prompt else prompt
        return Rewrite(prompt, text, status="unchanged" if text == prompt else "accepted")


def content(out: Path) -> dict[str, bytes]:
    """Every file that a run leaves, but for the store's own index and the lock."""
    files = (path for path in out.rglob("*") if path.is_file() and "store" not in path.parts)
    return {str(p.relative_to(out)): p.read_bytes() for p in files if p.name != ".lock"}


def drawn(setup: BenchmarkSetup) -> list[tuple[str, int]]:
    generator: Any = setup.generator
    found: list[tuple[str, int]] = generator.drawn
    return found


def with_generator(setup: BenchmarkSetup, most: int | None = None) -> BenchmarkSetup:
    return replace(setup, generator=CountingGenerator(most, size=(8, 8)))


def test_both_arms_are_scored_against_the_users_own_prompts(setup: BenchmarkSetup) -> None:
    class Reads(FakeReward):
        prompts: set[str] = set()  # noqa: RUF012 - of this test alone

        def score(self, prompts: Any, media: Media, **options: Any) -> Any:
            self.prompts.update(prompts)
            return super().score(prompts, media, **options)

    reward = Reads()
    result = run_benchmark(replace(setup, rewards=[reward]))
    assert reward.prompts == {row["prompt"] for row in made_up.GENEVAL}
    rows = [
        json.loads(s) for s in (Path(setup.out) / "scores.jsonl").read_text("utf-8").splitlines()
    ]
    assert [row["seed"] for row in rows] == [42, 43] * 6
    for row in rows:  # red of a plain colour, as the file has it
        want = made_up.colour(row["text"], row["seed"])[0] / 255
        assert row["scores"]["fake-reward"] == pytest.approx(want, abs=1e-6)
        assert (row["text"] == row["prompt"]) == (row["arm"] == "raw")
        assert (Path(setup.out) / row["picture"]).is_file()
    by_arm = {
        arm: [row["scores"]["fake-reward"] for row in rows if row["arm"] == arm]
        for arm in ("raw", "rewrite")
    }
    gap = sum(by_arm["rewrite"]) / PLAIN - sum(by_arm["raw"]) / PLAIN
    assert result["differences"]["fake-reward"]["overall"]["mean"] == pytest.approx(gap)
    counting = result["arms"]["raw"]["fake-reward"]["categories"]["counting"]
    assert counting["mean"] == pytest.approx(sum(by_arm["raw"][2:4]) / 2)
    assert json.loads((Path(setup.out) / "summary.json").read_text("utf-8"))["prompts"] == 3
    assert "not GenEval's own" in result["notes"][0] and "has 553" in result["notes"][1]


def test_what_both_arms_draw_alike_is_drawn_once(setup: BenchmarkSetup) -> None:
    result = run_benchmark(replace(setup, rewriter=SomeRewriter()))
    assert len(drawn(setup)) == PLAIN  # nothing is left to draw for the second arm
    assert result["rewrites"] == {"unchanged": 1, "reverted": 1, "failed": 1}
    assert "2 of 3 rewrites did not pass" in result["notes"][2]
    out = Path(setup.out)
    for path in (out / "raw").rglob("*.*"):
        assert path.read_bytes() == (out / "rewrite" / path.relative_to(out / "raw")).read_bytes()
    assert result["differences"]["fake-reward"]["overall"]["mean"] == 0


@pytest.mark.parametrize("most", [4, 10])
def test_a_generator_that_breaks_costs_one_batch(
    setup: BenchmarkSetup, tmp_path: Path, most: int
) -> None:
    run_benchmark(replace(setup, out=tmp_path / "whole"))
    broken = with_generator(setup, most)
    with pytest.raises(RuntimeError, match="the power went out"):
        run_benchmark(broken)
    again = with_generator(setup)
    run_benchmark(again)
    assert drawn(broken) + drawn(again) == drawn(setup)  # nothing lost, nothing twice, same order
    whole, resumed = content(tmp_path / "whole"), content(tmp_path / "o")
    assert whole.keys() == resumed.keys()
    for name in whole.keys() - {"summary.json"}:  # it names the folder
        assert whole[name] == resumed[name], name
    last = with_generator(setup)
    run_benchmark(last)
    assert not drawn(last)


def test_a_killed_process_leaves_what_the_next_one_needs(
    setup: BenchmarkSetup, tmp_path: Path
) -> None:
    run_benchmark(replace(setup, out=tmp_path / "whole"))
    code = """
import sys, time
sys.path.insert(0, sys.argv[1])
from made_up import CountingGenerator
from t2x.benchmarks.running import BenchmarkSetup, run_benchmark
from t2x.testing import FakeReward, FakeRewriter

class Slow(CountingGenerator):
    def generate(self, *given, **options):
        time.sleep(0.3)
        return super().generate(*given, **options)

run_benchmark(BenchmarkSetup("geneval", sys.argv[2], sys.argv[3], generator=Slow(size=(8, 8)),
    rewriter=FakeRewriter(), rewards=[FakeReward()], samples=2))
"""
    here = str(Path(__file__).parent)
    process = subprocess.Popen([sys.executable, "-c", code, here, setup.prompts, setup.out])
    first = Path(setup.out) / "raw" / "00001" / "samples" / "00001.png"
    end = time.monotonic() + 120
    while not first.exists() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (Path(setup.out) / "summary.json").exists()
    run_benchmark(again := with_generator(setup))
    assert 0 < len(drawn(again)) <= 2 * PLAIN - 4
    whole, resumed = content(tmp_path / "whole"), content(tmp_path / "o")
    assert {k: v for k, v in whole.items() if k != "summary.json"} == {
        k: v for k, v in resumed.items() if k != "summary.json"
    }


def test_arms_and_rewards_may_be_added(setup: BenchmarkSetup) -> None:
    result = run_benchmark(replace(setup, arms=["raw"], rewards=[]))
    assert result["arms"] == {"raw": {}} and len(drawn(setup)) == PLAIN
    run_benchmark(replace(setup, rewards=[FakeReward()]))
    assert len(drawn(setup)) == 2 * PLAIN
    second = FakeReward(1)
    second.name = "green"
    result = run_benchmark(replace(setup, rewards=[FakeReward(), second]))
    assert len(drawn(setup)) == 2 * PLAIN
    assert list(result["arms"]["rewrite"]) == ["fake-reward", "green"]


def test_a_file_that_went_missing_comes_back(setup: BenchmarkSetup) -> None:
    run_benchmark(setup)
    path = Path(setup.out) / "rewrite" / "00002" / "samples" / "00001.png"
    before, number = path.read_bytes(), len(drawn(setup))
    path.unlink()
    run_benchmark(setup)
    assert path.read_bytes() == before and len(drawn(setup)) == number


class Other(CountingGenerator):
    model_id = "other-generator"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"generator": Other(size=(8, 8))}, "generator was 'fake-generator', is 'other-generator'"),
        ({"seed": 1}, "seed was 42, is 1"),
        ({"samples": 3}, "samples was 2, is 3"),
        ({"limit": 2}, "limit was None, is 2"),
        ({"benchmark": "vbench-"}, "did you mean 'vbench'"),
        ({"rewriter": FakeRewriter(["loud"])}, None),
    ],
)
def test_a_folder_belongs_to_its_settings(
    setup: BenchmarkSetup, change: dict[str, Any], words: str | None
) -> None:
    run_benchmark(setup)
    if words is None:  # the loaded rewriter has the same name: its rewrites stay
        run_benchmark(replace(setup, **change))
        return
    before = content(Path(setup.out))
    with pytest.raises(T2XError, match=words):
        run_benchmark(replace(setup, **change))
    assert content(Path(setup.out)) == before


def test_another_rewriter_is_refused_and_overwrite_begins_anew(setup: BenchmarkSetup) -> None:
    run_benchmark(setup)
    changed = replace(setup, rewriter="none", samples=1)
    with pytest.raises(T2XError, match="--overwrite"):
        run_benchmark(changed)
    with pytest.raises(T2XError, match="rewriter was 'fake-rewriter', is 'none'"):
        run_benchmark(replace(setup, rewriter="none"))
    result = run_benchmark(changed, overwrite=True)
    assert result["rewrites"] == {"unchanged": 3}
    samples = Path(setup.out) / "rewrite" / "00000" / "samples"
    assert [path.name for path in samples.iterdir()] == ["00000.png"]


def test_a_damaged_marker_is_told_and_overwritten(setup: BenchmarkSetup) -> None:
    run_benchmark(setup)
    (Path(setup.out) / "t2x-benchmark.json").write_text('{"what": "pict')
    with pytest.raises(T2XError, match=r"cannot read .*t2x-benchmark.json.*--overwrite begins"):
        run_benchmark(setup)
    assert run_benchmark(setup, overwrite=True)["benchmark"] == "geneval"


def test_a_folder_with_other_things_is_left_alone(setup: BenchmarkSetup) -> None:
    out = Path(setup.out)
    out.mkdir()
    (out / "thesis.txt").write_text("words")
    for overwrite in (False, True):
        with pytest.raises(T2XError, match=r"holds 'thesis\.txt'"):
            run_benchmark(setup, overwrite=overwrite)
    assert [path.name for path in out.iterdir()] == ["thesis.txt"]


def test_foreign_pictures_among_the_official_ones_are_told(setup: BenchmarkSetup) -> None:
    run_benchmark(setup)
    (Path(setup.out) / "raw" / "00000" / "samples" / "0001.png.bak").write_bytes(b"")
    with pytest.raises(T2XError, match="finds 3 of 2 pictures of 'one striped kite'"):
        run_benchmark(setup)


def test_limit_takes_prompts_of_every_kind_with_their_own_numbers_and_seeds(
    setup: BenchmarkSetup, tmp_path: Path
) -> None:
    rows = [{"tag": tag, "prompt": f"{tag} number {i}"} for tag in ("a", "b") for i in range(3)]
    path = tmp_path / "six.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    run_benchmark(replace(setup, prompts=path, limit=2, arms=["raw"]))
    assert sorted(p.name for p in (Path(setup.out) / "raw").iterdir()) == ["00000", "00003"]


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"arms": ["raw", "best"]}, T2XError, "unknown arm 'best'; allowed: raw, rewrite"),
        ({"arms": []}, T2XError, "no arm was named"),
        ({"limit": 0}, T2XError, "limit is 0"),
        ({"samples": 0}, T2XError, "samples is 0"),
        ({"rewards": ["clap"]}, UnknownNameError, "did you mean 'clip'"),
        ({"rewards": ["motion"]}, T2XError, "motion scores videos, and GenEval has pictures"),
        ({"generator": "emoji-flo"}, UnknownNameError, "did you mean 'emoji-flow'"),
        ({"rewriter": "rulez"}, UnknownNameError, "did you mean 'rules'"),
        ({"benchmark": "geneva"}, UnknownNameError, "did you mean 'geneval'"),
    ],
)
def test_what_can_not_work_is_told_before_a_folder_is_made(
    setup: BenchmarkSetup, change: dict[str, Any], kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        run_benchmark(replace(setup, **change))
    assert not Path(setup.out).exists()


def test_a_generator_of_the_other_kind_is_refused(setup: BenchmarkSetup) -> None:
    with pytest.raises(T2XError, match="makes videos, and GenEval takes images"):
        run_benchmark(replace(setup, generator=CountingGenerator(modality="video")))


class Dead(FakeReward):
    name = "dead"

    def score(self, prompts: Any, media: Media, **options: Any) -> Any:
        raise RuntimeError("no judge at home")


def test_a_reward_that_fails_is_missing_and_takes_no_other_along(setup: BenchmarkSetup) -> None:
    partly = FakeReward(fails_on="boats")
    result = run_benchmark(replace(setup, rewards=[partly, Dead()]))
    dead = result["arms"]["raw"]["dead"]["overall"]
    assert math.isnan(dead["mean"]) and (dead["n"], dead["missing"]) == (0, 3)
    alive = result["arms"]["raw"]["fake-reward"]["overall"]
    assert alive["mean"] > 0 and (alive["n"], alive["missing"]) == (2, 1)
    line = (Path(setup.out) / "scores" / "raw-dead.jsonl").read_text("utf-8").splitlines()[0]
    assert json.loads(line) == {
        "index": 0, "score": None, "error": "can't be scored: no judge at home",
    }  # fmt: skip


def test_brackets_are_text_and_the_callers_generator_stays_as_it_was(
    setup: BenchmarkSetup, tmp_path: Path
) -> None:
    class Reads(CountingGenerator):
        syntax = "auto"

        def generate(self, *given: Any, **options: Any) -> Media:
            assert self.syntax == "plain"
            return super().generate(*given, **options)

    generator = Reads(size=(8, 8))
    run_benchmark(replace(setup, generator=generator, arms=["raw"]))
    assert len(generator.drawn) == PLAIN and generator.syntax == "auto"
    broken = Reads(0, size=(8, 8))
    with pytest.raises(RuntimeError, match="the power went out"):
        run_benchmark(replace(setup, generator=broken, out=tmp_path / "p"))
    assert broken.syntax == "auto"


def test_progress_tells_every_phase(setup: BenchmarkSetup) -> None:
    heard: list[tuple[str, int, int]] = []
    tell: Callable[[str, int, int], None] = lambda *said: heard.append(said)  # noqa: E731
    run_benchmark(setup, progress=tell)
    assert ("rewriting with fake-rewriter", 3, 3) in heard
    assert [said for said in heard if said[0] == "drawing raw"] == [
        ("drawing raw", done, PLAIN) for done in (0, 2, 4, 6)
    ]
    assert heard[-1] == ("scoring rewrite", PLAIN, PLAIN)


def test_frames_a_second_are_the_models_own(setup: BenchmarkSetup) -> None:
    from t2x.benchmarks.running import FPS, frames_a_second
    from t2x.generators.presets import presets

    wan = next(name for name, preset in presets().items() if preset.fps == 16)
    assert frames_a_second(setup) == FPS == 8
    assert frames_a_second(replace(setup, generator=wan)) == 16
    assert frames_a_second(replace(setup, generator=wan, fps=24)) == 24
