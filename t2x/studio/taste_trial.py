"""How many choices a taste needs: simulated users of the emoji world.

    python -m t2x.studio.taste_trial

A user likes one thing in pictures (warm, bright, large, vivid), or dislikes it; it is measured on
the pixels, compared between pictures of one prompt, and chosen by with noise. The fitted taste then
orders pictures of prompts that the user never saw; chance is 0.5.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

NOUNS = (
    "cat", "dog", "car", "bus", "bird", "horse", "banana", "apple", "umbrella", "cup", "chair",
    "clock", "boat", "book", "pizza", "cake", "bear", "elephant", "bicycle", "train", "sheep",
    "cow", "tie", "kite",
)  # fmt: skip
SEEDS = 8
TRAINING = 36  # prompts that choices are about; the others test
STEADINESS = 2.0  # odds of a choice per deviation of what is liked
LIKES = ("warm", "bright", "large", "vivid")

__all__ = ["LIKES", "liked_measures", "trial"]


def prompts() -> list[str]:
    """Two for each noun: alone, and two of them with another one."""
    pairs = [(noun, NOUNS[(i + 7) % len(NOUNS)]) for i, noun in enumerate(NOUNS)]
    return [text for a, b in pairs for text in (f"a {a}", f"two {a}s and a {b}")]


def liked_measures(pictures: Tensor) -> Tensor:
    """(P, S, 3, H, W) in [0, 1] -> (P, S, 4): each of ``LIKES`` on what is not background, as
    deviations within the pictures of a prompt."""
    pixels = pictures.flatten(3)
    drawn = ((pixels - pixels[..., :1]).abs().sum(2) > 0.15).float()
    count = drawn.sum(-1).clamp(min=1)
    spread = pixels.amax(2) - pixels.amin(2)
    columns = [pixels[:, :, 0] - pixels[:, :, 2], pixels.mean(2), torch.ones_like(drawn), spread]
    found = [(column * drawn).sum(-1) / count for column in columns]
    found[2] = drawn.mean(-1)
    values = torch.stack(found, -1)
    deviation = values.std(1, keepdim=True).clamp(min=1e-6)
    return (values - values.mean(1, keepdim=True)) / deviation


def trial(items: Tensor, liked: Tensor, *, choices: int, seed: int) -> float:
    """Share of pairs of unseen pictures that the taste orders as the user would.

    ``items`` (P, S, D): unit embeddings; ``liked`` (P, S): how much the user likes each.
    """
    from t2x.functional.preferences import ideal_point, ideal_point_reward
    from t2x.registry import REWARD_PARTS, import_attr

    stream = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(items), generator=stream)
    better, worse = [], []
    for i in range(choices):
        row = int(order[i % TRAINING])
        a, b = torch.randperm(items.shape[1], generator=stream)[:2].tolist()
        first = torch.sigmoid(STEADINESS * (liked[row, a] - liked[row, b]))
        if torch.rand((), generator=stream) > first:
            a, b = b, a
        better.append(items[row, a])
        worse.append(items[row, b])
    own = import_attr(REWARD_PARTS["pal-own-taste"])
    model = own("user", torch.stack(better), torch.stack(worse))
    point = ideal_point(model.prototypes, model.users["user"][None])
    rest = order[TRAINING:]
    scores = ideal_point_reward(items[rest].flatten(0, 1), point).view(len(rest), -1)
    truth = liked[rest]
    above = truth[:, :, None] > truth[:, None, :]
    said = scores[:, :, None] > scores[:, None, :]
    return float(said[above].float().mean())


def run(choices: Sequence[int] = (5, 10, 20, 40), repeats: int = 12) -> dict[str, Any]:
    """Draw, embed, and try all users; mean over runs and its 95 % interval."""
    from torch.nn import functional as F

    from t2x.registry import load_generator
    from t2x.scoring.clip_encoder import load_clip

    generator, clip = load_generator("emoji-flow-turbo"), load_clip("emoji-clip")
    rows = []
    for text in prompts():
        rows.append(generator.generate([text] * SEEDS, seeds=list(range(SEEDS))))
    pictures = torch.stack([row for row in rows if isinstance(row, Tensor)])
    with torch.no_grad():
        flat = torch.cat([clip.encode_image(row) for row in pictures])
    items = F.normalize(flat.float(), dim=-1).view(*pictures.shape[:2], -1)
    measures = liked_measures(pictures)
    result: dict[str, Any] = {}
    for number in choices:
        users = {
            f"{word} {LIKES[k]}": [
                trial(items, sign * measures[..., k], choices=number, seed=s)
                for s in range(repeats)
            ]
            for k in range(len(LIKES))
            for word, sign in (("likes", 1), ("dislikes", -1))
        }
        every = torch.tensor([value for values in users.values() for value in values])
        error = 1.96 * float(every.std()) / len(every) ** 0.5
        mean = float(every.mean())
        result[str(number)] = {
            "mean": round(mean, 3),
            "interval": [round(mean - error, 3), round(mean + error, 3)],
            "users": {name: round(sum(v) / len(v), 3) for name, v in users.items()},
        }
    return result


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run(), indent=1) + "\n")
