"""Prompt-aware policy of RewardFlow (arXiv 2604.08536): which rewards weigh how much for a prompt,
where they look, how large the steps are, and how weights move while sampling.

    policy = PromptPolicy(rewards, config)
    with t2x.guide(pipe, rewards, config, policy=policy): pipe(prompts)
    print(policy.show(prompts))

Decided once from the primitives of a prompt, by the table :data:`RULES`; while sampling weight goes
to rewards whose questions are still answered wrong. Differs from the paper: its heuristic is told
in words only (local colour edits raise the segmentation weight, global style the perceptual one);
the factors are ours, and none was learnt or tuned.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.functional.reward_weights import faults_of_rewards, satisfied_weights
from t2x.guidance.config import GuidanceConfig
from t2x.guidance.primitives import KINDS, Primitives, read_prompt
from t2x.guidance.regions import Region, regions_of, with_regions
from t2x.types import Context, RewardModel

__all__ = [
    "ROLES",
    "RULES",
    "SERVES",
    "Policy",
    "PromptPolicy",
    "Rule",
    "own_policy",
    "policy_for",
    "role_of",
]

# What a reward is good for, by the beginning of its name; the longest that fits counts.
ROLES: Mapping[str, str] = {
    "aesthetic": "look",
    "align": "questions",
    "blip-itm": "semantic",
    "clip": "semantic",
    "dino": "fidelity",
    "grounded": "region",
    "hps": "preference",
    "imagereward": "preference",
    "laion": "look",
    "lpips": "fidelity",
    "ocr": "text",
    "pal": "preference",
    "pickscore": "preference",
    "promptecho": "semantic",
    "quality": "look",
    "questions": "questions",
    "region": "region",
    "rl-vlm-f": "preference",
    "siglip": "semantic",
    "vlm-rm": "semantic",
    "vqa": "questions",
    "yes-no": "questions",
}
# How much a role does for a kind of primitive; what is not named does nothing for it.
SERVES: Mapping[str, Mapping[str, float]] = {
    "questions": dict.fromkeys(KINDS, 1.0),
    "region": {"object": 1.0, "attribute": 1.0},
    "semantic": {"object": 0.5, "attribute": 0.5, "style": 1.0},
    "look": {"style": 1.0},
    "preference": {"style": 0.5},
    "text": {"text": 1.0},
}


@dataclass(frozen=True)
class Rule:
    """What a policy does about prompts that fit: of one of ``actions`` and ``scopes`` (all, where
    empty), with a primitive of one of ``kinds`` (none needed, where empty) and at least ``things``
    objects.

    ``factors`` multiply the weights of roles, ``size`` the step; steps before ``start`` and from
    ``stop`` on (parts of the run) are left alone.
    """

    why: str
    factors: Mapping[str, float]
    actions: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    things: int = 0
    size: float = 1.0
    start: float = 0.0
    stop: float = 1.0

    def fits(self, found: Primitives) -> bool:
        """Whether the rule is about such a prompt."""
        present = {item.kind for item in found.items}
        return (
            (not self.actions or found.intent.action in self.actions)
            and (not self.scopes or found.intent.scope in self.scopes)
            and (not self.kinds or bool(present & set(self.kinds)))
            and len(found.of("object")) >= self.things
        )


RULES: tuple[Rule, ...] = (
    Rule(
        "numbers are told by questions; a similarity hardly knows them",
        {"questions": 1.5},
        ("generate", "add", "replace"),
        kinds=("count",),
    ),
    Rule(
        "places are told by questions, and are decided early",
        {"questions": 1.5},
        ("generate", "add", "replace"),
        kinds=("relation",),
    ),
    Rule(
        "which thing has which colour shows where the thing is",
        {"questions": 1.2, "region": 1.5},
        ("generate",),
        kinds=("attribute",),
        things=2,
    ),
    Rule("what is ruled out is asked for by name", {"questions": 1.3}, kinds=("negation",)),
    Rule("written text", {"text": 2.0, "questions": 1.2}, kinds=("text",)),
    Rule(
        "a style is of the whole picture",
        {"look": 1.5, "semantic": 1.3},
        ("generate",),
        kinds=("style",),
    ),
    Rule(
        "a local colour edit: the region, and the rest as it was",
        {"region": 2.0, "fidelity": 1.5, "look": 0.5},
        ("attribute",),
        ("local",),
        size=0.8,
        start=0.2,
    ),
    Rule(
        "a thing changed or added: its region, and the rest as it was",
        {"region": 1.5, "questions": 1.3, "fidelity": 1.3},
        ("add", "replace"),
        ("local",),
        size=1.2,
    ),
    Rule(
        "a thing removed: that it is gone, and the rest as it was",
        {"questions": 1.5, "fidelity": 1.5, "region": 0.5},
        ("remove",),
        size=1.2,
    ),
    Rule(
        "a global style edit: the look, not the old picture's",
        {"look": 2.0, "semantic": 1.5, "region": 0.5, "fidelity": 0.5},
        ("style",),
        ("global",),
    ),
)


def role_of(name: str) -> str:
    """The role of a reward by its name; "" for one that no rule speaks of."""
    fits = [prefix for prefix in ROLES if name.startswith(prefix)]
    return ROLES[max(fits, key=len)] if fits else ""


@dataclass(frozen=True)
class Policy:
    """What was decided for one prompt: ``weights`` by reward name, of the sum given;
    ``regions``, what shall be where; ``size``, a factor of the step; ``start`` and ``stop``, parts
    of the run between which it is guided; and ``reasons``.
    """

    primitives: Primitives
    weights: Mapping[str, float]
    regions: tuple[Region, ...] = ()
    size: float = 1.0
    start: float = 0.0
    stop: float = 1.0
    adaptive: bool = True
    temperature: float = 0.5
    reasons: tuple[str, ...] = ()

    def adapt(
        self, values: Tensor, right: Tensor | None = None, kinds: Sequence[str] = ()
    ) -> Tensor:
        """Weights (K,) for what is still wrong, in the order of ``weights``; of their sum.

        ``values`` (K,), NaN for what can't be measured; ``right`` (Q,), 1 for a question answered
        right, 0 for a wrong one, between for frames of a video, NaN for none; ``kinds``: of the
        Q primitives asked about. Detached. Negative weights stay as they are.
        """
        given = torch.tensor(list(self.weights.values()), device=values.device)
        if not self.adaptive or right is None or not len(kinds):
            return given
        serves = torch.tensor(
            [[SERVES.get(role_of(n), {}).get(k, 0.0) for k in KINDS] for n in self.weights],
            device=values.device,
        )
        wrong = _wrong_shares(right.detach().to(values.device), kinds)
        faults = faults_of_rewards(wrong.unsqueeze(0), serves)
        moved = satisfied_weights(given.clamp(min=0)[None], faults, temperature=self.temperature)
        return moved[0] + given.clamp(max=0)

    def show(self) -> str:
        """The decisions for people, one a line."""
        weights = ", ".join(f"{name} {weight:.3g}" for name, weight in self.weights.items())
        lines = [self.primitives.describe(), f"  weights: {weights}"]
        lines.append(f"  steps: size x {self.size:.3g}, from {self.start:.0%} to {self.stop:.0%}")
        regions = "; ".join(region.describe() for region in self.regions)
        lines += [f"  looks for: {regions}"] if regions else []
        return "\n".join([*lines, *(f"  because: {reason}" for reason in self.reasons)])


def _wrong_shares(right: Tensor, kinds: Sequence[str]) -> Tensor:
    """Share of wrong answers of each kind, (C,); NaN where none was asked."""
    columns = []
    for kind in KINDS:
        own = [float(v) for v, k in zip(right.tolist(), kinds, strict=True) if k == kind]
        known = [v for v in own if not math.isnan(v)]
        columns.append(1 - sum(known) / len(known) if known else math.nan)
    return torch.tensor(columns, device=right.device)


def policy_for(
    prompts: Sequence[str],
    config: GuidanceConfig,
    *,
    read: Callable[[str], Primitives] = read_prompt,
    rules: Sequence[Rule] = RULES,
) -> list[Policy]:
    """Decide for each prompt, from the weights of ``config.rewards`` and its window of steps.

    ``read`` finds primitives: rules of ordinary English, those of the emoji world
    (``t2x.world.primitives``), or a language model (``t2x.guidance.model_reader``). A prompt in
    which nothing can be read keeps the weights given.
    """
    return [_decide(read(prompt), config, rules) for prompt in prompts]


def _decide(found: Primitives, config: GuidanceConfig, rules: Sequence[Rule]) -> Policy:
    fitting = [rule for rule in rules if rule.fits(found)]
    roles = {role_of(name) for name in config.rewards}
    weights = dict(config.rewards)
    for rule in fitting:
        weights = {n: w * rule.factors.get(role_of(n), 1.0) for n, w in weights.items()}
    total, given = (sum(w for w in ws.values() if w > 0) for ws in (weights, config.rewards))
    # Others keep their weight, so that what is pushed away is pushed as much as was asked.
    scale = given / total if total > 0 else 1.0
    kept = {n: w * scale if w > 0 else config.rewards[n] for n, w in weights.items()}
    return Policy(
        found,
        kept,
        regions=regions_of(found),
        size=math.prod(rule.size for rule in fitting),
        start=max([config.start, *(rule.start for rule in fitting)]),
        stop=min([config.stop, *(rule.stop for rule in fitting)]),
        adaptive=config.adaptive,
        reasons=tuple(r.why for r in fitting if roles & set(r.factors) or r.size != 1),
    )


def own_policy(
    rewards: Sequence[RewardModel],
    config: GuidanceConfig,
    *,
    instructions: Sequence[str] | None = None,
    read: Callable[[str], Primitives] | None = None,
) -> PromptPolicy | None:
    """What decides the weights where nobody else does: under ``config.adaptive`` a policy, for
    several rewards that weigh something, for one of regions, which it tells, or for edits by
    ``instructions``, whose steps it decides too; else none. ``read`` as for
    :class:`PromptPolicy`."""
    weighed = [reward.name for reward in rewards if config.rewards.get(reward.name, 1.0)]
    one = len(weighed) < 2 and not any(role_of(name) == "region" for name in weighed)
    if not config.adaptive or (one and instructions is None):
        return None
    return PromptPolicy(rewards, config, read=read, instructions=instructions)


class PromptPolicy:
    """Policies of prompts as a ``WeightPolicy`` of an objective; each prompt is decided once.

    Args:
        rewards: those of the objective, in its order. One that asks questions (it has ``encoder``
            with ``last``: the reward *questions*) tells which are answered wrong; without, weights
            stay as decided.
        config: weights and window given.
        read: as in :func:`policy_for`; that of the reward which asks, without.
        rules: as in :func:`policy_for`.
        instructions: of edits, read in place of the prompts, which tell the edited pictures; one
            for each.
    """

    def __init__(
        self,
        rewards: Sequence[RewardModel],
        config: GuidanceConfig,
        *,
        read: Callable[[str], Primitives] | None = None,
        rules: Sequence[Rule] = RULES,
        instructions: Sequence[str] | None = None,
    ) -> None:
        self.names = [r.name for r in rewards]
        self._asking: Any = next((r for r in rewards if r.name == "questions"), None)
        own: Callable[[str], Primitives] = getattr(self._asking, "read", read_prompt)
        if instructions is not None:  # the readers of a world, say, know pictures alone
            own = partial(read_prompt, editing=True)
        self.read = own if read is None else read
        self.instructions = None if instructions is None else list(instructions)
        self.config, self.rules = config, rules
        self._decided: dict[tuple[str, tuple[float, ...]], Policy] = {}

    def policies(self, prompts: Sequence[str], given: Sequence[float] = ()) -> list[Policy]:
        """The policy of each prompt, from weights ``given`` in the order of the rewards; those of
        the config without, 1 for rewards that it does not name.
        """
        weights = tuple(given) or tuple(self.config.rewards.get(n, 1.0) for n in self.names)
        texts = prompts if self.instructions is None else self.instructions
        if len(texts) != len(prompts):
            raise T2XError(f"{len(texts)} instructions for {len(prompts)} pictures; give one each")
        return [self._policy(text, weights) for text in texts]

    def _policy(self, prompt: str, weights: tuple[float, ...]) -> Policy:
        key = (prompt, weights)
        if key not in self._decided:
            named = dict(zip(self.names, weights, strict=True))
            config = replace(self.config, rewards=named)
            self._decided[key] = _decide(self.read(prompt), config, self.rules)
        return self._decided[key]

    def weights(
        self, prompts: Sequence[str], index: int, total: int, values: Tensor, given: Tensor
    ) -> Tensor:
        """Weights (N, K), detached: as decided, moved to what is still answered wrong."""
        asked = self._answers(prompts)
        rows = []
        for i, policy in enumerate(self.policies(prompts, tuple(given.tolist()))):
            right, kinds = asked[i] if asked else (None, ())
            rows.append(policy.adapt(values[i].detach(), right, kinds))
        return torch.stack(rows).to(values)

    def factors(self, prompts: Sequence[str], index: int, total: int) -> Tensor:
        """Factor of each sample's step size, (N,); 0 for steps outside of its window."""
        at = index / max(total, 1)
        return torch.tensor(
            [p.size if p.start <= at < p.stop else 0.0 for p in self.policies(prompts)]
        )

    def regions(self, prompts: Sequence[str]) -> list[tuple[Region, ...]]:
        """What shall be where, of each prompt; nothing where no reward is of regions."""
        if not any(role_of(name) == "region" for name in self.names):
            return [() for _ in prompts]
        return [policy.regions for policy in self.policies(prompts)]

    def located(self, prompts: Sequence[str], context: Context | None) -> Context | None:
        """The context with the regions of the prompts, for rewards that look there."""
        regions = self.regions(prompts)
        return with_regions(context, prompts, regions) if any(regions) else context

    def _answers(self, prompts: Sequence[str]) -> list[tuple[Tensor, list[str]]]:
        """Of each sample which questions of the last call were answered right, 0 to 1 of its
        pictures (a video is asked about frame by frame), and their kinds."""
        last = getattr(getattr(self._asking, "encoder", None), "last", None)
        if last is None or not prompts or not last.probes or len(last.probes) % len(prompts):
            return []
        frames = len(last.probes) // len(prompts)
        right = (last.leads > 0).float().unflatten(0, (len(prompts), frames)).mean(1)
        asked = last.probes[::frames]
        return [
            (row[: len(own)], [p.about.kind for p in own])
            for own, row in zip(asked, right, strict=True)
        ]

    def show(self, prompts: Sequence[str]) -> str:
        """The decisions for people."""
        return "\n".join(policy.show() for policy in self.policies(prompts))
