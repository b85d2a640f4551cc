"""``t2x bench guide``: what its report has, and how large its random network is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from t2x.cli import run
from t2x.guidance import bench
from t2x.world import weights

SMALL = ("bench", "guide", "--reward", "clip", "--pictures", "1", "--repeats", "1", "--json")


@pytest.fixture(autouse=True)
def turbo(monkeypatch: pytest.MonkeyPatch) -> None:
    """The embedded generator of few steps in place of that of many."""
    found = weights.require_model
    quick = {"emoji-flow": "emoji-flow-turbo"}
    monkeypatch.setattr(weights, "require_model", lambda name: found(quick.get(name, name)))


def test_the_report_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    """Times are of this machine; what must hold on any is told: a guided run takes longer and more
    memory than an unguided one, and J more memory than E."""
    assert run([*SMALL, "--no-mid-size"]) == 0
    report = json.loads(capsys.readouterr().out)
    (entry,) = report["networks"].values()
    assert list(report["networks"]) == ["emoji-flow"] and report["rewards"] == ["clip"]
    for key in ("overhead_E", "overhead_J"):
        assert report[key] == entry[key] > 0
    arms, parts = entry["arms"], entry["parts"]
    assert set(arms) == set(bench.ARMS)
    assert all(arm["seconds"] > 0 and 0 <= arm["scores"]["clip"] <= 1 for arm in arms.values())
    assert 0 < arms["unguided"]["megabytes"] < arms["E"]["megabytes"] < arms["J"]["megabytes"]
    assert arms["E, decoded at half size"]["megabytes"] < arms["E"]["megabytes"]
    for name in ("E", "J"):
        whole, summed = arms[name]["seconds"], arms[name]["sum_of_parts"]
        assert entry[f"overhead_{name}"] == pytest.approx(whole / summed)
        assert summed > arms["unguided"]["seconds"]
    assert set(parts) == {"denoiser", "decoder", "reward"}
    assert all(part[way] > 0 for part in parts.values() for way in ("forward", "backward"))


def test_the_random_network_is_of_the_size_that_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given: list[tuple[Any, dict[str, Any]]] = []

    def measure(pipe: Any, *rest: Any, call: dict[str, Any], **others: Any) -> dict[str, Any]:
        given.append((pipe, call))
        return {"overhead_E": len(given), "overhead_J": 3 - len(given)}

    monkeypatch.setattr(bench, "bench_guidance", measure)
    assert run([*SMALL]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["overhead_E"], report["overhead_J"]) == (2, 2)  # the largest of both networks
    pipe, call = given[1]
    assert (call["height"], call["width"], call["num_inference_steps"]) == (512, 512, 4)
    assert sum(p.numel() for p in pipe.unet.parameters()) == pytest.approx(90e6, rel=0.05)
    side = pipe.unet.config.sample_size * pipe.vae_scale_factor
    assert side == 512
    widths = pipe.vae.config.block_out_channels
    assert [4 * width for width in widths] == [128, 256, 512, 512]  # Stable Diffusion's
