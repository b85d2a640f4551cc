"""Random streams of guidance's own."""

from __future__ import annotations

import torch

from t2x.generators.diffusion import own_noise
from t2x.guidance.streams import hash_seed, normal_rows


def test_seeds_depend_on_every_part_and_never_change() -> None:
    assert hash_seed(3, 7, "travel") == 994789287172823991
    found = {hash_seed(*parts) for parts in ((1, 2), (2, 1), (12,), (1, 2, "a"), (1,))}
    assert len(found) == 5 and all(0 <= seed < 2**63 for seed in found)


def test_a_row_is_its_stream_s_whatever_the_batch() -> None:
    both = normal_rows(own_noise([5, 6]), torch.zeros(9, 2, 3, dtype=torch.float64))
    alone = normal_rows(own_noise([6]), torch.zeros(1, 2, 3))
    assert both.shape == (2, 2, 3) and both.dtype == torch.float64
    assert torch.equal(both[1], alone[0].double())
