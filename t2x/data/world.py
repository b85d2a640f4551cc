"""Rows of the emoji world by name: ``world:sft?n=20000&seed=0``, ``world:prompts``,
``world:validation``.

All are of the training split (validation of its own): no held-out phrasing kind, no held-out pair,
no text of another split, and no prompt of a public benchmark. The world's template "a photo of ..."
is GenEval's, and its short plain prompts ("a dog") are in several lists: what is one of theirs, or
holds one (``t2x.data.decontaminate``), is left out, and the next one is drawn.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import Any, TypeAlias
from urllib.parse import parse_qsl

from t2x.data.decontaminate import find_benchmark
from t2x.data.prompts import PromptRules, Sieve
from t2x.data.rows import prompt_row, sft_row
from t2x.data.sources import Sourced, read_prompts
from t2x.errors import T2XError
from t2x.registry import loading
from t2x.rewriters.parsing import write_completion
from t2x.rollouts.reading import policy_text
from t2x.watching.bar import training_bar
from t2x.world.prompts import SEEN_KINDS, UserPrompt, validation_prompts
from t2x.world.scene import TASKS
from t2x.world.teacher import MISSING_KINDS, teacher_pair, teaching_prompt

__all__ = ["WorldQuery", "load", "of_world", "world_rows"]

Tell: TypeAlias = "Callable[[int], None]"
_MANY = 2000  # rows, which take seconds
KEPT_WORDS = 0.04  # share of prompts with something that has to be copied, as emoji-rewriter has
_MOST = 50  # so many draws for a row, and the world has no more of that kind
_INVENTED = "bdfgklmnprstvz", "aeiou"


@dataclass(frozen=True)
class WorldQuery:
    """``kind`` of rows, how many, and the seed that decides them; other seeds give other rows.
    Without ``reasoning`` the teacher's answers have no plan before them: the same rows otherwise.
    """

    kind: str
    n: int = 1000
    seed: int = 0
    reasoning: int = 1

    @classmethod
    def parse(cls, text: str) -> WorldQuery:
        """Read ``KIND?n=...&seed=...``."""
        kind, _, rest = text.partition("?")
        values = dict(parse_qsl(rest, keep_blank_values=True))
        unknown = sorted(set(values) - {"n", "seed", "reasoning"})
        if kind not in _KINDS or unknown or not all(map(_is_number, values.values())):
            raise T2XError(
                f"'world:{text}' is no source; give world:KIND?n=1000&seed=0 with a kind of "
                f"{', '.join(_KINDS)}, and whole numbers"
            )
        query = cls(kind, **{name: int(value) for name, value in values.items()})
        if query.n < 1:
            raise T2XError(f"'world:{text}' asks for {query.n} rows; give at least 1")
        return query


def load(text: str) -> Any:
    """Give the rows of ``world_rows`` as a ``datasets.Dataset``; many are told of while they are
    made."""
    from datasets import Dataset

    query = WorldQuery.parse(text)
    if query.n < _MANY:
        return Dataset.from_list(world_rows(text))
    what = f"making {query.n:,} rows of world:{query.kind}"
    loading.info("%s ...", what)
    with training_bar(what, query.n) as advance:
        return Dataset.from_list(world_rows(text, tell=lambda done: advance(done, "")))


def world_rows(
    text: str, dropped: Counter[str] | None = None, *, tell: Tell = lambda done: None
) -> list[dict[str, Any]]:
    """Make the rows that ``KIND?n=...&seed=...`` names, the same at every call.

    ``sft``: prompt, completion of the teacher (``t2x.world.teacher``), original_prompt, kind, task.
    ``sft-validation``: the teacher's completions of validation prompts. ``prompts`` and
    ``validation``: the same without completion, no prompt twice. ``dropped`` counts what was left
    out, ``tell`` hears how many there are.
    """
    query = WorldQuery.parse(text)
    return _KINDS[query.kind](query, Counter() if dropped is None else dropped, tell)


def of_world(
    prompts: Iterator[Sourced], *, kinds: Sequence[str] = (), tasks: Sequence[str] = ()
) -> Iterator[Sourced]:
    """Keep the world's prompts of some phrasing kinds and tasks; of all without.

    Raises T2XError for a held-out kind, which no training set may hold, and for an unknown name.
    """
    for given, allowed, what in ((kinds, SEEN_KINDS, "kinds"), (tasks, (*TASKS, "mixed"), "tasks")):
        if wrong := [name for name in given if name not in allowed]:
            raise T2XError(f"{wrong[0]!r} is none of the world's {what}: {', '.join(allowed)}")
    wanted = set(kinds or SEEN_KINDS), set(tasks or (*TASKS, "mixed"))
    return (p for p in prompts if p.fields["kind"] in wanted[0] and p.fields["task"] in wanted[1])


def _sft(query: WorldQuery, dropped: Counter[str], tell: Tell) -> list[dict[str, Any]]:
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for number in count():
        if len(rows) == query.n:
            break
        rng = random.Random(f"data sft {query.seed} {number}")
        row, answer = _taught(rng, reasoning=bool(query.reasoning))
        original = row["original_prompt"]
        match = find_benchmark(original) or find_benchmark(answer)
        if match is not None:
            dropped[f"{match.benchmark} ({match.kind})"] += 1
        elif (original, answer) in rows:
            dropped["repeated"] += 1
        else:
            rows[original, answer] = row
            tell(len(rows))
        if number >= _MOST * query.n:
            raise T2XError(f"the world's teacher has no {query.n} different rows; give fewer")
    return [*rows.values()]


def _sft_validation(query: WorldQuery, dropped: Counter[str], tell: Tell) -> list[dict[str, Any]]:
    """Of the phrasing kinds that the teacher has."""
    wanted = {
        row["original_prompt"] for row in _validation(replace(query, n=2 * query.n), dropped, tell)
    }
    drawn = validation_prompts(4 * query.n + _MOST, query.seed)
    known = {p.text: p for p in drawn if p.text in wanted and p.kind not in MISSING_KINDS}
    rng = random.Random(f"data sft validation {query.seed}")
    rows = [_answered(p, rng, reasoning=bool(query.reasoning))[0] for p in known.values()]
    if len(rows) < query.n:
        raise T2XError(f"the world has no {query.n} different prompts there; give fewer")
    return rows[: query.n]


def _taught(rng: random.Random, *, reasoning: bool) -> tuple[dict[str, Any], str]:
    """A row of the teacher, and its answer."""
    return _answered(teaching_prompt(rng.getrandbits(48)), rng, reasoning=reasoning)


def _answered(
    prompt: UserPrompt, rng: random.Random, *, reasoning: bool
) -> tuple[dict[str, Any], str]:
    think, answer = teacher_pair(prompt, rng)
    original = prompt.text
    if rng.random() < KEPT_WORDS:
        original = f"{original}, {_opaque(rng)}"
        item = policy_text(original).rpartition(", ")[2]
        think, answer = f"{think}; keep {item}", f"{answer} {item}"
    completion = write_completion(answer, think if reasoning else "")
    seen = policy_text(original)
    return sft_row(original, completion, seen, kind=prompt.kind, task=prompt.task), answer


def _opaque(rng: random.Random) -> str:
    """Quoted text or a wildcard, which a policy sees as a stand-in that it has to copy."""
    consonants, vowels = _INVENTED
    word = "".join(rng.choice(consonants) + rng.choice(vowels) for _ in range(rng.randint(1, 4)))
    return f'"{word}"' if rng.random() < 0.5 else f"__{word}__"


def _prompts(query: WorldQuery, dropped: Counter[str], tell: Tell) -> list[dict[str, Any]]:
    return _rows(read_prompts("world", seed=query.seed), query, dropped, tell)


def _validation(query: WorldQuery, dropped: Counter[str], tell: Tell) -> list[dict[str, Any]]:
    drawn = validation_prompts(2 * query.n + _MOST, query.seed)
    prompts = (Sourced(p.text, {"kind": p.kind, "task": p.task}) for p in drawn)
    return _rows(prompts, query, dropped, tell)


def _rows(
    prompts: Iterator[Sourced], query: WorldQuery, dropped: Counter[str], tell: Tell
) -> list[dict[str, Any]]:
    sieve = Sieve(PromptRules())
    most = islice(prompts, _MOST * query.n)
    found = []
    for prompt in islice(sieve.admit(most), query.n):
        found.append(prompt)
        tell(len(found))
    dropped.update(sieve.dropped)
    if len(found) < query.n:
        raise T2XError(f"the world has no {query.n} different prompts there; give fewer")
    return [prompt_row(p.text, **p.fields) for p in found]


def _is_number(text: str) -> bool:
    return text.isdecimal()


_KINDS: dict[str, Callable[[WorldQuery, Counter[str], Tell], list[dict[str, Any]]]] = {
    "sft": _sft,
    "sft-validation": _sft_validation,
    "prompts": _prompts,
    "validation": _validation,
}
