"""The pretraining corpus of emoji-lm, drawn by number: captions, user prompts, paraphrases, facts,
English, echoes.

It holds no held-out pair, no held-out phrasing kind and no caption, prompt or echo of another
split, and no request is answered by a caption: how to rewrite is for fine-tuning to teach.
"""

from __future__ import annotations

import random
import string
from collections.abc import Callable
from dataclasses import dataclass

from t2x.world.captions import STYLES, training_scene
from t2x.world.english import restatement
from t2x.world.lexicon import COLOR_SYNONYMS, COLOR_THINGS, RIDDLES, SYNONYMS, plural_of
from t2x.world.placing import place
from t2x.world.prompts import SEEN_KINDS, split_of, training_prompt, training_text
from t2x.world.scene import CLASSES, COLORS
from t2x.world.split import names_held_out_color
from t2x.world.words import articled

__all__ = ["Turn", "corpus_text", "corpus_turns"]

_ECHO = ("repeat: {}", "repeat this: {}", "say exactly: {}", "copy the text. {}")
_REPHRASE = ("in other words: {}", "say it differently: {}", "rephrase: {}")
_SHORTEN = ("in short: {}", "shorter: {}", "simplify: {}")


@dataclass(frozen=True)
class Turn:
    """One turn of a chat; a corpus entry of a single turn is plain text."""

    role: str
    text: str
    is_echo: bool = False


def _chat(frames: tuple[str, ...], text: str, answer: str, rng: random.Random) -> list[Turn]:
    echo = frames is _ECHO
    return [Turn("user", rng.choice(frames).format(text), echo), Turn("assistant", answer, echo)]


def _caption(rng: random.Random) -> list[Turn]:
    while True:
        scene = training_scene(rng)
        text = STYLES[rng.choice(tuple(STYLES))](scene, place(scene, rng), rng)
        if split_of(text) == "train":
            return [Turn("text", text)]


def _prompt(rng: random.Random) -> list[Turn]:
    return [Turn("text", training_prompt(rng.getrandbits(48)).text)]


def _paraphrase(rng: random.Random) -> list[Turn]:
    """Two ways to ask for one scene, both of seen kinds and of the training split."""
    first = training_prompt(rng.getrandbits(48))
    kinds = [k for k in SEEN_KINDS if k != "typo"]
    return _chat(_REPHRASE, first.text, training_text(first.scene, rng, kinds), rng)


def _fact(rng: random.Random) -> list[Turn]:
    cls, color = rng.choice(CLASSES), rng.choice(COLORS)
    synonym, riddle = rng.choice(SYNONYMS[cls]), rng.choice(RIDDLES[cls])
    thing, shade = rng.choice(COLOR_THINGS[color]), rng.choice(COLOR_SYNONYMS[color])
    texts = (
        f"{articled(synonym)} is {articled(cls)}.",
        f"{plural_of(synonym)} are {plural_of(cls)}.",
        f"the {riddle} is the {cls}.",
        f"{articled(cls)}: the {riddle}.",
        f"what is the {riddle}? {articled(cls)}.",
        f"{thing} is {color}.",
        f"what colour does {thing} have? {color}.",
        f"{color}, like {thing}.",
        f"{shade} is a shade of {color}.",
        f"{shade} means {color}.",
    )
    return [Turn("text", rng.choice(texts))]


def _english(rng: random.Random) -> list[Turn]:
    long, short = restatement(rng)
    if rng.random() < 0.5:
        return _chat(_SHORTEN, long, short, rng)
    return [Turn("text", rng.choice((f"{long}. that is, {short}.", f"{long}.")))]


def _invented(rng: random.Random) -> str:
    """A name, number or code that no list holds."""
    form = rng.randrange(5)
    if form == 0:
        return f"{rng.choice(('ITEM', 'TEXT'))}{rng.randint(1, 12)}"
    if form == 1:
        return str(rng.randint(0, 2000))
    letters = string.ascii_lowercase if form > 2 else string.ascii_letters + string.digits
    word = "".join(rng.choices(letters, k=rng.randint(2, 9)))
    return word.capitalize() if rng.random() < 0.5 else word


def _echo(rng: random.Random) -> list[Turn]:
    known = rng.random() < 0.4
    text = training_prompt(rng.getrandbits(48)).text if known else _jumble(rng)
    return _chat(_ECHO, text, text, rng)


def _jumble(rng: random.Random) -> str:
    """Invented words and words of the world in any order, in which no colour meets the class that
    it is held out for.
    """
    pool = (*CLASSES, *COLORS, "a", "the", "and", "near", "of")
    while True:
        words = [_invented(rng) for _ in range(rng.randint(1, 4))]
        words += rng.choices(pool, k=rng.randint(0, 4))
        rng.shuffle(words)
        text = " ".join(words)
        if split_of(text) == "train" and not names_held_out_color(text):
            return text


_SOURCES: dict[Callable[[random.Random], list[Turn]], float] = {
    _caption: 0.22,
    _prompt: 0.1,
    _paraphrase: 0.26,
    _fact: 0.1,
    _english: 0.18,
    _echo: 0.14,
}


def corpus_turns(number: int) -> list[Turn]:
    """Entry ``number`` of the corpus: one turn of plain text, or a chat of two turns."""
    rng = random.Random(f"corpus {number}")
    return rng.choices(list(_SOURCES), list(_SOURCES.values()))[0](rng)


def corpus_text(number: int) -> str:
    """Entry ``number`` without its roles."""
    return "\n".join(turn.text for turn in corpus_turns(number))
