"""The 24 key points of PromptEnhancer (arXiv 2509.04545) in six groups, as yes/no questions that a
vision-language model answers, and how one finds out which of them a prompt raises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.functional.answers import answer_log_odds
from t2x.scoring.vlm import Vlm
from t2x.scoring.vlm_encoder import NO, YES, Question

__all__ = ["GROUPS", "KEY_POINTS", "OVERALL", "Finder", "KeyPoint", "VlmFinder"]

OVERALL = 'Does this figure show "{prompt}"? Please answer yes or no.'
_RAISED = 'Here is a request for a picture: "{prompt}". Does it {asks}? Please answer yes or no.'
_QUESTION = (
    'The picture was made for this request: "{prompt}". Look only at {looks}. Does the picture get '
    "that right? Please answer yes or no."
)


@dataclass(frozen=True)
class KeyPoint:
    """One point: its ``group``, what a request does that raises it, and what to look at."""

    group: str
    asks: str
    looks: str

    def question(self, prompt: str) -> Question:
        """The question about a picture of ``prompt``."""
        return Question(_QUESTION.format(prompt=prompt, looks=self.looks))


def _points(group: str, **rows: str) -> dict[str, KeyPoint]:
    pairs = {name: row.split(" | ") for name, row in rows.items()}
    return {
        name.replace("_", " "): KeyPoint(group, asks, looks)
        for name, (asks, looks) in pairs.items()
    }


# name = what a request does | what to look at; "whole" marks the points that also judge structure.
_WHOLE = ", and whether bodies and things are whole and of natural build"
KEY_POINTS: dict[str, KeyPoint] = {
    **_points(
        "language",
        negation="say that something is absent or is not so | what it rules out",
        attribute_consistency="give several things the same attribute | the attribute they share",
        pronoun_resolution="use pronouns for things named in it | what its pronouns refer to",
    ),
    **_points(
        "attributes",
        counting="name a number of at least three of something | how many there are of each thing",
        size="say how large something is | the sizes of things",
        material="say what something is made of | what things are made of",
        expression="describe a face or an emotion | the expressions of faces",
        artistic_style="name an artistic style or medium | the style of the picture",
    ),
    **_points(
        "actions",
        full_body_action=f"describe an action of a person's whole body | the pose{_WHOLE}",
        hand_action=f"describe what hands do | the hands{_WHOLE}",
        animal_action=f"describe what an animal does | what the animals do{_WHOLE}",
        contact_interaction=f"describe two things that touch | who touches what{_WHOLE}",
        interaction_without_contact="describe a gaze or the like between two | who turns to whom",
        state="describe a state or condition of something | the states that things are in",
    ),
    **_points(
        "relations",
        comparison="compare two things | how the compared things differ",
        composition="have something made of other things | what things are put together from",
        containment="have something inside something else | what is inside of what",
        similarity="have something look like another thing | whether the likeness is there",
        attribute_binding="describe several things differently | which thing has which attribute",
        layout="say where things are | where the things are",
    ),
    **_points(
        "knowledge",
        knowledge_application="call for knowledge of the world | what it takes knowledge to draw",
        counterfactual="ask for what can't be in reality | the part that is contrary to reality",
    ),
    **_points(
        "text",
        text_rendering="ask for written text | the spelling of the written text",
        text_layout="say where or how text is written | the place and look of the written text",
    ),
}
GROUPS: tuple[str, ...] = tuple(dict.fromkeys(p.group for p in KEY_POINTS.values()))

# A prompt to the key points that it raises, each with a question about the picture; a point may
# come several times, its answers are averaged.
Finder = Callable[[str], Sequence[tuple[str, Question]]]


class VlmFinder:
    """A :data:`Finder` that asks the model itself, by text alone; each prompt once.

    A point is raised if the odds of yes are at least ``threshold``.
    """

    def __init__(self, vlm: Vlm, *, threshold: float = 0.5, batch_size: int = 24) -> None:
        if vlm.is_encoder_decoder:
            raise T2XError(
                f"{vlm.key} can't be asked without a picture; give find=, a function from a prompt "
                "to its key points"
            )
        self.vlm = vlm
        self.threshold = threshold
        self.batch_size = batch_size
        self._found: dict[str, tuple[str, ...]] = {}

    def __call__(self, prompt: str) -> list[tuple[str, Question]]:
        """Key points of ``prompt`` with their questions."""
        if prompt not in self._found:
            odds = self._odds(prompt).sigmoid().tolist()
            raised = [n for n, p in zip(KEY_POINTS, odds, strict=True) if p >= self.threshold]
            self._found[prompt] = tuple(raised)
        return [(name, KEY_POINTS[name].question(prompt)) for name in self._found[prompt]]

    @torch.no_grad()
    def _odds(self, prompt: str) -> Tensor:
        texts = [
            self.vlm.chat(_RAISED.format(prompt=prompt, asks=p.asks), pictures=0)
            for p in KEY_POINTS.values()
        ]
        yes, no = self.vlm.spellings(YES), self.vlm.spellings(NO)
        starts = range(0, len(texts), self.batch_size)
        parts = [self.vlm.first_logits(texts[s : s + self.batch_size]) for s in starts]
        return answer_log_odds(torch.cat(parts), yes, no)
