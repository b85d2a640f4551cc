"""Pictures, rewrites and events for the tests of the page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from PIL import Image

from t2x.studio.events import Drawn


@pytest.fixture
def drawn() -> Callable[..., Drawn]:
    """Makes a picture of one arm."""

    def make(arm: str = "original", index: int = 0, **more: Any) -> Drawn:
        recipe = {"prompt": "a cat", "text": "one cat.", "seed": index, "kind": "picture"}
        picture = Image.new("RGB", (8, 8), (10 * index, 0, 200))
        return Drawn(arm, index, index, picture, recipe, **more)

    return make
