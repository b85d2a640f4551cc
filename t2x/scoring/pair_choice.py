"""Which of two pictures shows a prompt better, asked of a vision-language model that sees both at
once (RL-VLM-F, Wang et al. 2024, arXiv 2402.03681, section 4.1).

    asked = choose(prompts, first, second, source="Qwen/Qwen2.5-VL-7B-Instruct")
    asked.labels           # 0 the first, 1 the second, -1 can't tell; for rl-vlm-f's fit

Two turns, as in the paper: the model sees the pair and writes what either picture shows and how
they differ for the goal; from that text alone it then answers 0, 1 or -1.

Differs from the paper: our own words; each pair is asked in both orders, since models favour a
place, and where the answers disagree nobody could tell. A model that reads one picture at a time
(emoji-vlm, encoder-decoders) scores the two by VQAScore's question instead, and ``how`` says so.
Not run on real weights.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.functional.preferences import choices
from t2x.registry import load_reward
from t2x.scoring.pairs import check_pairs, measurable
from t2x.scoring.vlm import Vlm, load_vlm
from t2x.world.weights import EMBEDDED

if TYPE_CHECKING:
    from t2x.types import Media

__all__ = ["COMPARE", "DECIDE", "PairChoices", "choose", "read_choice"]

log = logging.getLogger(__name__)

COMPARE = (
    "You see two pictures, the first and then the second. The goal is a picture of: {prompt}\n"
    "Say what the first picture shows, then what the second picture shows, then how the two differ "
    "with respect to the goal."
)
DECIDE = (
    "Two pictures were compared with respect to this goal, a picture of: {prompt}\n"
    "This was found: {analysis}\n"
    "Which picture fits the goal better? Answer with one number alone: 0 for the first, 1 for the "
    "second, -1 if there is no difference or the text does not tell."
)
_CHOICE = re.compile(r"[\s\"'`*(\[]*(-1|0|1)[\s\"'`*)\].]*")
_DECISION_TOKENS = 8


@dataclass(frozen=True)
class PairChoices:
    """``labels`` (N,) long: 0 the first picture, 1 the second, -1 nobody could tell.

    ``how``: "both pictures at once" or "one by one". ``analyses``: what the model wrote about each
    pair, in the given order and turned round (empty where it was not asked). Of the answers,
    ``unread`` were no choice; of the pairs, ``disagreed`` got different ones in the two orders.
    """

    labels: Tensor
    how: str
    analyses: tuple[tuple[str, ...], ...] = ()
    unread: int = 0
    disagreed: int = 0


def choose(
    prompts: Sequence[str],
    first: Media,
    second: Media,
    *,
    source: str | Path | tuple[Any, Any] = "emoji-vlm",
    at_once: bool | None = None,
    both_orders: bool = True,
    margin: float = 0.1,
    max_new_tokens: int = 256,
    max_prompt_tokens: int = 256,
    batch_size: int = 8,
) -> PairChoices:
    """Ask which of ``first[i]`` and ``second[i]`` shows ``prompts[i]`` better, of N pairs.

    ``source`` as in :func:`t2x.scoring.vlm.load_vlm`. ``at_once``: whether both pictures go into
    one question; by default wherever the model's template has places for two, but for embedded
    models, which were trained on one. One by one, a difference of P(yes) within ``margin`` is -1.
    Without ``both_orders`` each pair is asked once, as in the paper. Pairs with a blank prompt or
    pixels that are not finite are -1. Writes greedily: the same pairs give the same labels. Raises
    ``T2XError`` if ``at_once`` is asked of a model that takes one picture.
    """
    for media in (first, second):
        check_pairs(prompts, media, name="rl-vlm-f")
    vlm = load_vlm(source)
    if at_once is None:
        at_once = vlm.takes_pairs and source not in EMBEDDED
    if not at_once:
        reward = load_reward("vqa", source=source, max_prompt_tokens=max_prompt_tokens)
        with torch.no_grad():
            scores = [reward.score(prompts, media).cpu() for media in (first, second)]
        return PairChoices(choices(scores[0], scores[1], margin=margin), "one by one")
    if not vlm.takes_pairs:
        raise T2XError(f"{vlm.key} has no place for two pictures in one question; at_once=False")
    asker = _Asker(vlm, max_new_tokens, batch_size)
    good = (measurable(prompts, first) & measurable(prompts, second)).tolist()
    rows = [i for i, ok in enumerate(good) if ok]
    plain = vlm.fitted([prompts[i] for i in rows], max_prompt_tokens)
    pairs = [(_picture(first, i), _picture(second, i)) for i in rows]
    orders = [pairs, [(b, a) for a, b in pairs]] if both_orders else [pairs]
    found = [asker.ask(plain, order) for order in orders]
    return _merged(len(prompts), rows, found)


def read_choice(text: str) -> int | None:
    """0, 1 or -1 of an answer whose first line is that number alone; None for any other."""
    line = next(filter(None, map(str.strip, text.replace("\u2212", "-").splitlines())), "")
    found = _CHOICE.fullmatch(line)
    return int(found[1]) if found else None


class _Asker:
    def __init__(self, vlm: Vlm, max_new_tokens: int, batch_size: int) -> None:
        self.vlm, self.max_new_tokens, self.batch_size = vlm, max_new_tokens, batch_size

    def ask(
        self, prompts: Sequence[str], pairs: Sequence[tuple[Tensor, Tensor]]
    ) -> list[tuple[str, int | None]]:
        """What was written about each pair, and the choice made from it."""
        found: list[tuple[str, int | None]] = []
        for start in range(0, len(prompts), self.batch_size):
            rows = slice(start, start + self.batch_size)
            found += self._batch(prompts[rows], pairs[rows])
        return found

    def _batch(
        self, prompts: Sequence[str], pairs: Sequence[tuple[Tensor, Tensor]]
    ) -> list[tuple[str, int | None]]:
        vlm = self.vlm
        seen = [vlm.chat(COMPARE.replace("{prompt}", p), pictures=2) for p in prompts]
        analyses = vlm.write(seen, pairs, max_new_tokens=self.max_new_tokens)
        # Both are text: a prompt that holds the other's place must not be filled in.
        parts = DECIDE.partition("{analysis}")
        read = [
            vlm.chat(parts[0].replace("{prompt}", p) + vlm.plain(a) + parts[2], pictures=0)
            for p, a in zip(prompts, analyses, strict=True)
        ]
        answers = vlm.write(read, None, max_new_tokens=_DECISION_TOKENS)
        return [(a, read_choice(text)) for a, text in zip(analyses, answers, strict=True)]


def _merged(
    count: int, rows: Sequence[int], found: Sequence[Sequence[tuple[str, int | None]]]
) -> PairChoices:
    """Labels of the pairs ``rows`` out of ``count``, from answers in one order or in both."""
    labels = torch.full((count,), -1)
    analyses: list[tuple[str, ...]] = [()] * count
    unread = sum(choice is None for order in found for _, choice in order)
    disagreed = 0
    for i, asked in zip(rows, zip(*found, strict=True), strict=True):
        analyses[i] = tuple(text for text, _ in asked)
        told = [choice for _, choice in asked]
        if len(told) == 2:
            told[1] = {0: 1, 1: 0}.get(told[1], told[1]) if told[1] is not None else None
        disagreed += len(set(told)) > 1 and None not in told
        if len(set(told)) == 1 and told[0] is not None:
            labels[i] = told[0]
    if unread or disagreed:
        log.warning(
            "rl-vlm-f: %d of %d answers were no choice; %d of %d pairs depend on the order",
            unread,
            len(rows) * len(found),
            disagreed,
            len(rows),
        )
    return PairChoices(labels, "both pictures at once", tuple(analyses), unread, disagreed)


def _picture(media: Media, i: int) -> Tensor:
    return media[i].detach().reshape(media[i].shape[-3:])
