"""What can be asked about any English prompt, by what ``t2x.prompts`` reads: a number where things
are several, a colour, surroundings, light and style, each where the prompt does not say it.

How likely answers are is presumed: no data of what people leave out stand behind the odds below.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from t2x.asking.listed import Listed, ListedFeature
from t2x.prompts.constraints import extract
from t2x.prompts.forms import letters
from t2x.prompts.grammars import GRAMMARS
from t2x.prompts.languages import grammar_name
from t2x.prompts.phrases import Phrase, read
from t2x.prompts.words import words

__all__ = ["plain_text"]

_THINGS = 2  # of a prompt, that are asked about one by one
_COUNTS = {"two": 0.35, "three": 0.3, "four": 0.15, "many": 0.2}
_COLOURS = {"red": 0.1, "blue": 0.1, "green": 0.08, "black": 0.08, "white": 0.08, "yellow": 0.06}
_PLACES = {
    "in a city street": 0.2,
    "in nature": 0.25,
    "in a cosy room": 0.15,
    "on a plain background": 0.15,
}
_LIGHTS = {"in bright daylight": 0.25, "at sunset": 0.15, "at night": 0.1, "in soft fog": 0.05}
_STYLES = {"photograph": 0.45, "illustration": 0.15, "oil painting": 0.1, "3D render": 0.1}
_SILENT = {"count": 0.3, "colour": 0.5, "place": 0.25, "light": 0.45, "style": 0.2}
_LIGHT_WORDS = words(
    """
    night sunset sunrise dawn dusk morning evening noon sunny daylight moonlit moonlight golden
    dark foggy fog misty backlit neon candlelit rain snow storm stormy cloudy
    """
)
_PHOTO_WORDS = words("photo photograph photography photorealistic dslr realistic")


def plain_text(prompt: str, seed: int = 0) -> Listed:
    """The subject of a prompt; one that is not English has nothing that can be asked."""
    english = grammar_name(prompt) == "en"
    return Listed(prompt, tuple(_features(prompt)) if english else (), seed)


def _features(prompt: str) -> Iterator[ListedFeature]:
    text = read(prompt, GRAMMARS["en"])
    things = [p for p in text.phrases if p.head and p.kind != "pronoun"][:_THINGS]
    for at, thing in enumerate(things):
        name = " ".join(thing.words)
        if thing.plural and thing.number is None:
            write = _before(thing.words)
            yield ListedFeature(
                f"count {at}", f"How many {name}?", _COUNTS, _SILENT["count"], "count", write
            )
        if not thing.colours:
            be = "are" if thing.plural else "is"
            write = _coloured(thing)
            yield ListedFeature(
                f"colour {at}",
                f"What colour {be} the {name}?",
                _COLOURS,
                _SILENT["colour"],
                "colour",
                write,
            )
    said = set(letters(prompt.lower()))
    if not any(token.startswith("<") for token in text.tokens):
        yield ListedFeature("place", "Where is it?", _PLACES, _SILENT["place"])
    if not said & _LIGHT_WORDS:
        yield ListedFeature("light", "In what light?", _LIGHTS, _SILENT["light"])
    if not extract(prompt).styles and not said & _PHOTO_WORDS:
        yield ListedFeature("style", "What should it look like?", _STYLES, _SILENT["style"])


def _before(phrase: tuple[str, ...]) -> Callable[[str, str], str]:
    """Puts a word before a phrase, where it stands first."""
    pattern = re.compile(r"(?<!\w)" + r"\s+".join(map(re.escape, phrase)) + r"(?!\w)", re.I)

    def write(text: str, value: str) -> str:
        return pattern.sub(lambda found: f"{value} {found.group()}", text, count=1)

    return write


def _coloured(thing: Phrase) -> Callable[[str, str], str]:
    """Puts a colour before the noun of a phrase, and mends "an"."""
    put = _before(thing.words[-1:])

    def write(text: str, value: str) -> str:
        return re.sub(rf"\b([Aa])n(?=\s+{re.escape(value)}\b)", r"\1", put(text, value))

    return write
