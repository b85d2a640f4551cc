"""The benchmark measures what it says: calls are counted and clocks are made up, not timed."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from t2x.errors import T2XError
from t2x.rewriters import bench
from t2x.rewriters.bench import bench_cost, bench_together, mixed_prompts
from t2x.rewriters.guarded import Guarded
from t2x.rewriters.language_model import Completion, LanguageModelRewriter
from t2x.rewriters.templates import Template
from t2x.testing import FakeRewriter

PROMPTS = [f"a cat number {i} on a mat" + " and a dog" * (i % 4) for i in range(12)]


@pytest.fixture
def rewriter(chat_model: Any, chat_tokenizer: Any) -> LanguageModelRewriter:
    template = Template(max_new_tokens=10, repetition_penalty=1.3)
    return LanguageModelRewriter(chat_model, chat_tokenizer, template=template, temperature=0)


def test_alone_is_one_call_of_generate_per_prompt(rewriter: Any, monkeypatch: Any) -> None:
    sizes: list[int] = []
    generate = rewriter.model.generate

    def count(**options: Any) -> Any:
        sizes.append(len(options["input_ids"]))
        assert options["generation_config"].use_cache is not False
        return generate(**options)

    monkeypatch.setattr(rewriter.model, "generate", count)
    monkeypatch.setattr("t2x.rewriters.language_model._CLOSE", -1.0)  # none is repeated
    result = bench_together(rewriter, PROMPTS, alone=5)
    assert sizes == [1] * 6  # one of them warms up
    assert result["identical"] == 1 and result["compared"] == 5 and result["near_ties"]
    assert result["together"]["prompts"] == 12 and result["alone"]["prompts"] == 5
    assert result["dtype"] == "float32" and result["repeated_alone"] == 0
    assert result["prompt_tokens"]["min"] < result["prompt_tokens"]["max"]


def test_the_speedup_is_of_the_rates(rewriter: Any) -> None:
    """A clock that goes on by one at each look: 5 alone take 5, 12 together take 1."""
    ticks = itertools.count()
    result = bench_together(rewriter, PROMPTS, alone=5, clock=lambda: float(next(ticks)))
    assert result["alone"]["prompts_per_second"] == 1
    assert result["speedup"] == result["together"]["prompts_per_second"] == 12


def test_a_difference_is_counted_and_its_gap_told(rewriter: Any, monkeypatch: Any) -> None:
    complete = rewriter.complete

    def other(prompts: Any, **options: Any) -> Any:
        found = complete(prompts, **options)
        return [[Completion("something else")], *found[1:]]

    monkeypatch.setattr(rewriter, "complete", other)
    result = bench_together(rewriter, PROMPTS, alone=4)
    assert result["identical"] == 0.75 and not result["near_ties"]
    (difference,) = result["differences"]
    assert difference["prompt"] == PROMPTS[0] and difference["gap"] > bench.NEAR_TIE


def test_repeats_are_part_of_the_time(rewriter: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("t2x.rewriters.language_model._CLOSE", float("inf"))
    assert bench_together(rewriter, PROMPTS, alone=1)["repeated_alone"] == 12


def test_a_rewriter_that_samples_is_refused(chat_model: Any, chat_tokenizer: Any) -> None:
    with pytest.raises(T2XError, match="temperature=0"):
        bench_together(LanguageModelRewriter(chat_model, chat_tokenizer), PROMPTS)


def test_cost_is_of_a_whole_job(monkeypatch: Any) -> None:
    """Jobs of 4 and 16 prompts on a clock of one look per second cost 1/4 and 1/16 a prompt."""
    ticks = itertools.count()
    result = bench_cost(Guarded(FakeRewriter()), [4, 16], clock=lambda: float(next(ticks)))
    assert [one["seconds_per_prompt"] for one in result["cost"].values()] == [1 / 4, 1 / 16]
    assert result["flat"] == 4 and result["cost"]["16"]["memory_mb"] > 10


def test_prompts_have_many_lengths_and_come_again() -> None:
    prompts = mixed_prompts(200, 3)
    words = [len(prompt.split()) for prompt in prompts]
    assert prompts == mixed_prompts(200, 3) != mixed_prompts(200, 4)
    assert min(words) < 6 and max(words) > 40 and len(set(words)) > 20
    assert torch.tensor(words).float().median() < 20
