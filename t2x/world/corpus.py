"""The pretraining corpus of emoji-lm, drawn by number: captions, user prompts, paraphrases, facts,
English, echoes.

It holds no held-out pair and no held-out phrasing kind, and no request is answered by a caption:
how to rewrite is for fine-tuning to teach.
"""

from __future__ import annotations

import random
import string
from collections.abc import Callable
from dataclasses import dataclass

from t2x.world.captions import STYLES, caption, training_scene
from t2x.world.english import restatement
from t2x.world.kinds import KINDS
from t2x.world.lexicon import COLOR_SYNONYMS, COLOR_THINGS, RIDDLES, SYNONYMS, plural_of
from t2x.world.phrasing import articled
from t2x.world.prompts import SEEN_KINDS, sample_prompt, split_of, training_prompt
from t2x.world.scene import CLASSES, COLORS
from t2x.world.teacher import placeable

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
    style = rng.choice(tuple(STYLES))
    scene = training_scene(rng)
    if style == "layout":
        scene = placeable(scene, rng)
    return [Turn("text", caption(scene, style, rng.getrandbits(32)))]


def _prompt(rng: random.Random) -> list[Turn]:
    return [Turn("text", training_prompt(rng.getrandbits(48)).text)]


def _paraphrase(rng: random.Random) -> list[Turn]:
    """Two ways to ask for one scene, both of seen kinds and of the training split."""
    first = training_prompt(rng.getrandbits(48))
    kinds = [k for k in SEEN_KINDS if k != "typo" and KINDS[k].suits(first.scene)]
    while True:
        second = sample_prompt(first.scene, rng.choice(kinds), rng)
        if split_of(second.text) == "train":
            return _chat(_REPHRASE, first.text, second.text, rng)


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
    if rng.random() < 0.4:
        text = training_prompt(rng.getrandbits(48)).text
    else:
        words = [_invented(rng) for _ in range(rng.randint(1, 4))]
        pool = (*CLASSES, *COLORS, "a", "the", "and", "near", "of")
        words += rng.choices(pool, k=rng.randint(0, 4))
        rng.shuffle(words)
        text = " ".join(words)
    return _chat(_ECHO, text, text, rng)


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
