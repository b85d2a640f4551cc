"""On-policy rounds of pairs, each learnt by regression on its rewards: REBEL (Gao et al. 2024,
arXiv 2404.16767) on Hugging Face's Trainer.

A round is an epoch: when it begins, the policy as it is now writes two completions per prompt and
they are scored; then the pairs are learnt. One optimiser and one schedule go through all rounds,
and the trainer's own checkpoints, in the middle of a round too, are enough to go on.

Of transformers 5 this uses: that ``on_epoch_begin`` is called before an epoch's first batch is
taken, ``compute_loss`` and ``log``. Of TRL 1.16: ``add_fused_lm_head``, so that no logits of a
whole batch are held, its collator of pairs, and ``DPOConfig`` for the arguments.
"""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import is_peft_model
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from transformers import Trainer, TrainerCallback
from trl import DPOConfig
from trl.trainer.utils import add_fused_lm_head

from t2x.errors import T2XError
from t2x.files import write_whole
from t2x.functional.preference_losses import rebel_loss
from t2x.plain import lines_of
from t2x.training.pair_trainers import pair_collator

__all__ = ["RebelTrainer", "Round", "ScoredPair"]

REWARDS = ("reward_chosen", "reward_rejected")
LOGPS = ("ref_chosen_logps", "ref_rejected_logps")


@dataclass(frozen=True)
class ScoredPair:
    """Token ids of a prompt and of two completions, in any order, with their rewards. ``place`` in
    the round orders the pairs of all processes.
    """

    prompt_ids: list[int]
    chosen_ids: list[int]
    rejected_ids: list[int]
    reward_chosen: float
    reward_rejected: float
    place: int = 0


@dataclass(frozen=True)
class Round:
    """What the policy wrote in one round: this process's pairs to learn, and what all processes
    ``found``, to be logged.
    """

    pairs: Sequence[ScoredPair]
    found: Mapping[str, float]


class RebelTrainer(Trainer):
    """Learns what ``write`` gives at the beginning of every round.

    Args:
        model: the policy, with adapters or without.
        args: TRL's DPO arguments; ``beta`` is 1 / eta, ``num_train_epochs`` the rounds.
        processing_class: the tokenizer.
        write: gives this process its part of a round, by the round's number from 0. Called with the
            model as it then is.
        size: pairs of a round that are learnt, over all processes. If fewer could be used, the
            first ones are learnt again; more are left out.
        options: what ``Trainer`` takes.

    ``rounds/`` in the output folder keeps the pairs of every round. Logged beside the loss:
    ``explained``, the share of the rewards' differences that the log ratios explain by now (1 -
    loss / loss without any); ``kl/round``, nats per token, of the round's first policy to the
    present one on what it wrote; ``entropy``.
    """

    loss_is_scaled_for_ga = False

    def __init__(
        self,
        model: Any,
        args: DPOConfig,
        processing_class: Any,
        write: Callable[[int], Round],
        *,
        size: int,
        **options: Any,
    ) -> None:
        args.remove_unused_columns = False
        self._pairs = _Pairs(size)
        self._write = write
        self._values: dict[str, list[float]] = defaultdict(list)
        base = model.get_base_model() if is_peft_model(model) else model
        add_fused_lm_head(base, outputs=("log_probs", "entropy"))
        super().__init__(
            model=model,
            args=args,
            processing_class=processing_class,
            train_dataset=self._pairs,
            data_collator=pair_collator(processing_class, args, (*REWARDS, *LOGPS)),
            **options,
        )
        if self.is_deepspeed_enabled or self.is_fsdp_enabled:
            raise T2XError(
                "the policy writes pairs between steps, which DeepSpeed and FSDP don't allow here; "
                "launch REBEL on plain processes (DDP), with lora if memory is short"
            )
        self._collate = pair_collator(processing_class, args, REWARDS)
        share = math.ceil(size / args.per_device_train_batch_size) / args.world_size
        self.steps_of_round = math.ceil(math.ceil(share) / args.gradient_accumulation_steps)
        self.add_callback(_BeginRounds(self))

    def begin_round(self, number: int) -> None:
        """Let the policy write round ``number``, or read what it wrote before the run was broken
        off.
        """
        parts = [self._file(number, i) for i in range(self.accelerator.num_processes)]
        is_written = all(part.exists() for part in parts)
        self.accelerator.wait_for_everyone()  # all or none write: they score together
        if not is_written:
            written = self._write(number)
            pairs = [{**asdict(p), **logps} for p, logps in self._with_logps(written.pairs)]
            lines = [json.dumps(pair) + "\n" for pair in pairs]
            own = parts[self.accelerator.process_index]
            own.parent.mkdir(exist_ok=True)
            write_whole(own, "".join(lines))
            for name, value in written.found.items():
                self._values[name].append(value)
        self.accelerator.wait_for_everyone()
        lines = [line for part in parts for line in lines_of(part.read_text("utf-8"))]
        if not lines:
            raise T2XError(
                f"round {number} gave no pair: its completions were cut off, equal or not "
                "measured; give more room (the template's max_new_tokens), prompts or temperature"
            )
        self._pairs.rows = sorted(map(json.loads, lines), key=lambda row: int(row["place"]))
        self._values["pairs"].append(len(lines))
        ids = (row[name] for row in self._pairs.rows for name in ("chosen_ids", "rejected_ids"))
        self._values["completions/mean_length"].append(statistics.fmean(map(len, ids)))

    def compute_loss(
        self,
        model: Any,
        inputs: Mapping[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """Give the mean squared error of the relative rewards, scalar."""
        logps, entropy = _logps(model, inputs)
        ratios = logps - torch.cat([inputs[name] for name in LOGPS])  # (2 B,)
        first, second = (inputs[name] for name in REWARDS)
        one, two = ratios.chunk(2)
        losses = rebel_loss(one, two, first, second, eta=1 / self.args.beta)
        spread = (first - second).square().mean()
        tokens = inputs["completion_mask"].sum()
        share = 1 - losses.mean() / spread.clamp(min=1e-6)
        self._note("explained", torch.where(spread > 1e-6, share, 0.0))  # 0: nothing to explain
        self._note("kl/round", -ratios.sum() / tokens)
        self._note("entropy", entropy)
        loss = losses.mean()
        return (loss, {}) if return_outputs else loss

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add the means of what was noted since the last log."""
        means = {name: sum(values) / len(values) for name, values in self._values.items()}
        self._values.clear()
        super().log({**logs, **means}, start_time)

    def _note(self, name: str, value: Tensor) -> None:
        gathered = self.accelerator.gather(value.detach().float().reshape(1))
        self._values[name].append(gathered.mean().item())

    def _with_logps(self, pairs: Sequence[ScoredPair]) -> list[tuple[ScoredPair, dict[str, float]]]:
        """The pairs with their log-probabilities under the policy as it is."""
        model = self.accelerator.unwrap_model(self.model)
        model.eval()
        rows: Any = [asdict(pair) for pair in pairs]
        loader: DataLoader[Any] = DataLoader(
            rows,
            batch_size=self.args.per_device_train_batch_size,
            collate_fn=self._collate,
        )
        found: list[list[float]] = []
        for batch in loader:
            with torch.no_grad(), self.compute_loss_context_manager():
                logps, _ = _logps(model, self._prepare_inputs(batch))
            found += torch.stack(logps.float().chunk(2), dim=-1).tolist()
        named = (dict(zip(LOGPS, values, strict=True)) for values in found)
        return list(zip(pairs, named, strict=True))

    def _file(self, number: int, process: int) -> Path:
        """A part of a round; other numbers of processes share it out otherwise."""
        part = f"{number:04d}-{process}of{self.accelerator.num_processes}"
        return Path(self.args.output_dir) / "rounds" / f"{part}.jsonl"

    def forget_rounds(self, number: int) -> None:
        """Remove rounds from ``number`` on, which will be written anew."""
        if self.accelerator.is_main_process:
            for part in (Path(self.args.output_dir) / "rounds").glob("*.jsonl"):
                if int(part.name.partition("-")[0]) >= number:
                    part.unlink()
        self.accelerator.wait_for_everyone()


class _Pairs(Dataset[Any]):
    """The pairs of the present round, in a fixed number."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.rows: list[dict[str, Any]] = []

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.rows[index % len(self.rows)]


class _BeginRounds(TrainerCallback):
    def __init__(self, trainer: RebelTrainer) -> None:
        self._trainer = trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Keep the rounds that were begun before the checkpoint."""
        whole, inside = divmod(state.global_step, self._trainer.steps_of_round)
        self._trainer.forget_rounds(whole + bool(inside))

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._trainer.begin_round(state.global_step // self._trainer.steps_of_round)


def _logps(model: Any, inputs: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
    """Log-probabilities of the completions, (2 B,), and the mean entropy per token."""
    inside = inputs["completion_mask"] != 0
    outputs = model(
        input_ids=inputs["input_ids"],
        attention_mask=inputs["attention_mask"],
        labels=inputs["input_ids"].masked_fill(~inside, -100),
        use_cache=False,
        fused_lm_head=True,
    )
    entropy = (outputs.entropy.detach() * inside[:, 1:]).sum() / inside[:, 1:].sum()
    return outputs.log_probs.sum(1), entropy
