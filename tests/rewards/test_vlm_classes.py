"""Vision-language models of the real classes: Qwen2-VL, Qwen2.5-VL, Qwen3-VL, BLIP-2 with T5."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from t2x.errors import T2XError
from t2x.media import to_pil
from t2x.registry import load_reward
from t2x.scoring.vlm import Vlm, load_vlm
from t2x.scoring.vlm_encoder import AnswerEncoder
from t2x.testing import check_gradient

from .cases import exact
from .tiny_vlms import PROMPTS, QWEN, blip2_t5, fresh, pictures, qwen, tokenizer

CLASSES = {
    "qwen2_vl": "Qwen2VLForConditionalGeneration",
    "qwen2_5_vl": "Qwen2_5_VLForConditionalGeneration",
    "qwen3_vl": "Qwen3VLForConditionalGeneration",
    "blip2_t5": "Blip2ForConditionalGeneration",
}
TOLERANCE = 1e-5  # of probabilities and log-probabilities; padding changes the order of sums


def source(kind: str) -> tuple[Any, Any]:
    return blip2_t5() if kind == "blip2_t5" else qwen(kind)


def sizes() -> list[torch.Tensor]:
    """A square, a wide and a tall picture: other numbers of image tokens in Qwen's models."""
    return [pictures(1, seed=1), pictures(1, 56, 120, seed=2), pictures(1, 130, 48, seed=3)]


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("vqa", {}),
        ("vqa", {"scale": "clip-flant5"}),
        ("promptecho", {}),
        ("promptecho", {"minus_prior": True, "end_token": True}),
    ],
)
def test_a_batch_of_several_sizes_equals_its_singles(
    kind: str, name: str, options: dict[str, Any]
) -> None:
    model, _ = source(kind)
    assert type(model).__name__ == CLASSES[kind]
    reward = load_reward(name, source=source(kind), **options)
    media = sizes()
    batch = reward.score(PROMPTS, media)
    singles = [float(reward.score([p], [m])) for p, m in zip(PROMPTS, media, strict=True)]
    assert batch.shape == (3,)
    assert batch.tolist() == pytest.approx(singles, abs=TOLERANCE)
    assert batch.unique().numel() == 3
    turned = reward.score(PROMPTS[::-1], media[::-1])
    assert turned.tolist() == pytest.approx(batch.flip(0).tolist(), abs=TOLERANCE)


@pytest.mark.parametrize("kind", QWEN)
def test_equals_the_stock_model_asked_by_hand_with_pil(kind: str) -> None:
    """P("Yes") of the processor's own PIL path, one at a time; resized, so within 8-bit rounding of
    the resized picture."""
    model, processor = source(kind)
    media = pictures(3, 64, 128, seed=4) if kind == "qwen3_vl" else pictures(3, 56, 112, seed=4)
    (yes,) = processor.tokenizer("Yes", add_special_tokens=False)["input_ids"]
    expected = []
    for prompt, picture in zip(PROMPTS, to_pil(media), strict=True):
        text = (
            "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>"
            f'Does this figure show "{prompt}"? Please answer yes or no.<|im_end|>\n'
            "<|im_start|>assistant\n"
        )
        inputs = processor(text=[text], images=[picture], return_tensors="pt")
        with torch.no_grad():
            expected.append(float(model(**inputs).logits[0, -1].softmax(-1)[yes]))
    scores = load_reward("vqa", source=source(kind)).score(PROMPTS, media)
    assert scores.tolist() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("kind", CLASSES)
def test_gradient_is_that_of_the_score(kind: str) -> None:
    """The image processors compute in float32, the rest in float64."""
    reward = exact(load_reward("vqa", source=fresh(kind), dtype=torch.float64))
    assert reward.differentiable
    media = pictures(1, 56, 84, seed=5).double()
    step = 1e-4 if kind == "blip2_t5" else 1e-3  # measured 1.5e-3 and less than 1e-3
    check_gradient(lambda x: reward.score(PROMPTS[:1], x), media, step=step, tolerance=5e-3)


def test_every_prompt_is_scored_on_its_own_picture() -> None:
    reward = load_reward("promptecho", source=source("qwen2_vl"))
    media = pictures(3, seed=6)
    before = reward.score(PROMPTS, media)
    for i in range(3):
        changed = media.clone()
        changed[i] = 1 - changed[i]
        moved = (reward.score(PROMPTS, changed) - before).abs()
        assert moved[i] > 100 * TOLERANCE
        assert moved[[j for j in range(3) if j != i]].max() < TOLERANCE


def test_a_processor_without_gradients_says_so_before_the_model_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    model, processor = source("qwen2_vl")
    processor = copy.copy(processor)
    size = processor.image_processor.size
    processor.image_processor = Qwen2VLImageProcessorPil(size=dict(size))
    reward = load_reward("vqa", source=(model, processor))
    assert not reward.differentiable
    assert bool(reward.score(PROMPTS[:1], pictures(1)).isfinite().all())

    def never(*args: object, **kwargs: object) -> None:
        raise AssertionError("the model ran")

    monkeypatch.setattr(type(model), "forward", never)
    for name in ("vqa", "promptecho", "yes-no", "align"):
        options = {"find": lambda prompt: []} if name == "align" else {}
        loaded = load_reward(name, source=(model, processor), **options)
        assert not loaded.differentiable
        with pytest.raises(T2XError, match="gives no gradient"):
            loaded.score(PROMPTS[:1], pictures(1).requires_grad_())


@pytest.mark.parametrize("end", [False, True])
def test_the_end_token_is_counted_once_whoever_adds_it(end: bool) -> None:
    """The same numbers where the tokenizer closes every text by itself as where it does not."""
    model, processor = source("qwen2_vl")
    closing = copy.copy(processor)
    closing.tokenizer = tokenizer(end="<|im_end|>", closes=True)
    found = []
    for each in (processor, closing):
        encoder = AnswerEncoder(load_vlm((model, each)), "What?", "{prompt}", end=end)
        found.append(encoder.encode(PROMPTS[:2], pictures(2, seed=7)))
    lengths = [
        len(processor.tokenizer(p, add_special_tokens=False)["input_ids"]) + end
        for p in PROMPTS[:2]
    ]
    for features in found:
        assert features["counted"].sum(1).tolist() == lengths
    assert torch.allclose(found[0]["log_probs"], found[1]["log_probs"], atol=TOLERANCE)
    yes = [load_reward("vqa", source=(model, p)) for p in (processor, closing)]
    scores = [r.score(PROMPTS, pictures(3, seed=8)) for r in yes]
    assert torch.allclose(scores[0], scores[1], atol=TOLERANCE)


def test_a_thought_that_the_template_opens_is_closed() -> None:
    model, processor = source("qwen3_vl")
    thinking = copy.copy(processor)
    thinking.chat_template = processor.chat_template.replace(
        "assistant\n{% endif %}", "assistant\n<think>\n{% endif %}"
    )
    assert thinking.chat_template != processor.chat_template
    assert load_vlm((model, thinking)).chat("Why?").endswith("<think>\n\n</think>\n\n")
    assert load_vlm((model, processor)).chat("Why?").endswith("<|im_start|>assistant\n")


def test_a_model_without_a_template_is_refused_unless_it_decodes() -> None:
    model, processor = source("qwen2_vl")
    bare = copy.copy(processor)
    bare.chat_template = None
    with pytest.raises(T2XError, match="no chat template"):
        Vlm(model, bare, key="bare")
    assert load_vlm(blip2_t5()).chat("Why?") == "Why?"


def test_clip_flant5_is_the_stock_loss_of_an_encoder_decoder() -> None:
    """exp(-loss) of transformers' own labels, "Yes" and the end token, one pair at a time."""
    model, processor = blip2_t5()
    labels = processor.tokenizer("Yes", return_tensors="pt")["input_ids"]
    assert labels.shape == (1, 2)
    assert labels[0, 1] == processor.tokenizer.eos_token_id
    media, expected, first = pictures(3, seed=9), [], []
    for prompt, picture in zip(PROMPTS, media, strict=True):
        text = f'Does this figure show "{prompt}"? Please answer yes or no.'
        inputs = processor(text=[text], images=[picture], do_rescale=False, return_tensors="pt")
        with torch.no_grad():
            output = model(**inputs, labels=labels)
        expected.append(float((-output.loss).exp()))
        first.append(float(output.logits[0, 0].softmax(-1)[labels[0, 0]]))
    whole = load_reward("vqa", source=blip2_t5(), scale="clip-flant5").score(PROMPTS, media)
    assert whole.tolist() == pytest.approx(expected, rel=1e-4)
    token = load_reward("vqa", source=blip2_t5()).score(PROMPTS, media)
    assert token.tolist() == pytest.approx(first, rel=1e-4)
    assert not torch.allclose(whole, token, rtol=0.05)


def test_clip_flant5_takes_one_answer() -> None:
    with pytest.raises(T2XError, match="first-token, clip-flant5"):
        load_reward("vqa", source=blip2_t5(), scale="yes")
    with pytest.raises(T2XError, match="one spelling"):
        load_reward("vqa", source=blip2_t5(), scale="clip-flant5", yes=("Yes", "yes"))
    with pytest.raises(T2XError, match="one spelling"):
        load_reward("vqa", source=blip2_t5(), scale="clip-flant5", no=("No",))


def test_writing_is_the_same_at_every_call_and_in_every_batch() -> None:
    vlm = load_vlm(source("qwen2_vl"))
    texts = [vlm.chat(f"What is {p}?") for p in PROMPTS]
    media = [m[0] for m in sizes()]
    batch = vlm.write(texts, media, max_new_tokens=5)
    assert batch == vlm.write(texts, media, max_new_tokens=5)
    singles = [vlm.write([t], [m], max_new_tokens=5)[0] for t, m in zip(texts, media, strict=True)]
    assert batch == singles
    assert len(set(batch)) > 1
