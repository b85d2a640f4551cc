"""Loading leaves no trace in the process, and names for weights follow their bytes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from diffusers.utils import logging as diffusers_logging
from transformers.utils import logging as transformers_logging

from t2x.devices import auto_dtype, resolve_device
from t2x.errors import T2XError
from t2x.generators.identity import WHOLE_FILE, folder_digest, hub_commit
from t2x.generators.loading import quiet, resolve_dtype
from t2x.registry import load_generator


def test_versions_are_told_without_importing():
    """A request that reads a recipe while a worker imports would leave both half-made modules."""
    code = (
        "import sys; from t2x.generators.identity import *; from t2x.generators import identity;"
        "found = versions((*LIBRARIES, *SCORING_LIBRARIES));"
        "assert not {'diffusers', 'transformers', 'open_clip', 'PIL'} & sys.modules.keys();"
        "assert all(found[name] == __import__(name).__version__ for name in found), found;"
        "print(len(found))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout == "6\n"


def test_quiet_gives_verbosity_and_bars_back():
    diffusers_logging.set_verbosity_info()
    try:
        with pytest.raises(KeyError), quiet():
            assert diffusers_logging.get_verbosity() == diffusers_logging.ERROR
            assert not transformers_logging.is_progress_bar_enabled()
            raise KeyError
        assert diffusers_logging.get_verbosity() == diffusers_logging.INFO
        assert transformers_logging.is_progress_bar_enabled()
        with quiet(bars=True):
            assert diffusers_logging.is_progress_bar_enabled()
    finally:
        diffusers_logging.set_verbosity_warning()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sampling": 3}, "sampling is 3; give a dict"),
        ({"preset": 3}, "preset is 3; give a name"),
        ({"preset": ["sdxl-base"]}, r"preset is \['sdxl-base'\]; give a name"),
        ({"lora_folder": 3}, "lora_folder is 3; give a path"),
    ],
)
def test_options_of_another_type_are_one_line(options, words):
    with pytest.raises(T2XError, match=words):
        load_generator("emoji-flow", **options)


@pytest.mark.parametrize(
    ("index", "words"),
    [
        ("[]", "must hold one JSON object, got list"),
        ('{"vae": ["diffusers", "AutoencoderKL"]}', "names no class of pipelines"),
        ('{"_class_name": "StableDiffusionPipeline", "vae": ["diffusers"]}', "'vae' is .*library"),
        ('{"_class_name": "StableDiffusionPipeline", "vae": [1, 2]}', "'vae' is .*library"),
    ],
)
def test_an_index_that_is_none_says_where(tmp_path, index, words):
    (tmp_path / "model_index.json").write_text(index)
    with pytest.raises(T2XError, match=rf"model_index.json.*{words}"):
        load_generator(tmp_path)


def test_pictures_that_no_memory_holds_are_refused_before_they_are_begun():
    generator = load_generator("emoji-flow")
    with pytest.raises(T2XError, match=r"100000x100000 pixels need 480 GB at the least, and .* of"):
        generator.generate(["a cat"], seeds=[0], size=(100_000, 100_000))


def test_number_format_follows_the_device():
    cpu = torch.device("cpu")
    assert resolve_dtype(None, cpu) == torch.float32
    assert resolve_dtype("bf16", cpu) == torch.bfloat16
    assert resolve_dtype(torch.float16, cpu) == torch.float16
    assert resolve_dtype("auto", cpu) == auto_dtype(cpu)
    assert resolve_dtype("auto", torch.device("mps")) == torch.float16
    assert resolve_dtype(None, torch.device("mps")) == torch.float16
    assert resolve_device("cpu") == cpu


def test_folder_digest_follows_bytes_and_names(tmp_path):
    (tmp_path / "unet").mkdir()
    weights = tmp_path / "unet" / "model.safetensors"
    weights.write_bytes(b"abc")
    before = folder_digest(tmp_path)
    os.utime(weights, (1, 1))
    (tmp_path / "README.md").write_text("a card")
    (tmp_path / ".cache").write_text("x")
    assert folder_digest(tmp_path) == before
    weights.write_bytes(b"abd")
    assert folder_digest(tmp_path) != before
    weights.write_bytes(b"abc")
    weights.rename(tmp_path / "unet" / "other.safetensors")
    assert folder_digest(tmp_path) != before


def test_folder_digest_of_a_large_file_looks_at_its_ends(tmp_path):
    path = tmp_path / "large.safetensors"
    with path.open("wb") as file:  # sparse: takes no room
        file.truncate(WHOLE_FILE + 2)
    os.utime(path, (1, 1))
    before = folder_digest(tmp_path)
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"x")
    os.utime(path, (1, 1))
    assert folder_digest(tmp_path) != before


def test_hub_commit_is_read_from_the_cache(tmp_path, monkeypatch):
    assert hub_commit("owner/never-downloaded", None) is None
    found = tmp_path / "snapshots" / "0a1b2c" / "model_index.json"
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *a, **k: str(found))
    assert hub_commit("owner/model", "main") == "0a1b2c"
