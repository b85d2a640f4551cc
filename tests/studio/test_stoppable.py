"""A download stops between two of its pieces, and nothing of the check stays behind."""

from __future__ import annotations

import pytest

from t2x.studio.stoppable import stoppable_load
from t2x.studio.work import Stopped


def test_a_download_stops_at_its_next_piece():
    from huggingface_hub.utils import tqdm

    pieces = 0

    def check() -> None:
        if pieces == 3:
            raise Stopped

    usual = tqdm.update
    with pytest.raises(Stopped), stoppable_load(check), tqdm(total=10, disable=True) as bar:
        for _ in range(10):
            bar.update(1)
            pieces += 1
    assert pieces == 3 and tqdm.update is usual
