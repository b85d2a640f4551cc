"""A reward learnt from a vision-language model's choices between two pictures (RL-VLM-F, Wang et
al. 2024, arXiv 2402.03681).

    from t2x.scoring.pair_choice import choose
    asked = choose(prompts, first, second, source="Qwen/Qwen2.5-VL-7B-Instruct")
    model = fit(prompts, first, second, asked.labels, encoder="emoji-clip")
    model.save("runs/choice"); reward = t2x.load_reward("rl-vlm-f", source="runs/choice")

Once fitted, it costs a CLIP and one dot product in place of the model that chose. Labels are 0 (the
first picture), 1 (the second) or -1 (can't tell, left out), whoever made them.

Differs from the paper: a linear Bradley-Terry head on frozen CLIP features of picture and prompt
in place of a network on pixels for one goal; fitted once, not while a policy learns.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from t2x.devices import Device
from t2x.errors import T2XError
from t2x.functional.preferences import pair_features
from t2x.scoring.clip_encoder import load_clip
from t2x.scoring.pairs import check_pairs, measurable
from t2x.scoring.preference_fit import fit_linear
from t2x.scoring.reward import EncoderReward, Features
from t2x.types import Media

log = logging.getLogger(__name__)

__all__ = ["ChoiceModel", "fit", "load"]

_FILES = ("choice.safetensors", "config.json")
_LABELS = {0, 1, -1}


@dataclass(frozen=True)
class ChoiceModel:
    """What was fitted: ``weight`` (2 D,) on :func:`t2x.functional.preferences.pair_features`, and
    the name of the CLIP whose embeddings it takes.
    """

    weight: Tensor
    encoder: str

    def save(self, folder: str | Path) -> None:
        """Write ``choice.safetensors`` and ``config.json``."""
        from safetensors.torch import save_file

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        save_file({"weight": self.weight.contiguous()}, folder / _FILES[0])
        (folder / _FILES[1]).write_text(json.dumps({"encoder": self.encoder}))


def fit(
    prompts: Sequence[str],
    first: Media,
    second: Media,
    labels: Sequence[int] | Tensor,
    *,
    encoder: str = "emoji-clip",
    penalty: float = 1e-3,
) -> ChoiceModel:
    """Fit the head to M choices between ``first[i]`` and ``second[i]`` for ``prompts[i]``.

    Pairs that can't be measured are left out, and a warning says how many. Raises ``T2XError`` for
    other labels than 0, 1 and -1, and if no choice is left. The same choices give the same model.
    """
    check_pairs(prompts, first, name="rl-vlm-f")
    check_pairs(prompts, second, name="rl-vlm-f")
    wanted = [int(label) for label in labels]
    if len(wanted) != len(prompts) or not set(wanted) <= _LABELS:
        raise T2XError(
            f"give one label per pair, 0, 1 or -1 for can't tell; got {len(wanted)} for "
            f"{len(prompts)} pairs: {sorted(set(wanted))}"
        )
    good = measurable(prompts, first) & measurable(prompts, second)
    if lost := int((~good).sum()):
        log.warning("%d of %d pairs can't be measured and are left out", lost, len(wanted))
    told = [i for i, label in enumerate(wanted) if label >= 0 and good[i]]
    if not told:
        raise T2XError(f"none of {len(wanted)} choices could be told; there is nothing to fit")
    clip = load_clip(encoder)
    with torch.no_grad():
        text = clip.encode_text(prompts)
        a, b = (pair_features(clip.encode_image(m), text).cpu() for m in (first, second))
    is_second = torch.tensor(wanted)[told].bool().unsqueeze(1)
    weight = fit_linear(
        torch.where(is_second, b[told], a[told]),
        torch.where(is_second, a[told], b[told]),
        penalty=penalty,
    )
    return ChoiceModel(weight.float(), encoder)


def load(
    source: str | Path | ChoiceModel | None = None,
    *,
    name: str = "rl-vlm-f",
    device: Device | None = None,
    dtype: torch.dtype | None = None,
) -> EncoderReward:
    """Load the reward of a fitted model: a :class:`ChoiceModel` or the folder that it was saved to.

    Scores are log-odds against any other picture of the same prompt, up to a constant. Raises
    ``T2XError`` for a folder without a model.
    """
    model = source if isinstance(source, ChoiceModel) else _read(source)
    clip = load_clip(model.encoder, device=device, dtype=dtype)

    def head(features: Mapping[str, Features]) -> Tensor:
        seen = pair_features(features["clip"]["image"], features["clip"]["text"])
        return seen @ model.weight.to(seen)

    return EncoderReward(
        name=name,
        encoders={"clip": clip},
        head=head,
        scale="log-odds of being chosen, up to a constant per prompt",
    )


def _read(source: str | Path | None) -> ChoiceModel:
    if source is None or not all((Path(source) / f).is_file() for f in _FILES):
        raise T2XError(
            f"there is no fitted choice model at {source!r}; fit one with "
            "t2x.rewards.learned_choice.fit and give it, or the folder that it was saved to "
            f"({', '.join(_FILES)})"
        )
    from safetensors.torch import load_file

    config = json.loads((Path(source) / _FILES[1]).read_text())
    return ChoiceModel(load_file(Path(source) / _FILES[0])["weight"], config["encoder"])
