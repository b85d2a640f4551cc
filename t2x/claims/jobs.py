"""Jobs of a claim: each one run of a recipe or one evaluation, named by the content of all that
decides its result, so that none is run twice, by no claim.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from t2x.claims.protocol import Arm, Claim, Step

__all__ = ["ARM", "Job", "Plan", "make_plan"]

ARM = "arm"  # what every evaluation calls the model that it measures
_POLICIES = ("emoji-rewriter", "emoji-lm")
_TEMPLATE_OF = r"template_of\W+([\w-]+)"  # in JSON and in an override


@dataclass(frozen=True)
class Job:
    """One process: ``arguments`` of the command t2x, with ``{work}`` for the folder of all jobs.

    ``key`` names its content, ``after`` are the keys of the jobs that it needs. A training is cut
    at ``minutes`` and goes on, ``slices`` times at most; an evaluation has one slice.
    """

    key: str
    label: str
    arguments: tuple[str, ...]
    after: tuple[str, ...] = ()
    minutes: float = 20.0
    slices: int = 1

    @property
    def kind(self) -> str:
        """What the time of a job is guessed from."""
        return " ".join(self.arguments[:2])


@dataclass(frozen=True)
class Plan:
    """Jobs of a claim, those first that others need; ``runs`` maps (arm, seed) to the keys of its
    steps and its evaluation, in order."""

    claim: Claim
    jobs: tuple[Job, ...]
    runs: dict[tuple[str, int], tuple[str, ...]]


def make_plan(claim: Claim) -> Plan:
    """Turn a claim into jobs, seed by seed, so that an interrupted queue leaves whole seeds.

    Raises T2XError for a recipe or a configuration that is not there.
    """
    jobs: dict[str, Job] = {}
    runs = {}
    for seed in claim.seeds:
        for name, arm in claim.arms.items():
            chain = _chain(claim, name, arm, seed)
            jobs |= {job.key: job for job in chain if job.key not in jobs}
            runs[name, seed] = tuple(job.key for job in chain)
    return Plan(claim, tuple(jobs.values()), runs)


def _chain(claim: Claim, name: str, arm: Arm, seed: int) -> list[Job]:
    chain: list[Job] = []
    made: dict[str, str] = {}  # name of a step -> KEY/run/PRODUCT
    for step in arm.steps:
        chain.append(_run(step, seed, made))
        made[step.called] = f"{chain[-1].key}/run/{step.product}"
    source = f"{{work}}/{made[arm.steps[-1].called]}" if arm.steps else arm.source
    chain.append(_evaluation(claim, f"{name}, seed {seed}", source))
    return chain


def _run(step: Step, seed: int, made: Mapping[str, str]) -> Job:
    """A step as a job; what it names of earlier ones goes into its key as their keys."""
    if step.command:
        words = [_filled(text, made, seed=str(seed)) for text in step.command]
        key = _key({"command": words, "product": step.product})
        arguments = [word.replace("{out}", f"{{work}}/{key}/run/{step.product}") for word in words]
    else:
        path = _config(step)
        overrides = [_filled(text, made, seed=str(seed)) for text in step.overrides]
        values = yaml.safe_load(path.read_text("utf-8"))
        content = {"recipe": step.recipe, "config": values, "overrides": overrides, "seed": seed}
        key = _key(content)
        arguments = ["train", step.recipe, "--config", str(path), "--json", *overrides]
        arguments += [f"run.out={{work}}/{key}/run", f"run.seed={seed}", "run.threads=1"]
    needed = [path.partition("/")[0] for path in made.values()]
    after = tuple(name for name in needed if any(name in text for text in arguments))
    label = f"{step.called}, seed {seed}"
    return Job(key, label, tuple(arguments), after, step.minutes, step.slices)


def _config(step: Step) -> Path:
    from t2x.config import find_config
    from t2x.errors import UnknownNameError
    from t2x.registry import RECIPES

    if step.recipe not in RECIPES:
        raise UnknownNameError(f"unknown recipe {step.recipe!r}; allowed: {', '.join(RECIPES)}")
    return find_config(step.config)


def _filled(text: str, made: Mapping[str, str], *, seed: str) -> str:
    """Put the seed and paths of earlier steps into a text; ``{work}`` and ``{out}`` stay."""
    for name, path in made.items():
        text = text.replace(f"{{{name}}}", f"{{work}}/{path}")
    return text.replace("{seed}", seed)


def _evaluation(claim: Claim, label: str, source: str) -> Job:
    """Measure a model. The seed of training is no part of it, but of the model's own key; a source
    that is not trained is measured once for all seeds."""
    how = claim.evaluation
    command = ["eval", "world", "--no-gap"]
    if how.group > 1:
        command = ["eval", "sets", "--group", str(how.group)]
    options = ["--rows", "--n", str(how.n), "--seed", str(how.seed), "--model", how.generator]
    arguments = (*command, "--arms", f"{ARM}={source}", *options, "--json")
    after = (source.split("/")[1],) if source.startswith("{work}/") else ()
    return Job(
        _key({"command": arguments}), f"evaluation of {label}", arguments, after, how.minutes
    )


def _key(content: Mapping[str, Any]) -> str:
    """Name a job by what it does, the version of t2x and the embedded weights that it may use."""
    from t2x import __version__

    text = json.dumps(content, sort_keys=True, default=str)
    used = {"content": text, "t2x": __version__, "weights": _weights(_policies(content, text))}
    used |= {"templates": _templates(text)}
    digest = hashlib.sha256(json.dumps(used, sort_keys=True).encode()).hexdigest()[:16]
    kind = content.get("recipe") or content["command"][0]
    return f"{kind}-{digest}"


def _policies(content: Mapping[str, Any], text: str) -> set[str]:
    """Which embedded policies a job may start from: those that it names, or a recipe's default."""
    starts = re.sub(_TEMPLATE_OF, "", text)
    named = {name for name in _POLICIES if name in starts}
    given = isinstance(content.get("config"), dict) and content["config"].get("policy")
    if (
        "recipe" in content
        and not given
        and not any("policy.model=" in o for o in content["overrides"])
    ):
        named.add("emoji-rewriter")
    return named | ({"emoji-rewriter"} if f"{ARM}=rewrite" in text else set())


def _templates(text: str) -> dict[str, Any]:
    """Templates of embedded policies that a job takes without their weights."""
    from t2x.settings import read_settings
    from t2x.world.weights import is_present, model_dir

    named = {name for name in re.findall(_TEMPLATE_OF, text) if name in _POLICIES}
    return {n: read_settings(model_dir(n)) for n in sorted(named) if is_present(n)}


def _weights(policies: Collection[str]) -> dict[str, str]:
    """Digests of the embedded models that draw and score, and of the ``policies`` that are named:
    another policy changes no run that starts from elsewhere."""
    from t2x.world.weights import EMBEDDED, is_present

    wanted = [n for n in EMBEDDED if n not in _POLICIES or n in policies]
    return {name: _digest(name) for name in wanted if is_present(name)}


@lru_cache(maxsize=16)
def _digest(name: str) -> str:
    from t2x.generators.identity import folder_digest
    from t2x.world.weights import model_dir

    return folder_digest(model_dir(name))
