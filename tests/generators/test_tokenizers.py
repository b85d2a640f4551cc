"""Token limits of a generator from its tokenizers alone: the same, by name or loaded."""

from __future__ import annotations

import json

import pytest

from t2x.errors import T2XError, UnknownNameError
from t2x.generators import DiffusionGenerator
from t2x.generators.tokenizers import token_budget
from t2x.testing import (
    FakeGenerator,
    tiny_clip_tokenizer,
    tiny_stable_diffusion,
    tiny_word_tokenizer,
    tiny_z_image,
)
from t2x.world import weights

CLIP = ["transformers", "CLIPTokenizer"]


def limits(budget):
    return {count.encoder: count.limit for count in budget.count("a cat")}


def save(folder, index, **tokenizers):
    """Write what the hub would give of a pipeline: its index and its tokenizers."""
    for name, tokenizer in tokenizers.items():
        tokenizer.save_pretrained(folder / name)
    (folder / "model_index.json").write_text(json.dumps(index))
    return folder


def test_a_folder_and_the_loaded_pipeline_have_the_same_limits(tmp_path):
    for build in (tiny_stable_diffusion, tiny_z_image):
        folder = tmp_path / build.__name__
        build().save_pretrained(folder)
        by_name = limits(token_budget(folder))
        assert by_name == limits(token_budget(DiffusionGenerator.from_pretrained(folder)))
        assert by_name == {"tokenizer": 77 if build is tiny_stable_diffusion else 512}


def test_sampling_settings_change_the_limit(tmp_path):
    pipeline = tiny_z_image()
    generator = DiffusionGenerator.from_pretrained(pipeline, sampling={"max_sequence_length": 40})
    assert limits(token_budget(generator)) == {"tokenizer": 40}
    pipeline.save_pretrained(tmp_path)
    (tmp_path / "t2x.json").write_text('{"max_sequence_length": 50}')
    assert limits(token_budget(tmp_path)) == {"tokenizer": 50}


def test_the_generator_warns_at_the_same_limit(caplog):
    generator = DiffusionGenerator.from_pretrained(
        tiny_z_image(), num_inference_steps=1, sampling={"max_sequence_length": 4}
    )
    generator.generate(["a cat", "a red cat and a blue dog"], seeds=[0, 0], size=(32, 32))
    said = [r.getMessage() for r in caplog.records if "tokens" in r.getMessage()]
    assert said == ["prompt 1 has 7 tokens, ZImagePipeline reads the first 4"]


def test_tokenizers_are_enough_and_null_is_none(tmp_path):
    index = {"_class_name": "StableDiffusion3Pipeline", "tokenizer": CLIP, "tokenizer_2": CLIP}
    index |= {"tokenizer_3": [None, None], "text_encoder": ["transformers", "CLIPTextModel"]}
    whole = save(
        tmp_path / "whole",
        index,
        tokenizer=tiny_clip_tokenizer(50),
        tokenizer_2=tiny_clip_tokenizer(60),
    )
    parts = tmp_path / "parts"
    parts.mkdir()
    (parts / "t2x.json").write_text('{"base": "../whole", "max_sequence_length": 99}')
    for folder in (whole, str(parts)):
        assert limits(token_budget(folder)) == {"tokenizer": 50, "tokenizer_2": 60}
    index["tokenizer_3"] = ["transformers", "PreTrainedTokenizerFast"]
    save(whole, index, tokenizer_3=tiny_word_tokenizer())
    assert limits(token_budget(whole))["tokenizer_3"] == 256  # the class's own default
    assert limits(token_budget(parts))["tokenizer_3"] == 99


def test_of_a_hub_id_only_tokenizers_are_fetched(tmp_path, monkeypatch):
    index = {"_class_name": "StableDiffusionPipeline", "tokenizer": CLIP}
    folder = save(tmp_path, index, tokenizer=tiny_clip_tokenizer(33))
    asked = []
    monkeypatch.setattr(
        "huggingface_hub.snapshot_download", lambda *a, **k: asked.append((a, k)) or str(folder)
    )
    assert limits(token_budget("owner/model")) == {"tokenizer": 33}
    configs = ["unet/config.json", "transformer/config.json"]
    wanted = {"allow_patterns": ["model_index.json", "tokenizer*/*", *configs]}
    assert asked == [(("owner/model",), wanted)]


def test_what_is_unknown_is_told(tmp_path, monkeypatch, caplog):
    def refuse(*args, **options):
        raise ConnectionError("no route\nto the hub")

    monkeypatch.setattr("huggingface_hub.snapshot_download", refuse)
    pipeline = tiny_stable_diffusion()
    pipeline.tokenizer = None
    empty = save(tmp_path, {"_class_name": "StableDiffusionPipeline", "tokenizer": [None, None]})
    odd = save(
        tmp_path / "odd", {"_class_name": "Mine", "tokenizer": CLIP}, a=tiny_clip_tokenizer()
    )
    unknown = {
        "owner/model": "ConnectionError: no route to the hub",
        "my_package.module:load": "once it is loaded",
        str(empty): "no tokenizer that could be asked",
        str(odd): "'Mine' is no pipeline of diffusers",
    }
    for name, reason in unknown.items():
        assert token_budget(name) is None
        assert name in caplog.messages[-1] and reason in caplog.messages[-1]
    for loaded in (FakeGenerator(), DiffusionGenerator.from_pretrained(pipeline)):
        assert token_budget(loaded) is None
        assert loaded.model_id in caplog.messages[-1]


def test_a_name_that_is_nothing_is_an_error(tmp_path, monkeypatch):
    with pytest.raises(UnknownNameError, match="did you mean 'emoji-flow'"):
        token_budget("emoji-flaw")
    monkeypatch.setattr(weights, "MODELS", tmp_path)
    with pytest.raises(T2XError, match="t2x world train emoji-flow"):
        token_budget("emoji-flow")
