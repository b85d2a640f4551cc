"""GuidedGenerator over a tiny pipeline of the real class: CPU, float32."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from t2x.errors import T2XError
from t2x.generators import DiffusionGenerator, GuidedGenerator
from t2x.guidance.config import GuidanceConfig
from t2x.guidance.primitives import read_prompt
from t2x.guidance.recipe import make_recipe
from t2x.registry import load_generator
from t2x.testing import EDITING, EDITING_CALLS, FakeReward, tiny_stable_diffusion
from t2x.types import Context, Generator

PROMPTS = ["a red cat", "two dogs", "a bus"]
SEEDS = [3, 4, 5]


@pytest.fixture(scope="module")
def plain():
    return DiffusionGenerator.from_pretrained(
        tiny_stable_diffusion(), num_inference_steps=4, guidance_scale=3.0
    )


def guided(plain, rewards=None, **config):
    given = GuidanceConfig(**{"size": 2.0, **config})
    return GuidedGenerator(plain, given, rewards=rewards or [FakeReward()], thumbnails=16)


@pytest.mark.parametrize("mode", ["E", "J"])
def test_guidance_raises_its_reward_and_leaves_the_generator_alone(plain, mode):
    before = plain.generate(PROMPTS, seeds=SEEDS)
    generator = guided(plain, mode=mode)
    media = generator.generate(PROMPTS, seeds=SEEDS)

    assert isinstance(generator, Generator)
    assert (media[:, 0].mean((1, 2)) > before[:, 0].mean((1, 2))).all()
    assert torch.equal(plain.generate(PROMPTS, seeds=SEEDS), before)
    assert torch.equal(generator.generate(PROMPTS, seeds=SEEDS), media)
    alone = torch.cat(
        [generator.generate([p], seeds=[s]) for p, s in zip(PROMPTS, SEEDS, strict=True)]
    )
    assert (alone - media).abs().max() <= 1.01 / 255


@pytest.mark.parametrize("mode", ["E", "J"])
def test_size_0_gives_the_bytes_of_the_unguided_generator(plain, mode):
    media = guided(plain, mode=mode, size=0.0).generate(PROMPTS, seeds=SEEDS)

    assert torch.equal(media, plain.generate(PROMPTS, seeds=SEEDS))


def test_a_reader_tells_the_policy_what_a_prompt_asks_for(plain, monkeypatch):
    """By name or loaded; without, rules read. Asked once for each prompt, if there is a policy."""
    asked = []

    def read(prompt):
        asked.append(prompt)
        return replace(read_prompt("three cats"), prompt=prompt, reader="a model")

    class Questions(FakeReward):
        name = "align"

    monkeypatch.setattr("t2x.guidance.model_reader.ModelReader", lambda model: read)
    monkeypatch.setattr("t2x.registry.load_rewriter", lambda name: name)
    rewards = [Questions(), FakeReward(1)]
    config = GuidanceConfig({"align": 1.0, "fake-reward": 1.0})
    for reader in ("owner/model", read, None):
        generator = load_generator(plain, guidance=config, rewards=rewards, reader=reader)
        generator.generate(["a bus"], seeds=[3])
        weights = [generator.traces[0].weights[reward.name][0] for reward in rewards]
        told = generator.notes[0]["policy"]
        assert ("(a model)" in told) == (reader is not None)
        assert weights == pytest.approx([1.2, 0.8] if reader else [1.0, 1.0])
    assert asked == ["a bus"] * 2
    with pytest.raises(T2XError, match="a reader is asked by the policy"):
        load_generator(
            plain, guidance=replace(config, adaptive=False), rewards=rewards, reader=read
        )


@pytest.mark.parametrize("mode", ["E", "search"])
def test_regions_of_the_words_are_looked_at_in_every_mode_and_in_the_scores(plain, mode):
    asked, places = [], []

    def read(prompt):
        asked.append(prompt)
        return read_prompt(prompt)

    class Grounded(FakeReward):
        name = "grounded"

        def score(self, prompts, media, *, context=None):
            places.append((context.phrases, context.boxes.tolist()))
            return super().score(prompts, media, context=context)

    recipe = make_recipe({"grounded": 1.0}, mode=mode, loaded=["grounded"])
    generator = GuidedGenerator(plain, recipe, rewards=[Grounded()], reader=read)
    words = ["a cat left of a dog"]
    generator.scores(words, generator.generate(words, seeds=[3]))
    halves = [[0.0, 0.0, 0.5, 1.0], [0.5, 0.0, 1.0, 1.0]]
    assert len(places) > 1 and asked == words
    for phrases, boxes in places:
        assert all(row == ["a cat", "a dog"] for row in phrases)
        assert all(row == halves for row in boxes)


def test_rewards_score_against_the_users_words_and_traces_keep_their_order(plain):
    """Batches of two; negative prompts put the second picture into a batch of its own."""
    heard = []

    class Listening(FakeReward):
        def score(self, prompts, media, *, context=None):
            heard.append((tuple(prompts), tuple(context.user)))
            return super().score(prompts, media, context=context)

    generator = guided(plain, [Listening(fails_on="dog")])
    words = ["cat", "dog", "bus"]
    context = Context(user=["ada", "ben", "cy"])
    with pytest.raises(T2XError, match="3 prompts but 1 originals"):
        generator.generate(PROMPTS, seeds=SEEDS, originals=["cat"])
    generator.generate(
        PROMPTS, seeds=SEEDS, negative=["", "blue", ""], originals=words, context=context
    )

    assert set(heard) == {(("cat", "bus"), ("ada", "cy")), (("dog",), ("ben",))}
    assert [trace.prompt for trace in generator.traces] == words
    assert all(math.isnan(v) for v in generator.traces[1].values["fake-reward"])
    assert math.isfinite(generator.traces[2].values["fake-reward"][0])
    assert generator.traces[0].thumbnails[0].shape == (3, 16, 16)
    assert generator.cost["denoiser"].forward == 3 * 4 * 2


def test_lack_of_memory_halves_the_batch_and_keeps_one_trace_each(plain, monkeypatch):
    generator = guided(plain)
    whole = generator.generate(PROMPTS, seeds=SEEDS)
    unet = plain.pipeline.unet
    monkeypatch.setattr(plain, "batch_size", 4)

    def limit(module, args, kwargs):
        if len(args[0]) > 2:  # classifier-free guidance: one picture
            raise torch.OutOfMemoryError("CUDA out of memory")

    with unet.register_forward_pre_hook(limit, with_kwargs=True):
        media = generator.generate(PROMPTS, seeds=SEEDS)

    assert plain.batch_size == 1
    assert (media - whole).abs().max() <= 1.01 / 255
    assert [trace.prompt for trace in generator.traces] == PROMPTS
    assert "step" not in vars(plain.pipeline.scheduler)
    monkeypatch.setattr(plain, "batch_size", 4)


MODES = {
    "particles": {"count": 3},
    "E+particles": {"size": 2.0, "particles": {"count": 3}},
    "noise": {"iterations": 3},
    "search": {"pictures": 3},
}


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_chooses_by_its_reward_picture_by_picture(plain, mode):
    recipe = make_recipe("fake-reward", mode=mode, options=MODES[mode], loaded=["fake-reward"])
    generator = GuidedGenerator(plain, recipe, rewards=[FakeReward()], thumbnails=16)
    before = plain.generate(PROMPTS, seeds=SEEDS)
    media = generator.generate(PROMPTS, seeds=SEEDS)

    assert (media[:, 0].mean() - before[:, 0].mean()) > 0
    assert generator.cost["denoiser"].forward >= 3 * 3 * 4 * 2
    assert len(generator.notes) == 3
    alone = generator.generate(PROMPTS[1:2], seeds=SEEDS[1:2])
    assert (alone - media[1:2]).abs().max() <= 1.01 / 255
    trace = generator.traces[0]
    if "particles" in mode:
        assert len(trace.sigmas) == 4
        assert math.isfinite(trace.values[next(iter(trace.values))][0])
        assert trace.thumbnails[0] is not None
    else:
        assert trace is None
    other = generator.generate(PROMPTS, seeds=SEEDS, negative=["", "blue", ""])
    assert ((other - media).flatten(1).abs().amax(1) > 1.01 / 255).tolist() == [False, True, False]
    ruled_out = [PROMPTS[0], f"{PROMPTS[1]} --no blue", PROMPTS[2]]
    assert torch.equal(other, generator.generate(ruled_out, seeds=SEEDS))


@pytest.mark.parametrize(
    ("mode", "enough", "bought"), [("particles", 24, 3), ("noise", 48, 2), ("search", 16, 2)]
)
def test_a_budget_decides_how_many(plain, mode, enough, bought):
    """A run of 4 steps takes 8 evaluations; of *noise* a backward pass of 16 more."""
    recipe = make_recipe("fake-reward", mode=mode, budget=enough, loaded=["fake-reward"])
    generator = GuidedGenerator(plain, recipe, rewards=[FakeReward()])
    generator.generate(PROMPTS[:1], seeds=SEEDS[:1])

    (note,) = generator.notes
    found = note.get("particles") or note.get("curve") or note.get("tried")
    assert len(found) == bought
    assert generator.cost["denoiser"].forward == bought * 8
    generator.recipe = replace(recipe, budget=7)
    with pytest.raises(T2XError, match="a budget of 7 denoiser evaluations pays for 0"):
        generator.generate(PROMPTS[:1], seeds=SEEDS[:1])


def test_a_key_tells_guidance_from_none_and_from_other_guidance(plain):
    marks = [
        plain.fingerprint(),
        guided(plain).fingerprint(),
        guided(plain, seed=1).fingerprint(),
        guided(plain, mode="J").fingerprint(),
        guided(plain, [FakeReward(), _named("green", 1)]).fingerprint(),
    ]

    assert len({repr(mark) for mark in marks}) == len(marks)
    assert repr(guided(plain).fingerprint()) == repr(marks[1])


def _named(name, channel):
    reward = FakeReward(channel)
    reward.name = name
    return reward


def test_a_budget_decides_the_steps(plain):
    generator = guided(plain)
    generator.recipe = replace(generator.recipe, budget=12)
    generator.generate(PROMPTS[:1], seeds=SEEDS[:1])

    assert generator.settings()["num_inference_steps"] == 6
    assert len(generator.traces[0].sigmas) == 6
    assert generator.cost["denoiser"].forward == 12


@pytest.mark.parametrize("mode", ["E", "E+particles"])
def test_a_run_of_which_no_step_is_guided_is_refused(plain, mode):
    generator = guided(plain)
    recipe = make_recipe(
        generator.recipe.config, mode=mode, options={"free_last": 100}, loaded=["fake-reward"]
    )
    generator.recipe = recipe
    with pytest.raises(T2XError, match=r"none of . steps is guided.*free_last 100"):
        generator.generate(PROMPTS[:1], seeds=SEEDS[:1])


def test_load_generator_takes_rewards_that_are_loaded():
    pipe, reward = tiny_stable_diffusion(), FakeReward()
    plain_weights = load_generator(pipe, rewards=[reward])
    named = load_generator(pipe, guidance=f"{reward.name}=2", rewards=[reward])

    assert isinstance(plain_weights, GuidedGenerator)
    assert plain_weights.rewards == [reward]
    assert plain_weights.recipe.config.rewards == {reward.name: 1.0}
    assert named.recipe.config.rewards == {reward.name: 2.0}
    with pytest.raises(T2XError, match="weights for clip; the rewards are"):
        load_generator(pipe, guidance="clip=1", rewards=[reward])


def test_load_generator_makes_one(monkeypatch):
    monkeypatch.setitem(__import__("t2x.registry").registry.REWARDS, "bright", BRIGHT)
    generator = load_generator(
        tiny_stable_diffusion(),
        guidance=make_recipe("bright=2", mode="E"),
        num_inference_steps=3,
        guidance_scale=1.0,
    )

    assert isinstance(generator, GuidedGenerator)
    generator.generate(["a cat"], seeds=[0])
    assert set(generator.traces[0].weights) == {"fake-reward"}
    assert generator.traces[0].weights["fake-reward"][0] == 2.0
    with pytest.raises(T2XError, match="unknown reward 'brigh'"):
        load_generator("no-such-generator", guidance="brigh=1")
    with pytest.raises(T2XError, match="FakeGenerator can't be guided"):
        load_generator("t2x.testing:FakeGenerator", guidance="bright=1")


BRIGHT = "t2x.testing:FakeReward"


def test_particles_refuse_what_steps_a_part_of_the_frames():
    drawer = DiffusionGenerator(
        EDITING["ltx-i2v"](), sampling={**EDITING_CALLS["ltx-i2v"], "num_inference_steps": 2}
    )
    recipe = make_recipe("fake-reward", mode="particles", loaded=["fake-reward"])
    guided = GuidedGenerator(drawer, recipe, rewards=[FakeReward()])
    with pytest.raises(T2XError, match="steps all frames but the first"):
        guided.generate(PROMPTS[:1], seeds=[0], sources=torch.rand(1, 3, 32, 32))
