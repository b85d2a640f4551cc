"""What an edit changed and what it kept."""

from __future__ import annotations

import math

import pytest
import torch

from t2x.studio.changes import measured_change


def test_what_is_outside_the_box_is_measured_by_itself():
    """The left half differs by 0.5, the right by 0.01, whose PSNR is 40 dB."""
    before = torch.full((3, 8, 8), 0.25)
    after = before.clone()
    after[:, :, :4] += 0.5
    after[:, :, 4:] += 0.01
    change = measured_change(before, after, (0.0, 0.0, 0.5, 1.0))
    assert change.share == 0.5 and change.kept == pytest.approx(40.0, abs=1e-3)
    assert change.map.getpixel((0, 0)) == (191, 191, 191)
    assert change.map.getpixel((7, 7)) == (208, 208, 208)  # 0.26 a quarter of the way from white
    whole = measured_change(before, after)
    assert whole.kept == pytest.approx(-10 * math.log10((0.25 + 1e-4) / 2), abs=1e-3)
    assert math.isnan(measured_change(before, after, (0.0, 0.0, 1.0, 1.0)).kept)
    assert measured_change(before, after[:, :4]) is None
