"""The VQA reward with a margin: its value by parts, right answers of either kind, its gradient."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from t2x.errors import T2XError
from t2x.guidance.primitives import read_prompt
from t2x.registry import load_reward
from t2x.scoring.vlm_encoder import YES
from t2x.types import Context, RewardModel
from t2x.world.corruption import to_pictures
from t2x.world.prompts import validation_prompts
from t2x.world.render import render_scene
from t2x.world.scene import Group, Scene

from .tiny_vlms import PROMPTS, blip2_t5, pictures, qwen
from .worlds import caption_auc


@pytest.fixture(scope="module")
def source() -> tuple[Any, Any]:
    return qwen("qwen2_vl")


def test_without_a_margin_it_is_the_log_of_vqascore(source: tuple[Any, Any]) -> None:
    """One question, the answer yes in all its spellings: log P(yes) of the whole vocabulary."""
    media = pictures(2)
    asked = [[f"Does this show {p}?"] for p in PROMPTS[:2]]
    reward = load_reward("questions", source=source, weight=0.0)
    got = reward.score(PROMPTS[:2], media, context=Context(questions=asked))
    vqa = load_reward("vqa", source=source, question="Does this show {prompt}?", yes=YES)
    assert isinstance(reward, RewardModel)
    assert torch.allclose(got, vqa.score(PROMPTS[:2], media).log(), atol=1e-4)


def test_yes_and_no_are_told_apart(source: tuple[Any, Any]) -> None:
    """exp of the reward is the probability of each answer; together they are at most 1."""
    media = pictures(3)
    reward = load_reward("questions", source=source, weight=0.0)

    def probability(answer: str) -> torch.Tensor:
        context = Context(questions=[["Is it red?"]] * 3, answers=[[answer]] * 3)
        return reward.score(PROMPTS, media, context=context).exp()

    yes, no = probability("yes"), probability("no")
    assert bool((yes + no <= 1 + 1e-5).all()) and (yes - no).abs().max() > 1e-5


def test_the_margin_takes_off_what_the_lead_lacks(source: tuple[Any, Any]) -> None:
    media = pictures(2)
    context = Context(questions=[["Is it red?"]] * 2, answers=[["no"], ["yes"]])
    plain = load_reward("questions", source=source, weight=0.0)
    base = plain.score(PROMPTS[:2], media, context=context)
    lead = plain.encoder.last.leads[:, 0]
    full = load_reward("questions", source=source, margin=2.0, weight=0.5)
    got = full.score(PROMPTS[:2], media, context=context)
    assert torch.allclose(got, base - 0.5 * (2.0 - lead).clamp(min=0), atol=1e-5)


@pytest.mark.parametrize("make", [lambda: qwen("qwen2_5_vl"), blip2_t5])
def test_answers_of_several_tokens_are_read_per_token(make: Any) -> None:
    """The mean over the answer's tokens, as PromptEcho's model gives them."""
    source, media = make(), pictures(1, 32, 32)
    reward = load_reward("questions", source=source, weight=0.0)
    vlm = reward.encoder.vlm
    answer = "a red cat above a bus"
    context = Context(questions=[["What is it?"]], answers=[[answer]])
    got = reward.score(["x"], media, context=context)
    log_probs, counted = vlm.answer_log_probs([vlm.chat("What is it?")], [answer], media, end=False)
    assert int(counted.sum()) > 1
    assert got[0] == pytest.approx(float(log_probs.sum() / counted.sum()), abs=1e-5)


def test_questions_are_made_from_the_prompt_by_any_reader(source: tuple[Any, Any]) -> None:
    reward = load_reward("questions", source=source, max_prompt_tokens=64)
    asked = reward.probes(["two red cats, no dog", "!!"])
    assert [p.answer for p in asked[0]] == ["yes", "yes", "yes", "no"]
    assert [p.about.kind for p in asked[0]] == ["object", "count", "attribute", "negation"]
    assert len(asked[1]) == 1 and '"!!"' in asked[1][0].text
    other = load_reward("questions", source=source, read=lambda p: read_prompt("a bus"))
    assert [p.about.subject for p in other.probes(["a cat"])[0]] == ["bus"]


def test_details_are_probabilities_by_question() -> None:
    scene = Scene((Group("cat", "red"), Group("dog")), "left of")
    media = to_pictures([render_scene(scene, 0)])
    reward = load_reward("questions")
    told = reward.details(["a red cat to the left of a dog"], media)[0]
    assert list(told) == [
        "Is there a cat?",
        "Is there a dog?",
        "Is there a red cat?",
        "Is the cat to the left of the dog?",
    ]
    assert all(v > 0.5 for v in told.values()), told
    wrong = reward.details(["a red cat to the right of a dog, no dog"], media)[0]
    assert min(wrong.values()) < 0.1
    assert bool((reward.encoder.last.leads[0] > 0).any())


def test_bad_calls(source: tuple[Any, Any]) -> None:
    reward = load_reward("questions", source=source)
    for context in (
        Context(questions=[["Is it?"]]),
        Context(questions=[["Is it?"]] * 3, answers=[["yes", "no"]] * 3),
    ):
        with pytest.raises(ValueError, match="give one list per sample"):
            reward.score(PROMPTS, pictures(3), context=context)
    with pytest.raises(T2XError, match="give 0 or more"):
        load_reward("questions", source=source, margin=-1.0)
    assert reward.score(["", "a cat"], pictures(2)).isnan().tolist() == [True, False]
    assert reward.score([], torch.zeros(0, 3, 8, 8)).shape == (0,)


def test_special_tokens_in_questions_and_answers_are_text(source: tuple[Any, Any]) -> None:
    context = Context(questions=[["Is it? <|image_pad|><|im_end|>"]], answers=[["<|im_end|>"]])
    score = load_reward("questions", source=source).score(PROMPTS[:1], pictures(1), context=context)
    assert bool(score.isfinite().all())


def test_a_step_along_the_gradient_helps_on_a_wrong_picture() -> None:
    """emoji-vlm on a picture of a dog, asked for a cat."""
    media = to_pictures([render_scene(Scene((Group("dog"),)), 0)])
    reward = load_reward("questions")
    pixels = media.clone().requires_grad_()
    before = reward.score(["a cat"], pixels)
    (slope,) = torch.autograd.grad(before.sum(), pixels)
    assert bool(slope.isfinite().all()) and bool(slope.any())
    after = reward.score(["a cat"], (media + 0.01 * slope / slope.abs().mean()).clamp(0, 1))
    assert float(after) > float(before.detach()) and not math.isnan(float(after))


def test_right_captions_score_above_wrong_ones() -> None:
    """Measured 0.99 on 96 pairs of validation prompts; chance 0.5."""
    assert caption_auc(load_reward("questions"), 24) > 0.9


def test_clean_renders_answer_every_question_right() -> None:
    """Measured: 226 of 226, on 96 renders of validation prompts."""
    prompts = validation_prompts(18)
    media = to_pictures([render_scene(p.scene, i) for i, p in enumerate(prompts)])
    reward = load_reward("questions")
    with torch.no_grad():
        reward.score([p.text for p in prompts], media)
    leads = reward.encoder.last.leads
    assert int((leads > 0).sum()) >= 0.95 * int((~leads.isnan()).sum())
