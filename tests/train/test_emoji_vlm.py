"""Recipe of emoji-vlm: packed training equals stock inference, smoke run, resume, stock folder."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForImageTextToText, AutoProcessor

from t2x.world.packing import turn_text
from t2x.world.questions import Turn, sample_turns
from t2x.world.shown import draw_shown

emoji_vlm = pytest.importorskip("t2x.train.emoji_vlm")


def _turns(count: int) -> list[list[Turn]]:
    rngs = [random.Random(i) for i in range(count)]
    return [sample_turns(draw_shown(rng), rng) for rng in rngs]


@pytest.fixture(scope="module")
def parts() -> tuple[Any, Any]:
    torch.manual_seed(0)
    processor = emoji_vlm.build_processor(emoji_vlm.corpus(20), vocabulary=600)
    return emoji_vlm.build_model(processor.tokenizer, width=96, layers=2).eval(), processor


def test_every_question_is_trained_as_if_it_stood_alone(parts: tuple[Any, Any]) -> None:
    """Logits of packed questions equal those of the stock forward pass, each question by itself."""
    model, processor = parts
    tokenizer = processor.tokenizer
    turns = _turns(2)
    pixels = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    packed = emoji_vlm.pack(tokenizer, turns)
    assert len(packed.owner) > 2  # several rows of one picture
    user = tokenizer.convert_tokens_to_ids("<|user|>")
    with torch.no_grad():
        states = emoji_vlm.answer_states(model, emoji_vlm.look(model, pixels), packed, user)
        logits = model.lm_head(states)
        for i, row in enumerate(turns):
            for j, turn in enumerate(row):
                text = f"<|user|><image>{turn_text(turn)}"
                inputs = processor(
                    text=[text], images=[pixels[i]], do_rescale=False, return_tensors="pt"
                )
                alone = model(**inputs).logits[0, emoji_vlm.PATCHES + 1 :]
                mine = (packed.owner == i).unsqueeze(1) & (packed.segment == j)
                assert torch.allclose(logits[mine], alone, atol=1e-4)


def test_only_answers_are_labels(parts: tuple[Any, Any]) -> None:
    tokenizer = parts[1].tokenizer
    turns = _turns(3)
    packed = emoji_vlm.pack(tokenizer, turns)
    for i, row in enumerate(turns):
        for j, turn in enumerate(row):
            mine = (packed.owner == i).unsqueeze(1) & (packed.segment == j)
            labels = packed.labels[mine]
            answer = tokenizer.decode(labels[labels >= 0])
            assert answer == f"{turn.answer}<|end|>"
            first = packed.kinds[mine][labels >= 0][0]
            assert emoji_vlm.KINDS[first] == turn.kind


def test_chat_template_writes_what_training_reads(parts: tuple[Any, Any]) -> None:
    turn = Turn("How many cats?", "two", "atomic")
    content = [{"type": "image"}, {"type": "text", "text": turn.question}]
    messages = [{"role": "user", "content": content}, {"role": "assistant", "content": turn.answer}]
    text = parts[1].apply_chat_template(messages, tokenize=False)
    assert text == f"<|user|><image>{turn_text(turn)}"
    question = parts[1].apply_chat_template(
        messages[:1], tokenize=False, add_generation_prompt=True
    )
    assert text.startswith(question)


@pytest.fixture(scope="module")
def trained(
    tmp_path_factory: pytest.TempPathFactory, check_resume: Callable[..., None]
) -> tuple[Path, dict[str, float]]:
    out = tmp_path_factory.mktemp("runs")
    corpus = emoji_vlm.corpus
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(emoji_vlm, "BATCH", 2)
        patch.setattr(emoji_vlm, "LOOK_BATCH", 2)
        patch.setattr(emoji_vlm, "MEASURED", 8)
        patch.setattr(emoji_vlm, "LOOK_FIRST", 0.4)
        patch.setattr(emoji_vlm, "corpus", lambda count: corpus(min(count, 20)))
        check_resume(partial(emoji_vlm.main, threads=1), out, steps=3, killed=2)
    return out / "whole/model", json.loads((out / "whole/metrics.json").read_text())


def test_run_saves_a_stock_folder(trained: tuple[Path, dict[str, float]]) -> None:
    folder, metrics = trained
    assert 0 <= metrics["verify_auc"] <= 1
    model, report = AutoModelForImageTextToText.from_pretrained(folder, output_loading_info=True)
    assert type(model).__name__ == "LlavaForConditionalGeneration"
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    size = sum(p.stat().st_size for p in folder.rglob("*.safetensors"))
    assert size < 10 * 2**20
    processor = AutoProcessor.from_pretrained(folder)
    inputs = processor(
        text=["<|user|><image>How many CATS?<|assistant|>"],
        images=[torch.zeros(3, 64, 64)],
        return_tensors="pt",
    )
    image = processor.tokenizer.convert_tokens_to_ids("<image>")
    assert int((inputs["input_ids"] == image).sum()) == emoji_vlm.PATCHES
    assert inputs["pixel_values"].shape == (1, 3, 64, 64)
    assert model.generate(**inputs, max_new_tokens=2, do_sample=False).shape[0] == 1
    ids = processor.tokenizer("Yes")["input_ids"]
    assert ids == processor.tokenizer("yes")["input_ids"]
    assert len(ids) == 1


def test_all_parts_learn() -> None:
    """One step from questions alone reaches vision tower, projector and decoder."""
    torch.manual_seed(0)
    processor = emoji_vlm.build_processor(emoji_vlm.corpus(5), vocabulary=400)
    model = emoji_vlm.build_model(processor.tokenizer, width=96, layers=1)
    packed = emoji_vlm.pack(processor.tokenizer, _turns(2))
    losses = emoji_vlm.answer_losses(
        model, emoji_vlm.look(model, torch.rand(2, 3, 64, 64)), packed, 2
    )
    assert set(losses) >= {"verify", "atomic", "caption"}
    sum(losses.values()).backward()
    unused = {n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()}
    # The tower's pooled output is no part of LLaVA; the class token has no reader behind one layer.
    assert all("post_layernorm" in n or "class_embedding" in n for n in unused), unused
