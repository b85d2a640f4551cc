"""``t2x generate``: pictures from prompts, with or without a rewrite before."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from t2x.commands.additions import (
    ConfigOption,
    EmbeddingOption,
    LoraOption,
    PartOption,
    PresetOption,
    addition_options,
)
from t2x.commands.console import (
    check_prompts,
    note,
    parse_size,
    print_json,
    print_table,
    progress,
)
from t2x.commands.guidance_options import GuideOption
from t2x.commands.memory_options import (
    Dtype,
    MemoryLimit,
    Offload,
    Quantize,
    VaeTiling,
    batch_under,
    placement_options,
)
from t2x.commands.saved_pictures import next_number, save_picture, save_strip
from t2x.errors import T2XError
from t2x.files import made_folder
from t2x.guidance.recipe import DEFAULT_MODE, MODES, check_reader, make_recipe
from t2x.studio.recipes import generator_facts, rewrite_facts
from t2x.types import Rewrite

if TYPE_CHECKING:
    from torch import Tensor

    from t2x.generators.guided import GuidedGenerator
    from t2x.generators.prompt_syntax import PreparedPrompt
    from t2x.guidance.recipe import GuidanceRecipe
    from t2x.guidance.trace import SampleTrace
    from t2x.types import Generator

BATCH = 16  # pictures between two savings, for generators that have no batch size of their own
THUMBNAIL = 128  # pixels of x0_hat in a strip

__all__ = ["generate"]


def generate(  # noqa: PLR0913 - a command has a parameter for each of its options
    prompts: Annotated[list[str], typer.Argument(help="What you want to see.")],
    out: Annotated[
        Path, typer.Option(help="Folder for the pictures; those that are there stay.")
    ] = Path("out"),
    model: Annotated[
        str,
        typer.Option("--model", help="A name from `t2x list`, a folder, one file, or a hub id."),
    ] = "emoji-flow",
    rewriter: Annotated[
        str, typer.Option("--rewriter", help="Rewrite first, with this rewriter.")
    ] = "none",
    num: Annotated[int, typer.Option("--num", "-n", min=1, help="Pictures per prompt.")] = 1,
    seed: Annotated[
        int, typer.Option(help="Seed of the first picture; the next has seed + 1.")
    ] = 0,
    size: Annotated[str | None, typer.Option(help="HEIGHTxWIDTH in pixels.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Sampling steps.")] = None,
    guidance: Annotated[float | None, typer.Option(help="Guidance scale.")] = None,
    source: Annotated[
        Path | None,
        typer.Option(
            help="A picture to start from, for models that edit or animate pictures; the same for "
            "all prompts."
        ),
    ] = None,
    strength: Annotated[
        float | None,
        typer.Option(help="How far a picture may go from its --source, up to 1; not all take it."),
    ] = None,
    guide: Annotated[
        str | None,
        typer.Option(
            help="Steer by rewards, against your own words: vqa=1,clip=0.3,aesthetic=0.2."
        ),
    ] = None,
    mode: Annotated[
        str | None,
        typer.Option(
            help="How --guide acts: "
            + "; ".join(f"{name}: {entry.about}" for name, entry in MODES.items())
            + f". {DEFAULT_MODE} without, or E with --strip or a --guide-option about gradients."
        ),
    ] = None,
    budget: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Denoiser evaluations per picture under --guide; classifier-free guidance takes 2 "
            "a step, a backward pass counts as 2.",
        ),
    ] = None,
    guide_option: GuideOption = None,
    reader: Annotated[
        str | None,
        typer.Option(
            help="A chat model that tells --guide what a prompt asks for, where several rewards "
            "have weights that follow it; rules without."
        ),
    ] = None,
    three_way: Annotated[
        str | None,
        typer.Option(
            help="W1,W2: guide by your own words, too, W1 beside W2 of the rewrite (Parrot); needs "
            "--rewriter. W1 alone: the rewrite keeps the rest of the guidance scale."
        ),
    ] = None,
    syntax: Annotated[
        str | None,
        typer.Option(
            help="auto: <lora:name:0.8>, (x:1.3) and the like act, or leave the text and are "
            "reported; plain: prompts are drawn as they are. auto without."
        ),
    ] = None,
    lora_folder: Annotated[
        Path | None, typer.Option(help="Folder of the LoRAs that prompts name.")
    ] = None,
    strip: Annotated[
        bool,
        typer.Option(
            "--strip", help="Beside each picture, what guidance saw and did over the steps."
        ),
    ] = False,
    lora: LoraOption = None,
    embedding: EmbeddingOption = None,
    part: PartOption = None,
    config: ConfigOption = None,
    preset: PresetOption = None,
    dtype: Dtype = None,
    offload: Offload = None,
    quantize: Quantize = None,
    vae_tiling: VaeTiling = False,
    memory_limit: MemoryLimit = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Generate pictures and save them as PNG; each file holds its whole recipe as text.

    Pictures are saved as they are drawn, and numbered on from those that the folder holds.
    """
    check_prompts(prompts)
    recipe = _recipe(
        guide,
        {"mode": mode, "budget": budget, "options": guide_option},
        steps=steps,
        strip=strip,
        reader=reader,
    )
    additions = addition_options(
        lora=lora, embedding=embedding, part=part, config=config, preset=preset
    )
    weights = _three_way(three_way, rewriter, budget)
    picture = _source(source, strength)
    pixels = None if size is None else parse_size(size)
    placed = placement_options(offload, quantize, vae_tiling)
    if dtype is not None:
        placed["dtype"] = dtype
    if memory_limit is not None:
        sampled: dict[str, Any] = {"num_inference_steps": steps, "guidance_scale": guidance}
        sampled |= {"guidance": recipe, "prompt": max(prompts, key=len), **additions}
        if picture is not None:
            sampled["source_size"] = tuple(picture.shape[-2:])
        placed["batch_size"] = batch_under(
            memory_limit, (rewriter, model), num * len(prompts), pixels, {**placed, **sampled}
        )
    folder = made_folder(out)
    texts = (
        [Rewrite(text, text) for text in prompts]
        if rewriter == "none"
        else _rewrite(prompts, rewriter, config or model, seed)
    )
    jobs = [(text, seed + i) for text in texts for i in range(num)]
    from t2x.registry import load_generator

    options: dict[str, Any] = {"num_inference_steps": steps, "guidance_scale": guidance}
    options |= {"reader": reader, "syntax": syntax, "lora_folder": lora_folder, **placed}
    given = {key: value for key, value in options.items() if value is not None}
    if strength is not None:
        given["sampling"] = {"strength": strength}
    generator = load_generator(model, guidance=recipe, **given, **additions)
    _hint(generator, recipe)
    from t2x.generators.negatives import usable_negatives

    negatives = usable_negatives(generator, [job[0].negative for job in jobs])
    facts = _facts(generator, pixels, source, picture)
    rows: list[dict[str, Any]] = [
        {
            "prompt": text.original,
            "text": text.text,
            "negative": negative,
            "seed": number,
            **facts,
            **({"rewrite": said} if (said := rewrite_facts(text)) else {}),
        }
        for (text, number), negative in zip(jobs, negatives or [""] * len(jobs), strict=True)
    ]
    _tell_syntax(generator, rows)
    with progress() as show, _beside_own_words(generator, rows, weights):
        for done in _draw(generator, rows, folder, pixels, strip=strip, source=picture):
            show(f"drawing with {generator.model_id}", done, len(rows))
    if as_json:
        print_json(rows)
        return
    columns = ("prompt", "text", "seed", "file") + ("rewards",) * (recipe is not None)
    print_table("", columns, [_cells(row) for row in rows])


def _facts(
    generator: Generator, size: tuple[int, int] | None, path: Path | None, source: Tensor | None
) -> dict[str, Any]:
    """What the recipes of all pictures say alike."""
    if path is None or source is None:
        return generator_facts(generator, size=size)
    from t2x.generators.sources import source_digest

    named = {"name": path.name, "digest": source_digest(source)}
    return {**generator_facts(generator, size=size), "source": named}


def _tell_syntax(generator: Generator, rows: list[dict[str, Any]]) -> None:
    """Write into each row what becomes of its text, where that is not the text itself; LoRAs with
    the digest of their file."""
    for row, prepared in zip(rows, _prepared(generator, [r["text"] for r in rows]), strict=True):
        if prepared is None or not prepared.acts:
            continue
        row["syntax"] = prepared.record()
        inner: Any = getattr(generator, "generator", generator)  # of one under guidance
        if prepared.loras:
            row["syntax"]["adapters"] = inner.adapters.record(prepared.loras)


def _hint(generator: Generator, recipe: GuidanceRecipe | None) -> None:
    """Say when the way to guide is not one for this published model."""
    preset = getattr(getattr(generator, "generator", generator), "preset", None)
    if recipe is not None and preset is not None and (said := preset.guidance_hint(recipe.mode)):
        note(said)


def _prepared(generator: Generator, texts: list[str]) -> list[PreparedPrompt | None]:
    """What becomes of N texts; None each from a generator that can't tell."""
    prepare = getattr(generator, "prepare", None)
    return [None] * len(texts) if prepare is None else prepare(texts)


def _cells(row: dict[str, Any]) -> tuple[object, ...]:
    cells = (row["prompt"], row["text"], row["seed"], row["file"])
    if "guidance" not in row:
        return cells
    scores = row["guidance"]["scores"]
    return (*cells, ", ".join(f"{name} {value:.3g}" for name, value in scores.items()))


def _recipe(
    guide: str | None,
    given: dict[str, Any],
    *,
    steps: int | None,
    strip: bool,
    reader: str | None,
) -> GuidanceRecipe | None:
    """What ``--guide`` and the options that belong to it ask for, checked before anything is
    loaded."""
    if guide is None:
        asked = {**given, "strip": strip, "reader": reader}
        if wrong := [key for key, value in asked.items() if value]:
            name = {"options": "guide-option"}.get(wrong[0], wrong[0])
            raise T2XError(
                f"--{name} is about guidance; name rewards with --guide, like --guide vqa=1"
            )
        return None
    mode = given["mode"] or ("E" if strip else None)  # a search has no steps to show
    recipe = make_recipe(guide, **{**given, "mode": mode, "options": given["options"] or ()})
    check_reader(recipe, reader)
    entry = MODES[recipe.mode]
    if steps is not None and recipe.budget is not None and entry.bought == "num_inference_steps":
        raise T2XError(
            f"in mode {recipe.mode} --budget decides the number of steps; leave --steps out"
        )
    if strip and not entry.traced:
        traced = ", ".join(name for name, other in MODES.items() if other.traced)
        raise T2XError(
            f"mode {recipe.mode} draws several pictures for one, so there are no steps to show; "
            f"leave --strip out, or take a mode of {traced}"
        )
    if strip:
        try:
            import matplotlib  # noqa: F401
        except ModuleNotFoundError as error:
            from t2x.registry import missing_dependency

            raise missing_dependency(error) from error
    return recipe


def _source(path: Path | None, strength: float | None) -> Tensor | None:
    """The picture to start from, (1, 3, H, W), read before anything is loaded."""
    if path is None:
        if strength is not None:
            raise T2XError("--strength is about a picture to start from; give one with --source")
        return None
    from t2x.media import load_picture

    return load_picture(path)


def _three_way(
    text: str | None, rewriter: str, budget: int | None
) -> tuple[float, float | None] | None:
    """The weights of ``--three-way``, checked before anything is loaded."""
    if text is None:
        return None
    from t2x.guidance.three_way import parse_three_way

    weights = parse_three_way(text)
    if rewriter == "none":
        raise T2XError("--three-way weighs your words against a rewrite; name a --rewriter")
    if budget is not None:
        raise T2XError(
            "--three-way evaluates the denoiser once more per step, which --budget does not count; "
            "leave one out"
        )
    return weights


@contextmanager
def _beside_own_words(
    generator: Generator,
    rows: list[dict[str, Any]],
    weights: tuple[float, float | None] | None,
) -> Iterator[None]:
    """Three-way guidance of all that is drawn inside, where there are weights for it."""
    if weights is None:
        yield
        return
    from t2x.guidance.three_way import original_prompt_guidance

    pipe = getattr(generator, "pipeline", None)
    if pipe is None:
        raise T2XError(f"{generator.model_id} is no pipeline of diffusers; leave out --three-way")
    own: dict[str, str] = {}
    for row, said in zip(rows, _prepared(generator, [r["prompt"] for r in rows]), strict=True):
        words = row["prompt"] if said is None else said.text
        if own.setdefault(row["text"], words) != words:
            raise T2XError(
                f"{own[row['text']]!r} and {words!r} have the same rewrite; generate them "
                "one by one under --three-way"
            )
        row["three_way"] = list(weights)
    with original_prompt_guidance(pipe, own, *weights):
        yield


def _rewrite(prompts: list[str], name: str, model: str, seed: int) -> list[Rewrite]:
    """Rewrite within the token limits of what will draw."""
    from t2x.rewriters.loading import load_guarded

    answers = load_guarded(name, generator=model).rewrite(prompts, seed=seed)
    return [item for (item,) in answers]


def _draw(
    generator: Generator,
    rows: list[dict[str, Any]],
    folder: Path,
    size: tuple[int, int] | None,
    *,
    strip: bool = False,
    source: Tensor | None = None,
) -> Iterator[int]:
    """Draw and save batch by batch, so that what ends a run costs one batch; add to each row its
    "file", and give how many are done."""
    guided = _guided(generator)
    if source is not None and guided is None and not isinstance(generator, _diffusion()):
        raise T2XError(f"{generator.model_id} takes no picture to start from; leave --source out")
    if guided is not None and strip:
        guided.thumbnails = THUMBNAIL
    done, number = 0, next_number(folder)
    while done < len(rows):
        batch = rows[done : done + getattr(generator, "batch_size", BATCH)]
        negatives = [row["negative"] for row in batch]
        texts, seeds = [row["text"] for row in batch], [row["seed"] for row in batch]
        given = negatives if any(negatives) else None
        start: dict[str, Any] = {} if source is None else {"sources": [source] * len(batch)}
        if guided is None:
            media = generator.generate(texts, negative=given, seeds=seeds, size=size, **start)
            traces: list[SampleTrace | None] = [None] * len(batch)
        else:
            words = [row["prompt"] for row in batch]
            media = guided.generate(
                texts, negative=given, seeds=seeds, size=size, originals=words, **start
            )
            traces, scores = guided.traces, guided.scores(words, media)
        together = getattr(getattr(generator, "generator", generator), "together", [1] * len(batch))
        for at, (row, picture, trace) in enumerate(zip(batch, media, traces, strict=True)):
            if guided is not None:
                own = {name: values[at] for name, values in scores.items()}
                row["guidance"] = _guidance(guided, trace, size, own, guided.notes[at])
            row["batch"] = together[at]
            number = save_picture(picture, row, folder, number) + 1
            if strip and trace is not None:
                row["strip"] = save_strip(picture, row, trace)
        done += len(batch)
        yield done


def _diffusion() -> type:
    from t2x.generators.diffusion import DiffusionGenerator

    return DiffusionGenerator


def _guided(generator: Generator) -> GuidedGenerator | None:
    from t2x.generators.guided import GuidedGenerator

    return generator if isinstance(generator, GuidedGenerator) else None


def _guidance(
    guided: GuidedGenerator,
    trace: SampleTrace | None,
    size: tuple[int, int] | None,
    scores: dict[str, float],
    notes: dict[str, Any],
) -> dict[str, Any]:
    """The whole recipe, what each reward says of the picture, and the first and last value that it
    had of x0_hat."""
    known = {} if trace is None else trace.values
    measured = {name: [v for v in row if v == v] or [math.nan] for name, row in known.items()}
    return {
        **guided.recipe.record(),
        **({"reader": guided.reader} if isinstance(guided.reader, str) else {}),
        "sampling": guided.settings(size=size),
        "first": {name: row[0] for name, row in measured.items()},
        "last": {name: row[-1] for name, row in measured.items()},
        "scores": scores,
        "notes": notes,
    }
