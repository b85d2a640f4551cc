"""Several prompters that write one prompt together, in turns (MultiPrompter, Kim et al. 2023, arXiv
2310.16730), as one ``Rewriter``.

The first writes the beginning; each further one sees the user's request and what was written so
far, and what it answers goes behind that. An answer of "nothing" adds nothing. The search
(``t2x.search.cooperative``) and the recipe (``t2x.train.cooperative``) write by the same protocol.

Differs from the paper: a part is as long as its prompter makes it, not a fixed number of tokens.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from t2x.errors import T2XError
from t2x.rewriters.completion import Completion, answer, read
from t2x.rewriters.parsing import write_completion
from t2x.rewriters.rows import check_sampling
from t2x.rewriters.sampling import row_seed
from t2x.rewriters.templates import Template
from t2x.search.instructions import shared
from t2x.settings import SETTINGS_FILE, read_settings
from t2x.types import Rewrite

if TYPE_CHECKING:
    from t2x.rewriters.language_model import LanguageModelRewriter

__all__ = [
    "NOTHING",
    "Draft",
    "Prompter",
    "TurnsRewriter",
    "add_part",
    "join_parts",
    "joint_completion",
    "joint_template",
    "save_turns",
    "write_turns",
]

NOTHING = "nothing"
_SECTION = "turns"
Sees = Literal["prompt", "turns"]


def join_parts(written: str, part: str) -> str:
    """What was written so far with a further part behind it."""
    part = part.strip(" .,;")
    if not part or part.casefold() == NOTHING:
        return written
    return f"{written.rstrip(' .,;')}, {part}" if written else part


@dataclass(frozen=True)
class Prompter:
    """One of those who write. ``sees``: the user's prompt alone (for the first, a rewriter of its
    own right), or the request with what was written (``t2x.search.instructions.shared``).
    """

    role: str
    rewriter: LanguageModelRewriter
    sees: Sees = "turns"

    def body(self, source: str, written: str) -> str:
        """What is put to the prompter."""
        return source if self.sees == "prompt" else shared(source, written)


@dataclass(frozen=True)
class Draft:
    """What there is of a prompt after some turns; ``problem`` says why there will be no more."""

    text: str = ""
    negative: str = ""
    reasoning: tuple[str, ...] = ()
    raw: tuple[str, ...] = ()
    problem: str = ""
    truncated: bool = False


def add_part(source: str, draft: Draft, completion: Completion, prompter: Prompter) -> Draft:
    """Put what a prompter answered behind a draft; a whole rewrite (of one who sees the prompt
    alone) begins it."""
    parsed = read(source, completion, prompter.rewriter.template)
    raw = (*draft.raw, completion.text)
    if parsed.problem:
        problem = f"{prompter.role}: {parsed.problem}"
        return replace(draft, raw=raw, problem=problem, truncated=completion.truncated)
    begins = prompter.sees == "prompt"
    negatives = [n for n in (draft.negative, parsed.negative) if n.strip()]
    return Draft(
        parsed.text if begins else join_parts(draft.text, parsed.text),
        ", ".join(dict.fromkeys(negatives)),
        (*draft.reasoning, *filter(None, (parsed.reasoning,))),
        raw,
    )


def write_turns(
    prompters: Sequence[Prompter],
    sources: Sequence[str],
    drafts: Sequence[Draft],
    *,
    generation: int = 0,
    seed: int = 0,
) -> list[Draft]:
    """Let prompters go on with N drafts, each where the one before ended; drafts with a problem
    stay as they are.

    Generation 0 is greedy where the prompter's first one is; each row is alone with its seed, so
    that a draft depends on no other.
    """
    found = list(drafts)
    for prompter in prompters:
        live = [i for i, draft in enumerate(found) if not draft.problem]
        bodies = [prompter.body(sources[i], found[i].text) for i in live]
        rewriter = _sampling(prompter.rewriter) if generation else prompter.rewriter
        own = row_seed(seed, prompter.role, generation=generation) if generation else seed
        rows = rewriter.complete(bodies, seed=own) if bodies else []
        for i, (completion,) in zip(live, rows, strict=True):
            found[i] = add_part(sources[i], found[i], completion, prompter)
    return found


def _sampling(rewriter: LanguageModelRewriter) -> LanguageModelRewriter:
    """The same rewriter with every generation sampled, where further ones are."""
    other = copy(rewriter)
    if rewriter.temperature is None and rewriter.template.temperature > 0:
        other.temperature = rewriter.template.temperature
    return other


def joint_template(domain: str = "") -> Template:
    """How a finished draft is read: like any answer in tags."""
    return Template(require_answer=True, domain=domain)


def joint_completion(draft: Draft) -> Completion:
    """A draft as the completion that one model would have written (:func:`joint_template`)."""
    if draft.truncated:
        return Completion("\n".join(draft.raw), truncated=True)
    if draft.problem:
        return Completion("\n".join(draft.raw), problem=draft.problem)
    return Completion(write_completion(draft.text, negative=draft.negative))


class TurnsRewriter:
    """Rewrites prompts by the turns of several prompters.

    With one prompter that sees the prompt alone it writes what that rewriter writes. A prompt fails
    if one of its prompters has no usable answer; the check says which.

    Args:
        prompters: in the order of their turns; only the first may see the prompt alone.
        model_id: name that goes into every result.
    """

    def __init__(self, prompters: Sequence[Prompter], *, model_id: str = "") -> None:
        if not prompters:
            raise T2XError("there is no prompter; give at least one")
        roles = [p.role for p in prompters]
        if len(set(roles)) < len(roles):
            raise T2XError(f"prompters need roles of their own, got: {', '.join(roles)}")
        if late := [p.role for p in prompters[1:] if p.sees == "prompt"]:
            raise T2XError(
                f"{late[0]} sees the prompt alone and would throw away what was written before; "
                "only the first prompter may, give sees=turns"
            )
        self.prompters = tuple(prompters)
        first = prompters[0].rewriter
        self.model_id = model_id or " + ".join(p.rewriter.model_id for p in prompters)
        self.template = joint_template(first.template.domain)
        self.domain = first.domain

    @classmethod
    def from_pretrained(
        cls, folder: str | Path, *, model_id: str = "", temperature: float | None = None,
        **options: Any,
    ) -> TurnsRewriter:  # fmt: skip
        """Load a folder that :func:`save_turns` wrote; ``options`` as for a
        ``LanguageModelRewriter``.

        Raises T2XError for another folder.
        """
        from t2x.rewriters.language_model import LanguageModelRewriter

        check_sampling(temperature)
        folder = Path(folder)
        turns = read_settings(folder).get(_SECTION)
        if not isinstance(turns, list) or not all(_is_turn(t) for t in turns):
            raise T2XError(
                f'{folder / SETTINGS_FILE} has no list "{_SECTION}" of role, folder and sees; give '
                "a folder of t2x.train's recipe cooperative"
            )
        options["temperature"] = temperature
        loaded = [
            Prompter(
                turn["role"],
                LanguageModelRewriter.from_pretrained(folder / turn["folder"], **options),
                turn["sees"],
            )
            for turn in turns
        ]
        return cls(loaded, model_id=model_id or folder.resolve().name)

    def rewrite(
        self, prompts: Sequence[str], *, num_generations: int = 1, seed: int = 0
    ) -> list[list[Rewrite]]:
        """Give ``num_generations`` rewrites for each of B prompts: B lists of G."""
        first, *others = self.prompters
        bodies = [first.body(p, "") if isinstance(p, str) and p.strip() else p for p in prompts]
        begun = first.rewriter.complete(
            prompts if isinstance(prompts, str) else bodies,
            num_generations=num_generations,
            seed=seed,
        )
        columns = []
        for g in range(num_generations):
            drafts = [
                add_part(p, Draft(), row[g], first) for p, row in zip(prompts, begun, strict=True)
            ]
            columns.append(write_turns(others, prompts, drafts, generation=g, seed=seed))
        return [
            [self._rewrite(prompt, column[i], seed) for column in columns]
            for i, prompt in enumerate(prompts)
        ]

    def _rewrite(self, prompt: str, draft: Draft, seed: int) -> Rewrite:
        completion = joint_completion(draft)
        if draft.truncated:
            completion = replace(completion, truncated=False, problem=draft.problem)
        made = answer(prompt, completion, self.template, seed=seed, model_id=self.model_id)
        return replace(made, reasoning="\n".join(draft.reasoning), raw="\n".join(draft.raw))


def save_turns(prompters: Sequence[tuple[str, Sees, Any]], folder: str | Path) -> None:
    """Save (role, sees, policy) in the order of their turns, each as a folder of its own, and a
    ``t2x.json`` by which ``t2x.load_rewriter`` loads them as one.
    """
    from t2x.training.policy import save_policy

    folder = Path(folder)
    turns = []
    for i, (role, sees, policy) in enumerate(prompters):
        own = f"{i}-{role}"
        save_policy(policy, folder / own)
        turns.append({"role": role, "folder": own, "sees": sees})
    settings = read_settings(folder) | {_SECTION: turns}
    (folder / SETTINGS_FILE).write_text(json.dumps(settings, indent=1) + "\n")


def _is_turn(turn: Any) -> bool:
    return (
        isinstance(turn, dict)
        and {"role", "folder", "sees"} <= set(turn)
        and turn["sees"] in ("prompt", "turns")
    )
