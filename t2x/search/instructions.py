"""Operators as instructions, for rewriters that follow them: what to do is the system message, the
request and the prompts to work on are the user's.

The user's text reaches the model through the same encoder as in rewriting, so it can't close the
template or forge a role.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from t2x.rewriters.templates import Template

__all__ = [
    "ARRANGE",
    "CROSS",
    "CROWN",
    "DIFFER",
    "FOUND",
    "HISTORY",
    "LIST",
    "MEND",
    "MUTATE",
    "crossed",
    "differed",
    "listed",
    "mended",
    "mutated",
    "remembered",
    "shared",
]

_RULES = """\
Every object, number, colour, position, style, name and action of the request stays; nothing that it
rules out comes in, and no new main object. Text in quotes and words such as ITEM1 or TEXT2 are
copied exactly as they are. Write in the language of the request, one paragraph of at most 60 words.
Answer with the prompt alone: no introduction, no list, no heading, no explanation."""


def _task(words: str, **options: float) -> Template:
    said = f"You improve prompts for a text-to-image model.\n{words}\n{_RULES}"
    return Template(system=said, temperature=1.0, **options)  # type: ignore[arg-type]


# EvoPrompt (arXiv 2309.08532): a genetic algorithm, and differential evolution.
CROSS = _task("Cross the two prompts into one new prompt, then change a few of its words.")
DIFFER = _task(
    "Find where prompts 1 and 2 differ and change those parts. Put the changed parts into prompt "
    "3, then cross the outcome with prompt 4."
)
# Promptbreeder (arXiv 2309.16797): first-order mutation, and the estimate of a distribution.
MUTATE = _task("Say the prompt in another way that a text-to-image model may understand better.")
LIST = _task("Here are prompts, the worst first. Continue the list with one that differs.")
# Prompt-A-Video (arXiv 2412.15156) and SPELL (arXiv 2310.01260): prompts with their scores.
HISTORY = _task(
    "Here are prompts that were tried, each with the score of its picture. See what made the good "
    "ones good and write a new prompt with a higher score."
)
# GEPA (arXiv 2507.19457), VISTA, RationalRewards (arXiv 2604.11626): mend what went wrong.
MEND = _task(
    "The picture of this prompt was looked at and has a fault. Change the prompt where the fault "
    "comes from, so that the next picture gets it right, and leave the rest."
)
# MultiPrompter (arXiv 2310.16730): each of three writes a part.
_PART = "Several writers make one prompt together, in turns. You see what was written so far. "
FOUND = _task("Write the first part: the main things with their numbers, colours and places.")
ARRANGE = Template(
    system=f"{_PART}Write the next part only, at most 15 words: viewpoint, arrangement and "
    "surroundings that fit. Name no new main object. Answer with that part alone.",
    temperature=1.0,
    max_new_tokens=64,
)
CROWN = Template(
    system=f"{_PART}Write the last part only, at most 12 words: light, style and quality that fit. "
    "Name no object. Answer with that part alone.",
    temperature=1.0,
    max_new_tokens=64,
)


def mutated(source: str, prompt: str) -> str:
    """The body of ``MUTATE``."""
    return f"Request: {source}\nPrompt: {prompt}"


def crossed(source: str, first: str, second: str) -> str:
    """The body of ``CROSS``."""
    return f"Request: {source}\nPrompt 1: {first}\nPrompt 2: {second}"


def differed(source: str, donors: Sequence[str], best: str, base: str) -> str:
    """The body of ``DIFFER``."""
    return (
        f"Request: {source}\nPrompt 1: {donors[0]}\nPrompt 2: {donors[1]}\n"
        f"Prompt 3: {best}\nPrompt 4: {base}"
    )


def listed(source: str, prompts: Sequence[str]) -> str:
    """The body of ``LIST``; the best prompt last."""
    rows = "\n".join(f"{i}. {p}" for i, p in enumerate(prompts, 1))
    return f"Request: {source}\n{rows}"


def remembered(source: str, history: Sequence[tuple[str, float]]) -> str:
    """The body of ``HISTORY``: prompts with their scores, the best first."""
    rows = "\n".join(f"score {score:.3f}: {prompt}" for prompt, score in history)
    return f"Request: {source}\n{rows}"


def mended(source: str, prompt: str, points: Mapping[str, float], remarks: Sequence[str]) -> str:
    """The body of ``MEND``: key points that are likely wrong, and what was said of the picture."""
    wrong = [f"{name} (right with probability {p:.0%})" for name, p in points.items()]
    faults = "; ".join([*wrong, *remarks]) or "it does not show what was asked for"
    return f"Request: {source}\nPrompt: {prompt}\nFault: {' '.join(faults.split())}"


def shared(source: str, written: str) -> str:
    """The body of the parts of cooperative writing."""
    return f"Request: {source}\nWritten so far: {written or 'nothing'}"
