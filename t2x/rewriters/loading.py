"""From a name or a loaded rewriter to one whose proposals are checked: the one place where a
``Guarded`` is put together for commands, demo and measurements.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2x.errors import T2XError
from t2x.prompts.checks import DEFAULT_CHECKS, CheckFunction, Domain
from t2x.rewriters.guarded import Guarded
from t2x.rewriters.targets import TARGETS, Target, target_named, target_of

if TYPE_CHECKING:
    from t2x.prompts.budget import TokenBudget
    from t2x.types import Generator, Rewriter

__all__ = ["load_guard", "load_guarded"]

log = logging.getLogger(__name__)


def load_guarded(
    rewriter: str | Path | tuple[Any, Any] | Rewriter,
    *,
    generator: str | Path | Generator | None = None,
    budget: TokenBudget | None = None,
    checks: Sequence[CheckFunction] | None = None,
    similarity: str | Path | Callable[[str, str], float] | None = None,
    domain: Domain | None = None,
    target: str | Target | None = None,
) -> Guarded | Rewriter:
    """Put a rewriter into the wrapper that checks what it proposes.

    Args:
        rewriter: what ``load_rewriter`` takes. One that is guarded already keeps its own settings,
            and takes none but ``generator``, whose limits it gets if it has no budget. A search by
            name ("search:evolution") draws with ``generator`` and guards itself.
        generator: what will draw, by name, folder, hub id or loaded; a rewrite must fit its token
            limits, which are read from its tokenizers alone, and gets a negative prompt only if it
            takes one. A name of ``t2x.rewriters.targets.TARGETS`` is a kind of generator, whose
            limits are not counted.
        budget: those limits themselves; overrides ``generator``.
        checks: see ``Guarded``; None is ``DEFAULT_CHECKS``.
        similarity: see ``Guarded``; a string or path is what ``load_similarity`` takes
            ("minilm"). None compares words only.
        domain: how the rewriter's world calls things. None is the rewriter's own attribute
            ``domain``: rewriters of the emoji world have one (``t2x.rewriters.domain``), or the
            guard would take "the animal with a trunk" -> "an elephant" for a loss.
        target: kind of text to write, by a name of ``TARGETS``; None is the kind that
            ``generator`` reads, if it is a known one. Only rewriters that follow instructions can
            change it; one that was trained on a format keeps that.

    Returns a ``Guarded``, but for a search, which guards itself: that comes as it is.
    """
    from t2x.generators.negatives import takes_negative
    from t2x.generators.tokenizers import token_budget
    from t2x.registry import load_rewriter
    from t2x.rewriters.similarity import load_similarity

    kind = target_named(target) if isinstance(target, str) else target
    if kind is None and generator is not None:
        kind = target_of(generator)
    named = isinstance(generator, str) and generator in TARGETS
    if named:
        log.info("%s is a kind of generator; name one, and its token limits hold too", generator)
        generator = None
    searches = isinstance(rewriter, str) and rewriter.startswith("search:")
    drawing = {"generator": generator} if searches and generator is not None else {}
    model = load_rewriter(rewriter, **drawing)
    if isinstance(model, Guarded) or getattr(model, "guards_itself", False):
        own = {
            "budget": budget,
            "checks": checks,
            "similarity": similarity,
            "domain": domain,
            "target": target,
        }
        if given := [name for name, value in own.items() if value is not None]:
            raise T2XError(
                f"a rewriter that is guarded already takes no {', '.join(given)}; give that where "
                "it is guarded, or give the bare rewriter (its attribute rewriter)"
            )
        if not isinstance(model, Guarded):
            return model  # a search guards every text before it is drawn
        if model.budget is not None or generator is None:
            return model
        return model.within(token_budget(generator), negatives=takes_negative(generator))
    if kind is not None:
        model = _restyled(model, kind, asked=target is not None or named)
    if budget is None and generator is not None:
        budget = token_budget(generator)
    if isinstance(similarity, (str, Path)):
        similarity = load_similarity(similarity)
    return Guarded(
        model,
        checks=DEFAULT_CHECKS if checks is None else checks,
        budget=budget,
        similarity=similarity,
        domain=domain,
        negatives=None if generator is None else takes_negative(generator),
    )


def _restyled(model: Rewriter, kind: Target, *, asked: bool) -> Rewriter:
    """The same rewriter writing the target's kind of text; that one can't is said if ``asked``."""
    restyle = getattr(model, "for_target", None)
    styled: Rewriter = model if restyle is None else restyle(kind)
    if asked and getattr(styled, "template", None) == getattr(model, "template", None):
        log.warning(
            "%s writes one kind of text and takes no instructions: the target changes nothing",
            model.model_id,
        )
    return styled


def load_guard(
    rewriter: str | Path | Rewriter, *, generator: str | Path | Generator | None = None
) -> Guarded:
    """Do as ``load_guarded`` for a caller that needs the guard itself: raises T2XError for a
    search, by name before anything is loaded."""
    by_name = isinstance(rewriter, str) and rewriter.startswith("search:")
    model = None if by_name else load_guarded(rewriter, generator=generator)
    if isinstance(model, Guarded):
        return model
    name = rewriter if isinstance(rewriter, (str, Path)) else rewriter.model_id
    raise T2XError(
        f"{str(name)!r} is a search, which draws pictures for every prompt; here a rewriter alone "
        "is needed: give one of `t2x list rewriters` that is no search, a folder or a hub id"
    )
