"""Decisions of the policy, and how its weights move."""

from __future__ import annotations

import math

import pytest
import torch

from t2x.guidance.config import GuidanceConfig
from t2x.guidance.guide import guide
from t2x.guidance.objective import Objective
from t2x.guidance.policy import (
    ROLES,
    RULES,
    SERVES,
    PromptPolicy,
    own_policy,
    policy_for,
    role_of,
)
from t2x.guidance.primitives import KINDS
from t2x.guidance.regions import Region
from t2x.registry import REWARDS, load_generator, load_reward
from t2x.scoring.frames import frames
from t2x.testing import FakeReward
from t2x.types import Context

CONFIG = GuidanceConfig(rewards={"questions": 1.0, "clip": 0.5, "region-clip": 0.5, "dino": 1.0})


def test_weights_keep_their_sum_and_are_never_negative() -> None:
    for prompt in ("two cats", "make the car red", "turn it into a watercolor", "remove the cat"):
        (policy,) = policy_for([prompt], CONFIG)
        assert sum(policy.weights.values()) == pytest.approx(3.0)
        assert min(policy.weights.values()) >= 0 and list(policy.weights) == list(CONFIG.rewards)
    (nothing,) = policy_for(["???"], CONFIG)
    assert dict(nothing.weights) == dict(CONFIG.rewards) and not nothing.reasons


def test_what_the_paper_says_of_its_heuristic() -> None:
    """Local colour edits raise the region's weight, a global style the perceptual one; numbers
    raise the questions."""
    config = GuidanceConfig(rewards={"questions": 1.0, "region-clip": 1.0, "aesthetic": 1.0})
    prompts = ["make the car red", "turn this photo into anime", "three cats"]
    colour, style, number = (p.weights for p in policy_for(prompts, config))
    assert max(colour, key=colour.__getitem__) == "region-clip"
    assert max(style, key=style.__getitem__) == "aesthetic"
    assert max(number, key=number.__getitem__) == "questions"


def test_a_reward_that_pushes_away_keeps_its_weight() -> None:
    config = GuidanceConfig(rewards={"questions": 1.0, "clip": 1.0, "aesthetic": -0.3})
    (policy,) = policy_for(["three cats"], config)
    assert policy.weights["aesthetic"] == -0.3
    assert policy.weights["questions"] + policy.weights["clip"] == pytest.approx(2.0)
    moved = policy.adapt(torch.zeros(3), torch.tensor([0.0, 1.0]), ["count", "object"])
    assert moved[2] == pytest.approx(-0.3) and moved.sum() == pytest.approx(1.7)


def test_weight_goes_to_what_is_still_answered_wrong() -> None:
    """Rewards of the roles questions and look, both of weight 1: with all counts wrong, the
    questions have fault 1 and the look serves no counts: at temperature 1/2, e^2 against 1."""
    config = GuidanceConfig(rewards={"questions": 1.0, "aesthetic": 1.0})
    (policy,) = policy_for(["???"], config)
    values = torch.zeros(2)
    got = policy.adapt(values, torch.tensor([0.0]), ["count"])
    share = math.exp(2) / (1 + math.exp(2))
    assert got.tolist() == pytest.approx([2 * share, 2 * (1 - share)])
    right = policy.adapt(values, torch.tensor([1.0]), ["count"])
    assert torch.allclose(right, torch.ones(2))
    assert torch.allclose(policy.adapt(values), torch.ones(2))


def test_window_and_regions_of_an_edit() -> None:
    (policy,) = policy_for(["make the car red"], GuidanceConfig(rewards={"clip": 1.0}, stop=0.7))
    assert (policy.start, policy.stop, policy.size) == (0.2, 0.7, 0.8)
    assert policy.regions == (Region("a red car"),)
    (other,) = policy_for(["a red cat and a dog"], CONFIG)
    assert other.regions == (Region("a red cat"), Region("a dog"))


def test_show_tells_what_and_why() -> None:
    told = policy_for(["two red cats left of a dog"], CONFIG)[0].show()
    assert "looks for: a red cat at 0,0,0.5,1; a dog at 0.5,0,1,1" in told
    assert "count: cat 2" in told and "weights: questions" in told and "because: numbers" in told


def test_rules_name_roles_and_kinds_that_exist() -> None:
    roles = set(ROLES.values())
    assert all(set(rule.factors) <= roles and set(rule.kinds) <= set(KINDS) for rule in RULES)
    assert set(SERVES) <= roles
    unknown = {name for name in REWARDS if not role_of(name)}
    assert unknown == {"critique", "motion", "temporal-consistency"}


def test_in_an_objective_a_batch_of_two_is_two_singles() -> None:
    rewards = [load_reward("questions"), load_reward("clip")]
    config = GuidanceConfig(rewards={"questions": 1.0, "clip": 0.5})
    prompts = ["two red cats to the left of a dog", "a cat"]
    media = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))

    def weights(rows: slice) -> torch.Tensor:
        policy = PromptPolicy(rewards, config)
        objective = Objective(rewards, config.rewards, policy=policy)
        return objective.evaluate(prompts[rows], media[rows], total=10).weights

    both = weights(slice(0, 2))
    assert torch.allclose(both, torch.cat([weights(slice(0, 1)), weights(slice(1, 2))]), atol=1e-4)
    assert torch.allclose(both.sum(1), torch.full((2,), 1.5), atol=1e-5)
    assert (both - torch.tensor([1.0, 0.5])).abs().max() > 0.05


def test_a_video_moves_weights_as_its_frames_do() -> None:
    """Each frame is asked about: of equal frames the weights are those of the picture."""
    rewards = [load_reward("questions"), load_reward("clip")]
    config = GuidanceConfig(rewards={"questions": 1.0, "clip": 1.0})
    prompts = ["two red cats to the left of a dog", "a cat"]
    media = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    policy = PromptPolicy(rewards, config)
    still = Objective(rewards, policy=policy).evaluate(prompts, media).weights
    video = media.unsqueeze(1).repeat(1, 3, 1, 1, 1)
    moving = Objective([frames(r) for r in rewards], policy=policy).evaluate(prompts, video).weights
    assert torch.allclose(moving, still, atol=1e-4)
    assert (still - 1).abs().max() > 0.05


def test_regions_of_the_words_reach_the_rewards_that_look_there() -> None:
    """A reward of regions gets each prompt's phrases and boxes; others, and the caller's own
    context, are left alone."""
    seen: list[Context | None] = []

    class Looking(FakeReward):
        differentiable = True

        def score(self, prompts, media, *, context=None):
            seen.append(context)
            return media.flatten(1).mean(1)

    def scored(name: str, context: Context | None = None) -> Context | None:
        reward = Looking()
        reward.name = name
        policy = own_policy([reward], GuidanceConfig())
        prompts = ["a cat on the left of a red dog", "a bus"]
        Objective([reward], policy=policy).evaluate(
            prompts, torch.rand(2, 3, 8, 8), context=context
        )
        return seen[-1]

    assert scored("clip") is None
    for name in ("grounded", "region-clip"):
        found = scored(name)
        assert found is not None and found.phrases == [["a cat", "a red dog"], ["a bus"]]
        assert found.boxes is not None and found.boxes.shape == (2, 2, 4)
        assert found.boxes[0].tolist() == [[0, 0, 0.5, 1], [0.5, 0, 1, 1]]
        assert bool(found.boxes[1].isnan().all())
    own = Context(phrases=[["a hat"], []])
    assert scored("grounded", own) is own
    boxes = scored("grounded", Context(boxes=torch.zeros(2, 1, 4)))
    assert boxes is not None and boxes.phrases == [[], ["a bus"]]
    assert own_policy([Looking()], GuidanceConfig(adaptive=False)) is None


def test_factors_are_0_outside_of_the_window() -> None:
    policy = PromptPolicy([FakeReward()], GuidanceConfig(rewards={}))
    prompts = ["make the car red", "a cat"]
    assert policy.factors(prompts, 0, 10).tolist() == pytest.approx([0.0, 1.0])
    assert policy.factors(prompts, 5, 10).tolist() == pytest.approx([0.8, 1.0])
    objective = Objective([load_reward("clip")], policy=policy)
    assert objective.factors(prompts, 5, 10).tolist() == pytest.approx([0.8, 1.0])
    assert Objective([load_reward("clip")]).factors(prompts, 5, 10).tolist() == [1.0, 1.0]


def test_a_guided_run_moves_weights_and_keeps_their_sum() -> None:
    """emoji-flow-turbo under the policy: weights differ between steps or prompts, and the sum of
    each sample is what was given.
    """
    pipe = load_generator("emoji-flow-turbo").pipeline
    rewards = [load_reward("questions"), load_reward("clip")]
    config = GuidanceConfig(rewards={"questions": 1.0, "clip": 1.0}, free_last=1)
    prompts = ["three red cats", "a dog to the left of a bus"]
    policy = PromptPolicy(rewards, config)
    with guide(pipe, rewards, config, policy=policy) as trace:
        pipe(prompts, output_type="pt", num_inference_steps=4)
    every = torch.stack([step.weights for step in trace.calls[-1].steps])
    weights = every[:-1]  # the last step is free
    assert every[-1].isnan().all() and len(weights) == 3 and bool((weights >= 0).all())
    assert torch.allclose(weights.sum(-1), torch.full(weights.shape[:2], 2.0), atol=1e-5)
    assert bool((weights[..., 0] > 1.0).all())  # numbers and places are told by questions
    assert weights.flatten(0, 1)[:, 0].std() > 1e-3
    assert "by questions" in policy.show(prompts)
