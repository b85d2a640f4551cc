"""Self-rewarding: one vision-language model rewrites prompts, judges the pictures of its own
rewrites, and learns from the pairs, round after round.

    t2x train self_reward --config world/self_reward

Self-rewarding LVLM (arXiv 2505.16763). A round: the model writes several rewrites of each prompt;
each is drawn; the same model, with the weights that it then has, says how likely each key point of
the user's own words is right in the picture (``rewards/align.py``); best and worst of a prompt make
a pair; TRL's DPOTrainer learns from the pairs, with the model of the round's beginning as the
reference. Before the first round, if ``sft`` is given, it is taught to rewrite, and goes on
answering questions about pictures so that it stays a judge.

A judge may favour its own work. So an ``outside`` reward, which takes no part in training, scores
the same pictures, and every round reports the gain over the prompt left as it is by both, and the
self-preference bias (arXiv 2410.21819) between them. How well the model still judges is measured on
questions with known answers (``judging``).

``load_rewriter(OUT/model)`` loads the result as a rewriter, ``load_reward("align", source=...)``
the same folder as a judge. Differs from the paper: two of its three kinds of supervised data, no
judgements of judgements; scores are probabilities of key points, not ratings in words; rewrites
share their seeds, and what breaks a check loses without being drawn.

TRL's trainer is used as it is. A model that is LLaVA-like resumes from its own checkpoints by
``t2x.training.answers.restore_vlm``. One process: what a round writes is not shared out.
"""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections import Counter
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch

from t2x.errors import T2XError
from t2x.files import write_metrics, write_whole
from t2x.functional.bias import self_preference_bias
from t2x.plain import lines_of
from t2x.registry import check_names, load_generator, load_reward
from t2x.rewriters.completion import Completion
from t2x.rewriters.language_model import LanguageModelRewriter
from t2x.rewriters.parsing import write_completion
from t2x.rewriters.sampling import row_seed
from t2x.rewriters.templates import Template
from t2x.rollouts.checkpoints import STATE_FILE
from t2x.rollouts.config import RolloutConfig
from t2x.rollouts.measuring import Measurer
from t2x.rollouts.reading import CompletionReader, policy_text
from t2x.rollouts.records import Outcome, rollout_seeds
from t2x.rollouts.rendering import Renderer
from t2x.rollouts.scorer import RolloutScorer
from t2x.scoring.ensemble import RewardEnsemble
from t2x.scoring.vlm import Vlm
from t2x.scoring.vlm_encoder import Question
from t2x.settings import SETTINGS_FILE
from t2x.training.answers import (
    AnswerCollator,
    answer_odds,
    load_trainable_vlm,
    restore_vlm,
    save_vlm,
)
from t2x.training.arguments import last_checkpoint, stock_trainer, trainer_arguments
from t2x.training.checking import check_settings
from t2x.training.config import DataConfig, PolicyConfig, RunConfig
from t2x.training.data import load_prompts, load_rows
from t2x.training.limits import refuse_unused, require_one_process
from t2x.training.picture_rows import AnsweredQuestion, Rows, load_questions, world_range
from t2x.training.policy import load_trained, save_trained, with_adapters
from t2x.training.run import begin_run, write_run_metrics
from t2x.watching.config import WatchConfig
from t2x.watching.watch import Watch
from t2x.world.key_points import emoji_key_points
from t2x.world.reward_auc import auc
from t2x.world.turn_rows import rewrite_row

log = logging.getLogger(__name__)

JUDGE = "align"
_WEIGHTS = "weights.safetensors"


@dataclass(frozen=True)
class SftConfig:
    """Supervised steps before the rounds.

    ``rewrites``: a file of ``original_prompt`` and ``completion`` (plain text), or
    ``world:rewrites``; ``answers``: questions about pictures (``t2x.training.picture_rows``), of
    which a ``share`` of every batch comes, or None. ``trainer``: HF's TrainingArguments.
    """

    rewrites: str = "world:rewrites?n=20000"
    answers: str | None = "world:key-points?n=20000"
    share: float = 0.3
    trainer: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 <= self.share < 1:
            raise T2XError(f"sft.share is {self.share}; give a share of at least 0 and below 1")


@dataclass(frozen=True)
class RoundsConfig:
    """``number`` of rounds (0 for the supervised steps alone), with so many ``prompts`` each and
    ``generations`` per prompt, each drawn with ``pictures`` seeds. A pair's scores differ by more
    than ``margin``.
    """

    number: int = 2
    prompts: int = 200
    generations: int = 6
    pictures: int = 2
    margin: float = 0.1

    def __post_init__(self) -> None:
        for name, least in (("number", 0), ("prompts", 1), ("generations", 2), ("pictures", 1)):
            if getattr(self, name) < least:
                raise T2XError(f"rounds.{name} is {getattr(self, name)}; give at least {least}")
        if not self.margin >= 0:
            raise T2XError(f"rounds.margin is {self.margin}; give at least 0")


@dataclass(frozen=True)
class Config:
    """``policy``: ``model``, a vision-language model, with ``dtype`` and ``lora``. ``template``:
    words around the prompt, without a system message. ``data.validation``: prompts for the report
    of every round. ``judge``: with the weights of the ``policy`` as it learns, or as it was at the
    ``start`` of the rounds. ``finder``: how the judge finds key points: ``emoji``, by text rules,
    or ``model``. ``judging``: questions with known answers. ``trainer``: TRL's DPOConfig, for each
    round. ``watch``: of the supervised steps and of every round, each in a folder of its own.
    """

    run: RunConfig
    data: DataConfig
    policy: PolicyConfig
    template: Template
    generator: str = "emoji-flow-turbo"
    sft: SftConfig | None = None
    judge: Literal["policy", "start"] = "policy"
    finder: Literal["emoji", "model"] = "model"
    outside: str | None = "hps"
    judging: str | None = None
    rounds: RoundsConfig = field(default_factory=RoundsConfig)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    watch: WatchConfig = field(default_factory=WatchConfig)
    trainer: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.watch.held_out is not None:
            raise T2XError("every round is measured on data.validation; leave watch.held_out out")
        if self.template.system or self.template.prefill or self.template.variants:
            raise T2XError(
                "a self-rewarding model has one user message; put the words of template.system "
                "into template.user, and leave prefill and variants out"
            )
        fixed = ("template_of", "template", "revision", "device", "trust_remote_code")
        refuse_unused("self_reward", "policy", self.policy, *fixed)
        unused = ("workers", "floor", "sets", "temperature")
        refuse_unused("self_reward", "rollout", self.rollout, *unused)


def main(config: Config) -> dict[str, float]:
    """Run all rounds, save to ``run.out/model`` and return the metrics of each, ``round0/...`` for
    the model before the first. T2XError if several processes were launched."""
    from trl import DPOConfig

    require_one_process("self_reward")
    check_settings(config, DPOConfig)
    check_names("generators", [config.generator])
    check_names("rewards", [config.outside])
    begin_run(config)
    begun = time.perf_counter()
    out = Path(config.run.out)
    vlm = load_trainable_vlm(config.policy.model, dtype=config.policy.dtype)
    if vlm.tokenizer.chat_template is None:
        vlm.tokenizer.chat_template = vlm.processor.chat_template
    if config.policy.lora is not None:
        vlm.model = with_adapters(vlm.model, config.policy.lora)
    if config.sft is not None:
        teach(vlm, config, config.sft)
    scorer = build_scorer(vlm, config)
    data, held = config.data, config.data.validation
    prompts = load_prompts(data.train, limit=data.limit, split=data.train_split)
    watched = load_prompts(held, split=data.validation_split) if held else []
    rewriter = LanguageModelRewriter(
        vlm.model, vlm.tokenizer, template=config.template, model_id="self_reward"
    )
    metrics: dict[str, float] = {}
    for number in range(config.rounds.number + 1):
        folder = out / "rounds" / str(number)
        done = folder / "metrics.json"
        if config.run.resume and done.is_file():
            load_trained(vlm.model, folder / _WEIGHTS)
            scorer.load_state_dict(json.loads((folder / STATE_FILE).read_text()))
            found: dict[str, float] = json.loads(done.read_text())
        else:
            folder.mkdir(parents=True, exist_ok=True)
            found = run_round(vlm, rewriter, scorer, prompts, config, number) if number else {}
            found |= look(vlm, rewriter, scorer, watched, config)
            save_trained(vlm.model, folder / _WEIGHTS)
            write_whole(folder / STATE_FILE, json.dumps(scorer.state_dict()))
            write_metrics(folder, found)
        log.info("round %d: %s", number, found)
        metrics |= {f"round{number}/{name}": value for name, value in found.items()}
    save(vlm, config, out / "model")
    return write_run_metrics(out, metrics | {"seconds": time.perf_counter() - begun})


def save(vlm: Vlm, config: Config, folder: Path) -> None:
    """Save a folder that is both a rewriter and a judge."""
    save_vlm(vlm, folder)
    settings = {"rewriter": asdict(config.template), "key_points": config.finder}
    (folder / SETTINGS_FILE).write_text(json.dumps(settings, indent=1) + "\n")


# ---- before the rounds --------------------------------------------------------------------------


def teach(vlm: Vlm, config: Config, sft: SftConfig) -> None:
    """Teach the model, in place, to rewrite while it goes on answering questions."""
    folder = Path(config.run.out) / "sft"
    done = folder / _WEIGHTS
    if config.run.resume and done.is_file():
        load_trained(vlm.model, done)
        return
    run = replace(config.run, out=folder)
    trainer = stock_trainer(
        vlm.model,
        _taught(sft, config.template, vlm),
        AnswerCollator(vlm),
        run=run,
        given=sft.trainer,
        save_total_limit=1,
        logging_steps=20,
    )
    checkpoint = restore_vlm(vlm, last_checkpoint(run))
    Watch(folder, config.watch).train(trainer, resume_from=checkpoint)
    part = folder / f"{_WEIGHTS}.part"
    save_trained(vlm.model, part)
    os.replace(part, done)


def _taught(sft: SftConfig, template: Template, vlm: Vlm) -> Rows:
    """Rewrites and answers, evenly mixed."""
    numbers = world_range(sft.rewrites, "rewrites")
    rewrites: Any = load_rows(sft.rewrites) if numbers is None else None
    answers = load_questions(sft.answers) if sft.answers is not None and sft.share else None
    count = len(rewrites) if numbers is None else len(numbers)
    tags = template.require_answer

    def rewrite(i: int) -> AnsweredQuestion:
        row = rewrites[i] if numbers is None else rewrite_row(numbers[i])
        words = vlm.plain(str(row["original_prompt"]).strip(), one_line=False)
        text = write_completion(str(row["completion"])) if tags else str(row["completion"])
        return AnsweredQuestion(None, Question(template.user.replace("{prompt}", words)), text)

    def make(i: int) -> AnsweredQuestion:
        if answers is None:
            return rewrite(i)
        asked = math.floor((i + 1) * sft.share) - math.floor(i * sft.share)
        before = math.floor(i * sft.share)
        row: AnsweredQuestion = answers[before % len(answers)] if asked else rewrite(i - before)
        return row

    return Rows(count if answers is None else math.floor(count / (1 - sft.share)), make)


def build_scorer(vlm: Vlm, config: Config) -> RolloutScorer:
    """The judge's score is the reward; the outside one is measured beside it and counts nothing."""
    model = vlm.model if config.judge == "policy" else deepcopy(vlm.model)
    options = {"find": emoji_key_points} if config.finder == "emoji" else {}
    rewards = [load_reward(JUDGE, source=(model, vlm.processor), **options)]
    if config.outside is not None:
        rewards.append(load_reward(config.outside))
    weights = {reward.name: float(i == 0) for i, reward in enumerate(rewards)}
    generator = load_generator(config.generator)
    batch = config.rollout.batch_size
    measurer = Measurer(
        Renderer(generator, batch_size=batch, negative=config.rollout.negative),
        RewardEnsemble(rewards, weights),
        batch_size=batch,
    )
    reader = CompletionReader(config.template, generator=generator)
    return RolloutScorer(measurer, reader, weights, config=config.rollout)


# ---- a round ------------------------------------------------------------------------------------


def run_round(
    vlm: Vlm,
    rewriter: LanguageModelRewriter,
    scorer: RolloutScorer,
    prompts: Sequence[str],
    config: Config,
    number: int,
) -> dict[str, float]:
    """Write, draw, judge, pair and learn; what was found on the way."""
    folder = Path(config.run.out) / "rounds" / str(number)
    path, state = folder / "pairs.jsonl", folder / f"pairs.{STATE_FILE}"
    if config.run.resume and path.is_file() and state.is_file():
        scorer.load_state_dict(json.loads(state.read_text()))
    else:
        first = (number - 1) * config.rounds.prompts
        chosen = [prompts[(first + i) % len(prompts)] for i in range(config.rounds.prompts)]
        groups = write_and_judge(rewriter, scorer, chosen, config, number)
        pairs = [p for group in groups if (p := best_and_worst(group, config.rounds.margin))]
        rows = [_row(rewriter, *pair) for pair in pairs]
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        card = _card(groups, config, number) | {"pairs": len(rows)}
        write_whole(path.with_suffix(".json"), json.dumps(card, indent=1) + "\n")
        write_whole(state, json.dumps(scorer.state_dict()))
        write_whole(path, lines)  # the mark of their end
    rows = [json.loads(line) for line in lines_of(path.read_text("utf-8"))]
    found = {"pairs": float(len(rows))}
    if not rows:
        raise T2XError(
            f"round {number} has no pair: no two rewrites of a prompt differ by more than "
            f"rounds.margin={config.rounds.margin}; lower it, or raise template.temperature"
        )
    for side in ("chosen", "rejected"):
        found[f"words/{side}"] = sum(len(r[side].split()) for r in rows) / len(rows)
    found["margin"] = sum(row["margin"] for row in rows) / len(rows)
    return found | learn(vlm, rewriter, rows, config, folder)


def write_and_judge(
    rewriter: LanguageModelRewriter,
    scorer: RolloutScorer,
    prompts: Sequence[str],
    config: Config,
    number: int,
    *,
    generations: int | None = None,
) -> list[list[tuple[Completion, Outcome]]]:
    """Rewrites of each prompt with what they are worth; one prompt after the other in memory."""
    size = config.rounds.generations if generations is None else generations
    seed = row_seed(config.run.seed, "round", generation=number)
    drawn = config.run.seed if config.rollout.fixed_seeds else seed
    found = []
    step = max(1, config.rollout.batch_size // size)
    for start in range(0, len(prompts), step):
        part = prompts[start : start + step]
        written = rewriter.complete([policy_text(p) for p in part], num_generations=size, seed=seed)
        flat = [c for row in written for c in row]
        pictures = [rollout_seeds(drawn, 0, p, config.rounds.pictures) for p in part]
        outcomes = scorer.score(
            [p for p in part for _ in range(size)],
            flat,
            seeds=[own for own in pictures for _ in range(size)],
            groups=[i for i in range(len(part)) for _ in range(size)],
        )
        rows = list(zip(flat, outcomes, strict=True))
        found += [rows[i * size : (i + 1) * size] for i in range(len(part))]
    return found


def best_and_worst(
    group: Sequence[tuple[Completion, Outcome]], margin: float
) -> tuple[tuple[Completion, Outcome], tuple[Completion, Outcome]] | None:
    """The best rewrite and the worst completion of a prompt, policy failures included; None if
    they differ by no more than ``margin``. What was cut off or not measured takes no part."""
    known = [row for row in group if not math.isnan(row[1].reward)]
    drawn = [row for row in known if row[1].kind == "rewrite"]
    if not drawn:
        return None
    best = max(drawn, key=lambda row: row[1].reward)
    worst = min(known, key=lambda row: row[1].reward)
    enough = best[1].reward - worst[1].reward > margin
    return (best, worst) if enough and best[0].text != worst[0].text else None


def _card(groups: Sequence[Any], config: Config, number: int) -> dict[str, Any]:
    """What the pairs of a round were made of, kept beside them."""
    outcomes = [outcome for group in groups for _, outcome in group]
    return {
        "recipe": "self_reward",
        "round": number,
        "seed": config.run.seed,
        "policy": config.policy.model,
        "judge": f"{JUDGE} of the {config.judge}",
        "generator": config.generator,
        "prompts": len(groups),
        "kinds": dict(Counter(o.kind for o in outcomes)),
        "not_measured": sum(o.missing for o in outcomes),
        "margin": config.rounds.margin,
    }


def _row(
    rewriter: LanguageModelRewriter,
    best: tuple[Completion, Outcome],
    worst: tuple[Completion, Outcome],
) -> dict[str, Any]:
    original = best[1].rewrite.original
    return {
        "original_prompt": original,
        "prompt": rewriter.encoder.conversation(policy_text(original)),
        "chosen": best[0].text,
        "rejected": worst[0].text,
        "score_chosen": best[1].reward,
        "score_rejected": worst[1].reward,
        "margin": best[1].reward - worst[1].reward,
    }


def learn(
    vlm: Vlm,
    rewriter: LanguageModelRewriter,
    rows: Sequence[dict[str, Any]],
    config: Config,
    folder: Path,
) -> dict[str, float]:
    """DPO on the pairs of a round, in place."""
    from datasets import Dataset
    from trl import DPOConfig, DPOTrainer

    said = rewriter.encoder.answer
    pairs = [
        {"prompt": r["prompt"], "chosen": said(r["chosen"]), "rejected": said(r["rejected"])}
        for r in rows
    ]
    run = replace(config.run, out=folder)
    arguments = trainer_arguments(DPOConfig, run, config.trainer, save_total_limit=1)
    adapted = hasattr(vlm.model, "peft_config")
    trainer = DPOTrainer(
        model=vlm.model,
        ref_model=None if adapted else deepcopy(vlm.model),
        args=arguments,
        train_dataset=Dataset.from_list(pairs),
        processing_class=vlm.tokenizer,
    )
    checkpoint = restore_vlm(vlm, last_checkpoint(run))
    Watch(folder, config.watch).train(trainer, resume_from=checkpoint)
    # Without the mixed precision that training leaves around forward: a finished run has none.
    trainer.accelerator.unwrap_model(vlm.model, keep_fp32_wrapper=False)
    if adapted and "ref" in vlm.model.peft_config:
        vlm.model.delete_adapter("ref")  # TRL's copy of this round's beginning
    vlm.model.eval()
    last = [row for row in trainer.state.log_history if "rewards/accuracies" in row][-1:]
    return {f"dpo/{k}": float(v) for row in last for k, v in row.items() if k.startswith("reward")}


# ---- what is reported ---------------------------------------------------------------------------


def look(
    vlm: Vlm,
    rewriter: LanguageModelRewriter,
    scorer: RolloutScorer,
    prompts: Sequence[str],
    config: Config,
) -> dict[str, float]:
    """Greedy rewrites of the validation prompts: scores by the judge and by the outside reward, the
    gain over the prompt left as it is, and the bias between the two; how well the model judges."""
    found: dict[str, float] = {}
    if prompts:
        groups = write_and_judge(rewriter, scorer, prompts, config, 0, generations=1)
        outcomes = [outcome for ((_, outcome),) in groups]
        found["heldout/rewrites"] = sum(o.kind == "rewrite" for o in outcomes) / len(outcomes)
        found |= compare(outcomes, config.outside and scorer.comparison.names[1])
    if config.judging is not None:
        rows = load_questions(config.judging)
        asked = [row for i in range(len(rows)) if (row := rows[i]).right is not None]
        truth = torch.tensor([bool(row.right) for row in asked])
        found["judging/auc"] = auc(answer_odds(vlm, asked), truth)
    return found


def compare(outcomes: Sequence[Outcome], outside: str | None) -> dict[str, float]:
    """Means of the drawn rewrites' scores, their gains, and the self-preference bias."""
    drawn = [o for o in outcomes if o.kind == "rewrite"]
    gains: dict[str, torch.Tensor] = {}
    found: dict[str, float] = {}
    for name in (JUDGE, *([outside] if outside else [])):
        own = torch.tensor([o.scores[name] for o in drawn], dtype=torch.float64)
        plain = torch.tensor([o.original_scores[name] for o in drawn], dtype=torch.float64)
        gains[name] = (own - plain).flatten()
        found[f"heldout/{name}"] = float(own.nanmean()) if len(drawn) else math.nan
        found[f"heldout/gain/{name}"] = float(gains[name].nanmean()) if len(drawn) else math.nan
    if outside:
        found["heldout/self_preference"] = float(self_preference_bias(gains[JUDGE], gains[outside]))
    return {name: value for name, value in found.items() if not math.isnan(value)}
