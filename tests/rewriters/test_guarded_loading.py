"""One place puts the guard together: names, objects, token limits, words of a small world."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from t2x.errors import T2XError, UnknownNameError
from t2x.generators import DiffusionGenerator
from t2x.prompts.budget import TokenBudget
from t2x.prompts.checks import FREE_ENGLISH
from t2x.rewriters.guarded import Guarded
from t2x.rewriters.loading import load_guard, load_guarded
from t2x.testing import (
    FakeGenerator,
    FakeRewriter,
    tiny_causal_lm,
    tiny_stable_diffusion,
    tiny_word_tokenizer,
)
from t2x.world.prompts import validation_prompts

RIDDLE = "draw the animal with a trunk"


def test_names_and_objects() -> None:
    assert load_guarded("none").model_id == "none"
    assert load_guarded(FakeRewriter()).model_id == "fake-rewriter"
    guarded = Guarded(FakeRewriter())
    assert load_guarded(guarded) is guarded
    with pytest.raises(UnknownNameError, match="did you mean 'rules'"):
        load_guarded("rule")


def test_the_rules_know_the_words_of_their_world() -> None:
    """Without its rewriter's own words the guard takes a riddle's answer for a loss."""
    assert load_guarded("rules").rewrite([RIDDLE])[0][0].status == "accepted"
    other = load_guarded("rules", domain=FREE_ENGLISH).rewrite([RIDDLE])[0][0]
    assert other.status == "reverted"


def test_few_rewrites_of_the_rules_are_reverted() -> None:
    prompts = [p.text for p in validation_prompts(120)]
    results = [row[0] for row in load_guarded("rules").rewrite(prompts)]
    assert sum(r.status == "reverted" for r in results) <= 0.05 * len(results)
    assert sum(r.status == "accepted" for r in results) >= 0.5 * len(results)


def test_a_rewrite_keeps_the_generators_limit(scripted: Any) -> None:
    pipeline = tiny_stable_diffusion()
    long = scripted(lambda _: "a red cat " + "on a mat " * 20)
    generator = DiffusionGenerator.from_pretrained(pipeline)
    result = load_guarded(long, generator=generator).rewrite(["a red cat"])[0][0]
    assert result.status == "reverted"
    assert result.scores["limit/tokenizer"] == pipeline.tokenizer.model_max_length
    roomy = TokenBudget({"words": (tiny_word_tokenizer(), 128)})
    both = load_guarded(long, generator=generator, budget=roomy)  # the budget wins
    assert both.rewrite(["a red cat"])[0][0].scores.keys() == {"tokens/words", "limit/words"}


def test_what_is_guarded_keeps_its_own_settings() -> None:
    guarded = Guarded(FakeRewriter())
    options: list[dict[str, Any]] = [
        {"checks": ()}, {"budget": TokenBudget({})}, {"similarity": lambda a, b: 1.0},
        {"domain": FREE_ENGLISH},
    ]  # fmt: skip
    for option in options:
        with pytest.raises(T2XError, match=f"guarded already takes no {next(iter(option))}"):
            load_guarded(guarded, **option)
    generator = DiffusionGenerator.from_pretrained(tiny_stable_diffusion())
    within = load_guarded(guarded, generator=generator)
    assert within.rewrite(["a cat"])[0][0].scores["limit/tokenizer"] == 77
    assert guarded.rewrite(["a cat"])[0][0].scores == {}  # the caller's own is left alone
    roomy = Guarded(FakeRewriter(), budget=TokenBudget({"words": (tiny_word_tokenizer(), 128)}))
    assert load_guarded(roomy, generator=generator) is roomy


def test_objects_and_folders_are_loaded(tmp_path: Path) -> None:
    assert load_guarded(tiny_causal_lm()).model_id == "Qwen3ForCausalLM"
    with pytest.raises(T2XError, match="there is no folder"):
        load_guarded(tmp_path / "nowhere")


def test_a_generator_whose_limits_are_unknown_is_told(caplog: Any) -> None:
    load_guarded(FakeRewriter(), generator=FakeGenerator())
    assert "token limits of fake-generator are unknown" in caplog.text


def test_who_needs_the_guard_itself_gets_no_search():
    class Search(FakeRewriter):
        guards_itself = True

    search = Search()
    assert load_guarded(search) is search
    with pytest.raises(T2XError, match="'fake-rewriter' is a search"):
        load_guard(search)
    with pytest.raises(T2XError, match="'search:evolution' is a search"):
        load_guard("search:evolution", generator="no-such-generator")  # told before it is loaded
    assert isinstance(load_guard(FakeRewriter()), Guarded)


def test_a_target_that_changes_nothing_is_told_once(caplog: Any) -> None:
    told = "the target changes nothing"
    load_guarded("rules", generator="flux")
    assert caplog.text.count(told) == 1 and "rules" in caplog.text
    load_guarded("rules", target="flux")
    assert caplog.text.count(told) == 2
    load_guarded("rules", generator="emoji-flow")
    load_guarded(tiny_causal_lm(), target="flux")  # it takes instructions
    assert caplog.text.count(told) == 2
