"""What no training set may hold: texts of another split, held-out colours and sides, in any word or
picture. The checks here read texts and places by themselves.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import permutations

import pytest

from t2x.world import corpus, shown
from t2x.world.captions import sample_pair, sample_told_layout, training_scene
from t2x.world.content import style_of
from t2x.world.lexicon import COLOR_SYNONYMS, RELATION_PHRASES, SYNONYMS, plural_of
from t2x.world.placing import place, shows_held_out
from t2x.world.preferences import near_miss, preference_pair, prompt_for, show
from t2x.world.prompts import split_of
from t2x.world.questions import VERIFY, sample_turns
from t2x.world.render import SLOT_CENTERS, Placed
from t2x.world.scene import CLASSES, COLORS, INVERSE
from t2x.world.split import is_held_out_color, is_held_out_relation
from t2x.world.teacher import teacher_pair, teaching_prompt

_NAMES = {
    form: cls
    for cls in CLASSES
    for name in (cls, *SYNONYMS[cls])
    for form in (name, plural_of(name))
}
_TINTS = {word: color for color in COLORS for word in (color, *COLOR_SYNONYMS[color])}
_SIDES = {words: side for side, phrases in RELATION_PHRASES.items() for words in phrases}


def _any_of(words: Iterable[str]) -> str:
    return "|".join(map(re.escape, sorted(words, key=len, reverse=True)))


_TINTED = re.compile(rf"\b({_any_of(_TINTS)}) ({_any_of(_NAMES)})\b")
_RELATED = re.compile(
    rf"\b({_any_of(_NAMES)}) ({_any_of(_SIDES)}) (?:an?|one|two|three|four) "
    rf"(?:(?:{_any_of(_TINTS)}) )?({_any_of(_NAMES)})\b"
)
_SLOTTED = re.compile(rf"({_any_of(SLOT_CENTERS)}): an? (?:({_any_of(COLORS)}) )?([a-z ]+)\.")


def _wrong_places(objects: Sequence[tuple[str, str | None, float, float]]) -> list[str]:
    """Held-out sides among (class, colour, x, y), by the mean centres of groups."""
    groups = defaultdict(list)
    for cls, color, x, y in objects:
        groups[cls, color].append((x, y))
    found = []
    for ((one, _), a), ((other, _), b) in permutations(groups.items(), 2):
        dx, dy = (sum(p[i] for p in b) / len(b) - sum(p[i] for p in a) / len(a) for i in (0, 1))
        for side, distance in (("left of", dx), ("above", dy)):
            if distance >= 4 and is_held_out_relation(one, side):
                found.append(f"{one} {side}")
            if distance >= 4 and is_held_out_relation(other, INVERSE[side]):
                found.append(f"{other} {INVERSE[side]}")
    return found


def held_out_in_text(text: str) -> list[str]:
    """Held-out pairs that a text says in so many words."""
    text = text.casefold()
    found = [
        match[0]
        for match in _TINTED.finditer(text)
        if is_held_out_color(_NAMES[match[2]], _TINTS[match[1]])
    ]
    for match in _RELATED.finditer(text):
        one, side, other = _NAMES[match[1]], _SIDES[match[2]], _NAMES[match[3]]
        if is_held_out_relation(one, side) or is_held_out_relation(other, INVERSE[side]):
            found.append(match[0])
    slotted = [(m[3], m[2], *SLOT_CENTERS[m[1]]) for m in _SLOTTED.finditer(text)]
    return found + _wrong_places(slotted)


def held_out_in_picture(placed: Iterable[Placed]) -> list[str]:
    """Held-out pairs that named objects show."""
    named = [p for p in placed if p.cls != shown.NAMELESS]
    found = [f"{p.color} {p.cls}" for p in named if p.color and is_held_out_color(p.cls, p.color)]
    return found + _wrong_places([(p.cls, p.color, p.x, p.y) for p in named])


def _held_out(names: Iterable[str], *, side: bool) -> tuple[str, str]:
    test = is_held_out_relation if side else is_held_out_color
    return next((cls, name) for cls in CLASSES for name in names if test(cls, name))


def test_the_reader_of_this_file_sees_what_is_held_out() -> None:
    cls, color = _held_out(COLORS, side=False)
    for text in (f"A {color} {cls}.", f"img 1 {COLOR_SYNONYMS[color][0]} {plural_of(cls)} a"):
        assert held_out_in_text(text)
    assert held_out_in_picture([Placed(cls, color, 9, 9, 9, "center")])
    cls, side = _held_out(("above",), side=True)
    other = next(c for c in CLASSES if c != cls and not is_held_out_relation(c, "below"))
    phrase = RELATION_PHRASES[side][0]
    assert held_out_in_text(f"draw a {cls} {phrase} one {other}")
    assert held_out_in_text(f"two objects. top: a {cls}. bottom: a {other}.")
    assert not held_out_in_text(f"two objects. left: a {cls}. right: a {cls}.")
    objects = [Placed(cls, None, 20, 20, 9, "left"), Placed(other, None, 20, 24, 9, "left")]
    assert held_out_in_picture(objects)
    assert shows_held_out(objects)


def _check(texts: Iterable[str], pictures: Iterable[Iterable[Placed]] = ()) -> None:
    """No held-out pair, in text or picture."""
    assert not [(text, found) for text in texts if (found := held_out_in_text(text))]
    assert not [found for picture in pictures if (found := held_out_in_picture(picture))]


def _check_split(texts: Iterable[str]) -> None:
    assert not [text for text in texts if split_of(text) != "train"]


def test_contrastive_data() -> None:
    rng = random.Random(0)
    texts, pictures = [], []
    for _ in range(1000):
        right = show(training_scene(rng), rng)
        for one in (right, near_miss(right, rng)[0]):
            pictures.append(one.placed)
            texts += [prompt_for(one, rng) for _ in range(2)]
    _check(texts, pictures)
    _check_split(texts)
    assert {style_of(t) for t in texts} >= {
        "layout",
        "sentence",
        "tags",
        "stock",
        "poetic",
        "plain",
    }


def test_preferences() -> None:
    pairs = [preference_pair(number) for number in range(1500)]
    _check([p.prompt for p in pairs], [s.placed for p in pairs for s in (p.chosen, p.rejected)])
    _check_split(p.prompt for p in pairs)


def test_questions_about_pictures() -> None:
    verify = re.escape(VERIFY.format("(.*)")).replace(r"\(\.\*\)", "(.*)")
    said = re.compile(rf'{verify}|In plain words, what is "(.*)"\?')
    texts, prompts, pictures = [], [], []
    for number in range(1000):
        rng = random.Random(number)
        drawn = shown.draw_shown(rng)
        pictures.append(drawn.objects)
        for turn in sample_turns(drawn, rng):
            texts += [turn.question, turn.answer]
            if match := said.fullmatch(turn.question):
                prompts.append(match[1] or match[2])
            if turn.kind == "text" or turn.question == "What is this a picture of?":
                prompts.append(turn.answer)
            if turn.kind == "atomic":  # no answer is a thing alone, as a user may type it
                assert not re.match(r"an? ", turn.answer)
    _check(texts, pictures)
    _check_split(prompts)
    assert len(prompts) > 5000


def test_mixtures_of_two_are_two_that_training_may_show(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Sequence[Placed]] = []
    render = shown.render

    def recorded(placed: list[Placed], background: tuple[float, float, float]) -> object:
        drawn.append(tuple(placed))
        return render(placed, background)

    monkeypatch.setattr(shown, "render", recorded)
    for number in range(400):
        shown.draw_shown(random.Random(number), nameless=1)
    assert len(drawn) == 800
    assert sum(p.color is not None for placed in drawn for p in placed) > 400
    _check([], drawn)


@pytest.mark.parametrize("source", ["_caption", "_prompt", "_paraphrase", "_echo"])
def test_language_corpus(source: str) -> None:
    rng = random.Random(1)
    turns = [getattr(corpus, source)(rng) for _ in range(3000)]
    _check(turn.text for row in turns for turn in row)
    _check_split(row[-1].text for row in turns)


def test_facts_and_english_say_nothing_held_out() -> None:
    _check(corpus.corpus_text(number) for number in range(3000))


def test_the_teacher() -> None:
    texts, plain = [], []
    for number in range(4000):
        prompt = teaching_prompt(number)
        think, answer = teacher_pair(prompt, random.Random(number))
        texts += [prompt.text, think, answer]
        plain.append(prompt.text)
        if style_of(answer) in ("plain", "other"):  # the others are no user's words
            plain.append(answer)
    _check(texts)
    _check_split(plain)
    assert len(plain) > 4050


def test_the_generators_data_hold_no_pair() -> None:
    """Its captions are not split by text: it learns from the web, so to say, not from prompts."""
    told = [sample_told_layout(number) for number in range(1500)]
    _check([text for text, _ in told], [placed for _, placed in told])
    texts = [sample_pair(number).text for number in range(1500)]
    _check(texts)
    assert any(split_of(text) == "test" for text in texts)


def test_three_groups_are_placed_by_the_same_rule() -> None:
    """Laid out freely, three classes show held-out sides in a good part of the pictures."""
    rng = random.Random(2)
    free = guarded = 0
    for _ in range(600):
        scene = training_scene(rng)
        if len(scene.groups) > 2:
            free += bool(held_out_in_picture(place(scene, rng, held_out=True)))
            guarded += bool(held_out_in_picture(place(scene, rng)))
    assert free > 5
    assert guarded == 0
