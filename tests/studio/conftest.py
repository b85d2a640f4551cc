"""Studios of fakes and of a tiny pipeline of the real class; each is closed after its test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from t2x.studio import Studio
from t2x.testing import FakeGenerator, FakeReward, FakeRewriter


@pytest.fixture
def make_studio(tmp_path: Any) -> Iterator[Callable[..., Studio]]:
    """Makes studios of fakes; arguments replace parts."""
    made: list[Studio] = []

    def make(**parts: Any) -> Studio:
        given = {
            "generator": FakeGenerator(),
            "rewriter": FakeRewriter(),
            "rewards": [FakeReward()],
            "home": tmp_path,
            **parts,
        }
        made.append(Studio(**given))
        return made[-1]

    yield make
    for studio in made:
        studio.close()


@pytest.fixture(scope="session")
def tiny_generator() -> Any:
    """Four steps with classifier-free guidance, 64x64."""
    from t2x.generators.diffusion import DiffusionGenerator
    from t2x.testing import tiny_stable_diffusion

    return DiffusionGenerator(
        tiny_stable_diffusion(),
        model_id="tiny",
        sampling={"num_inference_steps": 4, "guidance_scale": 3.0},
    )
