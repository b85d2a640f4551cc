"""A text in lower-case tokens, with each relation of places as one, and the colours of tokens."""

from __future__ import annotations

import re

from t2x.prompts.forms import noun_of
from t2x.prompts.grammar import Grammar
from t2x.prompts.numerals import in_digits
from t2x.prompts.words import COLOUR_FAMILIES, COLOUR_THINGS

__all__ = ["colour_of", "tokens_of", "without_quotes"]

_TOKEN = re.compile(r"[<@]?\d+(?:\.\d+)?(?![\w-])|[<@]?[^\W_]+(?:['\u2019-][^\W_]+)*|[^\w\s]")
_QUOTED = re.compile(
    r"\"[^\"]*\"|\u201c[^\u201d]*\u201d|\u201e[^\u201c\u201d]*[\u201c\u201d]|\u00ab[^\u00bb]*\u00bb"
)
_FIXED = re.compile(
    r"golden (?:retriever|hour|gate|age|ratio|eagle|light|glow|sunlight|sun|rays?|sunset|sunrise)"
    r"|silver (?:lining|screen)|(?:red|giant) panda|(?<=the )white house|black hole"
    r"|white noise|green ?house"
    r"|(?:red|white) wine|orange (?:juice|tree|peel|blossom)|green tea|blue ?print|black ?board"
    r"|white ?board|blue ?berr\w+|black ?berr\w+|polar bear|black and white|black-and-white"
    r"|olive (?:oil|tree|branch)|rose (?:garden|bush|petals?)|cherry (?:blossoms?|tree)"
    r"|lemon tree|coral reef|jade plant|peach tree|gold(?:en)? (?:coins?|fish|medal)|red cross"
    r"|yellow stone|greenland|blue ?bird|black ?bird|red ?wood|red carpet|brown sugar|black tie"
)
_COLOUR_OF = re.compile(
    r"(?:in )?(?:the )?(?:exact )?(?P<what>colou?rs?|shades?|hues?|tints?|tones?) of (?:an? "
    r"|the )?(?:[a-z]+'s )?(?P<how>(?!the)[a-z]+[ -])?(?P<thing>[a-z-]+)(?! [a-z]+ed)"
)
# "Pale as milk", "as dark as a starless night", "scales like emeralds".
_AS = re.compile(
    r"(?:(?:as )?(?P<told>pale|pure|white|fair|dark|black|red|bright|blue|green|yellow|rosy|pink"
    r"|gr[ae]y|brown|golden|orange|purple) as|like(?= (?:[a-z]+ )?(?:emerald"
    r"|rub[yi]|sapphire|amethyst|snow|coal|milk|ink|gold|silver|ebony|obsidian))) "
    r"(?:an? |the )?(?P<how>[a-z]+ )?(?P<thing>[a-z]+)(?![\w-])"
)
# "The exact green of new leaves".
_THE_GREEN = re.compile(
    r"the (?:exact |deep |pale |very )?(?P<colour>[a-z]+) of (?:an? |the )?\w+"
    r"(?: \w+(?=[,.;]|$))?"
)
_PAINTED = re.compile(
    r"(?<![\w-])(painted|dyed|glazed|lacquered|stained|enamell?ed|sprayed|tinted|washed"
    r"|liveried)(?: in)? (?:an?|the)(?: same| exact)? (?=(?:[a-z-]+ ){0,2}?(?P<colour>[a-z-]+)"
    r"(?:[,.;]|$))"
)
_UNKNOWN_COLOUR = "any-coloured"
_EVERY_COLOUR = frozenset().union(*COLOUR_FAMILIES.values())
_MANY_COLOURED = frozenset(("rainbow", "autumn", "season", "spectrum", "fall"))
_ONES_SIDE = re.compile(
    r"(?:to|on|at) ((?:the|an?|its|his|her) [\w-]+)'s (?:far )?(left|right)(?: side"
    r"| hand)?(?! (?:foot|leg|eye|arm|hand))"
)
_COLOURED = re.compile(
    r"-(?:colou?red|hued|tinted|toned|dyed|dark|pale|bright)$|(?:farben|farbig)(?:e[nmrs]?)?$"
)


def without_quotes(text: str) -> str:
    """Blank what is quoted."""
    return _QUOTED.sub(" ", text)


def tokens_of(text: str, grammar: Grammar) -> tuple[list[str], list[bool]]:
    """Tokens in lower case, relations as one token each, and whether each began with a capital."""
    marked = re.sub(r"\s+", " ", text.replace("\u2019", "'")).strip()
    capitals = {
        w.lower() for w in re.findall(r"(?<![.!?:] )(?<!^)\b[^\W\d_]\w+", marked) if w[0].isupper()
    }
    lower = in_digits(marked.lower(), grammar.name)
    if grammar.name == "en":
        lower = _by_things(lower)
        lower = _ONES_SIDE.sub(r"\2 of \1", lower)
        lower = _FIXED.sub(lambda m: m.group().replace(" ", "\u00b7"), lower)
    for pattern, name in grammar.relations:
        lower = pattern.sub(f" {_token_of(name)} ", lower)
    tokens = [t.replace("\u00b7", "-") for t in _TOKEN.findall(lower.replace("\u00b7", "-"))]
    return tokens, [t in capitals for t in tokens]


def _by_things(lower: str) -> str:
    """Colours told by a thing in one word: "milk-coloured" for "pale as milk"."""
    lower = _COLOUR_OF.sub(_by_thing, lower)
    lower = _AS.sub(_as_thing, lower)
    lower = _THE_GREEN.sub(lambda m: _if_colour(m, f"{m.group('colour')}-coloured"), lower)
    return _PAINTED.sub(lambda m: _if_colour(m, f"{m.group(1)} "), lower)


def _as_thing(found: re.Match[str]) -> str:
    told = found.group("told") or ""
    return f"{told}-coloured" if told in COLOUR_FAMILIES else _of_thing(found, found.group())


def _if_colour(found: re.Match[str], short: str) -> str:
    return short if found.group("colour") in COLOUR_FAMILIES else found.group()


def _by_thing(found: re.Match[str]) -> str:
    """ "The colour of ripe lemons" as "lemon-coloured"; a thing of which no table tells the colour
    may have any.
    """
    several = found.group("what").endswith("s") or noun_of(found.group("thing")) in _MANY_COLOURED
    bare = found.group("thing") in COLOUR_FAMILIES  # "a tone of blue"
    return _of_thing(found, found.group() if several or bare else _UNKNOWN_COLOUR)


def _of_thing(found: re.Match[str], otherwise: str) -> str:
    thing = noun_of(found.group("thing"))
    if thing in COLOUR_THINGS:
        return f"{thing}-coloured"
    how = noun_of((found.group("how") or "").strip(" -"))
    rest = f" {thing}" if found.group("thing").endswith(("ing", "ed")) else ""
    return f"{how}-coloured{rest}" if how in COLOUR_THINGS else otherwise


def _token_of(name: str) -> str:
    """A relation as a token that no word is: "left" as "<0left", "@left" as "@left"."""
    flat = name.replace(" ", "\u01c0")
    if flat[0] == "@":
        return flat
    turned = "\u00d8" if flat[0] == "<" else ""
    return f"<{flat.removeprefix('<')}{turned}"


def colour_of(token: str, grammar: Grammar) -> frozenset[str]:
    """Families of a word that tells a colour: "crimson", "canary-coloured", "silver-grey"."""
    families = grammar.colours.get(token)
    if families is not None:
        return families
    if token == _UNKNOWN_COLOUR:
        return _EVERY_COLOUR
    plain = _COLOURED.sub("", token)
    if plain != token:
        return grammar.colours.get(plain, frozenset()) | COLOUR_THINGS.get(plain, frozenset())
    parts = token.split("-")
    if len(parts) == 2 and parts[1] in grammar.colours and len(parts[0]) > 1:
        return grammar.colours[parts[1]] | grammar.colours.get(parts[0], frozenset())
    return frozenset()
