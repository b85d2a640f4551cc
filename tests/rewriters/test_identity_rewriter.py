"""The no-rewrite arm."""

from __future__ import annotations

from t2x.rewriters.identity import IdentityRewriter
from t2x.types import Rewriter


def test_gives_back_every_prompt() -> None:
    rewriter = IdentityRewriter()
    assert isinstance(rewriter, Rewriter)
    found = rewriter.rewrite(["a", ""], num_generations=2, seed=5)
    assert [[r.text for r in group] for group in found] == [["a", "a"], ["", ""]]
    assert {(r.status, r.seed) for group in found for r in group} == {("unchanged", 5)}
