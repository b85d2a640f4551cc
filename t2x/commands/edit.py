"""``t2x edit``: change a picture by an instruction, and keep the rest of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from t2x.commands.console import check_prompts, parse_size, print_json, print_table
from t2x.commands.guidance_options import GuideOption
from t2x.files import made_folder
from t2x.guidance.recipe import MODES
from t2x.plain import plain
from t2x.studio.recipes import Recipe, chunks, generator_facts

if TYPE_CHECKING:
    from torch import Tensor


__all__ = ["edit"]


def edit(  # noqa: PLR0913 - a command has a parameter for each of its options
    picture: Annotated[Path, typer.Argument(help="The picture to edit.")],
    instruction: Annotated[
        str, typer.Argument(help='What to change, like "make the cat blue".')
    ] = "",
    out: Annotated[
        Path, typer.Option(help="Folder for the pictures; those that are there stay.")
    ] = Path("out"),
    model: Annotated[
        str, typer.Option("--model", help="A name from `t2x list`, a folder, or a hub id.")
    ] = "emoji-flow",
    source_prompt: Annotated[
        str, typer.Option(help="What the picture shows; removing and styles need it.")
    ] = "",
    target_prompt: Annotated[
        str, typer.Option(help="What the edited picture shows; read off the instruction without.")
    ] = "",
    method: Annotated[
        str | None,
        typer.Option(
            help="flowedit, sdedit or rewardflow. Without: rewardflow with --guide, flowedit with "
            "--source-prompt, else sdedit."
        ),
    ] = None,
    guide: Annotated[
        str, typer.Option(help='Rewards that steer, like "vqa=1,clip=0.3" (rewardflow).')
    ] = "",
    mode: Annotated[
        str | None,
        typer.Option(
            help="How --guide acts. "
            + "; ".join(f"{name}: {MODES[name].about}" for name in ("E", "J"))
            + ". E without."
        ),
    ] = None,
    guide_option: GuideOption = None,
    strength: Annotated[
        float | None,
        typer.Option(
            help="Part of the steps that are run, over 0 to 1: how far it may go. 0.86 without."
        ),
    ] = None,
    source_scale: Annotated[
        float | None, typer.Option(help="Guidance scale of the source prompt (flowedit).")
    ] = None,
    focus: Annotated[
        float | None,
        typer.Option(
            help="Keep what differs less than this part of the most (flowedit), 0 to 0.5."
        ),
    ] = None,
    tether: Annotated[
        float | None,
        typer.Option(
            help="How firmly the source is held to, outside of --region if there is one: 0 is "
            "free, inf gives it back. Without: inf outside of --region, else 0."
        ),
    ] = None,
    region: Annotated[
        str | None,
        typer.Option(
            help="LEFT,TOP,RIGHT,BOTTOM in 0 to 1: what may change, and where the rewards grounded "
            "and region look."
        ),
    ] = None,
    num: Annotated[int, typer.Option("--num", "-n", min=1, help="Edits, with one seed each.")] = 1,
    seed: Annotated[int, typer.Option(help="Seed of the first edit; the next has seed + 1.")] = 0,
    size: Annotated[
        str | None, typer.Option(help="HEIGHTxWIDTH in pixels to resize the picture to.")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Sampling steps; those of the model without.")
    ] = None,
    guidance: Annotated[float | None, typer.Option(help="Guidance scale.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Edit a picture with a text-to-image model; each file holds how it came about as text.

    Saves the picture before (as the model saw it) and after. Models that take a picture and an
    instruction themselves (Kontext, Qwen-Image-Edit) are not for this command.
    """
    from t2x.generators.sources import source_digest
    from t2x.guidance.config import parse_rewards
    from t2x.guidance.edit_plans import (
        changed_settings,
        chosen_method,
        edit_config,
        parsed_box,
        region_mask,
        resized,
        target_text,
        under_own_names,
    )
    from t2x.media import load_picture

    media = load_picture(picture)
    digest = source_digest(media)
    pixels = None if size is None else parse_size(size)
    target = target_text(instruction, source_prompt=source_prompt, target_prompt=target_prompt)
    check_prompts([target])
    weights = parse_rewards(guide) if guide else {}
    config = edit_config(
        method or chosen_method(source_prompt, rewards=bool(weights)),
        source_prompt=source_prompt,
        weights=weights,
        settings={
            "strength": strength,
            "source_scale": source_scale,
            "focus": focus,
            "tether": tether,
        },
        mode=mode,
        options=guide_option or (),
    )
    box = None if region is None else parsed_box(region)
    from t2x.registry import check_names, load_generator, load_reward

    check_names("rewards", config.guidance.rewards if config.guidance else ())
    folder = made_folder(out)
    options = {"num_inference_steps": steps, "guidance_scale": guidance}
    generator = load_generator(model, **{k: v for k, v in options.items() if v is not None})
    media = media if pixels is None else resized(media, pixels)
    from t2x.guidance.editing import edit as edited

    rewards = [load_reward(name) for name in weights]
    config = under_own_names(config, rewards)
    seeds = list(range(seed, seed + num))
    after = edited(
        generator,
        media.expand(num, -1, -1, -1),
        source_prompts=[source_prompt] * num if source_prompt.strip() else None,
        target_prompts=[target] * num,
        seeds=seeds,
        config=config,
        regions=None if box is None else region_mask(box, media).expand(num, -1, -1, -1),
        rewards=rewards,
        instructions=[instruction] * num if instruction.strip() else None,
    )
    facts = {
        "source": str(picture),
        "instruction": instruction,
        "source_prompt": source_prompt,
        "prompt": target,
        "method": config.method,
        "strength": config.strength,
        "source_scale": config.source_scale,
        "focus": config.focus,
        "tether": config.tether,
        "region": region,
        "guide": guide,
        "mode": config.guidance.mode if config.guidance else None,
        "guide_option": guide_option,
        "model": generator.model_id,
    }
    own = ("instruction", "source_prompt", "method", "strength", "source_scale", "focus", "tether")
    how = {key: facts[key] for key in own} | {"region": box, "weights": weights}
    how["size"] = list(media.shape[-2:])
    if guide_option or mode:
        how |= {"mode": facts["mode"], "options": changed_settings(config)}
    recipe = Recipe(
        prompt=target,
        text=target,
        kind="edit",
        edit=plain({key: value for key, value in how.items() if value or value == 0}),
        source={"name": picture.name, "digest": digest},
        **generator_facts(generator),
    )
    together = getattr(generator, "together", [1] * num)
    recipes = [replace(recipe, seed=n, batch=b) for n, b in zip(seeds, together, strict=True)]
    rows = _saved(media, after, [facts | {"seed": n} for n in seeds], recipes, folder)
    _show(rows, as_json=as_json)


def _saved(
    before: Tensor,
    after: Iterable[Tensor],
    rows: list[dict[str, Any]],
    recipes: Sequence[Recipe],
    folder: Path,
) -> list[dict[str, Any]]:
    """Save both under the first numbers that are free; of the picture before nothing is told."""
    from t2x.media import save_png

    number = 0
    for row, recipe, picture in zip(rows, recipes, after, strict=True):
        while (folder / f"{number:04d}-before.png").exists():
            number += 1
        shown = (("before", before[0], dict[str, str]()), ("after", picture, chunks(recipe)))
        for name, pixels, text in shown:
            path = folder / f"{number:04d}-{name}.png"
            row[name] = str(path)
            save_png(pixels, path, text=text)
    return rows


def _show(rows: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        print_json(rows)
        return
    columns = ("prompt", "method", "seed", "before", "after")
    print_table("", columns, [[row[name] for name in columns] for row in rows])
