"""How many choices a taste needs: simulated users of the emoji world.

    python -m t2x.studio.taste_trial

A user likes one thing in pictures (colour, size, number, style or place: ``LIKES``), or dislikes
it; it is measured on the pixels, compared between pictures of one prompt, and chosen by with noise.
The fitted taste then orders pictures of prompts that the user never saw; chance is 0.5.

How a taste is fitted was chosen on ``prompts("choose")`` and their seeds; what is reported is of
other prompts and seeds.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

NOUNS = (
    "cat", "dog", "car", "bus", "bird", "horse", "banana", "apple", "umbrella", "cup", "chair",
    "clock", "boat", "book", "pizza", "cake", "bear", "elephant", "bicycle", "train", "sheep",
    "cow", "tie", "kite",
)  # fmt: skip
SEEDS = 8
FIRST_SEED = {"choose": 0, "report": 100}
TRAINING = 36  # prompts that choices are about; the others test
STEADINESS = 2.0  # odds of a choice per deviation of what is liked
LIKES = ("warm", "bright", "large", "vivid", "many", "contrast", "detailed", "right", "low")
_THING = 40  # pixels of the smallest thing that is counted
_COLOURS = ("red", "blue", "green", "yellow")

__all__ = ["LIKES", "liked_measures", "prompts", "trial"]


def prompts(part: Literal["choose", "report"]) -> list[str]:
    """Two for each noun."""
    found = []
    for i, noun in enumerate(NOUNS):
        if part == "choose":
            found += [f"a {noun}", f"two {noun}s and a {NOUNS[(i + 7) % len(NOUNS)]}"]
        else:
            other = NOUNS[(5 * i + 3) % len(NOUNS)]
            found += [f"some {noun}s", f"a {_COLOURS[i % 4]} {noun} and a {other}"]
    return found


def liked_measures(pictures: Tensor) -> Tensor:
    """(P, S, 3, H, W) in [0, 1] -> (P, S, 9): each of ``LIKES`` on what is not background, as
    deviations within the pictures of a prompt."""
    pixels = pictures.flatten(0, 1)  # (N, 3, H, W)
    drawn = ((pixels - pixels[..., :1, :1]).abs().sum(1) > 0.15).float()
    count = drawn.sum((-1, -2)).clamp(min=1)

    def mean(values: Tensor) -> Tensor:
        return (values * drawn).sum((-1, -2)) / count

    light = pixels.mean(1)
    steps = F.pad(light.diff(dim=-1).abs(), (0, 1)) + F.pad(light.diff(dim=-2).abs(), (0, 0, 0, 1))
    deviation = (mean(light.square()) - mean(light).square()).clamp(min=0).sqrt()
    across = torch.linspace(0, 1, drawn.shape[-1]).expand_as(drawn)
    down = torch.linspace(0, 1, drawn.shape[-2])[:, None].expand_as(drawn)
    values = torch.stack(
        [
            mean(pixels[:, 0] - pixels[:, 2]), mean(light), drawn.mean((-1, -2)),
            mean(pixels.amax(1) - pixels.amin(1)), torch.tensor([*map(_things, drawn)]), deviation,
            mean(steps), mean(across), mean(down),
        ],
        -1,
    )  # fmt: skip
    values = values.view(*pictures.shape[:2], -1)
    spread = values.std(1, keepdim=True).clamp(min=1e-6)
    return (values - values.mean(1, keepdim=True)) / spread


def _things(drawn: Tensor) -> float:
    """How many connected parts (H, W) has, without specks."""
    marks = torch.arange(1.0, drawn.numel() + 1).view_as(drawn) * drawn
    while True:
        spread = F.max_pool2d(marks[None, None], 3, 1, 1)[0, 0] * drawn
        if torch.equal(spread, marks):
            break
        marks = spread
    sizes = marks[marks > 0].unique(return_counts=True)[1]
    return float((sizes >= _THING).sum())


def trial(
    items: Tensor, liked: Tensor, *, choices: int, seed: int, looks: Tensor | None = None
) -> float:
    """Share of pairs of unseen pictures that the taste orders as the user would.

    ``items`` (P, S, D): unit embeddings; ``looks`` (P, S, 8): ``picture_look``; ``liked`` (P, S):
    how much the user likes each.
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
        better.append((row, a))
        worse.append((row, b))
    sides = [tuple(torch.tensor(side).T) for side in (better, worse)]
    seen = None if looks is None else tuple(looks[side] for side in sides)
    own = import_attr(REWARD_PARTS["pal-own-taste"])
    model = own("user", *(items[side] for side in sides), looks=seen)
    point = ideal_point(model.prototypes, model.users["user"][None])
    every = items if looks is None else torch.cat([items, looks], -1)
    rest = order[TRAINING:]
    scores = ideal_point_reward(every[rest].flatten(0, 1) @ model.project, point)
    scores, truth = scores.view(len(rest), -1), liked[rest]
    above = truth[:, :, None] > truth[:, None, :]
    said = scores[:, :, None] > scores[:, None, :]
    return float(said[above].float().mean())


def drawn(part: Literal["choose", "report"]) -> tuple[Tensor, Tensor, Tensor]:
    """Unit embeddings, looks and measures of the pictures of a part: (P, S, D), (P, S, 8) and
    (P, S, 9)."""
    from t2x.functional.look import picture_look
    from t2x.registry import load_generator
    from t2x.scoring.clip_encoder import load_clip

    generator, clip = load_generator("emoji-flow-turbo"), load_clip("emoji-clip")
    seeds = range(FIRST_SEED[part], FIRST_SEED[part] + SEEDS)
    rows = [generator.generate([text] * SEEDS, seeds=list(seeds)) for text in prompts(part)]
    pictures = torch.stack([row for row in rows if isinstance(row, Tensor)])
    with torch.no_grad():
        flat = torch.cat([clip.encode_image(row) for row in pictures])
    items = F.normalize(flat.float(), dim=-1).view(*pictures.shape[:2], -1)
    looks = picture_look(pictures.flatten(0, 1)).view(*pictures.shape[:2], -1)
    return items, looks, liked_measures(pictures)


def run(choices: Sequence[int] = (5, 10, 20, 40), repeats: int = 12) -> dict[str, Any]:
    """Draw, embed, and try all users; mean over users and its 95 % interval."""
    items, looks, measures = drawn("report")
    result: dict[str, Any] = {}
    for number in choices:
        users = {
            f"{word} {LIKES[k]}": [
                trial(items, sign * measures[..., k], choices=number, seed=s, looks=looks)
                for s in range(repeats)
            ]
            for k in range(len(LIKES))
            for word, sign in (("likes", 1), ("dislikes", -1))
        }
        every = torch.tensor([sum(values) / len(values) for values in users.values()])
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
