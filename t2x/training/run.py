"""What every recipe does before and after its trainer: seeds and folder, and the trained policy
with its metrics in the run's folder.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from t2x.data.decontaminate import find_benchmark, prompt_key
from t2x.devices import fast_bfloat16, set_threads
from t2x.errors import T2XError
from t2x.files import write_metrics
from t2x.registry import loading
from t2x.training.config import DataConfig, RewardConfig, RunConfig
from t2x.training.data import load_rows, templated
from t2x.training.folder import take_folder
from t2x.training.policy import Policy, save_policy, save_template
from t2x.training.rows import prompt_rows
from t2x.watching.names import renamed

if TYPE_CHECKING:
    from t2x.rollouts.scorer import RolloutScorer
    from t2x.watching.config import WatchConfig
    from t2x.watching.watch import Watch

__all__ = [
    "Data",
    "begin_run",
    "evaluated",
    "finish_run",
    "load_data",
    "rollout_watch",
    "write_run_metrics",
]

log = logging.getLogger(__name__)

_SHARED = 0.05  # of the validation prompts: so many may come by chance


class Data(NamedTuple):
    """Rows to train on, rows to evaluate the loss on (None without), and the users' own words of
    the validation rows; all as the policy reads them in use.
    """

    train: Any
    held: Any
    prompts: list[str]


def begin_run(config: Any) -> None:
    """Take the run's folder, and fix threads and seeds before a weight is made.

    ``config``: a recipe's whole configuration. Raises T2XError for a folder that can't be written
    into, or that holds what a run with other settings has learnt (``take_folder``).
    """
    from datasets import disable_progress_bars
    from transformers import set_seed

    take_folder(config)
    set_threads(config.run.threads)
    set_seed(config.run.seed)
    disable_progress_bars()


def load_data(config: DataConfig, policy: Policy, *answers: str) -> Data:
    """Load the rows of a recipe that learns from the columns ``answers``.

    Raises T2XError for training rows without them; validation rows without them are prompts to
    watch the policy on, and no more. Raises it too where more than a twentieth of the validation
    prompts are trained on (case and punctuation left aside); fewer are warned of, as are prompts of
    the public benchmarks among the training rows.
    """
    train = prompt_rows(config, policy)
    if missing := [name for name in answers if name not in train.column_names]:
        raise T2XError(
            f"{config.train!r} has no column {missing[0]!r}, only {', '.join(train.column_names)}; "
            "`t2x data sft` and `t2x data pairs` make such files"
        )
    _warn_of_benchmarks(config.train, train["original_prompt"])
    if config.validation is None:
        return Data(train, None, [])
    held = templated(load_rows(config.validation, split=config.validation_split), policy)
    _check_apart(config, train["original_prompt"], held["original_prompt"])
    whole = bool(answers) and set(answers) <= set(held.column_names)
    return Data(train, held if whole else None, list(held["original_prompt"]))


def _warn_of_benchmarks(source: str, prompts: Iterable[str]) -> None:
    found = Counter(match.benchmark for p in prompts if (match := find_benchmark(p)) is not None)
    if found:
        log.warning(
            "%d training rows of %r are prompts of public benchmarks (%s): what is trained on them "
            "can't be measured there; `t2x data` leaves them out",
            found.total(),
            source,
            ", ".join(f"{name} {count}" for name, count in sorted(found.items())),
        )


def _check_apart(config: DataConfig, train: Iterable[str], held: Sequence[str]) -> None:
    keys = {prompt_key(prompt) for prompt in train}
    shared = [prompt for prompt in held if prompt_key(prompt) in keys]
    if not shared:
        return
    said = (
        f"{len(shared)} of {len(held)} validation prompts of {config.validation!r} are training "
        f"prompts of {config.train!r} too, as {shared[0][:60]!r}"
    )
    if len(shared) > _SHARED * len(held):
        raise T2XError(f"{said}; give other ones: `t2x data` makes two files apart")
    log.warning("%s", said)


def evaluated(rows: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Trainer defaults that evaluate on ``rows``, a tenth of the run apart; nothing without rows or
    where the user says when."""
    if rows is None or "eval_strategy" in given:
        return {}
    return {"eval_strategy": "steps", "eval_steps": 0.1}


def rollout_watch(
    watch: WatchConfig,
    run: RunConfig,
    reward: RewardConfig,
    *,
    policy: Policy,
    prompts: Sequence[str],
    scorer: RolloutScorer,
) -> Watch:
    """What watches a recipe that draws: the validation ``prompts`` are drawn as its rollouts are
    (``t2x.watching.building.build_watch``, which says what is raised)."""
    from t2x.watching.building import build_watch

    return build_watch(
        watch,
        run.out,
        policy,
        validation=prompts,
        generator=reward.generator,
        generator_options=reward.generator_options,
        training_rewards=list(reward.rewards),
        scorer=scorer,
        negative=scorer.config.negative,
    )


def finish_run(
    trainer: Any, policy: Policy, watch: Watch, found: Mapping[str, float]
) -> dict[str, float]:
    """Save ``model`` (adapters merged in) and, with adapters, ``adapter``; evaluate once more if
    there is data for it; write ``metrics.json`` and give the metrics.

    ``found`` is what the recipe measured itself. A model that DeepSpeed or FSDP holds in pieces is
    saved by the trainer as it is, adapters apart; that has not been run.
    """
    out = Path(trainer.args.output_dir)
    if trainer.eval_dataset is not None:
        if trainer.is_world_process_zero():
            loading.info("measuring %s held-out rows ...", f"{len(trainer.eval_dataset):,}")
        trainer.evaluate()
    in_pieces = trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled
    if in_pieces:
        trainer.save_model(str(out / "model"))
    if not trainer.is_world_process_zero():
        return {}
    if in_pieces:
        save_template(policy, out / "model")
    else:
        save_policy(policy, out / "model")
        if hasattr(policy.model, "peft_config"):
            policy.model.save_pretrained(out / "adapter", selected_adapters=["default"])
    last: dict[str, float] = {}
    for line in trainer.state.log_history:
        last |= renamed(line)
    left_out = {"epoch", "step", "grad_norm", "learning_rate"}
    metrics = {key: value for key, value in last.items() if key not in left_out}
    steps = float(trainer.state.global_step)
    return write_run_metrics(out, {**metrics, **watch.summary(), **found, "steps": steps})


def write_run_metrics(out: Path, metrics: Mapping[str, float]) -> dict[str, float]:
    """Write ``metrics.json`` of a whole run and give it back, with what ``auto`` was in its
    configuration: ``auto_bf16`` is 1 for bfloat16 and 0 for another number format."""
    return write_metrics(out, {**metrics, "auto_bf16": float(fast_bfloat16())})
