"""Questions made of primitives, and their right answers."""

from __future__ import annotations

from t2x.guidance.primitives import read_prompt
from t2x.guidance.questions import EMOJI, GENERAL, probes


def test_one_question_for_each_primitive_with_its_answer() -> None:
    found = read_prompt('two red cats left of a dog, no birds, watercolor, "HI"')
    asked = probes(found)
    assert [p.about for p in asked] == list(found.items)
    answers = {p.about.kind: (p.text.partition("?")[0], p.answer) for p in asked}
    assert answers["count"] == ("Are there exactly two cats in this picture", "yes")
    assert answers["attribute"] == ("Is there a red cat in this picture", "yes")
    assert answers["relation"] == ("Is the cat to the left of the dog", "yes")
    assert answers["style"] == ("Is this picture in the style of watercolor", "yes")
    assert answers["text"] == ('Does this picture show the written words "HI"', "yes")
    assert answers["negation"] == ("Is there a bird in this picture", "no")


def test_the_worlds_wording_asks_for_numbers_and_leaves_out_what_it_lacks() -> None:
    asked = probes(read_prompt("two buses, watercolor"), EMOJI)
    assert [(p.text, p.answer) for p in asked] == [
        ("Is there a bus?", "yes"),
        ("How many buses?", "two"),
    ]


def test_a_count_of_one_is_asked_only_where_numbers_are() -> None:
    one = read_prompt("one cat")
    assert [p.about.kind for p in probes(one)] == ["object"]
    assert [p.answer for p in probes(one, EMOJI)] == ["yes", "one"]


def test_deeds_and_several_others() -> None:
    def placed(text: str) -> str:
        found = probes(read_prompt(text), {"relation": GENERAL["relation"]})
        return found[0].text.partition("?")[0]

    assert placed("a cat chasing a mouse") == "Is the cat chasing the mouse"
    assert placed("a cat chases a mouse") == "Is it true that the cat chases the mouse"
    assert placed("a bowl between a lamp and a vase") == "Is the bowl between the lamp and the vase"
    assert placed("a cat on the left") == "Is the cat on the left"
