"""From the name of an arm to what writes its texts.

An arm is ``raw`` (the user's words), ``dense`` (the true scene in the best single style),
``rules``, ``rewrite`` (the embedded rewriter), the name of a training recipe (the model of its run
in ``runs/NAME/model``), the name, folder or hub id of any rewriter, or ``NAME=SOURCE``, where
SOURCE is one of the above and NAME what the table calls it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from t2x.errors import T2XError, UnknownNameError
from t2x.prompts.protect import protect
from t2x.registry import RECIPES, known_names, load_rewriter, looks_local
from t2x.rewriters.guarded import Guarded
from t2x.world.captions import dense_prompt
from t2x.world.prompts import UserPrompt
from t2x.world.scene import TASKS

if TYPE_CHECKING:
    from t2x.types import Generator, Rewrite, Rewriter

__all__ = [
    "LoadedArm",
    "Writer",
    "check_arms",
    "check_sources",
    "load_arm",
    "named_arms",
    "picture_seed",
]

# What an arm writes for each prompt: a text, or one with its negative prompt.
Writer: TypeAlias = "Callable[[Sequence[UserPrompt]], Sequence[str | tuple[str, str]]]"
_REFERENCES = ("raw", "dense", "rewrite")
RUNS = Path("runs")


def picture_seed(seed: int, index: int, number: int = 0) -> int:
    """The noise of picture ``number`` of sample ``index``, the same in every arm: 63 bits."""
    name = f"picture {seed} {index}" + (f" {number}" if number else "")
    digest = hashlib.sha256(name.encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


# ---- names --------------------------------------------------------------------------------------


def named_arms(arms: Sequence[str]) -> dict[str, str]:
    """What each arm is called, and where its texts come from.

    Raises T2XError for a name given twice, an empty one, the name of a recipe without a run, and
    the folder of a run that is not finished.
    """
    found: dict[str, str] = {}
    for arm in arms:
        name, equals, source = (part.strip() for part in arm.partition("="))
        if equals and not (name and source):
            raise T2XError(f"an arm is a name, or NAME=FOLDER; got {arm!r}")
        if name in found:
            raise T2XError(f"the arms are {', '.join(arms)}; give each once")
        found[name] = _model_of(source) if equals else _source(name)
    return found


def _model_of(source: str) -> str:
    """Of the folder of a run, its model; of anything else, itself. T2XError for an unfinished
    run."""
    if source in _REFERENCES or not Path(source).is_dir():
        return source
    from t2x.training.export import find_trained

    return find_trained(source).source


def _source(name: str) -> str:
    """Of the name of a recipe, the model of its run; of any other name, the name itself."""
    if name in (*_REFERENCES, *known_names("rewriters")) or name not in RECIPES:
        return name
    folder = RUNS / name / "model"
    if folder.is_dir():
        return str(folder)
    raise T2XError(
        f"the arm {name!r} is a trained run, and there is no folder {str(folder)!r}; make it with "
        f"`t2x train {name} --config world/{name}`, or say where the model is: "
        f"{name}=FOLDER"
    )


def check_arms(arms: Mapping[str, str], n: int) -> None:
    """Raise T2XError for arms that can't be run with one picture each, or too few prompts."""
    from t2x.search.loading import method_of

    if searching := [source for source in arms.values() if method_of(source)]:
        raise T2XError(
            f"{searching[0]} draws several pictures of each prompt; give every arm the same number "
            "with --budget (t2x.world.search_arms)"
        )
    if not arms:
        raise T2XError(
            "the arms are none; give one or more, each once, out of "
            "raw, rules, dense, rewrite, recipes and the names of rewriters"
        )
    check_sources(arms)
    if n < len(TASKS):
        raise T2XError(
            f"{n} prompts do not reach all {len(TASKS)} tasks; give at least {len(TASKS)}"
        )


def check_sources(arms: Mapping[str, str]) -> None:
    """Raise T2XError for arms, names to sources, that ``load_arm`` could not load; before the
    generator is, so a folder or hub id may be anything, while a bare name is known."""
    names = (*_REFERENCES, *known_names("rewriters"))
    for name, source in arms.items():
        if source in names or Path(source).is_dir():
            continue
        if looks_local(source):
            raise T2XError(f"there is no folder {source!r}, which the arm {name!r} is given as")
        if not set(source) & set("/:\\"):
            missing = "" if name == source else f", and there is no folder {source!r}"
            raise UnknownNameError(
                f"unknown arm {source!r}{missing}; allowed: {', '.join(names)}, a recipe with a "
                f"run ({', '.join(RECIPES)}), or NAME=SOURCE with a rewriter's folder, "
                "hub id owner/model or 'package.module:Attr'"
            )


# ---- texts --------------------------------------------------------------------------------------


@dataclass
class LoadedArm:
    """An arm that can write: ``texts(prompts, group)`` gives ``group`` texts with their negative
    prompts for each prompt. Of an arm that asks a rewriter, ``proposals`` are its records before
    they were checked and ``rewrites`` what became of them, the first for each prompt of the last
    call; both are empty for one that asks none."""

    texts: Callable[[Sequence[UserPrompt], int], list[list[tuple[str, str]]]]
    rewrites: list[Rewrite] = field(default_factory=list)
    proposals: list[Rewrite] = field(default_factory=list)
    tokenizer: Any = None

    def write(self, prompts: Sequence[UserPrompt]) -> list[tuple[str, str]]:
        """One text for each prompt."""
        return [row[0] for row in self.texts(prompts, 1)]

    @property
    def tokens_written(self) -> float:
        """Mean tokens of what the language model wrote for a prompt, reasoning included; 0 for an
        arm without one, NaN where its tokenizer is not at hand."""
        raw = [r.raw for r in self.rewrites]
        if not any(raw):
            return 0.0
        if self.tokenizer is None:
            return float("nan")
        ids = self.tokenizer(raw, add_special_tokens=False)["input_ids"]
        return sum(map(len, ids)) / len(ids)


def load_arm(source: str, generator: Generator, seed: int) -> LoadedArm:
    """Load what writes the texts of an arm for ``generator``."""
    if source == "raw":
        return LoadedArm(lambda prompts, group: [[(p.text, "")] * group for p in prompts])
    if source == "dense":
        return LoadedArm(
            lambda prompts, group: [
                [(dense_prompt(p.scene, picture_seed(seed, i, g)), "") for g in range(group)]
                for i, p in enumerate(prompts)
            ]
        )
    rewriter, inner = _load_rewriter(source, generator)

    def write(prompts: Sequence[UserPrompt], group: int) -> list[list[tuple[str, str]]]:
        texts = [p.text for p in prompts]
        rows = rewriter.rewrite(texts, num_generations=group, seed=seed)
        arm.rewrites = [row[0] for row in rows]
        arm.proposals = arm.rewrites if inner is None else [inner.of(text) for text in texts]
        return [[(r.text, r.negative) for r in row] for row in rows]

    arm = LoadedArm(write, tokenizer=getattr(inner and inner.rewriter, "tokenizer", None))
    return arm


class _Recording:
    """Hands prompts on to a rewriter and keeps its records, which a guard may revert."""

    def __init__(self, rewriter: Rewriter) -> None:
        self.rewriter, self.model_id = rewriter, rewriter.model_id
        self._told: dict[str, Rewrite] = {}

    def rewrite(
        self, prompts: Sequence[str], *, num_generations: int = 1, seed: int = 0
    ) -> list[list[Rewrite]]:
        """As the rewriter does."""
        found = self.rewriter.rewrite(prompts, num_generations=num_generations, seed=seed)
        self._told |= {prompt: row[0] for prompt, row in zip(prompts, found, strict=True)}
        return found

    def of(self, prompt: str) -> Rewrite:
        """What was proposed for the first part of a prompt that a guard handed on; the user's own
        words if it handed on none."""
        from t2x.types import Rewrite

        known = [self._told[text] for text in protect(prompt).sources if text in self._told]
        return known[0] if known else Rewrite(prompt, prompt, status="unchanged")


def _load_rewriter(name: str, generator: Generator) -> tuple[Rewriter, _Recording | None]:
    """The rules bare, as one would write them; every model inside the wrapper that checks it, and
    what keeps its proposals."""
    from t2x.rewriters.loading import load_guarded

    if name == "rules":
        return load_rewriter(name), None
    guarded = load_guarded("emoji-rewriter" if name == "rewrite" else name, generator=generator)
    if not isinstance(guarded, Guarded):
        return guarded, None
    inner = _Recording(guarded.rewriter)
    guarded.rewriter = inner
    return guarded, inner
