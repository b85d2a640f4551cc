"""Counts what a way to make pictures does: floating-point operations under
``torch.utils.flop_counter``, and evaluations of each part of a pipeline and of rewards.

    meter = Meter()
    rewards = [meter.reward(r) for r in rewards]
    with meter.watching(pipe):
        ...
    meter.counts.nfe

A ``Meter`` listens to the modules and to the rewards that it has wrapped, whatever method calls
them; ``t2x.guidance.cost`` makes FLOPs of its counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from torch import Tensor

    from t2x.scoring.reward import EncoderReward
    from t2x.types import Context, Media, Modality, RewardModel

__all__ = ["Counts", "Meter", "counted", "first_tensor", "metered_modules", "reward_part"]

_TEXT_ENCODERS = ("text_encoder", "text_encoder_2", "text_encoder_3")


# ---- counting operations ------------------------------------------------------------------------


def counted(run: Callable[[], Any]) -> float:
    """Floating-point operations of the matrix products, convolutions and attention of a run
    (``torch.utils.flop_counter``)."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    aten = torch.ops.aten
    counter = FlopCounterMode(
        display=False,
        custom_mapping={
            aten._scaled_dot_product_flash_attention_for_cpu: _attention,
            aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
        },
    )
    counter.mod_tracker = _NoTracker()  # type: ignore[assignment]
    with counter:
        run()
    return float(counter.get_total_flops())


class _NoTracker:
    """In place of what tells modules apart: its hooks fail in ``autograd.grad`` for a leaf that
    went into a module, and only the sum is wanted."""

    parents = frozenset({"Global"})

    def __enter__(self) -> None: ...

    def __exit__(self, *args: object) -> None: ...


def _products(query: Sequence[int], key: Sequence[int], value: Sequence[int]) -> tuple[int, int]:
    """Operations of Q K^T and of P V, queries (B, H, S, D); keys may have fewer heads."""
    pairs = 2 * query[0] * query[1] * query[2] * key[2]
    return pairs * query[3], pairs * value[3]


def _attention(
    query: Sequence[int],
    key: Sequence[int],
    value: Sequence[int],
    *args: Any,
    out_shape: Any = None,
    **kwargs: Any,
) -> int:
    return sum(_products(query, key, value))


def _attention_backward(
    gradient: Sequence[int],
    query: Sequence[int],
    key: Sequence[int],
    value: Sequence[int],
    *args: Any,
    out_shape: Any = None,
    **kwargs: Any,
) -> int:
    """The scores once more, two products for queries and keys, two for probabilities and values."""
    scores, values = _products(query, key, value)
    return 3 * scores + 2 * values


# ---- counting evaluations -----------------------------------------------------------------------


def reward_part(name: str) -> str:
    """What a reward is called among the parts."""
    return f"reward {name}"


@dataclass
class Counts:
    """Evaluations of single samples by part, a batch of N counting N, forward and backward: parts
    "text", "denoiser" (classifier-free guidance counts 2), "decoder", "encoder", "reward NAME",
    "reward NAME text" (prompts that it met first), and what a caller adds."""

    forward: Counter[str] = field(default_factory=Counter)
    backward: Counter[str] = field(default_factory=Counter)

    def add(self, part: str, rows: float, *, backward: bool = False) -> None:
        """Count ``rows`` more evaluations of ``part``."""
        table: Counter[str] = self.backward if backward else self.forward
        table[part] += rows  # type: ignore[assignment]  # means over prompts are no integers

    def __add__(self, other: Counts) -> Counts:
        """Both, part by part."""
        return Counts(self.forward + other.forward, self.backward + other.backward)

    def scaled(self, factor: float) -> Counts:
        """``factor`` times as many of each."""
        found = Counts()
        for part, rows in self.forward.items():
            found.add(part, rows * factor)
        for part, rows in self.backward.items():
            found.add(part, rows * factor, backward=True)
        return found

    @property
    def nfe(self) -> float:
        """Evaluations of the denoiser."""
        return self.forward["denoiser"]

    @property
    def reward_forwards(self) -> float:
        """Pictures scored, once for each reward."""
        return _of_rewards(self.forward)

    @property
    def reward_backwards(self) -> float:
        """Gradients taken, once for each reward."""
        return _of_rewards(self.backward)

    def to_dict(self) -> dict[str, dict[str, float]]:
        """Plain data for JSON."""
        return {"forward": dict(self.forward), "backward": dict(self.backward)}

    @staticmethod
    def from_dict(data: Mapping[str, Mapping[str, float]]) -> Counts:
        """Inverse of :meth:`to_dict`."""
        found = Counts()
        for part, rows in data["forward"].items():
            found.add(part, rows)
        for part, rows in data["backward"].items():
            found.add(part, rows, backward=True)
        return found


def _of_rewards(table: Mapping[str, float]) -> float:
    return sum(
        rows for part, rows in table.items() if part[:7] == "reward " and part[-5:] != " text"
    )


class Meter:
    """Counts the evaluations of a pipeline's parts, and of rewards that it has wrapped, in
    ``counts``."""

    def __init__(self) -> None:
        self.counts = Counts()
        self._seen: list[set[str]] = []

    def forget_texts(self) -> None:
        """Charge rewards for every prompt anew: of several methods each pays for its own texts."""
        for seen in self._seen:
            seen.clear()

    def take(self) -> Counts:
        """What was counted since the last time."""
        found, self.counts = self.counts, Counts()
        return found

    @contextmanager
    def watching(self, pipe: Any) -> Iterator[Counts]:
        """Count inside: forward passes of denoiser, text encoder, VAE decoder and encoder, and
        backward passes where a gradient reaches what they gave."""
        with ExitStack() as stack:
            for part, module in metered_modules(pipe):
                listener = _Listener(self, part)
                stack.callback(module.register_forward_hook(listener).remove)
            yield self.counts

    def reward(self, reward: RewardModel) -> RewardModel:
        """The same reward, whose calls are counted."""
        from t2x.scoring.reward import EncoderReward

        if isinstance(reward, EncoderReward):
            return self._encoder_reward(reward)
        return _MeteredReward(reward, self)

    def _encoder_reward(self, reward: EncoderReward) -> RewardModel:
        """Counted at its head, so that rewards still share the pass of an encoder."""
        part, seen = reward_part(reward.name), set[str]()
        self._seen.append(seen)
        head = reward.head

        def counting(features: Any) -> Tensor:
            values: Tensor = head(features)
            self.add(part, len(values), values)
            return values

        encoders = {
            role: _MeteredEncoder(encoder, self, f"{part} text", seen)
            for role, encoder in reward.encoders.items()
        }
        metered: Any = replace(reward, head=counting, encoders=encoders)
        return cast("RewardModel", metered)

    def add(self, part: str, rows: int, result: Tensor) -> None:
        """Count an evaluation that gave ``result``, and its backward pass once it comes."""
        self.counts.add(part, rows)
        if result.requires_grad:
            # Closed over the meter, not its counts: a gradient may come after `take`.
            result.register_hook(lambda _: self.counts.add(part, rows, backward=True))


class _Listener:
    """A forward hook that counts the rows of what a module gives."""

    def __init__(self, meter: Meter, part: str) -> None:
        self.meter, self.part = meter, part

    def __call__(self, module: Any, given: Any, result: Any) -> None:
        from torch._subclasses.fake_tensor import FakeTensor

        first = first_tensor(result)
        if isinstance(first, FakeTensor):  # a memory check computes nothing
            return
        rows = len(result) if isinstance(result, list) else len(first)
        self.meter.add(self.part, rows, first)


class _MeteredEncoder:
    """An encoder that counts the prompts that it meets for the first time: texts are cached."""

    def __init__(self, encoder: Any, meter: Meter, part: str, seen: set[str]) -> None:
        self.encoder, self.meter, self.part, self.seen = encoder, meter, part, seen
        self.key = encoder.key

    def encode(self, prompts: Sequence[str], media: Media, **options: Any) -> Any:
        """As the encoder does."""
        new = set(prompts) - self.seen
        if new:
            self.seen |= new
            self.meter.counts.add(self.part, len(new))
        return self.encoder.encode(prompts, media, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.encoder, name)


class _MeteredReward:
    """Any reward, with its calls counted."""

    def __init__(self, reward: RewardModel, meter: Meter) -> None:
        self.reward, self.meter = reward, meter
        self.name, self.scale, self.range = reward.name, reward.scale, reward.range
        self.modality: Modality = reward.modality
        self.differentiable = reward.differentiable

    def score(
        self, prompts: Sequence[str], media: Media, *, context: Context | None = None
    ) -> Tensor:
        """As the reward does."""
        scores = self.reward.score(prompts, media, context=context)
        self.meter.add(reward_part(self.name), len(prompts), scores)
        return scores

    def __getattr__(self, name: str) -> Any:
        return getattr(self.reward, name)


def metered_modules(pipe: Any) -> Iterator[tuple[str, Any]]:
    """Parts of a pipeline that are counted, and the modules that are listened to."""
    import torch

    from t2x.guidance.step import DENOISERS

    vae = getattr(pipe, "vae", None)
    found = [("denoiser", getattr(pipe, name, None)) for name in DENOISERS]
    # One text is one row, however many encoders read it.
    found.append(("text", next((m for n in _TEXT_ENCODERS if (m := getattr(pipe, n, None))), None)))
    found += [
        ("decoder", getattr(vae, "decoder", None)),
        ("encoder", getattr(vae, "encoder", None)),
    ]
    yield from ((part, m) for part, m in found if isinstance(m, torch.nn.Module))


def first_tensor(result: Any) -> Tensor:
    """The first tensor of what a module gives: a tensor, a sequence, or a record of diffusers or
    transformers."""
    from torch import Tensor

    while not isinstance(result, Tensor):
        result = next(iter(result.values())) if hasattr(result, "values") else result[0]
    return result
