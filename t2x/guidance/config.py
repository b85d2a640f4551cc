"""Settings of reward guidance, plain values for YAML and keys of stores."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from t2x.config import check_ranges
from t2x.errors import T2XError

__all__ = ["GuidanceConfig", "parse_rewards"]


@dataclass(frozen=True)
class GuidanceConfig:
    """How rewards steer a run.

    Args:
        rewards: weights by reward name; 1 for a reward that is not named.
        mode: "E" differentiates through the decoder only (MPGD's kind), "J" through the denoiser,
            too (Universal Guidance's and RewardFlow's kind).
        rule: *relative*: a step moves x0_hat by ``size`` times the size of the CFG correction (of
            the output where there is none), along the gradient (FreeDoM's rule). *tilt*:
            ``size`` is lambda of the tilted law p(x) exp(lambda r(x)).
        size: see ``rule``.
        eta_min, eta_max, steepness, target: RewardFlow's logistic step size, a factor of ``size``:
            eta_min + (eta_max - eta_min) sigmoid(-steepness (R - target)), where R is the mean of
            the rewards' places in their ranges. Not with *tilt*, where steps are those of the law.
        damping: divide ``size`` by 1 + 2 size s^2, s^2 the variance of x0 given x_t.
        variance: of clean latents, from which s^2 is worked out.
        noise: 0 follows the ODE, 1 is ancestral; the predicted noise shrinks by what is added.
        correctors: Langevin steps at each guided level before the scheduler's, each a denoiser
            evaluation.
        corrector_ratio: signal to noise ratio r of a corrector step (Song et al. 2021).
        start, stop: parts of the run (0 to 1) between which steps are guided.
        free_last: last steps without guidance.
        every: of the steps between, guide each ``every``-th.
        adaptive: with several rewards, weights follow what each prompt asks for and move, step by
            step, to what is still answered wrong (``t2x.guidance.policy``; the last needs the
            reward *questions*). Without, they stay as given.
        decode_scale: decode smaller latents, to save memory (0 to 1].
        frames: latent frames of a video that are decoded; all without.
        tether: pull of x0_hat to latents that ``guide`` is given beside it: a precision,
            1 / latent^2. (``t2x.guidance.editing`` has its own, ``EditConfig.tether``.)
        seed: of guidance's own noise.
        checkpointing: gradient checkpointing of denoiser and decoder, where the classes have it.

    Raises T2XError for a value out of range.
    """

    rewards: Mapping[str, float] = field(default_factory=dict)
    mode: Literal["E", "J"] = "E"
    rule: Literal["relative", "tilt"] = "relative"
    size: float = 0.2
    eta_min: float = 0.5
    eta_max: float = 1.5
    steepness: float = 4.0
    target: float = 0.5
    damping: bool = True
    variance: float = 1.0
    noise: float = 0.0
    correctors: int = 0
    corrector_ratio: float = 0.1
    start: float = 0.0
    stop: float = 1.0
    free_last: int = 2
    every: int = 1
    adaptive: bool = True
    decode_scale: float = 1.0
    frames: int | None = None
    tether: float = 0.0
    seed: int = 0
    checkpointing: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.rewards, Mapping):
            raise T2XError(
                f"guidance: rewards is {self.rewards!r}; give weights by name, like "
                '{"clip": 1.0}, or words to parse_rewards'
            )
        others = "; the other modes are of t2x.guidance.recipe.make_recipe and load_generator"
        for name, allowed, hint in (
            ("mode", ("E", "J"), others),
            ("rule", ("relative", "tilt"), ""),
        ):
            if getattr(self, name) not in allowed:
                raise T2XError(
                    f"guidance: {name} is {getattr(self, name)!r}; allowed: {', '.join(allowed)}"
                    f"{hint}"
                )
        check_ranges(
            "guidance",
            self,
            {
                "size": (0.0, math.inf),
                "eta_min": (0.0, math.inf),
                "eta_max": ("eta_min", math.inf),
                "steepness": (0.0, math.inf),
                "target": (-math.inf, math.inf),
                "variance": (1e-12, math.inf),
                "noise": (0.0, 1.0),
                "correctors": (0, 100),
                "corrector_ratio": (1e-6, 1.0),
                "start": (0.0, 1.0),
                "stop": ("start", 1.0),
                "free_last": (0, 10_000),
                "every": (1, 10_000),
                "decode_scale": (1e-3, 1.0),
                "frames": (1, math.inf),
                "tether": (0.0, math.inf),
                "seed": (0, 2**64 - 1),
            },
        )
        for name, weight in self.rewards.items():
            if isinstance(weight, bool) or not isinstance(weight, (int, float)):
                raise T2XError(f"guidance: the weight of {name} is {weight!r}; give a number")
            if not math.isfinite(weight):
                raise T2XError(f"guidance: the weight of {name} is {weight}; give a finite number")

    def guides(self, index: int, total: int) -> bool:
        """Whether step ``index`` of ``total`` is guided."""
        first, last = math.ceil(self.start * total), math.ceil(self.stop * total)
        last = min(last, total - self.free_last)
        return first <= index < last and (index - first) % self.every == 0 and self.size > 0

    def guides_any(self, total: int) -> bool:
        """Whether any step of ``total`` is guided."""
        return any(self.guides(index, total) for index in range(total))


def parse_rewards(text: str) -> dict[str, float]:
    """Read "vqa=1,clip=0.3"; a name alone weighs 1. Raises T2XError for anything else,
    and for a name that comes twice."""
    found: dict[str, float] = {}
    for part in text.split(","):
        name, given, weight = (word.strip() for word in part.partition("="))
        if name in found:
            raise T2XError(f"{text!r} names {name} twice; give each reward one weight")
        try:
            found[name] = float(weight) if given else 1.0
        except ValueError:
            name = ""
        if not name:
            raise T2XError(
                f"{text!r} names no rewards; give NAME=WEIGHT with commas between, for "
                "instance vqa=1,clip=0.3"
            )
    return found
