"""How far the winner of a pair has drifted from the user's own prompt: Sem-DPO's weights (arXiv
2507.20133), and beside them the checks of what no embedding sees.

Differs from the paper: a cosine is nearly blind to negations, counts and sides, so winners that the
guard would give back in use are left out, unless ``gates`` is off. Its alpha and embedder could not
be read in a public source; the defaults here are ours.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from t2x.errors import T2XError
from t2x.rewriters.completion import Completion, read
from t2x.rewriters.templates import Template
from t2x.rollouts.reading import policy_text
from t2x.training.data import answer_text

if TYPE_CHECKING:
    from t2x.rollouts.reading import CompletionReader

__all__ = ["SemanticSection", "weigh_pairs"]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SemanticSection:
    """How pairs are weighed.

    Args:
        alpha: of the weight exp(-alpha * distance); 0 weighs all pairs alike, which is DPO.
        embedder: what ``t2x.rewriters.similarity.load_embedder`` takes.
        divide_by_mean: divide the weights by their mean, so that alpha doesn't lower the learning
            rate too; the paper doesn't.
        gates: leave pairs out whose winner breaks what the prompt fixes (``Guarded``'s checks).
    """

    alpha: float = 1.0
    embedder: str = "minilm"
    divide_by_mean: bool = False
    gates: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.alpha < math.inf:
            raise T2XError(
                f"semantic.alpha is {self.alpha}; give 0 or a positive number: the weight falls "
                "with the distance"
            )


def weigh_pairs(
    rows: Any, template: Template, section: SemanticSection
) -> tuple[Any, dict[str, float]]:
    """Give the pairs that are kept with a column ``weight``, and what was found.

    ``rows``: a data set with ``original_prompt`` and ``chosen``, a completion as text or as one
    message. Its prompt alone, without the reasoning, is compared with what the policy saw of the
    user's (``policy_text``): a winner that changes nothing weighs 1, whatever syntax or quoted text
    stands aside in both. Winners that can't be read are left out.

    The numbers: ``pairs`` kept, ``gated`` and ``unreadable`` ones left out, and ``mean_weight``
    before it is divided by. Raises T2XError if no pair is left.
    """
    from t2x.functional.preference_losses import sem_dpo_weight
    from t2x.rewriters.similarity import load_embedder
    from t2x.rollouts.reading import CompletionReader

    reader = CompletionReader(template) if section.gates else None
    answers = [_winner(row, template, reader) for row in rows]
    kept = [i for i, (_, text, _) in enumerate(answers) if text]
    found = {"pairs": len(kept)}
    for why in ("gated", "unreadable"):
        found[why] = sum(reason == why for *_, reason in answers)
    if not kept:
        raise T2XError(
            f"no pair is left of {len(rows)}: {found['unreadable']} winners can't be read as an "
            f"answer of this policy, {found['gated']} break what their prompt fixes; mend the data "
            "or set semantic.gates=false"
        )
    if len(kept) < len(rows):
        log.warning("%d of %d pairs left out: %s", len(rows) - len(kept), len(rows), found)
    rows = rows.select(kept)
    embed = load_embedder(section.embedder)
    weights = sem_dpo_weight(
        embed([answers[i][0] for i in kept]),
        embed([answers[i][1] for i in kept]),
        alpha=section.alpha,
    ).cpu()  # (N,)
    mean = float(weights.mean())
    if section.divide_by_mean:
        weights = weights / mean
    return rows.add_column("weight", weights.tolist()), {**found, "mean_weight": mean}


def _winner(row: Any, template: Template, reader: CompletionReader | None) -> tuple[str, str, str]:
    """What the policy saw and the winner's prompt, or "" for it and why the pair is left out."""
    original, completion = row["original_prompt"], Completion(answer_text(row["chosen"]))
    try:
        seen = policy_text(original)
    except T2XError as error:  # a prompt in several parts, which one completion can't answer
        log.debug("%s", error)
        return "", "", "unreadable"
    parsed = read(original, completion, template)
    if parsed.problem:
        return seen, "", "unreadable"
    if reader is not None and reader.read(original, completion)[0] != "rewrite":
        return seen, "", "gated"
    return seen, parsed.text, ""
