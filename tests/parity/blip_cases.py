"""Pictures, prompts, vocabulary and weights of the BLIP goldens: the same numbers wherever they are
made, from whole-number arithmetic and from generators seeded by a tensor's own name.

Imported by the tests and by the script that made the goldens.
"""

from __future__ import annotations

import hashlib
import re
import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

WORDS = "a an the red blue green cat dog bus left right of and on with photo two three small sky"
LETTERS = string.ascii_lowercase + string.digits
PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
BERT_PIECES = 30522
FOREIGN = "一只红色的猫собак"
PROMPTS = {
    "short": "a red bus left of a cat",
    "long": " ".join(f"{word} {index}" for index, word in enumerate((WORDS.split() * 5)[:100])),
    "foreign": "一只红色的猫, и собака: naïve café",
    "empty": "",
}
# Prompts of the full-size goldens.
PLAIN = ("short", "long", "foreign")
# What the official code makes of these differs from what t2x.from_pil makes of them.
UNLIKE = ("clear", "palette", "sixteen")


def write_vocabulary(folder: Path, *, full: bool = False) -> Path:
    """A vocab.txt of a few hundred word pieces, of which no Latin text is unknown; ``full``: filled
    up to as many as BERT has.
    """
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *PUNCTUATION, *LETTERS]
    pieces += [f"##{c}" for c in LETTERS]
    pieces += [*FOREIGN, *(f"##{c}" for c in FOREIGN), *WORDS.split()]
    pieces = list(dict.fromkeys(pieces))
    if full:
        pieces += [f"[unused{n}]" for n in range(BERT_PIECES - len(pieces))]
    path = folder / "vocab.txt"
    path.write_text("\n".join(pieces) + "\n", encoding="utf-8")
    return path


def vocabulary_size() -> int:
    """Rows of the word embedding: the vocabulary, [DEC] and [ENC]."""
    extra = len(set(FOREIGN)) * 2 + len(WORDS.split())
    repeated = sum(1 for w in set(WORDS.split()) if len(w) == 1)
    return 5 + len(PUNCTUATION) + 2 * len(LETTERS) + extra - repeated + 2


def pictures() -> dict[str, Image.Image]:
    """Pictures of every shape and mode, by name."""
    clear = np.concatenate([_waves(220, 180, 4), _waves(220, 180, 9)[..., :1]], -1)
    sixteen = _waves(200, 210, 8)[..., 0].astype(np.uint16) * 257
    return {
        "square": Image.fromarray(_waves(256, 256, 0)),
        "exact": Image.fromarray(_waves(224, 224, 1)),
        "wide": Image.fromarray(_waves(160, 480, 2)),
        "tall": Image.fromarray(_waves(420, 150, 3)),
        "grey": Image.fromarray(_waves(200, 240, 5)[..., 0]),
        "clear": Image.fromarray(clear),
        "palette": Image.fromarray(_waves(190, 210, 6)).quantize(64, dither=Image.Dither.NONE),
        "sixteen": Image.fromarray(sixteen),
        "tiny": Image.fromarray(_waves(9, 7, 7)),
        "huge": Image.fromarray(_waves(1500, 1100, 10)),
        "stripes": Image.fromarray(_stripes(300, 260)),
    }


def fold(shapes: Mapping[str, list[int]]) -> dict[str, Any]:
    """Shapes by name, with the layers of a tower, which are alike, as one: {} for their number in
    the name, and [how many, shape].
    """
    folded: dict[str, Any] = {}
    for name, shape in shapes.items():
        plain = re.sub(r"\b(blocks|layer)\.\d+\.", r"\1.{}.", name)
        number = folded.get(plain, [0])[0] + 1
        folded[plain] = shape if plain == name else [number, shape]
    return folded


def unfold(folded: Mapping[str, Any]) -> dict[str, list[int]]:
    """What :func:`fold` was given."""
    shapes = {}
    for name, value in folded.items():
        if "{}" in name:
            shapes |= {name.format(layer): value[1] for layer in range(value[0])}
        else:
            shapes[name] = value
    return shapes


def tensors(shapes: Mapping[str, Sequence[int]]) -> dict[str, np.ndarray]:
    """Weights by name (:func:`tensor`)."""
    return {name: tensor(name, shape) for name, shape in shapes.items()}


def tensor(name: str, shape: Sequence[int]) -> np.ndarray:
    """Weights of one name: unit gain for what multiplies, near 1 for norms, small for biases."""
    if name.endswith("position_ids"):
        return np.arange(shape[-1], dtype=np.int64).reshape(shape)
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    noise = np.random.Generator(np.random.PCG64(seed)).standard_normal(
        tuple(shape), dtype=np.float32
    )
    if name.endswith(".bias"):
        return 0.1 * noise
    if len(shape) == 1:
        return 1 + 0.1 * noise
    if "embeddings" in name or name.endswith(("cls_token", "pos_embed")):
        return noise
    return noise * np.float32(np.prod(shape[1:]) ** -0.5)


def checksum(weights: Mapping[str, np.ndarray]) -> float:
    """A number that changes if the generators do."""
    return float(sum(np.abs(w.astype(np.float64)).sum() for w in weights.values()))


def _waves(height: int, width: int, seed: int) -> np.ndarray:
    """Three triangle waves, one per channel, under a bright rectangle."""
    y, x = np.mgrid[:height, :width].astype(np.int64)
    side = min(height, width)
    channels = []
    for c in range(3):
        period = max(side * (2 + (seed + 2 * c) % 5) // 6, 2)
        steps = x * (1 + (seed * 3 + c) % 4) + y * (1 + (seed + c * 2) % 3) + seed * 37 + c * 61
        channels.append(np.abs(steps % (2 * period) - period) * 255 // period)
    picture = np.stack(channels, -1).astype(np.uint8)
    top, left = height * (1 + seed % 4) // 8, width * (1 + seed % 3) // 6
    colour = [(seed * 83 + 40) % 256, (seed * 151 + 190) % 256, (seed * 29 + 90) % 256]
    picture[top : top + height // 3, left : left + width // 4] = colour
    return picture


def _stripes(height: int, width: int) -> np.ndarray:
    """Stripes and squares of one and two pixels, which alias unless they are averaged."""
    y, x = np.mgrid[:height, :width]
    fine = np.where(y < height // 2, x % 2, (x // 2 + y // 2) % 2) * 255
    return np.stack([fine, 255 - fine, (x % 3 == 0) * 255], -1).astype(np.uint8)


def pairs() -> dict[str, tuple[Image.Image, Image.Image]]:
    """Pictures and their sources, of equal size, for distances."""
    first, other = _waves(64, 80, 0), _waves(64, 80, 1)
    shifted, darker = np.roll(first, 5, axis=1), (first // 2).astype(np.uint8)
    grey = np.repeat(first.mean(-1, keepdims=True).astype(np.uint8), 3, axis=-1)
    found = {
        "other": (first, other),
        "shifted": (first, shifted),
        "darker": (first, darker),
        "grey": (grey, first),
        "stripes": (_stripes(64, 80), first),
        "wide": (_waves(40, 160, 2), _waves(40, 160, 3)),
        "black and white": (np.zeros_like(first), np.full_like(first, 255)),
    }
    return {k: (Image.fromarray(a), Image.fromarray(b)) for k, (a, b) in found.items()}
