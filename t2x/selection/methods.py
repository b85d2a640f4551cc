"""How each method ranks candidates, and what it learns from results. One class each, all with the
same three parts: ``choose``, ``observe`` and a state of plain lists.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.functional.selection import beta_posterior, history_utility, ridge_weights
from t2x.selection.config import SelectionConfig
from t2x.selection.results import Evidence

if TYPE_CHECKING:
    from numpy.random import Generator

__all__ = ["P1", "Hive", "Method", "Mopps", "Pcl", "Uniform", "make_method"]

Probe = Callable[[list[int]], Sequence[float]]
_SEEN_HALF = 2  # candidates of HIVE's second stage per prompt that is chosen: half are pruned
_LEAST = 0.01  # of a utility, so that no prompt is written off for good


class Method(Protocol):
    """One way to choose."""

    def choose(self, candidates: Sequence[int], count: int, draws: Generator) -> list[int]:
        """Take ``count`` of the candidates, which come in random order."""
        ...

    def observe(self, found: Evidence) -> None:
        """Learn from groups of different prompts."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """What was learnt, as plain lists and numbers."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what ``state_dict`` gave."""
        ...


class Uniform:
    """Whatever comes; the temperature of ERPO is not a matter of choice (``sampler``)."""

    def choose(self, candidates: Sequence[int], count: int, draws: Generator) -> list[int]:
        return list(candidates[:count])

    def observe(self, found: Evidence) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


class Mopps:
    """Online difficulty posterior (MoPPS, Qu et al. 2025, arXiv 2507.04632): each prompt's success
    rate is Beta; one sample each, and those nearest to the target are taken.

    A group counts as many trials as it has measured rewrites. A prompt that was never drawn has
    the flat prior, and is soon tried.
    """

    def __init__(self, prompts: int, *, target: float, decay: float) -> None:
        self.target, self.decay = target, decay
        self.alpha = torch.ones(prompts, dtype=torch.float64)
        self.beta = torch.ones(prompts, dtype=torch.float64)

    def choose(self, candidates: Sequence[int], count: int, draws: Generator) -> list[int]:
        rows = torch.tensor(candidates)
        rate = torch.from_numpy(draws.beta(self.alpha[rows].numpy(), self.beta[rows].numpy()))
        return _best(candidates, -(rate - self.target).abs(), count)

    def observe(self, found: Evidence) -> None:
        known = ~found.rates.isnan()
        rows, successes = found.prompts[known], (found.rates * found.counts)[known]
        self.alpha[rows], self.beta[rows] = beta_posterior(
            self.alpha[rows],
            self.beta[rows],
            successes,
            found.counts[known] - successes,
            decay=self.decay,
        )

    def state_dict(self) -> dict[str, Any]:
        return {"alpha": self.alpha.tolist(), "beta": self.beta.tolist()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.alpha = _vector(state["alpha"], self.alpha)
        self.beta = _vector(state["beta"], self.beta)


class Pcl:
    """Value-model curriculum (PCL, Gao et al. 2025, arXiv 2510.01135): a model that is trained on
    each step's success rates predicts those of the candidates, and those nearest to the target are
    taken. It knows something of prompts that were never drawn.

    ``features``: (N, D), one row per prompt; they are standardised here.

    Differs from the paper: there a language model is fine-tuned as the value model; here a linear
    head on features that stay as they are, by ridge regression that forgets. It starts at the
    target for every prompt.
    """

    def __init__(self, features: Tensor, *, target: float, decay: float, ridge: float) -> None:
        self.target, self.decay, self.ridge = target, decay, ridge
        wide = features.detach().cpu().double()
        scale = wide.std(0, correction=0)
        wide = (wide - wide.mean(0)) / torch.where(scale > 0, scale, 1.0)
        one = torch.ones(len(wide), 1, dtype=torch.float64)
        # Rows of length 1, so that the ridge means the same for any number of features.
        self.features = torch.cat([wide / math.sqrt(max(wide.shape[1], 1)), one], 1)
        size = self.features.shape[1]
        self.gram = torch.zeros(size, size, dtype=torch.float64)
        self.moment = torch.zeros(size, dtype=torch.float64)

    def values(self, candidates: Sequence[int]) -> Tensor:
        """Success rates that are expected: (P,)."""
        weights = ridge_weights(self.gram, self.moment, ridge=self.ridge)
        return self.target + self.features[torch.tensor(candidates)] @ weights

    def choose(self, candidates: Sequence[int], count: int, draws: Generator) -> list[int]:
        return _best(candidates, -(self.values(candidates) - self.target).abs(), count)

    def observe(self, found: Evidence) -> None:
        known = ~found.rates.isnan()
        rows, errors = self.features[found.prompts[known]], found.rates[known] - self.target
        self.gram = self.decay * self.gram + rows.T @ rows
        self.moment = self.decay * self.moment + rows.T @ errors

    def state_dict(self) -> dict[str, Any]:
        return {"gram": self.gram.tolist(), "moment": self.moment.tolist()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.moment = _vector(state["moment"], self.moment)
        self.gram = torch.tensor(state["gram"], dtype=torch.float64)


class P1:
    """Variance filter (p1, Gao et al. 2026, arXiv 2604.08801): the candidates whose rewrites
    differ most in reward, beyond what their seeds explain. Continuous rewards need no threshold.

    A prompt that was never drawn goes first.

    Differs from the paper: p1 picks one subset, once, for the search of a system prompt; here the
    variance between the policy's own rewrites is followed as training goes on.
    """

    def __init__(self, prompts: int, *, decay: float) -> None:
        self.decay = decay
        self.variance = torch.full((prompts,), torch.nan, dtype=torch.float64)

    def choose(self, candidates: Sequence[int], count: int, draws: Generator) -> list[int]:
        variance = self.variance[torch.tensor(candidates)]
        return _best(candidates, variance.nan_to_num(torch.inf), count)

    def observe(self, found: Evidence) -> None:
        _blend(self.variance, found.prompts, found.variances, self.decay)

    def state_dict(self) -> dict[str, Any]:
        return {"variance": _plain(self.variance)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.variance = _vector(state["variance"], self.variance)


class Hive:
    """History, verified online (HIVE, Wu et al. 2026, arXiv 2603.25184). First twice as many
    candidates as are needed are drawn by the utility of their past rates; then those whose prompt
    entropy under the current policy is below the median are pruned.

    ``probe`` gives the entropies of prompts, by number. Without it the first stage alone chooses.

    Differs from the paper: only its abstract could be read; the drawing without replacement, by
    Gumbel noise on the logarithm of the utility, and its floor are ours.
    """

    def __init__(self, prompts: int, *, decay: float, probe: Probe | None = None) -> None:
        self.decay, self.probe = decay, probe
        self.rate = torch.full((prompts,), torch.nan, dtype=torch.float64)

    def choose(self, candidates: Sequence[int], count: int, draws: Generator) -> list[int]:
        utility = history_utility(self.rate[torch.tensor(candidates)]).clamp(min=_LEAST)
        noise = torch.from_numpy(draws.gumbel(size=len(candidates)))
        wanted = count if self.probe is None else min(_SEEN_HALF * count, len(candidates))
        kept = _best(candidates, utility.log() + noise, wanted)
        if self.probe is None or len(kept) == count:
            return kept
        return _best(kept, torch.tensor(self.probe(kept), dtype=torch.float64), count)

    def observe(self, found: Evidence) -> None:
        _blend(self.rate, found.prompts, found.rates, self.decay)

    def state_dict(self) -> dict[str, Any]:
        return {"rate": _plain(self.rate)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.rate = _vector(state["rate"], self.rate)


def make_method(
    config: SelectionConfig, prompts: int, features: Tensor | None, probe: Probe | None
) -> Method:
    """Build the method of a configuration for ``prompts`` prompts.

    Raises T2XError for pcl without features, or with those of another number of prompts.
    """
    name = config.method
    if name == "mopps":
        return Mopps(prompts, target=config.option("target"), decay=config.option("decay"))
    if name == "p1":
        return P1(prompts, decay=config.option("decay"))
    if name == "hive":
        return Hive(prompts, decay=config.option("decay"), probe=probe)
    if name != "pcl":
        return Uniform()
    if features is None or features.ndim != 2 or len(features) != prompts:
        given = "none" if features is None else f"shape {tuple(features.shape)}"
        raise T2XError(f"pcl needs features ({prompts}, D), a row for each prompt; got {given}")
    options = {key: config.option(key) for key in ("target", "decay", "ridge")}
    return Pcl(features, **options)


def _best(candidates: Sequence[int], priority: Tensor, count: int) -> list[int]:
    """The candidates of highest priority; of equals those that come first."""
    order = priority.sort(descending=True, stable=True).indices[:count]
    return [candidates[i] for i in order.tolist()]


def _blend(state: Tensor, rows: Tensor, values: Tensor, decay: float) -> None:
    """Move entries towards new values; a first one is taken as it is, NaN is not."""
    old = state[rows]
    moved = torch.where(old.isnan(), values, decay * old + (1 - decay) * values)
    state[rows] = torch.where(values.isnan(), old, moved)


def _plain(values: Tensor) -> list[float | None]:
    """Numbers that JSON can hold: NaN is None."""
    return [None if math.isnan(value) else value for value in values.tolist()]


def _vector(values: Sequence[float | None], like: Tensor) -> Tensor:
    if len(values) != len(like):
        raise T2XError(
            f"the selection was saved for {len(values)} prompts or features, and there are "
            f"{len(like)}; resume with the data of the run that saved it"
        )
    return torch.tensor([math.nan if v is None else v for v in values], dtype=like.dtype)
