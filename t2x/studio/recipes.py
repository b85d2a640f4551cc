"""How a picture came about, inside its own file: the one writer and the one reader of all that t2x
draws (``t2x generate``, ``edit``, ``demo`` and the studio).

A PNG holds one text chunk for each field of ``Recipe`` that says something, words as they are and
all else as JSON, so that other programs show the prompt, too; the chunk ``t2x`` holds the number of
the format. Nothing in it depends on the time or the machine's paths: same picture, same bytes.

Whoever reads treats the text as a stranger's: types and sizes are checked, what is no recipe is
said and never raised past ``T2XError``.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

from t2x.config import ConfigError, build_config
from t2x.errors import T2XError
from t2x.plain import is_text, plain

if TYPE_CHECKING:
    from PIL.Image import Image

    from t2x.types import Rewrite

log = logging.getLogger(__name__)

FORMAT = "1"
MOST_TEXT = 1 << 20  # characters of one chunk that are read
_BEFORE = {"prompt", "text", "seed"}  # what pictures had before the format had a number
_WORDS = ("prompt", "text", "negative", "model", "revision", "kind", "arm")

__all__ = [
    "FORMAT",
    "Recipe",
    "chunks",
    "generator_facts",
    "read_chunks",
    "rewrite_facts",
    "write_picture",
]


@dataclass(frozen=True)
class Recipe:
    """All that is needed to draw a picture again.

    Args:
        prompt: the user's own words.
        text: what was drawn.
        negative: what it must not show.
        seed: of its noise.
        kind: "picture" of a prompt, "edit" of another picture, or "sheet" of both arms of a
            comparison, of which each has ``num`` pictures, the first from ``seed``.
        arm: which side of a comparison it was, "" if there was none.
        num: pictures in each arm of a sheet; 1 of a picture.
        batch: samples that were drawn in one call; the last bit of a picture may hang on it.
        model: name of the generator; ``revision`` the digest of its weights, or its commit.
        sampling: arguments of the pipeline's call (steps, guidance, size, ...).
        sampler: class and scheduler of the pipeline, number format, device.
        rewrite: rewriter, seed, status and reasoning, where there was a rewriter.
        guidance: rewards that steered, as ``GuidanceRecipe.record``, and what they measured.
        three_way: weights of the user's words and of the rewrite.
        syntax: what became of syntax in the text.
        adapters, embeddings: LoRAs and textual inversions, with digests.
        edit: instruction, method and settings.
        source: name and digest (``t2x.generators.sources.source_digest``) of the picture that it
            was made from.
        scores: of the picture against the user's words, by reward.
        request: of the studio that draws this picture alone (``t2x.studio.requests``).
        versions: of the libraries that drew it.
    """

    prompt: str
    text: str
    negative: str = ""
    seed: int = 0
    kind: Literal["picture", "edit", "sheet"] = "picture"
    arm: str = ""
    num: int = 1
    batch: int = 1
    model: str = ""
    revision: str = ""
    sampling: dict[str, Any] = field(default_factory=dict)
    sampler: dict[str, Any] = field(default_factory=dict)
    rewrite: dict[str, Any] = field(default_factory=dict)
    guidance: dict[str, Any] = field(default_factory=dict)
    three_way: list[Any] = field(default_factory=list)
    syntax: dict[str, Any] = field(default_factory=dict)
    adapters: list[Any] = field(default_factory=list)
    embeddings: list[Any] = field(default_factory=list)
    edit: dict[str, Any] = field(default_factory=dict)
    source: dict[str, Any] = field(default_factory=dict)
    scores: dict[str, Any] = field(default_factory=dict)
    request: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Recipe:
        """Build it from JSON values; what a newer version adds is left out.

        Raises T2XError for a value of another type, and for a seed or a number of pictures that
        nothing can be drawn from.
        """
        known = {item.name for item in fields(cls)}
        try:
            recipe = build_config(cls, {k: v for k, v in record.items() if k in known})
        except ConfigError as error:
            raise T2XError(f"the recipe is damaged: {error}") from error
        texts = (recipe.prompt, recipe.text, recipe.negative)
        if not all(map(is_text, texts)) or (not recipe.text.strip() and recipe.kind == "picture"):
            raise T2XError("the recipe is damaged: its text is empty, or no valid Unicode")
        if not -(2**63) <= recipe.seed < 2**64 or not 1 <= recipe.num <= 1024:
            raise T2XError(f"the recipe is damaged: seed {recipe.seed}, {recipe.num} pictures")
        if not 1 <= recipe.batch <= 1024:
            raise T2XError(f"the recipe is damaged: {recipe.batch} pictures in a batch")
        return recipe

    def record(self) -> dict[str, Any]:
        """Give what says something, as JSON values: NaN and infinity as None."""
        found = {item.name: getattr(self, item.name) for item in fields(self)}
        always = ("prompt", "text", "seed", "kind")
        values: dict[str, Any] = plain({k: v for k, v in found.items() if v or k in always})
        return values

    @property
    def size(self) -> tuple[int, int] | None:
        """(height, width) that was asked for; None left it to the model."""
        height, width = self.sampling.get("height"), self.sampling.get("width")
        if type(height) is int and type(width) is int:
            return height, width
        return None


def chunks(recipe: Recipe) -> dict[str, str]:
    """Give the texts that ``t2x.media.save_png`` writes."""
    record = recipe.record()
    shown = {key: _written(key, value) for key, value in record.items()}
    return {"t2x": FORMAT, **shown}


def write_picture(
    file: str | Path | IO[bytes],
    picture: Image,
    recipe: Recipe | None,
    *,
    frames: Sequence[Image] = (),
    fps: int = 8,
) -> None:
    """Write a PNG with its recipe, where it has one; an animated one of the frames of a video.

    Raises OSError if it can't be written.
    """
    from t2x.media import png_info

    info = png_info({} if recipe is None else chunks(recipe))
    if not frames:
        picture.save(file, format="PNG", pnginfo=info)
        return
    first, *others = frames
    pace = 1000 / max(1, fps)  # milliseconds
    first.save(file, format="PNG", pnginfo=info, save_all=True, append_images=others, duration=pace)


def _written(key: str, value: Any) -> str:
    return str(value) if key in _WORDS else json.dumps(value, ensure_ascii=False, sort_keys=True)


def read_chunks(text: Mapping[str, str]) -> Recipe | None:
    """Read the texts of a picture (``t2x.media.png_text``); None if they are not of t2x.

    Raises T2XError for a recipe of a later format, or one that is damaged.
    """
    if "t2x" not in text and not set(text) >= _BEFORE:
        return None
    if (number := text.get("t2x", FORMAT)) != FORMAT:
        raise T2XError(
            f"the recipe has format {number[:20]!r}, this version reads {FORMAT}; upgrade t2x"
        )
    record: dict[str, Any] = {}
    for item in fields(Recipe):
        value = str(text.get(item.name, ""))  # Pillow has a class of its own
        if len(value) > MOST_TEXT:
            raise T2XError(f"the recipe is damaged: {item.name} has {len(value)} characters")
        if item.name in _WORDS:
            record[item.name] = value
        elif value:
            record[item.name] = _json(item.name, value)
    record["kind"] = record["kind"] or "picture"
    return Recipe.from_record(record)


def _json(name: str, value: str) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        if name == "source":  # once it was a path
            return {"name": Path(value).name}
        raise T2XError(f"the recipe is damaged: {name} is no valid JSON") from error


def generator_facts(
    generator: Any, *, size: tuple[int, int] | None = None, num_frames: int | None = None
) -> dict[str, Any]:
    """Give the fields of a recipe that a generator decides, of one that can tell."""
    inner = getattr(generator, "generator", generator)  # of one under guidance
    facts: dict[str, Any] = {"model": generator.model_id}
    if not hasattr(inner, "fingerprint"):
        return facts
    facts["sampling"] = plain(generator.settings(size=size, num_frames=num_frames))
    try:
        known = inner.fingerprint(size=size, num_frames=num_frames)
    except T2XError as error:  # weights that are out of reach: the picture is drawn all the same
        log.info("the weights of %s have no digest: %s", generator.model_id, error)
        return facts
    for key in ("revision", "versions", "adapters", "embeddings"):
        if key in known:
            facts[key] = plain(known.pop(key))
    hidden = ("model_id", "settings", "syntax")
    facts["sampler"] = plain({k: v for k, v in known.items() if k not in hidden})
    return facts


def rewrite_facts(rewrite: Rewrite) -> dict[str, Any]:
    """Give what a recipe says of a rewrite beside its text; empty where no rewriter was asked."""
    if rewrite.model_id in ("", "none"):
        return {}
    facts = {
        "rewriter": rewrite.model_id,
        "seed": rewrite.seed,
        "status": rewrite.status,
        "reasoning": rewrite.reasoning,
        "reasons": [c.reason or c.name for c in rewrite.checks if not c.passed],
    }
    return {key: value for key, value in facts.items() if value or key in ("seed", "status")}


def stored_recipe(image: Image) -> Recipe | None:
    """Read the recipe of an open picture; see ``read_chunks``."""
    return read_chunks({str(k): v for k, v in image.info.items() if isinstance(v, str)})
