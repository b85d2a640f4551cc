"""Turns of a conversation as jobs of the studio."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from t2x.asking.turns import BACK, Turn, first_turn, take_turn
from t2x.errors import T2XError
from t2x.studio.events import Event, Progress
from t2x.studio.work import ModelMissingError, Stopped, Work


class Painter:
    """Draws pictures that hang on text and seed."""

    model_id, modality = "painter", "image"

    def generate(self, prompts: Any, *, seeds: Any, **_: Any) -> torch.Tensor:
        marks = [hash(f"{p} {s}") % 2**31 for p, s in zip(prompts, seeds, strict=True)]
        rows = [torch.rand(3, 8, 8, generator=torch.Generator().manual_seed(m)) for m in marks]
        return torch.stack(rows)


def _missing() -> Any:
    raise ModelMissingError("there is no rewriter here")


@pytest.fixture
def told() -> list[Event]:
    return []


@pytest.fixture
def work(told: list[Event]) -> Work:
    models: Any = SimpleNamespace(generator=Painter, rewriter=_missing)
    return Work(models, user="ada", tell=told.append, stop=threading.Event())


def test_a_turn_asks_and_the_next_one_answers(work: Work, told: list[Event]) -> None:
    influences: dict[str, float] = {}
    one = take_turn(work, first_turn("a car"), None, influences=influences)
    assert one.question and len(one.pictures) == len(one.options) >= 2
    assert min(one.pictures[0].size) >= 256
    assert one.prompt == "a car" and one.settled == () and not influences  # of gain alone
    assert any(isinstance(event, Progress) for event in told)
    two = take_turn(work, one, one.options[0], influences=influences)
    assert two.settled == ((one.question, one.options[0]),)
    assert two.prompt != "a car" and two.question != one.question
    back = take_turn(work, two, BACK, influences=influences)
    assert (back.question, back.prompt, back.settled) == (one.question, "a car", ())
    assert work.told.notes == ["there is no rewriter here"]


def test_at_the_end_there_is_no_question(work: Work) -> None:
    turn = take_turn(work, first_turn("eine Katze auf dem Sofa"), None, influences={})
    assert turn == Turn(turn.data, "eine Katze auf dem Sofa", subject=turn.subject)


def test_what_is_no_answer_is_said(work: Work) -> None:
    turn = take_turn(work, first_turn("a car"), None, influences={})
    with pytest.raises(T2XError, match="is no answer"):
        take_turn(work, turn, "castle", influences={})


def test_a_stopped_job_draws_no_more(told: list[Event]) -> None:
    stop = threading.Event()
    stop.set()
    models: Any = SimpleNamespace(generator=Painter, rewriter=_missing)
    with pytest.raises(Stopped):
        take_turn(
            Work(models, user="ada", tell=told.append, stop=stop),
            first_turn("a car"),
            None,
            influences={},
        )
