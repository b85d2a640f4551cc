"""Rows of the world by name: the training split alone, the same at every call."""

from __future__ import annotations

from collections import Counter
from itertools import islice

import pytest

from t2x.data.decontaminate import find_benchmark
from t2x.data.sources import read_prompts
from t2x.data.world import load, of_world, world_rows
from t2x.errors import T2XError
from t2x.rewriters.parsing import parse_completion
from t2x.rollouts.reading import policy_text
from t2x.training.data import load_rows
from t2x.world.prompts import HELD_OUT_KINDS, held_out_prompts, split_of
from t2x.world.teacher import MISSING_KINDS

SFT = "sft?n=400&seed=3"


def test_the_same_rows_at_every_call_and_others_for_other_seeds():
    assert world_rows(SFT) == world_rows(SFT)
    first, other = ({row["original_prompt"] for row in world_rows(f"prompts?n=200&seed={s}")}
                    for s in (0, 1))  # fmt: skip
    assert len(first & other) < 40
    assert world_rows("prompts?n=50") == world_rows("prompts?n=200")[:50]


@pytest.mark.parametrize("kind", ["sft", "prompts"])
def test_training_rows_are_of_the_training_split(kind: str):
    rows = world_rows(f"{kind}?n=400&seed=5")
    assert len(rows) == 400
    assert not {row["kind"] for row in rows} & set(HELD_OUT_KINDS)
    plain = [r["original_prompt"] for r in rows if "__" not in r["original_prompt"]]
    assert all(split_of(text) == "train" for text in plain if '"' not in text)
    held_out = {prompt.text for prompt in held_out_prompts(600, seed=7)}
    assert not held_out & {row["original_prompt"] for row in rows}


def test_validation_rows_are_of_their_own_split():
    rows = world_rows("validation?n=120")
    assert {split_of(row["original_prompt"]) for row in rows} == {"validation"}
    assert len({row["task"] for row in rows}) == 6


def test_no_row_is_of_a_benchmark_and_what_was_left_out_is_counted():
    dropped: Counter[str] = Counter()
    rows = world_rows("sft?n=1500", dropped)
    answers = [parse_completion(row["completion"][0]["content"]).text for row in rows]
    assert not any(map(find_benchmark, answers))
    assert not any(find_benchmark(row["original_prompt"]) for row in rows)
    assert dropped["geneval (exact)"] > 0
    assert sum(dropped.values()) < 0.1 * len(rows)


def test_completions_are_read_and_what_is_opaque_is_copied():
    rows = world_rows("sft?n=800")
    assert not {row["kind"] for row in rows} & set(MISSING_KINDS)
    kept = 0
    for row in rows:
        parsed = parse_completion(row["completion"][0]["content"], require_answer=True)
        assert parsed.text and parsed.reasoning and not parsed.problem
        seen = row["prompt"][0]["content"]
        assert seen == policy_text(row["original_prompt"])
        item = next((w for w in ("ITEM1", '"TEXT1"') if w in seen), None)
        kept += item is not None
        assert item is None or item in parsed.text
    assert 10 < kept < 80


@pytest.mark.parametrize("kind", ["sft", "prompts", "validation"])
def test_what_is_made_is_told(kind: str):
    told: list[int] = []
    world_rows(f"{kind}?n=30", tell=told.append)
    assert told == list(range(1, 31))


def test_the_teachers_validation_shares_no_prompt_with_its_training():
    validation = {row["original_prompt"].casefold() for row in world_rows("sft-validation?n=256")}
    training = {row["original_prompt"].casefold() for row in world_rows("sft?n=3000")}
    assert len(validation) == 256 and not validation & training


def test_prompts_do_not_repeat():
    texts = [row["original_prompt"].casefold() for row in world_rows("prompts?n=1000")]
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize(
    "wrong", ["", "sft?m=3", "test?n=3", "sft?n=x", "sft?n=0", "prompts?seed=-1", "held_out"]
)
def test_a_wrong_name_says_what_is_allowed(wrong: str):
    with pytest.raises(T2XError, match="world:"):
        world_rows(wrong)


def test_kinds_and_tasks_of_the_world():
    prompts = of_world(read_prompts("world"), kinds=["digits"], tasks=["counting"])
    found = {(p.fields["kind"], p.fields["task"]) for p in islice(prompts, 5)}
    assert found == {("digits", "counting")}
    for wrong in ({"kinds": [HELD_OUT_KINDS[0]]}, {"tasks": ["counts"]}):
        with pytest.raises(T2XError, match="none of the world's"):
            of_world(read_prompts("world"), **wrong)


@pytest.mark.extra("train")
def test_a_recipe_loads_them_by_name():
    rows = load_rows("world:sft?n=30&seed=1")
    assert rows.to_list() == world_rows("sft?n=30&seed=1") == load("sft?n=30&seed=1").to_list()


def test_without_reasoning_only_the_plan_is_gone() -> None:
    with_plan, without = (world_rows(f"sft?n=60&seed=3&reasoning={r}") for r in (1, 0))
    for one, other in zip(with_plan, without, strict=True):
        assert one["original_prompt"] == other["original_prompt"]
        said, bare = one["completion"][-1]["content"], other["completion"][-1]["content"]
        assert said.startswith("<think>") and said.endswith(f"</think>{bare}")
        assert bare.startswith("<answer>")
