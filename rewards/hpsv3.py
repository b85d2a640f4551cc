"""HPSv3: a human-preference score of Qwen2-VL form (Ma et al. 2025, arXiv 2508.03789).

    reward = t2x.load_reward("hpsv3", source="MizzenAI/HPSv3", base="Qwen/Qwen2-VL-7B-Instruct")

The picture, fitted to 200,704 pixels in sides of 28, and a rating instruction that holds the prompt
and ends in the token ``<|Reward|>`` are one chat turn; a head 3584-1024-16-2 reads the last hidden
state there, in float32. The score is mu, of (mu, sigma), without bounds.

The instruction is part of the weights and not of this package: it is read, not run, from the
``hpsv3`` package where that is installed (``pip install --no-deps hpsv3``), or given.

Positions count tokens, pictures included, as the released code has it; Qwen2-VL's own positions in
three directions give other scores. Pictures are resized as tensors, to the bit as Pillow does it
there, and gradients pass. Differs from it: transparent pictures lie on white; runs of blanks in a
prompt are one. Not run on real weights.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from t2x.devices import Device, move_loaded, present_device
from t2x.errors import T2XError
from t2x.failures import explain, first_line
from t2x.functional.preferences import uncertain_reward
from t2x.scoring.frozen import frozen
from t2x.scoring.loaded import loaded_layers, loaded_objects
from t2x.scoring.resize import resize
from t2x.scoring.reward import EncoderReward, Features
from t2x.scoring.state_files import read_state
from t2x.scoring.vlm import Vlm
from t2x.weight_files import find_weights

if TYPE_CHECKING:
    from t2x.types import Context, Media

__all__ = ["REWARD_TOKEN", "RewardTokenEncoder", "load"]

REWARD_TOKEN = "<|Reward|>"
PIXELS = 256 * 28 * 28
_SIDE = 28
_FILE = "HPSv3.safetensors"
_HEAD = "rm_head."
_NAMES = ("INSTRUCTION", "prompt_with_special_token")
_PROMPT = "{text_prompt}"


class RewardTokenEncoder:
    """Last hidden state (N, D), float32, at the reward token of ``instruction``, which holds
    ``{text_prompt}`` and the token once each. Feature: ``state``.
    """

    def __init__(
        self, vlm: Vlm, instruction: str, *, max_prompt_tokens: int = 1024, batch_size: int = 4
    ) -> None:
        if instruction.count(_PROMPT) != 1 or instruction.count(REWARD_TOKEN) != 1:
            raise T2XError(
                f"the instruction must hold {_PROMPT} and {REWARD_TOKEN} once each, got "
                f"{instruction[:80]!r}"
            )
        self.vlm, self.instruction = vlm, instruction
        self.token = vlm.token(REWARD_TOKEN)
        self.max_prompt_tokens, self.batch_size = max_prompt_tokens, batch_size
        self.key = f"{vlm.key} {max_prompt_tokens} {instruction}"

    def encode(
        self,
        prompts: Sequence[str],
        media: Media,
        *,
        parts: frozenset[str] = frozenset({"state"}),
        context: Context | None = None,
    ) -> dict[str, Tensor]:
        """Read N pairs."""
        self.vlm.check_gradient(media)
        plain = self.vlm.fitted(prompts, self.max_prompt_tokens)
        texts = [self.vlm.chat(self.instruction.replace(_PROMPT, p)) for p in plain]
        pictures = [_fitted(item) for item in media]
        starts = range(0, len(texts), self.batch_size)
        slices = [slice(s, s + self.batch_size) for s in starts]
        return {"state": torch.cat([self._read(texts[s], pictures[s]) for s in slices])}

    def _read(self, texts: Sequence[str], pictures: Sequence[Tensor]) -> Tensor:
        inputs = self.vlm.inputs(texts, pictures)
        ids = inputs["input_ids"]
        places = torch.arange(ids.shape[1], device=ids.device).expand(ids.shape)
        with frozen(self.vlm.model):
            output = self.vlm.model.model(**inputs, position_ids=places, use_cache=False)
        state: Tensor = output.last_hidden_state[ids == self.token]
        return state.float()


def load(
    source: str | Path | tuple[Any, Any, Sequence[tuple[Tensor, Tensor]]] = "MizzenAI/HPSv3",
    *,
    base: str | Path = "Qwen/Qwen2-VL-7B-Instruct",
    instruction: str | None = None,
    name: str = "hpsv3",
    max_prompt_tokens: int = 1024,
    batch_size: int = 4,
    device: Device | None = None,
    dtype: torch.dtype | None = None,
) -> EncoderReward:
    """Load the reward.

    ``source``: a file, a folder or a hub id that holds ``HPSv3.safetensors``, or a loaded
    ``(model, processor, layers)`` with the head's affine layers. ``base``: where the configuration
    and the processor of the backbone are. ``dtype`` is that of the backbone, by default float32 on
    a CPU and bfloat16 elsewhere; the head is in float32. A loaded model stays as it is. Raises
    ``T2XError`` for weights that do not fit, and where there is no instruction.
    """
    from transformers import AddedToken

    objects = loaded_objects(source, what="HPSv3", forms=(("model", "processor", "layers"),))
    if objects is not None:
        model, processor = objects[:2]
        layers = loaded_layers(objects[2], what="head of HPSv3")
        model = move_loaded(model, device, dtype)
        key = f"object {id(model)}"
    else:
        assert isinstance(source, (str, Path))
        place = present_device(device)
        number = dtype or (torch.float32 if place.type == "cpu" else torch.bfloat16)
        model, processor, layers = _load(source, str(base), number)
        model = model.requires_grad_(False).to(place)
        key = f"{source} {base} {place} {number}"
    token = AddedToken(REWARD_TOKEN, special=True)
    processor.tokenizer.add_tokens([token], special_tokens=True)
    vlm = Vlm(model, processor, key=key)

    def head(features: Mapping[str, Features]) -> Tensor:
        state = features["vlm"]["state"]
        return uncertain_reward(state, [(w.to(state), b.to(state)) for w, b in layers])[:, 0]

    return EncoderReward(
        name=name,
        encoders={
            "vlm": RewardTokenEncoder(
                vlm,
                instruction or _instruction(),
                max_prompt_tokens=max_prompt_tokens,
                batch_size=batch_size,
            )
        },
        head=head,
        scale="mu",
        parts=frozenset({"text", "state"}),
        differentiable=vlm.differentiable,
    )


def _fitted(picture: Tensor) -> Tensor:
    """A picture (3, H, W) or (1, 3, H, W) as the weights saw it, behind Pillow: (3, height, width).

    The processor, which would fit pictures itself, finds nothing left to do.
    """
    height, width = picture.shape[-2:]
    batch = picture.reshape(1, 3, height, width)
    return resize(batch, _size(height, width), rounded=True)[0]


def _size(height: int, width: int) -> tuple[int, int]:
    """Sides in multiples of 28 with about ``PIXELS`` pixels at most, or at least, and nearly the
    aspect of the picture.
    """
    sides = [max(_SIDE, round(s / _SIDE) * _SIDE) for s in (height, width)]
    if sides[0] * sides[1] > PIXELS:
        ratio = math.sqrt(height * width / PIXELS)
        sides = [max(_SIDE, math.floor(s / ratio / _SIDE) * _SIDE) for s in (height, width)]
    elif sides[0] * sides[1] < PIXELS:
        # The quotient of the released code: 1 / ratio may round to the next multiple of 28.
        ratio = math.sqrt(PIXELS / (height * width))
        sides = [math.ceil(s * ratio / _SIDE) * _SIDE for s in (height, width)]
    return sides[0], sides[1]


def _load(source: str | Path, base: str, dtype: torch.dtype) -> tuple[Any, Any, Any]:
    from transformers import AutoProcessor, Qwen2VLConfig, Qwen2VLForConditionalGeneration

    tensors = read_state(_weights(source))
    head = {k.removeprefix(_HEAD): tensors.pop(k) for k in list(tensors) if k.startswith(_HEAD)}
    numbers = sorted({int(k.partition(".")[0]) for k in head})
    try:
        config = Qwen2VLConfig.from_pretrained(base)
        processor = AutoProcessor.from_pretrained(base)
        layers = [(head[f"{n}.weight"], head[f"{n}.bias"]) for n in numbers]
        config.text_config.vocab_size = len(tensors["model.embed_tokens.weight"])
        model, report = Qwen2VLForConditionalGeneration.from_pretrained(
            None, config=config, state_dict=tensors, dtype=dtype, output_loading_info=True
        )
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        reason = explain(error, base) or first_line(error)
        raise T2XError(f"can't load HPSv3 from {str(source)!r} on {base!r}: {reason}") from error
    wrong = sorted([*report["missing_keys"], *report["unexpected_keys"]])
    if wrong or not layers:
        raise T2XError(f"{str(source)!r} is no HPSv3 on {base!r}: {', '.join(wrong[:6])}")
    return model, processor, layers


def _weights(source: str | Path) -> Path:
    return find_weights(source, what=f"HPSv3 checkpoint ({_FILE})", preferred=(_FILE,))


def _instruction() -> str:
    """The rating instruction, from the source of the installed ``hpsv3`` package."""
    package = find_spec("hpsv3")
    places = (package.submodule_search_locations or []) if package else []
    for place in places:
        path = Path(place) / "dataset" / "data_collator_qwen.py"
        if path.is_file():
            found = _constants(path.read_text(encoding="utf-8"))
            if all(n in found for n in _NAMES):
                return "".join(found[n] for n in _NAMES)
    raise T2XError(
        "hpsv3 needs the rating instruction that its weights were trained with; install it: "
        f"pip install --no-deps hpsv3, or give instruction=, with {_PROMPT} and {REWARD_TOKEN}"
    )


def _constants(source: str) -> dict[str, str]:
    """Strings that a module assigns at its top level, without running it."""
    return {
        target.id: node.value.value
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
