"""Gumbel noise per row: the right law, and nothing of the neighbours."""

from __future__ import annotations

import pytest
import torch

from t2x.rewriters.sampling import GumbelRows, RowSampler, row_generator, row_seed


def draw(logits: torch.Tensor, seeds: list[int | None], **options: float) -> torch.Tensor:
    rows = GumbelRows(seeds, **options)
    return rows(torch.zeros(len(seeds), 1, dtype=torch.long), logits).argmax(-1)


def test_frequencies_follow_the_tempered_softmax() -> None:
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0])
    n = 20_000
    found = draw(logits.expand(n, 4), list(range(n)), temperature=0.7)
    share = torch.bincount(found, minlength=4) / n
    # Four standard deviations of a share are at most 4 * 0.5 / sqrt(20000) = 0.0141.
    torch.testing.assert_close(share, (logits / 0.7).softmax(0), atol=0.0142, rtol=0)


def test_nucleus_keeps_the_smallest_set_that_reaches_top_p() -> None:
    logits = torch.tensor([0.5, 0.3, 0.15, 0.05]).log().flip(0)
    found = draw(logits.expand(4000, 4), list(range(4000)), top_p=0.6)
    share = torch.bincount(found, minlength=4) / 4000
    assert share[:2].tolist() == [0, 0]
    assert share[3].item() == pytest.approx(0.5 / 0.8, abs=0.032)  # four standard deviations


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"top_k": 2}, 2),
        ({"top_k": 0}, 4),
        ({"top_k": 9}, 4),
        ({"min_p": 0.3}, 3),  # 0.15 is 0.3 of 0.5: a tie stays in
        ({"min_p": 0.31}, 2),
        ({"min_p": 0.31, "top_k": 1}, 1),
        ({"top_p": 0.9, "min_p": 0.05, "top_k": 4}, 3),
    ],
)
def test_top_k_and_min_p_keep_the_likeliest(options: dict[str, float], kept: int) -> None:
    logits = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64).log().float()
    found = draw(logits.expand(4000, 4), list(range(4000)), **options)
    share = torch.bincount(found, minlength=4) / 4000
    wanted = torch.tensor([0.5, 0.3, 0.15, 0.05]).masked_fill(torch.arange(4) >= kept, 0)
    # Four standard deviations of a share are at most 4 * 0.5 / sqrt(4000) = 0.032.
    torch.testing.assert_close(share, wanted / wanted.sum(), atol=0.032, rtol=0)
    assert int((share > 0).sum()) == kept


def test_a_close_edge_is_a_close_call_where_it_decides() -> None:
    logits = torch.tensor([[2.0, 1.0, 0.99995, -9.0]])  # rounding decides whether 1 or 2 is let in
    margins: dict[int, list[float]] = {0: [], 1: []}
    for seed in range(40):
        rows = GumbelRows([seed], top_k=2)
        winner = int(rows(torch.zeros(1, 1, dtype=torch.long), logits).argmax())
        margins[winner].append(rows.margins.item())
    assert len(margins[0]) > 15 and len(margins[1]) > 5
    assert max(margins[1]) == 0
    assert sum(margin <= 0 for margin in margins[0]) > 0  # 2 would have won, had it been let in
    assert sum(margin > 0.1 for margin in margins[0]) > 10


def test_a_row_draws_the_same_anywhere() -> None:
    logits = torch.randn(3, 50, generator=torch.Generator().manual_seed(0))
    together = draw(logits, [5, 6, None])
    assert together[1] == draw(logits[1:2], [6])[0]
    assert together[2] == logits[2].argmax()


def test_margins_tell_close_calls_and_stop_at_the_end() -> None:
    rows = GumbelRows([None, None], eos_ids=[9])
    first = torch.tensor([[0.0, 1.0], [0.0, 0.5]])
    rows(torch.tensor([[9], [3]]), first)  # a prompt may end in the end token
    rows(torch.tensor([[9, 9], [3, 1]]), torch.tensor([[0.0, 0.1], [0.0, 0.2]]))
    torch.testing.assert_close(rows.margins, torch.tensor([1.0, 0.2]))


def test_seeds_depend_on_seed_prompt_and_generation() -> None:
    seeds = {
        row_seed(s, p, generation=g)
        for s in (0, 1)
        for p in ("a", "b", "\ud83d")
        for g in (0, 1, 10)
    }
    assert len(seeds) == 18
    assert row_seed(0, "a cat", generation=0) == row_seed(0, "a cat", generation=0) < 2**63


def test_only_what_the_row_wrote_is_penalised() -> None:
    rows = GumbelRows([None], repetition_penalty=2.0)
    logits = torch.tensor([[2.0, 1.0, -1.0, 3.0]])
    prompt = torch.tensor([[3, 3]])
    assert rows(prompt, logits).tolist() == logits.tolist()
    after = rows(torch.tensor([[3, 3, 0, 2, 0]]), logits)
    assert after.tolist() == [[1.0, 1.0, -2.0, 3.0]]


def test_an_edge_counts_only_if_its_token_would_win() -> None:
    """Tokens at the edge of the nucleus (mass 0.6 exactly), of the 2 likeliest (equal ones) and of
    a tenth of the likeliest: the margin is small where one of them has won or would have, and is
    the ordinary gap elsewhere."""
    cases = [
        ({"top_p": 0.6}, [0.6, 0.3, 0.1], {1}),
        ({"top_k": 2}, [0.5, 0.25, 0.25], {1, 2}),
        ({"min_p": 0.1}, [0.8, 0.12, 0.08], {2}),
    ]
    for options, chances, edge in cases:
        logits = torch.tensor(chances).log().expand(400, 3)
        sampler = RowSampler(**options)
        generators = [row_generator(i) for i in range(400)]
        scores, margins = sampler(logits, torch.zeros(400, 0, dtype=torch.long), generators)
        noise = torch.stack([draw_noise(i, 3) for i in range(400)])
        would = (logits + noise).argmax(-1)
        gaps = scores.topk(2).values
        for i in range(400):
            if int(would[i]) in edge:
                assert margins[i] < 1e-4, options
            elif scores[i].argmax() == would[i] and int(would[i]) not in edge:
                assert margins[i] > 0 and margins[i] <= gaps[i, 0] - gaps[i, 1]
        assert 0.05 < (margins < 1e-4).float().mean() < 0.6  # and not of every row


def draw_noise(seed: int, size: int) -> torch.Tensor:
    uniform = torch.rand(size, generator=row_generator(seed)).clamp_(1e-20, 1 - 1e-7)
    return -torch.log(-torch.log(uniform))


def test_the_likeliest_and_those_near_them_are_kept() -> None:
    logits = torch.tensor([0.5, 0.3, 0.15, 0.05]).log().expand(2000, 4)
    kept = {"top_k": 2}, {"min_p": 0.5}
    for options in kept:
        found = draw(logits, list(range(2000)), **options)
        assert set(found.tolist()) == {0, 1}, options
