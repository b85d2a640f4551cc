"""One conversation: questions in, answers out, a prompt at the end."""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from t2x.asking.choosing import DEFAULT_STRATEGY, Candidate, candidates, check_strategy, choose
from t2x.asking.influence import MeasuredInfluence
from t2x.asking.records import Answer, Feature, Known, Question
from t2x.asking.subjects import find_subject
from t2x.errors import T2XError

if TYPE_CHECKING:
    from t2x.asking.records import Subject
    from t2x.rewriters.guarded import Guarded
    from t2x.types import Generator, Rewrite, Rewriter

__all__ = ["COMPARED", "Elicitation"]

log = logging.getLogger(__name__)
# Features of unknown influence that are drawn for one question, and options of each: two tell what
# a feature changes, and more would keep the user waiting.
_SHORTLIST = 3
COMPARED = 2


class Elicitation:
    """Finds out what a user means by asking about pictures (Adaptive Prompt Elicitation, arXiv
    2602.04713).

        asking = t2x.Elicitation("an animal and a bus", generator="emoji-flow-turbo")
        while (question := asking.next_question()) is not None:
            asking.answer(question.options[0])
        asking.prompt()

    Args:
        prompt: the user's own words.
        generator: what draws the pictures of a question, by name or loaded; None asks in words
            alone, and no influence is measured.
        rewriter: writes the final prompt, guarded, and, if it is a chat model, proposes what to ask
            about. The emoji world needs none.
        subject: what can be asked; None is found from prompt, generator and rewriter.
        strategy: how a question is chosen, one of ``t2x.asking.choosing.STRATEGIES``.
        influence: of families, if it is known; without, it is measured where there is a generator.
        seed: of all choices and pictures.

    Differs from the paper: influence is measured and not guessed, probabilities are those of a set
    of intents and not stated by a model, and answers can be taken back. The same prompt, seed and
    answers give the same questions, so that a conversation is its answers: ``to_dict``,
    ``from_dict``.
    """

    def __init__(
        self,
        prompt: str,
        *,
        generator: str | Generator | None = None,
        rewriter: str | Rewriter | None = None,
        subject: Subject | None = None,
        strategy: str = DEFAULT_STRATEGY,
        influence: MeasuredInfluence | Mapping[str, float] | None = None,
        seed: int = 0,
    ) -> None:
        if not prompt.strip():
            raise T2XError("the prompt is empty; say in a word or two what the picture should show")
        check_strategy(strategy)
        self.original, self.strategy, self.seed = prompt, strategy, seed
        self.generator = _loaded_generator(generator)
        self._rewriter = _loaded_guard(rewriter, self.generator)
        self.subject = subject or find_subject(
            prompt, generator=self.generator, rewriter=self._rewriter, seed=seed
        )
        self._pictures = _pictures(self.generator, influence)
        self._influences = influence if isinstance(influence, Mapping) else {}
        self._steps: list[tuple[Feature, str, Known]] = []  # asked, answered, known before
        self._known = Known()
        self._question: Question | None = None
        self._again = ""  # the feature of a question that was shown before: it comes again

    # ---- the conversation ------------------------------------------------------------------------

    @property
    def answers(self) -> tuple[Answer, ...]:
        """What was answered so far."""
        return tuple(Answer(feature.key, label) for feature, label, _ in self._steps)

    @property
    def asked(self) -> tuple[Feature, ...]:
        """What was asked so far."""
        return tuple(feature for feature, _, _ in self._steps)

    @property
    def influences(self) -> Mapping[str, float]:
        """Influence of each family that is known, in units of what seeds change."""
        return self._influences if self._pictures is None else self._pictures.known

    def next_question(self) -> Question | None:
        """The question that the strategy chooses; None if nothing is left to ask.

        The same one until it is answered.
        """
        if self._question is None and (found := self._candidates()):
            number = len(self._steps)
            if shown := [c for c in found if c.feature.key == self._again]:
                found = shown
            elif self.strategy == "gain":
                found = self._measured(found)
            rng = random.Random(f"question {self.seed} {number} {self.original}")
            chosen = choose(
                self.strategy,
                found,
                influences=self.influences,
                order=self.subject.order,
                rng=rng,
            )
            self._question = self._drawn(chosen, number)
        return self._question

    def answer(self, choice: str | int) -> None:
        """Answer the question: a label of its ``answers``, or a number into them.

        Raises T2XError if there is no question, or for what is no answer to it.
        """
        question = self.next_question()
        if question is None:
            raise T2XError("there is no question left to answer; `prompt()` gives the result")
        label = _label(question, choice)
        feature = question.feature
        self._steps.append((feature, label, self._known))
        self._known = self._known.after(feature, label)
        self._question, self._again = None, ""

    def back(self) -> None:
        """Take the last answer back: its question comes again. Raises T2XError if there is none."""
        if not self._steps:
            raise T2XError("there is no answer to take back")
        feature, _, self._known = self._steps.pop()
        self._question, self._again = None, feature.key

    def prompt(self) -> str:
        """The prompt that the answers make, as the generator should read it."""
        return self.rewrite().text

    def words(self) -> str:
        """What is known, before any rewriter."""
        return self.subject.text(self._known)

    def rewrite(self) -> Rewrite:
        """The same with how it came about: with a rewriter, its proposal after the guard's
        checks against the user's words and the answers."""
        from t2x.types import Rewrite

        text = self.words()
        if self._rewriter is not None and getattr(self.subject, "needs_rewriter", False):
            [[found]] = self._rewriter.rewrite([text], seed=self.seed)
            return replace(found, original=self.original)
        status: Any = "unchanged" if text == self.original else "accepted"
        return Rewrite(self.original, text, status=status, seed=self.seed, model_id="asking")

    def draw(self) -> Any:
        """The picture of the prompt as it is, (1, 3, H, W) in [0, 1]; needs a generator."""
        if self._pictures is None:
            raise T2XError("there is no generator to draw with; give generator='emoji-flow'")
        return self._pictures.draw([self.prompt()], [self.seed])

    # ---- resuming --------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """All that it takes to go on later, as plain data."""
        return {
            "prompt": self.original,
            "seed": self.seed,
            "strategy": self.strategy,
            "influences": dict(self.influences),
            "answers": [[answer.key, answer.label] for answer in self.answers],
            "question": self._again if self._question is None else self._question.feature.key,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], **options: Any) -> Elicitation:
        """Go on from ``to_dict``; ``options`` are generator, rewriter and subject, as before.

        Raises T2XError if the answers do not fit, as after another version or another rewriter.
        """
        asking = cls(data["prompt"], strategy=data["strategy"], seed=data["seed"], **options)
        if asking._pictures is not None:
            asking._pictures.known.update(data["influences"])
        else:
            asking._influences = dict(data["influences"])
        for key, label in data["answers"]:
            asking._replay(key, label)
        asking._again = data.get("question", "")
        return asking

    def _replay(self, key: str, label: str) -> None:
        intents = self.subject.intents(self._known)
        open_now = {f.key: f for f in self.subject.features(self._known, intents)}
        if key not in open_now or label not in open_now[key].answers:
            raise T2XError(
                f"the answer {label!r} to {key!r} fits no question that is open here; begin anew"
            )
        self._steps.append((open_now[key], label, self._known))
        self._known = self._known.after(open_now[key], label)

    # ---- questions -------------------------------------------------------------------------------

    def _candidates(self) -> list[Candidate]:
        intents = self.subject.intents(self._known)
        if not intents:
            return []
        return candidates(self.subject.features(self._known, intents), intents)

    def _measured(self, found: list[Candidate]) -> list[Candidate]:
        """Measure families that are not known yet, of the features that tell most; the others wait
        for another question."""
        if self._pictures is None:
            return found
        known = self._pictures.known
        new: dict[str, Candidate] = {}
        for candidate in found:
            if candidate.feature.family not in known and len(new) < _SHORTLIST:
                new.setdefault(candidate.feature.family, candidate)
        texts = {family: self._texts(c.feature)[:COMPARED] for family, c in new.items()}
        self._pictures.measure(texts, self.seed)
        return [c for c in found if c.feature.family in known]

    def _texts(self, feature: Feature) -> list[str]:
        """What is drawn for the options: the prompt as it is, but for this one feature."""
        return [
            self.subject.text(self._known.after(feature, option.label))
            for option in feature.options
        ]

    def _drawn(self, chosen: Candidate, number: int) -> Question:
        feature = chosen.feature
        texts = self._texts(feature)
        pictures = None
        if self._pictures is not None:
            pictures = self._pictures.draw(texts, [self.seed] * len(texts))
            self._pictures.forget()
        influence = self.influences.get(feature.family, float("nan"))
        return Question(
            number,
            feature,
            chosen.probabilities,
            chosen.gain,
            influence,
            tuple(texts),
            self.seed,
            pictures,
        )


def _label(question: Question, choice: str | int) -> str:
    labels: Sequence[str] = question.answers
    if isinstance(choice, int) and 0 <= choice < len(labels):
        return labels[choice]
    if isinstance(choice, str):
        for label in labels:
            if label.casefold() == choice.strip().casefold():
                return label
    allowed = ", ".join(labels)
    raise T2XError(f"{choice!r} is no answer to {question.text!r}; allowed: {allowed}")


def _loaded_generator(generator: str | Generator | None) -> Generator | None:
    if generator is None:
        return None
    from t2x.registry import load_generator

    return load_generator(generator)


def _loaded_guard(rewriter: str | Rewriter | None, generator: Generator | None) -> Guarded | None:
    if rewriter is None:
        return None
    from t2x.rewriters.loading import load_guard

    return load_guard(rewriter, generator=generator)


def _pictures(
    generator: Generator | None, influence: MeasuredInfluence | Mapping[str, float] | None
) -> MeasuredInfluence | None:
    if isinstance(influence, MeasuredInfluence):
        return influence
    return None if generator is None else MeasuredInfluence(generator, known=influence)
