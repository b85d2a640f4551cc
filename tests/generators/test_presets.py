"""Presets of published generators: every entry is complete and fits the installed diffusers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from t2x.cli import run
from t2x.devices import named_dtype
from t2x.errors import T2XError, UnknownNameError
from t2x.generators.calls import checked_sampling, default_arguments
from t2x.generators.presets import NOT_RUN, ModelPreset, preset_for, preset_named, presets, whence
from t2x.guidance.recipe import MODES
from t2x.prompts.budget import token_limits
from t2x.registry import check_names, generator_source, known_names
from t2x.rewriters.targets import TARGETS, target_of

ALL = pytest.mark.parametrize("preset", presets().values(), ids=presets())
ASKED = (
    "sd-1.5 sdxl-base sdxl-turbo sdxl-lightning sd-3.5-medium sd-3.5-large sd-3.5-large-turbo "
    "flux.1-dev flux.1-schnell flux.2-dev flux.2-klein-4b sana-1.6b sana-sprint-1.6b pixart-sigma "
    "qwen-image-base qwen-image-edit z-image-turbo z-image-base wan2.1-t2v-1.3b wan2.1-t2v-14b "
    "wan2.1-i2v-14b-480p wan2.2-t2v-a14b wan2.2-i2v-a14b wan2.2-ti2v-5b cogvideox-2b cogvideox-5b "
    "cogvideox-1.5-5b ltx-video"
)


def kinds(preset: ModelPreset) -> list[Any]:
    import diffusers

    return [getattr(diffusers, name) for name in preset.pipelines.values()]


def index(folder: Path, name: str, kind: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    stored = {"_class_name": kind, **({"_name_or_path": name} if name else {})}
    (folder / "model_index.json").write_text(json.dumps(stored))
    return folder


def test_the_models_that_people_use_have_a_preset() -> None:
    assert set(ASKED.split()) <= set(presets())


@ALL
def test_the_call_takes_the_settings(preset: ModelPreset) -> None:
    """The first task's class takes each; a class of another task may lack some (a size)."""
    first = kinds(preset)[0]
    arguments = default_arguments(first)
    checked_sampling(preset.sampling, arguments, pipeline=first.__name__)
    assert preset.sampling_for(arguments, {}) == preset.sampling
    assert preset.sampling["num_inference_steps"] >= 1
    scale = {"guidance_scale", "true_cfg_scale"} & preset.sampling.keys()
    assert len(scale) == 1
    for kind in kinds(preset):
        kept = preset.sampling_for(default_arguments(kind), {})
        assert "num_inference_steps" in kept and scale <= kept.keys()
    if preset.negative:
        assert "negative_prompt" in arguments
    assert set(preset.only_at_steps) <= preset.sampling.keys()


@ALL
def test_the_scheduler_takes_its_changes(preset: ModelPreset) -> None:
    import diffusers

    kind = getattr(diffusers, preset.scheduler)
    scheduler = kind.from_config(kind().config, **preset.scheduler_changes)
    for key, value in preset.scheduler_changes.items():
        assert scheduler.config[key] == value


@ALL
def test_facts_are_of_the_right_kind(preset: ModelPreset) -> None:
    assert all(repository.count("/") == 1 for repository in preset.hub)
    assert bool(preset.base) == bool(preset.denoiser_file)
    assert preset.read_from and preset.memory and preset.run_on_real_weights is False
    assert set(preset.guidance) <= MODES.keys()
    assert preset.few_step == (preset.guidance in (("noise", "search"), ()))
    assert preset.few_step == (preset.sampling["num_inference_steps"] <= 8)
    for name in (preset.dtype, *preset.parts_dtype.values()):
        named_dtype(name, "cpu", half=True)
    for size in preset.sizes:
        assert all(side > 0 and side % preset.divisible == 0 for side in size)
    own = (preset.sampling.get("height"), preset.sampling.get("width"))
    assert own in {(None, None), preset.sizes[0]}
    video = bool({"t2v", "i2v"} & preset.pipelines.keys())
    assert video == (preset.frames is not None) == (preset.fps is not None)
    if preset.frames is not None and preset.frame_step is not None:
        assert preset.sampling["num_frames"] == preset.frames
        assert preset.frames % preset.frame_step == 1


@ALL
def test_limits_are_those_that_the_class_reads(preset: ModelPreset) -> None:
    """CLIP's tokenizers, of 77, know their limit; the others take the call's."""
    clip = type("CLIPTokenizer", (), {"model_max_length": 77})
    tokenizers = {k: clip() if n == 77 else SimpleNamespace() for k, n in preset.tokens.items()}
    limits = token_limits(tokenizers, pipeline=kinds(preset)[0], sampling=preset.sampling)
    found = {name: limit or tok.model_max_length for name, (tok, limit) in limits.items()}
    assert found == preset.tokens


@ALL
def test_its_kind_of_text_is_a_target(preset: ModelPreset) -> None:
    """The preset names the kind, and the classes and names that targets know by themselves agree
    with it; an instruction to edit is none."""
    if preset.target is None:
        assert set(preset.pipelines) == {"edit"} and target_of(preset.hub[0]) is None
        return
    target = TARGETS[preset.target]
    assert target_of(preset.name) is target
    assert target.modality == ("video" if preset.fps else "image")
    assert preset.pipelines.get("t2i", preset.pipelines.get("t2v")) in (*target.pipelines, None)
    for repository in preset.hub:
        assert target_of(repository) is target
    assert target_of(SimpleNamespace(model_id="x", preset=preset)) is target  # type: ignore[arg-type]


def test_names_repositories_and_targets_do_not_collide() -> None:
    hubs = [repository.lower() for p in presets().values() for repository in p.hub]
    assert len(set(hubs)) == len(hubs)
    assert not set(presets()) & {*TARGETS, "none"}
    assert set(presets()) <= set(known_names("generators"))
    check_names("generators", presets())


def test_a_model_is_found_by_name_and_repository() -> None:
    turbo = preset_named("z-image-turbo")
    for source in ("z-image-turbo", "Tongyi-MAI/Z-Image-Turbo", "tongyi-mai/z-image-turbo"):
        assert preset_for(source) is turbo
    for source in ("someone/Z-Image-Turbo", "emoji-flow", "nothing", "", "x" * 5000):
        assert preset_for(source) is None
    with pytest.raises(UnknownNameError, match="did you mean 'z-image-turbo'"):
        preset_named("z-image-tubo")
    assert generator_source("z-image-turbo") == "Tongyi-MAI/Z-Image-Turbo"
    for source in ("sdxl-lightning", "ByteDance/SDXL-Lightning"):
        assert generator_source(source) == "stabilityai/stable-diffusion-xl-base-1.0"
    assert generator_source("owner/model") == "owner/model"


def test_a_folder_is_known_by_what_it_was_made_from(tmp_path: Path) -> None:
    turbo, xl = presets()["sdxl-turbo"], "StableDiffusionXLPipeline"
    assert preset_for(index(tmp_path / "mine", "stabilityai/sdxl-turbo", xl)) is turbo
    assert preset_for(str(index(tmp_path / "other", "owner/other", xl))) is None
    assert preset_for(index(tmp_path / "control", "stabilityai/sdxl-turbo", "Other")) is None
    assert preset_for(index(tmp_path / "SDXL-Turbo", "", xl)) is turbo
    assert preset_for(tmp_path) is None
    (tmp_path / "mine" / "model_index.json").write_text("{")
    assert preset_for(tmp_path / "mine") is None
    cached = tmp_path / "models--stabilityai--sdxl-turbo" / "snapshots" / "71153311d3"
    assert whence(str(cached)) == "stabilityai/sdxl-turbo" and whence("a/b") == "a/b"
    assert preset_for(index(cached, "", xl)) is turbo
    # what was saved from the cache names its folder
    assert preset_for(index(tmp_path / "saved", str(cached), xl)) is turbo


def test_settings_for_another_number_of_steps() -> None:
    """A schedule of two steps is refused by Sana-Sprint's call with any other number."""
    sprint = presets()["sana-sprint-1.6b"]
    arguments = default_arguments(kinds(sprint)[0])
    assert sprint.sampling_for(arguments, {})["intermediate_timesteps"] == 1.3
    assert sprint.sampling_for(arguments, {"num_inference_steps": 2}) == sprint.sampling
    other = sprint.sampling_for(arguments, {"num_inference_steps": 4})
    assert other["intermediate_timesteps"] is None and other["guidance_scale"] == 4.5


def test_what_a_download_is() -> None:
    lightning = presets()["sdxl-lightning"]
    said = lightning.download
    assert "ByteDance/SDXL-Lightning" in said and lightning.base in said and NOT_RUN in said
    assert "6.9 GB" in said
    measured = presets()["flux.1-dev"]
    assert "33.7 GB" in measured.download and "Non-Commercial, gated" in measured.download
    unknown = replace(measured, licence=None, gated=None, download_bytes=None)
    assert unknown.access == "licence unknown, gate unknown"
    assert unknown.size == "unknown" and ": size unknown; licence unknown" in unknown.download


@ALL
def test_a_size_has_a_source_and_fits_its_weights(preset: ModelPreset) -> None:
    """Bytes stand only beside where they were read, and are those of models of billions."""
    if preset.download_bytes is None:
        assert preset.size == "unknown"
        return
    assert any("size" in source for source in preset.read_from)
    assert 2e9 < preset.download_bytes < 1e11 and preset.size.endswith(" GB")


def test_a_way_to_guide_that_does_little_is_said() -> None:
    turbo, base = presets()["sdxl-turbo"], presets()["sdxl-base"]
    assert "mode E may do little, since x0_hat jumps" in turbo.guidance_hint("E")
    assert turbo.guidance_hint("E").endswith("try noise or search")
    assert "no mode of guidance acts" in presets()["ltx-video-13b-distilled"].guidance_hint(
        "search"
    )
    assert turbo.guidance_hint("noise") == "" == base.guidance_hint("J")
    assert base.guidance_hint("J+particles") == "" and "made for others" in base.guidance_hint(
        "noise"
    )


def test_the_command_lists_them(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    assert run(["list", "generators"]) == 0
    before, after = capsys.readouterr().out.split(f"published models, {NOT_RUN}")
    assert "emoji-flow" in before and "z-image" not in before
    (row,) = [line for line in after.splitlines() if "FLUX.1-schnell" in line or "schnell" in line]
    cells = [cell.strip() for cell in row.split("│")[1:-1]]
    assert cells[:5] == ["flux.1-schnell", "t2i, i2i", "Apache-2.0", "yes", "33.7 GB"]
    (row,) = [line for line in after.splitlines() if "sana-sprint" in line]
    assert [cell.strip() for cell in row.split("│")[3:6]] == ["unknown"] * 3
    assert "?" not in after and "None" not in after
    assert run(["list", "generators", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(presets()) <= set(found["generators"])
    turbo = found["presets"]["z-image-turbo"]
    assert turbo["sampling"]["num_inference_steps"] == 8 and turbo["gated"] is False
    assert found["presets"]["sana-sprint-1.6b"]["licence"] is None
    assert turbo["read_from"] and turbo["run_on_real_weights"] is False
    assert run(["list", "rewards", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == {"rewards"}


def test_an_unknown_name_points_to_the_list() -> None:
    from t2x.registry import load_generator

    with pytest.raises(UnknownNameError, match="did you mean 'sdxl-turbo'") as error:
        load_generator("sdxl-turo")
    assert "published models (`t2x list generators`)" in str(error.value)
    assert len(str(error.value)) < 500


def test_a_preset_is_refused_with_an_unknown_key() -> None:
    from t2x.config import build_config

    with pytest.raises(T2XError, match="unknown key 'stepps'"):
        build_config(ModelPreset, {"name": "x", "stepps": 1})
