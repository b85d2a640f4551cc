"""What a rewrite has to preserve, by kind: one table of pure functions that the guard, training and
measurement share.

Each takes the user's prompt and the rewrite and gives one line for everything that is lost; none is
the good case. English is read best; German, Spanish and Chinese by smaller tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from t2x.prompts.colours import lost_colours
from t2x.prompts.counts import lost_counts
from t2x.prompts.names import lost_names
from t2x.prompts.negations import lost_negations
from t2x.prompts.places import lost_relations
from t2x.prompts.quotes import lost_quotes

__all__ = ["KINDS", "lost"]

KINDS: Mapping[str, Callable[[str, str], list[str]]] = {
    "count": lost_counts,
    "colour": lost_colours,
    "relation": lost_relations,
    "negation": lost_negations,
    "name": lost_names,
    "quote": lost_quotes,
}


def lost(original: str, rewrite: str) -> dict[str, list[str]]:
    """What ``rewrite`` loses of ``original``, by kind; kinds that lose nothing are left out."""
    found = {kind: check(original, rewrite) for kind, check in KINDS.items()}
    return {kind: reasons for kind, reasons in found.items() if reasons}
