"""Rows that come and go in one cache write what each writes alone with ``generate``."""

from __future__ import annotations

import functools
import random
from typing import Any

import pytest
import torch

from t2x.rewriters import decoding
from t2x.rewriters.decoding import Decoded, Settings, decode_rows, fits
from t2x.rewriters.sampling import GumbelRows, row_generator
from t2x.testing import fixed_weights

STOP = 7


def small_model(kind: str, **changes: Any) -> Any:
    """A model of two layers whose every next token depends on all before it."""
    import transformers

    sizes = {
        "vocab_size": 64,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 256,
    }
    if kind == "GPT2":
        sizes = {"vocab_size": 64, "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 256}
    if kind == "Bloom":
        sizes = {"vocab_size": 64, "hidden_size": 32, "n_layer": 2, "n_head": 2}
    if kind == "Mamba":
        sizes = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4}
    config = getattr(transformers, f"{kind}Config")(**{**sizes, **changes})
    name = "LMHeadModel" if kind == "GPT2" else "ForCausalLM"
    with fixed_weights(0):
        model = getattr(transformers, kind + name)(config).eval()
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.data.normal_(std=0.3)
    return model


def make_rows(n: int = 23, shared: int = 9) -> list[list[int]]:
    rng = random.Random(0)
    head = [rng.randrange(8, 64) for _ in range(shared)]
    lengths = [1, 2, 2, 30, *(rng.randrange(1, 20) for _ in range(n - 4))]
    return sorted(([*head, *(rng.randrange(8, 64) for _ in range(k))] for k in lengths), key=len)


def settings(**changes: Any) -> Settings:
    return Settings(**{"stops": frozenset([STOP]), "max_new_tokens": 40, "slots": 6, **changes})


def alone(model: Any, row: list[int], seed: int | None, made: Settings) -> list[int]:
    noise = GumbelRows([seed], eos_ids=[STOP], **made.sampling)
    output = model.generate(
        input_ids=torch.tensor([row]),
        attention_mask=torch.ones(1, len(row)),
        max_new_tokens=made.max_new_tokens,
        do_sample=False,
        eos_token_id=STOP,
        pad_token_id=0,
        logits_processor=[noise],
    )
    return output[0, len(row) :].tolist()


@pytest.mark.parametrize("kind", ["Llama", "Qwen3", "GPT2"])
@pytest.mark.parametrize(
    "changes",
    [{}, {"repetition_penalty": 1.3}, {"temperature": 1.5, "top_p": 0.9}],
    ids=["greedy", "penalty", "sampled"],
)
def test_rows_write_what_each_writes_alone(kind: str, changes: dict[str, Any]) -> None:
    model, made, rows = small_model(kind), settings(sampling=changes), make_rows()
    seeds = [None if "temperature" not in changes or i % 3 == 0 else i for i in range(len(rows))]
    found = {done.index: done for done in decode_rows(model, rows, seeds, made)}
    assert sorted(found) == list(range(len(rows)))
    for i, (row, seed) in enumerate(zip(rows, seeds, strict=True)):
        assert found[i].margin < 1e-4 or found[i].ids == alone(model, row, seed, made), i
    lengths = {len(done.ids) for done in found.values()}
    assert min(lengths) < 40 and len(lengths) > 5  # rows do end at different times


def test_eager_attention_and_rows_without_anything_in_common() -> None:
    model = small_model("Llama", attn_implementation="eager")
    rows = [[i + 8, i + 9] for i in range(9)]
    assert fits(model)
    for done in decode_rows(model, rows, [None] * 9, settings(slots=3)):
        assert done.ids == alone(model, rows[done.index], None, settings())


def test_a_row_that_ends_makes_room_before_the_others_end(monkeypatch: Any) -> None:
    model, rows = small_model("Llama"), make_rows(12)
    steps: list[int] = []
    read = decoding._read_tokens

    def count(model: Any, cache: Any, active: Any) -> Any:
        steps.append(len(active))
        return read(model, cache, active)

    monkeypatch.setattr(decoding, "_read_tokens", count)
    made = settings(slots=8, max_new_tokens=60)
    lengths = [len(done.ids) for done in decode_rows(model, rows, [None] * len(rows), made)]
    assert sum(steps) == sum(lengths)  # nothing is computed for an empty slot
    assert max(steps) == 8
    batches = max(lengths[:8]) + max(lengths[8:])  # what whole batches take at least
    assert len(steps) < batches


def test_no_rows_and_one_row() -> None:
    model = small_model("Llama")
    assert list(decode_rows(model, [], [], settings())) == []
    found = []
    for done in decode_rows(model, [[9, 10, 11]], [None], settings()):
        assert not torch.is_inference_mode_enabled()  # that is for the model, not for the caller
        found.append(done)
    (done,) = found
    assert done.ids == alone(model, [9, 10, 11], None, settings())
    assert isinstance(done, Decoded)


def test_what_is_no_plain_attention_is_left_to_generate() -> None:
    assert fits(small_model("Llama"))
    assert fits(small_model("GPT2"))
    assert not fits(small_model("Mistral", sliding_window=4))
    assert not fits(small_model("Bloom"))  # reads positions off a mask of two dimensions
    assert not fits(small_model("Mamba"))
    assert not fits(torch.nn.Linear(2, 2))


def test_a_model_that_computes_otherwise_is_seen_and_told(caplog: Any) -> None:
    """What looks ordinary and ignores the positions that it is given would write other texts."""
    model = small_model("GPT2")
    forward = model.forward

    @functools.wraps(forward)
    def ignores(*args: Any, **options: Any) -> Any:
        return forward(*args, **{**options, "position_ids": None})

    model.forward = ignores
    assert not fits(model)
    assert caplog.text.count("GPT2LMHeadModel is decoded by generate") == 1
    assert "differs" in caplog.text


def test_generators_belong_to_rows() -> None:
    first, again = row_generator(3), row_generator(3)
    assert row_generator(None) is None
    assert torch.rand(4, generator=first).equal(torch.rand(4, generator=again))
