"""One table from the names that TRL 1.16, transformers and ``t2x.rollouts`` log to those of
``log.jsonl``.

| key | what it is |
|---|---|
| loss, grad_norm, learning_rate, epoch, tokens | as the trainer has them |
| reward, reward_std | mean and deviation of the training reward: of all completions that have one, the fixed scores of failures included, what was cut off or not measured left out |
| reward/NAME, gain/NAME | mean of one reward against the user's own prompt, of what was drawn; its gain |
| own_words | reward of the user's own words, same seeds, once for each completion in reward |
| gain | reward minus own_words |
| kl, entropy | nats per token; kl is to the model that the run starts from |
| kl/round | of REBEL: to the policy that wrote the round |
| length | tokens per completion |
| zero_variance | share of groups whose members all have one reward |
| truncated, failed, broken, missing | shares: cut off; without an answer; a check not passed; without a measurement |
| clipped | share of tokens whose ratio was clipped |
| pictures, pictures/drawn | used by all processes since the start; those of them that no store had |
| distinct_1, distinct_2 | distinct words and pairs of words among all of a step's rewrites |
| heldout/... | the same on the validation prompts, see ``t2x.watching.held_out`` |

A name that is not in the table stays as it is.
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["renamed"]

_NAMES = {
    "clip_ratio/region_mean": "clipped",
    "completions/clipped_ratio": "truncated",
    "completions/max_length": "length/max",
    "completions/mean_length": "length",
    "completions/min_length": "length/min",
    "frac_reward_zero_std": "zero_variance",
    "mean_token_accuracy": "token_accuracy",
    "num_tokens": "tokens",
    "step_time": "step_seconds",
    # DPO: beta times the log ratio to the reference, which is no reward of a picture.
    "rewards/accuracies": "pair_accuracy",
    "rewards/chosen": "log_ratio/chosen",
    "rewards/margins": "log_ratio/margin",
    "rewards/rejected": "log_ratio/rejected",
    # reward models
    "accuracy": "pair_accuracy",
    "max_reward": "score/max",
    "mean_reward": "score",
    "min_reward": "score/min",
}
# Of rollouts, whose reward function gives TRL advantages: these stand for what TRL says of those.
_OF_ROLLOUTS = {
    "rollout/advantage": "advantage",
    "rollout/floor": "floor",
    "rollout/gain": "gain",
    "rollout/original": "own_words",
    "rollout/reward": "reward",
    "rollout/reward_std": "reward_std",
    "share/broken": "broken",
    "share/failed": "failed",
    "share/missing": "missing",
    "share/truncated": "truncated",
    "share/zero_variance": "zero_variance",
}
# What says the same as another key, or nothing about the training.
_LEFT_OUT = (
    "completions/max_terminated_length",
    "completions/mean_terminated_length",
    "completions/min_terminated_length",
    "eval_runtime",
    "eval_samples_per_second",
    "eval_steps_per_second",
    "rewards/rollout/mean",
    "rewards/rollout/std",
    "share/rewrite",
    "total_flos",
)
_EVAL = "eval_"
_SUMMARY = "train_runtime"  # in the one line that a trainer logs when it is done


def renamed(logs: Mapping[str, Any]) -> dict[str, float]:
    """Numbers of one of the trainer's logs under the names of ``log.jsonl``; {} for the summary
    that it logs when it is done. What it could not measure (None) is NaN.
    """
    if _SUMMARY in logs:
        return {}
    found, own = {}, {}
    for key, value in logs.items():
        if key in _LEFT_OUT or not isinstance(value, int | float | None):
            continue
        number = float("nan") if value is None else float(value)
        name = key.removeprefix(_EVAL)
        if name in _OF_ROLLOUTS:
            own[_OF_ROLLOUTS[name]] = number
        elif key.startswith(_EVAL):
            found[f"heldout/{_NAMES.get(name, name)}"] = number
        else:
            found[_NAMES.get(name, name)] = number
    return found | own
