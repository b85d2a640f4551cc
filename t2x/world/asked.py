"""Asking measured: after how many questions does the picture show what a user had in mind?

    result = evaluate_asking(AskingSetup(n=200), store=Store("runs/asking"))

A simulated user has a held-out scene in mind and types a vague prompt. All arms ask the same users,
draw from the same seeds, and end in the same compiler of prompts; they differ in the order of
questions alone. The judge scores the picture after every answer.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from t2x.asking.elicitation import COMPARED, Elicitation
from t2x.asking.emoji_world import EmojiWorld, scene_values
from t2x.asking.influence import MeasuredInfluence
from t2x.asking.kinds import ROOT, Node
from t2x.asking.records import DOESNT_MATTER, Known
from t2x.asking.simulated import SimulatedUser, converse
from t2x.errors import T2XError
from t2x.evaluation.intervals import bootstrap_mean, paired_difference
from t2x.world.captions import dense_prompt, training_scene
from t2x.world.prompts import SPLITS
from t2x.world.scene import Scene
from t2x.world.words import articled, joined

if TYPE_CHECKING:
    from t2x.store import Store
    from t2x.types import Generator

__all__ = [
    "ARMS",
    "AskingSetup",
    "VaguePrompt",
    "evaluate_asking",
    "measured_influences",
    "vague_prompt",
]

# Arms by the strategy that chooses questions; "nothing" asks none.
ARMS: dict[str, str | None] = {
    "gain": "gain",
    "gain-alone": "gain-alone",
    "random": "random",
    "fixed": "fixed",
    "nothing": None,
}
Progress: TypeAlias = "Callable[[str, int, int], None]"  # what, done, total
Array: TypeAlias = "NDArray[np.floating[Any]]"
_BATCH = 32
_LEFT_OUT = 0.25  # share of two-group scenes whose second group the prompt does not name
_LEVELS = (0.4, 0.3, 0.3)  # how often a thing is named by class, by a narrow kind, by a wide one
_CALIBRATION = 12  # training scenes that influence is measured on


@dataclass(frozen=True)
class VaguePrompt:
    """What a simulated user types, ``text``, with the hidden ``scene``; its first ``stated`` groups
    are named."""

    text: str
    scene: Scene
    stated: int


@dataclass(frozen=True)
class AskingSetup:
    """What is compared.

    Args:
        n: hidden scenes.
        arms: names of ``ARMS``.
        questions: the most that is asked.
        seed: of scenes, prompts, slips and pictures.
        noise: how often the user's answer is a slip.
        generator: what draws.
        split: where hidden scenes are from: "held-out", or "validation".
    """

    n: int = 200
    arms: Sequence[str] = tuple(ARMS)
    questions: int = 6
    seed: int = 7
    noise: float = 0.02
    generator: str | Generator = field(default="emoji-flow-turbo")
    split: str = "held-out"

    def check(self) -> None:
        """Raise T2XError, before anything is loaded, for what can't be run."""
        if not self.arms or len(set(self.arms)) != len(self.arms):
            raise T2XError(f"the arms are {', '.join(self.arms) or 'none'}; give each once")
        if unknown := [name for name in self.arms if name not in ARMS]:
            raise T2XError(f"unknown arm {unknown[0]!r}; allowed: {', '.join(ARMS)}")
        if self.n < 1 or self.questions < 1:
            raise T2XError(f"n is {self.n} and questions {self.questions}; give at least 1")
        if not 0 <= self.noise <= 1:
            raise T2XError(f"noise is {self.noise}; give a probability from 0 to 1")
        if self.split not in SPLITS:
            raise T2XError(f"unknown split {self.split!r}; allowed: {', '.join(SPLITS)}")

    @cached_property
    def prompts(self) -> list[VaguePrompt]:
        """The users, the same for all arms."""
        rng = random.Random(f"vague {self.seed}")
        return [vague_prompt(p.scene, rng) for p in SPLITS[self.split](self.n, self.seed)]


def vague_prompt(scene: Scene, rng: random.Random) -> VaguePrompt:
    """What somebody types who has ``scene`` in mind and says little: no colours, no places, "cats"
    for any number of them, "an animal" for a cat, at times not the second thing.

    Something is always left open. The scene comes back with its groups as the prompt names them.
    """
    stated = len(scene.groups)
    if stated == 2 and rng.random() < _LEFT_OUT:
        stated = 1
    open_otherwise = stated < len(scene.groups) or scene.relation is not None
    open_otherwise |= any(g.color is not None or g.count > 1 for g in scene.groups)
    names = []
    for group in scene.groups[:stated]:
        levels = _LEVELS if open_otherwise else (0.0, *_LEVELS[1:])
        name = _named(group.cls, rng.choices(("class", "narrow", "wide"), levels)[0])
        names.append(name.plural if group.count > 1 else articled(name.name))
    return VaguePrompt(joined(names), scene, stated)


def _named(cls: str, level: str) -> Node:
    """A class itself, the smallest kind of things that holds it, or the widest below "thing"."""
    path = [ROOT]
    while path[-1].children:
        path.append(next(child for child in path[-1].children if cls in child.kinds))
    return path[{"class": -1, "narrow": -2, "wide": 1}[level]]


# ---- influence ----------------------------------------------------------------------------------


def measured_influences(
    generator: Generator, *, n: int = _CALIBRATION, progress: Progress | None = None
) -> dict[str, float]:
    """Mean influence of each family over ``n`` *training* scenes whose prompts leave it open, by
    pictures and emoji-clip; no judge."""
    rng = random.Random("influence of asking")
    found: dict[str, list[float]] = {}
    for number in range(n):
        prompt = vague_prompt(training_scene(rng), rng)
        subject = EmojiWorld(prompt.text, number)
        known = Known()
        if prompt.stated == 1 and number % 2:  # an added thing: places matter then
            known = known.only("more", frozenset("1"))
        features = subject.features(known, subject.intents(known))
        texts = {
            feature.family: [
                subject.text(known.after(feature, option.label))
                for option in feature.options[:COMPARED]
            ]
            for feature in features
        }
        measure = MeasuredInfluence(generator)
        measure.measure(texts, number)
        for family, value in measure.known.items():
            found.setdefault(family, []).append(value)
        if progress is not None:
            progress("measuring what features change", number + 1, n)
    return {family: float(np.nanmean(values)) for family, values in sorted(found.items())}


# ---- running ------------------------------------------------------------------------------------


@dataclass
class _Conversation:
    """One user in one arm: the prompts after 0 to Q answers, what was asked and answered."""

    texts: list[str]
    families: list[str]
    labels: list[str]


def evaluate_asking(
    setup: AskingSetup, *, store: Store | None = None, progress: Progress | None = None
) -> dict[str, Any]:
    """Score arms by the judge after 0 to ``questions`` answers; plain data for JSON.

    ``arms`` maps each name to overall and ci95 (after the last question), tasks, ``score`` and
    ``score_ci95`` after each number of questions, ``gain`` with ``gain_ci95`` of each question over
    the one before, ``mean`` over 1 to ``questions`` questions with ``mean_ci95``, ``asked`` (share
    of each family at each question), doesnt_matter (share of such answers) and questions (mean
    number that was asked). ``differences`` maps "A - B" to the paired difference of ``mean``, with
    ``after`` for each number of questions. ``complete`` is the score of the hidden scene told in
    full, which no asking can exceed but by luck.

    Raises T2XError for what ``AskingSetup.check`` refuses.
    """
    setup.check()
    from t2x.registry import load_generator

    generator = load_generator(setup.generator)
    judge = _Judged(generator, setup, store)
    influences = judge.influences(progress)
    talks = {name: _talks(name, setup, influences, progress) for name in setup.arms}
    complete = [dense_prompt(p.scene, setup.seed + i) for i, p in enumerate(setup.prompts)]
    wanted = {(i, text) for rows in talks.values() for i, t in enumerate(rows) for text in t.texts}
    judge.draw(sorted(wanted | set(enumerate(complete))), progress)
    return _table(setup, generator, influences, talks, judge, complete)


def _talks(
    name: str, setup: AskingSetup, influences: Mapping[str, float], progress: Progress | None
) -> list[_Conversation]:
    """What each user is asked in an arm, without pictures: the simulated user knows its mind."""
    rows = []
    for i, prompt in enumerate(setup.prompts):
        seed = setup.seed + i
        asking = Elicitation(
            prompt.text,
            subject=EmojiWorld(prompt.text, seed),
            strategy=ARMS[name] or "gain",
            influence=influences,
            seed=seed,
        )
        user = SimulatedUser(
            scene_values(prompt.scene, prompt.stated), noise=setup.noise, seed=seed
        )
        texts = converse(asking, user, setup.questions if ARMS[name] else 0)
        texts += texts[-1:] * (setup.questions + 1 - len(texts))
        families = [feature.family for feature in asking.asked]
        rows.append(_Conversation(texts, families, [answer.label for answer in asking.answers]))
        if progress is not None and (i % 10 == 9 or i + 1 == setup.n):
            progress(f"asking: {name}", i + 1, setup.n)
    return rows


class _Judged:
    """Draws pictures of (user, text), each once, and keeps whether they are right."""

    def __init__(self, generator: Generator, setup: AskingSetup, store: Store | None) -> None:
        self.generator, self.setup, self.store = generator, setup, store
        self.correct: dict[tuple[int, str], float] = {}
        self._identity = _identity(generator)

    def influences(self, progress: Progress | None) -> dict[str, float]:
        """``measured_influences``, once for a store."""
        key = self._key("asking influence", n=_CALIBRATION)
        known = self.store.get_result(key) if self.store is not None else None
        if known is None:
            known = measured_influences(self.generator, progress=progress)
            if self.store is not None:
                self.store.put_result(key, known)
        return known

    def draw(self, wanted: Sequence[tuple[int, str]], progress: Progress | None) -> None:
        """Draw and judge what is not in the store, batch by batch."""
        from t2x.world.arms import picture_seed
        from t2x.world.judge import judge_pictures

        missing = []
        for i, text in wanted:
            known = self.store.get_result(self._picture(i, text)) if self.store else None
            if known is None:
                missing.append((i, text))
            else:
                self.correct[i, text] = float(known["correct"])
        for start in range(0, len(missing), _BATCH):
            batch = missing[start : start + _BATCH]
            media = self.generator.generate(
                [text for _, text in batch],
                seeds=[picture_seed(self.setup.seed, i) for i, _ in batch],
            )
            verdicts = judge_pictures([self.setup.prompts[i].scene for i, _ in batch], media)
            for (i, text), verdict in zip(batch, verdicts, strict=True):
                self.correct[i, text] = float(verdict.correct)
                if self.store is not None:
                    self.store.put_result(
                        self._picture(i, text), {"correct": self.correct[i, text]}
                    )
            if progress is not None:
                progress("pictures", min(start + _BATCH, len(missing)), len(missing))

    def _picture(self, i: int, text: str) -> str:
        setup = self.setup
        scene = setup.prompts[i].scene.to_dict()
        return self._key("asking", scene=scene, text=text, seed=setup.seed, index=i)

    def _key(self, kind: str, **fields: Any) -> str:
        from t2x.store import make_key

        return make_key(kind, **self._identity, **fields)


def _identity(generator: Generator) -> dict[str, Any]:
    """All that decides a picture, beside text and seed."""
    from t2x import __version__
    from t2x.world.weights import weight_digests

    fingerprint = getattr(generator, "fingerprint", lambda: generator.model_id)
    return {
        "generator": fingerprint(),
        "weights": weight_digests(()),
        "t2x": __version__,
    }


# ---- tables -------------------------------------------------------------------------------------


def _table(
    setup: AskingSetup,
    generator: Generator,
    influences: Mapping[str, float],
    talks: Mapping[str, Sequence[_Conversation]],
    judge: _Judged,
    complete: Sequence[str],
) -> dict[str, Any]:
    from t2x import __version__

    tasks = [p.scene.task for p in setup.prompts]
    scores = {
        name: np.array([[judge.correct[i, t] for t in row.texts] for i, row in enumerate(rows)])
        for name, rows in talks.items()
    }
    whole = np.array([judge.correct[i, text] for i, text in enumerate(complete)])
    names = list(scores)
    return {
        "generator": generator.model_id,
        "split": setup.split,
        "n": setup.n,
        "seed": setup.seed,
        "noise": setup.noise,
        "questions": setup.questions,
        "pictures": len(judge.correct),
        "influences": dict(influences),
        "t2x": __version__,
        "complete": _interval(whole, tasks, setup.seed),
        "arms": {name: _row(scores[name], talks[name], tasks, setup.seed) for name in names},
        "differences": {
            f"{a} - {b}": _difference(scores[a], scores[b], tasks, setup.seed)
            for at, a in enumerate(names)
            for b in names[at + 1 :]
        },
    }


def _interval(values: Array, tasks: Sequence[str], seed: int) -> dict[str, Any]:
    found = bootstrap_mean(values, strata=tasks, seed=seed)
    return {"overall": found.mean, "ci95": [found.low, found.high]}


def _row(
    score: Array, talks: Sequence[_Conversation], tasks: Sequence[str], seed: int
) -> dict[str, Any]:
    """One arm's row; ``score`` is (n, questions + 1)."""
    steps = [_interval(score[:, k], tasks, seed) for k in range(score.shape[1])]
    gains = [_interval(score[:, k] - score[:, k - 1], tasks, seed) for k in range(1, len(steps))]
    mean = _interval(score[:, 1:].mean(axis=1), tasks, seed)
    families: dict[str, list[float]] = {}
    for family in sorted({f for talk in talks for f in talk.families}):
        families[family] = [
            sum(k < len(t.families) and t.families[k] == family for t in talks) / len(talks)
            for k in range(len(gains))
        ]
    labels = Counter(label for talk in talks for label in talk.labels)
    count = sum(labels.values())
    return {
        **steps[-1],
        "tasks": {
            task: float(score[[t == task for t in tasks], -1].mean())
            for task in dict.fromkeys(tasks)
        },
        "score": [step["overall"] for step in steps],
        "score_ci95": [step["ci95"] for step in steps],
        "gain": [gain["overall"] for gain in gains],
        "gain_ci95": [gain["ci95"] for gain in gains],
        "mean": mean["overall"],
        "mean_ci95": mean["ci95"],
        "asked": families,
        "doesnt_matter": labels[DOESNT_MATTER] / count if count else 0.0,
        "questions": count / len(talks),
    }


def _difference(a: Array, b: Array, tasks: Sequence[str], seed: int) -> dict[str, Any]:
    """The paired difference of the mean over the questions, and after each number of them."""
    whole = paired_difference(a[:, 1:].mean(axis=1), b[:, 1:].mean(axis=1), strata=tasks, seed=seed)
    after = [
        asdict(paired_difference(a[:, k], b[:, k], strata=tasks, seed=seed))
        for k in range(a.shape[1])
    ]
    return {**asdict(whole), "after": after}
