"""``t2x edit``: change a picture by an instruction, and keep the rest of it."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from t2x.commands.console import check_prompts, parse_size, print_json, print_table
from t2x.errors import T2XError
from t2x.files import made_folder

if TYPE_CHECKING:
    from torch import Tensor

    from t2x.guidance.editing import EditConfig
    from t2x.types import RewardModel

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
        str, typer.Option(help="What the edited picture shows, in place of an instruction.")
    ] = "",
    method: Annotated[
        str | None,
        typer.Option(
            help="flowedit, sdedit or rewardflow. Default: flowedit with a source prompt."
        ),
    ] = None,
    guide: Annotated[
        str, typer.Option(help='Rewards that steer, like "vqa=1,clip=0.3" (rewardflow).')
    ] = "",
    strength: Annotated[
        float | None, typer.Option(help="Part of the steps that are run: how far it may go.")
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
        float | None, typer.Option(help="How firmly the source is held to; 0 is free.")
    ] = None,
    region: Annotated[
        str | None, typer.Option(help="LEFT,TOP,RIGHT,BOTTOM in 0 to 1: what may change.")
    ] = None,
    num: Annotated[int, typer.Option("--num", "-n", min=1, help="Edits, with one seed each.")] = 1,
    seed: Annotated[int, typer.Option(help="Seed of the first edit; the next has seed + 1.")] = 0,
    size: Annotated[
        str | None, typer.Option(help="HEIGHTxWIDTH in pixels to resize the picture to.")
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Sampling steps.")] = None,
    guidance: Annotated[float | None, typer.Option(help="Guidance scale.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Edit a picture with a text-to-image model; each file holds how it came about as text.

    Saves the picture before (as the model saw it) and after. Models that take a picture and an
    instruction themselves (Kontext, Qwen-Image-Edit) are not for this command.
    """
    from t2x.media import load_picture

    media = load_picture(picture)
    pixels = None if size is None else parse_size(size)
    target = _target(instruction, source_prompt, target_prompt)
    settings = {
        "strength": strength,
        "source_scale": source_scale,
        "focus": focus,
        "tether": tether,
    }
    config = _config(method or _method(source_prompt, guide), guide, settings)
    box = None if region is None else _box(region)
    if config.method == "flowedit" and not source_prompt.strip():
        raise T2XError(
            "flowedit compares with what the picture shows; give --source-prompt, or --method "
            "sdedit"
        )
    from t2x.registry import check_names, load_generator

    check_names("rewards", config.guidance.rewards if config.guidance else ())
    folder = made_folder(out)
    options = {"num_inference_steps": steps, "guidance_scale": guidance}
    generator = load_generator(model, **{k: v for k, v in options.items() if v is not None})
    media = media if pixels is None else _resized(media, pixels)
    from t2x.guidance.editing import edit as edited

    config, rewards = _loaded(config)
    seeds = list(range(seed, seed + num))
    after = edited(
        generator,
        media.expand(num, -1, -1, -1),
        source_prompts=[source_prompt] * num if source_prompt.strip() else None,
        target_prompts=[target] * num,
        seeds=seeds,
        config=config,
        regions=None if box is None else _region(box, media).expand(num, -1, -1, -1),
        rewards=rewards,
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
        "model": generator.model_id,
    }
    rows = _saved(media, after, seeds, facts, folder)
    _show(rows, as_json=as_json)


def _target(instruction: str, source_prompt: str, target_prompt: str) -> str:
    """What the edited picture shows."""
    if target_prompt.strip():
        return target_prompt
    if not instruction.strip():
        raise T2XError('say what to change, like "make the cat blue", or give --target-prompt')
    from t2x.guidance.instructions import instruction_to_target

    target = instruction_to_target(source_prompt, instruction)
    check_prompts([target])
    return target


def _method(source_prompt: str, guide: str) -> str:
    if guide:
        return "rewardflow"
    return "flowedit" if source_prompt.strip() else "sdedit"


def _config(method: str, guide: str, settings: dict[str, float | None]) -> EditConfig:
    from t2x.guidance.config import GuidanceConfig, parse_rewards
    from t2x.guidance.editing import EditConfig

    given: dict[str, Any] = {key: value for key, value in settings.items() if value is not None}
    if guide and method != "rewardflow":
        raise T2XError(f"--guide is for the method rewardflow; got --method {method}")
    if method != "flowedit" and (wrong := [k for k in ("source_scale", "focus") if k in given]):
        option = "--" + wrong[0].replace("_", "-")
        raise T2XError(f"{option} is for the method flowedit; leave it out with {method}")
    if method == "rewardflow":
        if not guide:
            raise T2XError('rewardflow needs rewards; give for instance --guide "vqa=1,clip=0.3"')
        given["guidance"] = GuidanceConfig(rewards=parse_rewards(guide))
    return EditConfig(method, **given)  # type: ignore[arg-type]


def _loaded(config: EditConfig) -> tuple[EditConfig, list[RewardModel]]:
    """The rewards that are named, and the weights under their own names."""
    if config.guidance is None:
        return config, []
    from t2x.registry import load_reward

    weights = config.guidance.rewards
    rewards = [load_reward(name) for name in weights]
    own = {reward.name: weight for reward, weight in zip(rewards, weights.values(), strict=True)}
    return replace(config, guidance=replace(config.guidance, rewards=own)), rewards


def _box(text: str) -> tuple[float, float, float, float]:
    try:
        left, top, right, bottom = (float(part) for part in text.split(","))
    except ValueError:
        left = top = right = bottom = math.nan
    if not (0 <= left < right <= 1 and 0 <= top < bottom <= 1):
        raise T2XError(f"a region is LEFT,TOP,RIGHT,BOTTOM in 0 to 1, like 0,0,0.5,1; got {text!r}")
    return left, top, right, bottom


def _region(box: tuple[float, float, float, float], media: Tensor) -> Tensor:
    """(1, 1, H, W), 1 in the box."""
    height, width = media.shape[-2:]
    left, top, right, bottom = box
    region = media.new_zeros(1, 1, height, width)
    rows = slice(int(top * height), math.ceil(bottom * height))
    region[..., rows, int(left * width) : math.ceil(right * width)] = 1
    return region


def _resized(media: Tensor, size: tuple[int, int]) -> Tensor:
    from torch.nn.functional import interpolate

    from t2x.media import quantize

    found = quantize(interpolate(media, size=size, mode="bicubic", antialias=True))
    return found  # type: ignore[return-value]


def _saved(
    before: Tensor, after: Any, seeds: list[int], facts: dict[str, Any], folder: Path
) -> list[dict[str, Any]]:
    """Save both under the first numbers that are free."""
    from t2x.media import save_png

    rows = []
    number = 0
    for seed, picture in zip(seeds, after, strict=True):
        while (folder / f"{number:04d}-before.png").exists():
            number += 1
        row = {**facts, "seed": seed}
        for name, shown in (("before", before[0]), ("after", picture)):
            path = folder / f"{number:04d}-{name}.png"
            row[name] = str(path)
            save_png(shown, path, text={k: str(v) for k, v in row.items() if k not in ("before",)})
        rows.append(row)
    return rows


def _show(rows: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        print_json(rows)
        return
    columns = ("prompt", "method", "seed", "before", "after")
    print_table("", columns, [[row[name] for name in columns] for row in rows])
