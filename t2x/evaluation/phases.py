"""The three phases of the demo: rewrite, draw, score.

Each loads what it was given by name and lets it go before the next begins, so that rewriter,
generator and rewards need not fit into memory together.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from t2x.errors import T2XError
from t2x.evaluation.side_by_side import ARMS, RewardColumn

if TYPE_CHECKING:
    from PIL.Image import Image

    from t2x.generators.prompt_syntax import PreparedPrompt
    from t2x.types import Generator, Media, RewardModel, Rewrite, Rewriter

log = logging.getLogger(__name__)

BATCH = 16  # pictures between two steps of the progress
Progress: TypeAlias = "Callable[[str, int, int], None]"  # what, done, total

__all__ = [
    "Drawn",
    "Progress",
    "Steps",
    "by_arm",
    "check_memory",
    "draw_phase",
    "name_of",
    "rewrite_phase",
    "score_phase",
    "unmeasured",
]


@dataclass
class Steps:
    """Tells how far the run is, and how long each phase took."""

    progress: Progress | None
    total: int
    done: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    begun: float = field(default_factory=time.perf_counter)

    def say(self, what: str) -> None:
        log.info("%s", what)
        if self.progress is not None:
            self.progress(what, self.done, self.total)

    @contextmanager
    def phase(self, name: str, what: str) -> Iterator[None]:
        self.say(what)
        begun = time.perf_counter()
        yield
        self.done += 1
        spent = time.perf_counter() - begun
        self.seconds[name] = round(self.seconds.get(name, 0.0) + spent, 3)

    def finish(self) -> dict[str, float]:
        self.say("done")
        return {**self.seconds, "total": round(time.perf_counter() - self.begun, 3)}


@dataclass(frozen=True)
class Drawn:
    """Pictures of both arms in one row, the original's first; of one arm if they are the same.

    ``prepared``: what became of each arm's syntax, where the generator can tell. ``batch``: the
    most pictures that were asked for at a time.
    """

    media: Media
    model_id: str
    settings: dict[str, Any]
    prepared: tuple[PreparedPrompt, ...] = ()
    batch: int = BATCH


def check_memory(rewriter: str | Rewriter, generator: str | Generator) -> None:
    """Say before anything is loaded or downloaded if the weights of a phase don't fit into memory.

    A warning and no error: weights may be loaded smaller than they are stored, and systems swap.
    """
    from t2x.devices import resolve_device
    from t2x.memory import PhasePlan, RunPlan, available_bytes

    unknown = {"beside": None}, {"resident": None}
    phases = [
        PhasePlan(kind, source, {"weights": _stored_bytes(source)}, *unknown)
        for kind, source in (("rewrite", rewriter), ("generate", generator))
        if isinstance(source, str)
    ]
    if not phases:
        return
    found = RunPlan(tuple(phases), available_bytes(resolve_device(None)))
    log.info("memory: %s", found.summary())
    if found.in_phases is False:
        log.warning("memory: %s", found.summary())


def _stored_bytes(name: str) -> int | None:
    """Bytes of a model's weights as they are stored, or None where that is unknown."""
    from t2x.generators.presets import preset_for
    from t2x.memory import weight_bytes
    from t2x.world.weights import EMBEDDED, require_model

    try:
        if name in EMBEDDED:
            return weight_bytes(require_model(name))
        preset = preset_for(name)
        if preset is not None and name == preset.name:
            return preset.download_bytes  # of the variant that is loaded
        return weight_bytes(name) if "/" in name or os.path.isdir(name) else None
    except (T2XError, OSError) as error:  # loading it says more
        log.info("size of %s is unknown: %s", name, error)
        return None


def rewrite_phase(
    source: str | Rewriter, generator: str | Generator, text: str, *, seed: int, steps: Steps
) -> Rewrite:
    """Load, rewrite within the token limits of ``generator``, let go."""
    from t2x.memory.machine import release_memory
    from t2x.rewriters.loading import load_guarded

    with steps.phase("rewrite", f"rewriting with {name_of(source)}"):
        guarded = load_guarded(source, generator=generator)
        answers: list[list[Rewrite]] = guarded.rewrite([text], seed=seed)
        if isinstance(source, str):
            del guarded
            release_memory()
    return answers[0][0]


def draw_phase(
    source: str | Generator,
    rewrite: Rewrite,
    seeds: tuple[int, ...],
    steps: Steps,
    *,
    options: Mapping[str, Any] | None = None,
    most: int | None = None,
) -> Drawn:
    """Load, draw both arms from the same seeds, let go. Arms that are the same are drawn once.

    ``options`` are those of loading; at ``most`` so many pictures are drawn at a time.
    """
    from t2x.generators.negatives import usable_negatives
    from t2x.memory.machine import release_memory
    from t2x.registry import load_generator

    texts = [(rewrite.original, ""), (rewrite.text, rewrite.negative)][: 1 + rewrite.changed]
    jobs = [(*text, seed) for text in texts for seed in seeds]
    parts: list[Media] = []
    with steps.phase("generate", f"loading {name_of(source)}"):
        model = load_generator(source, **(options or {})) if isinstance(source, str) else source
        if model.modality != "image":
            raise T2XError(f"{model.model_id} makes videos; the demo compares pictures")
        settings = _settings(model)
        size = min(BATCH, most or BATCH)
        for start in range(0, len(jobs), size):
            steps.say(f"drawing {len(jobs)} pictures with {model.model_id}, {start} done")
            prompts, negatives, numbers = zip(*jobs[start : start + size], strict=True)
            negative = usable_negatives(model, negatives)
            parts.append(model.generate(prompts, negative=negative, seeds=numbers))
        prepare = getattr(model, "prepare", None)
        prepared = () if prepare is None else tuple(prepare([text for text, _ in texts]))
        drawn = Drawn(_joined(parts), model.model_id, settings, prepared, size)
        if isinstance(source, str):
            del model, prepare  # a bound method holds its model
            release_memory()
    return drawn


def _settings(model: Generator) -> dict[str, Any]:
    """All that decides a picture but prompt and seed, for models that can tell.

    They are shown and nothing more: if they can't be read, the pictures are drawn all the same.
    """
    from t2x.generators.diffusion import DiffusionGenerator

    if not isinstance(model, DiffusionGenerator):
        return {}
    try:
        known = model.fingerprint()
    except Exception as error:
        log.warning("the settings of %s are unknown: %s", model.model_id, _reason(error))
        log.info("where it happened", exc_info=True)
        return {"settings": "unknown"}
    hidden = ("model_id", "scheduler_config", "versions")
    return {key: value for key, value in known.items() if key not in hidden}


def score_phase(
    source: str | RewardModel,
    prompt: str,
    media: Media,
    num: int,
    steps: Steps,
    *,
    most: int | None = None,
) -> RewardColumn:
    """Load, score every picture against the user's own words, at ``most`` so many at a time, let
    go."""
    from t2x.generators.loading import quiet
    from t2x.memory.machine import release_memory

    with steps.phase("score", f"scoring with {name_of(source)}"), quiet():
        try:
            column = _measure(source, prompt, media, num, most or len(media))
        except Exception as error:  # pictures are there: no reward may take them along
            problem = _reason(error)
            meant = isinstance(error, T2XError | OSError)
            log.warning(
                "reward %s is not measured: %s", name_of(source), problem, exc_info=not meant
            )
            column = unmeasured(source, num, problem)
        if isinstance(source, str):
            release_memory()
    return column


def unmeasured(source: str | RewardModel, num: int, problem: str) -> RewardColumn:
    """Give the column of a reward that has no score, and why."""
    nothing = (math.nan,) * num
    return RewardColumn(name_of(source), nothing, nothing, problem=problem)


def _reason(error: Exception) -> str:
    """One line; of errors that nobody raised on purpose, the kind as well."""
    text = " ".join(str(error).split())
    if isinstance(error, T2XError | OSError) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _measure(
    source: str | RewardModel, prompt: str, media: Media, num: int, most: int
) -> RewardColumn:
    import torch

    from t2x.registry import load_reward

    reward = load_reward(source) if isinstance(source, str) else source
    if reward.modality != "image":
        raise T2XError(f"{reward.name} scores videos, and these are pictures")
    parts = []
    for start in range(0, len(media), most):
        some = media[start : start + most]
        with torch.no_grad():
            scores = reward.score([prompt] * len(some), some)
        if tuple(scores.shape) != (len(some),):
            raise T2XError(
                f"{reward.name} gave scores of shape {tuple(scores.shape)} for {len(some)} pictures"
            )
        parts.append(scores)
    scores = torch.cat(parts)
    values = tuple(float(value) for value in scores.double().tolist())
    return RewardColumn(
        name=name_of(source),
        original=values[:num],
        rewritten=values[-num:],
        scale=reward.scale,
        range=(float(reward.range[0]), float(reward.range[1])),
    )


def by_arm(media: Media, num: int) -> dict[str, tuple[Image, ...]]:
    from t2x.media import to_pil

    images = tuple(to_pil(media))
    return dict(zip(ARMS, (images[:num], images[-num:]), strict=True))


def _joined(parts: list[Media]) -> Media:
    """Join batches: one tensor, or a list if the pictures differ in size."""
    import torch

    if all(isinstance(part, torch.Tensor) for part in parts):
        return torch.cat([part for part in parts if isinstance(part, torch.Tensor)])
    return [picture for part in parts for picture in part]


def name_of(source: Any) -> str:
    """Name a model as the caller did, or as it names itself."""
    if isinstance(source, str):
        return source
    return str(getattr(source, "model_id", None) or getattr(source, "name", type(source).__name__))
