"""The studio's models: loaded when they are first needed, swapped, and freed under a limit.

Everything here but ``state`` is for the studio's worker thread alone.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from t2x.errors import T2XError
from t2x.plain import plain
from t2x.registry import REWARDS, check_names, import_attr, is_language_model, load_rewriter
from t2x.studio.hurry import LOADING, hurry
from t2x.studio.limits import Limits
from t2x.studio.state import ModelState, Readiness, StudioState
from t2x.studio.stoppable import stoppable_load
from t2x.studio.work import ModelMissingError, Stopped

if TYPE_CHECKING:
    from t2x.types import Generator, RewardModel, Rewriter

log = logging.getLogger(__name__)

Personal: TypeAlias = "Callable[[str], RewardModel]"
"""From a user to a reward of their own; raises T2XError where there is none yet."""

__all__ = ["Models", "Personal", "Slot", "model_name"]


@dataclass
class Slot:
    """One model: what it is asked for by, and what was loaded. ``source`` None is "not wanted"."""

    source: Any
    loaded: Any = None
    readiness: Readiness = "unloaded"
    problem: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    used: int = 0  # when, counted in uses of any
    weights: int = 0  # bytes, where memory is limited
    tried: bool = False  # to load it ahead of need

    @property
    def name(self) -> str:
        """The name that it was asked for by, or that it has."""
        return model_name(self.source)

    def state(self) -> ModelState:
        """What may be known of it."""
        readiness = "none" if self.name == "none" else self.readiness
        return ModelState(self.name, readiness, self.problem, self.facts)


class Models:
    """Generator, rewriter and rewards of a studio.

    ``options`` go to the loader of a generator that is named; ``device`` to all loaders that take
    one.
    """

    def __init__(
        self,
        *,
        generator: Any,
        rewriter: Any,
        rewards: Sequence[Any],
        device: str | None,
        options: Mapping[str, Any],
        limits: Limits,
    ) -> None:
        self.device, self.options, self.limits = device, dict(options), limits
        self._generator, self._rewriter = Slot(generator), Slot(rewriter)
        self._rewards = {model_name(reward): Slot(reward) for reward in rewards}
        if len(self._rewards) < len(rewards):
            raise T2XError("a reward is given twice; give each once")
        self.usual = tuple(self._rewards)
        self.personal: dict[str, Personal] = {}
        self._clock = 0
        self.check: Callable[[], None] = lambda: None  # raises Stopped: the running job's

    # ---- reading, from any thread -----------------------------------------------------------

    def state(self, waiting: int = 0) -> StudioState:
        """What there is, and what can be used."""
        rewards = tuple(slot.state() for slot in list(self._rewards.values()))
        return StudioState(self._generator.state(), self._rewriter.state(), rewards, waiting)

    @property
    def reward_names(self) -> tuple[str, ...]:
        """Of rewards that are known here beside the registry's."""
        return (*self._rewards, *self.personal)

    @property
    def generator_ready(self) -> bool:
        """Whether a picture can be drawn without loading."""
        return self._generator.readiness == "ready"

    @property
    def generator_name(self) -> str:
        """What it was asked for by."""
        return self._generator.name

    @property
    def generator_source(self) -> str | None:
        """What loads it again; None for an object."""
        source = self._generator.source
        return str(source) if isinstance(source, str | Path) else None

    @property
    def rewriter_name(self) -> str:
        """What it was asked for by."""
        return self._rewriter.name

    @property
    def rewriter_ready(self) -> bool:
        """Whether a prompt can be rewritten without loading."""
        return self._rewriter.readiness == "ready"

    # ---- use --------------------------------------------------------------------------------

    def generator(self) -> Generator:
        """The generator. Raises ModelMissingError with the reason if it can't be loaded."""
        found: Generator = self._ready(self._generator, "generator", self._load_generator)
        return found

    def rewriter(self) -> Rewriter:
        """The rewriter with its guard. Raises ModelMissingError if it can't be loaded."""
        found: Rewriter = self._ready(self._rewriter, "rewriter", self._load_rewriter)
        return found

    def reward(self, name: str, *, user: str) -> RewardModel:
        """A reward by name, of the user's own where it is personal. Raises what loading raises."""
        if name in self.personal:
            return self.personal[name](user)
        if name not in self._rewards:  # many users may name many: only what loads is kept
            check_names("rewards", [name])
            self._rewards[name] = Slot(name)
        slot = self._rewards[name]
        found: RewardModel = self._ready(slot, "reward", self._load_reward)
        return found

    def _ready(self, slot: Slot, role: str, load: Callable[[Any], Any]) -> Any:
        self._clock += 1
        slot.used = self._clock
        if slot.loaded is not None:
            return slot.loaded
        if slot.source is None:
            raise ModelMissingError(f"the studio has no {role}; load one")
        slot.readiness, slot.problem = "loading", ""
        try:
            with LOADING:  # to plan, transformers reads a model's settings
                self._make_room(slot, role)
            with LOADING, hurry(), stoppable_load(self.check):
                slot.loaded = load(slot.source)
            slot.facts = _FACTS[role](slot.loaded)
        except Stopped:
            slot.loaded, slot.readiness, slot.tried = None, "unloaded", False
            raise
        except BaseException as error:
            slot.loaded, slot.readiness = None, "failed"
            slot.problem = _reason(error)
            if not isinstance(error, Exception):
                raise
            if not isinstance(error, T2XError | OSError):
                log.warning("%s %s can't be loaded", role, slot.name, exc_info=True)
            raise ModelMissingError(
                f"the {role} {slot.name} can't be loaded: {slot.problem}"
            ) from error
        slot.readiness = "ready"
        return slot.loaded

    # ---- loading ----------------------------------------------------------------------------

    def _load_generator(self, source: Any) -> Any:
        from t2x.registry import load_generator

        options = dict(self.options) if isinstance(source, str | Path) else {}
        if self.device is not None and isinstance(source, str | Path):
            options.setdefault("device", self.device)
        found = load_generator(source, **options)
        self._reguard(found)
        return found

    def _load_rewriter(self, source: Any) -> Any:
        from t2x.rewriters.loading import load_guarded

        drawing = self._generator.loaded or self._generator.source
        if isinstance(source, str) and self.device is not None and is_language_model(source):
            source = load_rewriter(source, device=self.device)
        try:
            return load_guarded(source, generator=drawing)
        except T2XError:
            if self._generator.loaded is not None or drawing is None:
                raise
            return load_guarded(source)  # the generator is what is missing

    def _load_reward(self, source: Any) -> Any:
        from t2x.generators.loading import quiet
        from t2x.registry import load_reward

        placed = {"device": self.device} if self._places(source) else {}
        with quiet():
            return load_reward(source, **placed)

    def _places(self, reward: Any) -> bool:
        """Whether the loader of a reward that is named takes the studio's device."""
        if self.device is None or reward not in REWARDS:
            return False
        return "device" in inspect.signature(import_attr(REWARDS[reward])).parameters

    def _reguard(self, generator: Any) -> None:
        """Let the rewriter that is loaded write for another generator."""
        from t2x.rewriters.guarded import Guarded
        from t2x.rewriters.loading import load_guarded

        slot = self._rewriter
        if slot.loaded is None or isinstance(slot.source, Guarded):
            return
        if isinstance(slot.loaded, Guarded):
            slot.loaded = load_guarded(slot.loaded.rewriter, generator=generator)
        else:  # a search draws with the generator that it was loaded with
            self._drop(slot)

    # ---- swapping and freeing ---------------------------------------------------------------

    def swap(self, role: str, source: Any) -> None:
        """Put another generator or rewriter in the place of what was there, and load it.

        The old one is freed first, so that both need not fit into memory together. Raises
        ModelMissingError if the new one can't be loaded, and Stopped if the user won't wait for it;
        then the old one is back, to be loaded when nothing waits or when it is next needed.
        """
        slot = {"generator": self._generator, "rewriter": self._rewriter}[role]
        before = slot.source
        self._drop(slot)
        slot.source, slot.problem = source, ""
        if source is None:
            return
        try:
            self.generator() if role == "generator" else self.rewriter()
        except (ModelMissingError, Stopped):
            slot.source, slot.readiness, slot.tried = before, "unloaded", False
            raise

    def _drop(self, slot: Slot) -> None:
        from t2x.memory.machine import release_memory

        loaded, slot.loaded, slot.facts = slot.loaded, None, {}
        slot.readiness = "unloaded"
        if loaded is None:
            return
        free = getattr(loaded, "free", None)
        if free is not None and isinstance(slot.source, str | Path):
            free()
        del loaded, free
        release_memory()

    def _slots(self) -> list[Slot]:
        return [self._generator, self._rewriter, *self._rewards.values()]

    def relieve(self, *, keep: Slot | None = None) -> bool:
        """Free what was loaded by name but for ``keep`` and the generator; whether there was any.
        It is loaded again when it is needed."""
        kept = (keep, self._generator)
        freed = [s for s in self._slots() if s.loaded is not None and s not in kept]
        freed = [slot for slot in freed if isinstance(slot.source, str | Path)]
        for slot in freed:
            self._drop(slot)
        return bool(freed)

    def free(self) -> None:
        """Free all that was loaded by name."""
        for slot in self._slots():
            if isinstance(slot.source, str | Path):
                self._drop(slot)

    def _make_room(self, wanted: Slot, role: str) -> None:
        """Under ``limits.memory``: free what was not used for longest until ``wanted`` fits beside
        the weights of the others. Raises T2XError for what does not fit alone."""
        if self.limits.memory is None:
            return
        from t2x.memory.machine import parse_bytes, readable_bytes

        most = parse_bytes(self.limits.memory)
        weights, peak = self._planned(wanted.source, role)
        wanted.weights = weights

        def held() -> int:
            return sum(slot.weights for slot in self._slots() if slot.loaded is not None)

        others = (s for s in self._slots() if s.loaded is not None and s is not wanted)
        for slot in sorted(others, key=lambda slot: slot.used):
            if held() + peak > most and isinstance(slot.source, str | Path):
                log.info("memory: %s is freed for %s", slot.name, wanted.name)
                self._drop(slot)
        if held() + peak > most:
            raise T2XError(
                f"it needs about {readable_bytes(peak)} and {readable_bytes(most - held())} are "
                "allowed; take a smaller model, or raise the limit"
            )

    def _planned(self, source: Any, role: str) -> tuple[int, int]:
        """Bytes of a model's weights, and of the fullest moment of its work; 0 where unknown."""
        from t2x.devices import resolve_device
        from t2x.memory.phases import generate_plan, rewrite_plan, score_plan

        device = resolve_device(self.device)
        if role == "generator":
            plan = generate_plan(source, device=device, dtype=self.options.get("dtype"))
        elif role == "rewriter":
            plan = rewrite_plan(source, device=device)
        else:
            plan = score_plan(source)
        weights = plan.weight or 0
        return weights, max(weights, plan.peak or 0)

    # ---- ahead of need ----------------------------------------------------------------------

    def load_next(self) -> bool:
        """Load one model that is still unloaded, in the order of need; whether there was one. What
        fails says so in ``state``. Under a limit nothing is loaded ahead of need."""
        if self.limits.memory is not None:
            return False
        steps: list[tuple[Slot, Callable[[], Any]]] = [
            (self._generator, self.generator),
            (self._rewriter, self.rewriter),
        ]
        for name in self.usual:
            steps.append((self._rewards[name], partial(self.reward, name, user="")))
        for slot, load in steps:
            if slot.source is None or slot.readiness != "unloaded" or slot.tried:
                continue
            slot.tried = True
            try:
                load()
            except ModelMissingError as error:
                log.warning("%s", error)
            return True
        return False


_REASON = 400


def _reason(error: BaseException) -> str:
    text = " ".join(str(error).split())[:_REASON]
    if isinstance(error, T2XError | OSError) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def model_name(source: Any) -> str:
    """Name a model as the caller did, or as it names itself."""
    if source is None:
        return "none"
    if isinstance(source, str | Path):
        return str(source)
    return str(getattr(source, "model_id", None) or getattr(source, "name", type(source).__name__))


def _generator_facts(generator: Any) -> dict[str, Any]:
    from t2x.generators.diffusion import DiffusionGenerator
    from t2x.studio.editing import edits_itself, size_facts

    facts = {
        "model_id": generator.model_id,
        "modality": generator.modality,
        "negative": bool(getattr(generator, "supports_negative", True)),
    }
    diffusion = isinstance(generator, DiffusionGenerator)
    if diffusion:
        facts["settings"] = plain(generator.settings())
        facts["assumptions"] = list(generator.assumptions)
        facts["instructed"] = edits_itself(generator.pipeline)
        facts["edited_size"] = size_facts(generator)
    return facts | {"guided": diffusion, "edits": diffusion}


def _rewriter_facts(rewriter: Any) -> dict[str, Any]:
    return {"model_id": rewriter.model_id}


def _reward_facts(reward: Any) -> dict[str, Any]:
    return {
        "scale": reward.scale,
        "range": plain(reward.range),
        "modality": reward.modality,
        "differentiable": bool(reward.differentiable),
    }


_FACTS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "generator": _generator_facts,
    "rewriter": _rewriter_facts,
    "reward": _reward_facts,
}
