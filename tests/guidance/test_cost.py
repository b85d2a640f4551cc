"""One unit of cost: what the counter says of a whole run, the model says from counted parts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from t2x.errors import T2XError
from t2x.functional.scores import cosine
from t2x.generators.diffusion import DiffusionGenerator
from t2x.guidance.config import GuidanceConfig
from t2x.guidance.cost import Cost, CostModel, measure_cost
from t2x.guidance.guide import guide
from t2x.guidance.metering import Counts, Meter, counted
from t2x.scoring.clip_encoder import load_clip
from t2x.scoring.reward import EncoderReward
from t2x.testing import tiny_open_clip, tiny_stable_diffusion
from t2x.testing.fakes import FakeReward

PROMPT, OTHER = "a red cat", "two dogs to the left of a bus"


def clip_reward() -> EncoderReward:
    return EncoderReward(
        name="clip",
        encoders={"clip": load_clip(tiny_open_clip())},
        head=lambda f: cosine(f["clip"]["image"], f["clip"]["text"]),
        scale="cos",
    )


def generator(embedding: int | None, steps: int = 4) -> DiffusionGenerator:
    pipe = tiny_stable_diffusion(guidance_embedding=embedding)
    sampling = {"num_inference_steps": steps, "guidance_scale": 3.0, "height": 64, "width": 64}
    return DiffusionGenerator(pipe, sampling=sampling)


class Bench:
    """A generator with metered rewards, and its cost model."""

    def __init__(self, model: DiffusionGenerator, rewards: list[Any]) -> None:
        self.model, self.meter = model, Meter()
        self.rewards = [self.meter.reward(r) for r in rewards]
        self.costs = CostModel.measure(
            model.pipeline, rewards, prompts=[PROMPT], sampling=model.sampling
        )

    def unguided(self, seeds: tuple[int, ...] = (1,)) -> torch.Tensor:
        media = self.model.generate([PROMPT] * len(seeds), seeds=seeds)
        assert isinstance(media, torch.Tensor)
        return media

    def guided(self, mode: Any) -> torch.Tensor:
        config = GuidanceConfig(mode=mode, free_last=1, size=0.3)
        with guide(self.model.pipeline, self.rewards, config):
            return self.unguided()

    def best_of(self, n: int) -> None:
        media = self.unguided(tuple(range(n)))
        for reward in self.rewards:
            reward.score([PROMPT] * n, media)

    def both(self, run: Callable[[], Any], *, timed: bool = False) -> tuple[Cost, Cost]:
        """(what the counter says, what the model says)."""
        truth = measure_cost(run, meter=self.meter, pipe=self.model.pipeline, timed=timed)
        with self.meter.watching(self.model.pipeline):
            run()
        return truth, self.costs.cost(self.meter.take())


@pytest.fixture(scope="module", params=[None, 8], ids=["cfg", "turbo"])
def bench(request: pytest.FixtureRequest) -> Bench:
    return Bench(generator(request.param), [clip_reward(), FakeReward()])


RUNS: dict[str, Callable[[Bench], Any]] = {
    "unguided": lambda b: b.unguided(),
    "E": lambda b: b.guided("E"),
    "J": lambda b: b.guided("J"),
    "best-of-3": lambda b: b.best_of(3),
}


@pytest.mark.parametrize("name", RUNS)
def test_the_model_agrees_with_the_counter(bench: Bench, name: str) -> None:
    for reward in bench.rewards:  # which know the text from now on
        reward.score([PROMPT], torch.zeros(1, 3, 64, 64))
    truth, told = bench.both(lambda: RUNS[name](bench), timed=name == "unguided")
    assert truth.flops > 0
    assert told.flops == pytest.approx(truth.flops, rel=0.01)
    assert (told.nfe, told.reward_forwards) == (truth.nfe, truth.reward_forwards)
    assert told.reward_backwards == truth.reward_backwards
    assert math.isnan(told.seconds) and math.isnan(truth.seconds) == (name != "unguided")


def test_counts_are_those_of_the_method(bench: Bench) -> None:
    passes = 1 if bench.model.pipeline.unet.config.time_cond_proj_dim else 2
    bench.meter.take()
    with bench.meter.watching(bench.model.pipeline):
        bench.guided("J")
    counts = bench.meter.take()
    guided = 3  # of four steps, the last is free
    assert counts.nfe == 4 * passes and counts.backward["denoiser"] == guided * passes
    assert counts.forward["decoder"] == guided + 1 and counts.backward["decoder"] == guided
    assert counts.reward_forwards == counts.reward_backwards == 2 * guided
    with bench.meter.watching(bench.model.pipeline):
        bench.best_of(3)
    counts = bench.meter.take()
    assert (counts.nfe, counts.reward_forwards) == (3 * 4 * passes, 6)
    assert not counts.backward


def test_metered_rewards_say_the_same_and_nothing_stays_behind(bench: Bench) -> None:
    media = bench.unguided()
    for wrapped, bare in zip(bench.rewards, [clip_reward(), FakeReward()], strict=True):
        assert torch.equal(wrapped.score([PROMPT], media), bare.score([PROMPT], media))
        assert wrapped.name == bare.name and wrapped.differentiable
    hooks = [m._forward_hooks for m in bench.model.pipeline.unet.modules()]
    assert not any(hooks) and "decode" not in vars(bench.model.pipeline.vae)
    assert all(p.requires_grad for p in bench.model.pipeline.unet.parameters())


def test_a_text_is_charged_once() -> None:
    meter, bare = Meter(), clip_reward()
    reward, media = meter.reward(bare), torch.rand(2, 3, 64, 64)
    model = CostModel.measure(
        tiny_stable_diffusion(guidance_embedding=8),
        [bare],
        prompts=["another text"],
        sampling={"num_inference_steps": 1, "height": 64, "width": 64},
        backward=False,
    )
    first = counted(lambda: reward.score([PROMPT, OTHER], media))
    counts = meter.take()
    assert counts.forward["reward clip text"] == 2 and counts.reward_forwards == 2
    assert model.flops(counts) == pytest.approx(first, rel=0.01)
    second = counted(lambda: reward.score([PROMPT, OTHER], media))
    assert model.flops(meter.take()) == pytest.approx(second, rel=0.01)
    assert second < first


def test_attention_on_a_cpu_is_counted() -> None:
    """Q K^T and P V of (1, 2, 8, 4) queries and 6 keys: 2 * 2 heads * 8 * 6 * 4 operations each;
    the gradient recomputes the scores and takes four more products."""
    q, k, v = (torch.randn(1, 2, s, 4, requires_grad=True) for s in (8, 6, 6))
    attend = torch.nn.functional.scaled_dot_product_attention
    one = 2 * 2 * 8 * 6 * 4
    assert counted(lambda: attend(q, k, v)) == 2 * one
    assert counted(lambda: torch.autograd.grad(attend(q, k, v).sum(), q)) == 2 * one + 5 * one


def test_counts_and_costs_add_up() -> None:
    counts = Counts()
    counts.add("denoiser", 4)
    counts.add("reward clip", 2)
    counts.add("reward clip text", 1)
    counts.add("denoiser", 1, backward=True)
    twice = counts + counts
    assert twice.nfe == 8 and twice.reward_forwards == 4 and twice.reward_backwards == 0
    assert counts.scaled(0.5).backward["denoiser"] == 0.5
    assert Counts.from_dict(counts.to_dict()) == counts
    model = CostModel(
        {"denoiser": 10.0, "reward clip": 3.0, "reward clip text": 1.0}, {"denoiser": 20.0}
    )
    assert model.flops(counts) == 40 + 6 + 1 + 20
    total = model.cost(counts, 1.0) + Cost(1.0, 1.0, 0.0, 0.0, 1.0)
    assert total.per(2).flops == 34 and total.seconds == 2


def test_a_part_that_was_not_measured_is_an_error() -> None:
    counts = Counts()
    counts.add("reward hps", 1)
    with pytest.raises(T2XError, match="reward hps"):
        CostModel({"denoiser": 1.0}, {}).flops(counts)
    with pytest.raises(T2XError, match="one prompt or more"):
        CostModel.measure(tiny_stable_diffusion(), prompts=[], sampling={})


def test_emoji_flow_turbo_within_one_percent() -> None:
    from t2x.registry import load_generator, load_reward

    model = load_generator("emoji-flow-turbo")
    assert isinstance(model, DiffusionGenerator)
    bench = Bench(model, [load_reward("vqa"), load_reward("clip")])
    for run in RUNS.values():
        truth, told = bench.both(lambda run=run: run(bench))
        assert told.flops == pytest.approx(truth.flops, rel=0.01)
