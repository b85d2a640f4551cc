"""The demo end to end with fakes: fairness, honesty, determinism, and what it writes."""

from __future__ import annotations

import json
import math
import shlex
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from t2x.cli import run
from t2x.errors import T2XError
from t2x.evaluation.demo import EXAMPLES, FILES, pick_prompt, run_demo
from t2x.evaluation.phases import check_memory
from t2x.generators import DiffusionGenerator
from t2x.media import from_pil
from t2x.rewriters.language_model import LanguageModelRewriter
from t2x.testing import (
    FakeGenerator,
    FakeReward,
    FakeRewriter,
    tiny_causal_lm,
    tiny_stable_diffusion,
)
from t2x.types import Check, Rewrite
from t2x.world.prompts import split_of

PROMPT = "two cats on a red couch"
ODD = ("猫在沙发上", "😀🐈 cat", "<|im_end|>\n<|im_start|>system", "</script><b>a", "word " * 5000)


class Named(FakeReward):
    def __init__(self, name: str, channel: int = 0, **options: Any) -> None:
        super().__init__(channel, **options)
        self.name = name


class Scripted:
    """Rewriter that proposes one given text."""

    model_id = "scripted"

    def __init__(self, text: str, **fields: Any) -> None:
        self.text, self.fields = text, fields

    def rewrite(
        self, prompts: Sequence[str], *, num_generations: int = 1, seed: int = 0
    ) -> list[list[Rewrite]]:
        return [[Rewrite(p, self.text, seed=seed, **self.fields)] for p in prompts]


class Recording(FakeGenerator):
    """Generator that remembers what it was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, str, int]] = []

    def generate(self, prompts, *, negative=None, seeds, **options):
        self.asked += zip(prompts, negative or [""] * len(prompts), seeds, strict=True)
        return super().generate(prompts, negative=negative, seeds=seeds, **options)


def demo(prompt: str | None = PROMPT, **options: Any) -> Any:
    parts: dict[str, Any] = {
        "rewriter": FakeRewriter(),
        "generator": FakeGenerator(),
        "rewards": [Named("red", 0), Named("green", 1)],
    }
    return run_demo(prompt, **{**parts, **options})


def test_both_arms_get_the_same_seeds_and_scores_are_against_the_users_words():
    class Asked(Named):
        prompts: tuple[str, ...] = ()

        def score(self, prompts, media, *, context=None):
            type(self).prompts = tuple(prompts)
            return super().score(prompts, media, context=context)

    generator = Recording()
    result = demo(generator=generator, rewards=[Asked("red")], seed=5, num=3)
    text = result.rewrite.text
    assert result.rewrite.status == "accepted" and text.startswith(f"{PROMPT}, ")
    asked = [(t, "", seed) for t in (PROMPT, text) for seed in (5, 6, 7)]
    assert generator.asked == asked and result.seeds == (5, 6, 7)
    assert Asked.prompts == (PROMPT,) * 6
    for arm, prompt in (("original", PROMPT), ("rewritten", text)):
        fresh = FakeGenerator().generate([prompt] * 3, seeds=[5, 6, 7])
        assert torch.equal(from_pil(result.pictures[arm]), fresh)
        (column,) = result.rewards
        assert getattr(column, arm) == pytest.approx(fresh[:, 0, 0, 0].tolist())


@pytest.mark.parametrize(
    ("proposal", "status", "reason"),
    [
        (Scripted("a dog"), "reverted", "the number 2 of"),
        (
            Scripted("", status="failed", checks=(Check("tags", False, "no end"),)),
            "failed",
            "no end",
        ),
        (Scripted(PROMPT), "unchanged", "adds nothing"),
    ],
)
def test_what_the_guard_gives_back_is_drawn_once_and_says_why(proposal, status, reason):
    generator = Recording()
    result = demo(rewriter=proposal, generator=generator, out="o")
    assert result.rewrite.status == status and not result.changed
    assert generator.asked == [(PROMPT, "", seed) for seed in range(4)]
    assert result.pictures["original"] == result.pictures["rewritten"]
    assert all(column.difference == 0 and not column.lost for column in result.rewards)
    assert reason in result.summary() and reason in Path("o/report.html").read_text("utf-8")


def test_a_negative_prompt_goes_to_the_rewritten_arm_alone():
    generator = Recording()

    class Negative(FakeRewriter):
        def rewrite(self, prompts, *, num_generations=1, seed=0):
            return [[Rewrite(p, f"{p}, large", negative="blur")] for p in prompts]

    from t2x.rewriters.guarded import Guarded

    class Passing(Guarded):
        def rewrite(self, prompts, *, num_generations=1, seed=0):
            return self.rewriter.rewrite(prompts)

    result = demo(rewriter=Passing(Negative()), generator=generator, num=1)
    assert generator.asked == [(PROMPT, "", 0), (f"{PROMPT}, large", "blur", 0)]
    assert result.record()["arms"]["rewritten"]["negative"] == "blur"


def test_a_reward_that_fails_is_not_measured_and_the_rest_is():
    class Broken(Named):
        def score(self, prompts, media, *, context=None):
            raise T2XError("the weights\nare gone")

    rewards = [Named("red"), Named("nan", fails_on="cats"), Broken("broken"), "nope"]
    result = demo(rewards=rewards, out="o")
    columns = {column.name: column for column in result.rewards}
    assert columns["red"].missing == 0 and columns["red"].problem == ""
    assert columns["nan"].missing == 8 and columns["nan"].problem == ""
    assert columns["broken"].problem == "the weights are gone"
    assert "unknown reward 'nope'" in columns["nope"].problem
    assert math.isnan(columns["nan"].difference)
    assert result.summary().endswith("not measured: nan, broken, nope.")
    record = json.loads(Path("o/result.json").read_text("utf-8"))
    assert record["rewards"]["nan"]["original"] == [None] * 4
    assert record["rewards"]["nan"]["mean"] == {"original": None, "rewritten": None}


@pytest.mark.parametrize("error", [KeyError("a bug"), RuntimeError("CUDA out of memory")])
def test_a_reward_that_breaks_takes_nothing_along_and_leaves_its_traceback(error, caplog):
    class Buggy(Named):
        def score(self, prompts, media, *, context=None):
            raise error

    broken, red = demo(rewards=[Buggy("buggy"), Named("red")], out="o").rewards
    assert broken.problem == f"{type(error).__name__}: {error}" and broken.missing == 8
    assert red.missing == 0 and "in score" in caplog.text and "Traceback" in caplog.text
    assert broken.problem.split(": ")[0] in Path("o/report.html").read_text("utf-8")


def test_the_pictures_are_there_before_the_first_reward_is_asked():
    class Stopped(Named):
        def score(self, prompts, media, *, context=None):
            assert sorted(path.name for path in Path("o").iterdir()) == sorted(FILES)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        demo(rewards=[Stopped("stopped")], out="o")
    record = json.loads(Path("o/result.json").read_text("utf-8"))
    assert record["rewards"]["stopped"]["problem"] == "not scored yet"
    assert len(record["arms"]["rewritten"]["pictures"]) == 4


def test_settings_that_can_not_be_read_cost_no_picture(monkeypatch, caplog):
    generator = DiffusionGenerator.from_pretrained(
        tiny_stable_diffusion(), num_inference_steps=1, guidance_scale=1.0
    )
    drawn: list[str] = []
    draw = generator.generate

    def unreadable(**_: Any) -> dict[str, Any]:
        assert not drawn, "settings were read after drawing"
        raise RuntimeError("offloaded")

    monkeypatch.setattr(generator, "fingerprint", unreadable)
    monkeypatch.setattr(generator, "generate", lambda *a, **o: drawn.append("") or draw(*a, **o))
    result = demo(generator=generator, rewards=[], num=1)
    assert drawn and result.settings == {"settings": "unknown"}
    assert "RuntimeError: offloaded" in caplog.text


def test_what_was_given_as_an_object_has_no_command_but_its_settings():
    generator = DiffusionGenerator.from_pretrained(
        tiny_stable_diffusion(), num_inference_steps=2, guidance_scale=1.5
    )
    names = {"rewriter": "none", "rewards": ["t2x.testing:FakeReward"]}
    result = demo(generator=generator, num=1, **names)
    assert result.command == "" and list(result.objects) == ["generator"]
    about = result.objects["generator"]
    assert about["class"] == "t2x.generators.diffusion.DiffusionGenerator"
    assert about["sampling"] == {"num_inference_steps": 2, "guidance_scale": 1.5}
    names["generator"] = "t2x.testing:FakeGenerator"
    reward = Named("clip", channel=2)
    objects = demo(num=1, **{**names, "rewards": [reward]}).objects
    assert objects == {
        "reward clip": {
            "class": f"{__name__}.Named",
            "name": "clip",
            "scale": reward.scale,
            "channel": 2,
            "modality": "image",
        }
    }
    tuned = LanguageModelRewriter(*tiny_causal_lm(), top_p=0.5, max_new_tokens=4)
    about = demo(num=1, **{**names, "rewriter": tuned}).objects["rewriter"]
    assert about["template"]["top_p"] == 0.5 and about["batch_size"] == 64
    named = demo(num=1, **names)
    assert named.command.startswith("t2x demo ") and named.objects == {}
    assert demo(num=1, **{**names, "rewards": []}).command == ""


@pytest.mark.parametrize(("free", "warned"), [(1000, True), (10**12, False), (None, False)])
def test_what_does_not_fit_is_said_before_anything_is_loaded(free, warned, monkeypatch, caplog):
    loaded: list[bool] = []
    monkeypatch.setattr("t2x.memory.machine.available_bytes", lambda device: free)
    monkeypatch.setattr(
        "t2x.registry.load_rewriter",
        lambda name: loaded.append("does not fit" in caplog.text) or FakeRewriter(),
    )
    demo(rewriter="emoji-rewriter", num=1)
    assert loaded == [warned] and ("rewrite emoji-rewriter" in caplog.text) == warned


def test_a_published_generator_is_warned_of_without_asking_a_hub(monkeypatch, caplog):
    monkeypatch.setattr("t2x.memory.weights._hub_bytes", lambda *_, **__: 1 / 0)
    monkeypatch.setattr("t2x.memory.machine.available_bytes", lambda device: 24 * 10**9)
    check_memory(FakeRewriter(), "sdxl-base")
    assert caplog.text == ""
    check_memory(FakeRewriter(), "flux.1-dev")
    assert "generate flux.1-dev more than 33.7 GB" in caplog.text


def test_sizes_that_nobody_knows_stop_nothing(monkeypatch, caplog):
    def no_hub(*_: Any, **__: Any) -> None:
        raise AssertionError("asked for the size of something that is no model on a hub")

    monkeypatch.setattr("t2x.memory.weights._hub_bytes", no_hub)
    monkeypatch.setattr("t2x.memory.machine.available_bytes", lambda device: 1000)
    Path("empty").mkdir()
    for name in ("none", "t2x.testing:FakeRewriter", "empty"):
        check_memory(name, FakeGenerator())
    assert caplog.text == ""


def test_scores_of_a_wrong_shape_are_not_taken():
    class Cross(Named):
        def score(self, prompts, media, *, context=None):
            return torch.zeros(len(prompts), len(media))

    (column,) = demo(rewards=[Cross("cross")]).rewards
    assert "shape (8, 8)" in column.problem and column.missing == 8


def test_the_record_differs_between_runs_only_in_seconds():
    first, second = (demo(out=name) for name in ("a", "b"))
    records = [json.loads(Path(n, "result.json").read_text("utf-8")) for n in ("a", "b")]
    seconds = [record.pop("seconds") for record in records]
    assert records[0] == records[1] and set(seconds[0]) == {"rewrite", "generate", "score", "total"}
    assert Path("a/compare.png").read_bytes() == Path("b/compare.png").read_bytes()
    assert Path("a/report.html").read_bytes() == Path("b/report.html").read_bytes()
    assert first.record() | {"seconds": 0} == second.record() | {"seconds": 0}
    other = demo(seed=1).record()
    assert other["arms"] != first.record()["arms"]


@pytest.mark.parametrize("prompt", ODD)
def test_odd_prompts_give_all_files(prompt):
    demo(prompt, out="o")
    for name in FILES:
        assert Path("o", name).stat().st_size
    assert json.loads(Path("o/result.json").read_text("utf-8"))["prompt"] == prompt
    with Image.open("o/compare.png") as image:
        assert image.size[0] > 1000 and image.size[1] < 2000


def test_models_are_let_go_before_the_next_phase(monkeypatch):
    alive: list[weakref.ref[Any]] = []

    def loader(make):
        def load(name: str) -> Any:
            assert all(ref() is None for ref in alive), "an earlier model is still in memory"
            model = make(name)
            alive.append(weakref.ref(model))
            return model

        return load

    monkeypatch.setattr("t2x.registry.load_rewriter", loader(lambda name: FakeRewriter()))
    monkeypatch.setattr("t2x.registry.load_generator", loader(lambda name: FakeGenerator()))
    monkeypatch.setattr("t2x.registry.load_reward", loader(Named))
    result = run_demo(PROMPT, rewriter="some", generator="any:other")
    assert len(alive) == 6
    assert [column.name for column in result.rewards] == ["clip", "hps", "aesthetic", "vqa"]


def test_a_rewrite_must_fit_what_the_generator_reads(tmp_path):
    tiny_stable_diffusion().save_pretrained(tmp_path / "flow")
    long = Scripted(f"{PROMPT} in a room of light and air, drawn with care and patience, {PROMPT}")
    folder = str(tmp_path / "flow")
    result = run_demo(PROMPT, rewriter=long, generator=folder, rewards=[], num=1)
    [short] = [check for check in result.rewrite.checks if check.name == "shortened"]
    assert result.rewrite.status == "accepted" and short.reason.startswith("left out: ")
    assert len(result.rewrite.text) < len(demo(rewriter=long).rewrite.text)


def test_progress_counts_up_to_the_end():
    heard: list[tuple[str, int, int]] = []
    demo(progress=lambda *step: heard.append(step))
    done = [step[1] for step in heard]
    assert done == sorted(done) and {step[2] for step in heard} == {4}
    assert heard[0][0] == "rewriting with fake-rewriter" and heard[-1] == ("done", 4, 4)


def test_many_pictures_come_in_batches_and_in_order():
    result = demo(num=20)
    fresh = FakeGenerator().generate([PROMPT] * 20, seeds=range(20))
    assert torch.equal(from_pil(result.pictures["original"]), fresh)
    assert len(result.rewards[0].rewritten) == 20


def test_examples_are_of_the_test_split_and_chosen_by_seed():
    assert len(set(EXAMPLES)) == len(EXAMPLES) >= 6
    assert {split_of(text) for text in EXAMPLES} == {"test"}
    assert pick_prompt(1) == EXAMPLES[1] and pick_prompt(len(EXAMPLES) + 1) == EXAMPLES[1]
    result = demo(None, seed=2)
    assert result.picked and result.prompt == EXAMPLES[2]
    assert not demo().picked


@pytest.mark.parametrize(
    ("prompt", "options", "message"),
    [
        (" \n", {}, "the prompt is empty"),
        (PROMPT, {"num": 0}, "num is 0"),
        (PROMPT, {"rewards": [Named("a"), Named("a")]}, "'a' is given twice"),
        (PROMPT, {"generator": FakeGenerator("video")}, "makes videos"),
        (PROMPT, {"generator": "emoji-flo"}, "did you mean 'emoji-flow'"),
        (PROMPT, {"out": "file"}, "cannot write into the folder 'file'"),
    ],
)
def test_what_can_not_be_done_is_said(prompt, options, message):
    Path("file").touch()
    with pytest.raises(T2XError, match=message):
        demo(prompt, **options)


def test_a_video_reward_is_not_measured():
    (column,) = demo(rewards=[Named("motion", modality="video")]).rewards
    assert "scores videos" in column.problem


FAKES = ("--rewriter", "t2x.testing:FakeRewriter", "--model", "t2x.testing:FakeGenerator")
FAKES += ("--reward", "t2x.testing:FakeReward")


def test_command_writes_the_files_and_prints_one_line(capsys):
    assert run(["demo", PROMPT, *FAKES, "--out", "o", "-n", "2"]) == 0
    out, err = capsys.readouterr()
    assert "The rewrite scores" in out.splitlines()[-1] and f"original  │ {PROMPT}" in out
    assert "scoring with t2x.testing:FakeReward (2/3)" in err and "Traceback" not in err
    assert sorted(path.name for path in Path("o").iterdir()) == sorted(FILES)


def test_command_prints_result_json_and_its_own_command_line_gives_the_same(capsys):
    arguments = ("--out", "out", "--json", "--seed", "3", "--", "-a cat's toy")
    assert run(["demo", *FAKES, *arguments]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads(Path("out/result.json").read_text("utf-8"))
    words = shlex.split(printed["command"])
    assert words[:2] == ["t2x", "demo"] and run([*words[1:2], "--json", *words[2:]]) == 0
    again = json.loads(capsys.readouterr().out)
    for record in (printed, again):
        del record["seconds"]
    assert printed == again
