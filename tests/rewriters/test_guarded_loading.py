"""One place puts the guard together: names, objects, token limits, words of a small world."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from t2x.errors import UnknownNameError
from t2x.generators import DiffusionGenerator
from t2x.prompts.budget import TokenBudget
from t2x.prompts.checks import FREE_ENGLISH
from t2x.rewriters.guarded import Guarded
from t2x.rewriters.loading import load_guarded, token_budget
from t2x.testing import (
    FakeGenerator,
    FakeRewriter,
    tiny_clip_tokenizer,
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


def test_limits_without_weights(tmp_path: Path) -> None:
    """Tokenizers of a folder are enough, also where the folder takes them from a base."""
    assert token_budget(FakeGenerator()) is None
    assert token_budget("owner/model") is None
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    tiny_clip_tokenizer(50).save_pretrained(whole / "tokenizer")
    index = {"_class_name": "StableDiffusionPipeline", "tokenizer": ["t", "CLIPTokenizer"]}
    (whole / "model_index.json").write_text(json.dumps(index))
    parts.mkdir()
    (parts / "t2x.json").write_text(json.dumps({"base": "../whole"}))
    for folder in (whole, parts):
        budget = token_budget(folder)
        assert budget is not None and budget.count("a cat")[0].limit == 50
    index["tokenizer_2"] = ["t", "T5Tokenizer"]  # its limit is the pipeline's affair
    (whole / "model_index.json").write_text(json.dumps(index))
    assert token_budget(parts) is None
