"""How far the texts of an arm went from what the user typed, beside how good its pictures are.

Of what a rewriter *proposes*, before the guard gives a broken one back: what is drawn would hide
the drift of a model whose worst proposals are reverted. A proposal that could not be read has no
text: it is counted as failed and leaves the means. Cosines see neither counts nor negations
(Sem-DPO, arXiv 2507.20133, weighs by nothing else), so that broken constraints stand beside them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from t2x.prompts.protect import protect
from t2x.types import Rewrite

if TYPE_CHECKING:
    from t2x.world.prompts import UserPrompt

__all__ = ["EMBEDDER", "Drift", "Similarity", "measure_drift", "text_similarity"]

EMBEDDER = "emoji-clip"

Array: TypeAlias = "NDArray[np.floating[Any]]"
Similarity: TypeAlias = "Callable[[Sequence[str], Sequence[str]], Array]"  # N and N texts -> (N,)


@dataclass
class Drift:
    """Of N proposals: cosine with the user's text, whether a constraint is broken, whether the text
    tells exactly the true scene as the rules read it, and words; all (N,), NaN where there is no
    text."""

    similarity: Array
    violated: Array
    exact: Array
    words: Array
    asked_words: Array
    failed: int
    broken: Counter[str]

    def summary(self) -> dict[str, Any]:
        """Means over the prompts, for JSON: similarity in [-1, 1], violations and exact as shares,
        broken as how often each check failed, words of a proposal and their ratio to the user's."""
        return {
            "similarity": _mean(self.similarity),
            "violations": _mean(self.violated),
            "broken": dict(self.broken.most_common()),
            "exact": _mean(self.exact),
            "words": _mean(self.words),
            "length_ratio": _mean(self.words) / _mean(self.asked_words),
            "failed": self.failed,
        }


def text_similarity(embedder: str = EMBEDDER) -> Similarity:
    """Compare texts by the cosine of their embeddings; ``embedder`` is what
    ``t2x.rewriters.similarity.load_embedder`` takes.
    """
    from t2x.rewriters.similarity import load_embedder

    embed = load_embedder(embedder)

    def similarity(one: Sequence[str], two: Sequence[str]) -> Array:
        if not one:
            return np.empty(0)
        cosines = (embed(one).double() * embed(two).double()).sum(dim=-1)
        found: Array = cosines.cpu().numpy()
        return found

    return similarity


def measure_drift(
    prompts: Sequence[UserPrompt], proposals: Sequence[Rewrite], similarity: Similarity
) -> Drift:
    """Compare N proposals with their prompts: constraints are read as the guard of the emoji world
    reads them, whatever arm wrote the text.
    """
    from t2x.rewriters.domain import domain_named
    from t2x.rewriters.guarded import Guarded
    from t2x.rewriters.identity import IdentityRewriter
    from t2x.world.content import tells_scene

    guard = Guarded(IdentityRewriter(), domain=domain_named("emoji"))
    readable = np.array([p.status != "failed" for p in proposals], bool)
    count = len(proposals)
    near, violated, exact, words, asked = np.full((5, count), np.nan)
    broken: Counter[str] = Counter()
    kept = [(i, prompts[i], proposals[i].text) for i in range(count) if readable[i]]
    near[readable] = similarity([p.text for _, p, _ in kept], [text for *_, text in kept])
    for i, prompt, text in kept:
        failed = _broken(guard, prompt.text, proposals[i])
        broken.update(failed)
        violated[i] = float(bool(failed))
        exact[i] = float(tells_scene(text, prompt.scene))
        words[i] = len(text.split())
        asked[i] = len(prompt.text.split())
    return Drift(near, violated, exact, words, asked, int((~readable).sum()), broken)


def _broken(guard: Any, prompt: str, proposal: Rewrite) -> list[str]:
    """Names of the checks that a proposal fails."""
    if proposal.text == prompt:
        return []
    sources = protect(prompt).sources
    if len(sources) != 1:  # regions are checked one by one
        return [] if proposal.status != "reverted" else ["region"]
    part = Rewrite(sources[0], proposal.text, negative=proposal.negative)
    judged = guard.judge(prompt, [part])
    return [c.name for c in judged.checks if not c.passed] if judged.status == "reverted" else []


def _mean(values: Array) -> float:
    return float(np.nanmean(values)) if not np.isnan(values).all() else float("nan")
