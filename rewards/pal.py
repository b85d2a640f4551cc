"""PAL: a personal reward, minus the distance of a picture from what one user likes best, a mixture
of prototypes that all users share (Chen et al. 2024, arXiv 2406.08469, model A).

    model = fit(first_user_ids, chosen, rejected, encoder="emoji-clip")  # many users' choices
    model = add_user(model, "ada", chosen, rejected)                     # a handful of one user's
    model.save("runs/pal"); reward = t2x.load_reward("pal", source="runs/pal")
    reward.score(prompts, pictures, context=Context(user=["ada", "ben"]))

Items are L2-normalised CLIP image embeddings under a linear map; of a new user only the weights
over the prototypes are fitted. The prompt plays no part. ``own_taste`` knows one user alone, and
looks at colours and detail (``t2x.functional.look``) beside the embedding.

Differs from the paper: the item map is linear, the simplex is a softmax, and of its link functions
there is the distance alone. The released code has the text variant only; no weights are published.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from t2x.devices import Device
from t2x.errors import T2XError
from t2x.functional.look import picture_look
from t2x.functional.preferences import ideal_point, ideal_point_reward
from t2x.scoring.clip_encoder import ClipEncoder, load_clip
from t2x.scoring.pairs import measurable
from t2x.scoring.preference_fit import fit_linear, fit_prototypes, fit_weights
from t2x.scoring.reward import Encoder, EncoderReward, Features

if TYPE_CHECKING:
    from t2x.types import Context, Media

__all__ = ["PalModel", "UserEncoder", "add_user", "fit", "load", "own_taste"]

_SCALE = 10.0  # of distances in the Bradley-Terry odds
_REACH = 10.0  # of one user's own taste, in choices' lengths; docs/log.md tells what was tried
_FILES = ("pal.safetensors", "config.json")


@dataclass(frozen=True)
class PalModel:
    """What was fitted: item map ``project`` (D, d), ``prototypes`` (K, d), weights (K,) by user,
    and the name of the CLIP whose embeddings it takes; with ``look`` they are followed by the
    numbers of ``picture_look``.
    """

    project: Tensor
    prototypes: Tensor
    users: Mapping[str, Tensor]
    encoder: str
    look: bool = False

    def save(self, folder: str | Path) -> None:
        """Write ``pal.safetensors`` and ``config.json``."""
        from safetensors.torch import save_file

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        names = list(self.users)
        tensors = {
            "project": self.project,
            "prototypes": self.prototypes,
            "weights": torch.stack([self.users[n] for n in names]),
        }
        save_file({k: v.contiguous() for k, v in tensors.items()}, folder / _FILES[0])
        config = {"encoder": self.encoder, "users": names, "look": self.look}
        (folder / _FILES[1]).write_text(json.dumps(config, ensure_ascii=False, indent=1))


def fit(
    users: Sequence[str],
    chosen: Media,
    rejected: Media,
    *,
    encoder: str = "emoji-clip",
    prototypes: int = 4,
    width: int = 8,
    seed: int = 0,
) -> PalModel:
    """Fit map, prototypes and weights to M choices: ``users[i]`` liked ``chosen[i]`` better than
    ``rejected[i]``. The same choices and seed give the same model.
    """
    _check(len(users), chosen, rejected)
    names = list(dict.fromkeys(users))
    numbers = torch.tensor([names.index(u) for u in users])
    clip = load_clip(encoder)
    project, points, weights = fit_prototypes(
        _items(clip, chosen),
        _items(clip, rejected),
        numbers,
        count=prototypes,
        width=width,
        scale=_SCALE,
        seed=seed,
    )
    table = {n: w.float() for n, w in zip(names, weights, strict=True)}
    return PalModel(project.float(), points.float(), table, encoder)


def add_user(model: PalModel, user: str, chosen: Media, rejected: Media) -> PalModel:
    """A model that knows ``user`` too, or anew, from a handful of choices; the rest stays as it
    is.
    """
    if model.look:
        raise T2XError("this model is of one user's own taste; fit another for each with own_taste")
    _check(len(chosen), chosen, rejected)
    clip = load_clip(model.encoder)
    weights = fit_weights(
        _items(clip, chosen) @ model.project,
        _items(clip, rejected) @ model.project,
        model.prototypes,
        scale=_SCALE,
    )
    return replace(model, users={**model.users, user: weights.float()})


def own_taste(
    user: str,
    chosen: Tensor,
    rejected: Tensor,
    *,
    looks: tuple[Tensor, Tensor] | None = None,
    encoder: str = "emoji-clip",
) -> PalModel:
    """A model of one user alone, from the unit embeddings (M, D) of what they liked better and
    worse: a handful of choices is enough, and no other users are needed.

    ``looks`` are ``picture_look`` of the same pictures, (M, 8) each; NaN where it is not known.

    Embedding and each number of the look are divided by their root mean square over the choices
    (each of the eight by the root of eight, too, so that together they weigh as the embedding). The
    direction is that of the Bradley-Terry reward of largest posterior under a normal prior of unit
    variance; the ideal point lies on it, ``_REACH`` from the mean.

    Differs from the paper: there is one prototype, the user's own; the item map is that scaling.
    """
    if not len(chosen) or chosen.shape != rejected.shape:
        raise T2XError(
            f"a taste needs choices: M better and M worse embeddings, got {tuple(chosen.shape)} "
            f"and {tuple(rejected.shape)}"
        )
    difference, mean = chosen - rejected, torch.cat([chosen, rejected]).mean(0)
    scale = _inverse(difference.square().sum(1).mean().sqrt()).expand(chosen.shape[1])
    if looks is not None:
        more, middle = looks[0] - looks[1], torch.cat(looks).nanmean(0).nan_to_num()
        rms = more.square().nanmean(0).sqrt().nan_to_num()
        difference = torch.cat([difference, more.nan_to_num()], 1)
        mean = torch.cat([mean, middle])
        scale = torch.cat([scale, _inverse(rms) / more.shape[1] ** 0.5])
    still = torch.zeros_like(difference)
    weights = fit_linear(difference * scale, still, penalty=0.5 / len(chosen)).float()
    ideal = mean * scale + _REACH * F.normalize(weights, dim=0)
    return PalModel(scale.diag(), ideal[None], {user: torch.ones(1)}, encoder, looks is not None)


def _inverse(size: Tensor) -> Tensor:
    """1 / size, and 0 of what is the same in all choices."""
    return torch.where(size > 1e-6, 1 / size.clamp(min=1e-6), torch.zeros_like(size))


def _check(count: int, chosen: Media, rejected: Media) -> None:
    if count == 0 or not count == len(chosen) == len(rejected):
        raise T2XError(
            f"each choice is a user, a chosen and a rejected picture; got {count}, {len(chosen)} "
            f"and {len(rejected)}"
        )
    none = [""] * count
    good = measurable(none, chosen, needs_text=False) & measurable(none, rejected, needs_text=False)
    if not bool(good.all()):
        wrong = (~good).nonzero().flatten().tolist()
        raise T2XError(f"choices {wrong} hold pixels that are not finite; leave them out")


@torch.no_grad()
def _items(clip: ClipEncoder, media: Media) -> Tensor:
    return F.normalize(clip.encode_image(media).float(), dim=-1).cpu()  # where fitting is done


class UserEncoder:
    """Feature: ``ideal`` (N, d), the ideal point of each sample's user (``Context.user``); a model
    of one user needs no such context."""

    def __init__(self, model: PalModel) -> None:
        self.model = model
        self.key = f"ideal points {id(model)}"

    def encode(
        self,
        prompts: Sequence[str],
        media: Media,
        *,
        parts: frozenset[str] = frozenset({"ideal"}),
        context: Context | None = None,
    ) -> dict[str, Tensor]:
        """Look up N users."""
        users = context.user if context is not None else None
        if users is None and len(self.model.users) == 1:
            users = list(self.model.users) * len(prompts)
        if users is None or isinstance(users, str) or len(users) != len(prompts):
            given = "none" if users is None else repr(users)
            raise T2XError(
                f"pal scores for a user: give Context(user=[...]) with {len(prompts)} ids, got "
                f"{given}"
            )
        known = self.model.users
        if unknown := sorted({u for u in users if u not in known}):
            raise T2XError(
                f"pal does not know {', '.join(map(repr, unknown))}; it knows "
                f"{', '.join(map(repr, known))}; fit others with add_user"
            )
        weights = torch.stack([known[u] for u in users])
        return {"ideal": ideal_point(self.model.prototypes, weights)}


class LookEncoder:
    """Feature ``look`` (N, 8), ``picture_look``."""

    key = "look"

    def encode(
        self,
        prompts: Sequence[str],
        media: Media,
        *,
        parts: frozenset[str] = frozenset({"look"}),
        context: Context | None = None,
    ) -> dict[str, Tensor]:
        """Look at N pictures."""
        items = media if isinstance(media, list) else [media]
        return {"look": torch.cat([picture_look(item) for item in items])}


def load(
    source: str | Path | PalModel | None = None,
    *,
    name: str = "pal",
    device: Device | None = None,
    dtype: torch.dtype | None = None,
) -> EncoderReward:
    """Load the reward of a fitted model: a :class:`PalModel` or the folder that it was saved to.

    Raises ``T2XError`` for a folder without one, and at scoring for samples without a known user.
    """
    model = source if isinstance(source, PalModel) else _read(source)
    clip = load_clip(model.encoder, device=device, dtype=dtype)

    def head(features: Mapping[str, Features]) -> Tensor:
        image = features["clip"]["image"]
        image = F.normalize(image.to(torch.promote_types(image.dtype, torch.float32)), dim=-1)
        if model.look:
            image = torch.cat([image, features["look"]["look"].to(image)], -1)
        ideal = features["user"]["ideal"].to(image)
        return ideal_point_reward(image @ model.project.to(image), ideal)

    encoders: dict[str, Encoder] = {"clip": clip, "user": UserEncoder(model)}
    if model.look:
        encoders["look"] = LookEncoder()
    return EncoderReward(
        name=name,
        encoders=encoders,
        head=head,
        scale="minus the distance from the user's ideal point",
        range=(float("-inf"), 0.0),
        parts=frozenset({"image", "ideal", "look"}),
    )


def _read(source: str | Path | None) -> PalModel:
    if source is None or not all((Path(source) / f).is_file() for f in _FILES):
        raise T2XError(
            f"there is no PAL model at {source!r}; fit one with t2x.rewards.pal.fit and give it, "
            f"or the folder that it was saved to ({', '.join(_FILES)})"
        )
    from safetensors.torch import load_file

    tensors: dict[str, Any] = load_file(Path(source) / _FILES[0])
    config = json.loads((Path(source) / _FILES[1]).read_text())
    users = dict(zip(config["users"], tensors["weights"], strict=True))
    look = bool(config.get("look", False))
    return PalModel(tensors["project"], tensors["prototypes"], users, config["encoder"], look)
