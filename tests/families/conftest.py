"""Each family built, saved and loaded once."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache

import pytest

from t2x.generators import DiffusionGenerator
from t2x.generators.loading import quiet
from t2x.registry import load_generator
from t2x.testing import EDITING

from .cases import ALL, PRESETS, Family, pictures, small_call


@pytest.fixture(scope="session")
def family(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Family]:
    """Give a family by name, loaded from disk by ``load_generator``."""

    @cache
    def give(name: str) -> Family:
        folder = tmp_path_factory.mktemp(name)
        with quiet():
            ALL[name]().save_pretrained(folder)
        (folder / "t2x.json").write_text(json.dumps(small_call(name)))
        generator = load_generator(folder, preset=PRESETS.get(name))
        assert isinstance(generator, DiffusionGenerator)
        start = {"sources": pictures(name)} if name in EDITING else {}
        return Family(name, folder, generator, start)

    return give


@pytest.fixture(autouse=True)
def _small_edits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Qwen-Image's editing classes make every source a million pixels: 64 x 64 here."""
    from diffusers.pipelines.qwenimage import pipeline_qwenimage_edit as edit
    from diffusers.pipelines.qwenimage import pipeline_qwenimage_edit_plus as plus

    for module in (edit, plus):
        own = module.calculate_dimensions
        monkeypatch.setattr(
            module, "calculate_dimensions", lambda area, ratio, own=own: own(64 * 64, ratio)
        )
