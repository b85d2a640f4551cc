"""The callback that watches a training by TRL or transformers.

It writes ``log.jsonl``, measures validation prompts, keeps sample pictures, draws the progress bar,
raises alarms, ends a run that over-optimises, and writes ``report.html``. What it says reaches
trackers (``report_to``) too, in place of what TRL has under that name. Of TRL's classes nothing is
overridden.

With several processes every one of them writes the held-out texts, so that sharded weights are
gathered by all; the first one draws, scores and decides, and the others are told.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback
from transformers.trainer_callback import PrinterCallback, ProgressCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from t2x.files import made_folder
from t2x.registry import loading
from t2x.watching.alarms import HELD_OUT, Alarm, curves_of, find_alarms
from t2x.watching.bar import Advance, training_bar
from t2x.watching.config import WatchConfig
from t2x.watching.held_out import HeldOut, undisturbed
from t2x.watching.names import renamed
from t2x.watching.report import require_plots, try_report
from t2x.watching.resuming import say_where, take_up_finished
from t2x.watching.rollout_stats import RolloutStats, add_sums
from t2x.watching.runs import ALARMS, GROUPS, LOG
from t2x.watching.samples import cut_samples, write_samples
from t2x.watching.steps import Clock, append_step, cut_steps, read_steps
from t2x.watching.trends import Curve

if TYPE_CHECKING:
    from t2x.training.policy import Policy

__all__ = ["Watch"]

log = logging.getLogger(__name__)

_SHOWN = ("reward", "loss", "kl", HELD_OUT)  # beside the bar


class Watch(TrainerCallback):
    """Watches one run.

    Args:
        folder: of the run.
        config: the section ``watch``.
        policy: the tokenizer and template that the model is trained with.
        held_out: what measures validation prompts; None measures nothing.

    ``rollouts.add`` takes the outcomes of each generation from a reward function, and ``cost``
    gives what all so far have cost: every line says it, exact at its step. ``stopped`` is
    the alarm that ended the run. Raises ``MissingDependencyError`` when a report is asked for and
    what draws its plots is not installed.
    """

    def __init__(
        self,
        folder: str | Path,
        config: WatchConfig | None = None,
        *,
        policy: Policy | None = None,
        held_out: HeldOut | None = None,
    ) -> None:
        self.folder, self.config = made_folder(folder), config or WatchConfig()
        self.policy, self.held_out = policy, held_out
        self.rollouts = RolloutStats()
        self.cost: Callable[[], Mapping[str, float]] = dict
        self.stopped: Alarm | None = None
        self._curves: dict[str, Curve] = {}
        self._pending: dict[str, float] = {}
        self._active: set[str] = set()
        self._clock = Clock(0.0)
        self._bar = ExitStack()
        self._resumed: str | None = None
        self._advance: Advance = lambda done, note: None
        if self.config.report:
            require_plots()

    def train(self, trainer: Any, *, resume_from: str | None = None) -> None:
        """Attach to a trainer and let it train; the bar ends with it, however it ends. A run whose
        checkpoint is that of its last step is taken up as it is.

        Bars of transformers, one for each file that a checkpoint writes, stay off meanwhile.
        """
        self.attach(trainer)
        self._resumed = resume_from
        if resume_from is not None and take_up_finished(trainer, resume_from):
            if trainer.is_world_process_zero():
                self._begin(trainer.state.global_step)
            return
        with self._bar, _without_bars():
            trainer.train(resume_from_checkpoint=resume_from)

    def attach(self, trainer: Any) -> None:
        """Take the place of the trainer's own bar, before all its trackers, so that these get what
        is measured here.
        """
        for other in (ProgressCallback, PrinterCallback):
            trainer.remove_callback(other)
        trainer.callback_handler.callbacks.insert(0, self)
        if self.config.keep_best:
            trainer.args.load_best_model_at_end = True  # checked before: it needs no eval_strategy
            if trainer.args.save_total_limit == 1:  # transformers would remove the last one
                trainer.args.save_total_limit = 2

    def summary(self) -> dict[str, float]:
        """The last measurements, for ``metrics.json``; ``heldout/best_step`` is the step of the
        highest held-out reward, ``stopped_early`` whether an alarm ended the run.
        """
        kept = ("reward", "gain", "kl", "kl/round", "entropy", "length", "seconds")
        found = {
            key: curve.values[-1]
            for key, curve in self._curves.items()
            if key in kept or key.startswith(("reward/", "heldout/"))
        }
        held_out = self._curves.get(HELD_OUT)
        if held_out is not None:
            best = max(range(len(held_out)), key=lambda i: held_out.values[i])
            found["heldout/best_step"] = held_out.steps[best]
            found["heldout/best"] = held_out.values[best]
        return found | {"stopped_early": float(self.stopped is not None)}

    # ---- what a trainer calls -------------------------------------------------------------------

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        step = state.global_step
        if state.is_world_process_zero:
            self._begin(step)
            if self._resumed is not None:
                say_where(self._resumed, state)
            if self.config.bar:
                bar = training_bar(self.folder.name, state.max_steps, done=step)
                self._advance = self._bar.enter_context(bar)
        if step == 0 and self.held_out is not None:
            found = self._measure(0, kwargs["model"], main=state.is_world_process_zero)
            if state.is_world_process_zero:
                self._write(0, found)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        step = state.global_step
        self._advance(step, self._note())
        section = self.config.held_out
        if self.held_out is None or section is None:
            return
        if step % section.every == 0 or step >= state.max_steps:
            self._pending = self._measure(step, kwargs["model"], main=state.is_world_process_zero)
            control.should_log = True

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        record = renamed(logs or {})
        groups = self._take_rollouts(record, args.world_size)
        if not record:
            return
        record |= self._pending | dict(self.cost())
        self._pending = {}
        logs.update({k: v for k, v in record.items() if math.isfinite(v)})
        said = (False, False)
        if state.is_world_process_zero:
            said = self._keep(state, record, groups)
        stop, best = _told(said, args.world_size)
        if stop:
            control.should_training_stop = True
        if best:
            self._mark_best(state)
        if stop or best:
            control.should_save = True

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._bar.close()
        if state.is_world_process_zero and self.config.report:
            try_report(self.folder)

    # ---- the log --------------------------------------------------------------------------------

    def _begin(self, step: int) -> None:
        """Go back to a checkpoint: what a broken-off run logged after it is written again."""
        kept = step if step else -1
        for name in (LOG, GROUPS, ALARMS):
            cut_steps(self.folder / name, kept)
        cut_samples(self.folder, kept)
        records = read_steps(self.folder / LOG)
        self._curves = curves_of(records)
        spent = self._curves.get("seconds", Curve()).values
        self._clock = Clock(spent[-1] if spent else 0.0)

    def _write(self, step: int, record: dict[str, float]) -> None:
        line = {"step": step, "seconds": round(self._clock.seconds(), 2), **record}
        append_step(self.folder / LOG, line)
        self._curves = curves_of([line], self._curves)

    def _keep(
        self, state: Any, record: dict[str, float], groups: list[dict[str, Any]]
    ) -> tuple[bool, bool]:
        """Write what was logged; whether the run ends, and whether its checkpoint is to be kept."""
        step = state.global_step
        self._write(step, record)
        for group in groups:
            append_step(self.folder / GROUPS, {"step": step, **group})
        stop = self._alarm(step)
        if self.config.report and step % self.config.report == 0:
            with self._clock.paused():
                try_report(self.folder)
        return stop, self.config.keep_best and HELD_OUT in record and self._is_best()

    def _alarm(self, step: int) -> bool:
        found = find_alarms(self._curves, step, self.config.alarms)
        for alarm in found:
            if alarm.name not in self._active:
                append_step(self.folder / ALARMS, asdict(alarm))
                log.warning("step %d: %s: %s", step, alarm.name, alarm.text)
        self._active = {alarm.name for alarm in found}
        self.stopped = next((alarm for alarm in found if alarm.stop), None)
        return self.stopped is not None

    def _is_best(self) -> bool:
        """Whether the last held-out reward is the highest of the training, its start left out."""
        values = self._curves[HELD_OUT].between(1, math.inf).values
        return bool(values) and values[-1] == max(values) and values.count(values[-1]) == 1

    def _mark_best(self, state: Any) -> None:
        """Tell the trainer that its next checkpoint is the best so far: it spares it, and goes back
        to it at the end.
        """
        step = state.global_step
        state.best_metric, state.best_global_step = self._best(), step
        state.best_model_checkpoint = str(self.folder / f"{PREFIX_CHECKPOINT_DIR}-{step}")

    def _best(self) -> float | None:
        """The last held-out reward; None in processes that don't measure."""
        values = self._curves.get(HELD_OUT, Curve()).values
        return values[-1] if values else None

    def _note(self) -> str:
        shown = ((key, self._curves[key]) for key in _SHOWN if key in self._curves)
        return " ".join(f"{key} {curve.values[-1]:.4g}" for key, curve in shown)

    # ---- measurements ---------------------------------------------------------------------------

    def _measure(self, step: int, model: Any, *, main: bool) -> dict[str, float]:
        if self.held_out is None or self.policy is None:
            return {}
        template = self.policy.template
        if main and step == 0:  # before there is a bar that moves
            loading.info("measuring %d held-out prompts ...", len(self.held_out.prompts))
        with self._clock.paused(), undisturbed(model):
            rewrites = self.held_out.write(model, self.policy.tokenizer, template)
            if not main:
                return {}
            measured = self.held_out.measure(rewrites, template)
            sheet = self.config.samples
            if sheet is not None and step % sheet.every == 0:
                write_samples(
                    self.folder, step, measured, prompts=sheet.prompts, pictures=sheet.pictures
                )
        return {f"heldout/{key}": value for key, value in measured.metrics.items()}

    def _take_rollouts(self, record: dict[str, float], processes: int) -> list[dict[str, Any]]:
        """Add to ``record`` what it does not say of the rollouts since the last line, means over
        all processes; give the groups of this one.
        """
        sums, groups = self.rollouts.take()
        if processes > 1:
            from accelerate.utils import gather_object

            sums = add_sums(gather_object([sums]))
        if record:
            means = {key: total / count for key, (total, count) in sums.items() if count}
            record |= {key: value for key, value in means.items() if key not in record}
        return groups


@contextmanager
def _without_bars() -> Iterator[None]:
    from transformers.utils import logging as transformers_logging

    enabled = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if enabled:
            transformers_logging.enable_progress_bar()


def _told(said: tuple[bool, bool], processes: int) -> tuple[bool, bool]:
    """What the first process decided."""
    if processes > 1:
        from accelerate.utils import broadcast_object_list

        (said,) = broadcast_object_list([said])
    return said
