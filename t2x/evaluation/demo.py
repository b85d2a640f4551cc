"""The main job end to end: one prompt with and without a rewrite, side by side.

Rewrite, draw both arms from the same seeds, score both against the user's own words. The phases
never share memory: the rewriter goes before the generator comes, and each reward goes before the
next. A reward that cannot be loaded or used is "not measured", and says why.
"""

from __future__ import annotations

import json
import logging
import math
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from t2x.errors import T2XError
from t2x.evaluation.side_by_side import ARMS, RewardColumn, SideBySide

if TYPE_CHECKING:
    from PIL.Image import Image

    from t2x.types import Generator, Media, RewardModel, Rewrite, Rewriter

log = logging.getLogger(__name__)

# What people type; all in the test split of the emoji world, so that no training has seen one.
EXAMPLES = (
    "two puppies to the left of a violet sofa",
    "the animal with a trunk next to a yellow parasol",
    "three violet doughnuts",
    "a golden lorry, nothing else",
    "draw me a navy automobile under a pink kite",
    "a lilac bike and a navy kitten",
    "the thing that tells the time, painted green, next to a laptop",
    "an airplane flying over two ponies",
)
REWARDS = ("clip", "hps", "aesthetic", "vqa")
FILES = ("compare.png", "report.html", "result.json")
_BATCH = 16  # pictures between two steps of the progress

Progress: TypeAlias = "Callable[[str, int, int], None]"

__all__ = ["EXAMPLES", "FILES", "REWARDS", "Progress", "pick_prompt", "run_demo"]


def pick_prompt(seed: int) -> str:
    """Give the example prompt of a seed."""
    return EXAMPLES[seed % len(EXAMPLES)]


def run_demo(
    prompt: str | None = None,
    *,
    out: str | Path | None = None,
    seed: int = 0,
    num: int = 4,
    rewriter: str | Rewriter = "emoji-rewriter",
    generator: str | Generator = "emoji-flow",
    rewards: Sequence[str | RewardModel] = REWARDS,
    progress: Progress | None = None,
) -> SideBySide:
    """Compare one prompt with and without a rewrite, and write ``FILES`` into ``out``.

    Args:
        prompt: what the user wants to see; None takes the example of the seed.
        out: folder for the files; None writes none.
        seed: seed of the rewrite and of the first picture; the next has seed + 1.
        num: pictures in each arm, from the same seeds in both.
        rewriter: name from ``t2x list``, folder, hub id or loaded object; it is wrapped in
            ``Guarded``.
        generator: the same for what draws; it must make pictures.
        rewards: names or loaded objects; those that fail are not measured.
        progress: hears (what is done now, steps done, steps in all).

    Raises ``T2XError`` for an empty prompt, an unknown name, missing weights of rewriter or
    generator, a reward given twice, and a folder that can't be written.
    """
    if num < 1:
        raise T2XError(f"num is {num}; give at least one picture for each arm")
    names = [_name(reward) for reward in rewards]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise T2XError(f"reward {twice[0]!r} is given twice; give each once")
    text = pick_prompt(seed) if prompt is None else prompt
    if not text.strip():
        raise T2XError("the prompt is empty; say what the picture should show")
    folder = None if out is None else _made(Path(out))
    steps = _Steps(progress, total=2 + len(rewards))
    rewrite = _rewrite(rewriter, text, seed, steps)
    seeds = tuple(range(seed, seed + num))
    drawn = _draw(generator, rewrite, seeds, steps)
    columns = tuple(_score(reward, text, drawn.media, num, steps) for reward in rewards)
    result = SideBySide(
        rewrite=rewrite,
        seeds=seeds,
        pictures=_by_arm(drawn.media, num),
        rewards=columns,
        generator=drawn.model_id,
        settings=drawn.settings,
        versions=_versions(),
        command=_command(text, seed, num, (rewriter, generator, rewards)),
        picked=prompt is None,
        seconds=steps.finish(),
    )
    if folder is not None:
        _write(result, folder)
    return result


@dataclass
class _Steps:
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
class _Drawn:
    """Pictures of both arms in one row, the original's first; of one arm if they are the same."""

    media: Media
    model_id: str
    settings: dict[str, Any]


def _rewrite(source: str | Rewriter, text: str, seed: int, steps: _Steps) -> Rewrite:
    """Load, rewrite, let go."""
    from t2x.generators.memory import release_memory
    from t2x.registry import load_rewriter
    from t2x.rewriters.guarded import Guarded

    with steps.phase("rewrite", f"rewriting with {_name(source)}"):
        model = load_rewriter(source) if isinstance(source, str) else source
        guarded = model if isinstance(model, Guarded) else Guarded(model)
        ((rewrite,),) = guarded.rewrite([text], seed=seed)
        if isinstance(source, str):
            del model, guarded
            release_memory()
    return rewrite


def _draw(
    source: str | Generator, rewrite: Rewrite, seeds: tuple[int, ...], steps: _Steps
) -> _Drawn:
    """Load, draw both arms from the same seeds, let go. Arms that are the same are drawn once."""
    from t2x.generators.memory import release_memory
    from t2x.registry import load_generator

    changed = rewrite.text != rewrite.original or bool(rewrite.negative)
    texts = [(rewrite.original, ""), (rewrite.text, rewrite.negative)][: 1 + changed]
    jobs = [(*text, seed) for text in texts for seed in seeds]
    parts: list[Media] = []
    with steps.phase("generate", f"loading {_name(source)}"):
        model = load_generator(source) if isinstance(source, str) else source
        if model.modality != "image":
            raise T2XError(f"{model.model_id} makes videos; the demo compares pictures")
        for start in range(0, len(jobs), _BATCH):
            steps.say(f"drawing {len(jobs)} pictures with {model.model_id}, {start} done")
            prompts, negatives, numbers = zip(*jobs[start : start + _BATCH], strict=True)
            negative = negatives if any(negatives) else None
            parts.append(model.generate(prompts, negative=negative, seeds=numbers))
        drawn = _Drawn(_joined(parts), model.model_id, _settings(model))
        if isinstance(source, str):
            del model
            release_memory()
    return drawn


def _settings(model: Generator) -> dict[str, Any]:
    """All that decides a picture but prompt and seed, for models that can tell."""
    from t2x.generators.diffusion import DiffusionGenerator

    if not isinstance(model, DiffusionGenerator):
        return {}
    hidden = ("model_id", "scheduler_config", "versions")
    return {key: value for key, value in model.fingerprint().items() if key not in hidden}


def _score(
    source: str | RewardModel, prompt: str, media: Media, num: int, steps: _Steps
) -> RewardColumn:
    """Load, score every picture against the user's own words, let go."""
    from t2x.generators.memory import release_memory

    with steps.phase("score", f"scoring with {_name(source)}"):
        try:
            column = _measure(source, prompt, media, num)
        except (T2XError, OSError) as error:
            problem = " ".join(str(error).split()) or type(error).__name__
            log.warning("reward %s is not measured: %s", _name(source), problem)
            nothing = (math.nan,) * num
            column = RewardColumn(_name(source), nothing, nothing, problem=problem)
        if isinstance(source, str):
            release_memory()
    return column


def _measure(source: str | RewardModel, prompt: str, media: Media, num: int) -> RewardColumn:
    import torch

    from t2x.registry import load_reward

    reward = load_reward(source) if isinstance(source, str) else source
    if reward.modality != "image":
        raise T2XError(f"{reward.name} scores videos, and these are pictures")
    with torch.no_grad():
        scores = reward.score([prompt] * len(media), media)
    if tuple(scores.shape) != (len(media),):
        raise T2XError(
            f"{reward.name} gave scores of shape {tuple(scores.shape)} for {len(media)} pictures"
        )
    values = tuple(float(value) for value in scores.double().tolist())
    return RewardColumn(
        name=_name(source),
        original=values[:num],
        rewritten=values[-num:],
        scale=reward.scale,
        range=(float(reward.range[0]), float(reward.range[1])),
    )


def _by_arm(media: Media, num: int) -> dict[str, tuple[Image, ...]]:
    from t2x.media import to_pil

    images = tuple(to_pil(media))
    return dict(zip(ARMS, (images[:num], images[-num:]), strict=True))


def _joined(parts: list[Media]) -> Media:
    """Join batches: one tensor, or a list if the pictures differ in size."""
    import torch

    if all(isinstance(part, torch.Tensor) for part in parts):
        return torch.cat([part for part in parts if isinstance(part, torch.Tensor)])
    return [picture for part in parts for picture in part]


def _name(source: Any) -> str:
    """Name a model as the caller did, or as it names itself."""
    if isinstance(source, str):
        return source
    return str(getattr(source, "model_id", None) or getattr(source, "name", type(source).__name__))


def _versions() -> dict[str, str]:
    from t2x.generators.identity import versions

    return versions()


def _command(text: str, seed: int, num: int, sources: tuple[Any, Any, Sequence[Any]]) -> str:
    """Write the command that gives the same pictures; loaded objects are named."""
    rewriter, generator, rewards = sources
    words = ["t2x", "demo", "--out", "out", "--seed", str(seed), "--num", str(num)]
    names = ",".join(map(_name, rewards))
    if _name(rewriter) != "emoji-rewriter":
        words += ["--rewriter", _name(rewriter)]
    if _name(generator) != "emoji-flow":
        words += ["--model", _name(generator)]
    if names != ",".join(REWARDS):
        words += ["--reward", names]
    return shlex.join([*words, *(["--"] if text.startswith("-") else []), text])


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise T2XError(f"cannot make the folder {str(folder)!r}: {error}") from error
    return folder


def _write(result: SideBySide, folder: Path) -> None:
    from t2x.evaluation.picture import draw_comparison
    from t2x.evaluation.report import report_page

    try:
        draw_comparison(result).save(folder / "compare.png", format="PNG")
        (folder / "report.html").write_text(report_page(result), encoding="utf-8")
        text = json.dumps(result.record(), ensure_ascii=False, indent=2, allow_nan=False)
        (folder / "result.json").write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise T2XError(f"cannot write into {str(folder)!r}: {error}") from error
