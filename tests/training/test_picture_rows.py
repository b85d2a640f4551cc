"""Rows with pictures from files and from scene truth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from t2x.errors import T2XError
from t2x.media import save_png, to_pil
from t2x.scoring.key_points import KEY_POINTS
from t2x.scoring.vlm_encoder import Question
from t2x.training.answers import AnswerCollator, answer_odds, load_trainable_vlm
from t2x.training.picture_rows import AnsweredQuestion, load_pairs, load_questions
from t2x.world.key_points import true_answer
from t2x.world.prompts import split_of
from t2x.world.render import Placed

RED, BLUE = torch.zeros(3, 8, 8), torch.zeros(3, 8, 8)
RED[0], BLUE[2] = 1.0, 1.0


def write(path: Path, *rows: dict[str, Any]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.mark.extra("train")
def test_pictures_of_a_file_lie_beside_it(tmp_path: Path) -> None:
    save_png(RED, tmp_path / "pictures" / "red.png")
    save_png(BLUE, tmp_path / "pictures" / "blue.png")
    row = {"chosen": "pictures/red.png", "rejected": "pictures/blue.png"}
    rows = load_pairs(write(tmp_path / "a.jsonl", {"original_prompt": "red", **row}))
    assert len(rows) == 1
    assert rows[0].prompt == "red"
    assert torch.equal(rows[0].chosen, RED)
    assert torch.equal(rows[0].rejected, BLUE)
    with pytest.raises(IndexError):
        rows[1]


@pytest.mark.extra("train")
def test_pictures_of_a_parquet_file_lie_inside(tmp_path: Path) -> None:
    from datasets import Dataset, Features, Image, Value

    image = to_pil(RED[None])[0]
    features = Features(
        original_prompt=Value("string"), picture=Image(), question=Value("string"),
        answer=Value("string"),
    )  # fmt: skip
    values = {"original_prompt": ["a"], "picture": [image], "question": ["Red?"], "answer": ["yes"]}
    Dataset.from_dict(values, features=features).to_parquet(str(tmp_path / "a.parquet"))
    [row] = [load_questions(str(tmp_path / "a.parquet"))[0]]
    assert row.picture is not None
    assert torch.equal(row.picture, RED)
    assert row.right is True


@pytest.mark.extra("train")
def test_answers_of_a_file(tmp_path: Path) -> None:
    save_png(RED, tmp_path / "red.png")
    base = {"original_prompt": "two cats", "picture": "red.png"}
    path = write(
        tmp_path / "a.jsonl",
        {**base, "point": "counting", "answer": "No"},
        {**base, "question": "How many?", "answer": "two", "wanted": ["two"], "against": ["one"]},
        {**base, "question": "How many?", "answer": "six", "wanted": ["two"], "against": ["one"]},
        {**base, "point": "overall", "answer": "yes"},
        {**base, "point": "taste", "answer": "yes"},
    )
    rows = load_questions(path)
    assert rows[0].question.text == KEY_POINTS["counting"].question("two cats").text
    assert [rows[i].right for i in range(4)] == [False, True, None, True]
    with pytest.raises(T2XError, match="point is 'taste'; allowed: negation"):
        rows[4]


@pytest.mark.extra("train")
@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("world:preferences?n=0", "n of at least 1"),
        ("world:preferences?n=x", "whole numbers"),
        ("world:preferences?judge=1", "unknown judge"),
    ],
)
def test_bad_sources_are_refused(source: str, message: str) -> None:
    with pytest.raises(T2XError, match=message):
        load_pairs(source)


@pytest.mark.extra("train")
def test_a_file_without_a_column_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", {"original_prompt": "a", "chosen": "x.png"})
    with pytest.raises(T2XError, match="no column rejected"):
        load_pairs(path)
    path = write(tmp_path / "b.jsonl", {"original_prompt": "a", "chosen": 3, "rejected": 4})
    with pytest.raises(T2XError, match="got int"):
        load_pairs(path)[0]


def test_world_rows_are_the_same_every_time_and_fresh_ones_are_others() -> None:
    first, again = (load_pairs("world:preferences?n=3&seed=2&redrawn=false") for _ in range(2))
    assert torch.equal(first[2].chosen, again[2].chosen)
    assert load_pairs("world:preferences?n=3&seed=2&fresh=true")[2].prompt != first[2].prompt
    rows = load_questions("world:key-points?n=60&redrawn=false")
    assert len(load_questions("world:key-points?n=60&redrawn=false", limit=5)) == 5
    asked = [rows[i] for i in range(60)]
    assert all(row.right is not None for row in asked)
    assert 10 < sum(bool(row.right) for row in asked) < 50
    assert {"counting", "overall"} <= {row.point for row in asked}
    pairs = [load_pairs("world:preferences?n=20&redrawn=false")[i] for i in range(20)]
    assert {split_of(pair.prompt) for pair in pairs} == {"train"}


def test_some_spoilt_pictures_went_through_the_generator() -> None:
    plain, redrawn = (
        load_questions(f"world:key-points?n=12&redrawn={given}") for given in ("false", "true")
    )
    same = []
    for i in range(12):
        one, other = plain[i], redrawn[i]
        assert one.picture is not None
        assert other.picture is not None
        assert (one.question, one.answer) == (other.question, other.answer)
        assert 0 <= float(other.picture.min()) <= float(other.picture.max()) <= 1
        assert torch.equal(other.picture, redrawn[i].picture)
        same.append(torch.equal(one.picture, other.picture))
    assert 6 <= sum(same) < 12


CATS = [Placed("cat", "red", 10, 30, 12, "left"), Placed("cat", None, 30, 30, 12, "center")]
DOG = Placed("dog", None, 54, 30, 12, "right")


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Is there a cat?", "yes"),
        ("Is there an elephant?", "no"),
        ("Is there a red cat?", "yes"),
        ("Is there a blue dog?", "no"),
        ("How many cats?", "two"),
        ("How many buses?", "zero"),
        ("Is the cat to the left of the dog?", "yes"),
        ("Is the dog to the left of the cat?", "no"),
        ("Is the cat above the dog?", None),  # level
        ("Is the cat below the bus?", "no"),
    ],
)
def test_true_answers(question: str, answer: str | None) -> None:
    assert true_answer(question, [*CATS, DOG]) == answer


def test_other_questions_have_no_true_answer() -> None:
    with pytest.raises(ValueError, match="no question of this world"):
        true_answer("Is it pretty?", [DOG])


def test_labels_are_the_answer_alone() -> None:
    vlm = load_trainable_vlm("emoji-vlm")
    rows = [
        AnsweredQuestion(torch.rand(3, 64, 64), Question("How many cats?"), "two"),
        AnsweredQuestion(None, Question('In plain words, what is "a pair of cats"?'), "two cats"),
    ]
    batch = AnswerCollator(vlm)(rows)
    said = [vlm.tokenizer.decode(row[row >= 0]) for row in batch["labels"]]
    assert said == ["two<|end|>", "two cats<|end|>"]
    assert batch["pixel_values"].shape[0] == 1
    # A row's loss does not depend on what stands beside it.
    alone = AnswerCollator(vlm)(rows[1:])
    with torch.no_grad():
        both = vlm.model(**{**batch, "labels": None}).logits[1, : alone["input_ids"].shape[1]]
        one = vlm.model(**{**alone, "labels": None}).logits[0]
    torch.testing.assert_close(both, one, rtol=1e-3, atol=1e-3)
    with pytest.raises(ValueError, match="1 of 2 rows have no picture"):
        answer_odds(vlm, rows)
