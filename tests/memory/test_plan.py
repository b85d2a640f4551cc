"""What is said to be needed, against what real runs of tiny models take; of each family of
pipelines in ``tests/families/test_memory.py``."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from diffusers import LCMScheduler

from t2x.errors import T2XError
from t2x.generators import DiffusionGenerator, GuidedGenerator
from t2x.generators.defaults import sampling_defaults
from t2x.guidance.config import GuidanceConfig
from t2x.memory import PhasePlan, RunPlan, parse_bytes, plan_run, skeletons
from t2x.memory.counting import Live
from t2x.memory.models import reward_weights
from t2x.memory.phases import PROMPT, _call, generate_plan, rewrite_plan, score_plan
from t2x.memory.placements import quantised_bytes
from t2x.memory.weights import module_bytes
from t2x.registry import load_reward
from t2x.rewriters.language_model import LanguageModelRewriter
from t2x.testing import (
    CALLS,
    EDITING,
    EDITING_CALLS,
    FAMILIES,
    FakeGenerator,
    tiny_causal_lm,
    tiny_stable_diffusion,
)

from .measuring import phases_of

CPU = torch.device("cpu")
CLOSE = 0.2  # what is said, of what was measured


def test_guidance_size_and_tiles_are_those_of_the_call():
    plain = generate_plan(tiny_stable_diffusion(), device=CPU, sampling={"guidance_scale": 1.0})
    guided = generate_plan(tiny_stable_diffusion(), device=CPU, sampling={"guidance_scale": 3.0})
    assert guided.activations["denoise"] > 1.6 * plain.activations["denoise"]
    large = generate_plan(tiny_stable_diffusion(), device=CPU, size=(128, 128))
    assert large.activations["decode"] > 3.5 * plain.activations["decode"]
    pipe = tiny_stable_diffusion()
    tiled = generate_plan(pipe, device=CPU, size=(128, 128), sampling={"vae_tiling": True})
    assert tiled.activations["decode"] < 0.75 * large.activations["decode"]
    assert tiled.activations["denoise"] == large.activations["denoise"]
    assert "decode" not in vars(pipe.vae) and "forward" not in vars(pipe.unet)


def test_a_long_prompt_is_planned_in_windows_where_the_pipeline_reads_them():
    pipe = tiny_stable_diffusion()
    own = DiffusionGenerator.from_pretrained(pipe, sampling={"num_inference_steps": 2})
    short, long = (generate_plan(own, device=CPU, prompt=text) for text in ("a cat", PROMPT))
    assert long.activations["text"] > 1.4 * short.activations["text"]
    assert long.activations["denoise"] > short.activations["denoise"]


def test_a_decoder_that_overflows_in_float16_is_counted_in_float32():
    """SDXL's pipeline makes it longer before it decodes; image-to-image before it encodes."""
    pipe = FAMILIES["sdxl"]()
    weights = module_bytes(pipe.vae)
    pipe.vae.register_to_config(force_upcast=True)
    call = {**CALLS["sdxl"], "num_inference_steps": 1}
    full = generate_plan(pipe, device=CPU, sampling=call)
    pipe.to(torch.float16)
    half = generate_plan(pipe, device=CPU, sampling=call)
    assert half.weights["vae"] == weights // 2 and pipe.vae.dtype == torch.float16
    assert half.activations["denoise"] < 0.6 * full.activations["denoise"]
    own = DiffusionGenerator.from_pretrained(pipe, sampling=call)
    measured = phases_of(pipe, lambda: own.generate([PROMPT], seeds=[0]))
    decode = measured["decode"] - weights // 2  # the short ones are gone by then
    assert half.activations["decode"] == pytest.approx(decode, rel=CLOSE / 2)


def test_a_source_picture_that_is_optional_counts_where_there_is_one():
    pipe = EDITING["kontext"]()
    settings = {"device": CPU, "sampling": EDITING_CALLS["kontext"]}
    without, there = (generate_plan(pipe, source_size=s, **settings) for s in (None, (32, 32)))
    assert "encode" not in without.activations and there.activations["encode"] > 0
    assert there.activations["denoise"] > 1.3 * without.activations["denoise"]
    with pytest.raises(T2XError, match="FluxPipeline takes no source picture"):
        generate_plan(FAMILIES["flux"](), device=CPU, source_size=(32, 32))


@pytest.mark.parametrize(
    ("name", "mode", "reward"), [("sd15", "J", "clip"), ("wan", "E", "quality")]
)
def test_guidance_adds_its_rewards_and_the_graph_of_a_step(name, mode, reward):
    pipe = FAMILIES[name]()
    call = {**CALLS[name], "num_inference_steps": 2}
    config = GuidanceConfig(mode=mode, free_last=0, size=1.0)
    own = DiffusionGenerator.from_pretrained(pipe, sampling=call)
    guided = GuidedGenerator(own, config, rewards=[load_reward(reward)])
    plan = generate_plan(guided, device=CPU, batch=2)
    own_weights = reward_weights(guided.rewards[0])
    assert plan.weights[f"reward {reward}"] == pytest.approx(own_weights, rel=0.01)
    own.prepare([PROMPT])
    measured = phases_of(pipe, lambda: guided.generate([PROMPT] * 2, seeds=[0, 1]))
    assert plan.activations["guide"] == pytest.approx(max(measured.values()), rel=CLOSE)
    assert plan.activation == plan.activations["guide"]


@pytest.mark.extra("quant")
def test_eight_bits_are_as_many_as_are_said(tmp_path):
    pipe = FAMILIES["flux"]()
    pipe.save_pretrained(tmp_path)
    call = {**CALLS["flux"], "num_inference_steps": 1}
    plan = generate_plan(pipe, device=CPU, sampling=call)
    small = DiffusionGenerator.from_pretrained(
        tmp_path, device="cpu", quantize="8bit", sampling=call
    )
    weights = sum(
        module_bytes(part)
        for part in small.pipeline.components.values()
        if isinstance(part, torch.nn.Module)
    )
    measured = phases_of(small.pipeline, lambda: small.generate([PROMPT], seeds=[0]))
    assert plan.peaks["8bit"] == pytest.approx(weights + max(measured.values()), rel=CLOSE)


def test_configurations_alone_say_the_same(tmp_path):
    """A folder without a single weight, of a family with an encoder of shared embeddings."""
    pipe = FAMILIES["flux"]()
    pipe.save_pretrained(tmp_path)
    for file in tmp_path.rglob("*.safetensors"):
        file.unlink()
    settings = {"sampling": CALLS["flux"], "batch": 2, "device": CPU}
    loaded, stored = (generate_plan(s, **settings) for s in (pipe, str(tmp_path)))
    assert stored.weights == loaded.weights and stored.activations == loaded.activations
    half = generate_plan(str(tmp_path), dtype="bf16", **settings)
    assert half.weight == pytest.approx(loaded.weight / 2, rel=0.05)
    assert half.activations["denoise"] < 0.7 * loaded.activations["denoise"]
    assert half.settings["dtype"] == "bfloat16"


@pytest.mark.parametrize(("rows", "new"), [(1, 40), (6, 40)])
def test_a_rewriter_with_its_cache_and_logits(rows, new):
    model, tokenizer = tiny_causal_lm(words=[f"w{i}" for i in range(3000)])
    with torch.no_grad():
        model.get_input_embeddings().weight[:10] = 0  # no row ends before its time
    rewriter = LanguageModelRewriter(model, tokenizer, max_new_tokens=new, exact=False)
    plan = rewrite_plan(rewriter, device=CPU, batch=rows)
    with Live(fake=False) as live:
        rewriter.complete([f"w{i} {PROMPT}" for i in range(rows)])
    assert plan.weight == module_bytes(model)
    assert plan.activation == pytest.approx(live.peak, rel=CLOSE)
    assert plan.settings["cache"] > 200 * rows * 2 * 2 * 2 * 8  # layers, keys and values, heads


@pytest.mark.parametrize("tied", [True, False])
def test_the_layer_of_logits_stays_whole_when_weights_are_quantised(tied):
    model, _ = tiny_causal_lm(words=[f"w{i}" for i in range(3000)])
    table = model.get_input_embeddings().weight
    model.lm_head.weight = table if tied else torch.nn.Parameter(table.detach().clone())
    tables = (1 if tied else 2) * table.numel() * table.element_size()
    rest = module_bytes(model) - tables
    for bits in (8, 4):
        assert tables < quantised_bytes("text_encoder", model, bits) < tables + rest


def test_a_reward_is_run_once():
    reward = load_reward("clip")
    plan = score_plan(reward, batch=3, size=(64, 64))
    (encoder,) = reward.encoders.values()
    assert plan.weight == pytest.approx(reward_weights(reward), rel=0.01)
    assert plan.weight == pytest.approx(module_bytes(encoder.model), rel=0.01)
    assert plan.activation > 3 * 3 * 64 * 64 * 4
    unknown = score_plan("pickscore")
    assert unknown.peak is None and "not known" in unknown.notes[0]
    assert unknown.weight == pytest.approx(3.94e9, rel=0.01)  # CLIP-H in float32


def phase(kind: str, weights: int, acts: int, **more: Any) -> PhasePlan:
    peaks = {"resident": weights + acts, "8bit": weights // 4 + acts}
    return PhasePlan(kind, "x", {"model": weights}, {"decode": acts}, peaks, more)


def test_verdicts_and_what_to_change():
    phases = phase("rewrite", 3, 1), phase("generate", 10, 6, batch=4), phase("score", 2, 1)
    assert RunPlan(phases, 21).verdict == "fits together" and RunPlan(phases, 21).advice() == []
    tight = RunPlan(phases, 16)
    assert (tight.together_bytes, tight.phase_bytes, tight.verdict) == (21, 16, "fits in phases")
    assert tight.advice() == ["run in phases, each model freed before the next (t2x demo does)"]
    small = RunPlan(phases, 9)
    assert small.verdict == "fits in phases, placed as advised"
    assert [text.partition(" (")[0] for text in small.advice()[1:]] == [
        "generate x: fewer than 4 at a time",
        "generate x: decode in tiles",
        'generate x: load with quantize="8bit"',
    ]
    assert RunPlan(phases, 3).verdict == "does not fit"
    assert json.loads(json.dumps(small.record()))["phases"][1]["fitting"] == "8bit"
    nobody = RunPlan((PhasePlan("score", "y", {"m": 5}, {"score": None}, {"resident": None}),), 9)
    assert (nobody.verdict, nobody.together, nobody.unknown) == ("fit unknown", None, ("score y",))
    assert RunPlan(nobody.phases, 4).in_phases is False
    said = "score y more than 5 B; more than 5 B together, 9 B available: fit unknown"
    assert nobody.summary() == said
    assert RunPlan(phases, None).verdict == "fit unknown"


def test_placements_are_those_of_the_device_here(monkeypatch):
    monkeypatch.setattr("t2x.devices.resolve_device", lambda device: CPU)
    assert plan_run("rules", limit="24GB").placements == ("resident", "8bit")  # a CPU has no others
    monkeypatch.setattr("t2x.devices.resolve_device", torch.device)
    assert "4bit" in plan_run("rules", limit="24GB", device="cuda").placements


def test_sizes_are_read_with_units():
    assert parse_bytes("20GB") == 20 * 10**9 and parse_bytes("1.5 GiB") == 3 * 2**29
    assert parse_bytes(7) == 7
    for wrong in ("20 G B", "0GB", "-1GB", "lots"):
        with pytest.raises(T2XError, match="write it like 20GB"):
            parse_bytes(wrong)


def test_a_hub_that_is_not_reached_leaves_sizes_unknown(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    plan = plan_run("owner/writer", "owner/drawer", limit="24GB", device="cpu")
    assert [p.peak for p in plan.phases] == [None, None] and plan.verdict == "fit unknown"
    assert all(p.notes[0].startswith("unknown: ") for p in plan.phases)


@pytest.fixture
def published(tmp_path, monkeypatch):
    """Published repositories by name, each with the configurations of a tiny pipeline."""
    places = {}
    for repository, family in (
        ("Tongyi-MAI/Z-Image-Turbo", "z"),
        ("Wan-AI/Wan2.1-T2V-1.3B-Diffusers", "wan"),
    ):
        places[repository] = tmp_path / family
        FAMILIES[family]().save_pretrained(places[repository])
    whole = skeletons.config_folder
    monkeypatch.setattr(skeletons, "config_folder", lambda s: places.get(str(s)) or whole(s))
    return places


def test_a_published_model_is_planned_as_its_preset_samples_it(published):
    short = {"max_sequence_length": 16}
    name, settings = "z-image-turbo", {"device": CPU, "size": (32, 32), "sampling": short}
    plan = generate_plan(name, **settings)
    assert plan.settings["guidance_scale"] == 0 and plan.settings["num_inference_steps"] == 8
    guided = generate_plan(name, **{**settings, "sampling": {**short, "guidance_scale": 5.0}})
    assert guided.activations["denoise"] > 1.5 * plan.activations["denoise"]
    assert generate_plan("Tongyi-MAI/Z-Image-Turbo", **settings).activations == plan.activations


def test_parts_have_the_number_formats_of_the_preset(published):
    sampling = {**CALLS["wan"], "num_inference_steps": 1}
    card = {"device": torch.device("cuda"), "sampling": sampling}
    plan = generate_plan("wan2.1-t2v-1.3b", **card)
    full = generate_plan("wan2.1-t2v-1.3b", dtype="float32", **card)
    assert plan.weights["vae"] == full.weights["vae"]  # its authors keep it in float32
    assert plan.weights["transformer"] < 0.6 * full.weights["transformer"]


def test_what_is_presumed_of_an_unknown_model_is_planned_and_said():
    pipe = FAMILIES["sdxl"]()
    pipe.scheduler = LCMScheduler.from_config(pipe.scheduler.config)
    plan = generate_plan(pipe, device=CPU)
    assert plan.settings["num_inference_steps"] == 4
    assert any(note.startswith("presumed: ") and "LCMScheduler" in note for note in plan.notes)


def test_true_guidance_is_on_without_being_asked_for():
    pipe = FAMILIES["qwen"]()
    known = sampling_defaults(pipe, preset=None, given={}, say=False)
    call = _call(known, pipe, size=(32, 32), num_frames=None, batch=2)
    assert call["negative_prompt"] == [" ", " "]  # its own scale is 4, which acts beside one alone


def test_a_generator_that_is_no_pipeline_is_unknown_and_not_an_error():
    plan = generate_plan(FakeGenerator(), device=CPU)
    assert plan.peak is None and "does not tell its parts" in plan.notes[0]
