"""What is read off a language model: features, entropies, a temperature for each row."""

from __future__ import annotations

import pytest
import torch

from t2x.errors import T2XError
from t2x.selection.policy import prompt_entropies, prompt_features, row_temperatures
from t2x.testing import tiny_causal_lm

ROWS = [[5, 6, 7], [8], [9, 10, 11, 12], [5, 6, 7]]


def test_a_prompt_has_the_same_features_and_entropy_in_any_batch() -> None:
    model, _ = tiny_causal_lm()
    model.train()
    together = prompt_features(model, ROWS, batch=4)
    alone = torch.cat([prompt_features(model, [row]) for row in ROWS])
    assert together.shape == (4, 32)  # the width of the model, which is below 64
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)
    assert torch.equal(together[0], together[3]) and not torch.allclose(together[0], together[1])
    assert prompt_features(model, ROWS, size=8).shape == (4, 8)
    entropies = prompt_entropies(model, ROWS, batch=3)
    assert entropies == pytest.approx([prompt_entropies(model, [row])[0] for row in ROWS], abs=1e-5)
    assert model.training and not together.requires_grad


def test_entropy_is_that_of_the_next_token() -> None:
    model, _ = tiny_causal_lm()
    with torch.no_grad():
        logits = model(torch.tensor([ROWS[0]])).logits[0].double()
    expected = torch.distributions.Categorical(logits=logits).entropy().mean().item()
    assert prompt_entropies(model, ROWS[:1])[0] == pytest.approx(expected, abs=1e-5)


def test_each_row_is_sampled_at_its_own_temperature_and_the_others_are_not_touched() -> None:
    model, _ = tiny_causal_lm()
    ids = torch.tensor([[5, 6, 7]] * 3)
    with torch.no_grad():
        plain = model(ids).logits
        with row_temperatures(model, [1.0, 2.0, 0.5], 1.0):
            lifted = model(ids).logits
        after = model(ids).logits
    assert torch.equal(lifted[0], plain[0]) and torch.equal(after, plain)
    torch.testing.assert_close(lifted[1], plain[1] / 2)
    torch.testing.assert_close(lifted[2], plain[2] * 2)


def test_generate_follows_the_row() -> None:
    """Next to no temperature: rows are all the same, but for the one that is lifted."""
    model, _ = tiny_causal_lm()
    torch.manual_seed(0)
    ids = torch.tensor([[5, 6, 7]] * 24)
    heat = [1e-4] * 12 + [50.0] * 12
    options = {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": True, "temperature": 1e-4}
    with row_temperatures(model, heat, 1e-4):
        found = model.generate(ids, attention_mask=torch.ones_like(ids), top_k=0, **options)
    cold, hot = found[:12, 3:], found[12:, 3:]
    assert len(cold.unique(dim=0)) == 1 and len(hot.unique(dim=0)) > 8


def test_a_row_too_many_is_an_error_and_the_hook_is_gone() -> None:
    model, _ = tiny_causal_lm()
    ids = torch.tensor([[5, 6]] * 2)
    hook = row_temperatures(model, [1.0, 1.0, 2.0], 1.0)
    with pytest.raises(T2XError, match="3 temperatures for 2 rows"), hook:
        model(ids)
    model(ids)
