"""TRL's DPO trainer with a weight per pair (Sem-DPO, arXiv 2507.20133), and its collator with
numbers that belong to a pair.

Of TRL 1.16 these use: the constructor, ``compute_loss(model, inputs)`` of a batch laid out as
[chosen..., rejected...] that calls ``model`` once for the policy with ``labels``,
``compute_ref_log_probs``, ``DataCollatorForPreference.torch_call`` and the list of values per
metric, ``_metrics``. Everything else, from tokens to checkpoints, is TRL's.
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

__all__ = ["WEIGHT", "PairCollator", "WeightedDPOTrainer", "pair_collator"]

WEIGHT = "weight"
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


class WeightedDPOTrainer(DPOTrainer):
    """DPO whose loss is the mean of weight * loss over pairs; the weights are in the column
    ``weight``.

    Every pair's loss is TRL's own, of one forward for the whole batch; with weights of 1 it equals
    ``DPOTrainer`` within rounding. TRL's other metrics become means over pairs in place of means
    over tokens. With ``precompute_ref_log_probs`` the reference is run in batches too.
    """

    def __init__(self, *, args: DPOConfig, processing_class: Any, **options: Any) -> None:
        """Take what ``DPOTrainer`` takes, but for a collator; raises T2XError for settings under
        which a pair has no loss of its own.
        """
        _check(args)
        args.remove_unused_columns = False
        collator = pair_collator(processing_class, args, (WEIGHT,))
        super().__init__(
            args=args, processing_class=processing_class, data_collator=collator, **options
        )

    def compute_ref_log_probs(self, model: Any, inputs: Mapping[str, Any]) -> Any:
        """Leave the weights out of what goes to the model."""
        return super().compute_ref_log_probs(model, _unweighted(inputs))

    def compute_loss(
        self,
        model: Any,
        inputs: Mapping[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """Give the weighted mean of the pairs' losses, scalar."""
        if return_outputs:
            raise T2XError("a loss per pair gives no logits; leave compute_metrics out")
        weights = inputs[WEIGHT]  # (B,)
        batch = _unweighted(inputs)
        once = _RunOnce(model, batch)
        losses = []
        for i in range(len(weights)):
            rows = once.rows = torch.tensor([i, i + len(weights)], device=weights.device)
            pair = {k: v[i : i + 1] if k.startswith("ref_") else v[rows] for k, v in batch.items()}
            losses.append(super().compute_loss(once, pair))
        mode = "train" if self.model.training else "eval"
        self._metrics[mode][WEIGHT].append(self.accelerator.gather(weights).mean().item())
        return (weights * torch.stack(losses)).mean()


class _RunOnce:
    """Runs a model on a whole batch when it is first called, and gives its ``rows`` to every
    caller: DDP and DeepSpeed count on one forward before a backward.
    """

    def __init__(self, model: Any, batch: Mapping[str, Any]) -> None:
        self._model, self._batch = model, batch
        self._outputs: Any = None
        self.rows: Tensor = torch.arange(len(batch["input_ids"]))

    def __call__(self, **given: Any) -> Any:
        if self._outputs is None:
            inside = self._batch["completion_mask"] != 0
            labels = self._batch["input_ids"].masked_fill(~inside, -100)
            own = {key: self._batch[key] for key in given if key in self._batch}
            self._outputs = self._model(**given | own | {"labels": labels})
        total = len(self._batch["input_ids"])
        return SimpleNamespace(
            **{
                key: value[self.rows] if _is_per_row(value, total) else value
                for key, value in self._outputs.items()
            }
        )


def pair_collator(tokenizer: Any, args: DPOConfig, columns: tuple[str, ...]) -> PairCollator:
    """TRL's collator as its trainer would make it, with numbers of pairs."""
    pad = tokenizer.pad_token_id
    return PairCollator(
        pad_token_id=tokenizer.eos_token_id if pad is None else pad,
        max_length=args.max_length,
        truncation_mode=args.truncation_mode,
        pad_to_multiple_of=args.pad_to_multiple_of,
        columns=columns,
    )


def _is_per_row(value: Any, total: int) -> bool:
    return isinstance(value, Tensor) and value.shape[:1] == (total,)


def _number(row: Mapping[str, Any], name: str) -> float:
    try:
        return float(row[name])
    except (KeyError, TypeError) as error:
        raise T2XError(
            f"a pair has no number {name!r} (given {row.get(name)!r}); its columns are: "
            f"{', '.join(row)}"
        ) from error


def _check(args: DPOConfig) -> None:
    if mixed := sorted(_ACROSS_PAIRS & set(args.loss_type)):
        raise T2XError(
            f"loss_type {mixed[0]!r} mixes the pairs of a batch, so a weight per pair means "
            "nothing; take sigmoid, or another loss of single pairs"
        )
    if args.use_liger_kernel:
        raise T2XError("use_liger_kernel fuses the loss away from the weights; leave it out")


def _unweighted(inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in inputs.items() if key != WEIGHT}
