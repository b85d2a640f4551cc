"""A run of a benchmark: rewrite all, draw all, score all, each model freed before the next.

Killed at any moment, the same call goes on: rewrites and scores are lines of a job (``t2x.jobs``),
pictures are in a store, official files appear whole. The folder belongs to its settings; only arms
and rewards may change, since they add to what is there.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from t2x.benchmarks.catalogue import benchmark_named
from t2x.benchmarks.drawing import BATCH, ArmPlan, Gallery, draw_arm, plan_arm
from t2x.benchmarks.folder import ARMS, REWRITES, SCORES, SUMMARY, own_folder, tie
from t2x.benchmarks.layout import Benchmark, Item, OfficialFolder, problems
from t2x.benchmarks.marker import read_marker
from t2x.benchmarks.scoring import score_arm
from t2x.benchmarks.summary import score_lines, summarised
from t2x.errors import T2XError
from t2x.files import write_whole
from t2x.plain import json_line, plain
from t2x.store import Store

if TYPE_CHECKING:
    from t2x.types import Generator, RewardModel, Rewriter

STORE_BYTES = 1 << 50  # nothing may leave the store while a benchmark runs
FPS = 8  # as VBench's own script writes videos
_DRAWN_BY = "drawn by "
Progress: TypeAlias = "Callable[[str, int, int], None]"  # what, done, total
Texts: TypeAlias = "dict[str, tuple[str, str]]"  # text and negative prompt, by the item's key

__all__ = ["ARMS", "FPS", "BenchmarkSetup", "frames_a_second", "run_benchmark"]


@dataclass(frozen=True)
class BenchmarkSetup:
    """What a benchmark is run on.

    ``prompts``: the official file or folder. ``generator``, ``rewriter``, ``rewards``: names as the
    loaders take them, or loaded. ``samples``: pictures of each prompt; None is the official number.
    ``limit``: so many prompts, evenly spaced, to try things out; None is all. ``sampling``: options
    of ``load_generator``. ``fps``: of video files; None is that of the generator's preset, else
    ``FPS``.
    """

    benchmark: str
    prompts: str | Path
    out: str | Path
    generator: str | Generator = "emoji-flow"
    rewriter: str | Rewriter = "emoji-rewriter"
    arms: Sequence[str] = ARMS
    rewards: Sequence[str | RewardModel] = ()
    samples: int | None = None
    seed: int = 42
    limit: int | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)
    fps: int | None = None


def run_benchmark(
    setup: BenchmarkSetup, *, overwrite: bool = False, progress: Progress | None = None
) -> dict[str, Any]:
    """Run the arms and give the summary, which is also in ``summary.json``.

    Writes the official layout of each arm into ``out/ARM``, rewrites with their statuses into
    ``rewrites.jsonl`` and a line for each picture into ``scores.jsonl``. Raises T2XError for
    settings that don't fit each other or the folder, before anything is drawn; ``overwrite`` begins
    the folder anew. ``progress`` hears (what, done, total).
    """
    benchmark = benchmark_named(setup.benchmark)
    items = _chosen(benchmark.read(Path(setup.prompts)), setup.limit)
    _check(setup, benchmark, items)
    say = progress or (lambda what, done, total: None)
    folder = own_folder(Path(setup.out).absolute(), overwrite=overwrite)
    with _as_text(setup.generator), folder as out:
        tie(out, _settings(setup, items))
        texts, statuses = _texts(setup, items, out, say)
        plans = [
            plan_arm(benchmark, arm, items, texts[arm], samples=setup.samples, seed=setup.seed)
            for arm in ARMS
            if arm in setup.arms
        ]
        gallery = _gallery(setup, benchmark, out)
        for plan in plans:
            _draw(benchmark, plan, gallery, out, frames_a_second(setup), say)
        gallery.free()
        _release([setup.generator])
        scores = _score(setup, benchmark, plans, gallery, out, say)
        result = _result(setup, benchmark, plans, scores, statuses, out)
        lines = score_lines(benchmark, plans, scores)
        write_whole(out / SCORES, "".join(map(json_line, lines)))
        write_whole(out / SUMMARY, json.dumps(plain(result), ensure_ascii=False, indent=1) + "\n")
    return result


def _chosen(items: list[Item], limit: int | None) -> list[Item]:
    """All, or some that are evenly spaced, so that they are of all categories."""
    if limit is None or limit >= len(items):
        return items
    if limit < 1:
        raise T2XError(f"limit is {limit}; give at least 1, or leave it out")
    return [items[i * len(items) // limit] for i in range(limit)]


def _check(setup: BenchmarkSetup, benchmark: Benchmark, items: Sequence[Item]) -> None:
    """Refuse, before anything is loaded, what can't work."""
    from t2x.generators.guided import GuidedGenerator
    from t2x.registry import check_names, missing_dependency

    if unknown := [arm for arm in setup.arms if arm not in ARMS]:
        raise T2XError(f"unknown arm {unknown[0]!r}; allowed: {', '.join(ARMS)}")
    if not setup.arms:
        raise T2XError(f"no arm was named; allowed: {', '.join(ARMS)}")
    most = max(benchmark.samples_of(item, setup.samples) for item in items)
    if setup.samples is not None and setup.samples < 1:
        raise T2XError(f"samples is {setup.samples}; give at least 1, or leave it out")
    if benchmark.most_samples is not None and most > benchmark.most_samples:
        raise T2XError(
            f"the layout of {benchmark.facts.title} has room for {benchmark.most_samples} of each "
            f"prompt, and {most} were asked for; give fewer --images-per-prompt"
        )
    if isinstance(setup.generator, GuidedGenerator):
        raise T2XError("a guided generator is not supported here; give the generator inside it")
    check_names("generators", [setup.generator])
    check_names("rewriters", [setup.rewriter])
    check_names("rewards", setup.rewards)
    _check_rewards(setup, benchmark)
    if benchmark.modality == "video":
        try:
            import av  # noqa: F401
        except ModuleNotFoundError as error:
            raise missing_dependency(error) from error


def _check_rewards(setup: BenchmarkSetup, benchmark: Benchmark) -> None:
    """Refuse rewards of videos for pictures, as far as that is known; others are NaN."""
    from t2x.reward_facts import FACTS

    for source in setup.rewards:
        known = FACTS.get(source) if isinstance(source, str) else source
        if known is not None and known.modality == "video" and benchmark.modality == "image":
            name = source if isinstance(source, str) else source.name
            raise T2XError(f"{name} scores videos, and {benchmark.facts.title} has pictures")


def _settings(setup: BenchmarkSetup, items: Sequence[Item]) -> dict[str, Any]:
    """What must be the same for a run to go on where another stopped."""
    from t2x import __version__

    rows = json.dumps([[item.position, item.key, item.prompt, item.metadata] for item in items])
    settings: dict[str, Any] = plain(
        {
            "benchmark": setup.benchmark,
            "prompts": hashlib.sha256(rows.encode("ascii")).hexdigest(),
            "limit": setup.limit,
            "samples": setup.samples,
            "seed": setup.seed,
            "generator": _name(setup.generator),
            "sampling": dict(setup.sampling),
            "fps": frames_a_second(setup),
            "t2x": __version__,
        },
        exact=True,
    )
    return settings


def frames_a_second(setup: BenchmarkSetup) -> int:
    """Of video files: as asked for, else the model's own, else VBench's."""
    from t2x.generators.presets import preset_for

    known = preset_for(setup.generator) if isinstance(setup.generator, str) else None
    return setup.fps or (known.fps if known is not None else None) or FPS


def _name(model: Any) -> str:
    return model if isinstance(model, str) else str(getattr(model, "model_id", model))


def _texts(
    setup: BenchmarkSetup, items: Sequence[Item], out: Path, say: Progress
) -> tuple[dict[str, Texts], dict[str, int]]:
    """What each arm draws, and how many rewrites have which status."""
    texts: dict[str, Texts] = {"raw": {item.key: (item.prompt, "") for item in items}}
    if "rewrite" not in setup.arms:
        return texts, {}
    _rewrite(setup, items, out / REWRITES, say)
    rows = map(json.loads, (out / REWRITES).read_text("utf-8").rstrip("\n").split("\n"))
    found = {row["index"]: row["rewrites"][0] for row in rows}
    own: Texts = {}
    statuses: Counter[str] = Counter()
    for index, item in enumerate(items):
        answer = found.get(index, {"text": item.prompt, "negative": "", "status": "failed"})
        own[item.key] = answer["text"], answer["negative"]
        statuses[answer["status"]] += 1
    return {**texts, "rewrite": own}, dict(statuses)


def _rewrite(setup: BenchmarkSetup, items: Sequence[Item], file: Path, say: Progress) -> None:
    from t2x.jobs.lines import prompt_source
    from t2x.jobs.rewriting import rewrite_file
    from t2x.rewriters.loading import load_guarded

    rewriter, generator = setup.rewriter, setup.generator
    if not isinstance(generator, str):
        rewriter = load_guarded(rewriter, generator=generator)
    what = f"rewriting with {_name(setup.rewriter)}"
    rewrite_file(
        prompt_source([item.prompt for item in items]),
        file,
        rewriter=rewriter,
        seed=setup.seed,
        target=generator if isinstance(generator, str) else None,
        progress=lambda done, total: say(what, done, total or len(items)),
    )
    del rewriter
    _release([setup.rewriter])


def _release(sources: Sequence[Any]) -> None:
    """Give memory back, if something was loaded here: what came as an object is the caller's."""
    if not any(isinstance(source, str) for source in sources):
        return
    from t2x.memory.machine import release_memory

    release_memory()


def _gallery(setup: BenchmarkSetup, benchmark: Benchmark, out: Path) -> Gallery:
    """The store of the folder, tied to all that decides a picture; the generator is loaded only if
    one is missing, once that is known."""

    def load() -> Generator:
        model = _load(setup, benchmark)
        batch = getattr(model, "batch_size", BATCH)
        mark = {f"{_DRAWN_BY}{key}": value for key, value in _flat(_fingerprint(model)).items()}
        before = read_marker(out) or {}
        tie(out, {**mark, "batch": before.get("batch", batch)})
        return model

    loaded: list[Generator] = []
    if not any(key.startswith(_DRAWN_BY) for key in read_marker(out) or {}):
        loaded.append(load())
    settings = read_marker(out) or {}
    mark = {key: value for key, value in settings.items() if key.startswith(_DRAWN_BY)}
    return Gallery(
        Store(out / "store", max_bytes=STORE_BYTES),
        mark,
        lambda: loaded.pop() if loaded else load(),
        batch=settings["batch"],
    )


@contextmanager
def _as_text(generator: Any) -> Iterator[None]:
    """Let a loaded generator read prompts as text alone: brackets in a benchmark's prompts are no
    weights."""
    before = getattr(generator, "syntax", None)
    if before is None:
        yield
        return
    generator.syntax = "plain"
    try:
        yield
    finally:
        generator.syntax = before


def _load(setup: BenchmarkSetup, benchmark: Benchmark) -> Generator:
    from t2x.registry import load_generator

    model: Generator = load_generator(setup.generator, **setup.sampling)
    if model.modality != benchmark.modality:
        raise T2XError(
            f"{model.model_id} makes {model.modality}s, and {benchmark.facts.title} takes "
            f"{benchmark.modality}s; give another --generator"
        )
    if hasattr(model, "syntax"):
        model.syntax = "plain"
    return model


def _fingerprint(model: Generator) -> dict[str, Any]:
    own: Callable[[], dict[str, Any]] | None = getattr(model, "fingerprint", None)
    return {"model_id": model.model_id} if own is None else own()


def _flat(values: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Nested values by dotted names, so that a message can say which one has changed."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{before}{key}"
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{name}.")
        else:
            flat[name] = str(value) if isinstance(value, float) and abs(value) == inf else value
    return flat


def _draw(
    benchmark: Benchmark, plan: ArmPlan, gallery: Gallery, out: Path, fps: int, say: Progress
) -> None:
    """Draw an arm, and see that the official evaluator will find it."""
    folder = OfficialFolder(out / plan.name, out / "parts", fps)
    total = len(plan.flat)
    say(f"drawing {plan.name}", 0, total)
    for done in draw_arm(benchmark, plan, gallery, folder):
        say(f"drawing {plan.name}", done, total)
    if wrong := problems(benchmark, folder.root, plan.items, plan.samples):
        raise T2XError(
            f"{wrong[0]} in {str(folder.root)!r}"
            + (f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else "")
            + "; something else wrote there: --overwrite to start anew"
        )


def _score(
    setup: BenchmarkSetup,
    benchmark: Benchmark,
    plans: Sequence[ArmPlan],
    gallery: Gallery,
    out: Path,
    say: Progress,
) -> dict[str, dict[str, list[float]]]:
    """Scores by arm and reward."""
    if not setup.rewards:
        return {plan.name: {} for plan in plans}
    from t2x.registry import load_reward

    rewards = {
        source if isinstance(source, str) else source.name: load_reward(source)
        for source in setup.rewards
    }
    scores = {
        plan.name: score_arm(
            plan,
            gallery,
            rewards,
            out / "scores",
            modality=benchmark.modality,
            progress=partial(say, f"scoring {plan.name}"),
        )
        for plan in plans
    }
    rewards.clear()
    _release(setup.rewards)
    return scores


def _result(
    setup: BenchmarkSetup,
    benchmark: Benchmark,
    plans: Sequence[ArmPlan],
    scores: Mapping[str, Mapping[str, Sequence[float]]],
    statuses: Mapping[str, int],
    out: Path,
) -> dict[str, Any]:
    facts, items = benchmark.facts, plans[0].items
    samples = benchmark.samples_of(items[0], setup.samples)
    prompts = Path(setup.prompts).absolute()
    return {
        "benchmark": benchmark.name,
        "title": facts.title,
        "out": str(out),
        "prompts": len(items),
        "rewrites": dict(statuses),
        **summarised(plans, scores),
        "files": {p.name: {"folder": str(out / p.name), "pictures": len(p.flat)} for p in plans},
        "notes": _notes(benchmark, items, statuses),
        "next": {
            "repository": f"https://github.com/{facts.repository}",
            "commit": facts.commit,
            "commands": {
                plan.name: benchmark.commands(out / plan.name, prompts, items, samples)
                for plan in plans
            },
        },
    }


def _notes(benchmark: Benchmark, items: Sequence[Item], statuses: Mapping[str, int]) -> list[str]:
    facts = benchmark.facts
    notes = [f"scores are of t2x's rewards and not {facts.title}'s own, which its evaluator gives"]
    if len(items) != facts.prompts:
        notes.append(f"{len(items)} prompts; the official set has {facts.prompts}")
    if not any(item.categories for item in items):
        notes.append("the prompts came without the benchmark's categories")
    if kept := sum(statuses.get(name, 0) for name in ("reverted", "failed")):
        notes.append(
            f"{kept} of {len(items)} rewrites did not pass; their prompts are as they were"
        )
    if benchmark.compressed:
        notes.append("t2x's rewards saw the pictures before they were compressed for the evaluator")
    return notes
