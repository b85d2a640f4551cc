"""Searches by name: what ``load_rewriter("search:evolution", ...)`` and ``t2x search`` give."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from t2x.errors import UnknownNameError
from t2x.registry import SEARCH_REWARDS
from t2x.search.best_of_n import BestOfN
from t2x.search.cooperative import Cooperative
from t2x.search.critique_refine import CritiqueRefine
from t2x.search.evolution import Evolution
from t2x.search.reflective import Reflective
from t2x.search.rewriter import Method, SearchRewriter

if TYPE_CHECKING:
    from t2x.types import Generator, RewardModel, Rewriter

__all__ = ["METHODS", "REWARDS", "check_parts", "load_search", "make_method", "method_of"]

REWARDS: dict[str, float] = SEARCH_REWARDS


def _reflective(inspector: Any = "align", **options: Any) -> Method:
    return Reflective(_inspector(inspector), **options)


def _critique_refine(critic: Any = "critique", **options: Any) -> Method:
    return CritiqueRefine(_inspector(critic), **options)


def _inspector(given: Any) -> Any:
    from t2x.registry import load_reward

    return load_reward(given) if isinstance(given, str) else given


METHODS: dict[str, Callable[..., Method]] = {
    "best-of-n": BestOfN,
    "evolution": Evolution,
    "reflective": _reflective,
    "cooperative": Cooperative,
    "critique-refine": _critique_refine,
}


def make_method(name: str, /, **options: Any) -> Method:
    """Make a method by name; ``options`` are those of its class, where ``inspector`` and ``critic``
    may be names of rewards. ``"evolution:ga"`` is evolution with these operators.

    Raises ``UnknownNameError`` for another name, and what the class raises.
    """
    kind, _, operators = name.partition(":")
    if kind not in METHODS or (operators and kind != "evolution"):
        raise UnknownNameError(f"unknown method {name!r}; allowed: {', '.join(METHODS)}")
    if operators:
        options["operators"] = operators
    return METHODS[kind](**options)


def method_of(name: str) -> str | None:
    """The search that a name means, with or without the registry's "search:" before it, as
    :func:`make_method` takes it; None for anything else."""
    bare = name.removeprefix("search:")
    return bare if bare.partition(":")[0] in METHODS else None


def check_parts(rewriter: Any, generator: Any, rewards: Any) -> None:
    """Raise ``UnknownNameError`` for names that nothing can be loaded by, before anything is."""
    from t2x.registry import check_names

    single = isinstance(rewards, str) or not isinstance(rewards, Iterable)
    check_names("rewards", [rewards] if single else rewards)
    check_names("rewriters", [rewriter])
    check_names("generators", [generator])


def load_search(
    method: str | Method = "best-of-n",
    *,
    rewriter: str | Rewriter = "emoji-rewriter",
    generator: str | Generator = "emoji-flow-turbo",
    rewards: Sequence[str | RewardModel] | Mapping[str, float] | str | RewardModel = REWARDS,
    method_options: dict[str, Any] | None = None,
    **options: Any,
) -> SearchRewriter:
    """Load a search; ``options`` are those of :class:`SearchRewriter` (budget, seeds, ...)."""
    check_parts(rewriter, generator, rewards)
    if isinstance(method, str):
        method = make_method(method, **(method_options or {}))
    return SearchRewriter(rewriter, generator, rewards, method=method, **options)


# ---- what the registry names --------------------------------------------------------------------


def best_of_n(**options: Any) -> SearchRewriter:
    """``load_search("best-of-n", ...)``."""
    return load_search("best-of-n", **options)


def evolution(**options: Any) -> SearchRewriter:
    """``load_search("evolution", ...)``."""
    return load_search("evolution", **options)


def reflective(**options: Any) -> SearchRewriter:
    """``load_search("reflective", ...)``."""
    return load_search("reflective", **options)


def cooperative(**options: Any) -> SearchRewriter:
    """``load_search("cooperative", ...)``."""
    return load_search("cooperative", **options)


def critique_refine(**options: Any) -> SearchRewriter:
    """``load_search("critique-refine", ...)``."""
    return load_search("critique-refine", **options)
