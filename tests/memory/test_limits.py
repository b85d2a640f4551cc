"""A run under a limit that is smaller than all its models together, and one that is too small."""

from __future__ import annotations

import pytest
import torch

from t2x.cli import run
from t2x.errors import T2XError
from t2x.evaluation.demo import run_demo
from t2x.guidance.recipe import make_recipe
from t2x.media import save_png
from t2x.memory import fit_under
from t2x.memory.phases import generate_plan, rewrite_plan, score_plan
from t2x.testing import fixed_weights, tiny_causal_lm, tiny_stable_diffusion
from t2x.testing.pipelines import tiny_unet

from .measuring import Meter

CPU = torch.device("cpu")
REWARD = "clip"  # 6 MB, embedded


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Folders of a rewriter of 2 MB and a generator of some 10."""
    writer, drawer = (tmp_path_factory.mktemp(name) for name in ("writer", "drawer"))
    for part in tiny_causal_lm(words=[f"w{i}" for i in range(6_000)]):
        part.save_pretrained(writer)
    pipe = tiny_stable_diffusion()
    with fixed_weights(0):
        pipe.unet = tiny_unet(block_out_channels=(64, 128), cross_attention_dim=32)
    pipe.save_pretrained(drawer)
    (drawer / "t2x.json").write_text('{"num_inference_steps": 1, "guidance_scale": 3.0}')
    return str(writer), str(drawer)


def test_a_run_in_phases_stays_under_a_limit_below_all_together(models):
    writer, drawer = models
    one = generate_plan(drawer, device=CPU)
    four = generate_plan(drawer, device=CPU, batch=4)
    others = [rewrite_plan(writer, device=CPU), score_plan(REWARD, size=(64, 64), batch=4)]
    together = one.weight + sum(phase.weight for phase in others)
    limit = max(max(phase.peak for phase in others), (one.peak + four.peak) // 2)
    assert limit < 0.9 * together

    fitting = fit_under(limit, rewriter=writer, generator=drawer, rewards=[REWARD], pictures=4)
    assert fitting.plan.together is False and fitting.plan.in_phases is True
    assert 1 <= fitting.batch < 4 or four.peak <= limit
    meter = Meter()
    with meter.running():
        found = run_demo(
            "a red cat", num=2, rewriter=writer, generator=drawer, rewards=[REWARD],
            memory_limit=limit, progress=lambda *_: meter.scan(),
        )  # fmt: skip
    assert [column.problem for column in found.rewards] == [""]
    assert one.weight < meter.peak <= limit


def test_a_phase_that_does_not_fit_is_said_before_anything_is_loaded(models, monkeypatch):
    writer, drawer = models
    monkeypatch.setattr("t2x.registry.load_rewriter", None)
    monkeypatch.setattr("t2x.registry.load_generator", None)
    needed = generate_plan(drawer, device=CPU).peak
    for limit, what in ((needed - 1, f"drawing with {drawer}"), ("1MB", f"rewrite {writer}")):
        with pytest.raises(T2XError, match=rf"^{what} needs about .* allowed: .*\w") as error:
            run_demo("a red cat", rewriter=writer, generator=drawer, rewards=[], memory_limit=limit)
        assert "4bit" not in str(error.value)  # which needs a GPU
        assert ("--quantize 8bit" in str(error.value)) == (limit != "1MB")


def test_what_the_caller_holds_counts_all_the_time(models):
    writer, _ = models
    need = rewrite_plan(writer, device=CPU).peak
    held = tiny_stable_diffusion()
    with pytest.raises(T2XError, match=r"^rewrite .* needs about"):
        fit_under(need, rewriter=writer, generator=held)
    room = need + generate_plan(held, device=CPU).weight
    assert fit_under(room, rewriter=writer, generator=held).batch == 1


def test_what_is_loaded_beside_the_model_counts(models, tmp_path):
    """LoRAs, the settings of a preset, the configuration of a file, and what a guide brings."""
    _, drawer = models
    plain = generate_plan(drawer, device=CPU)
    lora = tmp_path / "ink.safetensors"
    lora.write_bytes(bytes(50_000))
    heavier = generate_plan(drawer, device=CPU, options={"loras": {str(lora): 0.8}})
    assert heavier.peak == plain.peak + 50_000
    assert heavier.weights["LoRA ink.safetensors"] == 50_000
    file = tmp_path / "dream.safetensors"
    file.write_bytes(b"")
    alone = generate_plan(str(file), device=CPU, options={"config": drawer})
    assert sum(alone.weights.values()) == sum(plain.weights.values())
    known = generate_plan(drawer, device=CPU, options={"preset": "sd-1.5"})
    assert plain.settings["guidance_scale"] == 3.0  # the folder's own
    assert known.settings["num_inference_steps"] == 1 and not known.notes

    room = fit_under(plain.peak, generator=drawer).plan.limit
    with pytest.raises(T2XError, match=r"drawing with .* needs about"):
        fit_under(room, generator=drawer, options={"loras": {str(lora): 0.8}})
    with pytest.raises(T2XError, match=r"drawing with .* needs about"):
        fit_under(room, generator=drawer, options={"guidance": make_recipe("clip=1")})


def test_the_command_tells_all_that_is_loaded(monkeypatch, tmp_path):
    save_png(torch.zeros(3, 32, 48), tmp_path / "source.png")
    told = {}

    def stop(limit, **given):
        told.update(given)
        raise T2XError("enough")

    monkeypatch.setattr("t2x.memory.fit_under", stop, raising=False)
    words = "generate x --model emoji-flow --memory-limit 1GB --guide clip=1 --lora a.pt:0.5"
    words += f" --preset sd-1.5 --config owner/name --source {tmp_path / 'source.png'}"
    assert run(words.split()) == 1
    options = told["options"]
    assert options["loras"] == {"a.pt": 0.5} and options["preset"] == "sd-1.5"
    assert options["config"] == "owner/name" and options["source_size"] == (32, 48)
    assert options["guidance"].config.rewards == {"clip": 1.0}
