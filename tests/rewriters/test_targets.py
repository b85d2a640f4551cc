"""Targets: which generator reads what, and whose instructions change with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from t2x.cli import run
from t2x.errors import T2XError, UnknownNameError
from t2x.registry import load_rewriter
from t2x.rewriters.guarded import Guarded
from t2x.rewriters.language_model import LanguageModelRewriter
from t2x.rewriters.loading import load_guarded
from t2x.rewriters.presets import PRESETS
from t2x.rewriters.targets import TARGETS, target_named, target_of
from t2x.rewriters.templates import GENERAL, SMALL
from t2x.testing import FakeGenerator, FakeRewriter, tiny_causal_lm


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("stable-diffusion-v1-5/stable-diffusion-v1-5", "sd15"),
        ("CompVis/stable-diffusion-v1-4", "sd15"),
        ("runwayml/stable-diffusion-v1-5", "sd15"),
        ("stabilityai/stable-diffusion-2-1", "sd15"),
        ("stabilityai/sd-turbo-v1.5", ""),
        ("stabilityai/stable-diffusion-xl-base-1.0", "sdxl"),
        ("stabilityai/sdxl-turbo", "sdxl"),
        ("stabilityai/stable-diffusion-3.5-medium", "sd3"),
        ("stabilityai/stable-diffusion-3-medium-diffusers", "sd3"),
        ("black-forest-labs/FLUX.1-dev", "flux"),
        ("Tongyi-MAI/Z-Image-Turbo", "z-image"),
        ("Qwen/Qwen-Image", "qwen-image"),
        ("Wan-AI/Wan2.1-T2V-1.3B-Diffusers", "wan"),
        ("THUDM/CogVideoX-5b", "cogvideox"),
        ("flux", "flux"),
        ("emoji-flow", ""),
        ("emoji-flow-turbo", ""),
        ("owner/influx-model", ""),
        ("owner/wander-2", ""),
        ("x" * 5000, ""),
    ],
)
def test_a_generator_is_known_by_its_name(name: str, target: str) -> None:
    assert target_of(name) is (TARGETS[target] if target else None)


def test_a_generator_is_known_by_its_class(tmp_path: Path) -> None:
    for name, target in TARGETS.items():
        for pipeline in target.pipelines:
            (tmp_path / "model_index.json").write_text(json.dumps({"_class_name": pipeline}))
            assert target_of(tmp_path) is TARGETS[name]
    (tmp_path / "model_index.json").write_text("{")
    assert target_of(tmp_path) is None
    assert target_of(FakeGenerator()) is None


def test_every_target_says_what_it_wants() -> None:
    styles = [t.style for t in TARGETS.values()]
    assert len(set(styles)) == len(styles)
    for target in TARGETS.values():
        assert f"{target.words} words" in target.style and "{" not in target.style
        assert str(target.words * 3 // 2) in target.chinese
        assert ("camera" in target.style) is (target.modality == "video")
    assert "tags" in TARGETS["sd15"].style and "no tags" in TARGETS["flux"].style
    assert TARGETS["sd15"].weights and not TARGETS["flux"].weights
    assert not TARGETS["flux"].negative and TARGETS["wan"].negative
    with pytest.raises(UnknownNameError, match="did you mean 'flux'"):
        target_named("fluxx")


def test_a_target_changes_instructions_and_no_trained_format() -> None:
    target = TARGETS["flux"]
    styled = target.put_into(GENERAL)
    assert styled.max_new_tokens >= 2 * target.words
    assert target.style in styled.instructions and GENERAL.style not in styled.instructions
    for kept in (SMALL, *(PRESETS[n].template for n in ("promptist", "tipo", "reprompt"))):
        assert target.put_into(kept) == kept
    wan = target.put_into(PRESETS["wan"].template)
    assert target.style in wan.instructions
    assert target.chinese in wan.for_prompt("一只猫").instructions


def test_load_rewriter_takes_a_target() -> None:
    rewriter = load_rewriter(tiny_causal_lm(), target="wan")
    assert isinstance(rewriter, LanguageModelRewriter)
    assert TARGETS["wan"].style in rewriter.template.instructions
    shown = rewriter.encoder._render(rewriter.template)
    assert "camera" in shown
    assert load_rewriter("none", target="wan").model_id == "none"  # has no instructions
    with pytest.raises(UnknownNameError, match="unknown target 'wam'"):
        load_rewriter("none", target="wam")
    short = load_rewriter(tiny_causal_lm(), target="qwen-image", max_new_tokens=9)
    assert short.template.max_new_tokens == 9  # type: ignore[attr-defined]
    long = load_rewriter(tiny_causal_lm(), target="qwen-image")
    assert isinstance(long, LanguageModelRewriter)
    needed = TARGETS["qwen-image"].put_into(GENERAL).max_new_tokens
    assert long.template.max_new_tokens == needed > GENERAL.max_new_tokens
    own = LanguageModelRewriter(*tiny_causal_lm())
    assert load_rewriter(own, target="sd15") is not own and own.template == GENERAL


def test_the_guard_styles_for_what_will_draw(scripted: Any) -> None:
    def instructions(**options: Any) -> str:
        inner = load_guarded(tiny_causal_lm(), **options).rewriter
        assert isinstance(inner, LanguageModelRewriter)
        return inner.template.instructions

    assert instructions() == GENERAL.instructions
    assert instructions(generator="emoji-flow") == GENERAL.instructions
    assert TARGETS["sd3"].style in instructions(generator="sd3")
    assert TARGETS["sdxl"].style in instructions(generator="sd3", target="sdxl")
    assert load_guarded(FakeRewriter(), generator="flux").budget is None
    with pytest.raises(T2XError, match="guarded already takes no target"):
        load_guarded(Guarded(FakeRewriter()), target="flux")


def test_the_command_takes_a_kind_of_generator(capsys: Any) -> None:
    assert run(["rewrite", "a cat", "--model", "none", "--target", "wan", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["prompt"] == "a cat"
    assert run(["rewrite", "a cat", "--model", "none", "--target", "wam"]) == 1
    assert "cogvideox" in capsys.readouterr().err


def test_new_rewriters_are_listed(capsys: Any) -> None:
    assert run(["list", "rewriters", "--json"]) == 0
    names = json.loads(capsys.readouterr().out)["rewriters"]
    assert {*PRESETS, "openai", "vllm", "vision-edit", "vision-i2v"} <= set(names)
    assert run(["list", "rewriters"]) == 0
    assert "microsoft/Promptist" in capsys.readouterr().out
