"""What a language model proposes to ask: features of the prompt with options and their odds (the
paper's own way, arXiv 2602.04713)."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from copy import copy
from typing import Any

from t2x.asking.listed import Listed, ListedFeature
from t2x.rewriters.templates import Template

__all__ = ["propose", "read_proposals"]

log = logging.getLogger(__name__)
_FEATURES = 8
_OPTIONS = 8
_LONGEST = 60  # characters of a label
_SYSTEM = """\
You help somebody to say which picture they have in mind. Given a short request, find what it leaves
open and what would change the picture most. Answer with JSON alone: a list of five objects like
{"feature": "time of day", "question": "What time of day is it?",
 "options": {"at noon": 0.4, "at sunset": 0.3, "at night": 0.1}, "any": 0.2}
"options" holds two to four short phrases that can be put behind the request, each with the
probability that the person wants it; "any" is the probability that they don't care. What the
request says already is not asked. Write in the language of the request."""
_TEMPLATE = Template(system=_SYSTEM, user="{prompt}", max_new_tokens=900, temperature=0.7)


def propose(prompt: str, rewriter: Any, *, seed: int = 0) -> Listed | None:
    """Ask a chat model what to ask; None if the rewriter is none, or its answer can't be read."""
    asking = _with_template(rewriter)
    if asking is None:
        return None
    [[answer]] = asking.rewrite([prompt], seed=seed)
    listed = read_proposals(answer.raw or answer.text)
    if not listed:
        log.warning(
            "%s proposed nothing that can be asked; the text alone decides", rewriter.model_id
        )
        return None
    return Listed(prompt, listed, seed)


def _with_template(rewriter: Any) -> Any:
    """The same model with our instructions, if it follows instructions at all: what was trained on
    a format of its own does not."""
    template = getattr(rewriter, "template", None)
    if template is None or not template.system or template.domain or template.chat is False:
        return None
    if hasattr(rewriter, "with_template"):
        return rewriter.with_template(_TEMPLATE)
    asking = copy(rewriter)
    asking.template = _TEMPLATE
    return asking


def read_proposals(text: str) -> tuple[ListedFeature, ...]:
    """Features of a model's JSON, wherever it stands in its answer; what is malformed is left out,
    and probabilities need not sum to 1."""
    start, end = text.find("["), text.rfind("]")
    try:
        rows = json.loads(text[start : end + 1]) if 0 <= start < end else []
    except ValueError:
        return ()
    found: dict[str, ListedFeature] = {}
    for row in rows[:_FEATURES] if isinstance(rows, list) else ():
        if isinstance(row, dict) and (feature := _feature(row)) is not None:
            found.setdefault(feature.key, feature)
    return tuple(found.values())


def _feature(row: Mapping[str, Any]) -> ListedFeature | None:
    name, question, options = (row.get(key) for key in ("feature", "question", "options"))
    if not (isinstance(name, str) and isinstance(question, str) and isinstance(options, dict)):
        return None
    if not name.strip() or not question.strip():
        return None
    odds = {
        label.strip(): value
        for label, chance in list(options.items())[:_OPTIONS]
        if label.strip() and len(label) <= _LONGEST and (value := _odds(chance)) > 0
    }
    if len(odds) < 2:
        return None
    ranked = dict(sorted(odds.items(), key=lambda item: -item[1]))
    return ListedFeature(" ".join(name.split()), question.strip(), ranked, _odds(row.get("any", 0)))


def _odds(value: Any) -> float:
    """A probability; 0 for what is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return 0.0
    return float(value) if math.isfinite(value) and value > 0 else 0.0
