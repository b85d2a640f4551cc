"""Checkpoints in one file, of tiny pipelines, in the names of the original code."""

from __future__ import annotations

import json
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

from t2x.errors import MissingDependencyError, T2XError
from t2x.generators.single_file import config_of, inspect_file
from t2x.generators.tokenizers import token_budget
from t2x.registry import load_generator
from t2x.testing import fixed_weights, tiny_flux, tiny_sd3, tiny_sdxl, tiny_stable_diffusion
from t2x.testing.adapters import write_embedding, write_lora

from .original_format import original_state

SAMPLING = {"num_inference_steps": 2, "height": 16, "width": 16}


def configured(pipe, folder):
    """The folder of a pipeline without its weights, as a web UI's user would fetch it."""
    pipe.save_pretrained(folder)
    for path in folder.rglob("*.safetensors"):
        path.unlink()
    return folder


def saved(state, path):
    save_file({key: value.clone().contiguous() for key, value in state.items()}, path)
    return path


def published_sdxl():
    """Its second text encoder is wider than the first, by which diffusers tells them apart."""
    from diffusers import UNet2DConditionModel
    from transformers import CLIPTextModelWithProjection

    pipe = tiny_sdxl()
    wider = pipe.text_encoder_2.config
    wider.hidden_size = wider.projection_dim = 64
    changes = {"cross_attention_dim": 96, "projection_class_embeddings_input_dim": 112}
    with fixed_weights(1):
        unet = UNet2DConditionModel.from_config({**pipe.unet.config, **changes})
        pipe.register_modules(unet=unet, text_encoder_2=CLIPTextModelWithProjection(wider))
    return pipe


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Configurations and files of SD, SDXL and FLUX."""
    root = tmp_path_factory.mktemp("single")
    for name, pipe in (("sd", tiny_stable_diffusion()), ("xl", published_sdxl())):
        saved(original_state(pipe), root / f"{name}.safetensors")
        pipe.save_pretrained(root / f"{name}-whole")
        configured(pipe, root / name)
    flux = tiny_flux()
    flux.save_pretrained(root / "flux-whole")
    saved(flux.transformer.state_dict(), root / "flux.safetensors")
    return root


def load(source, **options):
    return load_generator(source, sampling=SAMPLING, **options)


@pytest.mark.parametrize("name", ["sd", "xl"])
def test_one_file_is_the_pipeline_that_it_was_made_of(made, name):
    one = load(made / f"{name}.safetensors", config=made / name)
    whole = load(made / f"{name}-whole")
    assert one.model_id == name
    for part, module in whole.pipeline.components.items():
        if isinstance(module, torch.nn.Module):
            found = one.pipeline.components[part].state_dict()
            assert found.keys() == module.state_dict().keys()
            assert all(torch.equal(found[k], v) for k, v in module.state_dict().items()), part
    assert torch.equal(*(g.generate(["a cat"], seeds=[3]) for g in (one, whole)))
    kept = one.generate(["a cat"], seeds=[3])
    one.free()
    assert torch.equal(one.generate(["a cat"], seeds=[3]), kept)


def test_a_web_uis_pickle_is_read_and_one_that_could_run_is_not(made, tmp_path):
    state = load_file(made / "sd.safetensors")
    torch.save({"state_dict": state, "global_step": 3}, tmp_path / "old.ckpt")
    found = inspect_file(tmp_path / "old.ckpt")
    assert (found.family, found.whole) == ("v1", True)
    old, new = load(tmp_path / "old.ckpt", config=made / "sd"), None
    new = load(made / "sd.safetensors", config=made / "sd")
    assert torch.equal(*(g.generate(["a"], seeds=[0]) for g in (old, new)))
    assert old.fingerprint()["revision"] != new.fingerprint()["revision"]

    class Trap:
        def __reduce__(self):
            return open, (str(tmp_path / "ran"), "w")

    torch.save({"state_dict": state, "callbacks": Trap()}, tmp_path / "evil.ckpt")
    with pytest.raises(T2XError, match=r"is a pickle that names .*open.*take the .safetensors"):
        load(tmp_path / "evil.ckpt", config=made / "sd")
    assert not (tmp_path / "ran").exists()


FAMILIES = {
    "v1": ("model.diffusion_model.input_blocks.0.0.weight", (320, 4, 3, 3)),
    "xl_base": ("conditioner.embedders.1.model.transformer.resblocks.9.mlp.c_proj.bias", (1280,)),
    "flux-schnell": ("double_blocks.0.img_attn.norm.key_norm.scale", (128,)),
    "sd35_large": ("model.diffusion_model.joint_blocks.37.x_block.mlp.fc1.weight", (4, 4)),
    "z-image-turbo": ("layers.0.adaLN_modulation.0.weight", (4, 4)),
}
REPOSITORIES = {
    "v1": "stable-diffusion-v1-5/stable-diffusion-v1-5",
    "xl_base": "stabilityai/stable-diffusion-xl-base-1.0",
    "flux-schnell": "black-forest-labs/FLUX.1-schnell",
    "sd35_large": "stabilityai/stable-diffusion-3.5-large",
    "z-image-turbo": "Tongyi-MAI/Z-Image-Turbo",
}


@pytest.mark.parametrize("family", FAMILIES)
def test_names_of_tensors_tell_the_family(tmp_path, family):
    key, shape = FAMILIES[family]
    found = inspect_file(saved({key: torch.zeros(shape)}, tmp_path / "x.safetensors"))
    assert (found.family, found.repository) == (family, REPOSITORIES[family])


def test_what_is_no_checkpoint_says_how_it_is_given(made, tmp_path):
    pipe = tiny_stable_diffusion()
    write_lora(pipe, tmp_path / "lora.safetensors")
    write_lora(pipe, tmp_path / "kohya.safetensors", form="kohya")
    write_embedding(pipe, tmp_path / "word.safetensors")
    saved(pipe.vae.state_dict(), tmp_path / "vae.safetensors")
    saved({"a.weight": torch.zeros(2)}, tmp_path / "strange.safetensors")
    saved({"control_model.time_embed.0.weight": torch.zeros(2)}, tmp_path / "control.safetensors")
    (tmp_path / "torn.safetensors").write_bytes((made / "sd.safetensors").read_bytes()[:5000])
    (tmp_path / "page.safetensors").write_text("<html>404</html>")
    cases = {
        "lora": "is a LoRA; give it to a model: loras=",
        "kohya": "is a LoRA",
        "word": "is a textual inversion; give it as embeddings=",
        "vae": "is a part alone; load the pipeline and give it as vae=.*--part vae=",
        "strange": "no family of checkpoints is known by the names of its tensors; give config=",
        "control": "is a ControlNet",
        "torn": "torn.safetensors.*it is damaged",
        "page": "page.safetensors",
        "absent": "there is no file .*absent.safetensors",
    }
    for name, message in cases.items():
        with pytest.raises(T2XError, match=message) as caught:
            load(tmp_path / f"{name}.safetensors")
        assert "\n" not in str(caught.value)


def test_the_configuration_of_another_model_is_refused(made):
    wrong = "cannot load xl.safetensors.* with the configuration of .*give the config= that it"
    with pytest.raises(T2XError, match=wrong):
        load(made / "xl.safetensors", config=made / "sd")
    with pytest.raises(T2XError, match=r"cannot load sd.safetensors.*expected shape"):
        load(made / "sd.safetensors", config=made / "xl")
    with pytest.raises(T2XError, match="which diffusers does not quantise while it loads"):
        load(made / "sd.safetensors", config=made / "sd", quantization_config=object())
    with pytest.raises(T2XError, match=r"has no model_index.json; give a folder of a whole"):
        load(made / "sd.safetensors", config=made / "sd" / "unet")


def test_a_gated_configuration_and_too_little_memory_say_what_to_do(made, monkeypatch):
    from diffusers import StableDiffusionPipeline

    class GatedRepoError(OSError):
        """As the hub's client names it."""

    def refuse(*_, **__):
        raise GatedRepoError("401 Client Error. (Request ID: x)\nCannot access")

    monkeypatch.setattr("huggingface_hub.snapshot_download", refuse)
    config_of.cache_clear()
    with pytest.raises(T2XError, match=r"of owner/gated, which can't .* is gated.*hf auth"):
        load(made / "sd.safetensors", config="owner/gated")

    def fill(*_, **__):
        raise RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate")

    monkeypatch.setattr(StableDiffusionPipeline, "from_single_file", fill)
    with pytest.raises(T2XError, match="there is not enough memory for it"):
        load(made / "sd.safetensors", config=made / "sd")


def test_without_a_hub_it_says_what_to_give(made, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    config_of.cache_clear()
    wanted = (
        "sd.safetensors needs the configuration of stable-diffusion-v1-5/stable-diffusion-v1-5, "
        "which can't be fetched: .*; give config= a local folder in diffusers' format"
    )
    with pytest.raises(T2XError, match=wanted):
        load(made / "sd.safetensors")
    with pytest.raises(
        T2XError, match=r"cannot load x.safetensors of 'owner/model': HF_HUB_OFFLINE"
    ):
        load("owner/model/x.safetensors")


def test_a_missing_part_says_how_it_is_given(made, tmp_path):
    state = load_file(made / "xl.safetensors")
    first = "conditioner.embedders.0."
    rest = {key: value for key, value in state.items() if not key.startswith(first)}
    saved(rest, tmp_path / "bare.safetensors")
    with pytest.raises(T2XError, match=r"bare.safetensors.*like text_encoder=FOLDER") as caught:
        load(tmp_path / "bare.safetensors", config=made / "xl")
    assert "\n" not in str(caught.value)
    given = load(
        tmp_path / "bare.safetensors",
        config=made / "xl",
        text_encoder=made / "xl-whole" / "text_encoder",
    )
    whole = load(made / "xl-whole")
    assert torch.equal(*(g.generate(["a"], seeds=[0]) for g in (given, whole)))


def test_parts_from_files_stand_in_for_those_of_a_folder(made, tmp_path):
    """As few-step UNets and mended autoencoders are passed on."""
    other = tiny_stable_diffusion(seed=5)
    state = original_state(other)
    unet = {k: v for k, v in state.items() if k.startswith("model.diffusion_model.")}
    saved(unet, tmp_path / "unet.safetensors")
    saved(other.vae.state_dict(), tmp_path / "vae.safetensors")
    mixed = load(
        made / "sd-whole",
        unet=tmp_path / "unet.safetensors",
        vae=str(tmp_path / "vae.safetensors"),
    )
    plain = load(made / "sd-whole")
    with pytest.raises(T2XError, match="vea: no option"):
        load(made / "sd.safetensors", config=made / "sd", vea=made / "sd-whole" / "vae")
    (tmp_path / "torn").mkdir()
    for path in (made / "sd-whole" / "vae").iterdir():
        (tmp_path / "torn" / path.name).write_bytes(path.read_bytes()[:2000])
    with pytest.raises(T2XError, match=r"the vae .*torn"):
        load(made / "sd-whole", vae=tmp_path / "torn")
    for part, wanted in (("unet", other), ("vae", other), ("text_encoder", plain.pipeline)):
        found = getattr(mixed.pipeline, part).state_dict()
        assert all(torch.equal(found[k], v) for k, v in getattr(wanted, part).state_dict().items())
    keys = [g.fingerprint()["revision"] for g in (plain, mixed)]
    assert keys[1].startswith(f"{keys[0]}+unet:")
    alone = load(tmp_path / "unet.safetensors", config=made / "sd-whole")
    assert torch.equal(alone.pipeline.unet.conv_in.weight, mixed.pipeline.unet.conv_in.weight)
    with pytest.raises(
        T2XError, match=r"the unet of .* is of another model: its cross_attention_d"
    ):
        load(made / "sd-whole", unet=made / "xl-whole" / "unet")
    with pytest.raises(T2XError, match=r"has no transformer; it has unet, vae, text_encoder"):
        load(made / "sd-whole", transformer=tmp_path / "unet.safetensors")
    with pytest.raises(T2XError, match=r"cannot load unet.safetensors"):
        load(made / "xl-whole", unet=tmp_path / "unet.safetensors")
    with pytest.raises(T2XError, match=r"gaps.safetensors.*it lacks tensors that this model has"):
        part = {k: v for k, v in unet.items() if "middle_block.1" not in k}
        load(made / "sd-whole", unet=saved(part, tmp_path / "gaps.safetensors"))


def test_parts_that_are_left_out_are_in_the_key(made, tmp_path):
    """A pipeline without its third encoder, or with another's tokenizer, draws other pictures."""
    from transformers import CLIPTokenizer

    tiny_sd3().save_pretrained(tmp_path / "sd3")
    whole = load_generator(tmp_path / "sd3")
    less = load_generator(tmp_path / "sd3", text_encoder_3=None, tokenizer_3=None)
    first, second = (g.fingerprint()["revision"] for g in (whole, less))
    assert second == f"{first}+text_encoder_3:none+tokenizer_3:none"
    words = CLIPTokenizer.from_pretrained(made / "sd-whole" / "tokenizer")
    words.add_tokens("<new>")
    keys = [load(made / "sd-whole", **given).fingerprint() for given in ({}, {"tokenizer": words})]
    assert keys[0]["revision"] != keys[1]["revision"]


def test_an_address_is_fetched_at_the_revision_that_is_asked_for(made, monkeypatch):
    asked = []

    def fetched(repository, name, *, revision=None):
        asked.append(revision)
        return made / "sd.safetensors"

    monkeypatch.setattr("t2x.scoring.state_files.hub_file", fetched)
    monkeypatch.setattr("t2x.generators.single_file.config_of", lambda *_: made / "sd")
    load("owner/model/sd.safetensors", revision="abc").fingerprint()
    assert set(asked) == {"abc"}


def test_a_transformer_of_flux_in_one_file_and_in_gguf(made, tmp_path, monkeypatch):
    gguf = pytest.importorskip("gguf")
    whole = load(made / "flux-whole")
    alone = load(made / "flux.safetensors", config=made / "flux-whole")
    pictures = [g.generate(["a cat"], seeds=[1]) for g in (whole, alone)]
    assert torch.equal(*pictures)

    writer = gguf.GGUFWriter(tmp_path / "flux-Q8_0.gguf", "flux")
    kind = gguf.GGMLQuantizationType.Q8_0
    for name, value in load_file(made / "flux.safetensors").items():
        data = value.numpy()
        if value.ndim == 2 and value.shape[1] % 32 == 0:
            writer.add_tensor(name, gguf.quantize(data, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    short = load(made / "flux-whole", transformer=tmp_path / "flux-Q8_0.gguf")
    assert short.pipeline.transformer.is_quantized
    assert json.dumps(short.fingerprint())
    picture = short.generate(["a cat"], seeds=[1])
    assert 0 < (picture - pictures[0]).abs().max() < 0.1
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(MissingDependencyError, match="pip install gguf"):
        load(tmp_path / "flux-Q8_0.gguf", config=made / "flux-whole")


def test_the_command_takes_one_file_with_additions(made, tmp_path):
    from typer.testing import CliRunner

    from t2x.cli import app

    pipe = tiny_stable_diffusion()
    lora = write_lora(pipe, tmp_path / "neon.safetensors")
    word = write_embedding(pipe, tmp_path / "thing.safetensors")
    options = ["--lora", f"{lora}:0.8", "--embedding", f"{word}=<own>", "--config", made / "sd"]
    size = ["--size", "16x16", "--steps", "2", "--out", tmp_path / "out", "--json"]
    command = ["generate", "a <own>", "--model", made / "sd.safetensors", *options, *size]
    run = CliRunner().invoke(app, [str(word) for word in command])
    assert run.exit_code == 0, run.output
    (row,) = json.loads(run.stdout)
    assert row["model"] == "sd"
    assert row["adapters"][0] | {"digest": ""} == {"name": "neon", "digest": "", "scale": 0.8}
    assert row["embeddings"][0]["token"] == "<own>"
    from PIL import Image

    held = Image.open(row["file"]).text
    assert json.loads(held["adapters"])[0]["name"] == "neon"
    (wrong, message) = (["--part", "unet"], "no NAME=FILE")
    run = CliRunner().invoke(app, ["generate", "a", *wrong])
    assert run.exit_code != 0
    assert message in str(run.exception) + run.output


def test_token_limits_of_one_file_are_those_of_its_configuration(made):
    from t2x.generators.single_file import config_source

    assert config_source(made / "sd.safetensors", made / "sd") == str(made / "sd")
    budget = token_budget(config_source(made / "sd.safetensors", made / "sd"))
    assert budget is not None
    assert {limit.limit for limit in budget.count("a")} == {77}
