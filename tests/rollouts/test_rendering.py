"""Pictures are drawn once, found again in a store, and come in order from other processes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from t2x.errors import T2XError
from t2x.rollouts.measuring import Measurer
from t2x.rollouts.rendering import Drawing, Renderer, store_pictures
from t2x.rollouts.workers import WorkerRenderer
from t2x.scoring.ensemble import RewardEnsemble
from t2x.search.evaluator import Order
from t2x.store import Store
from t2x.testing import FakeGenerator, FakeReward

from .worlds import FourMore, Painter

DRAWINGS = [Drawing(text, "", seed) for text in ("a cat", "two dogs", "a bus") for seed in (1, 2)]


def test_each_picture_is_drawn_once_and_scored_against_each_prompt() -> None:
    painter = Painter()
    measurer = Measurer(Renderer(painter), RewardEnsemble([FourMore()]))
    orders = [
        Order("two cats", "two cats in the snow", "", 1),
        Order("a", "two cats in the snow", "", 1),
        Order("two cats", "two cats in the snow", "", 1),
    ]
    scores = measurer.measure(orders)
    assert painter.calls == [("two cats in the snow", "", 1)]
    # Five words: one short of the two and four, none short of the one and four.
    torch.testing.assert_close(
        scores[:, 0].float(), torch.tensor([-1.0, 0.0, -1.0]), atol=1e-4, rtol=0
    )
    assert (measurer.used, measurer.drawn) == (1, 1)


def test_everything_that_decides_a_picture_is_in_its_key(tmp_path: Path) -> None:
    """Trap 10: text, negative prompt, seed and generator."""
    store = Store(tmp_path)

    def drawn(drawing: Drawing, *, mark: str = "a", negative: str = "") -> int:
        painter = Painter(mark)
        store_pictures(Renderer(painter, negative=negative), [drawing], store)
        return len(painter.calls)

    first = Drawing("a cat", "", 1)
    assert [drawn(first), drawn(first)] == [1, 0]
    for other in (Drawing("a cat.", "", 1), Drawing("a cat", "dog", 1), Drawing("a cat", "", 2)):
        assert drawn(other) == 1
    assert drawn(first, mark="b") == 1
    assert drawn(first, negative="blurry") == 1
    assert drawn(first) == 0


def test_a_stored_picture_is_the_drawn_one(tmp_path: Path) -> None:
    store, renderer = Store(tmp_path), Renderer(FakeGenerator())
    fresh, _ = store_pictures(renderer, DRAWINGS, None)
    renderer.generator.fingerprint = lambda: {"model_id": "fake"}  # type: ignore[attr-defined]
    for new in (len(DRAWINGS), 0):
        stored, drawn = store_pictures(renderer, DRAWINGS, store)
        assert drawn == new
        assert all(torch.equal(stored[d], fresh[d]) for d in DRAWINGS)


def test_a_generator_without_a_name_is_not_stored(tmp_path: Path) -> None:
    renderer = Renderer(FakeGenerator())
    assert renderer.fingerprint() is None
    store_pictures(renderer, DRAWINGS, Store(tmp_path))
    assert not list((tmp_path / "objects").iterdir())


def test_the_negative_prompt_of_all_pictures_joins_their_own() -> None:
    painter = Painter()
    Renderer(painter, negative="blurry").draw([Drawing("a", "dog", 1), Drawing("b", "", 2)])
    assert painter.calls == [("a", "dog, blurry", 1), ("b", "blurry", 2)]


def test_batches_are_cut_by_order() -> None:
    sizes: list[int] = []

    class Counting(FakeGenerator):
        def generate(self, prompts: Any, **options: Any) -> Any:
            sizes.append(len(prompts))
            return super().generate(prompts, **options)

    assert len(Renderer(Counting(), batch_size=4).draw(DRAWINGS)) == 6
    assert sizes == [4, 2]


def test_kinds_of_media_must_agree() -> None:
    with pytest.raises(T2XError, match="makes videos and ensemble scores images"):
        Measurer(Renderer(FakeGenerator("video")), RewardEnsemble([FakeReward()]))


def test_workers_draw_the_same_in_the_same_order() -> None:
    own = Renderer(FakeGenerator()).draw(DRAWINGS)
    renderer = WorkerRenderer("t2x.testing:FakeGenerator", workers=2, batch_size=1)
    try:
        assert renderer.modality == "image"
        pictures = renderer.draw(DRAWINGS)
        assert all(torch.equal(a, b) for a, b in zip(pictures, own, strict=True))
        [pid] = {renderer._pool.submit(os.getpid).result()}
        assert pid != os.getpid()
        with pytest.raises(T2XError, match="a render worker died"):
            renderer._ask(_die)
    finally:
        renderer.close()


def _die() -> None:
    os._exit(1)


def test_a_loaded_generator_stays_in_its_process() -> None:
    with pytest.raises(T2XError, match="give its name"):
        WorkerRenderer(FakeGenerator())  # type: ignore[arg-type]
