"""What ``t2x.memory`` says that each family takes, phase by phase, against the bytes of a real run.

Offload needs an accelerator, so its peaks are sums that nothing here measures; quantised weights
are measured in ``tests/memory/test_plan.py``.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import torch

from t2x.cli import run
from t2x.generators import DiffusionGenerator
from t2x.memory.phases import PROMPT, generate_plan
from t2x.memory.weights import module_bytes, weight_bytes
from t2x.registry import load_generator
from t2x.testing import EDITING
from tests.memory.measuring import phases_of

from .cases import ALL, PRESETS, Family, pictures

CPU = torch.device("cpu")
CLOSE = 0.2  # what is said, of what was measured
# Each source is drawn in a call of its own, where pictures that are done would count.
ALONE = (
    "flux2-edit",
    "klein-edit",
    "qwen-edit-plus",
    "wan-i2v",
    "wan22-i2v",
    "ltx-condition",
)


@pytest.mark.parametrize("name", ALL)
def test_each_phase_is_within_a_fifth_of_a_real_run(
    family: Callable[[str], Family], name: str
) -> None:
    """The prompt fills several windows of the tiny CLIPs, which read bytes."""
    own, sources = family(name), pictures(name) if name in EDITING else None
    batch = 1 if name in ALONE else 2
    start = {} if sources is None else {"sources": sources[:batch]}
    size = None if sources is None else (sources.shape[-2], sources.shape[-1])
    plan = generate_plan(own.generator, device=CPU, batch=2, source_size=size)
    assert plan.settings["batch"] == batch
    stored = generate_plan(
        str(own.folder), device=CPU, batch=2, source_size=size,
        options={"preset": PRESETS.get(name, "none")},
    )  # fmt: skip
    # A model that has drawn before, in another test, keeps tables of its positions: they are not
    # made again, and so not counted.
    assert stored.weights == plan.weights
    assert stored.peaks == pytest.approx(plan.peaks, rel=0.02)
    assert stored.activations == pytest.approx(plan.activations, rel=CLOSE)
    pipe = own.generator.pipeline
    own.generator.prepare([PROMPT])  # compares the encoders once, outside of the count
    measured = phases_of(
        pipe, lambda: own.generator.generate([PROMPT] * batch, seeds=range(batch), **start)
    )
    assert plan.activations.keys() == measured.keys()
    assert ("encode" in measured) == (sources is not None)
    for phase, found in measured.items():
        assert plan.activations[phase] == pytest.approx(found, rel=CLOSE), phase
    modules = [part for part in pipe.components.values() if isinstance(part, torch.nn.Module)]
    assert plan.weight == sum(module_bytes(module) for module in modules)
    assert plan.peak == pytest.approx(plan.weight + max(measured.values()), rel=CLOSE)
    assert plan.peaks["model offload"] < plan.peaks["resident"]
    assert plan.peaks["sequential offload"] <= plan.peaks["model offload"]


@pytest.mark.parametrize("name", ["sd15", "flux", "sd15-img2img", "cogvideox"])
def test_the_doctor_says_what_a_run_then_takes(
    family: Callable[[str], Family], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the folder that a person has, by the command, before anything is loaded."""
    folder, sources = str(family(name).folder), pictures(name) if name in EDITING else None
    options = ["--batch", "2", "--device", "cpu", "--memory-limit", "1GB", "--json"]
    if sources is not None:
        options += ["--source-size", "x".join(map(str, sources.shape[-2:]))]
    assert run(["doctor", "--plan", "--generator", folder, *options]) == 0
    (said,) = json.loads(capsys.readouterr().out)["memory"]["phases"]
    generator = load_generator(folder)
    assert isinstance(generator, DiffusionGenerator)
    start = {} if sources is None else {"sources": sources}
    generator.prepare([PROMPT])
    measured = phases_of(
        generator.pipeline, lambda: generator.generate([PROMPT] * 2, seeds=[0, 1], **start)
    )
    for phase, found in measured.items():
        assert said["activations"][phase] == pytest.approx(found, rel=CLOSE), phase
    whole = weight_bytes(generator.pipeline) + max(measured.values())
    assert said["peaks"]["resident"] == pytest.approx(whole, rel=CLOSE)
