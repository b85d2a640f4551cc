"""What people type: user prompts in many phrasing kinds, each with its true scene.

More than half of an evaluation is *plain*: words that the generator knows, in a style that it
handles badly. The rest are kinds that call for understanding; whole kinds (``HELD_OUT_KINDS``) are
kept from every training set. A hash of the text says which split a prompt belongs to, so that
training, validation and test never share one.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from t2x.world.captions import STYLES, telling_styles
from t2x.world.kinds import HELD_OUT_KINDS, KINDS, PLAIN_KINDS
from t2x.world.render import Placed
from t2x.world.scene import TASKS, Scene, sample_scene
from t2x.world.split import has_held_out_pair

__all__ = [
    "HELD_OUT_KINDS",
    "KINDS",
    "PLAIN_KINDS",
    "SEEN_KINDS",
    "SPLITS",
    "UserPrompt",
    "held_out_prompts",
    "kinds_for",
    "sample_prompt",
    "split_of",
    "training_caption",
    "training_prompt",
    "training_prompts",
    "training_text",
    "validation_prompts",
]

SEEN_KINDS: tuple[str, ...] = tuple(k for k in KINDS if k not in HELD_OUT_KINDS)
_OTHER_SEEN = tuple(k for k in SEEN_KINDS if k not in PLAIN_KINDS)
# Twenty prompts of one task: which pool of kinds each is drawn from. Plain ones lead, so that they
# are never under 55 %.
_PATTERN = ("plain",) * 11 + ("held_out", "seen") * 4 + ("held_out",)
_VALIDATION_PATTERN = ("plain",) * 11 + ("seen",) * 9
_PAIRED_TASKS = ("colors", "position", "color_attr")
_TRAINING_TASKS = {
    "single_object": 0.1,
    "two_object": 0.13,
    "counting": 0.13,
    "colors": 0.14,
    "position": 0.16,
    "color_attr": 0.14,
    "mixed": 0.2,
}
_PLAIN_SHARE = 0.25
_SAME_COLOR_SHARE = 0.15


@dataclass(frozen=True)
class UserPrompt:
    """``text`` as typed, the ``scene`` that it asks for, and its phrasing ``kind`` (a key of
    ``KINDS``).
    """

    text: str
    scene: Scene
    kind: str

    @property
    def task(self) -> str:
        """The task that the scene tests."""
        return self.scene.task


def kinds_for(scene: Scene) -> tuple[str, ...]:
    """Names of the kinds that can ask for ``scene``."""
    return tuple(name for name, kind in KINDS.items() if kind.suits(scene))


def sample_prompt(scene: Scene, kind: str, rng: random.Random) -> UserPrompt:
    """Ask for ``scene`` in one phrasing ``kind``; the prompt's own scene names its groups in the
    order of telling.

    Raises ``ValueError`` for an unknown kind and for one that cannot tell this scene.
    """
    if kind not in KINDS:
        raise ValueError(f"unknown kind {kind!r}; allowed: {', '.join(KINDS)}")
    if not KINDS[kind].suits(scene):
        raise ValueError(f"kind {kind!r} can't ask for {scene}; these can: {kinds_for(scene)}")
    scene = _reordered(scene, rng)
    text = KINDS[kind].write(scene, rng)
    if rng.random() < 0.15:
        text = text[0].upper() + text[1:]
    if rng.random() < 0.1 and text[-1].isalnum():
        text += "."
    return UserPrompt(text, scene, kind)


def _reordered(scene: Scene, rng: random.Random) -> Scene:
    """Tell the same scene from either side of its relation, or its groups in any order."""
    if scene.relation:
        return scene.mirrored() if rng.random() < 0.4 else scene
    return replace(scene, groups=tuple(rng.sample(scene.groups, len(scene.groups))))


def split_of(text: str) -> str:
    """``test``, ``validation`` or ``train``: fixed by the text, its case and its closing period
    left aside.
    """
    digest = hashlib.sha256(text.casefold().rstrip(".").encode()).digest()
    unit = int.from_bytes(digest[:8], "big") / 2**64
    return "test" if unit < 0.2 else "validation" if unit < 0.35 else "train"


def _draw_scene(task: str, rng: random.Random, *, kind: str = "", held_out: bool = False) -> Scene:
    """Draw a scene with or without held-out pairs, suited to ``kind`` if one is given."""
    want_pair = held_out and task in _PAIRED_TASKS
    while True:
        scene = sample_scene(task, rng)
        same = kind == "shared_attribute" or rng.random() < _SAME_COLOR_SHARE
        if task == "color_attr" and same:
            first, second = scene.groups
            scene = replace(scene, groups=(first, replace(second, color=first.color)))
        if has_held_out_pair(scene) == want_pair and (not kind or KINDS[kind].suits(scene)):
            return scene


def training_prompt(seed: int) -> UserPrompt:
    """The training prompt number ``seed``: no held-out pair, no held-out kind, no text of another
    split.
    """
    rng = random.Random(f"training {seed}")
    while True:
        task = rng.choices(list(_TRAINING_TASKS), list(_TRAINING_TASKS.values()))[0]
        scene = _draw_scene(task, rng)
        pool = PLAIN_KINDS if rng.random() < _PLAIN_SHARE else _OTHER_SEEN
        kind = rng.choice([k for k in pool if KINDS[k].suits(scene)])
        prompt = sample_prompt(scene, kind, rng)
        if split_of(prompt.text) == "train":
            return prompt


def training_prompts(n: int, seed: int = 0) -> list[UserPrompt]:
    """``n`` training prompts; other seeds give other ones."""
    rng = random.Random(seed)
    return [training_prompt(rng.getrandbits(48)) for _ in range(n)]


def training_text(scene: Scene, rng: random.Random, kinds: Sequence[str] = SEEN_KINDS) -> str:
    """A user's words for ``scene``, of the training split, in one of ``kinds`` that can tell it.

    ``kinds`` must hold one that has many ways to tell any scene, or the search may not end.
    """
    fit = [k for k in kinds if KINDS[k].suits(scene)]
    while True:
        text = sample_prompt(scene, rng.choice(fit), rng).text
        if split_of(text) == "train":
            return text


def training_caption(
    scene: Scene, placed: list[Placed], rng: random.Random, styles: Sequence[str]
) -> str:
    """A caption that tells ``scene`` in one of ``styles``, of the training split as a user's words
    are: plain captions read like them.

    ``styles`` must hold one with many ways to tell any scene (poetic), or the search may not end.
    """
    fit = telling_styles(scene, styles)
    while True:
        text = STYLES[rng.choice(fit)](scene, placed, rng)
        if split_of(text) == "train":
            return text


def _balanced(
    n: int, rng: random.Random, pattern: tuple[str, ...], *, split: str, held_out: bool
) -> list[UserPrompt]:
    """``n`` prompts that go round the tasks, their kinds drawn evenly from the pool that the
    pattern names.
    """
    pools = {"plain": PLAIN_KINDS, "seen": _OTHER_SEEN, "held_out": HELD_OUT_KINDS}
    prompts = []
    for index in range(n):
        task = TASKS[index % len(TASKS)]
        pool = pools[pattern[index // len(TASKS) % len(pattern)]]
        kind = rng.choice([k for k in pool if _tells(k, task)])
        while True:
            scene = _draw_scene(task, rng, kind=kind, held_out=held_out)
            prompt = sample_prompt(scene, kind, rng)
            if split_of(prompt.text) == split:
                break
        prompts.append(prompt)
    return prompts


def _tells(kind: str, task: str) -> bool:
    """Whether ``kind`` can ask for scenes of ``task``."""
    scene = sample_scene(task, random.Random(0))
    if task == "color_attr":
        scene = replace(scene, groups=tuple(replace(g, color="red") for g in scene.groups))
    return KINDS[kind].suits(scene)


def validation_prompts(n: int, seed: int = 0) -> list[UserPrompt]:
    """``n`` prompts to tune on: balanced over the tasks, 55 % plain, seen kinds and unheld pairs
    only.

    Their texts are in the training set of no language or reward model, and never among
    ``held_out_prompts``, whatever the seeds. The generator's own captions are not split by text.
    """
    rng = random.Random(f"validation {seed}")
    return _balanced(n, rng, _VALIDATION_PATTERN, split="validation", held_out=False)


def held_out_prompts(n: int, seed: int = 0) -> list[UserPrompt]:
    """``n`` test prompts: balanced over the tasks, at least 55 % plain, a quarter in held-out
    kinds, a fifth in other kinds.

    Where the task has colours or relations, every scene shows a held-out pair.
    """
    rng = random.Random(f"test {seed}")
    return _balanced(n, rng, _PATTERN, split="test", held_out=True)


# What is measured on, by name: a function of the number of prompts and a seed.
SPLITS: dict[str, Callable[[int, int], list[UserPrompt]]] = {
    "held-out": held_out_prompts,
    "validation": validation_prompts,
}
