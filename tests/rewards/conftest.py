"""A tiny CLIP and pictures to score."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from t2x.testing import tiny_open_clip


@pytest.fixture(scope="session")
def clip() -> tuple[Any, Any]:
    return tiny_open_clip()


@pytest.fixture
def pictures() -> torch.Tensor:
    return torch.rand(3, 3, 64, 64, generator=torch.Generator().manual_seed(0))
