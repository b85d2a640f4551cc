"""From a name or a loaded rewriter to one whose proposals are checked: the one place where a
``Guarded`` is put together for commands, demo and measurements.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from t2x.prompts.checks import DEFAULT_CHECKS, CheckFunction, Domain
from t2x.rewriters.guarded import Guarded

if TYPE_CHECKING:
    from t2x.prompts.budget import TokenBudget
    from t2x.types import Generator, Rewriter

__all__ = ["load_guarded", "token_budget"]


def load_guarded(
    rewriter: str | Rewriter,
    *,
    generator: str | Generator | None = None,
    budget: TokenBudget | None = None,
    checks: Sequence[CheckFunction] = DEFAULT_CHECKS,
    similarity: Callable[[str, str], float] | None = None,
    domain: Domain | None = None,
) -> Guarded:
    """Put a rewriter into the wrapper that checks what it proposes.

    Args:
        rewriter: a name as ``load_rewriter`` takes it, or a loaded rewriter; one that is guarded
            already is given back as it is.
        generator: what will draw, by name or loaded; a rewrite must fit its token limits.
        budget: those limits themselves; overrides ``generator``.
        checks: see ``Guarded``.
        similarity: see ``Guarded``.
        domain: how the rewriter's world calls things. None is the rewriter's own attribute
            ``domain``: rewriters of the emoji world have one (``t2x.rewriters.domain``), or the
            guard would take "the animal with a trunk" -> "an elephant" for a loss.
    """
    from t2x.registry import load_rewriter

    model = load_rewriter(rewriter) if isinstance(rewriter, str) else rewriter
    if isinstance(model, Guarded):
        return model
    if budget is None and generator is not None:
        budget = token_budget(generator)
    return Guarded(model, checks=checks, budget=budget, similarity=similarity, domain=domain)


def token_budget(generator: str | Path | Generator) -> TokenBudget | None:
    """Token limits of what will draw, from its tokenizers alone; None where they are not at hand.

    Nothing is downloaded and no weights are read. Of a local folder only CLIP tokenizers tell their
    limit; with others among them it is None. Raises T2XError for an embedded model without weights.
    """
    from t2x.generators.folders import pipeline_folder
    from t2x.prompts.budget import TokenBudget
    from t2x.world.weights import EMBEDDED, require_model

    if not isinstance(generator, (str, Path)):
        pipeline = getattr(generator, "pipeline", None)
        return None if pipeline is None else TokenBudget.from_pipeline(pipeline)
    name = str(generator)
    folder = require_model(name) if name in EMBEDDED else Path(name)
    parts = pipeline_folder(folder)
    return None if parts is None else _clip_budget(parts)


def _clip_budget(folder: Path) -> TokenBudget | None:
    from t2x.generators.folders import INDEX_FILE
    from t2x.prompts.budget import TokenBudget

    parts = json.loads((folder / INDEX_FILE).read_text(encoding="utf-8"))
    kinds = {name: parts[name][1] for name in parts if name.startswith("tokenizer")}
    if not kinds or any(not str(kind).startswith("CLIPTokenizer") for kind in kinds.values()):
        return None
    from transformers import CLIPTokenizer

    return TokenBudget(
        {name: (CLIPTokenizer.from_pretrained(folder / name), None) for name in kinds}
    )
