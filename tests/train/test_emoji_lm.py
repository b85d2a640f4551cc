"""emoji-lm and emoji-rewriter: tokenizer, loss, batches, resume, and a run of a few steps through
stock classes.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from t2x.rewriters.encoding import PromptEncoder
from t2x.rewriters.language_model import LanguageModelRewriter
from t2x.world.corpus import Turn, corpus_text, corpus_turns
from t2x.world.weights import is_present, model_dir

emoji_lm = pytest.importorskip("t2x.train.emoji_lm")
emoji_rewriter = pytest.importorskip("t2x.train.emoji_rewriter")


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return emoji_lm.build_tokenizer([corpus_text(i) for i in range(2000)], size=600)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recipes with a small tokenizer and few validation prompts."""
    monkeypatch.setattr(emoji_lm, "VOCABULARY", 400)
    monkeypatch.setattr(emoji_lm, "WIDTH", 32)
    monkeypatch.setattr(emoji_lm, "LAYERS", 1)
    monkeypatch.setattr(emoji_lm, "TOKENIZER_TEXTS", 200)
    monkeypatch.setattr(emoji_lm, "BATCH", 4)
    monkeypatch.setattr(emoji_lm, "MEASURED_TEXTS", 8)
    monkeypatch.setattr(emoji_lm, "MEASURED_ECHOES", 2)
    monkeypatch.setattr(emoji_rewriter, "BATCH", 4)
    monkeypatch.setattr(emoji_rewriter, "CURVE_PROMPTS", 6)
    monkeypatch.setattr(emoji_rewriter, "FINAL_PROMPTS", 6)


@pytest.mark.parametrize(
    "text", ["a cat", "Zürich 一只猫 🐈", "a\nb\t c", "<think>", 'ITEM1 "TEXT2"']
)
def test_every_text_survives_the_tokenizer(tokenizer, text: str) -> None:
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(ids, clean_up_tokenization_spaces=False) == text


def test_tags_are_single_tokens_and_ends_differ(tokenizer) -> None:
    for tag in (*emoji_lm.TAGS, *emoji_lm.SPECIAL):
        assert len(tokenizer(tag, add_special_tokens=False)["input_ids"]) == 1
    assert tokenizer.pad_token_id != tokenizer.eos_token_id
    assert len(tokenizer) == 600


def test_a_chat_learns_its_answer_alone(tokenizer) -> None:
    turns = [Turn("user", "repeat: a cat"), Turn("assistant", "a cat")]
    context, answer = emoji_lm.encode_turns(tokenizer, turns)
    assert (
        tokenizer.decode(context)
        == "<|im_start|>user\nrepeat: a cat<|im_end|>\n<|im_start|>assistant\n"
    )
    assert tokenizer.decode(answer) == "a cat<|im_end|>"
    ids, labels = emoji_lm.collate([(context, answer), ([], answer)], tokenizer.pad_token_id)
    assert labels[0, : len(context)].eq(emoji_lm.IGNORED).all()
    assert labels[0, len(context) :].tolist() == answer
    assert labels[1, len(answer) :].eq(emoji_lm.IGNORED).all()
    assert ids[1, len(answer) :].eq(tokenizer.pad_token_id).all()


def test_saved_tokenizer_reads_as_it_was_trained(tokenizer, tmp_path: Path, tiny) -> None:
    """AutoTokenizer must not put another class's rules in place of ours."""
    from transformers import AutoTokenizer

    emoji_lm.save_half(emoji_lm.build_model(tokenizer, 0), tokenizer, tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    for text in (*map(corpus_text, range(60)), "Don't! 12345 x2 <think>a</think> 一只猫"):
        assert loaded(text)["input_ids"] == tokenizer(text)["input_ids"], text
    messages = [{"role": "user", "content": "a cat"}]
    assert loaded.apply_chat_template(messages) == tokenizer.apply_chat_template(messages)
    assert loaded.padding_side == "left"


def test_loss_is_that_of_the_stock_model(tokenizer, tiny) -> None:
    """Equal to transformers' own loss within the rounding of bf16, where it is fast; padding
    changes nothing."""
    model = emoji_lm.build_model(tokenizer, 0).eval()
    rows = [emoji_lm.encode_turns(tokenizer, corpus_turns(i)) for i in range(6)]
    ids, labels = emoji_lm.collate(rows, tokenizer.pad_token_id)
    mask = torch.arange(ids.shape[1]) < torch.tensor([[len(c) + len(a)] for c, a in rows])
    with torch.no_grad():
        mine = float(emoji_lm.language_loss(model, ids, labels))
        stock = float(model(input_ids=ids, attention_mask=mask.long(), labels=labels).loss)
    assert mine == pytest.approx(stock, rel=5e-3)  # bf16 keeps 8 bits


def test_batches_are_by_number_and_hold_each_row_once() -> None:
    drawn: list[int] = []

    def draw(i: int) -> tuple[list[int], list[int]]:
        drawn.append(i)
        return [], [i] * (1 + i % 3)

    batches = emoji_lm.Batches(draw, -1, batch=2)
    seen = [set(batches[s][0].flatten().tolist()) - {-1} for s in range(emoji_lm.POOL)]
    assert set.union(*seen) == set(range(2 * emoji_lm.POOL))
    assert drawn == list(range(2 * emoji_lm.POOL))
    again = emoji_lm.Batches(draw, -1, batch=2)
    assert torch.equal(again[5][0], batches[5][0])


def test_rows_of_fine_tuning_are_what_the_rewriter_will_see(tokenizer) -> None:
    encoder = PromptEncoder(tokenizer, emoji_rewriter.TEMPLATE)
    rows = [emoji_rewriter.draw_row(tokenizer, encoder, i) for i in range(200)]
    texts = [tokenizer.decode(answer) for _, answer in rows]
    taught = [t for t in texts if t.startswith("<think>")]
    assert 0.8 < len(taught) / len(texts) < 1
    assert all(t.endswith("</answer><|im_end|>") and "</think><answer>" in t for t in taught)
    kept = [(c, t) for (c, _), t in zip(rows, texts, strict=True) if "; keep " in t]
    assert kept
    for context, text in kept:
        item = text.split("; keep ")[1].split("</think>")[0]
        assert text.count(item) == 2
        assert item in tokenizer.decode(context)


def test_a_uniform_model_costs_the_logarithm_of_the_vocabulary(tokenizer, tiny) -> None:
    """All weights 0: every predicted token costs log2(V) bits. Neither the first token of a text
    without context nor its bytes count; the end counts as a token and as one byte."""
    model = emoji_lm.build_model(tokenizer, 0)
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)
    text, question = "é cat, 一只猫", Turn("user", "repeat: a cat")
    plain = emoji_lm.encode_turns(tokenizer, [Turn("user", text)])
    chat = emoji_lm.encode_turns(tokenizer, [question, Turn("assistant", text)])
    tokens = len(tokenizer(text, add_special_tokens=False)["input_ids"])
    first = len(tokenizer.convert_ids_to_tokens(plain[1][0]))
    assert 0 < first < len("é".encode()) + 1
    bits, letters = math.log2(len(tokenizer)), len(text.encode())
    for rows, predicted, counted in (
        ([chat], tokens + 1, letters + 1),
        ([plain], tokens, letters - first + 1),
        ([chat, plain] * 20, 2 * tokens + 1, 2 * letters - first + 2),
    ):
        found = emoji_lm.bits_per_byte(model, tokenizer, rows)
        assert found == pytest.approx(bits * predicted / counted, rel=1e-3)


def test_both_recipes_run_resume_and_save_stock_models(
    tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check_resume: Callable[..., None]
) -> None:
    check_resume(partial(emoji_lm.main, threads=1), tmp_path / "lm", steps=3, killed=2)
    start = tmp_path / "lm/whole/model"
    metrics = emoji_rewriter.main(out=tmp_path / "sft", steps=2, threads=1, start=start)
    assert metrics["exact_test"] == 0  # two steps teach nothing
    curve = [json.loads(line) for line in (tmp_path / "sft/curve.jsonl").read_text().splitlines()]
    assert [line["step"] for line in curve] == [2]
    assert curve[0]["exact"] == 0
    assert curve[0]["styles"] == {"failed": 1.0}
    rewriter = LanguageModelRewriter.from_pretrained(tmp_path / "sft/model")
    assert rewriter.template == emoji_rewriter.TEMPLATE
    ((rewrite,),) = rewriter.rewrite(["a cat"])
    assert rewrite.status == "failed"
    assert rewrite.text == "a cat"
    monkeypatch.setattr(emoji_rewriter, "content_scores", lambda *_: (defaultdict(float), {}))
    check_resume(partial(emoji_rewriter.main, start=start), tmp_path / "two", steps=3, killed=2)


@pytest.mark.skipif(not is_present("emoji-rewriter"), reason="weights are not trained yet")
def test_the_embedded_rewriter_rewrites() -> None:
    rewriter = LanguageModelRewriter.from_pretrained(model_dir("emoji-rewriter"))
    wanted = {
        "a kitten": "cat",
        "two kittens to the left of a crimson slice of pizza": "red pizza",
        "could you draw me a puppy?": "dog",
    }
    for (rewrite,), word in zip(rewriter.rewrite(list(wanted)), wanted.values(), strict=True):
        assert rewrite.status == "accepted"
        assert word in rewrite.text
