"""``t2x data``: each command from start to end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from t2x.cli import run
from t2x.data.files import read_rows
from t2x.rewriters.parsing import parse_completion
from t2x.world.scene import CLASSES
from t2x.world.words import articled

FAKES = ("--model", "t2x.testing:FakeGenerator", "-r", "t2x.testing:FakeReward=1")
TEACHER = ("--teacher", "t2x.testing:FakeRewriter", "--num", "3")


def rows_of(name: str) -> list[dict[str, Any]]:
    return list(read_rows(Path(name)))


def card_of(name: str) -> dict[str, Any]:
    return json.loads(Path(name).read_text("utf-8"))


def prompts_file(number: int = 12) -> str:
    texts = [f"a heron and {i} kayaks in the rain" for i in range(2, number + 2)]
    Path("in.txt").write_text("\n".join(texts), "utf-8")
    return "in.txt"


def test_prompts_of_the_world_by_kind_and_task(capsys: pytest.CaptureFixture[str]):
    options = ("--kind", "digits,plain", "--task", "counting", "--max-words", "9", "--json")
    assert run(["data", "prompts", "p.jsonl", "-n", "30", *options]) == 0
    rows = rows_of("p.jsonl")
    assert len(rows) == 30
    assert {(r["kind"], r["task"]) for r in rows} <= {("digits", "counting"), ("plain", "counting")}
    printed = json.loads(capsys.readouterr().out)
    assert printed == card_of("p.json")
    assert printed["dropped"] and printed["prompts"]["kinds"] == ["digits", "plain"]


def test_prompts_of_another_file_are_left_out():
    assert run(["data", "prompts", "a.jsonl", "-n", "30"]) == 0
    assert run(["data", "prompts", "b.jsonl", "-n", "30", "--exclude", "a.jsonl"]) == 0
    first, second = ({row["original_prompt"] for row in rows_of(n)} for n in ("a.jsonl", "b.jsonl"))
    assert not first & second
    assert card_of("b.json")["dropped"]["in the other file"] == 30


def test_prompts_that_fit_the_policy():
    options = ("--max-tokens", "16", "--policy", "emoji-rewriter")
    assert run(["data", "prompts", "p.jsonl", "-n", "20", *options]) == 0
    assert card_of("p.json")["dropped"]["too many tokens"] > 0


def test_the_same_seed_is_the_same_bytes_and_nothing_is_overwritten(
    capsys: pytest.CaptureFixture[str],
):
    for name in ("a", "b"):
        assert run(["data", "sft", f"{name}.jsonl", "-n", "40", "--seed", "5"]) == 0
    assert Path("a.jsonl").read_bytes() == Path("b.jsonl").read_bytes()
    assert run(["data", "sft", "a.jsonl", "-n", "40", "--seed", "6"]) == 1
    assert "--overwrite" in capsys.readouterr().err
    assert Path("a.jsonl").read_bytes() == Path("b.jsonl").read_bytes()
    assert run(["data", "sft", "a.jsonl", "-n", "40", "--seed", "6", "--overwrite"]) == 0
    assert Path("a.jsonl").read_bytes() != Path("b.jsonl").read_bytes()


def test_a_teachers_answers_chosen_by_their_pictures():
    command = ["data", "sft", "s.jsonl", "--from", prompts_file(), *TEACHER, *FAKES]
    assert run([*command, "--noise", "0"]) == 0
    rows = rows_of("s.jsonl")
    assert 4 < len(rows) <= 12
    for row in rows:
        assert row["score"] > row["score_original"]
        answer = parse_completion(row["completion"][0]["content"], require_answer=True)
        assert answer.text.startswith(row["original_prompt"])
    card = card_of("s.json")
    assert card["sampling"]["writer"] == "t2x.testing:FakeRewriter"
    assert card["candidates"] == {"rewrite": 36}
    assert card["candidates_of"]["rewriter"] == "t2x.testing:FakeRewriter"
    assert card["dropped"]["no better than the prompt as it is"] == 12 - len(rows)


def test_a_teachers_answers_without_pictures():
    assert run(["data", "sft", "s.jsonl", "--from", prompts_file(3), *TEACHER]) == 0
    assert len(rows_of("s.jsonl")) == 3
    assert "score" not in rows_of("s.jsonl")[0]


def test_pairs_of_a_policy_and_others_from_the_same_pictures(capsys: pytest.CaptureFixture[str]):
    command = ["data", "pairs", "p.jsonl", "-n", "6", "--num", "3", *FAKES]
    assert run([*command, "--noise", "0"]) == 0
    rows = rows_of("p.jsonl")
    assert rows and all(row["score_chosen"] > row["score_rejected"] for row in rows)
    assert all(row["chosen"] != row["rejected"] for row in rows)
    again = ["data", "pairs", "q.jsonl", "--from", "p.scored.jsonl", "--noise", "0", "--json"]
    capsys.readouterr()
    assert run(again) == 0
    assert rows_of("q.jsonl") == rows
    card = json.loads(capsys.readouterr().out)
    assert card["sampling"] is None
    assert card["candidates_of"]["rewriter"] == "emoji-rewriter"
    scale = {"weights": {"t2x.testing:FakeReward": 1.0}, "combine": "sum", "failure_margin": 1.0}
    assert card["scale"] == scale


def test_pairs_of_what_a_search_tried():
    command = ["search", "a heron on ice", "a tall kayak", "--rewriter", "t2x.testing:FakeRewriter"]
    assert run([*command, "--out", "found", "--seeds", "2", "--budget", "8", *FAKES]) == 0
    assert run(["data", "pairs", "p.jsonl", "--from", "found", "--noise", "0"]) == 0
    assert {row["original_prompt"] for row in rows_of("p.jsonl")} <= {
        "a heron on ice", "a tall kayak",
    }  # fmt: skip
    assert run(["data", "sft", "s.jsonl", "--from", "found", "--noise", "0", "--unchanged"]) == 0
    assert len(rows_of("s.jsonl")) == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("sft", "x.jsonl", "-r", "clip"), "--teacher"),
        (("sft", "x.jsonl", "--from", "in.txt"), "who writes answers"),
        (("sft", "x.jsonl", "--max-words", "5"), "the world's own teacher"),
        (("pairs", "x.jsonl", "--policy", "rules", *FAKES), "no language model"),
        (("prompts", "x.csv"), ".parquet"),
        (("prompts", "x.jsonl", "--from", "missing.txt"), "missing.txt"),
        (("prompts", "x.jsonl", "--from", "in.txt", "--kind", "plain"), "the world's"),
        (("check", "missing.jsonl"), "missing.jsonl"),
    ],
)
def test_errors_are_one_line_and_leave_nothing(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
):
    prompts_file(2)
    assert run(["data", *arguments]) == 1
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1
    assert [p.name for p in Path().iterdir()] == ["in.txt"]


def test_a_file_is_checked(capsys: pytest.CaptureFixture[str]):
    photo = f"a photo of {articled(CLASSES[0])}"
    rows = [{"prompt": photo, "chosen": "a heron", "rejected": f"<answer>{photo}</answer>"}]
    rows.append({"prompt": "a heron on ice in the rain"})
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run(["data", "check", "rows.jsonl", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["prompts"], report["answers"], report["matched"]) == (2, 2, 2)
    assert report["found"] == {
        "prompts": {"geneval": {"exact": 1, "near": 0}},
        "answers": {"geneval": {"exact": 1, "near": 0}},
    }
    assert [e["where"] for e in report["examples"]] == ["prompt", "rejected"]
    assert run(["data", "check", "rows.jsonl", "--strict"]) == 1
    assert run(["data", "prompts", "clean.jsonl", "--from", "rows.jsonl"]) == 0
    assert run(["data", "check", "clean.jsonl", "--strict"]) == 0
