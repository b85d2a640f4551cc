"""How fast rewards are: together over one shared tower, and each on its own.

*Together* is a ``RewardEnsemble``, which runs the tower once; *alone* is what a loop over rewards
does, each running the tower again. Both use the same weights, numbers, pictures and threads, and
take turns, so that what else the machine does hits both. Full-size weights are random: speed does
not depend on them. What can't be measured is NaN, with the reason.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor
from torch.nn.modules.module import register_module_forward_pre_hook

from t2x.errors import T2XError
from t2x.registry import REWARDS, load_reward
from t2x.reward_facts import FACTS
from t2x.scoring.ensemble import RewardEnsemble
from t2x.scoring.full_size import FULL_SIZE, TOWERS, FullSize, fitted
from t2x.types import Context

if TYPE_CHECKING:
    from t2x.types import RewardModel

FRAMES, FEW_FRAMES = 8, 2
# The first one is the single reward that the sum is compared with.
SHARED = ("clip", "laion-v1", "laion-v2", "vlm-rm")
ENOUGH = 3.0
"""Seconds after which no further round is begun, once one counts."""

# What needs no download: a benchmark fetches nothing.
AT_HAND = [name for name, facts in FACTS.items() if facts.download in ("embedded", "no weights")]
_FITTED = ("pal", "rl-vlm-f")
_PACKAGED = ("ocr",)  # models in the wheel of its extra
_ERRORS = (T2XError, ValueError, TypeError, RuntimeError, OSError)

__all__ = ["AT_HAND", "SHARED", "bench_embedded", "bench_full_size", "bench_shared", "stop_after"]

Clock: TypeAlias = Callable[[], float]
Progress: TypeAlias = Callable[[str, int, int], None]
Loader: TypeAlias = Callable[[], "RewardModel"]


@dataclass(frozen=True)
class _Settings:
    """What is timed, and for how long."""

    pictures: int
    size: int
    frames: int
    repeats: int
    limit: float
    clock: Clock


class TooSlow(T2XError):
    """A reward took longer than it was given."""


@contextmanager
def stop_after(seconds: float, clock: Clock = time.perf_counter) -> Iterator[None]:
    """Raise ``TooSlow`` from the first module that is called later than that."""
    end = clock() + seconds

    def check(module: Any, inputs: Any) -> None:
        if clock() > end:
            raise TooSlow(f"one call took longer than {seconds:g} s; give a longer time limit")

    handle = register_module_forward_pre_hook(check)
    try:
        yield
    finally:
        handle.remove()


def bench_shared(
    tower: Any,
    entries: Mapping[str, FullSize] | None = None,
    *,
    pictures: int = 1,
    size: int = 224,
    repeats: int = 3,
    device: str = "cpu",
    clock: Clock = time.perf_counter,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Time rewards on ``tower``, those of ``SHARED`` unless ``entries`` are given, together and
    each alone on ``pictures`` of ``size`` pixels.

    Gives ``shared_over_single``: time of all together over that of the first alone, the median over
    ``repeats`` rounds after one that does not count; ``alone_over_shared``: the sum of all alone
    over all together; ``shared`` and ``alone`` with seconds per batch and pictures per second.
    ``clock`` in seconds; ``time.process_time`` is the better one for a single CPU thread on a
    machine that does other things.
    """
    chosen = {name: FULL_SIZE[name] for name in SHARED} if entries is None else entries
    rewards = {name: entry.load(tower, device) for name, entry in chosen.items()}
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
            progress("timing rewards together and alone", turn + 1, repeats + 1)
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
    limit: float = math.inf,
    clock: Clock = time.perf_counter,
    progress: Progress | None = None,
) -> dict[str, dict[str, Any]]:
    """Pictures per second of every named reward, by default all, with weights that are at hand, on
    64 x 64 pictures; for rewards of videos, frames per second of ``FRAMES`` each.

    Those that are fitted by their user get random weights on emoji-clip. A reward gives
    ``seconds`` per batch, ``pictures_per_second`` and ``rounds``, how many counted, which is 0 if
    there was time for the first call only. NaN with a ``reason``: what has no weights at hand or
    can't score, and what takes longer than ``limit`` seconds a call.
    """
    results: dict[str, dict[str, Any]] = {}
    chosen = sorted(REWARDS) if names is None else list(names)
    settings = _Settings(pictures, 64, FRAMES, repeats, limit, clock)
    for done, name in enumerate(chosen, 1):
        results[name] = _measured(partial(_at_hand, name), settings)
        if progress is not None:
            progress(f"timing {name}", done, len(chosen))
    return results


def bench_full_size(
    names: Sequence[str] | None = None,
    *,
    pictures: int = 1,
    size: int = 224,
    repeats: int = 3,
    limit: float = math.inf,
    device: str = "cpu",
    clock: Clock = time.perf_counter,
    progress: Progress | None = None,
) -> dict[str, dict[str, Any]]:
    """Pictures per second of the named rewards, by default all, on networks of published size
    (:mod:`t2x.scoring.full_size`), built one after the other; of videos, of ``FEW_FRAMES``.

    As :func:`bench_embedded`, with the ``tower`` and a ``note`` beside it. NaN with a ``reason``
    also for what does not fit into memory, before it is built.
    """
    results: dict[str, dict[str, Any]] = {}
    known = {k: e for k, e in FULL_SIZE.items() if names is None or k.split()[0] in names}
    for name in () if names is None else names:
        if not any(key.split()[0] == name for key in known):
            results[name] = _missing("there is no network of full size for it")
    settings = _Settings(pictures, size, FEW_FRAMES, repeats, limit, clock)
    for tower_name, group in groupby(known.items(), lambda item: item[1].tower):
        tower, problem = _built(tower_name, device)
        for name, entry in group:
            found = problem or _measured(partial(entry.load, tower, device), settings)
            about = {"tower": entry.tower, "note": entry.note}
            results[name] = {**{k: v for k, v in about.items() if v}, **found}
            if progress is not None:
                progress(f"timing {name} in full size", len(results), len(known))
        del tower
        gc.collect()
    return results


def _built(tower: str, device: str) -> tuple[Any, dict[str, Any] | None]:
    """A tower, or why there is none."""
    try:
        return TOWERS[tower](device), None
    except _ERRORS as error:
        return None, _missing(error)


def _at_hand(name: str) -> RewardModel:
    if name in _FITTED:
        return fitted(name, "emoji-clip")
    if name in FACTS and name not in AT_HAND and name not in _PACKAGED:
        raise T2XError(f"no weights are embedded; they are a download of {FACTS[name].download}")
    return load_reward(name)


def _measured(load: Loader, settings: _Settings) -> dict[str, Any]:
    try:
        return _rounds(load(), settings)
    except _ERRORS as error:
        return _missing(error)


def _missing(reason: object) -> dict[str, Any]:
    text = " ".join(str(reason).split()) or type(reason).__name__
    return {"seconds": math.nan, "pictures_per_second": math.nan, "reason": text}


def _rounds(reward: RewardModel, settings: _Settings) -> dict[str, Any]:
    """Time calls: one that does not count, and up to ``repeats`` more while there is time."""
    count, size, limit = settings.pictures, settings.size, settings.limit
    media = _pictures(count, size)
    context = Context(
        source=media.flip(-1),
        mask=torch.ones(count, 1, size, size),
        boxes=torch.tensor([0.0, 0.0, 1.0, 1.0]).repeat(count, 1, 1),
        questions=[["Is there a cat?"]] * count,
        user=["a"] * count,
        fps=8.0,
    )
    is_video = reward.modality == "video"
    if is_video:
        media = media.unsqueeze(1).repeat(1, settings.frames, 1, 1, 1)
    times: list[float] = []

    def call() -> None:
        texts = [f'a cat with a sign "{i} {len(times)}"' for i in range(count)]
        times.append(_seconds(reward, texts, media, settings.clock, context=context))

    with stop_after(limit, settings.clock):
        call()
    while len(times) <= settings.repeats and sum(times) + times[-1] <= limit:
        if len(times) > 1 and sum(times) >= ENOUGH:
            break
        call()
    speed = _speed(times[1:] or times, count * (settings.frames if is_video else 1))
    return {**speed, "rounds": len(times) - 1}


def _seconds(
    reward: RewardModel,
    texts: Sequence[str],
    media: Tensor,
    clock: Clock,
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
