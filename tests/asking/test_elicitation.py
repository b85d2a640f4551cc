"""A conversation: choosing, answering, going back, going on later, without and with pictures."""

from __future__ import annotations

import json

import pytest
import torch

import t2x
from t2x.asking.emoji_world import EmojiWorld, scene_values
from t2x.asking.influence import MeasuredInfluence
from t2x.asking.records import DOESNT_MATTER
from t2x.asking.simulated import SimulatedUser, converse
from t2x.errors import T2XError
from t2x.world.content import tells_scene
from t2x.world.scene import Group, Scene

PROMPT = "an animal and a bus"
HIDDEN = Scene((Group("zebra", "pink"), Group("bus")), "right of")


def asking(strategy: str = "gain", **options: object) -> t2x.Elicitation:
    return t2x.Elicitation(PROMPT, subject=EmojiWorld(PROMPT), strategy=strategy, **options)  # type: ignore[arg-type]


class Painter:
    """Draws flat pictures: "wide" texts differ a lot, seeds a little; counts what it draws."""

    model_id, modality = "painter", "image"

    def __init__(self) -> None:
        self.drawn: list[tuple[str, int]] = []

    def generate(self, prompts, *, negative=None, seeds, size=None, num_frames=None):  # type: ignore[no-untyped-def]
        self.drawn += zip(prompts, seeds, strict=True)
        rows = []
        for text, seed in zip(prompts, seeds, strict=True):
            noise = torch.rand(3, 16, 16, generator=torch.Generator().manual_seed(seed))
            own = torch.rand(3, 16, 16, generator=torch.Generator().manual_seed(len(text) + 99))
            rows.append(noise * 0.5 + own * 0.5 if "wide" in text else noise)
        return torch.stack(rows)


def test_the_question_that_tells_most_is_asked() -> None:
    question = asking().next_question()
    assert question is not None
    others = asking()._candidates()
    assert question.gain == max(candidate.gain for candidate in others)
    assert sum(question.probabilities) == pytest.approx(1)


def test_influence_weighs_the_gain() -> None:
    by_place = asking(influence={"place": 100.0, "kind": 1.0, "colour": 1.0}).next_question()
    assert by_place is not None and by_place.feature.family == "place"
    alone = asking("gain-alone", influence={"place": 100.0}).next_question()
    assert alone is not None and alone.feature.family != "place"


def test_the_fixed_order_begins_with_kinds() -> None:
    question = asking("fixed").next_question()
    assert question is not None and question.feature.family == "kind"


def test_a_perfect_user_is_understood() -> None:
    talk = asking()
    prompts = converse(talk, SimulatedUser(scene_values(HIDDEN, 2)), 9)
    assert tells_scene(prompts[-1], HIDDEN)
    assert not tells_scene(prompts[0], HIDDEN)
    assert talk.next_question() is None or len(talk.answers) == 9


@pytest.mark.parametrize("strategy", ["gain", "random"])
def test_a_conversation_is_its_answers(strategy: str) -> None:
    talk = asking(strategy, influence={"kind": 2.0})
    converse(talk, SimulatedUser(scene_values(HIDDEN, 2)), 3)
    data = json.loads(json.dumps(talk.to_dict()))
    again = t2x.Elicitation.from_dict(data, subject=EmojiWorld(PROMPT))
    assert again.answers == talk.answers and again.prompt() == talk.prompt()
    assert repr(again.next_question()) == repr(talk.next_question())


def test_answers_that_fit_no_question_are_refused() -> None:
    data = {**asking().to_dict(), "answers": [["kind 0", "castle"]]}
    with pytest.raises(T2XError, match="castle"):
        t2x.Elicitation.from_dict(data, subject=EmojiWorld(PROMPT))


def test_back_brings_the_question_again() -> None:
    talk = asking()
    first, before = talk.next_question(), talk.prompt()
    talk.answer(0)
    talk.next_question()
    talk.back()
    assert repr(talk.next_question()) == repr(first) and talk.prompt() == before
    with pytest.raises(T2XError, match="no answer"):
        talk.back()


def test_doesnt_matter_closes_the_feature() -> None:
    talk = asking()
    for _ in range(30):
        question = talk.next_question()
        if question is None:
            break
        talk.answer(DOESNT_MATTER)
    keys = [answer.key for answer in talk.answers]
    assert talk.next_question() is None and len(keys) == len(set(keys))


@pytest.mark.parametrize("choice", ["castle", 17, -1, ""])
def test_what_is_no_answer_is_refused_and_nothing_is_lost(choice: str | int) -> None:
    talk = asking()
    with pytest.raises(T2XError, match="is no answer"):
        talk.answer(choice)
    assert talk.answers == ()


@pytest.mark.parametrize(("prompt", "strategy"), [(" ", "gain"), ("a cat", "clever")])
def test_what_can_not_be_asked_is_refused(prompt: str, strategy: str) -> None:
    with pytest.raises(T2XError, match=r"empty|unknown strategy"):
        t2x.Elicitation(prompt, strategy=strategy)


def test_a_slip_is_another_answer_and_the_same_each_time() -> None:
    question = asking().next_question()
    assert question is not None
    values = scene_values(HIDDEN, 2)
    truth = SimulatedUser(values).answer(question)
    slips = {SimulatedUser(values, noise=1.0, seed=s).answer(question) for s in range(20)}
    assert truth not in slips and len(slips) > 1 and slips <= set(question.answers)
    with pytest.raises(T2XError, match="noise"):
        SimulatedUser(values, noise=1.5)


# ---- pictures -----------------------------------------------------------------------------------


def test_a_question_shows_its_options_from_one_seed() -> None:
    painter = Painter()
    talk = t2x.Elicitation("a car", generator=painter, seed=4)  # type: ignore[arg-type]
    question = talk.next_question()
    assert question is not None and question.pictures is not None
    assert len(question.pictures) == len(question.options) == len(question.texts)
    expected = painter.generate(list(question.texts), seeds=[4] * len(question.texts))
    assert torch.equal(torch.as_tensor(question.pictures), expected)
    assert talk.draw().shape == (1, 3, 16, 16)


def test_influence_is_measured_once_and_nothing_is_drawn_twice() -> None:
    painter = Painter()
    measure = MeasuredInfluence(painter)  # type: ignore[arg-type]
    measure.measure({"big": ["wide a", "wide as b"], "none": ["a", "b"]}, seed=0)
    assert measure.known["big"] > 0.3 and measure.known["none"] == pytest.approx(0, abs=1e-5)
    assert len(painter.drawn) == len(set(painter.drawn)) == 8
    measure.measure({"big": ["wide c", "wide d e"]}, seed=0)
    measure.draw(["wide a", "wide a"], [0, 0])
    assert len(painter.drawn) == 8


def test_what_changes_nothing_is_not_asked_first() -> None:
    """ "a car" leaves place, colour and style open; only texts with a colour differ."""
    painter = Painter()
    known = {"place": 0.0, "style": 0.0, "light": 0.0, "colour": 1.0}
    talk = t2x.Elicitation("a car", generator=painter, strategy="gain", influence=known)  # type: ignore[arg-type]
    question = talk.next_question()
    assert question is not None and question.feature.family == "colour"


def test_kinds_are_asked_first_by_default() -> None:
    """What won where strategies were compared."""
    question = t2x.Elicitation(PROMPT, subject=EmojiWorld(PROMPT)).next_question()
    assert question is not None and question.feature.family == "kind"
