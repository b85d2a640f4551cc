"""What ``t2x.memory`` says that each family takes, phase by phase, against the bytes of a real run.

Offload needs an accelerator, so its peaks are sums that nothing here measures; quantised weights
are measured in ``tests/memory/test_plan.py``.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from t2x.memory.phases import PROMPT, generate_plan
from t2x.memory.weights import module_bytes
from t2x.testing import EDITING
from tests.memory.measuring import phases_of

from .cases import ALL, Family, pictures

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
