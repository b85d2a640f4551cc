"""Numbers in digits and words: English, German, Spanish and Chinese.

``in_digits`` writes those of several words as one number ("two dozen" as 24), so that a reader of
phrases meets single tokens only.
"""

from __future__ import annotations

import re
from functools import partial

from t2x.prompts.words import COUNTING_WORDS, MULTIPLES, NUMBER_WORDS, SOFT_NUMBERS

__all__ = ["GERMAN_NUMBERS", "SPANISH_NUMBERS", "chinese_value", "in_digits", "numbers"]

# Python refuses to read an integer of thousands of digits, and nobody counts that far.
_DIGITS = re.compile(r"(?<![\w.:/-])\d{1,15}(?:\.\d+)?(?![\w:/]|\.\d)")
_HALF_DOZEN = re.compile(r"(?<!\w)half[ -](?:a )?dozen(?!\w)")
_NAMED = (
    (re.compile(r"(?<!\w)a baker's dozen(?: of)?(?!\w)"), "13"),
    (re.compile(r"(?<!\w)a brace of(?!\w)"), "2"),
    (re.compile(r"(?<!\w)a score of(?!\w)"), "20"),
)
_GROUPED = re.compile(r"(?<![\w.,:/-])\d{1,3}(?:,\d{3}){1,4}(?!\w|,\d)")
_UNIT = "|".join(word for word, n in COUNTING_WORDS.items() if n < 10)
_TENS = re.compile(
    rf"(?<!\w)({'|'.join(word for word, n in COUNTING_WORDS.items() if n % 10 == 0 and n > 10)})"
    rf"(?:-({_UNIT})(?!\w)|\s+({_UNIT})(?![\w-]))"
)
_NUMBER = rf"(?:\d{{1,15}}|{'|'.join(COUNTING_WORDS)})"
_REST = rf"(?:(?:\s+and)?\s+({_NUMBER})(?![\w.,:/-]|\s+hundred))?"  # "three hundred and five"
_TIMES = tuple(
    (size, re.compile(rf"(?<![\w.,])({_NUMBER})[\s-]+{unit}(?!\w){_REST if size > 12 else '()'}"))
    for unit, size in MULTIPLES.items()
)

_GERMAN_UNITS = {
    "ein": 1, "zwei": 2, "drei": 3, "vier": 4, "fünf": 5, "sechs": 6, "sieben": 7, "acht": 8,
    "neun": 9,
}  # fmt: skip
_GERMAN_TENS = {
    "zwanzig": 20, "dreißig": 30, "vierzig": 40, "fünfzig": 50, "sechzig": 60, "siebzig": 70,
    "achtzig": 80, "neunzig": 90,
}  # fmt: skip
GERMAN_NUMBERS: dict[str, int] = {
    **{word: n for word, n in _GERMAN_UNITS.items() if n > 1},
    "zwo": 2, "zehn": 10, "elf": 11, "zwölf": 12, "dreizehn": 13, "vierzehn": 14, "fünfzehn": 15,
    "sechzehn": 16, "siebzehn": 17, "achtzehn": 18, "neunzehn": 19, "paar": 2, "beide": 2,
    "beiden": 2, "zwillinge": 2, "trio": 3, "duo": 2, "quartett": 4, "quintett": 5, "dutzend": 12,
    **_GERMAN_TENS,
    **{
        f"{unit}und{ten}": n + m
        for unit, n in _GERMAN_UNITS.items()
        for ten, m in _GERMAN_TENS.items()
    },
    "hundert": 100, "tausend": 1000,
}  # fmt: skip
_SPANISH_UNITS = {
    "uno": 1, "una": 1, "un": 1, "dos": 2, "tres": 3, "cuatro": 4, "cinco": 5, "seis": 6,
    "siete": 7, "ocho": 8, "nueve": 9,
}  # fmt: skip
_SPANISH_TENS = {
    "treinta": 30, "cuarenta": 40, "cincuenta": 50, "sesenta": 60, "setenta": 70, "ochenta": 80,
    "noventa": 90,
}  # fmt: skip
SPANISH_NUMBERS: dict[str, int] = {
    **{word: n for word, n in _SPANISH_UNITS.items() if n > 1},
    "diez": 10, "once": 11, "doce": 12, "trece": 13, "catorce": 14, "quince": 15, "dieciséis": 16,
    "diecisiete": 17, "dieciocho": 18, "diecinueve": 19, "veinte": 20, "veintiuno": 21,
    "veintiún": 21, "veintiuna": 21, "veintidós": 22, "veintitrés": 23, "veinticuatro": 24,
    "veinticinco": 25, "veintiséis": 26, "veintisiete": 27, "veintiocho": 28, "veintinueve": 29,
    "par": 2, "pareja": 2, "ambos": 2, "ambas": 2, "dúo": 2, "gemelos": 2, "trío": 3, "cuarteto": 4,
    "quinteto": 5, "docena": 12, "decena": 10, **_SPANISH_TENS, "cien": 100, "mil": 1000,
}  # fmt: skip
_SPANISH_AND = re.compile(
    rf"(?<!\w)({'|'.join(_SPANISH_TENS)}) y ({'|'.join(_SPANISH_UNITS)})(?!\w)"
)
_HALF_DOZENS = {
    "de": re.compile(r"(?<!\w)(?:ein )?halbes dutzend(?!\w)"),
    "es": re.compile(r"(?<!\w)media docena(?: de)?(?!\w)"),
}
_DOZENS = {
    "de": re.compile(rf"(?<!\w)({'|'.join(_GERMAN_UNITS)}) dutzend(?!\w)"),
    "es": re.compile(rf"(?<!\w)({'|'.join(_SPANISH_UNITS)}) docenas(?: de)?(?!\w)"),
}
_CHINESE_DIGITS = dict(
    zip("零〇一二两三四五六七八九", (0, 0, 1, 2, 2, 3, 4, 5, 6, 7, 8, 9), strict=True)
)
_CHINESE_UNITS = {"十": 10, "百": 100, "千": 1000, "万": 10_000}


def numbers(text: str, *, soft: bool = True) -> tuple[float, ...]:
    """Values that English ``text`` names in digits or words, in order, without repeats.

    Without ``soft``, vague ones (both, hundred) are left out.
    """
    lower = in_digits(text.lower())
    found: list[tuple[int, float]] = [
        (m.start(), float(m.group())) for m in _DIGITS.finditer(lower)
    ]
    for match in re.finditer(r"[a-z]+", lower):
        value = NUMBER_WORDS.get(match.group())
        if value is not None and (soft or match.group() not in SOFT_NUMBERS):
            found.append((match.start(), float(value)))
    return tuple(dict.fromkeys(value for _, value in sorted(found)))


def in_digits(lower: str, language: str = "en") -> str:
    """Write numbers of several words, and groups of digits, as one number: "two dozen" as 24."""
    if language == "es":
        lower = _SPANISH_AND.sub(
            lambda m: str(_SPANISH_TENS[m.group(1)] + _SPANISH_UNITS[m.group(2)]), lower
        )
    if language in _DOZENS:
        lower = _HALF_DOZENS[language].sub("6", lower)
        units = _GERMAN_UNITS if language == "de" else _SPANISH_UNITS
        return _DOZENS[language].sub(lambda m: str(12 * units[m.group(1)]), lower)
    lower = _HALF_DOZEN.sub("6", lower)
    for pattern, value in _NAMED:
        lower = pattern.sub(value, lower)
    lower = _GROUPED.sub(lambda m: m.group().replace(",", ""), lower)
    lower = _TENS.sub(lambda m: str(_value(m.group(1)) + _value(m.group(2) or m.group(3))), lower)
    for size, pattern in _TIMES:
        lower = pattern.sub(partial(_times, size=size), lower)
    return lower


def _times(found: re.Match[str], *, size: int) -> str:
    rest = _value(found.group(2) or "0")
    total = size * _value(found.group(1))
    return str(total + rest) if rest < size else f"{total} {rest}"


def _value(word: str) -> int:
    return int(word) if word.isdigit() else COUNTING_WORDS[word]


def chinese_value(numeral: str) -> int:
    """Value of a Chinese or Arabic ``numeral``: 3, 三, 十二, 二十三, 一百零五."""
    if numeral.isdecimal():
        return int(numeral)
    total, digit = 0, 0
    for sign in numeral:
        if sign in _CHINESE_UNITS:
            total += max(digit, 1) * _CHINESE_UNITS[sign]
            digit = 0
        else:
            digit = _CHINESE_DIGITS[sign]
    return total + digit
