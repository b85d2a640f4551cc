"""Train a reward model: on which of two pictures is better, or on key points.

    t2x train reward_model --config world/reward_model
    t2x train reward_model --config world/reward_model kind=key-points policy.model=emoji-vlm \\
        data.train=world:key-points data.validation=world:key-points?n=600&fresh=true

Three kinds (``kind``), each saved so that a reward of t2x loads it:

- ``preference``: a whole CLIP, by HPSv2's loss (arXiv 2306.09341, eq. 2), which for two pictures is
  Bradley-Terry's. ``load_reward("hps", source=OUT/model)``.
- ``choice``: a linear Bradley-Terry head on a frozen CLIP (``t2x.rewards.learned_choice``), fitted
  in seconds. ``load_reward("rl-vlm-f", source=OUT/model)``.
- ``key-points``: a vision-language model on yes/no (or another short answer) per key point: the
  AlignEvaluator of PromptEnhancer (arXiv 2509.04545), whose own weights are not released.
  ``load_reward("align", source=OUT/model)``.

Rows: ``t2x.training.picture_rows``. Labels come from a file or from scene truth, never from the
world's judge. Measured on a validation split: area under the ROC curve, and accuracy, of each kind
of question where there are several. HF's Trainer as it is; nothing of it is overridden. Differs
from RationalRewards (arXiv 2604.11626): no written critique is learnt, labels alone.
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from t2x.errors import T2XError
from t2x.functional.scores import hps_preference_loss
from t2x.registry import REWARD_PARTS, import_attr, load_reward
from t2x.scoring.clip_encoder import ClipEncoder, load_clip
from t2x.scoring.clip_sources import find_clip, open_clip_config, save_open_clip
from t2x.settings import SETTINGS_FILE
from t2x.training.answers import (
    AnswerCollator,
    answer_odds,
    load_trainable_vlm,
    restore_vlm,
    save_vlm,
)
from t2x.training.arguments import last_checkpoint, stock_trainer
from t2x.training.checking import check_settings
from t2x.training.config import DataConfig, PolicyConfig, RunConfig
from t2x.training.limits import refuse_unused
from t2x.training.picture_rows import Rows, load_pairs, load_questions
from t2x.training.policy import with_adapters
from t2x.training.run import begin_run, write_run_metrics
from t2x.watching.config import WatchConfig
from t2x.watching.watch import Watch
from t2x.world.reward_auc import auc

log = logging.getLogger(__name__)

_MAX_LOGIT_SCALE = 4.6052  # log 100, CLIP's own bound
_SIDES = ("chosen", "rejected")
_UNUSED = (
    "template_of",
    "template",
    "revision",
    "dtype",
    "device",
    "trust_remote_code",
)  # of policy
_REWARD = {"preference": "hps", "choice": "rl-vlm-f", "key-points": "align"}


@dataclass(frozen=True)
class Config:
    """``policy.model``: the CLIP (an embedded name, an open_clip folder or name, a transformers
    folder) or vision-language model to begin with; its ``lora`` is for key points.

    ``penalty``: of kind ``choice``. ``half``: store float16. ``finder``: of kind ``key-points``,
    how the saved reward finds the key points of a prompt: ``emoji``, by text rules, or ``model``,
    which asks the model itself.
    """

    run: RunConfig
    data: DataConfig
    policy: PolicyConfig
    kind: Literal["preference", "choice", "key-points"] = "preference"
    penalty: float = 1e-3
    half: bool = False
    finder: Literal["emoji", "model"] = "model"
    watch: WatchConfig = field(default_factory=WatchConfig)
    trainer: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.watch.held_out is not None:
            raise T2XError("a reward model writes no prompts; leave watch.held_out out")
        refuse_unused("reward_model", "policy", self.policy, *_UNUSED)


class PreferenceModel(nn.Module):
    """A CLIP that is taught which of two pictures of a prompt is better."""

    def __init__(self, clip: Any) -> None:
        super().__init__()
        self.clip = clip

    def forward(self, chosen: Tensor, rejected: Tensor, ids: Tensor) -> dict[str, Tensor]:
        """``chosen`` and ``rejected`` (N, 3, H, W), normalised, ``ids`` (N, T): ``loss``, and
        ``logits`` (N, 2), the chosen picture first."""
        seen = F.normalize(self.clip.encode_image(torch.cat([chosen, rejected])).float(), dim=-1)
        text = F.normalize(self.clip.encode_text(ids).float(), dim=-1)
        cos = torch.einsum("knd,nd->nk", seen.view(2, len(ids), -1), text)
        logits = cos * self.clip.logit_scale.clamp(max=_MAX_LOGIT_SCALE).exp()
        wanted = torch.tensor([1.0, 0.0], device=logits.device).expand_as(logits)
        return {"loss": hps_preference_loss(logits, wanted).mean(), "logits": logits}


@dataclass(frozen=True)
class PairCollator:
    """Makes a batch of picture pairs as the CLIP's own preprocessing and tokenizer say."""

    encoder: ClipEncoder

    def __call__(self, rows: list[Any]) -> dict[str, Tensor]:
        chosen, rejected = (
            self.encoder.preprocess([getattr(row, side).unsqueeze(0) for row in rows])
            for side in ("chosen", "rejected")
        )
        return {
            "chosen": chosen,
            "rejected": rejected,
            "ids": self.encoder.tokenize([row.prompt for row in rows]),
        }


def main(config: Config) -> dict[str, float]:
    """Train, save to ``run.out/model`` and return what the saved reward measures on validation."""
    from transformers import TrainingArguments

    check_settings(config, TrainingArguments)
    begin_run(config)
    out = Path(config.run.out)
    train = {"preference": train_preference, "choice": fit_choice, "key-points": train_key_points}
    metrics = train[config.kind](config, out / "model")
    if config.data.validation is not None:
        metrics |= measure(config, out / "model")
    return write_run_metrics(out, metrics)


def train_preference(config: Config, folder: Path) -> dict[str, float]:
    """Fine-tune a CLIP on pairs; loss of the run."""
    if config.policy.lora is not None:
        raise T2XError("a preference model is trained whole; leave policy.lora out")
    source = config.policy.model
    encoder = load_clip(source)
    clip = deepcopy(encoder.model).float().requires_grad_(True)
    rows = load_pairs(config.data.train, limit=config.data.limit, split=config.data.train_split)
    trainer = _trainer(config, PreferenceModel(clip), rows, PairCollator(encoder))
    losses = _run(trainer, config, last_checkpoint(config.run))
    _save_clip(clip, encoder, source, folder, half=config.half)
    return losses


def fit_choice(config: Config, folder: Path) -> dict[str, float]:
    """Fit the linear head to all pairs at once."""
    rows = load_pairs(config.data.train, limit=config.data.limit, split=config.data.train_split)
    pairs = [rows[i] for i in range(len(rows))]
    fit = import_attr(REWARD_PARTS["choice-fit"])
    first, second = ([getattr(p, side).unsqueeze(0) for p in pairs] for side in _SIDES)
    model = fit(
        [p.prompt for p in pairs],
        first,
        second,
        [0] * len(pairs),
        encoder=config.policy.model,
        penalty=config.penalty,
    )
    model.save(folder)
    return {"pairs": float(len(pairs))}


def train_key_points(config: Config, folder: Path) -> dict[str, float]:
    """Fine-tune a vision-language model on answers; loss of the run."""
    vlm = load_trainable_vlm(config.policy.model)
    if config.policy.lora is not None:
        vlm.model = with_adapters(vlm.model, config.policy.lora)
    rows = load_questions(config.data.train, limit=config.data.limit, split=config.data.train_split)
    trainer = _trainer(config, vlm.model, rows, AnswerCollator(vlm))
    losses = _run(trainer, config, restore_vlm(vlm, last_checkpoint(config.run)))
    save_vlm(vlm, folder, half=config.half)
    (folder / SETTINGS_FILE).write_text(json.dumps({"key_points": config.finder}) + "\n")
    return losses


def measure(config: Config, folder: Path) -> dict[str, float]:
    """AUC and accuracy of the saved reward on the validation split."""
    source = str(config.data.validation)
    if config.kind == "key-points":
        return question_metrics(folder, load_questions(source, split=config.data.validation_split))
    rows = load_pairs(source, split=config.data.validation_split)
    reward = load_reward(_REWARD[config.kind], source=str(folder))
    scores: dict[str, list[Tensor]] = {side: [] for side in _SIDES}
    for start in range(0, len(rows), 64):
        part = [rows[i] for i in range(start, min(start + 64, len(rows)))]
        for side, found in scores.items():
            pictures = [getattr(row, side).unsqueeze(0) for row in part]
            found.append(reward.score([row.prompt for row in part], pictures).cpu())
    chosen, rejected = (torch.cat(scores[side]) for side in _SIDES)
    return pair_metrics(chosen, rejected)


def pair_metrics(chosen: Tensor, rejected: Tensor) -> dict[str, float]:
    """Of scores (N,) each: how often the chosen picture wins (ties count half), the AUC over all
    pictures, and how many pairs could not be measured."""
    known = ~(chosen.isnan() | rejected.isnan())
    wins = (chosen > rejected).double() + (chosen == rejected).double() / 2
    both = torch.cat([chosen, rejected])
    return {
        "validation/accuracy": float(wins[known].mean()),
        "validation/auc": auc(both, torch.arange(len(both)) < len(chosen)),
        "validation/missing": float((~known).sum()),
    }


def question_metrics(folder: str | Path, rows: Rows) -> dict[str, float]:
    """AUC of right against wrong, over all questions and by key point, and the accuracy."""
    from t2x.scoring.vlm import load_vlm

    asked = [row for i in range(len(rows)) if (row := rows[i]).right is not None]
    odds = answer_odds(load_vlm(str(folder)), asked)
    truth = torch.tensor([bool(row.right) for row in asked])
    places: dict[str, list[int]] = defaultdict(list)
    for i, row in enumerate(asked):
        places[row.point or "question"].append(i)
    metrics = {
        "validation/auc": auc(odds, truth),
        "validation/accuracy": float(((odds > 0) == truth).double().mean()),
        "validation/unreadable": float(len(rows) - len(asked)),
    }
    both = {n: own for n, own in sorted(places.items()) if len(set(truth[own].tolist())) == 2}
    return metrics | {f"validation/auc/{n}": auc(odds[own], truth[own]) for n, own in both.items()}


def _trainer(config: Config, model: Any, rows: Rows, collator: Any) -> Any:
    often = {"save_total_limit": 2, "logging_steps": 10}
    return stock_trainer(model, rows, collator, run=config.run, given=config.trainer, **often)


def _run(trainer: Any, config: Config, checkpoint: str | None) -> dict[str, float]:
    Watch(config.run.out, config.watch).train(trainer, resume_from=checkpoint)
    losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    last = {"loss": float(losses[-1])} if losses else {}
    return last | {"steps": float(trainer.state.global_step)}


def _save_clip(clip: Any, encoder: ClipEncoder, source: str, folder: Path, *, half: bool) -> None:
    """Save in the format that the CLIP came in."""
    name = find_clip(source)
    if name.startswith("transformers:"):
        from transformers import AutoProcessor

        clip.clip.to(torch.float16 if half else torch.float32).save_pretrained(folder)
        AutoProcessor.from_pretrained(name.partition(":")[2]).save_pretrained(folder)
        return
    with torch.no_grad():
        clip.logit_scale.clamp_(max=_MAX_LOGIT_SCALE)
    tokenizer = getattr(encoder.tokenizer, "tokenizer", None)
    save_open_clip(clip, tokenizer, open_clip_config(name), folder, half=half)
