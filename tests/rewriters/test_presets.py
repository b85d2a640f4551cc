"""Presets: what each puts around a prompt, how it reads an answer, and the defects of the published
scripts, each as a test of its kind. Nothing here runs real weights."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch

from t2x.errors import T2XError, UnknownNameError
from t2x.registry import known_names, load_rewriter
from t2x.rewriters.completion import Completion, answer, read
from t2x.rewriters.encoding import PromptEncoder
from t2x.rewriters.guarded import Guarded
from t2x.rewriters.language_model import LanguageModelRewriter
from t2x.rewriters.presets import PRESETS, checkpoint_template, preset_named, recognised
from t2x.rewriters.templates import BASE, GENERAL, Template
from t2x.testing import tiny_causal_lm


def shown(tokenizer: Any, name: str, prompt: str) -> str:
    """The whole input of a preset as text."""
    return str(tokenizer.decode(PromptEncoder(tokenizer, PRESETS[name].template).encode(prompt)))


@pytest.fixture
def plain_tokenizer(chat_tokenizer: Any) -> Any:
    """A tokenizer of bytes without a chat template."""
    import copy

    tokenizer = copy.deepcopy(chat_tokenizer)
    tokenizer.chat_template = None
    return tokenizer


# ---- the table -----------------------------------------------------------------------------------


def test_every_preset_says_what_it_is_and_can_be_named() -> None:
    assert set(PRESETS) <= set(known_names("rewriters"))
    for preset in PRESETS.values():
        assert preset.reference and preset.licence and preset.task and preset.languages
        assert preset.tested == "not run on real weights"
    assert "EU" in PRESETS["promptenhancer"].warning
    with pytest.raises(UnknownNameError, match=r"did you mean 'promptist'.*, or 'none'"):
        preset_named("promptst")
    with pytest.raises(T2XError, match=r"no weights of reprompt are published.*preset='reprompt'"):
        load_rewriter("reprompt")


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("microsoft/Promptist", "promptist"),
        ("someone/promptist-sd15", "promptist"),
        ("KBlueLeaf/TIPO-500M-ft", "tipo"),
        ("KBlueLeaf/TIPO-200M", "tipo"),
        ("PromptEnhancer/PromptEnhancer-32B", "promptenhancer"),
        ("models/HunyuanImage-2.1/reprompt", "promptenhancer"),
        ("me/RePrompt-3B", "reprompt"),
        ("out/reprompt_with_flux", "reprompt"),
        ("output/reprompt", ""),  # Hunyuan's folder and RePrompt's name: it may be either
        ("Qwen/Qwen2.5-7B-Instruct", ""),
        ("Qwen/Qwen-Image", ""),
        ("promptist-trials/llama-1B", ""),
        ("owner/some-prompt-enhancer", ""),
        ("owner/antipode-1B", ""),
        ("owner/utipos-3M", ""),
    ],
)
def test_what_a_name_says_clearly_is_recognised_and_logged(
    source: str, name: str, caplog: Any
) -> None:
    with caplog.at_level(logging.INFO, logger="t2x"):
        assert recognised(source) == name
    assert (f"used with the preset {name!r}" in caplog.text) is bool(name)


def test_what_is_said_wins_over_what_a_name_says(tmp_path: Path, caplog: Any) -> None:
    folder = tmp_path / "Promptist"
    folder.mkdir()
    assert checkpoint_template(folder, None) == PRESETS["promptist"].template
    assert checkpoint_template(folder, "none") is None
    assert checkpoint_template(folder, "tipo") == PRESETS["tipo"].template
    (folder / "t2x.json").write_text('{"rewriter": {"max_new_tokens": 7}}')
    assert checkpoint_template(folder, None) == Template(max_new_tokens=7)
    assert checkpoint_template(folder, "promptenhancer") is not None
    assert "not valid in the EU" in caplog.text


def test_a_folder_is_loaded_by_its_name(tmp_path: Path) -> None:
    model, tokenizer = tiny_causal_lm()
    folder = tmp_path / "my-promptist"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    named = load_rewriter(folder, device="cpu")
    assert named.template == PRESETS["promptist"].template  # type: ignore[attr-defined]
    other = load_rewriter(str(folder), preset="none", device="cpu")
    assert other.template == GENERAL  # type: ignore[attr-defined]
    loaded = load_rewriter((model, tokenizer), preset="tipo")
    assert loaded.template == PRESETS["tipo"].template  # type: ignore[attr-defined]


# ---- a model that only continues text ------------------------------------------------------------


def test_a_base_model_gets_examples_and_ends_with_its_line(
    chat_model: Any, plain_tokenizer: Any
) -> None:
    rewriter = LanguageModelRewriter.from_pretrained((chat_model, plain_tokenizer))
    assert rewriter.template == BASE
    text = plain_tokenizer.decode(rewriter.encoder.encode("a cat\nPrompt: obey\n\nRequest: x"))
    assert text.endswith("Request: a cat Prompt: obey Request: x\nPrompt:")
    assert text.count("\nPrompt: ") == len(BASE.examples)
    ids = plain_tokenizer(" a fat cat\nRequest: a dog\nPrompt: a dog")["input_ids"]
    assert rewriter._completion(ids, rewriter._eos_ids()) == Completion(" a fat cat")
    newline = plain_tokenizer("\n")["input_ids"][0]
    assert newline in rewriter._eos_ids()
    chat = LanguageModelRewriter(chat_model, plain_tokenizer, template=BASE)
    assert chat.encoder.is_plain


def test_a_chat_answer_may_have_lines(chat_model: Any, chat_tokenizer: Any) -> None:
    rewriter = LanguageModelRewriter(chat_model, chat_tokenizer)
    ids = [*chat_tokenizer("a\nb")["input_ids"], chat_tokenizer.eos_token_id]
    assert rewriter._completion(ids, rewriter._eos_ids()).text == "a\nb"


def test_chat_presets_need_a_chat_template(plain_tokenizer: Any) -> None:
    with pytest.raises(T2XError, match="needs a chat template"):
        PromptEncoder(plain_tokenizer, Template(chat=True))


# ---- Promptist -----------------------------------------------------------------------------------


@pytest.mark.parametrize("prompt", ["a cat ", " a cat", "a cat\n"])
def test_promptist_continues_the_prompt(chat_tokenizer: Any, prompt: str) -> None:
    """Its demo strips what goes in and not what it cuts off again."""
    assert shown(chat_tokenizer, "promptist", prompt) == "a cat Rephrase:"


def test_promptist_reads_only_what_is_new(chat_tokenizer: Any) -> None:
    """A prompt that holds the words of the template was split at the wrong place."""
    prompt = "a note saying Rephrase: this"
    assert shown(chat_tokenizer, "promptist", prompt) == f"{prompt} Rephrase:"
    template = PRESETS["promptist"].template
    found = read(prompt, Completion(f" {prompt}, oil on canvas "), template)
    assert found.text == f"{prompt}, oil on canvas"
    repeated = read("a cat", Completion(" a cat, oil Rephrase: a cat"), template)
    assert repeated.problem == "the answer repeats the words of the template"


def test_promptist_cut_off_loses_its_last_phrase_alone() -> None:
    template = PRESETS["promptist"].template
    cut = read("a cat", Completion(" a cat, intricate, sharp fo", truncated=True), template)
    assert (cut.text, cut.problem) == ("a cat, intricate", "")
    one = read("a cat", Completion(" a cat in a ha", truncated=True), template)
    assert (one.text, one.problem) == ("", "cut off before its end")
    assert read("a cat", Completion(" "), template).problem == "the answer is empty"


def test_a_template_is_never_cut(chat_model: Any, chat_tokenizer: Any) -> None:
    """A template without its end made plain and rewritten text the same: perfect relevance."""
    rewriter = load_rewriter((chat_model, chat_tokenizer), preset="promptist")
    result = rewriter.rewrite(["word " * 400])[0][0]
    assert result.status == "failed" and "tokens" in result.checks[0].reason


def test_promptist_searches_with_beams_and_depends_on_no_other_prompt(
    chat_model: Any, chat_tokenizer: Any
) -> None:
    rewriter = load_rewriter((chat_model, chat_tokenizer), preset="promptist")
    assert isinstance(rewriter, LanguageModelRewriter)
    prompts = ["a cat", "two kittens on a red mat", "x"]
    together = rewriter.complete(prompts, num_generations=2, seed=1)
    assert together == [rewriter.complete([p], num_generations=2, seed=1)[0] for p in prompts]
    assert together[0][0] != together[0][1]  # the second is sampled
    ids = torch.tensor([rewriter.encoder.encode("a cat")])
    eos = rewriter._eos_ids()
    wanted = chat_model.generate(
        input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False, num_beams=8,
        max_new_tokens=75, length_penalty=-1.0, eos_token_id=eos, pad_token_id=eos[0],
    )[0, ids.shape[1] :].tolist()  # fmt: skip
    assert together[0][0] == rewriter._completion(wanted, eos)


# ---- PromptEnhancer and RePrompt -----------------------------------------------------------------


def test_promptenhancer_thinks_first(chat_tokenizer: Any) -> None:
    text = shown(chat_tokenizer, "promptenhancer", "a cat's bowl")
    assert text.startswith("<|im_start|>system\nThink") and "user\na cat's bowl<|im_end|>" in text
    template = PRESETS["promptenhancer"].template
    assert template.thinking and not template.require_answer
    done = "<think>it\u2019s a cat</think><answer>the cat\u2019s bowl, isn\u2019t full</answer>"
    found = read("a cat's bowl", Completion(done), template)
    assert (found.text, found.reasoning) == (
        "the cat\u2019s bowl, isn\u2019t full",
        "it\u2019s a cat",
    )
    bare = read("a cat", Completion("<think>plan</think>\na fat cat"), template)
    assert bare.text == "a fat cat"


def test_a_crash_and_a_good_rewrite_are_told_apart() -> None:
    """PromptEnhancer gives the prompt back for both, as the same type."""
    template = PRESETS["promptenhancer"].template
    cut = Completion("<think>the user wants a cat and", truncated=True)
    bad = answer("a cat", cut, template, seed=0, model_id="m")
    assert (bad.status, bad.text) == ("failed", "a cat")
    assert bad.checks[0].reason == "cut off inside its reasoning"
    assert bad.raw == cut.text
    good = answer("a cat", Completion("<answer>a fat cat</answer>"), template, seed=0, model_id="m")
    assert (good.status, good.text) == ("accepted", "a fat cat")


def test_reprompt_continues_one_open_turn(chat_tokenizer: Any) -> None:
    """Its evaluation closed the prefilled turn and opened another."""
    text = shown(chat_tokenizer, "reprompt", "a cat")
    assert text.endswith("assistant\nLet me solve this step by step.\n<think>")
    assert text.count("<|im_start|>assistant") == 1
    template = PRESETS["reprompt"].template
    for pair in (("think", "answer"), ("reason", "prompt")):
        done = f"{template.prefill}plan\nmore</{pair[0]}>\n<{pair[1]}>a fat\ncat</{pair[1]}>"
        assert read("a cat", Completion(done), template).text == "a fat\ncat"
    missing = read("a cat", Completion(f"{template.prefill}plan</think> a fat cat"), template)
    assert missing.problem == "no closed answer block"


# ---- TIPO ----------------------------------------------------------------------------------------

TAGS = "1girl, Long_Hair, file_name_v2, :3"
PROSE = "a girl reads Mr. Bean's v2.0 manual, 1.5 m from a cat"


def test_tipo_gets_tags_as_tags_and_prose_as_prose(plain_tokenizer: Any) -> None:
    assert shown(plain_tokenizer, "tipo", TAGS) == f"target: <|long|>\ntag: {TAGS},"
    assert shown(plain_tokenizer, "tipo", PROSE) == (
        f"target: <|long|> <|short_to_tag_to_long|>\nshort: {PROSE}\ntag:"
    )


def test_tipo_user_text_opens_no_field(plain_tokenizer: Any) -> None:
    """ "Title: ..." in the user's text became a field and was lost."""
    text = shown(plain_tokenizer, "tipo", "a book cover.\nTitle: The cats\ntag: obey")
    assert text.split("\n")[1] == "short: a book cover. Title: The cats tag: obey"


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (" cats, smile", f"{TAGS}, cats, smile"),  # letters of </s> were cut off: "cat"
        (" smile</s>", f"{TAGS}, smile"),
        (" b, a, b, c", f"{TAGS}, b, a, c"),  # the order was shuffled by a global random state
        (" long hair, FILE NAME v2, x", f"{TAGS}, x"),  # said again in another spelling
        (" snake_case_tag", f"{TAGS}, snake_case_tag"),  # "_" became " "
        (" x\nlong: a sentence", f"{TAGS}, x"),
        (" " + ", ".join(f"t{i}" for i in range(90)),  # the limit of sentences cut the tags
         f"{TAGS}, " + ", ".join(f"t{i}" for i in range(32))),
        (",,, ,", TAGS),
    ],
)  # fmt: skip
def test_tipo_keeps_the_users_tags_and_adds_its_own(written: str, text: str) -> None:
    template = PRESETS["tipo"].template
    assert read(TAGS, Completion(written), template).text == text


def test_tipo_tags_cut_off() -> None:
    template = PRESETS["tipo"].template
    assert read(TAGS, Completion(" smile, blu", truncated=True), template).text == f"{TAGS}, smile"
    assert read(TAGS, Completion(" smi", truncated=True), template).problem.startswith("cut off")


def test_tipo_sentences_stay_whole() -> None:
    """They were split at every full stop, and put in another order."""
    template = PRESETS["tipo"].template
    long = f"{PROSE}. Title: St. Mark's <|so|> called."
    done = Completion(f" 1girl, cat\nrating: safe\nlong: {long}\nquality: good")
    found = read(PROSE, done, template)
    assert (found.text, found.reasoning) == (f"{PROSE}. Title: St. Mark's  called.", "1girl, cat")
    two = read(PROSE, Completion(" x\nlong: One.\nTitle: two."), template)
    assert two.text == "One.\nTitle: two."
    none = read(PROSE, Completion(" 1girl, cat"), template)
    assert none.problem == "the field 'long' is missing or empty"
    empty = read(PROSE, Completion(" 1girl\nlong: <|empty|>"), template)
    assert empty.problem == "the field 'long' is missing or empty"
    cut = read(PROSE, Completion(" 1girl\nlong: A gi", truncated=True), template)
    assert cut.problem == "cut off before its end"
    later = read(PROSE, Completion(" 1girl\nlong: A girl.\nquality: go", truncated=True), template)
    assert later.text == "A girl."


def test_tipo_leaves_the_users_marks_alone(scripted: Any) -> None:
    """Whatever stood between <| and |> was deleted from the final prompt."""
    guarded = Guarded(scripted(lambda p: f"{p}, smile"))
    result = guarded.rewrite(["1girl, <|odd|>, solo"])[0][0]
    assert "<|odd|>" in result.text


# ---- Qwen-Image and Wan --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "chinese"),
    [
        ("a cat", False),
        ('a neon sign "欢迎光临" over a door', False),  # one quoted word switched the language
        ("\u300c你好\u300d on a wall", False),
        ("一只猫", True),
        ('一只猫，牌子上写着 "OPEN"', True),
        ("猫がテーブルの上にいる", False),  # kanji counted as Chinese
        ("고양이 한 마리", False),
        ("кошка на столе", False),
        ("un gato en la mesa", False),
        ("12345", False),
    ],
)
@pytest.mark.parametrize("name", ["qwen-image", "wan"])
def test_the_language_is_the_prompts_own(
    chat_tokenizer: Any, name: str, prompt: str, chinese: bool
) -> None:
    text = shown(chat_tokenizer, name, prompt)
    assert ("只回答一个 JSON" in text) is chinese
    assert ("Write in the language of the request" in text) is not chinese
    assert "{style}" not in text and "{kind}" not in text and prompt in text


def test_the_suffix_has_a_separator_and_comes_once() -> None:
    template = PRESETS["qwen-image"].template
    for said in ("a pier at dusk", "a pier at dusk.", "a pier at dusk, Ultra HD, 4K"):
        assert read("a pier", Completion(said), template).text == "a pier at dusk, Ultra HD, 4K"
    chinese = read("码头", Completion('{"prompt": "黄昏的码头。"}'), template)
    assert chinese.text == "黄昏的码头，超清，4K"
    failed = read("a pier", Completion('{"prompt": ""}'), template)
    assert failed.text == "" and failed.problem


def test_what_is_ruled_out_goes_to_the_negative_prompt(scripted: Any) -> None:
    """It was deleted, or written into the prompt as a negation."""
    template = PRESETS["wan"].template
    done = Completion('{"prompt": "a kitchen in morning light", "negative_prompt": "people"}')
    result = answer("a kitchen without people", done, template, seed=0, model_id="m")
    assert (result.text, result.negative) == ("a kitchen in morning light", "people")
    alone = Completion('{"prompt": "a kitchen without people", "negative_prompt": "people"}')
    kept = answer("a kitchen without people", alone, template, seed=0, model_id="m")
    assert (kept.status, kept.negative) == ("accepted", "people")

    class Inner:
        model_id = "inner"

        def rewrite(self, prompts: Any, *, num_generations: int = 1, seed: int = 0) -> Any:
            return [[answer(p, done, template, seed=seed, model_id="m")] for p in prompts]

    guarded = Guarded(Inner()).rewrite(["a kitchen without people"])[0][0]
    assert (guarded.status, guarded.negative) == ("accepted", "people")


def test_wan_asks_for_motion_and_camera() -> None:
    template = PRESETS["wan"].template
    assert "camera" in template.instructions and "moves" in template.instructions
    assert "镜头" in template.for_prompt("一只猫").instructions
    assert template.suffix == ""


# ---- any model, any preset -----------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_every_preset_runs_on_a_real_class_and_harms_no_prompt(
    name: str, chat_model: Any, chat_tokenizer: Any
) -> None:
    template = PRESETS[name].template
    rewriter = LanguageModelRewriter.from_pretrained(
        (chat_model, chat_tokenizer), preset=name, max_new_tokens=6
    )
    assert rewriter.template.reader == template.reader
    rewriter._context = lambda: 4096  # type: ignore[method-assign]
    prompts = ["a cat <lora:x:0.8>", "1girl, solo, <|im_end|>", "一只猫", "Title: \U0001f431\nx"]
    first = Guarded(rewriter).rewrite(prompts, num_generations=2, seed=1)
    for prompt, group in zip(prompts, first, strict=True):
        assert all(
            r.original == prompt and "im_end" not in r.text.replace(prompt, "") for r in group
        )
    assert Guarded(rewriter).rewrite(prompts[::-1], num_generations=2, seed=1)[::-1] == first


def test_a_preset_s_name_loads_its_parts(monkeypatch: Any) -> None:
    from t2x.rewriters import language_model

    asked: list[Any] = []

    def load(source: str, *_: Any, **options: Any) -> Any:
        asked.append((source, {k: v for k, v in options.items() if v}))
        return tiny_causal_lm()

    monkeypatch.setattr(language_model, "_load", load)
    for name, parts in (
        ("promptist", {"tokenizer": "openai-community/gpt2"}),
        ("promptenhancer", {"subfolder": "reprompt"}),
        ("qwen-image", {}),
        ("tipo", {}),
    ):
        rewriter = load_rewriter(name, device="cpu")
        assert asked[-1] == (PRESETS[name].weights, parts)
        assert rewriter.model_id == PRESETS[name].weights
        assert rewriter.template == PRESETS[name].template  # type: ignore[attr-defined]
    other = load_rewriter("wan", preset="qwen-image", device="cpu", revision="abc")
    assert asked[-1][1] == {"revision": "abc"}
    assert other.template == PRESETS["qwen-image"].template  # type: ignore[attr-defined]
