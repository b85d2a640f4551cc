"""Checks that a proposed rewrite has to pass; each looks at one way in which enhancers are known to
fail.

A check is a function from a ``Proposal`` to a ``Check``. ``DEFAULT_CHECKS`` holds them in order; a
caller adds or leaves out what it likes. Those of this module look at the form of the text and at
how much of the prompt is left; ``t2x.prompts.meaning`` holds those of what the prompt fixes.
Nothing here asks a model.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from t2x.prompts import constraints as rules
from t2x.prompts import meaning, spelling
from t2x.prompts.forms import letters, noun_of
from t2x.prompts.negations import affirmed
from t2x.prompts.proposal import FREE_ENGLISH, CheckFunction, Domain, Proposal
from t2x.prompts.proposal import verdict as _check
from t2x.prompts.protect import syntax
from t2x.prompts.synonyms import share_group
from t2x.prompts.words import SOFT_COLOURS
from t2x.types import Check

__all__ = [
    "DEFAULT_CHECKS",
    "FREE_ENGLISH",
    "CheckFunction",
    "Domain",
    "Proposal",
    "coverage",
    "says_the_same",
    "tidy",
]

_MAX_CHARACTERS = 4000
_LONG_WORD = 60
_REPEATS = 4
_MIN_COVERAGE = 0.4
_MIN_IN_CLOSED_WORLD = 0.3
# Of all-MiniLM-L6-v2: of 62 faithful rewrites none is less similar to its prompt than 0.40, of 128
# prompts with the rewrite of another none is more than 0.39 (the pairs for tuning in tests/data).
_SIMILAR = 0.4
_FLOOR = 0.3
_LONG_ENOUGH = 4  # letters from which a word is looked for as a part of others
_MANY_WORDS = 200
_SIMILAR_SPELLING = 0.8
_TAG = re.compile(
    r"</?(?:think|answer|reason|reasoning|prompt|thought|tool_call)\b|<\|[^|<>]{1,40}\|>", re.I
)
_JUNK_ITEM = re.compile(
    r"(?:unknown|undefined|null|none|nan|n/a|unk|\[\s*\]|\(\s*\)|\{\s*\}|\ufffd+)", re.I
)
_KINDS = "rewritten|improved|enhanced|revised|original"
_META = tuple(
    re.compile(pattern, re.IGNORECASE | re.MULTILINE)
    for pattern in (
        r"^[^\w\n]*(?:here(?:'s|\u2019s| is| are)|sure|certainly|of course|okay|as an ai)\b",
        r"^[^\w\n]*i(?:'m| am| will|'ll| can| can't| cannot| would| have| understand)\b",
        r"^[^\w\n]*(?:to (?:write|create|make|craft|generate|improve)|let's|let me)\b",
        r"^[^\w\n]*you (?:can|should|could)\b",
        rf"^\W*(?:this|the|your) (?:(?:{_KINDS}|new|user'?s?) )?(?:prompt|description)\b",
        r"^[^\w\n]*(?:note|explanation|example|output|input|answer|response|title|option \d+)\s*:",
        rf"\b(?:{_KINDS}|better|effective|image|good) prompts?\b",
        r"\bthe user(?:'s)? (?:wants?|asks?|prompt|request|is|said)\b",
        r"\b(?:feel free to|hope this helps|as an ai|language model|let me know if)\b",
        r"^[ \t]{0,3}#{1,6}[ \t]+\S",
        r"^[ \t]*(?:[-*\u2022]|\d{1,2}[.)])[ \t]+\S.*\n\s*(?:[-*\u2022]|\d{1,2}[.)])[ \t]+\S",
        r"\*\*[^*\n]+\*\*|```",
    )
)  # fmt: skip


def tidy(text: str) -> str:
    """Collapse repeated commas and blanks, drop those at the ends; leave everything else."""
    text = re.sub(r"\s*,(?:\s*,)+", ",", text)
    text = re.sub(r"[ \t]{2,}", " ", text)
    return re.sub(r"^[\s,;]+|[\s,;]+$", "", text)


def says_the_same(source: str, answer: str) -> bool:
    """Whether ``answer`` adds nothing to ``source`` but marks, blanks and capitals."""

    def bare(text: str) -> str:
        return " ".join(re.findall(r"\w+|[^\w\s,.;!]", text.lower()))

    return bare(source) == bare(answer)


def not_empty(p: Proposal) -> Check:
    """The answer holds a word."""
    return _check(
        "not_empty", [] if any(c.isalnum() for c in p.answer) else ["the answer is empty"]
    )


def no_reasoning(p: Proposal) -> Check:
    """No tag of reasoning, of an answer or of a chat template is in the text, except where the user
    typed it.
    """
    found = (
        m.group() for m in _TAG.finditer(p.answer) if m.group().lower() not in p.source.lower()
    )
    return _check("no_reasoning", (f"the tag {tag!r} leaked into the text" for tag in found))


def no_meta_text(p: Proposal) -> Check:
    """The text is a prompt, not talk about one: no preamble, no list, no heading."""
    found = (
        m.group().strip()
        for pattern in _META
        if not pattern.search(p.source) and (m := pattern.search(p.answer))
    )
    return _check(
        "no_meta_text", (f"talks about the prompt or formats it: {text[:40]!r}" for text in found)
    )


def no_junk(p: Proposal) -> Check:
    """No filler such as "unknown" or "[ ]", no endless repetition, no word longer than any word."""

    def reasons() -> Iterable[str]:
        had = {item.strip().lower() for item in re.split(r"[,\n]", p.source)}
        for item in (i.strip() for i in re.split(r"[,\n]", p.answer)):
            if item.lower() not in had and _JUNK_ITEM.fullmatch(item):
                yield f"filler {item!r}"
        words = p.answer.lower().split()
        grams = Counter(zip(words, words[1:], words[2:], words[3:], strict=False))
        had_grams = " ".join(p.source.lower().split())
        for gram, times in grams.most_common(1):
            if times >= _REPEATS and " ".join(gram) not in had_grams:
                yield f"repeats itself: {' '.join(gram)!r} {times} times"
        longest = _longest_word(p.answer)
        if longest > max(_LONG_WORD, _longest_word(p.source)):
            yield f"a word of {longest} characters"

    return _check("no_junk", reasons())


def _longest_word(text: str) -> int:
    """Letters of the longest word in Latin script; others write without blanks."""
    return max(map(len, re.findall(r"\w+", text, re.ASCII)), default=0)


def no_new_syntax(p: Proposal) -> Check:
    """No angle, square or curly bracket beyond the user's own, and no weight, flag, embedding,
    wildcard or ``BREAK`` that a generator would obey.
    """
    extra = [c for c in "<>[]{}" if p.answer.count(c) > p.source.count(c)]
    had = syntax(p.source)
    extra += [text for kind, text in syntax(p.answer).items() if kind not in had]
    return _check("no_new_syntax", (f"new {text[:40]!r} in the text" for text in extra))


def spans_intact(p: Proposal) -> Check:
    """Each protected span is in the text byte for byte, as often as the user wrote it."""
    lost = [s for s in p.protected.broken(p.text) if not _is_quote(p, s)]
    lost += [s.text for s in p.protected.unplaced(p.answer) if _told_apart(p, s.stand_in)]
    return _check("spans_intact", (f"{span[:60]!r} is lost, doubled or made up" for span in lost))


def _told_apart(p: Proposal, phrase: str) -> bool:
    """Whether the answer tells what is in ``phrase`` in other words: at the end, the phrase would
    ask for it a second time.
    """
    meant = p.domain.canonical(phrase)
    told = set(rules.content_words(p.answer))
    return bool(p.domain.things(meant)) or bool(told & set(rules.content_words(meant)))


def quotes_verbatim(p: Proposal) -> Check:
    """Quoted text is in the rewrite byte for byte, line breaks included."""
    lost = [s for s in p.protected.broken(p.text) if _is_quote(p, s)]
    return _check(
        "quotes_verbatim", (f"quoted text {span[:60]!r} is lost or doubled" for span in lost)
    )


def _is_quote(p: Proposal, text: str) -> bool:
    return any(s.kind == "quote" and s.text == text for s in p.protected.spans)


def script_kept(p: Proposal) -> Check:
    """The rewrite is written in the script of the prompt."""
    had, has = (rules.script(p.protected.nameless(text)) for text in (p.source, p.answer))
    bad = [f"{had} became {has}"] if had and has and had != has else []
    return _check("script_kept", bad)


def length(p: Proposal) -> Check:
    """The rewrite is no longer than any generator reads."""
    limit = max(_MAX_CHARACTERS, 2 * len(p.original))
    return _check(
        "length", [f"{len(p.text)} characters, limit {limit}"] if len(p.text) > limit else []
    )


def fits_budget(p: Proposal) -> Check:
    """At least one text encoder of the generator sees the whole rewrite; what another one cuts is
    told in the reason of a check that passed.
    """
    counts = p.budget.count(p.text) if p.budget is not None else ()
    cut = [c for c in counts if c.truncated]
    return Check("fits_budget", not cut or len(cut) < len(counts), "; ".join(map(str, cut)))


def coverage(
    minimum: float = _MIN_COVERAGE, *, similar: float = _SIMILAR, floor: float = _FLOOR
) -> CheckFunction:
    """Make a check that the rewrite still speaks of what the prompt spoke of.

    It passes if a share of at least ``minimum`` of the prompt's content words comes back
    (inflected, as a synonym or a part of a longer word, with its spelling mended, as the same
    colour; 0.3 is enough where the domain reads whole scenes) or if ``Proposal.similarity`` gives
    at least ``similar``. Of a prompt without such words, every pictograph has to come back. Below
    the ``floor`` of that similarity it fails, whatever words are left.
    """

    def content_kept(p: Proposal) -> Check:
        share = covered(*map(p.protected.nameless, (p.meant, p.answer)))
        near = None if p.similarity is None else p.similarity(p.source, p.answer)
        if near is not None and near < floor:
            return Check("content_kept", False, f"similarity to the prompt is {near:.2f}")
        least = min(minimum, _MIN_IN_CLOSED_WORLD) if p.closed_world else minimum
        if share >= least or (near is not None and near >= similar):
            return Check("content_kept", True)
        return Check("content_kept", False, f"only {share:.0%} of the prompt's words are left")

    return content_kept


def covered(source: str, answer: str) -> float:
    """Share of the content words of ``source`` that ``answer`` covers, in [0, 1]; 1 without any.

    Numbers and what is ruled out don't count: they have checks of their own.
    """
    wanted = _wanted(source)
    if wanted:
        return 1.0 - len(_uncovered(wanted, answer)) / len(wanted)
    return float(_pictographs(source) <= _pictographs(answer))


def _pictographs(text: str) -> set[str]:
    return {char for char in text if unicodedata.category(char) == "So"}


def _wanted(source: str) -> list[str]:
    return [w for w in rules.content_words(affirmed(source)) if not rules.numbers(w)]


def _uncovered(wanted: Sequence[str], answer: str) -> list[str]:
    """Those stems of ``wanted`` that no word of ``answer`` is a form of."""
    have = rules.content_words(answer)
    known = {*have, *_compounds(answer)}  # "wine glass" tells of a wineglass
    known |= {part for pair in pairwise(wanted) if "".join(pair) in known for part in pair}
    roots = set(map(spelling.root, have))
    nouns = (
        [noun_of(word) for word in letters(answer.lower())] if len(wanted) <= _MANY_WORDS else []
    )
    colours = rules.colour_families(answer)

    def is_covered(word: str) -> bool:
        if word in known or spelling.root(word) in roots:
            return True
        if any(share_group(noun_of(word), noun) for noun in nouns):
            return True
        # A lemon is yellow, and no yellow bus: words that are things as well name no colour here.
        if word not in SOFT_COLOURS and rules.colour_families(word) & colours:
            return True
        if len(wanted) > _MANY_WORDS:  # the rest is compared pair by pair
            return False
        if len(word) >= _LONG_ENOUGH and any(spelling.is_part(word, longer) for longer in have):
            return True
        return spelling.closest(word, have, similar=_SIMILAR_SPELLING) is not None

    return [word for word in wanted if not is_covered(word)]


def _compounds(text: str) -> Iterator[str]:
    """Stems of each two words that stand side by side, written as one."""
    for part in re.split(r"[^\w\s-]", text.lower()):
        yield from (rules.stem("".join(pair)) for pair in pairwise(re.findall(r"\w+", part)))


DEFAULT_CHECKS: tuple[CheckFunction, ...] = (
    not_empty,
    no_reasoning,
    no_meta_text,
    no_junk,
    no_new_syntax,
    spans_intact,
    quotes_verbatim,
    meaning.numbers_kept,
    meaning.colours_kept,
    meaning.relations_kept,
    meaning.names_kept,
    meaning.negation_kept,
    meaning.negative_apart,
    meaning.style_kept,
    meaning.things_kept,
    meaning.nothing_added,
    meaning.scene_kept,
    meaning.harmless,
    script_kept,
    meaning.language_kept,
    length,
    fits_budget,
    coverage(),
)
