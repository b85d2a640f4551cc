"""How good the embedded rewards are: against scene truth on renders, and against the judge on
generated pictures.

    t2x world rewards --reward clip,hps,aesthetic,vqa

Area under the ROC curve: the odds that a picture which the judge accepts scores above one that it
does not (Fawcett 2006). Prompts are held-out user prompts as typed. ``pooled`` takes all pairs,
``within`` only pairs of pictures of the same prompt.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from t2x.world.corruption import corrupt, to_pictures
from t2x.world.preferences import near_miss, show
from t2x.world.prompts import held_out_prompts, validation_prompts

if TYPE_CHECKING:
    from t2x.types import Generator, RewardModel
    from t2x.world.evaluate import Progress

__all__ = ["auc", "near_miss_metrics", "reward_aucs", "within_auc"]


def auc(scores: Tensor, labels: Tensor) -> float:
    """Area under the ROC curve of (N,) scores against (N,) bool labels; ties count half. NaN
    without both labels.

    Pairs whose score is NaN are left out.
    """
    known = ~scores.isnan()
    scores, labels = scores[known].double(), labels[known].bool()
    good, bad = scores[labels], scores[~labels].sort().values
    if len(good) == 0 or len(bad) == 0:
        return float("nan")
    below = torch.searchsorted(bad, good, right=False)
    upto = torch.searchsorted(bad, good, right=True)
    return float((below + upto).double().mean() / 2 / len(bad))


def within_auc(scores: Tensor, labels: Tensor, groups: Sequence[int]) -> float:
    """The same over pairs within groups, every pair alike; NaN if no group holds both labels."""
    rows: dict[int, list[int]] = defaultdict(list)
    for index, group in enumerate(groups):
        rows[group].append(index)
    won = total = 0.0
    for members in rows.values():
        s, y = scores[members], labels[members].bool()
        known = ~s.isnan()
        pairs = float((y & known).sum() * (~y & known).sum())
        if pairs:
            won += auc(s, y) * pairs
            total += pairs
    return won / total if total else float("nan")


def near_miss_metrics(clip: str, *, n: int = 600, seed: int = 3) -> dict[str, float]:
    """Accuracy of a CLIP on renders: right picture above one that is one change away, both clean or
    both spoilt.

    On validation prompts, and on held-out ones (``test/``) whose pairs and kinds no training set
    shows; ``near_miss/KIND`` by change.
    """
    from t2x.functional.scores import cosine
    from t2x.scoring.clip_encoder import load_clip

    encoder = load_clip(clip, device="cpu")
    metrics: dict[str, float] = {}
    for split, prompts in (
        ("validation", validation_prompts(n, seed)),
        ("test", held_out_prompts(n, seed)),
    ):
        rng = random.Random(seed)
        right = [show(p.scene, rng, held_out=True) for p in prompts]
        missed = [near_miss(s, rng, held_out=True) for s in right]
        text = encoder.encode_text([p.text for p in prompts])
        clean = to_pictures([s.picture for s in (*right, *(m for m, _ in missed))])
        spoilt, _ = corrupt(clean, torch.Generator().manual_seed(seed), clean=0)
        for name, pictures in (("clean", clean), ("spoilt", spoilt)):
            image = encoder.encode_image(pictures)
            a, b = cosine(image[:n], text), cosine(image[n:], text)
            metrics[f"{split}/{name}"] = float((a > b).float().mean())
            metrics[f"{split}/{name}_auc"] = auc(torch.cat([a, b]), torch.arange(2 * n) < n)
            if split == "validation" and name == "clean":
                kinds = [kind for _, kind in missed]
                for kind in sorted(set(kinds)):
                    rows = torch.tensor([k == kind for k in kinds])
                    metrics[f"near_miss/{kind}"] = float((a > b)[rows].float().mean())
    return metrics


def reward_aucs(
    rewards: Sequence[RewardModel],
    *,
    generator: str | Generator = "emoji-flow",
    n: int = 1000,
    per_prompt: int = 2,
    seed: int = 11,
    batch_size: int = 32,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """AUC of each reward against the judge on ``n`` pictures of held-out prompts, ``per_prompt`` of
    each, drawn from the words that the user typed.

    Gives the share that the judge accepts, how often each fault came ``first`` and, per reward,
    ``pooled`` over all pairs of pictures, ``within`` prompts, and ``faults``: accepted pictures
    against those with that fault (and maybe others behind it).
    """
    from t2x.registry import load_generator
    from t2x.world.judge import FAULTS, judge_pictures

    model = load_generator(generator) if isinstance(generator, str) else generator
    prompts = [p for p in held_out_prompts(n // per_prompt, seed) for _ in range(per_prompt)]
    groups = [i // per_prompt for i in range(len(prompts))]
    texts = [p.text for p in prompts]
    media = []
    for start in range(0, len(texts), batch_size):
        part = texts[start : start + batch_size]
        media += list(model.generate(part, seeds=[seed + start + i for i in range(len(part))]))
        if progress is not None:
            progress("pictures as drawn", len(media), len(texts))
    pictures = torch.stack(media)
    verdicts = judge_pictures([p.scene for p in prompts], pictures)
    labels = torch.tensor([v.correct for v in verdicts])
    rows = {f: [i for i, v in enumerate(verdicts) if v.correct or v.fault == f] for f in FAULTS}
    first = {fault: sum(v.fault == fault for v in verdicts) for fault in FAULTS}
    accepted = float(labels.float().mean())
    found: dict[str, Any] = {"n": len(prompts), "accepted": accepted, "first": first, "rewards": {}}
    for reward in rewards:
        scores = reward.score(texts, pictures)
        found["rewards"][reward.name] = {
            "pooled": auc(scores, labels),
            "within": within_auc(scores, labels, groups),
            "faults": {fault: auc(scores[own], labels[own]) for fault, own in rows.items()},
            "missing": int(scores.isnan().sum()),
        }
    return found
