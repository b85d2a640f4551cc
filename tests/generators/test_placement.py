"""Offload, quantised loading, a VAE in tiles: what is refused; the libraries do the rest."""

from __future__ import annotations

import json
import sys

import pytest
import torch

from t2x.errors import MissingDependencyError, T2XError
from t2x.generators import DiffusionGenerator
from t2x.generators.placement import OFFLOADS, Placement, model_quantization, placement_facts
from t2x.memory import weight_bytes
from t2x.rewriters.language_model import LanguageModelRewriter
from t2x.testing import tiny_causal_lm, tiny_flux, tiny_stable_diffusion

CPU = torch.device("cpu")


@pytest.mark.parametrize("offload", OFFLOADS)
def test_offload_on_a_cpu_is_refused_before_anything_is_loaded(offload, tmp_path):
    with pytest.raises(T2XError, match=f"{offload!r} needs an accelerator"):
        DiffusionGenerator.from_pretrained(tmp_path, device="cpu", offload=offload)


def test_wrong_options_say_what_is_allowed():
    with pytest.raises(
        T2XError, match=r"unknown offload 'disk'; allowed: model, group, sequential"
    ):
        Placement.taken_from({}, "disk")
    with pytest.raises(T2XError, match=r"unknown quantize '3bit'; allowed: 8bit, 4bit, or a conf"):
        Placement.taken_from({"quantize": "3bit"})
    with pytest.raises(T2XError, match="leave one out"):
        Placement.taken_from({"quantize": "8bit", "quantization_config": object()})
    with pytest.raises(T2XError, match=r"4bit.* needs a GPU .*8bit"):
        model_quantization("4bit", torch.float32, CPU)
    with pytest.raises(T2XError, match="a loaded pipeline takes no quantize"):
        DiffusionGenerator.from_pretrained(tiny_stable_diffusion(), quantize="8bit")
    with pytest.raises(T2XError, match="takes no quantize"):
        LanguageModelRewriter.from_pretrained(tiny_causal_lm(), quantize="8bit")


def test_a_missing_library_names_its_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torchao.quantization", None)
    monkeypatch.setitem(sys.modules, "torchao", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 't2x\[quant\]'"):
        DiffusionGenerator.from_pretrained(tmp_path, device="cpu", quantize="8bit")
    with pytest.raises(MissingDependencyError, match=r"pip install 't2x\[quant\]'"):
        model_quantization("8bit", torch.float32, CPU)


def test_a_vae_in_tiles_and_slices():
    pipe = tiny_stable_diffusion()
    plain = DiffusionGenerator.from_pretrained(pipe, num_inference_steps=1).fingerprint()
    assert "vae_tiling" not in plain
    generator = DiffusionGenerator.from_pretrained(
        pipe, num_inference_steps=1, vae_tiling=True, vae_slicing=True
    )
    assert pipe.vae.use_tiling and pipe.vae.use_slicing
    assert generator.fingerprint()["vae_tiling"] is True
    pipe.vae.enable_tiling = None
    with pytest.raises(T2XError, match="AutoencoderKL of StableDiffusionPipeline has no tiling"):
        DiffusionGenerator.from_pretrained(pipe, vae_tiling=True)


@pytest.mark.extra("quant")
def test_eight_bits_draw_nearly_the_same_and_take_a_quarter(tmp_path):
    pipe = tiny_flux()
    pipe.save_pretrained(tmp_path / "flux")
    settings = {"num_inference_steps": 2, "sampling": {"height": 32, "width": 32}}
    exact = DiffusionGenerator.from_pretrained(pipe, **settings)
    small = DiffusionGenerator.from_pretrained(
        tmp_path / "flux", device="cpu", quantize="8bit", **settings
    )
    pictures = [g.generate(["a red cat"], seeds=[0]) for g in (exact, small)]
    assert 0 < (pictures[0] - pictures[1]).abs().mean() < 0.02
    facts = placement_facts(small.pipeline)
    assert {"transformer", "text_encoder_2"} <= facts["quantized"].keys()
    assert json.dumps(small.fingerprint()) != json.dumps(exact.fingerprint())
    assert weight_bytes(small.pipeline) < 0.6 * weight_bytes(pipe)

    model, tokenizer = tiny_causal_lm()
    model.save_pretrained(tmp_path / "lm")
    tokenizer.save_pretrained(tmp_path / "lm")
    rewriter = LanguageModelRewriter.from_pretrained(
        tmp_path / "lm", device="cpu", quantize="8bit", max_new_tokens=4
    )
    assert rewriter.rewrite(["a cat"])[0][0].original == "a cat"


def test_parts_in_another_number_format_are_in_the_key():
    """As the decoders of Wan, which its preset keeps in float32."""
    pipe = tiny_stable_diffusion()
    one = DiffusionGenerator(pipe, revision="same").fingerprint()
    pipe.vae.to(torch.bfloat16)
    other = DiffusionGenerator(pipe, revision="same").fingerprint()
    assert "dtypes" not in one and one["dtype"] == other["dtype"]
    assert other["dtypes"] == {"vae": "torch.bfloat16"}
