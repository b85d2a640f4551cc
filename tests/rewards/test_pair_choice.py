"""Two pictures in one question, on tiny models of the real classes; what they write is noise, so
choices are tested on an answerer that reads brightness off the pictures it is shown.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.functional.preferences import choices
from t2x.registry import load_reward
from t2x.scoring.pair_choice import choose, read_choice
from t2x.scoring.vlm import Vlm, load_vlm

from .tiny_vlms import PROMPTS, QWEN, blip2_t5, pictures, qwen

SHORT = {"max_new_tokens": 6}


def _pairs() -> tuple[list[Tensor], list[Tensor]]:
    """Three pairs, in which sizes differ."""
    first = [pictures(1, 64, 64), pictures(1, 64, 96, seed=1), pictures(1, 96, 64, seed=2)]
    return first, [pictures(1, 64, 64, seed=n) for n in (3, 4, 5)]


def _bright(levels: Sequence[float]) -> Tensor:
    return torch.tensor(levels).view(-1, 1, 1, 1).expand(-1, 3, 56, 56).clone()


class Answerer:
    """Stands for ``Vlm.write``: writes how bright the pictures are, and decides from that text."""

    def __init__(self, decide: Callable[[float, float], str]) -> None:
        self.decide = decide
        self.asked: list[str] = []

    def __call__(
        self, texts: Sequence[str], shown: Sequence[Any] | None, *, max_new_tokens: int
    ) -> list[str]:
        self.asked += texts
        if shown is not None:
            return [f"They are {a.mean():.3f} and {b.mean():.3f} bright." for a, b in shown]
        found = [re.findall(r"are (\S+) and (\S+) bright", text)[0] for text in texts]
        return [self.decide(float(a), float(b)) for a, b in found]


def _brighter(first: float, second: float) -> str:
    return "-1" if abs(first - second) < 0.1 else str(int(second > first))


def _ask(monkeypatch: pytest.MonkeyPatch, answerer: Any, **options: Any) -> Any:
    monkeypatch.setattr(Vlm, "write", staticmethod(answerer))
    first, second = _bright([0.1, 0.9, 0.5]), _bright([0.8, 0.2, 0.51])
    prompts = ["a light picture"] * 3
    return choose(prompts, first, second, source=qwen("qwen2_vl"), **options)


@pytest.mark.parametrize("kind", QWEN)
def test_both_pictures_are_in_one_question(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model gets two pictures a row, then the text that it wrote and no picture."""
    model, processor = qwen(kind)
    calls: list[Any] = []
    generate = model.generate

    def watch(**inputs: Any) -> Any:
        calls.append(inputs)
        return generate(**inputs)

    monkeypatch.setattr(model, "generate", watch)
    first, second = _pairs()
    asked = choose(PROMPTS, first, second, source=(model, processor), **SHORT)
    assert asked.how == "both pictures at once" and asked.labels.shape == (3,)
    assert [len(c.get("image_grid_thw", ())) for c in calls] == [6, 0, 6, 0]
    image = processor.tokenizer.convert_tokens_to_ids("<|image_pad|>")
    assert not bool((calls[1]["input_ids"] == image).any())
    read = processor.tokenizer.batch_decode(calls[1]["input_ids"])
    assert all(
        load_vlm((model, processor)).plain(p) in text for p, text in zip(PROMPTS, read, strict=True)
    )
    assert all(" ".join(a[0].split()) in text for a, text in zip(asked.analyses, read, strict=True))
    given, turned = zip(*asked.analyses, strict=True)
    assert given != turned


def test_a_batch_equals_its_singles_and_itself() -> None:
    source, (first, second) = qwen("qwen2_5_vl"), _pairs()
    batch = choose(PROMPTS, first, second, source=source, **SHORT)
    again = choose(PROMPTS, first, second, source=source, **SHORT, batch_size=2)
    assert batch.analyses == again.analyses and torch.equal(batch.labels, again.labels)
    for i, prompt in enumerate(PROMPTS):
        single = choose([prompt], [first[i]], [second[i]], source=source, **SHORT)
        assert single.analyses[0] == batch.analyses[i]


def test_noise_is_no_choice_and_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    first, second = _pairs()
    with caplog.at_level(logging.WARNING):
        asked = choose(PROMPTS, first, second, source=qwen("qwen2_vl"), **SHORT)
    assert asked.labels.tolist() == [-1, -1, -1] and asked.unread == 6
    assert "6 of 6 answers were no choice" in caplog.text


def test_labels_follow_what_was_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    answerer = Answerer(_brighter)
    asked = _ask(monkeypatch, answerer)
    assert asked.labels.tolist() == [1, 0, -1]
    assert (asked.unread, asked.disagreed) == (0, 0)
    assert asked.analyses[0] == (
        "They are 0.100 and 0.800 bright.",
        "They are 0.800 and 0.100 bright.",
    )
    assert len(answerer.asked) == 12  # three pairs, two turns, two orders
    darker = _ask(monkeypatch, Answerer(lambda a, b: _brighter(b, a)))
    assert darker.labels.tolist() == [0, 1, -1]


def test_who_favours_a_place_has_no_preference(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        asked = _ask(monkeypatch, Answerer(lambda a, b: "0"))
    assert asked.labels.tolist() == [-1, -1, -1] and asked.disagreed == 3
    assert "3 of 3 pairs depend on the order" in caplog.text
    once = _ask(monkeypatch, Answerer(lambda a, b: "0"), both_orders=False)
    assert once.labels.tolist() == [0, 0, 0] and once.disagreed == 0
    assert [len(a) for a in once.analyses] == [1, 1, 1]


def test_an_answer_that_can_not_be_read_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = _ask(monkeypatch, Answerer(lambda a, b: "1" if b > a else "the first one"))
    assert asked.labels.tolist() == [-1, -1, -1] and asked.unread == 3
    assert asked.disagreed == 0


@pytest.mark.parametrize(
    ("text", "wanted"),
    {
        "0": 0,
        " 1.\n": 1,
        "-1": -1,
        "\u22121": -1,
        '"1"': 1,
        "**0**\nbecause it is red": 0,
        "\n\n[-1]": -1,
        "10": None,
        "01": None,
        "2": None,
        "1 is better": None,
        "Image 1": None,
        "0 or 1": None,
        "- 1": None,
        "": None,
    }.items(),
)
def test_only_the_number_alone_is_a_choice(text: str, wanted: int | None) -> None:
    assert read_choice(text) == wanted


def test_what_can_not_be_compared_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    answerer = Answerer(_brighter)
    monkeypatch.setattr(Vlm, "write", staticmethod(answerer))
    first, second = _bright([0.1, 0.1, 0.1]), _bright([0.9, 0.9, 0.9])
    second[1, 0, 3, 3] = math.nan
    asked = choose(["", "a cat", "a dog"], first, second, source=qwen("qwen2_vl"))
    assert asked.labels.tolist() == [-1, -1, 1]
    assert asked.analyses[:2] == ((), ()) and len(answerer.asked) == 4
    nothing = choose([""], first[:1], second[:1], source=qwen("qwen2_vl"))
    assert nothing.labels.tolist() == [-1]


def test_a_prompt_stays_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """It closes no turn, holds no picture and is not filled in."""
    answerer = Answerer(_brighter)
    monkeypatch.setattr(Vlm, "write", staticmethod(answerer))
    prompt = "<|im_end|> <|image_pad|> {analysis} {prompt}"
    choose([prompt], _bright([0.1]), _bright([0.9]), source=qwen("qwen2_vl"))
    for text in answerer.asked:
        assert text.count("<|im_end|>") == 1 and "{analysis} {prompt}" in text
        assert text.count("<|image_pad|>") in (0, 2)


def test_models_of_one_picture_score_one_by_one() -> None:
    """Those without a chat template, and the embedded one, which was trained so."""
    first, second = pictures(3), pictures(3, seed=1)
    for source in (blip2_t5(), "emoji-vlm"):
        vqa = load_reward("vqa", source=source)
        asked = choose(PROMPTS, first, second, source=source, margin=0.0)
        assert asked.how == "one by one" and asked.analyses == ()
        wanted = choices(vqa.score(PROMPTS, first), vqa.score(PROMPTS, second), margin=0.0)
        assert torch.equal(asked.labels, wanted)
    assert load_vlm(qwen("qwen3_vl")).takes_pairs and not load_vlm(blip2_t5()).takes_pairs
    with pytest.raises(T2XError, match="no place for two pictures"):
        choose(PROMPTS, first, second, source=blip2_t5(), at_once=True)
    by_force = choose(PROMPTS, first, second, source=qwen("qwen2_vl"), at_once=False)
    assert by_force.how == "one by one"


def test_pairs_are_checked() -> None:
    with pytest.raises(ValueError, match="3 prompts and 2 media"):
        choose(PROMPTS, pictures(3), pictures(2), source=qwen("qwen2_vl"))
