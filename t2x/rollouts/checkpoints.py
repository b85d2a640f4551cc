"""Keeps the running statistics of rollouts beside the trainer's own checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from t2x.errors import T2XError
from t2x.files import write_whole

if TYPE_CHECKING:
    from t2x.rollouts.reward import RolloutReward

__all__ = ["STATE_FILE", "RolloutStateCallback", "load_state"]

STATE_FILE = "rollouts.json"


class RolloutStateCallback(TrainerCallback):
    """Writes ``rollouts.json`` into every checkpoint, as its last file and whole."""

    def __init__(self, reward: RolloutReward) -> None:
        self.reward = reward

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Save the statistics; those of all processes are equal, the first one writes."""
        if not state.is_world_process_zero:
            return
        folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        write_whole(folder / STATE_FILE, json.dumps(self.reward.state_dict()))


def load_state(reward: RolloutReward, checkpoint: str | Path) -> None:
    """Go on with the statistics of a checkpoint; T2XError for one that has none."""
    path = Path(checkpoint) / STATE_FILE
    try:
        state = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise T2XError(
            f"{str(path)!r} can't be read: {error}; the run was broken off while it was written: "
            "remove that checkpoint, and the one before it is used"
        ) from error
    reward.load_state_dict(state)
