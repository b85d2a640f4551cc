"""What rewards say of a job's pictures: one reward after the other, so that each is seen as soon as
it is there, and one that fails costs its own column alone.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from t2x.errors import T2XError
from t2x.studio.events import Scored
from t2x.types import Context

if TYPE_CHECKING:
    from torch import Tensor

    from t2x.studio.work import Work
    from t2x.types import Media, RewardModel

__all__ = ["score_pictures"]

log = logging.getLogger(__name__)


def score_pictures(
    work: Work,
    names: Sequence[str],
    words: str,
    media: Mapping[str, Sequence[Tensor]],
    *,
    context: Context | None = None,
) -> None:
    """Tell the scores of the pictures of each arm, (3, H, W) or (F, 3, H, W) each, against the
    user's own words.

    ``context`` holds what is the same for all pictures, one entry each; the user's id is added. A
    reward that can't be loaded or used is NaN and says why.
    """
    rows = [(arm, picture) for arm, pictures in media.items() for picture in pictures]
    if not rows:
        return
    for number, name in enumerate(names):
        work.progress(f"scoring with {name}", number, len(names))
        with work.phase("score"):
            work.tell(_column(work, name, words, rows, context))


def _column(
    work: Work,
    name: str,
    words: str,
    rows: Sequence[tuple[str, Tensor]],
    context: Context | None,
) -> Scored:
    from t2x.generators.loading import quiet

    arms = list(dict.fromkeys(arm for arm, _ in rows))
    try:
        with quiet():
            reward = work.models.reward(name, user=work.user)
            values = _measured(work, reward, words, [picture for _, picture in rows], context)
    except Exception as error:  # the pictures are there: no reward may take them along
        if not isinstance(error, T2XError | OSError):
            log.warning("reward %s is not measured", name, exc_info=True)
        nothing = {arm: tuple(math.nan for a, _ in rows if a == arm) for arm in arms}
        return Scored(name, nothing, problem=reason(error))
    by_arm = {
        arm: tuple(v for (a, _), v in zip(rows, values, strict=True) if a == arm) for arm in arms
    }
    low, high = reward.range
    missing = all(math.isnan(value) for value in values)
    return Scored(
        name,
        by_arm,
        scale=reward.scale,
        range=(float(low), float(high)),
        problem="it can't tell for these pictures" if missing else "",
    )


def _measured(
    work: Work,
    reward: RewardModel,
    words: str,
    pictures: Sequence[Tensor],
    context: Context | None,
) -> list[float]:
    """One number for each picture, in order."""
    import torch

    from t2x.generators.outputs import gathered
    from t2x.scoring.frames import frames

    video = pictures[0].ndim == 4
    if video and reward.modality == "image":
        reward = frames(reward)
    elif not video and reward.modality == "video":
        raise T2XError(f"{reward.name} scores videos, and these are pictures")
    found: list[float] = []
    for picture in pictures:  # one by one: a score does not depend on what else was drawn
        work.check()
        media: Media = gathered([picture])
        with torch.no_grad():
            scores = reward.score([words], media, context=_of_user(context, work.user))
        if tuple(scores.shape) != (1,):
            raise T2XError(f"{reward.name} gave scores of shape {tuple(scores.shape)}, not (1,)")
        found.append(float(scores.double()[0]))
    return found


def _of_user(context: Context | None, user: str) -> Context:
    from dataclasses import replace

    return replace(context or Context(), user=(user,))


def reason(error: BaseException) -> str:
    """One line; of errors that nobody raised on purpose, the kind as well."""
    text = " ".join(str(error).split())[:400]
    if isinstance(error, T2XError | OSError) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
