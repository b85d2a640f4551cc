"""TRL's DPO trainer with numbers that belong to a pair: a weight (Sem-DPO, arXiv 2507.20133), or two
rewards to regress on (REBEL, arXiv 2404.16767).

Of TRL 1.16 these use: the constructor, ``compute_loss(model, inputs)`` of a batch laid out as
[chosen..., rejected...] that calls ``model`` once for the policy and takes ``log_probs`` (2 B, T)
from what it gives, ``compute_ref_log_probs``, ``DataCollatorForPreference.torch_call`` and the list
of values per metric, ``_metrics``. Everything else, from tokens to checkpoints, is TRL's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from trl import DPOConfig, DPOTrainer
from trl.trainer.dpo_trainer import DataCollatorForPreference

from t2x.errors import T2XError
from t2x.functional.preference_losses import rebel_loss

__all__ = ["REWARDS", "WEIGHT", "PairCollator", "RebelTrainer", "WeightedDPOTrainer"]

WEIGHT = "weight"
REWARDS = ("reward_chosen", "reward_rejected")
# These mix the pairs of a batch: sorted, or averaged over all tokens.
_ACROSS_PAIRS = frozenset(("aot", "aot_unpaired", "sft"))


@dataclass
class PairCollator(DataCollatorForPreference):
    """TRL's batch of pairs, and of each number in ``columns`` a float tensor (B,)."""

    columns: tuple[str, ...] = ()

    def torch_call(self, examples: list[dict[str, Any]]) -> dict[str, Any]:
        """Collate B rows; raises T2XError for a number that is absent or not finite."""
        batch: dict[str, Any] = super().torch_call(examples)
        for name in self.columns:
            values = torch.tensor([_number(row, name) for row in examples])
            if not values.isfinite().all():
                raise T2XError(f"the column {name!r} holds {values.tolist()}; leave such pairs out")
            batch[name] = values
        return batch


class _PairTrainer(DPOTrainer):
    """DPOTrainer over batches that hold the numbers of ``columns`` too."""

    columns: tuple[str, ...] = ()

    def __init__(self, *, args: DPOConfig, processing_class: Any, **options: Any) -> None:
        """Take what ``DPOTrainer`` takes, but for a collator; raises T2XError for settings under
        which a pair has no loss of its own.
        """
        _check(args, self.columns)
        args.remove_unused_columns = False
        pad = processing_class.pad_token_id
        collator = PairCollator(
            pad_token_id=processing_class.eos_token_id if pad is None else pad,
            max_length=args.max_length,
            truncation_mode=args.truncation_mode,
            pad_to_multiple_of=args.pad_to_multiple_of,
            columns=self.columns,
        )
        super().__init__(
            args=args, processing_class=processing_class, data_collator=collator, **options
        )

    def compute_ref_log_probs(self, model: Any, inputs: Mapping[str, Any]) -> Any:
        """Leave the numbers out of what goes to the model."""
        return super().compute_ref_log_probs(model, _without(inputs, self.columns))

    def _note(self, name: str, values: Tensor) -> None:
        """Log the mean over all processes."""
        mode = "train" if self.model.training else "eval"
        gathered = self.accelerator.gather(values.detach().float())
        self._metrics[mode][name].append(gathered.mean().item())


class WeightedDPOTrainer(_PairTrainer):
    """DPO whose loss is the mean of weight * loss over pairs; the weights are in the column
    ``weight``.

    Every pair's loss is TRL's own, of one forward for the whole batch; with weights of 1 it equals
    ``DPOTrainer`` within rounding. TRL's other metrics become means over pairs in place of means
    over tokens. With ``precompute_ref_log_probs`` the reference is run in batches too.
    """

    columns = (WEIGHT,)

    def compute_loss(
        self,
        model: Any,
        inputs: Mapping[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """Give the weighted mean of the pairs' losses, scalar."""
        _refuse_outputs(return_outputs)
        weights = inputs[WEIGHT]  # (B,)
        batch = _without(inputs, self.columns)
        once = _RunOnce(model, batch)
        losses = []
        for i in range(len(weights)):
            rows = once.pick = torch.tensor([i, i + len(weights)], device=weights.device)
            pair = {k: v[i : i + 1] if k.startswith("ref_") else v[rows] for k, v in batch.items()}
            losses.append(super().compute_loss(once, pair))
        self._note(WEIGHT, weights)
        return (weights * torch.stack(losses)).mean()


class RebelTrainer(_PairTrainer):
    """REBEL's regression: ``chosen`` and ``rejected`` are two samples of the policy that the round
    began with, in any order, with their rewards in the columns ``reward_chosen`` and
    ``reward_rejected``.

    ``args.beta`` is 1 / eta, the strength of the pull to the round's first policy, as in DPO;
    ``args.loss_type`` is not used. Logged beside TRL's metrics: ``explained``, the share of the
    rewards' differences that the log ratios explain by now (1 - loss / loss at the start).
    """

    columns = REWARDS

    def compute_loss(
        self,
        model: Any,
        inputs: Mapping[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """Give the mean squared error of the batch's relative rewards, scalar."""
        _refuse_outputs(return_outputs)
        batch = _without(inputs, self.columns)
        once = _RunOnce(model, batch)
        super().compute_loss(once, batch)  # the forward and TRL's metrics; its loss is not ours
        tokens = batch["input_ids"].shape[1] - 1
        logps = once.outputs.log_probs[:, -tokens:].sum(1)  # (2 B,)
        ratios = logps - torch.cat([batch["ref_chosen_logps"], batch["ref_rejected_logps"]])
        first, second = (inputs[name] for name in REWARDS)
        losses = rebel_loss(*ratios.chunk(2), first, second, eta=1 / self.beta)
        self._note("reward", torch.cat([first, second]))
        spread = (first - second).square().mean()
        self._note("explained", 1 - losses.mean() / spread.clamp(min=1e-12))
        return losses.mean()


class _RunOnce:
    """Runs a model on a whole batch when it is first called, and gives the rows ``pick`` of that to
    every caller: DDP and DeepSpeed count on one forward before a backward.
    """

    def __init__(self, model: Any, batch: Mapping[str, Any]) -> None:
        self._model, self._batch = model, batch
        self.pick: Tensor | None = None  # all rows
        self.outputs: Any = None

    def __call__(self, **given: Any) -> Any:
        if self.outputs is None:
            inside = self._batch["completion_mask"] != 0
            labels = self._batch["input_ids"].masked_fill(~inside, -100)
            own = {key: self._batch[key] for key in given if key in self._batch}
            self.outputs = self._model(**given | own | {"labels": labels})
        if self.pick is None:
            return self.outputs
        rows, total = self.pick, len(self._batch["input_ids"])
        return SimpleNamespace(
            **{
                key: value[rows] if isinstance(value, Tensor) and value.shape[:1] == (total,) else value
                for key, value in self.outputs.items()
            }
        )


def _number(row: Mapping[str, Any], name: str) -> float:
    try:
        return float(row[name])
    except (KeyError, TypeError) as error:
        raise T2XError(
            f"a pair has no number {name!r} (given {row.get(name)!r}); its columns are: "
            f"{', '.join(row)}"
        ) from error


def _check(args: DPOConfig, columns: tuple[str, ...]) -> None:
    mixed = _ACROSS_PAIRS & set(args.loss_type)
    if WEIGHT in columns and mixed:
        raise T2XError(
            f"loss_type {sorted(mixed)[0]!r} mixes the pairs of a batch, so a weight per pair means "
            "nothing; take sigmoid, or another loss of single pairs"
        )
    if args.use_liger_kernel:
        raise T2XError(
            "use_liger_kernel fuses the loss away from the weights and rewards of pairs; leave it "
            "out"
        )
    if columns == REWARDS and not args.precompute_ref_log_probs:
        raise T2XError(
            "REBEL compares with the policy that the round began with: precompute_ref_log_probs "
            "must be true"
        )


def _refuse_outputs(return_outputs: bool) -> None:
    if return_outputs:
        raise T2XError("a loss per pair gives no logits; leave compute_metrics out")


def _without(inputs: Mapping[str, Any], columns: tuple[str, ...]) -> dict[str, Any]:
    return {key: value for key, value in inputs.items() if key not in columns}
