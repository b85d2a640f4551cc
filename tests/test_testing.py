"""The shipped tiny models and fakes behave like what they stand for."""

from __future__ import annotations

import hashlib

import pytest
import torch

from t2x.errors import UnknownNameError
from t2x.testing import (
    BAD_REWRITERS,
    BadRewriter,
    FakeGenerator,
    FakeReward,
    FakeRewriter,
    tiny_causal_lm,
    tiny_clip_tokenizer,
    tiny_open_clip,
    tiny_stable_diffusion,
    tiny_word_tokenizer,
)
from t2x.types import Generator, RewardModel, Rewriter


def weights(model):
    digest = hashlib.sha256()
    for value in model.state_dict().values():
        digest.update(value.numpy().tobytes())
    return digest.hexdigest()


@pytest.mark.parametrize(
    "build",
    [
        lambda seed: tiny_causal_lm(seed)[0],
        lambda seed: tiny_open_clip(seed)[0],
        lambda seed: tiny_stable_diffusion(seed).unet,
        lambda seed: tiny_stable_diffusion(seed).vae,
        lambda seed: tiny_stable_diffusion(seed).text_encoder,
    ],
    ids=["lm", "open_clip", "unet", "vae", "text_encoder"],
)
def test_weights_follow_the_seed_and_nothing_else(build):
    torch.manual_seed(5)
    first = weights(build(0))
    after = torch.rand(1)
    torch.manual_seed(5)
    assert torch.rand(1) == after  # the caller's random state was left alone
    assert weights(build(0)) == first
    assert weights(build(1)) != first


def test_causal_lm_answers_a_chat(tmp_path):
    model, tokenizer = tiny_causal_lm()
    chats = [
        [{"role": "user", "content": text}] for text in ("a red cat", "draw two dogs on a bus")
    ]
    options = {"add_generation_prompt": True, "return_dict": True, "return_tensors": "pt"}
    batch = tokenizer.apply_chat_template(chats, padding=True, **options)
    assert batch["input_ids"][0, 0] == tokenizer.pad_token_id  # padded on the left
    out = model.generate(**batch, max_new_tokens=4, do_sample=False)
    assert out.shape == (2, batch["input_ids"].shape[1] + 4)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)

    from transformers import AutoModelForCausalLM, AutoTokenizer

    again = AutoTokenizer.from_pretrained(tmp_path)
    assert again.apply_chat_template(chats, padding=True, **options)["input_ids"].equal(
        batch["input_ids"]
    )
    assert weights(AutoModelForCausalLM.from_pretrained(tmp_path)) == weights(model)


def test_word_tokenizer_keeps_words_and_tags():
    tokenizer = tiny_word_tokenizer(["moon"])
    ids = tokenizer("<think> moon </think> sun")["input_ids"]
    assert tokenizer.convert_ids_to_tokens(ids) == ["<think>", "moon", "</think>", "<unk>"]
    assert tokenizer.decode(ids[:3]) == "<think> moon </think>"


def test_clip_tokenizer_knows_every_text():
    tokenizer = tiny_clip_tokenizer()
    ids = tokenizer("a 狗 🐶")["input_ids"]
    assert ids[0] == tokenizer.bos_token_id
    assert ids[-1] == tokenizer.eos_token_id
    assert len(ids) == 2 + 1 + 3 + 4  # bytes of UTF-8
    assert tokenizer.unk_token_id not in ids[:-1]


def test_open_clip_encodes_with_gradients():
    model, tokenize = tiny_open_clip()
    pictures = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    pictures.requires_grad_()
    texts = tokenize(["a cat", "a " + "very " * 60 + "long text"])
    assert texts.shape == (2, 77)
    images = model.encode_image(pictures, normalize=True)
    similarity = (images * model.encode_text(texts, normalize=True)).sum(-1)
    similarity.sum().backward()
    assert pictures.grad.abs().sum() > 0
    assert similarity[0] != similarity[1]


def test_fake_rewriter_is_a_rewriter():
    fake = FakeRewriter()
    assert isinstance(fake, Rewriter)
    alone = fake.rewrite(["a cat"], num_generations=3, seed=2)
    together = fake.rewrite(["a dog", "a cat"], num_generations=3, seed=2)
    assert together[1] == alone[0]
    assert len({rewrite.text for rewrite in alone[0]}) == 3
    assert all(rewrite.text.startswith("a cat, ") for rewrite in alone[0])


def test_bad_rewriters_are_rewriters():
    for name in BAD_REWRITERS:
        bad = BadRewriter(name)
        assert isinstance(bad, Rewriter)
        (first, second), _ = bad.rewrite(['a "TEXT1" sign', "b"], num_generations=2, seed=3)
        assert first == second and first.seed == 3
        assert name == "echo" or first.text != 'a "TEXT1" sign'
    with pytest.raises(UnknownNameError, match="known are: echo"):
        BadRewriter("good")


def test_fake_generator_is_a_generator():
    fake = FakeGenerator()
    assert isinstance(fake, Generator)
    media = fake.generate(["a", "b", "a"], seeds=[1, 1, 2], size=(8, 16))
    assert media.shape == (3, 3, 8, 16)
    assert torch.equal(media, (media * 255).round() / 255)
    assert torch.equal(media[:1], fake.generate(["a"], seeds=[1], size=(8, 16)))
    assert not torch.equal(media[0], media[1])
    assert not torch.equal(media[0], media[2])
    negative = fake.generate(["a"], seeds=[1], negative=["c"], size=(8, 16))
    assert not torch.equal(media[:1], negative)
    video = FakeGenerator("video").generate(["a"], seeds=[1], num_frames=3)
    assert video.shape == (1, 3, 3, 64, 64)


def test_fake_reward_is_a_reward():
    fake = FakeReward(channel=1, fails_on="broken")
    assert isinstance(fake, RewardModel)
    media = torch.zeros(2, 3, 4, 4)
    media[:, 1] = 0.25
    media.requires_grad_()
    scores = fake.score(["fine", "broken"], media)
    assert scores[0] == 0.25
    assert scores[1].isnan()
    scores[0].backward()
    assert torch.allclose(media.grad[0, 1], torch.full((4, 4), 1 / 16))
    assert media.grad[0, 0].abs().sum() == 0
    assert fake.score(["a"], [torch.ones(1, 3, 2, 5)]).tolist() == [1.0]
    with pytest.raises(ValueError, match="1 prompts and 2 media"):
        fake.score(["fine"], media)
