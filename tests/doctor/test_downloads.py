"""Which files a download counts, and what a preset says where the hub does not."""

from __future__ import annotations

import pytest

from t2x.doctor import plan
from t2x.doctor.downloads import Download, _loaded
from t2x.generators.presets import presets
from t2x.memory.machine import readable_bytes

CONFIGS = ["model_index.json", "text_encoder/config.json", "transformer/config.json"]
SHARDS = [f"text_encoder/model-0000{n}-of-00002.safetensors" for n in (1, 2)]
WHOLE = "transformer/diffusion_pytorch_model.safetensors"


def weights(names: list[str], variant: str | None = None) -> list[str]:
    return [name for name in _loaded(names, variant) if name.endswith(".safetensors")]


def test_files_for_other_programs_are_not_counted() -> None:
    """Stable Diffusion 3.5 has its text encoders twice, once without a configuration."""
    others = ["text_encoders/t5xxl_fp16.safetensors", "sd3.5_large.safetensors"]
    assert weights([*CONFIGS, *SHARDS, WHOLE, *others]) == sorted([*SHARDS, WHOLE])
    language_model = ["config.json", "model.safetensors", "original/consolidated.safetensors"]
    assert weights(language_model) == ["model.safetensors"]
    assert weights(["a/one.safetensors"]) == ["a/one.safetensors"]


def test_a_variant_in_several_files_is_counted_once() -> None:
    marked = [name.replace("model-", "model.bf16-") for name in SHARDS]
    assert weights([*CONFIGS, *SHARDS, *marked, WHOLE], "bf16") == sorted([*marked, WHOLE])


def test_a_denoiser_alone_is_one_file_and_its_base_lacks_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = {}

    def find(source: str, **options: object) -> Download:
        asked[source] = options
        return Download(source, {"": 5}, missing=5, gated=False)

    monkeypatch.setattr(plan, "find_download", find)
    preset = presets()["sdxl-lightning"]
    need = plan._published(preset.name, preset)
    assert asked[preset.hub[0]] == {"only": preset.denoiser_file}
    assert asked[preset.base] == {"variant": "fp16", "without": ("unet",)}
    assert need.missing == 10 and need.stated == "" and need.gated is False


@pytest.mark.parametrize("name", ["z-image-turbo", "flux.1-dev", "sana-sprint-1.6b"])
def test_a_preset_speaks_where_the_hub_is_silent(name, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "find_download", lambda source, **_: Download(source, problem="-"))
    preset = presets()[name]
    need = plan._published(name, preset)
    size = preset.download_bytes
    assert need.stated == ("" if size is None else readable_bytes(size))
    assert need.gated is preset.gated and need.licence == preset.licence


def test_the_size_is_that_of_the_first_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    """And of no other, nor is it to be downloaded where it is in the cache."""
    preset = presets()["sana-1.6b"]
    asked = []

    def find(source: str, *, variant: str | None = None) -> Download:
        asked.append(variant)
        return Download(source, problem="-")

    monkeypatch.setattr(plan, "find_download", find)
    assert plan._published(preset.hub[0], preset).stated == "9.7 GB"
    assert plan._published(preset.hub[3], preset).stated == ""
    assert asked == ["bf16", None]
    cached = Download("a/b", {"unet": 7}, problem="-; these are in the cache")
    monkeypatch.setattr(plan, "find_download", lambda source, **_: cached)
    assert plan._published(preset.name, preset).stated == ""
