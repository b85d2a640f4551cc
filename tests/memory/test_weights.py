"""Sizes before loading: exact for local files and loaded pipelines, None where unknown."""

from __future__ import annotations

import huggingface_hub
import pytest
import torch
from safetensors.torch import save_file

from t2x.errors import T2XError
from t2x.memory import available_bytes, machine, weight_bytes
from t2x.memory.weights import _plain_files
from t2x.testing import tiny_stable_diffusion


def parameters(pipeline):
    return sum(
        tensor.numel()
        for part in (pipeline.unet, pipeline.vae, pipeline.text_encoder)
        for tensor in part.parameters()
    )


def test_files_and_loaded_pipelines_agree(tmp_path):
    pipeline = tiny_stable_diffusion()
    pipeline.save_pretrained(tmp_path)
    assert weight_bytes(tmp_path) == 4 * parameters(pipeline)
    assert weight_bytes(tmp_path, dtype="bf16") == 2 * parameters(pipeline)
    assert weight_bytes(tmp_path, dtype=torch.float32) == 4 * parameters(pipeline)
    # Buffers (positions of the text encoder) are in memory but not in the files.
    buffers = sum(b.numel() * b.element_size() for b in pipeline.text_encoder.buffers())
    assert weight_bytes(pipeline) == 4 * parameters(pipeline) + buffers
    pipeline.to(dtype=torch.bfloat16)
    assert weight_bytes(pipeline, dtype="fp32") == 4 * parameters(pipeline) + buffers


def test_integers_keep_their_width(tmp_path):
    save_file(
        {"w": torch.zeros(3, 5), "ids": torch.zeros(7, dtype=torch.int64)},
        tmp_path / "model.safetensors",
    )
    assert weight_bytes(tmp_path) == 60 + 56
    assert weight_bytes(tmp_path, dtype="fp16") == 30 + 56


def test_variants_count_once():
    files = [
        "sd_xl_base_1.0.safetensors",
        "unet/diffusion_pytorch_model.safetensors",
        "unet/diffusion_pytorch_model.fp16.safetensors",
        "vae/diffusion_pytorch_model.fp16.safetensors",
        "unet/config.json",
    ]
    assert _plain_files(files) == [files[1], files[3]]
    assert _plain_files(["model.safetensors"]) == ["model.safetensors"]


def test_a_folder_without_weights_is_an_error(tmp_path):
    with pytest.raises(T2XError, match="no safetensors"):
        weight_bytes(tmp_path)
    (tmp_path / "model.safetensors").write_bytes((4).to_bytes(8, "little") + b"oops")
    with pytest.raises(T2XError, match="is no safetensors file"):
        weight_bytes(tmp_path)
    with pytest.raises(T2XError, match="unknown dtype"):
        weight_bytes(tmp_path, dtype="int4")


def test_a_hub_that_does_not_answer_means_unknown(monkeypatch):
    def refuse(self, repository):
        raise ConnectionError("no route")

    monkeypatch.setattr(huggingface_hub.HfApi, "list_repo_files", refuse)
    assert weight_bytes("owner/model") is None


def test_hub_headers_are_summed(monkeypatch):
    class Header:
        def __init__(self, *tensors):
            infos = [huggingface_hub.utils.TensorInfo(*tensor) for tensor in tensors]
            self.tensors = {str(index): info for index, info in enumerate(infos)}

    headers = {
        "unet/model.safetensors": Header(("F32", [10], (0, 40)), ("I64", [1], (40, 48))),
        "vae/model.safetensors": Header(("BF16", [5], (0, 10))),
    }
    api = huggingface_hub.HfApi
    monkeypatch.setattr(api, "list_repo_files", lambda self, repository: [*headers, "README.md"])
    monkeypatch.setattr(
        api, "parse_safetensors_file_metadata", lambda self, repository, name: headers[name]
    )
    assert weight_bytes("owner/model") == 40 + 8 + 10
    assert weight_bytes("owner/model", dtype="fp16") == 20 + 8 + 10


def test_this_machine_has_memory():
    free = available_bytes("cpu")
    assert free is None or free > 2**20


def test_memory_that_caches_files_counts_as_free(tmp_path, monkeypatch):
    table = tmp_path / "meminfo"
    table.write_text(
        "MemTotal:  9000 kB\nMemFree:  100 kB\nMemAvailable:  7000 kB\nCached: 6900 kB\n"
    )
    monkeypatch.setattr(machine, "MEMORY", table)
    assert available_bytes("cpu") == 7000 * 1024
    monkeypatch.setattr(machine, "MEMORY", tmp_path / "none")
    free = available_bytes("cpu")
    assert free is None or free > 2**20
