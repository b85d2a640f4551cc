"""What became of the prompt, as HTML: both texts with the changed words marked, what the rewrite
had to keep, and the reasoning. Every text of a user or a model is escaped.
"""

from __future__ import annotations

import difflib
import re

from t2x.evaluation.html import escaped
from t2x.types import Check, Rewrite

__all__ = ["METHODS", "STATUS", "checks_html", "marked", "rewrite_html", "verdict"]

_WORD = re.compile(r"(\w+(?:['’-]\w+)*|[^\w\s]|^\s+)(\s*)")
_THINK = re.compile(r"<think>.*?(?:</think>|\Z)|</?answer>", re.DOTALL)
# What a rewrite owes the user's words; the other checks are about its form.
_KEEPS = {
    "things_kept": "every thing",
    "numbers_kept": "numbers",
    "colours_kept": "colours",
    "relations_kept": "places",
    "negation_kept": "what is ruled out",
    "names_kept": "names",
    "quotes_verbatim": "quoted text",
    "spans_intact": "syntax",
    "style_kept": "style",
    "scene_kept": "scene",
    "content_kept": "meaning",
    "nothing_added": "nothing invented",
    "language_kept": "language",
    "harmless": "harmless",
    "fits_budget": "read to its end",
    "original_fits_budget": "your words read to their end",
}
_FORM = {"completion": "a finished answer", "length": "not too long", "input": "readable words"}
_PLAIN = (  # reasons of checks in other words
    (re.compile(r"no closed answer block"), "its answer was not finished"),
    (re.compile(r"reasoning is not closed|cut off (inside its reasoning|before its end)"),
     "its answer was not finished"),
    (re.compile(r"(\S+) (\d+)/(\d+) tokens, cut: (.*?)(?=; |$)"),
     r"\1 does not read its end, \4 (\2 tokens, room for \3)"),
    (re.compile(r"tokenizer does"), "the model does"),
)  # fmt: skip
STATUS = {
    "accepted": ("Rewritten", "good"),
    "unchanged": ("Nothing to add", "plain"),
    "reverted": ("Not used", "warn"),
    "failed": ("No answer", "warn"),
}
METHODS = {  # of editing
    "flowedit": "Follow what changes in the words (FlowEdit)",
    "sdedit": "Draw again from part of the way (SDEdit)",
    "rewardflow": "Let rewards steer (RewardFlow)",
}


def marked(before: str, after: str) -> tuple[str, str]:
    """Give both texts as HTML: words that are only in the first inside ``<del>``, those that are
    only in the second inside ``<ins>``."""
    a, b = _words(before), _words(after)
    matcher = difflib.SequenceMatcher(
        None, [word.lower() for word, _ in a], [word.lower() for word, _ in b], autojunk=False
    )
    left, right = [], []
    for tag, i, j, m, n in matcher.get_opcodes():
        left.append(_run(a[i:j], "" if tag == "equal" else "del"))
        right.append(_run(b[m:n], "" if tag == "equal" else "ins"))
    return "".join(left), "".join(right)


def _words(text: str) -> list[tuple[str, str]]:
    """Words and signs, each with the space behind it; space before the first is its own word."""
    return [(word, space) for word, space in _WORD.findall(text)]


def _run(words: list[tuple[str, str]], mark: str) -> str:
    """Words in a row inside one mark, without the space behind the last."""
    if not words:
        return ""
    text = "".join(word + space for word, space in words)
    inside = text.rstrip()
    rest = escaped(text[len(inside) :])
    return f"<{mark}>{escaped(inside)}</{mark}>{rest}" if mark and inside else escaped(text)


def verdict(rewrite: Rewrite) -> str:
    """Say in plain words what was done with the rewrite, and why."""
    reasons = [_plain(check) for check in rewrite.checks if not check.passed]
    why = "; ".join(reasons)
    if rewrite.status == "reverted":
        return f"The rewrite broke what you asked for: {why}. Your own words are drawn."
    if rewrite.status == "failed":
        return f"The rewriter gave nothing that can be drawn: {why}. Your own words are drawn."
    if rewrite.status == "unchanged":
        return "The rewriter found nothing to add: your own words are drawn."
    noted = [_plain(check) for check in rewrite.checks if check.passed and check.reason]
    return "; ".join(noted)


def _label(check: Check) -> str:
    return _KEEPS.get(check.name) or _FORM.get(check.name) or check.name.replace("_", " ")


def _plain(check: Check) -> str:
    """Why a check came out as it did, without the terms of the trade."""
    reason = check.reason or _label(check)
    for pattern, said in _PLAIN:
        reason = pattern.sub(said, reason)
    return reason


def checks_html(checks: tuple[Check, ...]) -> str:
    """One tick for each thing that a rewrite must keep, a cross for what was broken; the checks of
    its form are counted."""
    shown, form = [], 0
    for check in checks:
        if check.passed and check.name not in _KEEPS:
            form += 1
            continue
        sign, kind, said = ("✓", "yes", "kept") if check.passed else ("✗", "no", "broken")
        label = _label(check)
        title = f' title="{escaped(_plain(check))}"' if check.reason else ""
        shown.append(
            f'<li class="{kind}"{title}><span aria-label="{said}">{sign}</span> '
            f"{escaped(label)}</li>"
        )
    if form:
        shown.append(f'<li class="form"><span aria-label="kept">✓</span> well formed ({form})</li>')
    return f'<ul class="checks" aria-label="What the rewrite keeps">{"".join(shown)}</ul>'


def rewrite_html(rewrite: Rewrite) -> str:
    """The panel of one rewrite; ``model_id`` "given" marks a text that the user wrote."""
    given = rewrite.model_id == "given"
    label, kind = ("Your own text", "plain") if given else STATUS[rewrite.status]
    before, after = marked(rewrite.original, rewrite.text)
    if not rewrite.changed:
        before = after = escaped(rewrite.original)
    sentence = verdict(rewrite)
    parts = [
        '<div class="t2x-words"><div class="texts">',
        f'<section><h3>Your words</h3><p class="text">{before}</p></section>',
        f'<section><h3>Drawn instead <span class="chip {kind}">{label}</span></h3>'
        f'<p class="text" id="rewrite-text">{after}</p>{_negative(rewrite)}</section>'
        if rewrite.changed
        else f'<section><h3>The rewrite <span class="chip {kind}">{label}</span></h3>'
        f'<p class="verdict">{escaped(sentence)}</p></section>',
        "</div>",
    ]
    if rewrite.changed and sentence:
        parts.append(f'<p class="verdict">{escaped(sentence)}</p>')
    if rewrite.checks:
        parts.append(checks_html(rewrite.checks))
    return "".join([*parts, _folded(rewrite), "</div>"])


def _negative(rewrite: Rewrite) -> str:
    if not rewrite.negative:
        return ""
    return f'<p class="negative">Must not show: {escaped(rewrite.negative)}</p>'


def _folded(rewrite: Rewrite) -> str:
    """The reasoning, and what was proposed where it was not used."""
    parts = []
    if rewrite.reasoning.strip():
        parts.append(
            f"<details><summary>Reasoning</summary><p>{escaped(rewrite.reasoning)}</p></details>"
        )
    proposed = _THINK.sub("", rewrite.raw).strip()
    if rewrite.status in ("reverted", "failed") and proposed:
        parts.append(
            f"<details><summary>What was proposed</summary><p>{escaped(proposed)}</p></details>"
        )
    return "".join(parts)
