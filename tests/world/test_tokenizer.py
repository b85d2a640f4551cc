"""The world's CLIP tokenizer."""

from __future__ import annotations

from pathlib import Path

from transformers import CLIPTokenizer

from t2x.world.captions import sample_pair
from t2x.world.tokenizer import MAX_TOKENS, build_clip_tokenizer


def test_tokenizer_knows_captions_pads_like_clip_and_survives_saving(tmp_path: Path) -> None:
    tokenizer = build_clip_tokenizer(sample_pair(i).text for i in range(1500))
    text = "two objects. left: a red cat. right: an airplane."
    ids = tokenizer(text).input_ids
    words = tokenizer.convert_ids_to_tokens(ids)
    assert words[0] == "<|startoftext|>"
    assert words[-1] == "<|endoftext|>"
    assert {"two</w>", "objects</w>", "cat</w>", "airplane</w>"} <= set(words)
    padded = tokenizer(text, padding="max_length", truncation=True).input_ids
    assert len(padded) == MAX_TOKENS
    assert set(padded[len(ids) :]) == {tokenizer.eos_token_id}
    tokenizer.save_pretrained(tmp_path)
    again = CLIPTokenizer.from_pretrained(tmp_path)
    for sample in (text, "a kitten, crimson", "🐈 猫 naïve", ""):
        assert again(sample).input_ids == tokenizer(sample).input_ids
        assert tokenizer.unk_token_id not in again(sample).input_ids[1:-1]
