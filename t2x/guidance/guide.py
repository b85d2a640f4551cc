"""Guide any diffusers pipeline by rewards.

with t2x.guide(pipe, ["vqa", "clip"], GuidanceConfig(rewards={"vqa": 1, "clip": 0.3})):
    pipe("two cats to the left of a pizza")
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Literal

from t2x.errors import T2XError
from t2x.generators.calls import call_arguments
from t2x.guidance.config import GuidanceConfig
from t2x.guidance.hook import watch_steps
from t2x.guidance.objective import Objective, WeightPolicy
from t2x.guidance.policy import own_policy
from t2x.guidance.preflight import MemoryCheck
from t2x.guidance.reward_guidance import RewardGuidance, Tether
from t2x.guidance.step import Control
from t2x.guidance.support import check_pipeline, checkpointed
from t2x.guidance.trace import GuidanceTrace
from t2x.registry import load_reward
from t2x.scoring.frames import frames

if TYPE_CHECKING:
    from t2x.types import Context, RewardModel

_PARTS = ("name", "modality", "scale", "range", "differentiable", "score")

__all__ = ["for_pipeline", "guide"]


@contextmanager
def guide(
    pipe: Any,
    rewards: Sequence[RewardModel | str] = (),
    config: GuidanceConfig | None = None,
    *,
    prompts: Sequence[str] | None = None,
    context: Context | None = None,
    seeds: Sequence[int] | None = None,
    policy: WeightPolicy | Literal["auto"] | None = "auto",
    tether: Tether | None = None,
    controls: Sequence[Control] = (),
    thumbnails: int | None = None,
) -> Iterator[GuidanceTrace]:
    """Steer every call of ``pipe`` inside by ``rewards``; the pipeline is as before afterwards.

    Args:
        pipe: any text-to-image or text-to-video pipeline of diffusers, unmodified.
        rewards: loaded ones (your own have what ``t2x.types.RewardModel`` lists) or names, as a
            list; without, those that ``config.rewards`` names. Weights are ``config.rewards``.
        config: how; RewardFlow's mode E without.
        prompts: what pictures are scored against, the user's words, one for each picture; without,
            the prompts of the call.
        context: for rewards that need more than prompt and media.
        seeds: of guidance's own noise, one for each picture, so that a picture does not depend on
            its place in a batch.
        policy: decides and moves weights while sampling; "auto" is that of ``config.adaptive``,
            None leaves the weights as they are given.
        tether: latents and mask that ``config.tether`` holds to.
        controls: others that act after guidance (particles, say).
        thumbnails: longest side of pictures of x0_hat to keep in the trace, in pixels.

    Gives the trace of what is done, call by call.

    Raises T2XError for rewards without gradients, of another modality than the pipeline, and for
    pipelines that can't be guided so, and for what would not fit the memory, before anything is
    drawn.
    """
    config = config or GuidanceConfig()
    if isinstance(prompts, str):
        raise T2XError(f"prompts is a list, one entry for each picture; got the text {prompts!r}")
    loaded = _loaded(rewards, config)
    check_pipeline(pipe, config.mode)
    chosen = own_policy(loaded, config) if policy == "auto" else policy
    objective = _objective(loaded, pipe, config, chosen)
    guidance = RewardGuidance(
        objective,
        config,
        context=context,
        seeds=seeds,
        tether=tether,
        trace=GuidanceTrace(objective.names, thumbnails=thumbnails),
    )
    memory = MemoryCheck(objective, config, context=context)
    with ExitStack() as stack:
        if config.checkpointing:
            stack.enter_context(checkpointed(pipe, config.mode))
        stack.enter_context(memory.watching(pipe))
        stack.enter_context(guidance.trace.watching(pipe))
        stack.enter_context(watch_steps(pipe, [guidance, memory, *controls], prompts=prompts))
        yield guidance.trace


def _loaded(rewards: Sequence[RewardModel | str], config: GuidanceConfig) -> list[RewardModel]:
    """The rewards, loaded. Raises T2XError for none, and for what is no list of rewards."""
    if isinstance(rewards, (str, Mapping)) or not isinstance(rewards, Sequence):
        raise T2XError(
            f"rewards are a list, for instance ['vqa', 'clip'], got {rewards!r}; weights go into "
            "the configuration: GuidanceConfig(rewards={'vqa': 1, 'clip': 0.3})"
        )
    loaded = [load_reward(r) if isinstance(r, str) else r for r in rewards or config.rewards]
    if not loaded:
        raise T2XError("guidance needs rewards; name some, for instance rewards=['vqa', 'clip']")
    for reward in loaded:
        if missing := [part for part in _PARTS if not hasattr(reward, part)]:
            raise T2XError(
                f"{type(reward).__name__} has no {', '.join(missing)}; a reward has "
                f"{', '.join(_PARTS)} (t2x.types.RewardModel)"
            )
    return loaded


def _objective(
    rewards: Sequence[RewardModel], pipe: Any, config: GuidanceConfig, policy: WeightPolicy | None
) -> Objective:
    """What is raised; weights keep the names that the caller knows."""
    names = [reward.name for reward in rewards]
    if unknown := sorted(set(config.rewards) - set(names)):
        raise T2XError(f"weights for {', '.join(unknown)}; the rewards are: {', '.join(names)}")
    fitting = [for_pipeline(reward, pipe) for reward in rewards]
    weights = {
        fit.name: config.rewards.get(name, 1.0) for name, fit in zip(names, fitting, strict=True)
    }
    if not any(weights.values()):
        raise T2XError("all weights of guidance are 0; give one that is not, or leave guidance out")
    return Objective(fitting, weights, policy=policy, normalise=config.rule == "relative")


def for_pipeline(reward: RewardModel, pipe: Any) -> RewardModel:
    """A reward of pictures scores a video by the mean of its frames.

    Raises T2XError for a reward of videos where pictures are drawn.
    """
    video = "num_frames" in call_arguments(pipe)
    if reward.modality == "video" and not video:
        raise T2XError(
            f"{reward.name} scores videos and {type(pipe).__name__} draws pictures; guide by a "
            "reward of pictures"
        )
    return frames(reward) if video and reward.modality == "image" else reward
