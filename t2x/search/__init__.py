"""Search for a prompt on top of any rewriter: rewards of the pictures are the fitness, pictures the
budget.

    from t2x.search import BestOfN, SearchRewriter

    search = SearchRewriter("emoji-rewriter", "emoji-flow-turbo", ["clip"], method=BestOfN())
    [history] = search.search(["two kittens on a sofa"])
    history.winner.rewrite      # a Rewrite, with scores
    history.shot.picture        # the best picture of all that were drawn

``records`` holds what is kept of a search, ``evaluator`` draws and scores, ``writer`` asks the
rewriter, ``clauses`` and ``instructions`` are the two kinds of operators, and each method is a
file.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from t2x.search.best_of_n import BestOfN
    from t2x.search.cooperative import Cooperative
    from t2x.search.critique_refine import CritiqueRefine
    from t2x.search.evolution import Evolution
    from t2x.search.history import History
    from t2x.search.loading import METHODS, load_search, make_method
    from t2x.search.reflective import Reflective
    from t2x.search.rewriter import SearchRewriter

__all__ = [
    "METHODS",
    "BestOfN",
    "Cooperative",
    "CritiqueRefine",
    "Evolution",
    "History",
    "Reflective",
    "SearchRewriter",
    "load_search",
    "make_method",
]

_LAZY = {
    "METHODS": "loading",
    "BestOfN": "best_of_n",
    "Cooperative": "cooperative",
    "CritiqueRefine": "critique_refine",
    "Evolution": "evolution",
    "History": "history",
    "Reflective": "reflective",
    "SearchRewriter": "rewriter",
    "load_search": "loading",
    "make_method": "loading",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 't2x.search' has no attribute {name!r}")
    return getattr(import_module(f"t2x.search.{_LAZY[name]}"), name)
