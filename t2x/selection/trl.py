"""Prompt selection inside TRL's GRPO trainer.

    selection = Selection(SelectionConfig("mopps"), seed=0)
    reward = RolloutReward(...)
    selection.listen_to(reward)         # any other reward calls selection.record
    trainer = SelectiveGRPOTrainer(..., train_dataset=rows, selection=selection)
    trainer.train(resume_from_checkpoint=...)       # reads selection.json in the checkpoint

What is overridden of ``GRPOTrainer`` (TRL 1.16): ``_get_train_sampler``, and, with an effect under
erpo alone, ``_generate_and_score_completions`` and ``_generate_single_turn``, both around the
parent's own. ``_tokenize_prompts`` is called by pcl and hive.

accelerate fetches one batch ahead, and transformers the batches of one optimiser step: with TRL's
default of one generation per optimiser step, a draw knows the results of all steps but the last.
With ``dataloader_num_workers`` it knows less.
"""

from __future__ import annotations

import json
import logging
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accelerate.utils import broadcast_object_list, gather_object
from torch.utils.data import Sampler
from transformers import TrainerCallback
from transformers.integrations import is_deepspeed_zero3_enabled
from trl import GRPOTrainer

from t2x.errors import T2XError
from t2x.files import write_whole
from t2x.selection.config import SelectionConfig
from t2x.selection.policy import prompt_entropies, prompt_features, row_temperatures
from t2x.selection.results import GroupResult
from t2x.selection.sampler import PromptSampler

if TYPE_CHECKING:
    from t2x.rollouts import Outcome, RolloutReward, RolloutScorer

__all__ = ["INDEX", "RepeatedDraws", "Selection", "SelectiveGRPOTrainer"]

log = logging.getLogger(__name__)

INDEX = "prompt_index"  # column that tells a reward which prompt it scores
STATE_FILE = "selection.json"
_Row = tuple[int, int, float, float, float]  # call, prompt, reward, baseline, noise


class Selection:
    """What connects a reward, a trainer and the sampler: collects rewards on each process, and
    gathers them into groups when a step ends. Picklable; ``sampler`` is there once a trainer is.
    """

    def __init__(self, config: SelectionConfig | None = None, *, seed: int = 0) -> None:
        self.config = SelectionConfig() if config is None else config
        self.seed = seed
        self.sampler: PromptSampler | None = None
        self.group = 0  # rewrites per prompt
        self._rows: list[_Row] = []
        self._calls = 0

    def record(
        self,
        prompts: Sequence[int] | None,
        rewards: Sequence[float | None],
        baselines: Sequence[float],
        *,
        noise: float = 0.0,
    ) -> None:
        """Take note of one call of the reward on this process: prompt (``INDEX``), reward and
        no-rewrite arm of each rewrite. None or NaN: not measured, or masked. ``noise``: standard
        deviation of a reward by its seeds alone.

        ``prompts`` is None in an evaluation, whose rows have no numbers: nothing is noted.
        """
        if prompts is None:
            return
        for prompt, reward, baseline in zip(prompts, rewards, baselines, strict=True):
            value = math.nan if reward is None else float(reward)
            self._rows.append((self._calls, int(prompt), value, float(baseline), noise))
        self._calls += 1

    def listen_to(self, reward: RolloutReward) -> None:
        """Take note of every call of a reward of ``t2x.rollouts``: broken and failed rewrites count
        with the reward that they are trained with, truncated ones are masked.
        """
        reward.listeners.append(partial(_note, self, reward.scorer))

    def learn(self) -> list[GroupResult]:
        """Gather what all processes have noted, tell the sampler, and give the groups. Every
        process must call it, and gets the same.

        Raises T2XError for a group that is not whole.
        """
        rows: list[_Row] = gather_object(self._rows)
        self._rows, self._calls = [], 0
        results = _groups(rows, self.group)
        if self.sampler is not None:
            self.sampler.observe(results)
        return results

    def bind(self, trainer: Any) -> None:
        """Build the sampler for a trainer whose model is still what the run starts with.

        Raises T2XError for settings of the trainer that selection can't go with.
        """
        args, config = trainer.args, self.config
        _check(trainer, config)
        self.group = trainer.num_generations
        rows = trainer.train_dataset
        features = _features(trainer) if config.method == "pcl" else None
        probe = partial(_probe, trainer) if config.method == "hive" else None
        self.sampler = PromptSampler(
            config,
            prompts=len(rows),
            size=args.generation_batch_size // self.group,
            seed=self.seed,
            features=features,
            probe=probe,
        )

    def save(self, folder: str | Path) -> None:
        """Write ``selection.json`` into a checkpoint's folder."""
        if self.sampler is not None:
            write_whole(Path(folder) / STATE_FILE, json.dumps(self.sampler.state_dict()))

    def load(self, folder: str | Path) -> None:
        """Go on from a checkpoint's folder; one without the file starts afresh, with a warning."""
        path = Path(folder) / STATE_FILE
        if not path.is_file():
            log.warning("no %s in %s: prompt selection starts afresh", STATE_FILE, folder)
        elif self.sampler is not None:
            self.sampler.load_state_dict(json.loads(path.read_text("utf-8")))


class RepeatedDraws(Sampler[int]):
    """Row numbers in the order of TRL's ``RepeatSampler``: each prompt of a draw ``group`` times in
    a row, and the whole draw ``repeats`` times, once for each batch that is made of it.
    """

    def __init__(self, draws: PromptSampler, *, group: int, repeats: int) -> None:
        self.draws, self.group, self.repeats = draws, group, repeats

    def __iter__(self) -> Iterator[int]:
        for draw in self.draws.epoch():
            for _ in range(self.repeats):
                for prompt in draw:
                    yield from [prompt] * self.group

    def __len__(self) -> int:
        return self.draws.draws_per_epoch * self.draws.size * self.group * self.repeats


class SelectiveGRPOTrainer(GRPOTrainer):
    """TRL's ``GRPOTrainer`` with the prompts of each step chosen by ``selection``.

    ``train_dataset`` gets a column ``prompt_index``, which reaches the reward. The order is that of
    the selection, whatever ``shuffle_dataset`` says. What is overridden is named at the head of the
    module. Under erpo the log-probabilities stay those of the
    trainer's own temperature, as if the lifted samples were its own.
    """

    def __init__(
        self,
        *args: Any,
        selection: Selection,
        train_dataset: Any,
        callbacks: Any = None,
        **kwargs: Any,
    ) -> None:
        self.selection = selection
        # Before all others: a file that marks a checkpoint as whole comes after ours.
        ours = [_Feedback(selection), *(callbacks or ())]
        super().__init__(*args, train_dataset=numbered(train_dataset), callbacks=ours, **kwargs)
        selection.bind(self)
        self._row_prompts: list[int] | None = None

    def _get_train_sampler(self, dataset: Any = None) -> RepeatedDraws:
        sampler = self.selection.sampler
        assert sampler is not None
        repeats = self.num_iterations * self.args.steps_per_generation
        return RepeatedDraws(sampler, group=self.num_generations, repeats=repeats)

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        self._row_prompts = [row[INDEX] for row in inputs] if INDEX in inputs[0] else None
        return super()._generate_and_score_completions(inputs)

    def _generate_single_turn(self, prompt_ids: Any, *args: Any, **kwargs: Any) -> Any:
        with self._lifted():
            return super()._generate_single_turn(prompt_ids, *args, **kwargs)

    def _lifted(self) -> Any:
        """The temperatures of the rows that are about to be generated."""
        sampler = self.selection.sampler
        if self._row_prompts is None or sampler is None or sampler.config.method != "erpo":
            return nullcontext()
        model = self.accelerator.unwrap_model(self.model)
        causal = model.get_base_model() if hasattr(model, "get_base_model") else model
        base = float(self.temperature)
        return row_temperatures(causal, sampler.temperatures(self._row_prompts, base), base)


class _Feedback(TrainerCallback):
    """Tells the sampler of each step, and keeps its state beside the checkpoints."""

    def __init__(self, selection: Selection) -> None:
        self.selection = selection

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step:
            self.selection.load(_checkpoint(args, state))

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.selection.learn()

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            self.selection.save(_checkpoint(args, state))


def _note(
    selection: Selection,
    scorer: RolloutScorer,
    outcomes: Sequence[Outcome],
    columns: Mapping[str, Any],
) -> None:
    """A listener of ``RolloutReward``."""
    rewards = [None if o.kind == "truncated" else o.reward for o in outcomes]
    noise = scorer.comparison.seed_deviation(max(len(o.seeds) for o in outcomes))
    baselines = [o.original_reward for o in outcomes]
    selection.record(columns.get(INDEX), rewards, baselines, noise=noise)


def numbered(rows: Any) -> Any:
    """A ``datasets.Dataset`` with the number of each row as column ``prompt_index``.

    Raises T2XError for a stream, of which nothing can be chosen.
    """
    if not hasattr(rows, "add_column") or not hasattr(rows, "__len__"):
        raise T2XError("prompts can be chosen from rows that are all there, not from a stream")
    if INDEX in rows.column_names:
        rows = rows.remove_columns(INDEX)
    return rows.add_column(INDEX, list(range(len(rows))))


def _groups(rows: Iterable[_Row], size: int) -> list[GroupResult]:
    """Groups of rows by call and prompt, wherever their members were."""
    members: dict[tuple[int, int], list[_Row]] = defaultdict(list)
    for row in rows:
        members[row[:2]].append(row)
    results = []
    for (_, prompt), found in sorted(members.items()):
        if len(found) != size:
            raise T2XError(
                f"the group of prompt {prompt} has {len(found)} rewrites in place of {size}; all "
                "members of a group must be scored in the same step"
            )
        rewards = tuple(row[2] for row in found)
        results.append(GroupResult(prompt, rewards, found[0][3], found[0][4]))
    return results


def _check(trainer: Any, config: SelectionConfig) -> None:
    args = trainer.args
    if getattr(args.accelerator_config, "dispatch_batches", None):
        raise T2XError(
            "accelerator_config.dispatch_batches reads the data on one process, and prompt "
            "selection needs the same choice in all; leave it out"
        )
    in_pieces = trainer.is_fsdp_enabled or is_deepspeed_zero3_enabled()
    if config.method in ("pcl", "hive") and in_pieces:
        raise T2XError(
            f"selection.method {config.method} asks the policy about prompts, and FSDP or ZeRO-3 "
            "hold it in pieces; take mopps or p1, which need no model, or another strategy"
        )
    engines = args.use_vllm or getattr(args, "use_transformers_continuous_batching", False)
    if config.method == "erpo" and engines:
        raise T2XError(
            "selection.method erpo samples each prompt at a temperature of its own, which works "
            "with transformers' generate alone; set trainer.use_vllm to false (and "
            "use_transformers_continuous_batching), or take another method"
        )


def _token_ids(trainer: Any, prompts: Sequence[int] | None = None) -> list[list[int]]:
    """Prompts as the trainer reads them, by their numbers; None is all."""
    rows = trainer.train_dataset
    chosen = rows if prompts is None else rows.select(prompts)
    ids: list[list[int]] = trainer._tokenize_prompts(list(chosen["prompt"]))[0]
    return ids


def _features(trainer: Any) -> Any:
    """Features of all prompts by the policy that training starts with, those of the first process;
    a resumed run makes the same ones, since its weights are loaded later."""
    found = [prompt_features(trainer.model, _token_ids(trainer))]
    if trainer.accelerator.num_processes > 1:
        broadcast_object_list(found, from_process=0)
    return found[0]


def _probe(trainer: Any, prompts: list[int]) -> list[float]:
    """Prompt entropies under the policy as it is; those of the first process hold for all."""
    found = prompt_entropies(trainer.model, _token_ids(trainer, prompts))
    if trainer.accelerator.num_processes > 1:
        broadcast_object_list(found, from_process=0)
    return found


def _checkpoint(args: Any, state: Any) -> Path:
    return Path(args.output_dir) / f"checkpoint-{state.global_step}"
