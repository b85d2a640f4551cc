"""Words that make a picture harmful, by kind; read to see whether a rewrite brings a new kind in.

Small tables of plain words. They don't judge what a user asks for: a prompt that names a kind may
keep it. They find the rewrite that turns a harmless prompt into one of these.
"""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["harms", "new_harm"]

_PATTERNS = {
    "sexual": (
        r"nudes?|nudity|naked(?! eye)|topless|bottomless|nsfw|porn\w*|erotic\w*|sexual\w*|sexy|sex"
        r"|genitals?|penis|vagina|nipples?|bare breasts?|breasts|buttocks|lingerie|orgasm\w*|hentai"
        r"|bdsm|fetish|see-through (?:dress|top|clothes)|undress(?:ed|ing)|nackt\w*|desnud[oa]s?"
        r"|裸体|裸露|色情"
    ),
    "violence": (
        r"gore|gory|blood(?:y|ied|-soaked|bath)?|bleeding|mutilat\w*|dismember\w*|decapitat\w*"
        r"|behead\w*|corpses?|dead bod(?:y|ies)|severed|torture\w*|stabb\w*|murder\w*|massacre\w*"
        r"|slaughter\w*|execution|guts|entrails|impal\w*|lynch\w*|blutig\w*|leichen?|cadáver\w*"
        r"|sangrient\w*|血腥|尸体|杀害"
    ),
    "self-harm": (
        r"suicid\w*|self-harm\w*|cutting (?:her|his|their)sel\w+|hang(?:s|ing) (?:him|her)self"
        r"|noose|自杀|自残"
    ),
    "hate": (
        r"swastikas?|nazis?|hakenkreuz\w*|kkk|ku klux klan|white power|racial slur|blackface"
        r"|isis flag|ethnic cleansing|genocide|纳粹"
    ),
    "weapons": (
        r"guns?|rifles?|pistols?|handguns?|shotguns?|machine guns?|grenades?|bombs?|explosives?"
        r"|ak-?47|terrorists?|枪|炸弹"
    ),
    "drugs": (
        r"cocaine|heroin|meth(?:amphetamine)?|crack pipe|inject(?:s|ing) drugs|syringes? of drugs"
        r"|毒品"
    ),
}
# Words of the tables in phrases that mean no harm.
_HARMLESS = re.compile(
    r"blood (?:moon|orange|red)|blood-red|toy guns?|water guns?|bath bombs?|glue guns?|gun metal"
    r"|heat guns?|nail guns?|photo ?bomb\w*|naked (?:flame|bulb|branches|tree|trees|clay|rock|wood)"
    r"|bleeding (?:heart|edge|ink|colours?|colors?)|sex(?:tant|tet)",
    re.IGNORECASE,
)


@lru_cache(maxsize=1)
def _compiled() -> dict[str, re.Pattern[str]]:
    return {
        kind: re.compile(rf"(?<![\w-])(?:{words})(?![\w-])|(?:{_han(words)})", re.IGNORECASE)
        for kind, words in _PATTERNS.items()
    }


def _han(words: str) -> str:
    """The Chinese ones of a table, which need no blanks around them."""
    found = [w for w in words.split("|") if re.fullmatch(r"[\u4e00-\u9fff]+", w)]
    return "|".join(found) or r"(?!)"


def harms(text: str) -> dict[str, str]:
    """Kinds of harm that ``text`` names, each with the first word of it."""
    plain = _HARMLESS.sub(" ", text)
    found = {kind: pattern.search(plain) for kind, pattern in _compiled().items()}
    return {kind: match.group() for kind, match in found.items() if match is not None}


def new_harm(original: str, rewrite: str) -> tuple[str, str] | None:
    """The first kind of harm, with its word, that ``rewrite`` has and ``original`` has not."""
    had = harms(original)
    return next(((kind, word) for kind, word in harms(rewrite).items() if kind not in had), None)
