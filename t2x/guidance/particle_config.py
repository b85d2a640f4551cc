"""Settings of particles, plain values for YAML and keys of stores."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from t2x.config import check_ranges
from t2x.errors import T2XError

__all__ = ["ParticleConfig"]

_ALLOWED = {
    "method": ("fk", "svdd", "twisted"),
    "potential": ("difference", "max", "sum"),
    "resampling": ("systematic", "ssp"),
    "final": ("resample", "keep"),
}


@dataclass(frozen=True)
class ParticleConfig:
    """How several trajectories of one prompt compete while they are drawn.

    Args:
        count: particles of each prompt, k.
        method: *fk*: weights by potentials of the reward, resampled when too few particles carry
            them (FK steering). *svdd*: at each checked step one of ``candidates`` is chosen by
            softmax(``strength`` r) and takes the place of all; r of x0_hat stands for the value of
            what may come, so that what is drawn is near the target, but not of it. *twisted*: as
            fk, and whatever moved x0_hat is a proposal that the weights pay for (DAS).
        strength: lambda (1 / alpha) of the target p(x) exp(lambda r(x)).
        potential: *difference*, *max* or *sum* of the values on the way (fk; twisted takes
            differences).
        tempered: the reward's share grows along the run as in DAS (fk and twisted with
            differences).
        resampling: *systematic* or *ssp*.
        threshold: resample where the effective sample size is below this part of ``count``; 1
            resamples at each checked step.
        candidates: of which SVDD chooses one, a divisor of ``count``; ``count`` without.
        start, stop: parts of the run (0 to 1) between which steps are checked.
        every: of the steps between, check each ``every``-th.
        noise: 0 leaves the steps to the solver, 1 is ancestral. Clones of a solver without noise
            stay clones: 0 is for schedulers that add noise themselves.
        final: *resample*: what the call returns is drawn by the last weights, so that pictures
            count alike; *keep*: it is weighed (``Particles.log_weights``).
        decode_scale: decode smaller latents for the values on the way (0 to 1].
        frames: latent frames of a video that are decoded on the way; all without.
        seed: of guidance's own noise and choices.

    Raises T2XError for a value out of range.
    """

    count: int = 4
    method: Literal["fk", "svdd", "twisted"] = "fk"
    strength: float = 10.0
    potential: Literal["difference", "max", "sum"] = "difference"
    tempered: bool = False
    resampling: Literal["systematic", "ssp"] = "ssp"
    threshold: float = 0.5
    candidates: int | None = None
    start: float = 0.0
    stop: float = 1.0
    every: int = 1
    noise: float = 1.0
    final: Literal["resample", "keep"] = "keep"
    decode_scale: float = 1.0
    frames: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name, allowed in _ALLOWED.items():
            if getattr(self, name) not in allowed:
                raise T2XError(
                    f"particles: {name} is {getattr(self, name)!r}; allowed: {', '.join(allowed)}"
                )
        check_ranges(
            "particles",
            self,
            {
                "count": (1, 1_000_000),
                "strength": (0.0, math.inf),
                "threshold": (0.0, 1.0),
                "candidates": (1, math.inf),
                "start": (0.0, 1.0),
                "stop": ("start", 1.0),
                "every": (1, 10_000),
                "noise": (0.0, 1.0),
                "decode_scale": (1e-3, 1.0),
                "frames": (1, math.inf),
                "seed": (0, 2**64 - 1),
            },
        )
        if self.candidates is not None and self.count % self.candidates:
            raise T2XError(
                f"particles: candidates is {self.candidates}; give a divisor of count, {self.count}"
            )
        if self.method == "twisted" and self.noise == 0:
            raise T2XError("particles: noise is 0; twisted ones need some, give 0 to 1")
        if self.potential != "difference" and (self.tempered or self.method == "twisted"):
            raise T2XError(
                f'particles: potential is {self.potential!r}; give "difference" with twisted or '
                "tempered ones"
            )

    def checks(self, index: int, total: int) -> bool:
        """Whether particles are compared at step ``index`` of ``total``; not at the last, after
        which the finished samples are."""
        first, last = math.ceil(self.start * total), math.ceil(self.stop * total)
        return first <= index < min(last, total - 1) and (index - first) % self.every == 0
