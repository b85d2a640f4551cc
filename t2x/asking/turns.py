"""One turn of a conversation as a job of the studio: an answer goes in, the next row of pictures
comes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from t2x.asking.choosing import DEFAULT_STRATEGY
from t2x.asking.elicitation import Elicitation
from t2x.asking.records import Subject
from t2x.asking.subjects import is_embedded

if TYPE_CHECKING:
    from PIL.Image import Image

    from t2x.studio.work import Work
    from t2x.types import Generator, Media

__all__ = ["BACK", "Turn", "first_turn", "middles", "take_turn"]

BACK = "<back>"  # no label of an answer
_SHOWN = 320  # pixels of a picture in the row; small ones are enlarged
_BATCH = 8  # pictures between two looks at whether the job was stopped


@dataclass(frozen=True)
class Turn:
    """Where a conversation stands.

    ``data`` is that of ``Elicitation.to_dict``; ``settled`` has each question with its answer;
    ``prompt`` says what is known. ``question`` is "" where nothing is left to ask (or nothing was
    asked yet); else ``pictures`` has one for each of ``options``, and ``answers`` all that can be
    answered.
    """

    data: Mapping[str, Any]
    prompt: str
    settled: tuple[tuple[str, str], ...] = ()
    question: str = ""
    options: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    pictures: tuple[Image, ...] = field(default=(), repr=False)
    subject: Subject | None = field(default=None, repr=False)


def first_turn(prompt: str, seed: int = 0) -> Turn:
    """A conversation in which nothing was asked yet."""
    data = {"prompt": prompt, "seed": seed, "influences": {}, "answers": []}
    return Turn({**data, "strategy": DEFAULT_STRATEGY}, prompt)


def take_turn(work: Work, turn: Turn, answer: str | None, *, influences: dict[str, float]) -> Turn:
    """Answer what ``turn`` asks, go ``BACK`` one question, or with None begin; then draw the
    question that comes next.

    ``influences`` are those that were measured before with this generator, and are added to: they
    cost a few pictures once. Raises T2XError for what can't be asked or is no answer.
    """
    generator = _Told(work, work.models.generator())
    known = {**turn.data, "influences": {**influences, **turn.data["influences"]}}
    options: dict[str, Any] = {"generator": generator, "subject": turn.subject}
    if turn.subject is None and not is_embedded(generator):
        options["rewriter"] = _rewriter(work)
    asking = Elicitation.from_dict(known, **options)
    if answer == BACK:
        asking.back()
    elif answer is not None:
        asking.answer(answer)
    question = asking.next_question()
    influences.update(asking.influences)
    settled = tuple(
        (feature.question, given.label)
        for feature, given in zip(asking.asked, asking.answers, strict=True)
    )
    here = Turn(asking.to_dict(), asking.words(), settled, subject=asking.subject)
    if question is None:
        return here
    from t2x.evaluation.picture import fitted
    from t2x.media import to_pil

    assert question.pictures is not None
    shown = middles(to_pil(question.pictures), len(question.options))
    return replace(
        here,
        question=question.text,
        options=question.options,
        answers=question.answers,
        pictures=tuple(fitted(picture, _SHOWN) for picture in shown),
    )


def middles(frames: Sequence[Image], count: int) -> Sequence[Image]:
    """The middle frame of each of ``count`` videos; pictures as they are."""
    each = len(frames) // count
    return [frames[at * each + each // 2] for at in range(count)]


def _rewriter(work: Work) -> Any:
    """The studio's rewriter, which may propose what to ask; None where it can't be loaded."""
    from t2x.studio.work import ModelMissingError

    try:
        return work.models.rewriter()
    except ModelMissingError as error:
        work.note(str(error))
        return None


class _Told:
    """The studio's generator; tells how far it is, and stops where the user stops the job."""

    def __init__(self, work: Work, generator: Generator) -> None:
        self._work, self._generator = work, generator
        self.model_id, self.modality = generator.model_id, generator.modality

    def generate(
        self,
        prompts: Sequence[str],
        *,
        negative: Sequence[str] | None = None,
        seeds: Sequence[int],
        size: tuple[int, int] | None = None,
        num_frames: int | None = None,
    ) -> Media:
        """As the generator does, in small batches."""
        import torch

        from t2x.studio.drawing import denoisers

        found: list[Any] = []
        with self._work.stoppable(*denoisers(self._generator)):
            for start in range(0, len(prompts), _BATCH):
                self._work.progress("drawing what to ask", start, len(prompts))
                part = slice(start, start + _BATCH)
                found += self._generator.generate(
                    prompts[part],
                    negative=None if negative is None else negative[part],
                    seeds=seeds[part],
                    size=size,
                    num_frames=num_frames,
                )
        alike = len({picture.shape for picture in found}) == 1
        return torch.stack(found) if alike and found[0].ndim != 4 else found
