"""What can be asked about free text, and what a language model proposes."""

from __future__ import annotations

import pytest

import t2x
from t2x.asking.listed import Listed
from t2x.asking.plain_text import plain_text
from t2x.asking.proposed import propose, read_proposals
from t2x.asking.records import Known
from t2x.rewriters.templates import GENERAL, Template
from t2x.types import Rewrite

ROWS = """Sure: [{"feature": "time of day", "question": "When?", "options": {"at noon": 0.3,
 "at night": 0.6}, "any": 0.1}, {"feature": "x"}, 7, {"feature": "mood", "question": "Which mood?",
 "options": {"calm": "high", "wild": 1}}] Hope it helps."""


def keys(prompt: str) -> set[str]:
    return {item.key for item in plain_text(prompt).listed}


def test_what_the_prompt_says_is_not_asked() -> None:
    assert keys("cats") == {"count 0", "colour 0", "place", "light", "style"}
    assert "count 0" not in keys("three cats")
    assert "colour 0" not in keys("a red car")
    assert "place" not in keys("a car in the rain")
    assert "light" not in keys("a castle at night")
    assert "style" not in keys("an oil painting of a castle")
    assert keys("eine Katze auf dem Sofa") == set()


def test_answers_are_put_where_they_belong() -> None:
    subject = plain_text("an apple and big cats")
    known = Known().only("colour 0", frozenset(("red",))).only("count 1", frozenset(("three",)))
    assert subject.text(known) == "a red apple and three big cats"
    assert subject.text(known.only("place", frozenset(("in nature",)))).endswith(", in nature")


def test_more_than_four_values_stand_behind_something_else() -> None:
    subject = plain_text("a car")
    intents = subject.intents(Known())
    colour = next(f for f in subject.features(Known(), intents) if f.key == "colour 0")
    assert len(colour.options) == 4 and colour.rest == {"white", "yellow"}
    again = Known().after(colour, "something else")
    (rest,) = [f for f in subject.features(again, subject.intents(again)) if f.key == "colour 0"]
    assert {option.label for option in rest.options} == colour.rest and not rest.rest


def test_the_order_is_by_uncertainty() -> None:
    assert list(plain_text("a car").order)[-1] == "light"


def test_proposals_are_read_wherever_they_stand() -> None:
    (only,) = read_proposals(ROWS)
    assert only.key == "time of day" and list(only.odds) == ["at night", "at noon"]
    assert only.silent == 0.1


@pytest.mark.parametrize(
    "text", ["", "no", "[", "[}", "[1, 2]", '{"a": 1}', "][", '[{"options": 3}]']
)
def test_malformed_proposals_are_none(text: str) -> None:
    assert read_proposals(text) == ()


class Chat:
    """A chat model that proposes, and otherwise repeats the prompt."""

    model_id = "chat"

    def __init__(self, answer: str = ROWS, template: Template = GENERAL) -> None:
        self.said, self.template = answer, template

    def rewrite(self, prompts, *, num_generations=1, seed=0):  # type: ignore[no-untyped-def]
        asked = "Answer with JSON" in self.template.system
        return [
            [Rewrite(p, self.said if asked else f"{p}, sharp", raw=self.said, model_id="chat")]
            for p in prompts
        ]


def test_a_chat_model_proposes_and_writes_the_prompt() -> None:
    talk = t2x.Elicitation("a castle", rewriter=Chat())
    question = talk.next_question()
    assert question is not None and question.text == "When?"
    talk.answer("at night")
    rewrite = talk.rewrite()
    assert rewrite.text == "a castle, at night, sharp" and rewrite.status == "accepted"
    assert rewrite.original == "a castle"


def test_a_rewrite_that_loses_an_answer_is_reverted() -> None:
    class Forgetful(Chat):
        def rewrite(self, prompts, *, num_generations=1, seed=0):  # type: ignore[no-untyped-def]
            if "Answer with JSON" in self.template.system:
                return super().rewrite(prompts)
            return [[Rewrite(p, "some blue dogs", model_id="chat")] for p in prompts]

    talk = t2x.Elicitation("three cats", subject=plain_text("three cats"), rewriter=Forgetful())
    assert talk.rewrite().text == "three cats" and talk.rewrite().status == "reverted"


def test_what_proposes_nothing_leaves_the_text_alone_to_decide() -> None:
    assert propose("a castle", Chat("I can't")) is None
    assert propose("a castle", Chat(template=Template())) is None
    talk = t2x.Elicitation("a castle", rewriter=Chat("I can't"))
    assert isinstance(talk.subject, Listed) and talk.next_question() is not None
