"""GRPO with rollouts inside TRL's own trainer: what it reads, what it learns, and going on."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch

import t2x
from t2x.errors import T2XError
from t2x.registry import load_recipe
from t2x.rollouts.config import RolloutConfig
from t2x.training.config import DataConfig, PolicyConfig, RewardConfig, RunConfig
from t2x.training.policy import load_policy
from t2x.watching.config import WatchConfig

pytestmark = [
    pytest.mark.extra("train"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

PROMPTS = ["two cats", "a red bus", "a dog to the left of a cup", 'a sign that says "Open"']
TRAINER = {
    "max_steps": 2,
    "per_device_train_batch_size": 4,
    "num_generations": 2,
    "max_completion_length": 64,
    "learning_rate": 1e-4,
    "lr_scheduler_type": "constant",
    "bf16": False,
    "save_steps": 1,
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    lines = [json.dumps({"original_prompt": p, "kind": "plain"}) for p in PROMPTS]
    path.write_text("\n".join(lines))
    return path


def make_config(data: Path, out: Path, **trainer: Any) -> Any:
    schema, _ = load_recipe("grpo")
    return schema(
        data=DataConfig(str(data)),
        reward=RewardConfig(
            {"t2x.testing:FakeReward": 1.0}, generator="t2x.testing:FakeGenerator", pictures=2
        ),
        run=RunConfig(out, seed=3),
        watch=WatchConfig(report=0, bar=False),
        trainer=TRAINER | trainer,
    )


def weights_of(folder: Path) -> torch.Tensor:
    model = load_policy(PolicyConfig(model=str(folder))).model
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def test_two_steps_move_the_policy_and_save_a_rewriter(data: Path, tmp_path: Path) -> None:
    _, main = load_recipe("grpo")
    metrics = main(make_config(data, tmp_path / "run"))
    assert metrics["steps"] == 2
    assert {"kl", "entropy", "gain", "failed", "floor"} <= metrics.keys()
    assert metrics["reward"] > 0.1  # of the pictures, not TRL's mean of advantages
    start = weights_of(Path(load_policy(PolicyConfig()).model.config._name_or_path))
    assert not torch.equal(weights_of(tmp_path / "run" / "model"), start)
    [[rewrite]] = t2x.load_rewriter(tmp_path / "run" / "model").rewrite(["two cats"])
    assert rewrite.status != "failed"


def test_broken_off_and_gone_on_is_the_same_run(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trap 10: the same seeds, the same statistics, the same weights, whatever a broken-off
    checkpoint left behind."""
    from t2x.rollouts import RolloutScorer

    _, main = load_recipe("grpo")
    seeds: dict[str, list[Any]] = {"whole": [], "parts": []}
    score = RolloutScorer.score
    kind, stop = "whole", False

    def watched(self: RolloutScorer, originals: Any, completions: Any, **options: Any) -> Any:
        if stop and len(seeds["parts"]) == 2:
            raise KeyboardInterrupt
        seeds[kind].append((list(originals), list(options["seeds"])))
        return score(self, originals, completions, **options)

    monkeypatch.setattr(RolloutScorer, "score", watched)
    whole = make_config(data, tmp_path / "whole", max_steps=4)
    main(whole)
    kind, stop = "parts", True
    parts = make_config(data, tmp_path / "parts", max_steps=4)
    with pytest.raises(KeyboardInterrupt):
        main(parts)
    broken = tmp_path / "parts" / "checkpoint-3"
    broken.mkdir()
    (broken / "trainer_state.json").write_text("{")
    stop = False
    main(parts)
    assert seeds["parts"] == seeds["whole"]
    ends = [weights_of(tmp_path / name / "model") for name in ("whole", "parts")]
    torch.testing.assert_close(ends[0], ends[1], rtol=0, atol=1e-6)
    states = [
        json.loads((tmp_path / name / "checkpoint-4" / "rollouts.json").read_text())
        for name in ("whole", "parts")
    ]
    assert states[0] == states[1]


def test_a_dead_reward_loses_no_step(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two steps are done when it dies; with the reward mended the run goes on from there."""
    from t2x.testing import FakeReward

    _, main = load_recipe("grpo")
    run, is_mended, score = tmp_path / "run", False, FakeReward.score

    def dying(self: Any, prompts: Any, *args: Any, **options: Any) -> Any:
        found = score(self, prompts, *args, **options)
        done = log.read_text().splitlines() if log.exists() else []
        return found if is_mended or len(done) < 2 else torch.full_like(found, torch.nan)

    log = run / "log.jsonl"
    monkeypatch.setattr(FakeReward, "score", dying)
    config = make_config(data, run, max_steps=4, save_steps=50)
    config = dataclasses.replace(config, rollout=RolloutConfig(max_missing=0.1))
    with pytest.raises(T2XError, match="dead reward"):
        main(config)
    assert [p.name for p in run.glob("checkpoint-*")] == ["checkpoint-2"]
    is_mended = True
    assert main(config)["steps"] == 4
    assert [json.loads(line)["step"] for line in log.open()] == [1, 2, 3, 4]


@pytest.mark.parametrize("name", ["world/grpo", "presets/reprompt", "presets/promptenhancer"])
def test_configurations_are_what_the_recipe_and_trl_take(name: str) -> None:
    from t2x.config import find_config, load_config
    from t2x.rewriters.templates import Template
    from t2x.training.grpo import grpo_arguments

    schema, _ = load_recipe("grpo")
    config = load_config(schema, find_config(name))
    arguments = grpo_arguments(config.run, Template(), config.trainer)
    assert arguments.beta > 0
    assert arguments.generation_batch_size % arguments.num_generations == 0


def test_settings_that_undo_rollouts_are_refused(data: Path, tmp_path: Path) -> None:
    _, main = load_recipe("grpo")
    with pytest.raises(T2XError, match=r"trainer\.scale_rewards is 'group'"):
        main(make_config(data, tmp_path / "run", scale_rewards="group"))
    with pytest.raises(T2XError, match=r"trainer\.mask_truncated_completions is False"):
        main(make_config(data, tmp_path / "run", mask_truncated_completions=False))


@pytest.mark.parametrize(
    ("trainer", "save_steps"),
    [
        ({"save_steps": 1}, 1),
        ({"save_steps": 1, "gradient_accumulation_steps": 2}, 1),
        ({"save_steps": 4, "steps_per_generation": 2, "num_iterations": 2}, 4),
        ({"num_iterations": 4}, 52),  # not chosen: the next good one
        ({"save_steps": 3, "steps_per_generation": 2}, "as 4"),
        ({"save_steps": 5, "steps_per_generation": 4, "gradient_accumulation_steps": 2}, "as 6"),
        ({"save_steps": 3, "num_iterations": 2}, "as 4"),
        ({"save_steps": 3, "num_iterations": 2, "save_strategy": "no"}, 3),
    ],
)
def test_checkpoints_fall_where_nothing_generated_is_lost(
    trainer: dict[str, Any], save_steps: int | str, tmp_path: Path
) -> None:
    from t2x.rewriters.templates import Template
    from t2x.training.grpo import grpo_arguments

    given = {k: v for k, v in TRAINER.items() if k != "save_steps"} | trainer
    if isinstance(save_steps, str):
        with pytest.raises(T2XError, match=save_steps):
            grpo_arguments(RunConfig(tmp_path), Template(), given)
    else:
        assert grpo_arguments(RunConfig(tmp_path), Template(), given).save_steps == save_steps


def make_trainer(data: Path, out: Path, model: Any = None, **trainer: Any) -> Any:
    """The recipe's trainer, put together by hand."""
    from trl import GRPOConfig, GRPOTrainer

    from t2x.rollouts import RolloutConfig, RolloutReward, RolloutScorer
    from t2x.training.arguments import trainer_arguments
    from t2x.training.rows import prompt_rows

    config = make_config(data, out, **trainer)
    policy = load_policy(config.policy)
    policy = policy if model is None else dataclasses.replace(policy, model=model)
    arguments = trainer_arguments(
        GRPOConfig,
        config.run,
        config.trainer,
        scale_rewards="none",
        mask_truncated_completions=True,
        save_strategy="no",
        logging_steps=1,
        chat_template_kwargs={"enable_thinking": False},
    )
    settings = RolloutConfig(calibrate=0)
    reward = RolloutReward(
        RolloutScorer.from_config(config.reward, settings, policy.template),
        tokenizer=policy.tokenizer,
        template=policy.template,
        num_generations=arguments.num_generations,
        pictures=2,
    )
    rows = prompt_rows(config.data, policy)
    trainer = GRPOTrainer(
        model=policy.model,
        reward_funcs=[reward],
        args=arguments,
        train_dataset=rows,
        processing_class=policy.tokenizer,
    )
    return trainer, reward, policy


def test_trl_reads_and_learns_what_we_give(data: Path, tmp_path: Path) -> None:
    """Its prompt ids are those of use, and its own baseline changes no advantage."""
    from t2x.rollouts.reading import policy_text

    trainer, reward, policy = make_trainer(data, tmp_path, num_generations=4, max_steps=1)
    rows = trainer.train_dataset
    assert sorted(rows["original_prompt"]) == sorted(
        PROMPTS
    )  # with quotes: what scores are against
    ids, _, _ = trainer._tokenize_prompts(list(rows["prompt"]))
    texts = [policy_text(p) for p in rows["original_prompt"]]
    assert ids == [policy.encoder.encode(t) for t in texts]
    assert '"Open"' not in "".join(texts)
    given: list[float | None] = []
    call = listened(reward, given)
    trainer.reward_funcs = [call]
    trainer.train()
    used = list(trainer._logs["advantages"])
    expected = [0.0 if a is None else a for a in given]
    assert used == pytest.approx(expected, abs=1e-6)
    assert max(map(abs, used)) > 0.1
    assert trainer._logs["extra"]["kind"]


def listened(reward: Any, given: list[float | None]) -> Any:
    def rollout(*args: Any, **options: Any) -> Any:
        found = reward(*args, **options)
        given.extend(found)
        return found

    return rollout


def test_a_dropped_closing_tag_is_pushed_back(data: Path, tmp_path: Path) -> None:
    """A policy that ends half of its answers without </answer> learns not to (trap 7)."""
    policy = load_policy(PolicyConfig())
    model, tokenizer = policy.model, policy.tokenizer
    [[answer]] = t2x.load_rewriter((model, tokenizer), template=policy.template).complete(
        ["two cats"], num_generations=1
    )
    ids = (
        policy.encoder.encode("two cats")
        + tokenizer(answer.text, add_special_tokens=False)["input_ids"]
    )
    place = len(ids) - 1  # of </answer>
    assert tokenizer.decode([ids[place]]) == "</answer>"
    before = torch.tensor([ids[:place]])

    def dropping(net: Any) -> float:
        with torch.no_grad():
            logits = net(before).logits[0, -1].float()
        return float(logits.softmax(-1)[tokenizer.eos_token_id])

    assert dropping(model) < 0.01
    with torch.no_grad():  # the end of the text becomes as likely as the tag at that place
        out = model(before, output_hidden_states=True)
        state, logits = out.hidden_states[-1][0, -1], out.logits[0, -1]
        gap = logits[ids[place]] - logits[tokenizer.eos_token_id]
        embedding = model.get_input_embeddings().weight
        embedding[tokenizer.eos_token_id] += gap * state / state.dot(state)
    start = dropping(model)
    assert 0.3 < start < 0.7
    folder = tmp_path / "broken"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    trainer, _, _ = make_trainer(
        data,
        tmp_path,
        model=type(model).from_pretrained(folder),
        max_steps=5,
        per_device_train_batch_size=16,
        num_generations=8,
        learning_rate=1e-3,
        beta=0.01,
    )
    trainer.train()
    failed = [row["share/failed"] for row in trainer.state.log_history if "share/failed" in row]
    assert failed[0] > 0.2
    assert dropping(trainer.model) < start / 2
