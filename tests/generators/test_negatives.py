"""A negative prompt reaches only a generator that takes one."""

from __future__ import annotations

from typing import Any

import pytest

from t2x.errors import UnknownNameError
from t2x.generators import DiffusionGenerator
from t2x.generators.negatives import takes_negative, usable_negatives
from t2x.testing import FakeGenerator, tiny_stable_diffusion, tiny_z_image


@pytest.mark.parametrize(
    ("build", "scale", "takes"),
    [
        (tiny_stable_diffusion, 3.0, True),
        (tiny_stable_diffusion, 1.0, False),
        (tiny_z_image, 2.0, True),
        (tiny_z_image, 0.0, False),
    ],
)
def test_a_folder_and_the_loaded_pipeline_agree(
    tmp_path: Any, build: Any, scale: float, takes: bool
) -> None:
    build().save_pretrained(tmp_path)
    (tmp_path / "t2x.json").write_text(f'{{"guidance_scale": {scale}}}')
    assert takes_negative(tmp_path) is takes
    loaded = DiffusionGenerator.from_pretrained(tmp_path)
    assert loaded.supports_negative is takes_negative(loaded) is takes


def test_embedded_generators_by_name() -> None:
    assert takes_negative("emoji-flow") is True
    assert takes_negative("emoji-flow-turbo") is False  # guidance is distilled into its weights


def test_what_is_unknown(tmp_path: Any) -> None:
    (tmp_path / "model_index.json").write_text('{"_class_name": "NoSuchPipeline"}')
    assert takes_negative(tmp_path) is None
    with pytest.raises(UnknownNameError):
        takes_negative("emoji-flou")


def test_only_then_it_is_given(caplog: Any) -> None:
    class Without(FakeGenerator):
        supports_negative = False

    assert usable_negatives(FakeGenerator(), ["", "dogs"]) == ["", "dogs"]
    assert usable_negatives(FakeGenerator(), ["", ""]) is None
    assert usable_negatives(Without(), ["", ""]) is None and not caplog.records
    assert usable_negatives(Without(), ["", "dogs"]) is None
    assert "takes no negative prompt" in caplog.text
