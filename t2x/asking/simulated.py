"""A user whose idea of the picture is known: answers questions in experiments and tests."""

from __future__ import annotations

import random
from collections.abc import Mapping

from t2x.asking.elicitation import Elicitation
from t2x.asking.records import DOESNT_MATTER, SOMETHING_ELSE, Question
from t2x.errors import T2XError

__all__ = ["SimulatedUser", "converse"]


class SimulatedUser:
    """Answers by hidden values (``Intent.values``; of a scene ``emoji_world.scene_values``).

    "Doesn't matter" where the hidden values are silent, "something else" where the row does not
    show what is hidden. With odds of ``noise``, in [0, 1], it gives one of the other answers, drawn
    alike, as a slip. The same seed, question number and feature slip alike in every arm.
    """

    def __init__(
        self, hidden: Mapping[str, str | None], *, noise: float = 0.0, seed: int = 0
    ) -> None:
        if not 0 <= noise <= 1:
            raise T2XError(f"noise is {noise}; give a probability from 0 to 1")
        self.hidden, self.noise, self.seed = hidden, noise, seed

    def answer(self, question: Question) -> str:
        """One of ``question.answers``."""
        rng = random.Random(f"slip {self.seed} {question.number} {question.feature.key}")
        told = self._truth(question)
        if rng.random() < self.noise:
            return rng.choice([label for label in question.answers if label != told])
        return told

    def _truth(self, question: Question) -> str:
        value = self.hidden.get(question.feature.key)
        if value is None:
            return DOESNT_MATTER
        for option in question.feature.options:
            if value in option.values:
                return option.label
        return SOMETHING_ELSE if value in question.feature.rest else DOESNT_MATTER


def converse(asking: Elicitation, user: SimulatedUser, questions: int) -> list[str]:
    """The prompts after 0 to ``questions`` answers; the last one stays where nothing is left to
    ask."""
    prompts = [asking.prompt()]
    for _ in range(questions):
        if (question := asking.next_question()) is not None:
            asking.answer(user.answer(question))
        prompts.append(asking.prompt())
    return prompts
