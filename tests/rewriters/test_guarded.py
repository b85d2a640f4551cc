"""Guarded: what users of prompt enhancers have reported, each with the right outcome."""

from __future__ import annotations

import time
from typing import Any

import pytest

from t2x.prompts.budget import TokenBudget
from t2x.prompts.checks import Domain
from t2x.rewriters.guarded import Guarded
from t2x.rewriters.identity import IdentityRewriter
from t2x.testing import FakeRewriter, tiny_clip_tokenizer, tiny_word_tokenizer
from t2x.types import Rewrite, Rewriter


@pytest.fixture
def judge(scripted: Any) -> Any:
    """Rewrite one prompt by a scripted answer: a text, or a function of what the model sees."""

    def run(prompt: str, answer: Any, **options: Any) -> Rewrite:
        say = answer if callable(answer) else lambda _: answer
        return Guarded(scripted(say), **options).rewrite([prompt])[0][0]

    return run


def failed(result: Rewrite) -> list[str]:
    return [check.name for check in result.checks if not check.passed]


def test_a_good_rewrite_is_accepted(judge: Any) -> None:
    result = judge("a cat on a mat", "a fluffy cat asleep on a woven mat, soft light")
    assert (result.status, result.text) == (
        "accepted", "a fluffy cat asleep on a woven mat, soft light",
    )  # fmt: skip
    assert result.checks and failed(result) == []


# Each row: thread, prompt, what the model says, status, failed check, text (None: the prompt).
REPORTS = [
    ("sd-dynamic-prompts#707", "a cat <lora:x:0.8>", "a cat, unknown, <", "reverted", "no_junk",
     None),
    ("sd-dynamic-prompts#707", "a cat <lora:x:0.8>", "a fluffy cat, [ ]", "reverted",
     "no_new_syntax", None),
    ("sd-dynamic-prompts#707", "a cat <lora:x:0.8>", "a fluffy cat in the sun", "accepted", "",
     "a fluffy cat in the sun <lora:x:0.8>"),
    ("sd-dynamic-prompts#685", "a cat, <lora:my__x__y:1>", "a fluffy cat", "accepted", "",
     "a fluffy cat, <lora:my__x__y:1>"),
    ("sd-dynamic-prompts#645", "a cat on a mat", "a cat on a mat,,,,", "unchanged",
     "content_added", None),
    ("sd-dynamic-prompts#645", "a cat on a mat", "a cat on a mat,,,, soft light", "accepted", "",
     "a cat on a mat, soft light"),
    ("z-tipo-extension#50", "a [cat:dog:0.5] on a mat", "a 0.5 cat dog on a mat", "reverted",
     "spans_intact", None),
    ("z-tipo-extension#50", "a [cat:dog:0.5] on a mat", "a sleepy ITEM1 on a mat", "accepted", "",
     "a sleepy [cat:dog:0.5] on a mat"),
    ("z-tipo-extension#50", "a cat <lora:x:0.8>", "a fat cat <lora:x:0.8>", "reverted",
     "spans_intact", None),
    ("ComfyUI-Lora-Manager#951", "foo \\(bar\\) at night", "foo at night (rain)", "accepted", "",
     "foo \\(bar\\) at night \\(rain\\)"),
    ("Fooocus#828", "line art of a fox", "a photo-realistic fox in a forest", "reverted",
     "style_kept", None),
    ("Fooocus#828", "line art of a fox", "line art of a fox, photorealistic fur", "reverted",
     "style_kept", None),
    ("Fooocus#828", "line art of a fox", "clean line art of a fox, thin strokes", "accepted", "",
     "clean line art of a fox, thin strokes"),
    ("Bjornulf_custom_nodes#17", "a cat on a mat", "<think>plan</think> a fat cat on a mat",
     "reverted", "no_reasoning", None),
    ("Bjornulf_custom_nodes#17", "a cat on a mat", "<think>the cat sits on a mat", "reverted",
     "no_reasoning", None),
    ("ComfyUI#15600", "a winding road seen from the air", "close-up of two smiling people",
     "reverted", "content_kept", None),
    ("ComfyUI-QwenVL#139", "a cat on a mat", "Here is a prompt: a cat on a mat", "reverted",
     "no_meta_text", None),
    ("ComfyUI-QwenVL#139", "a cat on a mat",
     "To create a good prompt for a cat on a mat, describe the light", "reverted",
     "no_meta_text", None),
    ("ComfyUI-QwenVL#139", "a cat on a mat", "1. a cat\n2. a mat", "reverted", "no_meta_text",
     None),
    ("ComfyUI-QwenVL#139", "a cat on a mat", "# Cat\na cat on a mat", "reverted",
     "no_meta_text", None),
    ("Qwen-Image#161", 'a sign "ZAŻÓŁĆ\ngęślą" on a wall',
     'a wooden sign that reads \u201cTEXT1\u201d on a brick wall', "accepted", "",
     'a wooden sign that reads "ZAŻÓŁĆ\ngęślą" on a brick wall'),
    ("Qwen-Image#161", 'a sign "ZAŻÓŁĆ\ngęślą" on a wall',
     'a wooden sign "ZAZOLC gesla" on a wall', "reverted", "quotes_verbatim", None),
]  # fmt: skip


@pytest.mark.parametrize(("thread", "prompt", "answer", "status", "check", "text"), REPORTS)
def test_user_reports(
    judge: Any, thread: str, prompt: str, answer: str, status: str, check: str, text: str | None
) -> None:
    result = judge(prompt, answer)
    assert result.status == status, thread
    assert result.text == (prompt if text is None else text)
    assert (check in failed(result)) if check else failed(result) == []
    assert result.raw == answer


def test_the_model_sees_neither_tags_nor_what_is_not_marked(scripted: Any) -> None:
    # sd-dynamic-prompts#707, SwarmUI-MagicPromptExtension PR#46
    inner = scripted(lambda p: f"{p}, in soft light")
    prompts = ["a cat <lora:x:0.8>", "masterpiece, best quality, <rewrite:a dog> <lora:y:1>"]
    results = [group[0] for group in Guarded(inner).rewrite(prompts)]
    assert inner.seen == ["a cat", "a dog"]
    assert [r.text for r in results] == [
        "a cat, in soft light <lora:x:0.8>",
        "masterpiece, best quality, a dog, in soft light <lora:y:1>",
    ]
    assert {r.status for r in results} == {"accepted"}


def test_a_mark_never_reaches_the_generator(judge: Any) -> None:
    result = judge("best, <rewrite:a dog>", "")
    assert (result.status, result.text) == ("reverted", "best, a dog")
    assert judge("best, <rewrite:a dog>", "a dog").text == "best, a dog"


def test_names_of_items_are_words_of_no_language(judge: Any) -> None:
    result = judge('a {red|blue} door, "OPEN"', '一扇门 ITEM1 "TEXT2"')
    assert {"script_kept", "content_kept"} <= set(failed(result))
    assert failed(judge("a {red|blue} door", "a house of ITEM1")) == ["content_kept"]


# diffusion-pipe#181, diffusers#9763
def test_budget_is_counted_by_the_target_and_reported_per_encoder(judge: Any) -> None:
    budget = TokenBudget({"clip": (tiny_clip_tokenizer(24), None)})
    short = judge("a cat on a mat", "a fat cat on a mat", budget=budget)
    long = judge("a cat on a mat", "a fat cat on a mat in the sun with a dog", budget=budget)
    assert (short.status, long.status) == ("accepted", "reverted")
    assert failed(long) == ["fits_budget"] and "/24" in long.checks[-2].reason
    assert short.scores == {"tokens/clip": 15.0, "limit/clip": 24.0}
    assert long.scores["tokens/clip"] == 12.0  # of the text that is given


def test_a_second_encoder_that_sees_all_is_enough(judge: Any) -> None:
    budget = TokenBudget(
        {"clip": (tiny_clip_tokenizer(16), None), "t5": (tiny_word_tokenizer(), 64)}
    )
    result = judge("a cat on a mat", "a fat cat on a mat in the sun with a dog", budget=budget)
    assert result.status == "accepted"
    assert result.scores["tokens/clip"] > result.scores["limit/clip"]


def test_a_prompt_that_is_itself_cut_is_told(judge: Any) -> None:
    budget = TokenBudget({"clip": (tiny_clip_tokenizer(16), None)})
    result = judge("a cat on a mat in the sun", None, budget=budget)
    assert result.status == "failed"
    assert failed(result) == ["completion", "original_fits_budget"]


CONSTRAINTS = [
    ("three cats", "four fat cats", "numbers_kept"),
    ("three cats", "3 fat cats", ""),
    ("two cats", "two animals. left: a cat. right: a cat", ""),
    ("two cats and a dog", "three animals. a cat. a cat. a dog", ""),
    ("a pair of dogs", "two dogs on grass", ""),
    ("a crimson bus", "a blue bus on a road", "colours_kept"),
    ("a crimson bus", "a red bus on a road", ""),
    ("a dog without a collar", "a dog with a collar", "negation_kept"),
    ("a dog without a collar", "a dog, no collar, on grass", ""),
    ("一只猫在桌子上", "a cat on a table", "script_kept"),
    ("一只猫在桌子上", "一只毛茸茸的猫在木桌子上", ""),
    ("猫 sign on a wall, wide street", "a wide street with a 猫 sign on a wall", ""),
    ("a cat on a mat", "a cat on a mat on a mat on a mat on a mat on a mat", "no_junk"),
    ("a cat on a mat", "a cat on a mat " + "a" * 90, "no_junk"),
    ("a cat on a mat", "I can't help with a cat on a mat", "no_meta_text"),
    ("a cat on a mat", "**Cat** on a mat", "no_meta_text"),
    ("here is a cat on a mat", "here is a fat cat on a mat", ""),
    ("an elefant in teh zoo", "an elephant in the zoo, sunny", ""),
    ("an elefant", "an elephant at dawn", ""),
    ("a lemon", "a yellow bus", "content_kept"),
    ("a rose", "a pink car", "content_kept"),
    ("a horse", "a house at night", "content_kept"),
    ("a parrot", "a carrot on a table", "content_kept"),
    ("a kitten", "a kite in the wind", "content_kept"),
    ("rain", "a train at a station", "content_kept"),
    ("a carpet", "a car, pet food beside it", "content_kept"),
    ("a theatre", "a theater at night", ""),
    ("a swimmer", "somebody swimming in a lake", ""),
    ("a wineglass", "a wine glass on a table", ""),
    ("a wine glass", "a wineglass on a table", ""),
    ("a boat", "a white sailboat", ""),
    ("children", "a child on grass", ""),
    ("two dozen roses", "24 roses in a vase", ""),
    ("two dozen roses", "twelve roses in a vase", "numbers_kept"),
    ("twenty-five candles", "25 candles on a cake", ""),
    ("2,000 lanterns", "two thousand lanterns at night", ""),
    ("a cat on a mat", "a cat on a mat. " * 400, "length"),
    ("\U0001f431", "four umbrellas, studio", "content_kept"),
    ("\U0001f436 \U0001f355", "a \U0001f436 on a chair", "content_kept"),
    ("\U0001f436 \U0001f355", "\U0001f355 beside a \U0001f436", ""),
    ("a red car", "a car that is not red", "colours_kept"),
    ("two dogs", "a dog, without two dogs", "numbers_kept"),
    ("a car that is not red", "a crimson car", "negation_kept"),
    ("I can't wait to see a dog", "a dog on grass", ""),
    ("I can't help thinking of a dog", "a dog on grass", ""),
    ("1" * 5000 + " cats", "cats on grass", ""),
    ("a cat", "a cat (animal:1.9)", "no_new_syntax"),
    ("a cat", "a cat --no cat", "no_new_syntax"),
    ("a cat", "a cat BREAK gore", "no_new_syntax"),
    ("a cat", "a cat embedding:bad", "no_new_syntax"),
    ("a cat", "a cat __x__", "no_new_syntax"),
    ("a cat", 'a cat (the best) under a sign "open"', ""),
    ("a (red car:1.2) in rain", "a shiny car in red, in the rain", "spans_intact"),
]


@pytest.mark.parametrize(("prompt", "answer", "check"), CONSTRAINTS)
def test_constraints(judge: Any, prompt: str, answer: str, check: str) -> None:
    result = judge(prompt, answer)
    assert (check in failed(result)) if check else failed(result) == []
    assert result.status == ("reverted" if check else "accepted")
    assert check or result.text == answer


def negative(answer: str, without: str, scores: dict[str, float] | None = None) -> Any:
    """A rewriter that also writes a negative prompt and scores what it writes."""

    class Negative:
        model_id = "negative"

        def rewrite(self, prompts: Any, *, num_generations: int = 1, seed: int = 0) -> Any:
            made = [answer.format(p) for p in prompts]
            return [
                [Rewrite(p, text, negative=without, scores=scores or {})]
                for p, text in zip(prompts, made, strict=True)
            ]

    return Guarded(Negative())


def test_an_accepted_rewrite_keeps_its_negative_prompt_and_scores() -> None:
    guarded = negative("{}, in the sun", "blurry", {"clip": 0.3})
    (one,), (two,) = guarded.rewrite(["a cat", "a cat BREAK a dog"])
    assert (one.status, one.negative, one.scores) == ("accepted", "blurry", {"clip": 0.3})
    assert two.negative == "blurry"
    assert two.scores == {"region1/clip": 0.3, "region2/clip": 0.3}
    guarded.budget = TokenBudget({"clip": (tiny_clip_tokenizer(), None)})
    assert set(guarded.rewrite(["a cat"])[0][0].scores) == {"clip", "tokens/clip", "limit/clip"}


def test_a_negative_prompt_alone_is_a_rewrite() -> None:
    result = negative("{}", "blurry").rewrite(["a cat"])[0][0]
    assert (result.status, result.text, result.negative) == ("accepted", "a cat", "blurry")
    assert negative("{}", " ").rewrite(["a cat"])[0][0].status == "unchanged"


@pytest.mark.parametrize(
    ("prompt", "without", "status"),
    [
        ("a red cat", "cats", "reverted"),
        ("a red cat", "blurry, a red cat", "reverted"),
        ("a red cat", "extra cats, dogs", "accepted"),
        ("a cat without a collar", "collar", "accepted"),
    ],
)
def test_what_is_asked_for_is_not_ruled_out(prompt: str, without: str, status: str) -> None:
    result = negative("{}, in the sun", without, {"clip": 0.3}).rewrite([prompt])[0][0]
    assert result.status == status
    if status == "reverted":
        assert failed(result) == ["negative_apart"]
        assert (result.text, result.negative, result.scores) == (prompt, "", {})


def test_a_colour_is_ruled_out_by_any_of_its_names() -> None:
    result = negative("{}, in the sun", "crimson").rewrite(["a red cat"])[0][0]
    assert failed(result) == ["negative_apart"]


def test_a_lost_quality_tag_is_put_at_the_end(judge: Any) -> None:
    result = judge("(masterpiece:1.2), a cat", "a fluffy cat")
    assert result.text == "a fluffy cat, (masterpiece:1.2)"


def test_prompts_may_come_one_by_one() -> None:
    found = Guarded(FakeRewriter()).rewrite(p for p in ("a cat", "a dog"))  # type: ignore[arg-type]
    assert [row[0].original for row in found] == ["a cat", "a dog"]


def test_similarity_is_a_second_chance(judge: Any) -> None:
    prompt, answer = "the animal with a trunk", "an elephant"
    assert failed(judge(prompt, answer)) == ["content_kept"]
    assert judge(prompt, answer, similarity=lambda a, b: 0.9).status == "accepted"
    assert judge(prompt, answer, similarity=lambda a, b: 0.1).status == "reverted"
    known = {"the animal with a trunk": "elephant"}
    assert judge(prompt, answer, domain=Domain(lambda t: known.get(t, t))).status == "accepted"


def test_checks_can_be_chosen(judge: Any) -> None:
    assert judge("a cat", "two dogs, <b>", checks=()).text == "two dogs, <b>"


@pytest.mark.parametrize("prompt", ["", "  \n", ",,,,", "<lora:x:1>", "\U0001f431", "a" * 3000])
def test_odd_input_gets_a_status(prompt: str) -> None:
    result = Guarded(FakeRewriter()).rewrite([prompt])[0][0]
    assert result.original == prompt
    if any(c.isalnum() for c in prompt.replace("<lora:x:1>", "")) or "\U0001f431" in prompt:
        assert result.status == "accepted" and result.text.startswith(prompt)
    else:
        assert (result.status, result.text) == ("unchanged", prompt)
        assert failed(result) == ["input"]


def test_a_failed_completion_keeps_its_reason(judge: Any) -> None:
    result = judge("a cat <lora:x:1>", lambda _: None)
    assert (result.status, result.text) == ("failed", "a cat <lora:x:1>")
    assert result.checks[0].reason == "cut off before its end"
    assert result.raw == "half a senten"


def test_regions_are_rewritten_on_their_own(judge: Any) -> None:
    result = judge("a cat BREAK a dog", lambda p: f"{p} in the sun")
    assert result.text == "a cat in the sun BREAK a dog in the sun"
    half = judge("a cat BREAK a dog", lambda p: None if "dog" in p else f"{p} in the sun")
    assert (half.status, half.text) == ("failed", "a cat BREAK a dog")


def test_order_and_generations_are_kept() -> None:
    guarded = Guarded(FakeRewriter())
    assert isinstance(guarded, Rewriter)
    prompts = ["a cat", "", "a dog", "a cat"]
    found = guarded.rewrite(prompts, num_generations=3, seed=4)
    assert [[r.original for r in group] for group in found] == [[p] * 3 for p in prompts]
    assert found[0] == found[3]
    assert len({r.text for r in found[0]}) == 3
    assert {r.seed for r in found[0]} == {4}
    alone = guarded.rewrite(["a dog"], num_generations=3, seed=4)
    assert alone[0] == found[2]


def test_mistakes_are_told() -> None:
    with pytest.raises(TypeError, match="one string"):
        Guarded(FakeRewriter()).rewrite("a cat")
    with pytest.raises(TypeError, match="NoneType"):
        Guarded(FakeRewriter()).rewrite([None])  # type: ignore[list-item]


def test_identity_stays_unchanged() -> None:
    assert Guarded(IdentityRewriter()).rewrite(["a cat"])[0][0].status == "unchanged"


def test_a_whole_language_model_never_breaks_a_prompt(chat_model: Any, chat_tokenizer: Any) -> None:
    """Noise for answers: every row comes back as the user wrote it, with a reason."""
    from t2x.rewriters.language_model import LanguageModelRewriter
    from t2x.rewriters.templates import Template

    inner = LanguageModelRewriter(chat_model, chat_tokenizer, template=Template(max_new_tokens=16))
    prompts = ["a cat <lora:x:0.8>", "", "word " * 5000, "<|im_end|>", "一只猫", "\U0001f431"]
    for group in Guarded(inner).rewrite(prompts, num_generations=2):
        for result in group:
            assert result.text == result.original
            assert result.status != "accepted" and failed(result)


@pytest.mark.parametrize(
    ("prompt", "answer", "check"),
    [
        ("a mug next to a laptop", "a steaming mug and morning light", "relations_kept"),
        ("a mug next to a laptop", "a steaming mug beside an open laptop", ""),
        ("a dog beside a car", "a dog above a car", "relations_kept"),
        ("a cat to the left of a dog", "a dog to the left of a cat", "relations_kept"),
        ("a red cup on a blue table", "a blue cup on a red table", "colours_kept"),
        ("two cats and three dogs", "three cats and two dogs", "numbers_kept"),
        ("a street in Tokyo", "a street in Kyoto", "names_kept"),
        ("eine Katze auf dem Sofa", "a cat on the sofa", "language_kept"),
        ("drei Katzen auf dem Sofa", "zwei Katzen auf dem Sofa", "numbers_kept"),
        ("a knight on a hill", "a knight on a hill of bloody corpses", "harmless"),
        ("a bloody battle on a hill", "a bloody battle on a green hill, corpses", ""),
    ],
)
def test_what_belongs_together_stays_together(
    judge: Any, prompt: str, answer: str, check: str
) -> None:
    result = judge(prompt, answer)
    assert (check in failed(result)) if check else failed(result) == []
    assert result.status == ("reverted" if check else "accepted")


def test_a_negation_that_the_text_leaves_out_moves_to_the_negative_prompt(judge: Any) -> None:
    prompt, answer = "a dog without a collar", "a brown dog on grass"
    for takes in (True, None):  # None: nobody knows what will draw
        result = judge(prompt, answer, negatives=takes)
        assert (result.status, result.text, result.negative) == ("accepted", answer, "collar")
    kept = judge(prompt, "a brown dog on grass, no collar", negatives=True)
    assert (kept.status, kept.negative) == ("accepted", "")


def test_a_generator_without_negative_prompt_never_gets_one(judge: Any) -> None:
    lost = judge("a dog without a collar", "a brown dog on grass", negatives=False)
    assert (lost.status, lost.negative, failed(lost)) == ("reverted", "", ["negation_kept"])
    guarded = negative("{}, in the sun", "blurry")
    guarded.negatives = False
    result = guarded.rewrite(["a cat"])[0][0]
    assert (result.status, result.negative) == ("accepted", "")
    alone = negative("{}", "blurry")
    alone.negatives = False
    assert alone.rewrite(["a cat"])[0][0].status == "unchanged"


def test_what_does_not_fit_is_left_out_and_told(judge: Any) -> None:
    budget = TokenBudget({"clip": (tiny_clip_tokenizer(40), None)})
    answer = "In golden light, a fat cat on a mat, soft shadows, dreamy mood"
    result = judge("a cat on a mat", answer, budget=budget)
    assert (result.status, result.text) == ("accepted", "In golden light, a fat cat on a mat")
    (told,) = (c for c in result.checks if c.name == "shortened")
    assert told.passed and told.reason == (
        "left out: 'dreamy mood'; 'soft shadows' (clip reads 40 tokens)"
    )
    assert result.scores["tokens/clip"] <= 40


def test_where_one_encoder_cuts_the_users_words_come_first(judge: Any) -> None:
    budget = TokenBudget(
        {"clip": (tiny_clip_tokenizer(40), None), "t5": (tiny_word_tokenizer(), 100)}
    )
    answer = "Dreamy mood and golden light fill the room. A cat lies on a mat."
    result = judge("a cat on a mat", answer, budget=budget)
    assert result.text == "A cat lies on a mat. Dreamy mood and golden light fill the room."
    (told,) = (c for c in result.checks if c.reason)
    assert (told.name, told.passed) == ("fits_budget", True)
    assert told.reason.startswith("clip 53/40 tokens, cut: ")


def test_tags_survive_shortening(judge: Any) -> None:
    budget = TokenBudget({"clip": (tiny_clip_tokenizer(44), None)})
    prompt = "a (red cat:1.2) <lora:x:0.8>"
    result = judge(prompt, "a red cat, golden light, soft shadows, film grain", budget=budget)
    assert result.status == "accepted"
    assert "(red cat:1.2)" in result.text and result.text.endswith("<lora:x:0.8>")
    assert any(c.name == "shortened" for c in result.checks)


def test_a_name_of_small_words_alone_breaks_nothing(judge: Any) -> None:
    assert judge("a poster of A_ and B", "a bright poster of A_ and B").status == "accepted"


def test_what_is_too_long_to_be_checked_comes_back(judge: Any) -> None:
    prompt = "1" * 60_000
    start = time.process_time()
    result = judge(prompt, "a cat")
    assert (result.status, result.text) == ("unchanged", prompt)
    assert "60000 characters" in result.checks[0].reason
    judge("1" * 9_000, "a cat")
    assert time.process_time() - start < 20
