"""Every family from disk through the whole way: rewrite, generate, score, guide; by the public API
and by the command; in float32 and bfloat16.

Bytes against the pipeline's own decoding, and that guidance raises what it is asked to, are in
``tests/guidance/test_latents.py``, ``test_families.py`` and ``test_guided_families.py``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from t2x.cli import run
from t2x.errors import T2XError
from t2x.generators import DiffusionGenerator, GuidedGenerator
from t2x.generators.presets import preset_named
from t2x.guidance.config import GuidanceConfig
from t2x.media import save_png
from t2x.registry import load_generator, load_reward, load_rewriter
from t2x.scoring.frames import frames
from t2x.testing import EDITING

from .cases import ALL, PRESETS, PROMPTS, SEEDS, TEXT, Family, pictures, small_call

Give = Callable[[str], Family]
# One of each kind: the source as x_t, beside x_t in channels or in tokens, as the first frame.
EDITED = (
    "sd15-img2img",
    "pix2pix",
    "flux-img2img",
    "kontext",
    "flux2-edit",
    "sprint-img2img",
    "qwen-edit",
    "z-img2img",
    "wan-i2v",
    "cogvideox-i2v",
    "ltx-i2v",
    "ltx-condition",
)
# What has other levels of noise in one step, which is said.
UNGUIDED = {
    "ltx-i2v": r"steps all frames but the first.*best-of-N",
    "ltx-condition": "levels for each token",
}
CASES = [*TEXT, *EDITED]


def same_picture(one: Tensor, other: Tensor) -> bool:
    """The contract between batch sizes: one grey level in 0.1 % of the pixels."""
    levels = (one - other).abs() * 255
    return bool(levels.max() <= 1.01) and bool((levels > 0.5).float().mean() <= 1e-3)


def _one(given: dict[str, Any], index: int) -> dict[str, Any]:
    """The arguments of one of two samples."""
    return {k: None if v is None else v[index : index + 1] for k, v in given.items()}


def negatives(generator: DiffusionGenerator) -> list[str] | None:
    return ["blue", "green"] if generator.supports_negative else None


@pytest.mark.parametrize("name", PRESETS)
def test_settings_are_those_of_the_preset(family: Give, name: str) -> None:
    """But for what makes the call small, which the folder says."""
    own = family(name)
    preset = preset_named(PRESETS[name])
    assert own.generator.preset is preset and not own.generator.preset.run_on_real_weights
    kept = {k: v for k, v in own.generator.sampling.items() if k not in small_call(name)}
    wanted = preset.sampling_for(own.generator.settings(), small_call(name))
    assert kept == {k: v for k, v in wanted.items() if k not in small_call(name)} != {}


@pytest.mark.parametrize("name", ALL)
def test_rewrite_generate_score(family: Give, name: str) -> None:
    """The same seeds give the same bytes; two together are two alone; rewards of the user's own
    words are numbers."""
    own = family(name)
    rewrites = [item.text for (item,) in load_rewriter("rules").rewrite(PROMPTS, seed=0)]
    assert rewrites != PROMPTS
    negative = negatives(own.generator)
    given: dict[str, Any] = {"negative": negative, **own.start}
    media = own.generator.generate(rewrites, seeds=SEEDS, **given)
    assert isinstance(media, Tensor)
    assert own.generator.modality == ("video" if media.ndim == 5 else "image")
    assert media.std() > 0.02 and not torch.equal(media[0], media[1])
    assert torch.equal(media, own.generator.generate(rewrites, seeds=SEEDS, **given))
    alone = own.generator.generate(rewrites[1:], seeds=SEEDS[1:], **_one(given, 1))
    assert same_picture(media[1], alone[0])
    reward = load_reward("quality")
    scores = (frames(reward) if media.ndim == 5 else reward).score(PROMPTS, media)
    assert scores.shape == (2,) and bool(scores.isfinite().all())


@pytest.mark.parametrize(
    ("name", "mode"), [*((n, m) for n in TEXT for m in "EJ"), *((n, "E") for n in EDITED)]
)
def test_guide(family: Give, name: str, mode: Any) -> None:
    """Guidance changes what is drawn, by steps that can be told; unguided bytes come back after."""
    own = family(name)
    config = GuidanceConfig(mode=mode, free_last=0, size=1.0)
    guided = GuidedGenerator(own.generator, config, rewards=[load_reward("quality")])
    if name in UNGUIDED:
        with pytest.raises(T2XError, match=UNGUIDED[name]):
            guided.generate(PROMPTS, seeds=SEEDS, **own.start)
        return
    before = own.plain
    media = guided.generate(PROMPTS, seeds=SEEDS, originals=PROMPTS, **own.start)
    assert isinstance(media, Tensor)
    assert media.shape == before.shape and not torch.equal(media, before)
    for trace in guided.traces:
        assert trace is not None
        (values,) = trace.values.values()
        assert len(values) > 0 and all(value == value for value in values)
    after = own.generator.generate(PROMPTS[:1], seeds=SEEDS[:1], **_one(own.start, 0))
    assert same_picture(after[0], before[0])


def tiny_call(name: str) -> dict[str, Any]:
    """One step of 16 pixels where a family can: where bfloat16 is emulated it takes 40 times as
    long as float32."""
    large = ("ltx", "sana", "sprint", "turbo", "lightning")
    small = {} if name in (*large, *EDITING) else {"height": 16, "width": 16}
    # One step is 0 / 0 on LTX's stretched schedule, and none that Sana-Sprint's default is for; a
    # strength of a half leaves none.
    steps = 2 if name in ("ltx", "sprint", *EDITING) else 1
    return {**small_call(name), **small, "num_inference_steps": steps}


@pytest.mark.parametrize("name", CASES)
def test_bfloat16(family: Give, name: str) -> None:
    """Rewrites of two prompts as the preset has it: the same bytes twice, close to those of
    float32, scored, and other ones under guidance."""
    own, sampling = family(name), tiny_call(name)
    wide = DiffusionGenerator.from_pretrained(
        own.generator.pipeline, preset=PRESETS.get(name, "none"), sampling=sampling
    )
    half = load_generator(own.folder, dtype="bfloat16", preset=PRESETS.get(name), sampling=sampling)
    assert isinstance(half, DiffusionGenerator) and half.preset is own.generator.preset
    denoiser = half.pipeline.components.get("unet") or half.pipeline.transformer
    assert denoiser.dtype == torch.bfloat16
    rewrites = [item.text for (item,) in load_rewriter("rules").rewrite(PROMPTS, seed=0)]
    media = half.generate(rewrites, seeds=SEEDS, **own.start)
    assert isinstance(media, Tensor) and not torch.equal(media[0], media[1])
    again = half.generate(rewrites, seeds=SEEDS, **own.start)
    difference = media - wide.generate(rewrites, seeds=SEEDS, **own.start)  # type: ignore[operator]
    assert difference.abs().mean() < 0.05
    assert torch.equal(media, again)  # type: ignore[arg-type]
    reward = load_reward("quality")
    scores = (frames(reward) if media.ndim == 5 else reward).score(PROMPTS, media)
    assert scores.shape == (2,) and bool(scores.isfinite().all())
    if name in UNGUIDED:
        return
    config = GuidanceConfig(free_last=0, size=1.0)
    guided = GuidedGenerator(half, config, rewards=[reward])
    steered = guided.generate(rewrites, seeds=SEEDS, originals=PROMPTS, **own.start)
    assert isinstance(steered, Tensor) and not torch.equal(steered, media)
    for trace in guided.traces:
        assert trace is not None and all(v == v for row in trace.values.values() for v in row)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", CASES)
def test_command(
    family: Give,
    name: str,
    dtype: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """t2x generate: rewrite, generate, guide and score in one go; in bfloat16 a smaller picture."""
    own = family(name)
    call = own.generator.settings() if dtype == "float32" else tiny_call(name)
    options: list[object] = ["--model", own.folder, "--rewriter", "rules", "--json", "--out", "out"]
    options += ["--dtype", dtype]
    made: list[Any] = []

    def load(*args: Any, **kwargs: Any) -> Any:
        made.append(load_generator(*args, **kwargs))
        return made[-1]

    monkeypatch.setattr("t2x.registry.load_generator", load)
    options += ["--steps", call["num_inference_steps"]]
    options += ["--size", "16x16"] if call.get("height") == 16 else []
    guided = name not in UNGUIDED
    options += ["--guide", "quality=1", "--guide-option", "free_last=0"] if guided else []
    options += ["--preset", PRESETS[name]] if name in PRESETS else []
    if name in EDITING:
        save_png(pictures(name)[0], tmp_path / "source.png")
        options += ["--source", tmp_path / "source.png"]
    assert run([str(item) for item in ("generate", *PROMPTS, *options)]) == 0
    assert str(made[-1].pipeline.dtype) == f"torch.{dtype}"
    rows = json.loads(capsys.readouterr().out)
    assert [row["prompt"] for row in rows] == PROMPTS
    for row in rows:
        assert row["text"] != row["prompt"]
        assert not guided or 0 <= row["guidance"]["scores"]["quality"] <= 1
        assert list(Path("out").glob(Path(row["file"]).stem + "*.png"))
        assert ("source" in row) == (name in EDITING)
        assert row["sampling"]["num_inference_steps"] == call["num_inference_steps"]
