"""Folders that hold only the parts that differ from a base: loading, names, sizes, errors."""

from __future__ import annotations

import json
import shutil
from types import SimpleNamespace

import huggingface_hub
import pytest
import torch

from t2x.errors import T2XError
from t2x.generators import DiffusionGenerator
from t2x.generators.folders import base_of, folder_settings, part_names, pipeline_folder
from t2x.memory import weight_bytes
from t2x.testing import tiny_stable_diffusion
from t2x.world import weights

SETTINGS = {"num_inference_steps": 2, "guidance_scale": 3.0, "height": 64, "width": 64}


@pytest.fixture(scope="module")
def student():
    return tiny_stable_diffusion(seed=1, guidance_embedding=32)


@pytest.fixture
def folders(tmp_path, student):
    """A whole pipeline, and beside it another one's UNet and scheduler that name it as base."""
    tiny_stable_diffusion(seed=0).save_pretrained(tmp_path / "flow")
    save_parts(tmp_path / "turbo", student, base="../flow")
    return tmp_path / "flow", tmp_path / "turbo"


def save_parts(folder, pipeline, **settings):
    pipeline.unet.save_pretrained(folder / "unet")
    pipeline.scheduler.save_pretrained(folder / "scheduler")
    (folder / "t2x.json").write_text(json.dumps({**SETTINGS, **settings}))


def header(count):
    info = huggingface_hub.utils.TensorInfo("F32", [count], (0, 4 * count))
    return SimpleNamespace(tensors={"w": info})


def test_parts_and_base_make_one_pipeline(folders, student):
    flow, turbo = folders
    whole = DiffusionGenerator.from_pretrained(flow).pipeline
    generator = DiffusionGenerator.from_pretrained(turbo)
    assert generator.model_id == "turbo"
    assert generator.sampling == SETTINGS
    # What the folder holds is its own, the rest is the base's.
    assert generator.pipeline.unet.config.time_cond_proj_dim == 32
    whole.unet, whole.scheduler = student.unet, student.scheduler
    expected = DiffusionGenerator.from_pretrained(whole, sampling=SETTINGS)
    pictures = [g.generate(["a red cat"], seeds=[5]) for g in (generator, expected)]
    assert torch.equal(*pictures)
    generator.free()
    assert torch.equal(generator.generate(["a red cat"], seeds=[5]), pictures[0])


def test_number_format_reaches_every_part(folders):
    pipeline = DiffusionGenerator.from_pretrained(folders[1], dtype="bf16").pipeline
    assert {pipeline.unet.dtype, pipeline.vae.dtype} == {torch.bfloat16}


def test_the_revision_follows_both_folders(folders):
    flow, turbo = folders

    def revision(folder):
        return DiffusionGenerator.from_pretrained(folder).fingerprint()["revision"]

    before, base = revision(turbo), revision(flow)
    assert before.endswith(f"+{base}") and before != f"{base}+{base}"
    (flow / "vae" / "note.json").write_text("{}")
    assert revision(turbo) != before
    assert revision(turbo).split("+")[0] == before.split("+")[0]


def test_weights_of_both_are_counted_once(folders, student, monkeypatch):
    flow, turbo = folders
    rest = [part for name, part in student.components.items() if name in ("vae", "text_encoder")]
    modules = [student.unet, *rest]  # base and student differ in the UNet alone
    count = sum(p.numel() for module in modules for p in module.parameters())
    assert weight_bytes(turbo) == 4 * count
    assert weight_bytes(turbo, dtype="fp16") == 2 * count
    assert weight_bytes(turbo) > weight_bytes(flow)  # its UNet has the guidance embedding
    hub = {"unet/w.safetensors": 10, "vae/w.safetensors": 7}
    api = huggingface_hub.HfApi
    monkeypatch.setattr(api, "list_repo_files", lambda self, repository: [*hub, "README.md"])
    monkeypatch.setattr(
        api, "parse_safetensors_file_metadata", lambda self, repository, name: header(hub[name])
    )
    own = sum(p.numel() for p in student.unet.parameters())
    (turbo / "t2x.json").write_text('{"base": "owner/model"}')
    assert weight_bytes(turbo) == 4 * (own + 7)
    monkeypatch.setattr(api, "list_repo_files", lambda self, repository: 1 / 0)
    assert weight_bytes(turbo) is None


def test_what_a_folder_says(folders):
    flow, turbo = folders
    assert base_of(flow) is None
    assert base_of(turbo) == str(turbo / "../flow")
    assert part_names(turbo) == ["scheduler", "unet"]
    assert folder_settings(turbo) == SETTINGS
    assert pipeline_folder(flow) == flow
    (turbo / "t2x.json").write_text('{"base": "owner/model"}')
    assert base_of(turbo) == "owner/model"
    assert pipeline_folder(turbo) is None


def test_errors_are_one_line(folders, tmp_path):
    flow, turbo = folders

    def message(settings):
        (turbo / "t2x.json").write_text(json.dumps(settings))
        with pytest.raises(T2XError) as caught:
            DiffusionGenerator.from_pretrained(turbo)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert "no model_index.json" in message({"base": "."})  # its own base
    assert '"base" is 3' in message({"base": 3})
    assert "no model_index.json" in message(SETTINGS)
    config = turbo / "unet" / "config.json"
    config.write_text('{"_class_name": "DiffusionPipeline"}')
    assert "allowed are models and schedulers" in message({"base": str(flow)})
    config.write_text('{"_class_name": "UNet2DConditionModel"}')
    (turbo / "unet" / "diffusion_pytorch_model.safetensors").write_bytes(b"no weights")
    assert "its weights are damaged" in message({"base": str(flow)})
    shutil.rmtree(turbo / "unet")
    shutil.rmtree(turbo / "scheduler")
    assert "holds no parts" in message({"base": str(flow)})


def test_an_embedded_model_of_parts_needs_its_base(tmp_path, student, monkeypatch):
    monkeypatch.setattr(weights, "MODELS", tmp_path)
    turbo = tmp_path / "emoji-flow-turbo"
    assert not weights.is_present("emoji-flow-turbo")
    save_parts(turbo, student, base="emoji-flow")
    assert not weights.is_present("emoji-flow-turbo")
    with pytest.raises(T2XError, match=r"train emoji-flow --out runs/emoji-flow, then copy what "):
        weights.require_model("emoji-flow-turbo")
    with pytest.raises(T2XError, match="'emoji-flow' has no weights"):
        DiffusionGenerator.from_pretrained(turbo)
    tiny_stable_diffusion().save_pretrained(tmp_path / "emoji-flow")
    assert weights.is_present("emoji-flow-turbo")
    assert weights.require_model("emoji-flow-turbo") == turbo
    generator = DiffusionGenerator.from_pretrained(turbo, num_inference_steps=1)
    assert generator.generate(["a cat"], seeds=[0]).shape == (1, 3, 64, 64)


def test_the_package_names_no_folder_of_the_machine_it_was_made_on():
    """A recipe writes the path of its teacher; what is shipped must name an embedded model."""
    folders = [weights.model_dir(name) for name in weights.EMBEDDED]
    files = [folder / "t2x.json" for folder in folders if (folder / "t2x.json").is_file()]
    bases = [json.loads(path.read_text()).get("base") for path in files]
    assert {base for base in bases if base is not None} <= set(weights.EMBEDDED)
