"""Rounds of REBEL: the policy writes anew in every round, and the regression finds its solution."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from t2x.errors import T2XError
from t2x.functional.preference_losses import rebel_loss
from t2x.testing import tiny_causal_lm

pytestmark = pytest.mark.extra("train")

PROMPT = "a cat"
TEXTS = ("a large cat", "dog", "photo of a cat", "cat please", "bus", "a cat left a dog")


def trainer(
    folder: Path, write: Callable[[int], Any], *, size: int = 4, model: Any = None, **given: Any
) -> Any:
    from trl import DPOConfig

    from t2x.training.rounds import RebelTrainer

    values = {
        "output_dir": str(folder), "per_device_train_batch_size": 2, "num_train_epochs": 3,
        "learning_rate": 1e-2, "lr_scheduler_type": "constant", "beta": 0.5, "use_cpu": True,
        "bf16": False, "logging_steps": 1, "gradient_checkpointing": False, "report_to": "none",
        "save_steps": 3, "disable_tqdm": True,
    }  # fmt: skip
    own, tokenizer = tiny_causal_lm()
    model = own if model is None else model
    return RebelTrainer(model, DPOConfig(**values | given), tokenizer, write, size=size)


def pair(first: int, second: int, *rewards: float) -> Any:
    from t2x.training.rounds import ScoredPair

    _, tokenizer = tiny_causal_lm()
    asked = tokenizer.apply_chat_template(
        [{"role": "user", "content": PROMPT}], add_generation_prompt=True, return_dict=False
    )
    answers = [tokenizer(TEXTS[i])["input_ids"] + [tokenizer.eos_token_id] for i in (first, second)]
    return ScoredPair(asked, *answers, *rewards)


def constant(*pairs: Any) -> Callable[[int], Any]:
    from t2x.training.rounds import Round

    return lambda number: Round(pairs, {"rollout/reward": float(number)})


def logps(model: Any, pairs: list[Any]) -> torch.Tensor:
    """By the stock forward and log_softmax: (N, 2)."""
    rows = []
    for item in pairs:
        for ids in (item.chosen_ids, item.rejected_ids):
            whole = torch.tensor([item.prompt_ids + ids])
            with torch.no_grad():
                found = model(input_ids=whole).logits[0, :-1].log_softmax(-1)
            tokens = found.gather(-1, whole[0, 1:, None])[-len(ids) :]
            rows.append(tokens.sum())
    return torch.stack(rows).view(-1, 2)


def test_loss_is_the_equation(tmp_path: Path) -> None:
    pairs = [pair(0, 1, 1.0, 0.0), pair(2, 3, -0.5, 1.5)]
    built = trainer(tmp_path, constant(*pairs))
    before = logps(built.model, pairs)
    built.begin_round(0)
    batch = built.data_collator([built.train_dataset[i] for i in range(2)])
    assert built.compute_loss(built.model, batch).item() == pytest.approx((1 + 4) / 2, abs=1e-4)
    with torch.no_grad():
        built.model.model.embed_tokens.weight.mul_(1.2)
    ratios = logps(built.model, pairs) - before
    expected = rebel_loss(
        ratios[:, 0], ratios[:, 1], torch.tensor([1.0, -0.5]), torch.tensor([0.0, 1.5]), eta=2.0
    )
    loss = built.compute_loss(built.model, batch).item()
    assert loss == pytest.approx(expected.mean().item(), abs=1e-4)
    assert built._values["explained"][-1] == pytest.approx(1 - loss / 2.5, abs=1e-4)
    tokens = sum(len(p.chosen_ids) + len(p.rejected_ids) for p in pairs)
    assert built._values["kl/round"][-1] == pytest.approx(-ratios.sum().item() / tokens, abs=1e-4)


def test_a_round_is_solved(tmp_path: Path) -> None:
    """The log ratios differ by eta times the rewards' difference: 2 * (1 - 0) and 2 * (0 - 1)."""
    pairs = [pair(0, 1, 1.0, 0.0), pair(2, 3, 0.0, 1.0)]
    built = trainer(tmp_path, constant(*pairs), size=100, num_train_epochs=1)
    before = logps(built.model, pairs)
    built.train()
    ratios = logps(built.model.eval(), pairs) - before
    assert (ratios[:, 0] - ratios[:, 1]).tolist() == pytest.approx([2.0, -2.0], abs=0.3)
    lines = [line for line in built.state.log_history if "explained" in line]
    assert lines[0]["explained"] == pytest.approx(0, abs=1e-3)
    assert lines[-1]["explained"] > 0.9


def test_rounds_are_written_by_the_policy_as_it_is(tmp_path: Path) -> None:
    """A bandit of six texts, two drawn by the policy itself in each round: the best one wins."""
    from t2x.training.rounds import Round

    built: Any = None
    best: list[float] = []

    def write(number: int) -> Any:
        scores = logps(built.model, [pair(i, i, 0.0, 0.0) for i in range(len(TEXTS))])[:, 0]
        shares = scores.softmax(0).tolist()
        best.append(shares[4])
        rng = random.Random(number)
        drawn = [rng.choices(range(len(TEXTS)), shares, k=2) for _ in range(8)]
        return Round([pair(i, j, float(i == 4), float(j == 4)) for i, j in drawn], {})

    built = trainer(tmp_path, write, size=8, num_train_epochs=12, save_strategy="no")
    built.train()
    assert len(best) == 12
    assert best[0] < 0.5
    assert best[-1] > 0.9


def adapted() -> Any:
    from t2x.training.config import LoraSection
    from t2x.training.policy import with_adapters

    torch.manual_seed(0)
    return with_adapters(tiny_causal_lm()[0], LoraSection(rank=2))


@pytest.mark.parametrize("build", [lambda: None, adapted], ids=["full", "lora"])
def test_going_on_inside_a_round_writes_nothing_anew(build: Any, tmp_path: Path) -> None:
    """Two steps a round, saved at step 3: round 1 is read from its file, round 2 written again."""
    written: list[int] = []

    def write(number: int) -> Any:
        written.append(number)
        return constant(*[pair(i, (i + number + 1) % 6, 1.0, 0.5) for i in range(4)])(number)

    whole = trainer(tmp_path / "out", write, model=build())
    start = [p.detach().clone() for p in whole.model.parameters()]
    whole.train()
    assert written == [0, 1, 2]
    kept = (tmp_path / "out" / "rounds" / "0001-0of1.jsonl").read_text()
    again = trainer(tmp_path / "out", write, model=build())
    again.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-3"))
    assert written == [0, 1, 2, 2]
    assert (tmp_path / "out" / "rounds" / "0001-0of1.jsonl").read_text() == kept
    for one, two in zip(whole.model.parameters(), again.model.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=1e-6)
    for before, now in zip(start, whole.model.parameters(), strict=True):
        assert torch.equal(before, now) != now.requires_grad
    trainer(tmp_path / "out", write, model=build()).train()  # from the start: all rounds anew
    assert written == [0, 1, 2, 2, 0, 1, 2]


def test_few_pairs_are_learnt_again_and_none_is_an_error(tmp_path: Path) -> None:
    built = trainer(tmp_path / "few", constant(pair(0, 1, 1.0, 0.0)))
    built.begin_round(0)
    assert len(built.train_dataset) == 4
    rows = [built.train_dataset[i] for i in range(4)]
    assert all(row == rows[0] for row in rows)
    line = json.loads((tmp_path / "few" / "rounds" / "0000-0of1.jsonl").read_text())
    assert math.isfinite(line["ref_chosen_logps"])
    with pytest.raises(T2XError, match="round 0 gave no pair"):
        trainer(tmp_path / "none", constant()).begin_round(0)
    with pytest.raises(T2XError, match="reward_chosen"):
        trainer(tmp_path / "nan", constant(pair(0, 1, math.nan, 0.0))).begin_round(0)


def test_the_tokens_that_were_sampled_are_learnt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not those that their text would be given, which a policy may never write."""
    from unittest.mock import MagicMock

    from t2x.rewriters.completion import Completion
    from t2x.rewriters.language_model import LanguageModelRewriter
    from t2x.training.config import PolicyConfig
    from t2x.training.policy import load_policy
    from t2x.training.round_section import RoundSection
    from t2x.training.round_writer import RoundWriter

    written = [Completion("a cat", ids=(7, 8, 9)), Completion("a dog", ids=(7, 2))]
    monkeypatch.setattr(LanguageModelRewriter, "complete", lambda *args, **options: [written])
    scorer = MagicMock(metrics={})
    scorer.score.return_value = [MagicMock(reward=1.0), MagicMock(reward=0.0)]
    section = RoundSection(rounds=1, prompts=1)
    writer = RoundWriter(load_policy(PolicyConfig()), scorer, [PROMPT], section, pictures=1, seed=0)
    [found] = writer(0).pairs
    assert (found.chosen_ids, found.rejected_ids) == ([7, 8, 9], [7, 2])
