"""Files of weights by path, folder, hub id and address, against a little hub of our own."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from t2x.errors import T2XError
from t2x.testing import tiny_stable_diffusion
from t2x.testing.adapters import write_embedding, write_lora
from t2x.testing.hub import COMMIT, GATED, TinyHub, serve_hub
from t2x.weight_files import find_weights, names_file

from .generators.original_format import original_state

FROM_THE_HUB = """
import json, sys
from huggingface_hub import constants
from t2x.errors import T2XError
from t2x.generators.adapters import Adapters
from t2x.generators.embeddings import load_embedding
from t2x.registry import load_generator
from t2x.testing import tiny_stable_diffusion
from t2x.weight_files import find_weights

found = {}
pipe = tiny_stable_diffusion()
adapters = Adapters(pipe, known={"neon": "owner/neon"})
names = [adapters.fix("owner/usual"), adapters.fix("owner/many/b.safetensors")]
address = f"{constants.ENDPOINT}/owner/many/resolve/main/sub/c.safetensors?download=true"
found["loras"] = [*names, adapters.fix(address)]
found["named"] = [entry["name"] for entry in adapters.record({"neon": 0.5})]
found["word"] = load_embedding(pipe, "owner/word").token
one = load_generator("owner/whole/dream.safetensors", config="owner/config", num_inference_steps=1,
                     guidance_scale=2.0)
found["one"] = [one.model_id, type(one.pipeline).__name__, one.fingerprint()["revision"][-40:]]
for source in ("owner/many", "owner/gated", "owner/nothing", "owner/usual/other.safetensors",
               "https://example.org/x.safetensors"):
    try:
        find_weights(source, what="LoRA")
    except T2XError as error:
        found[source] = str(error)
print(json.dumps(found))
"""


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a.safetensors", True),
        ("A.SafeTensors", True),
        ("x/y/z.gguf", True),
        ("old.ckpt", True),
        ("https://hub/o/m/resolve/main/a.safetensors?download=true", True),
        ("owner/model", False),
        ("stable-diffusion-v1.5", False),
        (3, False),
    ],
)
def test_a_name_reads_as_a_file_or_not(source, expected):
    assert names_file(source) is expected


@pytest.mark.parametrize("source", ["", "  "])
def test_nothing_is_no_folder(source, tmp_path, monkeypatch):
    """An empty text is not the folder that one happens to be in, with the one file there."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.safetensors").write_bytes(b"")
    with pytest.raises(T2XError, match="no file of a LoRA is named"):
        find_weights(source, what="LoRA")


@pytest.mark.parametrize("name", ["a.safetensors", "a.ckpt"])
def test_the_address_that_git_leaves_in_place_of_a_file(name, tmp_path):
    from t2x.scoring.state_files import read_file

    (tmp_path / name).write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    for device in ("cpu", "meta"):
        with pytest.raises(T2XError, match=r"is a git-LFS pointer, .*git lfs pull"):
            read_file(tmp_path / name, device=device)


def test_of_a_folder_the_usual_file_or_the_only_one(tmp_path):
    for name in ("b.safetensors", "c.pt", "notes.txt"):
        (tmp_path / name).write_bytes(b"")
    options = {"what": "LoRA", "suffixes": (".safetensors", ".pt")}
    assert find_weights(tmp_path, **options) == tmp_path / "b.safetensors"
    (tmp_path / "a.safetensors").write_bytes(b"")
    with pytest.raises(T2XError, match=r"holds 2 files that may be the LoRA: a.safetensors, b.s"):
        find_weights(tmp_path, **options)
    usual = find_weights(tmp_path, preferred=("none.pt", "c.pt"), **options)
    assert usual == tmp_path / "c.pt"
    with pytest.raises(T2XError, match=r"its name ends in .txt, allowed are .safetensors, .pt"):
        find_weights(tmp_path / "notes.txt", **options)
    with pytest.raises(T2XError, match=r"there is no file '\./owner/model'"):
        find_weights("./owner/model", **options)


def test_what_the_hub_holds_is_found(tmp_path):
    """In a process of its own: the hub's client reads its address once."""
    pipe = tiny_stable_diffusion()
    folders = {n: tmp_path / n for n in ("usual", "many", "neon", "word", "whole", "config")}
    for folder in folders.values():
        folder.mkdir()
    write_lora(pipe, folders["usual"] / "pytorch_lora_weights.safetensors", seed=1)
    write_lora(pipe, folders["usual"] / "second.safetensors", seed=2)
    (folders["many"] / "sub").mkdir()
    for seed, name in enumerate(("a.safetensors", "b.safetensors", "sub/c.safetensors"), 3):
        write_lora(pipe, folders["many"] / name, seed=seed)
    write_lora(pipe, folders["neon"] / "neon-v1.safetensors", seed=9)
    write_embedding(pipe, folders["word"] / "learned_embeds.safetensors", token="<toy>")
    from safetensors.torch import save_file

    state = {k: v.clone().contiguous() for k, v in original_state(pipe).items()}
    save_file(state, folders["whole"] / "dream.safetensors")
    pipe.save_pretrained(folders["config"])
    for path in folders["config"].rglob("*.safetensors"):
        path.unlink()
    hub = TinyHub({f"owner/{n}": p for n, p in folders.items()}, {"owner/gated": GATED})
    with serve_hub(hub):
        known = {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(tmp_path / "cache")}
        run = subprocess.run(
            [sys.executable, "-c", FROM_THE_HUB],
            env={**os.environ, **known, "HF_HUB_OFFLINE": "0"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert run.returncode == 0, run.stderr[-2000:]
    found = json.loads(run.stdout.splitlines()[-1])
    assert found["loras"] == ["usual", "b", "c"]
    assert found["named"] == ["b", "c", "neon", "usual"]
    assert found["word"] == "<toy>"
    assert found["one"] == ["dream", "StableDiffusionPipeline", COMMIT]
    assert "holds 2 files that may be the LoRA: a.safetensors, b.safe" in found["owner/many"]
    assert "owner/gated" in found["owner/gated"]
    assert "owner/nothing" in found["owner/nothing"]
    missing = found["owner/usual/other.safetensors"]
    assert "cannot load other.safetensors of 'owner/usual': the repository holds no" in missing
    assert "download the LoRA yourself" in found["https://example.org/x.safetensors"]
    asked = [path for method, path in hub.requests if method == "GET"]
    assert not any(path.endswith("second.safetensors") for path in asked)
