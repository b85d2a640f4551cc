"""Original-prompt-centred guidance (Parrot, arXiv 2401.05675): the user's words beside a rewrite.

with original_prompt_guidance(pipe, ["a cat"], 2.0, 3.0):
    pipe(["a fluffy cat on a red sofa, studio light"])
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from t2x.errors import T2XError
from t2x.functional.classifier_free import three_way
from t2x.guidance.combination import Predictions, combined

__all__ = ["original_prompt_guidance", "parse_three_way"]


@contextmanager
def original_prompt_guidance(
    pipe: Any,
    originals: Sequence[str] | Mapping[str, str],
    w_original: float,
    w_rewrite: float | None = None,
) -> Iterator[None]:
    """Guide every call of ``pipe`` inside by the user's words and by their rewrite.

    Each step predicts w1 eps(original) + (1 - w1 - w2) eps(empty) + w2 eps(prompt), at the cost of
    one more evaluation of the denoiser: 3 for 2.

    Args:
        pipe: any pipeline of diffusers that runs with classifier-free guidance, unmodified.
        originals: the user's words, one for each prompt of a call, or by prompt; the prompts are
            the rewrites.
        w_original: w1, 0 or more. At 0 nothing is evaluated for the originals.
        w_rewrite: w2, 0 or more; without, what w1 leaves of the call's own scale, so that the
            guidance is as strong as before. Parrot has w1 = w2 = 5.

    "Empty" is the call's negative prompt, where it has one. What a pipeline does to the combined
    prediction besides (rescaling to the size of the conditional one) refers to the rewrite's.
    Raises T2XError for weights out of range, and for calls without classifier-free guidance
    (distilled models) before they draw.
    """
    weights = {"w_original": w_original} | ({} if w_rewrite is None else {"w_rewrite": w_rewrite})
    for name, value in weights.items():
        if not (math.isfinite(value) and value >= 0):
            raise T2XError(f"{name} is {value}; give 0 or more, for instance 2")
    if isinstance(originals, str):
        raise T2XError("originals is a list of texts, one for each prompt; got a single text")

    def combine(found: Predictions) -> Tensor | None:
        rest = found.scale - w_original if w_rewrite is None else w_rewrite
        if rest < 0:
            raise T2XError(
                f"w_original is {w_original} but the whole scale of the call {found.scale}; give "
                "less, raise the scale, or give w_rewrite"
            )
        if found.original is None and rest == found.scale:
            return None
        original = found.conditional if found.original is None else found.original
        return three_way(found.unconditional, original, found.conditional, w_original, rest)

    if w_original == 0 and w_rewrite is None:
        yield  # the pipeline's own guidance, to the bit
        return
    with combined(pipe, combine, originals=originals if w_original else None):
        yield


def parse_three_way(text: str) -> tuple[float, float | None]:
    """Read "W1,W2" or "W1". Raises T2XError for anything else."""
    try:
        first, *rest = (float(part) for part in text.split(","))
    except ValueError:
        rest, first = [0.0, 0.0], 0.0
    if len(rest) > 1 or not all(math.isfinite(w) and w >= 0 for w in (first, *rest)):
        raise T2XError(
            f"--three-way is {text!r}; give the weights of your words and of the rewrite, 0 or "
            "more, for instance 2,3 (one number: the rewrite gets the rest of the guidance scale)"
        )
    return first, rest[0] if rest else None
