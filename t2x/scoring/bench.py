"""How fast rewards are: together over one shared tower, and each on its own.

*Together* is a ``RewardEnsemble``, which runs the tower once; *alone* is what a loop over rewards
does, each running the tower again. Both use the same weights, numbers, pictures and threads, and
take turns, so that what else the machine does hits both. Weights are random: speed does not depend
on them.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.registry import load_reward
from t2x.reward_facts import FACTS
from t2x.scoring.ensemble import RewardEnsemble
from t2x.types import Context

if TYPE_CHECKING:
    from t2x.scoring.reward import EncoderReward
    from t2x.types import RewardModel

ARCHITECTURE = "ViT-L-14-quickgelu"
FRAMES = 8

# What needs no download: a benchmark fetches nothing.
AT_HAND = [name for name, facts in FACTS.items() if facts.download in ("embedded", "no weights")]

__all__ = ["AT_HAND", "FULL_SIZE", "bench_embedded", "bench_shared", "random_tower"]

Tower: TypeAlias = tuple[Any, Any]  # open_clip model and tokenizer
Factory: TypeAlias = Callable[[Tower], "RewardModel"]


def _clip(tower: Tower) -> RewardModel:
    return load_reward("clip", source=tower)


def _laion(name: str, *widths: int) -> Factory:
    """An aesthetic head of LAION's layout with random weights on the tower's embedding."""

    def make(tower: Tower) -> RewardModel:
        generator = torch.Generator().manual_seed(0)
        sizes = [int(tower[0].visual.output_dim), *widths]
        weights = {}
        for i, (a, b) in enumerate(pairwise(sizes)):
            weights[f"layers.{i}.weight"] = torch.randn(b, a, generator=generator) / a**0.5
            weights[f"layers.{i}.bias"] = torch.zeros(b)
        with tempfile.TemporaryDirectory() as folder:
            torch.save(weights, path := Path(folder) / "head.pth")
            reward = cast("EncoderReward", load_reward("aesthetic", source=path, encoder=tower))
            return cast("RewardModel", replace(reward, name=name))

    return make


# The first one is the single reward that the sum is compared with.
FULL_SIZE: dict[str, Factory] = {
    "clip": _clip,
    "laion-v1": _laion("laion-v1", 1),
    "laion-v2": _laion("laion-v2", 1024, 128, 64, 16, 1),
    "vlm-rm": lambda tower: load_reward("vlm-rm", source=tower),
}


def random_tower(
    architecture: str = ARCHITECTURE, *, device: str = "cpu", dtype: torch.dtype = torch.float32
) -> Tower:
    """An open_clip model of full size with random weights, and its tokenizer.

    Raises ``T2XError`` for an architecture that open_clip does not have.
    """
    import open_clip

    if architecture not in open_clip.list_models():
        raise T2XError(f"open_clip has no architecture {architecture!r}; try {ARCHITECTURE}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = open_clip.create_model(architecture, pretrained=None)
    return model.to(device, dtype), open_clip.get_tokenizer(architecture)


def bench_shared(
    tower: Tower,
    factories: Mapping[str, Factory] = FULL_SIZE,
    *,
    pictures: int = 4,
    size: int = 224,
    repeats: int = 3,
    clock: Callable[[], float] = time.perf_counter,
    progress: Callable[[str, int, int], None] | None = None,
) -> dict[str, Any]:
    """Time the rewards of ``factories`` together and each alone on ``pictures`` of ``size`` pixels.

    Gives ``shared_over_single``: time of all together over that of the first alone, the median over
    ``repeats`` rounds after one that does not count; ``alone_over_shared``: the sum of all alone
    over all together; ``shared`` and ``alone`` with seconds per batch and pictures per second.
    ``clock`` in seconds; ``time.process_time`` is the better one for a single CPU thread on a
    machine that does other things.
    """
    rewards = {name: make(tower) for name, make in factories.items()}
    together = RewardEnsemble(list(rewards.values()))
    media = _pictures(pictures, size)
    arms: dict[str, RewardModel] = {"": together, **rewards}
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    for turn in range(repeats + 1):
        for place, (name, reward) in enumerate(arms.items()):
            texts = [f"a photo of {i} cats, {turn} {place}" for i in range(pictures)]  # none cached
            spent = _seconds(reward, texts, media, clock)
            if turn:
                seconds[name].append(spent)
        if progress is not None:
            progress("timing the full-size tower", turn + 1, repeats + 1)
    first = next(iter(rewards))
    ratios = [a / b for a, b in zip(seconds[""], seconds[first], strict=True)]
    alone = [sum(seconds[n][i] for n in rewards) for i in range(repeats)]
    gains = [a / b for a, b in zip(alone, seconds[""], strict=True)]
    return {
        "shared_over_single": statistics.median(ratios),
        "alone_over_shared": statistics.median(gains),
        "single": first,
        "shared": _speed(seconds[""], pictures),
        "alone": {name: _speed(seconds[name], pictures) for name in rewards},
    }


def bench_embedded(
    names: Sequence[str] | None = None,
    *,
    pictures: int = 16,
    repeats: int = 3,
    clock: Callable[[], float] = time.perf_counter,
    progress: Callable[[str, int, int], None] | None = None,
) -> dict[str, dict[str, Any]]:
    """Pictures per second of every named reward with the weights that it loads by itself, on 64 x
    64 pictures; for rewards of videos, frames per second of videos of 8. By default ``AT_HAND``.

    What can't be loaded or scored has the reason under ``error``.
    """
    results: dict[str, dict[str, Any]] = {}
    chosen = AT_HAND if names is None else list(names)
    for done, name in enumerate(chosen, 1):
        try:
            results[name] = _embedded(load_reward(name), pictures, repeats, clock)
        except (T2XError, ValueError, TypeError, RuntimeError, OSError) as error:
            results[name] = {"error": " ".join(str(error).split()) or type(error).__name__}
        if progress is not None:
            progress(f"timing {name}", done, len(chosen))
    return results


def _embedded(
    reward: RewardModel, pictures: int, repeats: int, clock: Callable[[], float]
) -> dict[str, Any]:
    media = _pictures(pictures, 64)
    context = Context(
        source=media.flip(-1),
        mask=torch.ones(pictures, 1, 64, 64),
        boxes=torch.tensor([0.0, 0.0, 1.0, 1.0]).repeat(pictures, 1, 1),
        questions=[["Is there a cat?"]] * pictures,
        user=["a"] * pictures,
        fps=8.0,
    )
    if reward.modality == "video":
        media = media.unsqueeze(1).repeat(1, FRAMES, 1, 1, 1)
    times = []
    for turn in range(repeats + 1):
        texts = [f'a cat with a sign "{i} {turn}"' for i in range(pictures)]
        times.append(_seconds(reward, texts, media, clock, context=context))
    frames = pictures * (FRAMES if reward.modality == "video" else 1)
    return _speed(times[1:], frames)


def _seconds(
    reward: RewardModel,
    texts: Sequence[str],
    media: Tensor,
    clock: Callable[[], float],
    *,
    context: Context | None = None,
) -> float:
    """Time of one call, to the end of what an accelerator still does."""
    start = clock()
    float(reward.score(texts, media, context=context).nan_to_num().sum())  # waits for the device
    return clock() - start


def _speed(seconds: Sequence[float], pictures: int) -> dict[str, Any]:
    middle = statistics.median(seconds)
    return {"seconds": middle, "pictures_per_second": pictures / middle}


def _pictures(count: int, size: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.rand(count, 3, size, size, generator=generator).mul(255).round().div(255)
