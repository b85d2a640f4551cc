"""The main job end to end: one prompt with and without a rewrite, side by side.

Rewrite, draw both arms from the same seeds, score both against the user's own words. A reward that
cannot be loaded or used is "not measured", and says why.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2x.errors import T2XError
from t2x.evaluation.phases import (
    Drawn,
    Progress,
    Steps,
    by_arm,
    check_memory,
    draw_phase,
    name_of,
    rewrite_phase,
    score_phase,
    unmeasured,
)
from t2x.evaluation.side_by_side import ARMS, SideBySide
from t2x.files import made_folder
from t2x.studio.recipes import Recipe, chunks, rewrite_facts

if TYPE_CHECKING:
    from t2x.types import Generator, RewardModel, Rewriter

# What people type; all in the test split of the emoji world, so that no training has seen one.
EXAMPLES = (
    "two puppies to the left of a violet sofa",
    "the animal with a trunk next to a yellow parasol",
    "three violet doughnuts",
    "a golden lorry, nothing else",
    "draw me a navy automobile under a pink kite",
    "a lilac bike and a navy kitten",
    "a jade telly and a navy brolly",
    "an airplane flying over two ponies",
)
REWARDS = ("clip", "hps", "aesthetic", "vqa")
_ENTRIES = 30  # entries of a setting; what holds more is data
FILES = ("compare.png", "report.html", "result.json")

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
    memory_limit: int | str | None = None,
    options: Mapping[str, Any] | None = None,
) -> SideBySide:
    """Compare one prompt with and without a rewrite, and write ``FILES`` into ``out``.

    The files are there as soon as the pictures are, and are written again when all is scored.

    Args:
        prompt: what the user wants to see; None takes the example of the seed.
        out: folder for the files; None writes none.
        seed: seed of the rewrite and of the first picture; the next has seed + 1.
        num: pictures in each arm, from the same seeds in both.
        rewriter: name from ``t2x list``, folder, hub id or loaded object; it is wrapped in
            ``Guarded``.
        generator: the same for what draws; it must make pictures.
        rewards: names or loaded objects; those that fail are not measured.
        memory_limit: bytes, or text like "20GB", under which the run stays, phase after phase; a
            phase that does not fit is refused before anything is loaded. Without one, weights that
            exceed what is available are warned of.
        options: of loading a generator that is named: offload, quantize, vae_tiling, ...
        progress: hears (what is done now, steps done, steps in all).

    Raises ``T2XError`` for an empty prompt, an unknown name, missing weights of rewriter or
    generator, a reward given twice, and a folder that can't be written.
    """
    if num < 1:
        raise T2XError(f"num is {num}; give at least one picture for each arm")
    names = [name_of(reward) for reward in rewards]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise T2XError(f"reward {twice[0]!r} is given twice; give each once")
    text = pick_prompt(seed) if prompt is None else prompt
    if not text.strip():
        raise T2XError("the prompt is empty; say what the picture should show")
    folder = None if out is None else made_folder(out)
    steps = Steps(progress, total=2 + len(rewards))
    fitting = None
    if memory_limit is None:
        check_memory(rewriter, generator)
    else:
        from t2x.memory import fit_under

        fitting = fit_under(
            memory_limit,
            rewriter=rewriter,
            generator=generator,
            rewards=rewards,
            pictures=2 * num,
            options={**(options or {}), "prompt": text},
        )
    rewrite = rewrite_phase(rewriter, generator, text, seed=seed, steps=steps)
    seeds = tuple(range(seed, seed + num))
    most = None if fitting is None else fitting.batch
    drawn = draw_phase(generator, rewrite, seeds, steps, options=options, most=most)
    drawn_only = SideBySide(
        rewrite=rewrite,
        seeds=seeds,
        pictures=by_arm(drawn.media, num),
        rewards=tuple(unmeasured(reward, num, "not scored yet") for reward in rewards),
        generator=drawn.model_id,
        settings=drawn.settings,
        versions=_versions(),
        command=_command(text, seed, num, (rewriter, generator, *rewards), options or {}),
        objects=_objects(rewriter, generator, rewards),
        picked=prompt is None,
        seconds=dict(steps.seconds),
        syntax=_syntax(drawn),
    )
    if folder is not None:
        _write(drawn_only, folder, drawn.batch)
    words = drawn.prepared[0].text if drawn.prepared else text
    scored = [None] * len(rewards) if fitting is None else fitting.scored
    columns = tuple(
        score_phase(reward, words, drawn.media, num, steps, most=most)
        for reward, most in zip(rewards, scored, strict=True)
    )
    result = replace(drawn_only, rewards=columns, seconds=steps.finish())
    if folder is not None:
        _write(result, folder, drawn.batch)
    return result


def _syntax(drawn: Drawn) -> dict[str, dict[str, Any]]:
    """What became of each arm's syntax, of those that have any."""
    both = (drawn.prepared * len(ARMS))[: len(ARMS)]  # one text where the arms are the same
    return {arm: row.record() for arm, row in zip(ARMS, both, strict=False) if row.acts}


def _versions() -> dict[str, str]:
    from t2x.generators.identity import versions

    return versions()


def _command(
    text: str, seed: int, num: int, sources: Sequence[Any], options: Mapping[str, Any]
) -> str:
    """Write the command that gives the same pictures and scores; "" if none does, as for a source
    that is an object, whose name does not tell how it was loaded."""
    rewriter, generator, *rewards = sources
    if not rewards or not all(isinstance(source, str) for source in sources):
        return ""
    words = ["t2x", "demo", "--out", "out", "--seed", str(seed), "--num", str(num)]
    if rewriter != "emoji-rewriter":
        words += ["--rewriter", rewriter]
    if generator != "emoji-flow":
        words += ["--model", generator]
    if tuple(rewards) != REWARDS:
        words += ["--reward", ",".join(rewards)]
    for key, value in options.items():
        flag = f"--{key.replace('_', '-')}"
        words += [flag] if value is True else [flag, str(value)]
    return shlex.join([*words, *(["--"] if text.startswith("-") else []), text])


def _objects(
    rewriter: str | Rewriter, generator: str | Generator, rewards: Sequence[str | RewardModel]
) -> dict[str, dict[str, Any]]:
    """Say what each source was that is an object."""
    sources: dict[str, Any] = {"rewriter": rewriter, "generator": generator}
    sources |= {f"reward {name_of(reward)}": reward for reward in rewards}
    return {key: _described(item) for key, item in sources.items() if not isinstance(item, str)}


def _described(source: Any) -> dict[str, Any]:
    """Class and public settings of an object: plain values, and records of such."""
    inner = getattr(source, "rewriter", source)  # of a guard, what it guards
    kind = type(inner)
    values = {key: getattr(inner, key, None) for key in ("model_id", "name", "scale")}
    values |= getattr(inner, "__dict__", {})
    for key, value in values.items():
        if is_dataclass(value):
            values[key] = _settings({f.name: getattr(value, f.name) for f in fields(value)})
    return {"class": f"{kind.__module__}.{kind.__qualname__}", **_settings(values)}


def _settings(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: v for key, v in values.items() if not key.startswith("_") and _is_setting(v)}


def _is_setting(value: Any) -> bool:
    """Tell what a person set from the vocabularies and weights that objects carry as well."""
    if isinstance(value, Mapping):
        return len(value) <= _ENTRIES and all(map(_is_setting, value.values()))
    if isinstance(value, list | tuple):
        return len(value) <= _ENTRIES and all(map(_is_setting, value))
    return isinstance(value, str | int | float)


def _recipe(result: SideBySide, batch: int) -> Recipe:
    """How the sheet came about; its pictures are drawn again in the same order and batches."""
    facts = dict(result.settings)
    sampling, revision = facts.pop("settings", None), facts.pop("revision", "")
    return Recipe(
        prompt=result.prompt,
        text=result.rewrite.text,
        negative=result.rewrite.negative,
        seed=result.seeds[0],
        kind="sheet",
        num=len(result.seeds),
        batch=batch,
        model=result.generator,
        revision=revision,
        sampling=sampling if isinstance(sampling, dict) else {},
        sampler=facts,
        rewrite=rewrite_facts(result.rewrite),
        versions=dict(result.versions),
    )


def _write(result: SideBySide, folder: Path, batch: int) -> None:
    from t2x.evaluation.picture import draw_comparison
    from t2x.evaluation.report import report_page
    from t2x.media import png_info

    info = png_info(chunks(_recipe(result, batch)))
    try:
        draw_comparison(result).save(folder / "compare.png", format="PNG", pnginfo=info)
        (folder / "report.html").write_text(report_page(result), encoding="utf-8")
        text = json.dumps(result.record(), ensure_ascii=False, indent=2, allow_nan=False)
        (folder / "result.json").write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise T2XError(f"cannot write into {str(folder)!r}: {error}") from error
