"""LoRAs and textual inversions on tiny real pipelines, with files made here."""

from __future__ import annotations

import copy
import pickle
import sys

import pytest
import torch

from t2x.errors import MissingDependencyError, T2XError
from t2x.generators.adapters import Adapters
from t2x.generators.diffusion import DiffusionGenerator
from t2x.generators.embeddings import load_embedding
from t2x.generators.identity import parameter_digest
from t2x.registry import load_generator
from t2x.testing import tiny_flux, tiny_sdxl, tiny_stable_diffusion
from t2x.testing.adapters import write_embedding, write_lora

SIZE = {"height": 16, "width": 16, "num_inference_steps": 2, "guidance_scale": 3.0}


class Trap:
    """Writes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("loras")
    pipe = tiny_stable_diffusion()
    write_lora(pipe, root / "neon.v2.safetensors", seed=1)
    (root / "sub").mkdir()
    both = ("unet", "text_encoder")
    layers = ("to_q", "q_proj")
    write_lora(pipe, root / "sub" / "Ink.safetensors", seed=2, components=both, layers=layers)
    write_lora(tiny_sdxl(), root / "xl.safetensors")
    write_lora(tiny_flux(), root / "flux.safetensors")
    return root


@pytest.fixture
def pipe():
    made = tiny_stable_diffusion()
    made.set_progress_bar_config(disable=True)
    return made


def draw(pipe, prompt="a cat", **changes):
    stream = [torch.Generator().manual_seed(0)]
    call = {**SIZE, "output_type": "pt", "generator": stream, **changes}
    return pipe([prompt], **call).images


def test_a_lora_acts_inside_alone_and_leaves_no_bit_behind(pipe, folder):
    bare = draw(pipe)
    adapters = Adapters(pipe, folder=folder)
    with adapters.scaled({"neon.v2": 0.8}):
        strong = draw(pipe)
    with adapters.scaled({"neon.v2": 0.0}):
        none = draw(pipe)
    with adapters.scaled({"neon.v2": 0.4}):
        weak = draw(pipe)
    with adapters.scaled({}):
        empty = draw(pipe)
    assert torch.equal(bare, draw(pipe))
    assert torch.equal(bare, empty)
    torch.testing.assert_close(bare, none)
    assert 0 < (weak - bare).abs().max() < (strong - bare).abs().max()


def test_a_layer_computes_what_the_factors_and_scales_say(pipe, folder):
    """W x + 0.5 B1 A1 x + 2 B2 A2 x, from the files themselves."""
    from safetensors.torch import load_file

    name = "mid_block.attentions.0.transformer_blocks.0.attn1.to_q"
    x = torch.randn(3, 32, generator=torch.Generator().manual_seed(0))
    wanted = pipe.unet.get_submodule(name)(x)
    for file, scale in (("neon.v2", 0.5), ("sub/Ink", 2.0)):
        state = load_file(folder / f"{file}.safetensors")
        down, up = (state[f"unet.{name}.lora_{part}.weight"] for part in "AB")
        wanted = wanted + scale * x @ down.T @ up.T
    adapters = Adapters(pipe, folder=folder, fixed={"ink": 2.0})
    assert list(adapters.fixed) == ["ink"]
    with adapters.scaled({"neon.v2": 0.5}), torch.no_grad():
        torch.testing.assert_close(pipe.unet.get_submodule(name)(x), wanted)
    for parameter in pipe.unet.get_submodule(name).lora_A.parameters():
        assert not parameter.requires_grad


def test_scales_may_differ_by_component(pipe, folder):
    adapters = Adapters(pipe, folder=folder)
    with adapters.scaled({"Ink": {"unet": 0.0, "text_encoder": 0.0}}):
        none = draw(pipe)
    with adapters.scaled({"Ink": {"text_encoder": 1.0}}):
        words = draw(pipe)
    with adapters.scaled({"Ink": 1.0}):
        both = draw(pipe)
    torch.testing.assert_close(none, draw(pipe))
    assert not torch.allclose(words, none)
    assert not torch.allclose(words, both)


def test_names_are_found_in_the_folder_and_among_the_known(pipe, folder, tmp_path):
    adapters = Adapters(pipe, folder=folder, known={"glow": folder / "neon.v2.safetensors"})
    assert adapters.names == ["Ink", "flux", "glow", "neon.v2", "xl"]
    assert adapters.find("neon.v2") == adapters.find("glow") == folder / "neon.v2.safetensors"
    assert adapters.find("ink") == adapters.find("SUB/INK") == folder / "sub" / "Ink.safetensors"
    for nothing in ("nothing", "../loras/xl", "", str(folder / "xl.safetensors")):
        assert adapters.find(nothing) is None
    with pytest.raises(T2XError, match=r"no LoRA 'neon': did you mean 'neon.v2'\?"):
        adapters.record({"neon": 1.0})
    with pytest.raises(T2XError, match="two are the same file"):
        adapters.record({"neon.v2": 1.0, "glow": 1.0})
    (tmp_path / "a").mkdir()
    for path in ("a/same.safetensors", "same.safetensors"):
        write_lora(pipe, tmp_path / path)
    with pytest.raises(T2XError, match="may be any of"):
        Adapters(pipe, folder=tmp_path).find("same")


@pytest.mark.parametrize("given", ["x.safetensors", ["x.safetensors"]])
def test_additions_come_by_file(given):
    with pytest.raises(T2XError, match=r"loras is .*give a dict by file"):
        Adapters(fixed=given)
    with pytest.raises(T2XError, match=r"embeddings is .*give a dict by file"):
        Adapters(embeddings=given)


def test_a_file_without_tensors_is_said_to_have_none(pipe, tmp_path):
    from safetensors.torch import save_file

    save_file({}, tmp_path / "none.safetensors")
    with pytest.raises(T2XError, match=r"none.safetensors' does not fit .*: it holds no tensors"):
        Adapters(pipe, fixed={tmp_path / "none.safetensors": 1.0})


def test_what_does_not_fit_is_refused_and_leaves_the_picture_as_it_was(pipe, folder):
    bare = draw(pipe)
    adapters = Adapters(pipe, folder=folder, fixed={"neon.v2": 1.0})
    fixed = draw(pipe)
    shapes = r"does not fit StableDiffusionPipeline: its .*attn2.to_v.lora_A is \(2, 64\), the"
    with pytest.raises(T2XError, match=shapes):
        adapters.fix(folder / "xl.safetensors")
    with pytest.raises(T2XError, match="it has no layer for"):
        adapters.fix(folder / "flux.safetensors")
    with pytest.raises(T2XError, match="does not fit FluxPipeline: it has no layer for 'unet"):
        Adapters(tiny_flux(), fixed={folder / "sub" / "Ink.safetensors": 1.0})
    assert adapters.record() == [
        {"name": "neon.v2", "digest": adapters.record()[0]["digest"], "scale": 1.0}
    ]
    assert torch.equal(fixed, draw(pipe))
    adapters.unload("neon.v2")
    assert torch.equal(bare, draw(pipe))
    assert adapters.record() == []


def test_tensors_without_a_layer_are_told(pipe, folder, tmp_path, caplog):
    from safetensors.torch import load_file, save_file

    state = load_file(folder / "neon.v2.safetensors")
    extra = {f"unet.nowhere.to_q.lora_{part}.weight": torch.ones(2, 2) for part in "AB"}
    save_file({**state, **extra}, tmp_path / "more.safetensors")
    adapters = Adapters(pipe, fixed={tmp_path / "more.safetensors": 1.0})
    assert "2 of its 34 tensors fit no layer of StableDiffusionPipeline" in caplog.text
    with adapters.scaled({"more": 0.5}):
        pass


@pytest.mark.parametrize("build", [tiny_stable_diffusion, tiny_sdxl])
def test_kohyas_format_is_the_same_lora(build, tmp_path):
    made = build()
    options = {"seed": 3, "rank": 4, "alpha": 2.0}
    write_lora(made, tmp_path / "own.safetensors", **options)
    write_lora(made, tmp_path / "kohya.safetensors", form="kohya", **options)
    x = torch.randn(1, 32, generator=torch.Generator().manual_seed(0))
    layer = "mid_block.attentions.0.transformer_blocks.0.attn1.to_q"
    adapters = Adapters(made, folder=tmp_path)
    found = {}
    for name in ("own", "kohya"):
        with adapters.scaled({name: 0.7}), torch.no_grad():
            found[name] = made.unet.get_submodule(layer)(x)
    bare = made.unet.get_submodule(layer)(x)
    torch.testing.assert_close(found["own"], found["kohya"])
    assert not torch.allclose(found["own"], bare)


def test_a_lora_that_peft_made_and_diffusers_saved(tmp_path):
    from peft import LoraConfig
    from peft.utils import get_peft_model_state_dict

    trained = tiny_flux()
    config = LoraConfig(r=2, lora_alpha=4, target_modules=["to_q"], init_lora_weights=False)
    trained.transformer.add_adapter(config)
    layer = "single_transformer_blocks.0.attn.to_q"
    x = torch.randn(1, 32, generator=torch.Generator().manual_seed(0))
    wanted = trained.transformer.get_submodule(layer)(x)
    layers = get_peft_model_state_dict(trained.transformer)
    metadata = {"transformer_lora_adapter_metadata": config.to_dict()}
    type(trained).save_lora_weights(tmp_path / "own", transformer_lora_layers=layers, **metadata)
    fresh = tiny_flux()
    adapters = Adapters(fresh)
    assert adapters.fix(tmp_path / "own") == "own"
    torch.testing.assert_close(fresh.transformer.get_submodule(layer)(x), wanted)


def test_loras_of_the_caller_stay_and_act_beside(pipe, folder):
    pipe.load_lora_weights(str(folder / "neon.v2.safetensors"), adapter_name="mine")
    pipe.set_adapters(["mine"], [0.5])
    his = draw(pipe)
    adapters = Adapters(pipe, folder=folder)
    (before,) = adapters.record()
    assert (before["name"], before["scale"]) == ("mine", 0.5)
    with adapters.scaled({"ink": 1.0}):
        assert [entry["name"] for entry in adapters.record({"ink": 1.0})] == ["ink", "mine"]
        assert pipe.get_active_adapters()[0] == "mine"
        both = draw(pipe)
    assert torch.equal(his, draw(pipe))
    assert not torch.allclose(his, both)
    pipe.set_adapters(["mine"], [0.25])
    assert adapters.record()[0] == {**before, "scale": 0.25}
    pipe.disable_lora()
    assert adapters.record() == []
    with adapters.scaled({"ink": 1.0}):
        alone = draw(pipe)
    fresh = tiny_stable_diffusion()
    fresh.set_progress_bar_config(disable=True)
    with Adapters(fresh, folder=folder).scaled({"ink": 1.0}):
        torch.testing.assert_close(alone, draw(fresh))


def test_a_pipeline_that_is_let_go_of_is_as_it_was(pipe, folder):
    bare = draw(pipe)
    fixed = {folder / "neon.v2.safetensors": 1.0}
    generator = DiffusionGenerator.from_pretrained(pipe, loras=fixed)
    assert not torch.equal(bare, draw(pipe))
    generator.free()
    assert torch.equal(bare, draw(pipe))
    assert pipe.get_list_adapters() in ({}, {"unet": []})
    again = DiffusionGenerator.from_pretrained(pipe, loras=fixed)
    assert [entry["name"] for entry in again.adapters.record()] == ["neon.v2"]


def test_two_generators_around_one_pipeline_do_not_meet(pipe, folder):
    """As a cell of a notebook that runs twice makes them."""
    first, second = Adapters(pipe, folder=folder), Adapters(pipe, folder=folder)
    bare = draw(pipe)
    with first.scaled({"neon.v2": 0.8}):
        neon = draw(pipe)
    with second.scaled({"Ink": 0.8}):
        ink = draw(pipe)
    with pytest.raises(T2XError, match="does not fit"), second.scaled({"xl": 1.0}):
        pass
    with first.scaled({"neon.v2": 0.8}):
        assert torch.equal(neon, draw(pipe))
    assert torch.equal(bare, draw(pipe))
    assert not torch.equal(neon, ink)


def test_a_fixed_one_that_was_unloaded_stays_away(pipe, folder):
    adapters = Adapters(pipe, known={"glow": folder / "neon.v2.safetensors"}, fixed={"glow": 0.5})
    assert adapters.fixed == {"glow": 0.5}
    adapters.unload("glow")
    adapters.attach(tiny_stable_diffusion())
    assert adapters.fixed == {}


def test_beside_a_fused_lora_none_would_act(pipe, folder):
    pipe.load_lora_weights(str(folder / "neon.v2.safetensors"), adapter_name="mine")
    pipe.fuse_lora(components=["unet"])
    with pytest.raises(T2XError, match="a LoRA is fused into this pipeline"):
        Adapters(pipe, folder=folder).record({"ink": 1.0})
    pipe.unload_lora_weights()
    assert Adapters(pipe, folder=folder).record({"ink": 1.0})


def test_wrong_files_are_one_clear_line(pipe, tmp_path):
    mark = tmp_path / "ran"
    torch.save({"unet.a.lora_A.weight": Trap(mark)}, tmp_path / "evil.bin")
    (tmp_path / "torn.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0{}")
    (tmp_path / "words.txt").write_text("a")
    (tmp_path / "empty").mkdir()
    cases = {
        "evil.bin": "is a pickle that names .*open, which reading it could run, so it was not read",
        "torn.safetensors": "torn.safetensors.*.*it is damaged or not what its name says",
        "words.txt": "is no LoRA: its name ends in .txt, allowed are .safetensors",
        "empty": "holds no LoRA",
        "nothing.safetensors": "there is no file .*nothing.safetensors.*; give the LoRA as",
    }
    for name, message in cases.items():
        with pytest.raises(T2XError, match=message) as caught:
            Adapters(pipe).fix(tmp_path / name)
        assert "\n" not in str(caught.value)
    assert not mark.exists()
    for scale in (float("nan"), float("inf"), "1", True, {"unet": None}):
        with pytest.raises(T2XError, match="the scale of the LoRA 'x' must be a number"):
            Adapters(pipe, fixed={"x": scale})
    with pytest.raises(T2XError, match="there is no folder"):
        Adapters(pipe, folder=tmp_path / "nothing")


def test_without_peft_the_extra_is_named(pipe, folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(MissingDependencyError, match=r"t2x\[lora\]"):
        Adapters(pipe).fix(folder / "neon.v2.safetensors")


def test_a_generator_takes_them_and_its_key_says_so(folder, tmp_path):
    built = tiny_stable_diffusion()
    built.save_pretrained(tmp_path / "model")
    file = write_embedding(built, tmp_path / "thing.safetensors")
    plain = load_generator(tmp_path / "model", sampling=SIZE)
    path = folder / "neon.v2.safetensors"
    added = load_generator(
        tmp_path / "model", sampling=SIZE, loras={path: 0.5}, embeddings={file: None}
    )
    keys = plain.fingerprint(), added.fingerprint()
    (lora,) = keys[1].pop("adapters")
    assert (lora["name"], lora["scale"], len(lora["digest"])) == ("neon.v2", 0.5, 16)
    (word,) = keys[1].pop("embeddings")
    assert word["token"] == "<thing>"
    assert keys[0] == keys[1]  # where nothing is added, pictures of before are found again
    pictures = [g.generate(["a <thing>"], seeds=[1]) for g in (plain, added)]
    assert not torch.equal(*pictures)
    added.free()
    assert torch.equal(added.generate(["a <thing>"], seeds=[1]), pictures[1])
    assert added.adapters.record()[0]["digest"] == lora["digest"]


def test_the_weights_name_of_a_loaded_pipeline_does_not_know_loras(pipe, folder):
    digest = parameter_digest(pipe)
    generator = DiffusionGenerator(pipe, adapters=Adapters(folder=folder))
    with generator.adapters.scaled({"ink": 1.0}):
        assert parameter_digest(pipe) == digest
    assert generator.fingerprint()["revision"] == digest
    assert "adapters" not in generator.fingerprint()


@pytest.mark.parametrize("vectors", [1, 3])
@pytest.mark.parametrize("form", ["diffusers", "webui"])
def test_a_textual_inversion_is_a_word(pipe, tmp_path, form, vectors):
    from t2x.scoring.state_files import read_file

    suffix = {"diffusers": "safetensors", "webui": "pt"}[form]
    file = write_embedding(pipe, tmp_path / f"x.{suffix}", form=form, vectors=vectors)
    bare = draw(pipe), draw(pipe, "a <thing>")
    word = load_embedding(pipe, file)
    assert (word.token, word.vectors) == ("<thing>", vectors)
    held = read_file(file)
    wanted = held["string_to_param"]["*"] if form == "webui" else held["<thing>"]
    names = ["<thing>", *(f"<thing>_{i}" for i in range(1, vectors))]
    rows = pipe.tokenizer.convert_tokens_to_ids(names)
    torch.testing.assert_close(
        pipe.text_encoder.get_input_embeddings().weight[rows].squeeze(0), wanted.squeeze(0)
    )
    assert torch.equal(bare[0], draw(pipe))
    assert not torch.equal(bare[1], draw(pipe, "a <thing>"))


def test_a_file_without_a_name_is_called_after_itself(pipe, tmp_path):
    from safetensors.torch import save_file

    save_file({"emb_params": torch.ones(2, 32)}, tmp_path / "charturner.safetensors")
    assert load_embedding(pipe, tmp_path / "charturner.safetensors").token == "charturner"
    assert load_embedding(pipe, tmp_path / "charturner.safetensors", "<ct>").token == "<ct>"
    with pytest.raises(T2XError, match="already in tokenizer vocabulary"):
        load_embedding(pipe, tmp_path / "charturner.safetensors", "<ct>")
    with pytest.raises(T2XError, match="a token is one word"):
        load_embedding(pipe, tmp_path / "charturner.safetensors", "two words")


def test_wrong_textual_inversions_are_refused(pipe, tmp_path):
    from safetensors.torch import save_file

    mark = tmp_path / "ran"
    with (tmp_path / "evil.pt").open("wb") as file:
        pickle.dump({"string_to_param": {"*": Trap(mark)}}, file)
    save_file({"<w>": torch.ones(48)}, tmp_path / "wide.safetensors")
    write_lora(pipe, tmp_path / "lora.safetensors")
    write_embedding(tiny_sdxl(), tmp_path / "xl.safetensors", form="sdxl")
    cases = {
        "evil.pt": "is a pickle",
        "wide.safetensors": "is a textual inversion of width 48, the text encoders of this",
        "lora.safetensors": "is no textual inversion; it holds unet",
        "xl.safetensors": "is a textual inversion of width 32, the text encoders",
    }
    for name, message in cases.items():
        with pytest.raises(T2XError, match=message):
            load_embedding(pipe, tmp_path / name)
    assert not mark.exists()


def test_both_encoders_of_sdxl_learn_the_word_and_pool_at_the_end(tmp_path):
    """Published configurations call CLIP's end token 2, which means "the highest": with a learned
    word in it, a text would be pooled at that word."""
    made = tiny_sdxl()
    made.tokenizer_2 = copy.deepcopy(made.tokenizer)
    text = made.text_encoder_2.text_model
    end, text.eos_token_id = text.eos_token_id, 2
    before = made.encode_prompt("a cat", device="cpu")
    file = write_embedding(made, tmp_path / "thing1.safetensors", form="sdxl", vectors=2)
    load_embedding(made, file)
    assert text.eos_token_id == end
    for plain, now in zip(before, made.encode_prompt("a cat", device="cpu"), strict=True):
        assert torch.equal(plain, now)
    first, second = (made.encode_prompt(f"thing1 {word}", device="cpu")[2] for word in "ab")
    assert not torch.equal(first, second)  # pooled after all that was read
