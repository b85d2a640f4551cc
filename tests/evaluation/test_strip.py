"""The strip picture of a guided sample."""

from __future__ import annotations

import builtins

import numpy as np
import pytest
import torch

from t2x.errors import MissingDependencyError, T2XError
from t2x.evaluation import strip
from t2x.evaluation.strip import draw_strip
from t2x.guidance.regions import Region
from t2x.guidance.trace import GuidanceTrace


def traced(steps=6, *, thumbnails=32, measured=True, prompt="a cat", regions=()):
    """Rewards of 4 guided steps and two free ones; x0_hat is the darker the later."""
    trace = GuidanceTrace(["vqa", "clip"], thumbnails=thumbnails)
    trace.begin([prompt], regions=[regions])
    for i in range(steps):
        guided = measured and i < steps - 2
        trace.add(
            i,
            1 - i / steps,
            values=torch.tensor([[0.1 * i, 5.0 - i]]) if guided else None,
            weights=torch.tensor([[0.5, 0.25]]) if guided else None,
            eta=torch.tensor([1.0]) if guided else None,
            media=torch.full((1, 3, 32, 32), 1 - i / steps),
        )
    return trace.sample(0)


def colours(picture):
    return {tuple(c) for c in np.array(picture).reshape(-1, 3).tolist()}


def test_pictures_curves_and_weights_are_there_and_bytes_repeat():
    result = torch.zeros(3, 32, 32)
    result[0] = 1.0
    picture = draw_strip(traced(), result=result)

    found = colours(picture)
    assert {(round((1 - i / 6) * 255),) * 3 for i in range(6)} <= found  # each x0_hat
    assert (255, 0, 0) in found  # the result
    assert {(0, 0x72, 0xB2), (0xD5, 0x5E, 0)} <= found  # a curve for each reward
    assert draw_strip(traced(), result=result).tobytes() == picture.tobytes()


def test_the_boxes_of_regions_are_on_each_picture_and_nowhere_else():
    """In the left half a box, the right half as it was; a region without a place has its line of
    words alone."""
    regions = (Region("a cat", (0.0, 0.0, 0.5, 1.0)), Region("a dog"))
    line = strip.NOTE.line
    plain = np.array(draw_strip(traced())).astype(int)
    whole = np.array(draw_strip(traced(regions=regions))).astype(int)
    words = np.array(draw_strip(traced(regions=regions[1:]))).astype(int)
    assert len(whole) == len(words) == len(plain) + line
    below = strip.MARGIN // 2 + strip.TITLE.line + line  # of the words
    assert (words[below:] == plain[below - line :]).all() and (whole[:below] != 255).any()
    boxed, plain = whole[below:], plain[below - line :]
    columns = np.flatnonzero((plain != boxed).any((0, 2)))
    starts = np.flatnonzero(np.diff(columns, prepend=-9999) > strip.CELL // 2)
    assert len(starts) >= 6 and np.ptp(columns[: starts[1]]) <= strip.CELL // 2


def test_a_long_run_shows_some_of_its_steps():
    assert draw_strip(traced(40)).size == draw_strip(traced(9)).size


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_short_runs_and_missing_values_are_drawn(steps):
    assert draw_strip(traced(steps, measured=False)).size[0] > 600


def test_without_thumbnails_the_curves_stand_alone():
    bare = draw_strip(traced(thumbnails=None))

    assert bare.size[0] == draw_strip(traced()).size[0]
    assert bare.size[1] < draw_strip(traced()).size[1] - strip.CELL


def test_any_text_can_be_a_title():
    draw_strip(traced(prompt="猫 $x_{2 \udc80 " + "long " * 90), subtitle="α \u0301" * 200)


def test_what_is_missing_is_named(monkeypatch):
    with pytest.raises(T2XError, match="no steps"):
        draw_strip(traced(0))

    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith("matplotlib"):
            raise ModuleNotFoundError("no", name="matplotlib")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingDependencyError, match=r"t2x\[report\]"):
        draw_strip(traced())
