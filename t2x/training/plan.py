"""Whether a recipe fits a GPU, and about how long it takes, before anything is downloaded.

Arithmetic, not a measurement: it has not been checked on a GPU. Memory is counted per GPU and per
phase, for what a phase needs beside what stays; time follows from operations at a share of the
card's peak that such programs commonly reach. Sizes come from ``t2x.training.architectures``.

Activations of training: Korthikanti et al. 2022 (arXiv 2205.05198): 34 bytes per token and unit of
width in a layer, attention without its square; with gradient checkpointing every layer keeps its
input and one layer all of it. Adam keeps two values per weight. DeepSpeed ZeRO (Rajbhandari et al.
2020, arXiv 1910.02054) keeps 16-bit weights and gradients and 12 bytes per weight of optimiser, and
stage 3 divides all by the number of processes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from t2x.errors import T2XError
from t2x.training.architectures import (
    Drawer,
    LanguageModel,
    drawer,
    language_model,
    lora_params,
    reward_size,
)
from t2x.world.weights import EMBEDDED

__all__ = ["CARDS", "Card", "Hardware", "Plan", "make_plan"]


@dataclass(frozen=True)
class Card:
    """A GPU by its data sheet: bytes, 16-bit operations a second without sparsity, bytes a
    second."""

    memory: float
    flops: float
    bandwidth: float


CARDS: Mapping[str, Card] = {
    "rtx4090": Card(24 * 2**30, 165e12, 1.01e12),
    "a100": Card(80 * 2**30, 312e12, 2.04e12),
    "h100": Card(80 * 2**30, 989e12, 3.35e12),
}
TRAINERS = {"sft": "SFTConfig", "dpo": "DPOConfig", "sem_dpo": "DPOConfig", "grpo": "GRPOConfig"}
PHASES = ("sampling", "drawing", "scoring", "training")
# Assumptions.
PROMPT = 256  # tokens of a prompt with the words around it
WRITTEN = 0.5  # of the room for a completion
TRAINED, DRAWN = 0.35, 0.4  # of the peak
TOKEN_SECONDS = {False: 0.025, True: 0.008}  # least per token: generate, vLLM
CONTEXT = 1e9  # of CUDA and its libraries
SEEN = 400  # tokens of a picture and its prompt in a reward
_LAYER = 34
_WIDTHS = {"float32": 4, "bfloat16": 2, "float16": 2, "auto": 2}  # all CARDS have fast bfloat16


@dataclass(frozen=True)
class Hardware:
    """``processes`` GPUs of one kind, each with a process; ``zero`` is the stage of ZeRO."""

    card: str = "a100"
    processes: int = 1
    zero: int = 0

    def __post_init__(self) -> None:
        if self.card not in CARDS:
            raise T2XError(f"unknown GPU {self.card!r}; allowed: {', '.join(CARDS)}")
        if self.processes < 1 or self.zero not in (0, 3):
            raise T2XError("give at least 1 process, and ZeRO stage 0 or 3")


@dataclass(frozen=True)
class Plan:
    """``memory``: bytes by part and phase; ``seconds``: of one optimiser step by phase. None is
    unknown, and ``fits`` is then None as well, unless the rest is too much already."""

    hardware: Hardware
    memory: Mapping[str, Mapping[str, float | None]]
    seconds: Mapping[str, float | None]
    steps: int | None
    rows: int

    @property
    def phases(self) -> list[str]:
        """Those that the recipe has."""
        return list(self.seconds)

    def total(self, phase: str) -> float:
        """Known bytes of a phase."""
        return sum(row.get(phase) or 0.0 for row in self.memory.values())

    @property
    def unknown(self) -> list[str]:
        """Parts whose size is not known."""
        return [name for name, row in self.memory.items() if None in row.values()]

    @property
    def fits(self) -> bool | None:
        """Whether every phase fits the card."""
        worst = max(map(self.total, self.phases))
        if worst > CARDS[self.hardware.card].memory:
            return False
        return None if self.unknown else True

    def lines(self) -> list[str]:
        """The table, as the headers of the YAMLs hold it."""
        card, count = CARDS[self.hardware.card], self.hardware.processes
        zero = f", DeepSpeed ZeRO-{self.hardware.zero}" if self.hardware.zero else ""
        verdict = {True: "fits", False: "does not fit", None: "unknown"}[self.fits]
        head = f"{count} x {self.hardware.card} of {card.memory / 1e9:.1f} GB{zero}: {verdict}"
        wide = max(map(len, self.memory))
        table = [f"{'GB per GPU':{wide}}" + "".join(f"{phase:>10}" for phase in self.phases)]
        rows = {**self.memory, "together": {phase: self.total(phase) for phase in self.phases}}
        table += [
            f"{name:{wide}}" + "".join(_gigabytes(row, phase) for phase in self.phases)
            for name, row in rows.items()
        ]
        return [head, *table, *self._times()]

    def _times(self) -> Iterator[str]:
        shown = {name: _seconds(value) for name, value in self.seconds.items()}
        parts = ", ".join(f"{name} {value}" for name, value in shown.items())
        yield f"a step of {self.rows} rows: {parts}"
        if self.steps and None not in self.seconds.values():
            hours = self.steps * sum(v or 0.0 for v in self.seconds.values()) / 3600
            yield f"{self.steps} steps: {hours:.1f} hours"
        yield from self._assumed()

    def _assumed(self) -> Iterator[str]:
        said = f"times are arithmetic, not measured: {TRAINED:.0%} of the peak assumed in training"
        if "sampling" not in self.seconds:
            yield said
            return
        slow, fast = (f"{1000 * TOKEN_SECONDS[vllm]:g} ms" for vllm in (False, True))
        yield f"{said}, {DRAWN:.0%} in"
        yield f"drawing and scoring, at least {slow} per token that is sampled, with vLLM {fast}"


def make_plan(recipe: str, config: Any, hardware: Hardware) -> Plan:
    """Plan a recipe with its configuration. Raises T2XError for a recipe without a plan, and for
    the embedded generators, whose rewards are embedded too: nothing of them needs a GPU."""
    if recipe not in TRAINERS:
        raise T2XError(f"no plan for {recipe!r}; there is one for {', '.join(TRAINERS)}")
    generator = getattr(getattr(config, "reward", None), "generator", None)
    if generator in EMBEDDED:
        raise T2XError(
            f"{generator} and what scores its pictures run on a CPU, and are not planned: the "
            "configurations world/... say in their first lines what they take; give "
            "reward.generator to plan another"
        )
    sums = _Sums(recipe, config, hardware)
    phases = PHASES if recipe == "grpo" else PHASES[-1:]
    memory = {
        name: {phase: row.get(phase) for phase in phases}
        for name, row in sums.memory().items()
        if any(row.get(phase) != 0 for phase in phases)
    }
    steps = sums.given["max_steps"]
    return Plan(
        hardware, memory, {phase: sums.seconds(phase) for phase in phases},
        steps if steps > 0 else None, sums.rows * hardware.processes,
    )  # fmt: skip


class _Sums:
    """The arithmetic of one configuration."""

    def __init__(self, recipe: str, config: Any, hardware: Hardware) -> None:
        self.recipe, self.config, self.hardware = recipe, config, hardware
        self.given = _arguments(TRAINERS[recipe]) | config.trainer
        self.card = CARDS[hardware.card]
        self.reward: Any = getattr(config, "reward", None)
        self.workers = bool(getattr(getattr(config, "rollout", None), "workers", 0))

    @cached_property
    def model(self) -> LanguageModel | None:
        return language_model(self.config.policy.model)

    @cached_property
    def drawer(self) -> Drawer | None:
        return drawer(self.reward.generator)

    @cached_property
    def adapters(self) -> int | None:
        lora = self.config.policy.lora
        if lora is None:
            return 0
        return lora_params(self.config.policy.model, lora.rank, lora.targets)

    @property
    def rows(self) -> int:
        """Of one optimiser step on one process."""
        return int(
            self.given["per_device_train_batch_size"] * self.given["gradient_accumulation_steps"]
        )

    @property
    def length(self) -> int:
        """Tokens of a row at most."""
        if self.recipe == "grpo":
            return PROMPT + int(self.given["max_completion_length"])
        return int(self.given["max_length"])

    @property
    def width(self) -> int:
        """Bytes of a weight; on a GPU the checkpoint's own format is 16 bits in all tables."""
        return 2 if self.hardware.zero else _WIDTHS[self.config.policy.dtype or "bfloat16"]

    @property
    def pictures(self) -> int:
        """Of one step on one process, those of the prompts left as they are included."""
        groups = self.rows / self.given.get("num_generations", 1)
        pictures: float = (self.rows + groups) * self.reward.pictures
        return round(pictures)

    def memory(self) -> dict[str, dict[str, float | None]]:
        """Bytes by part and phase."""
        found = {
            "weights": _always(self._weights()),
            "optimiser": _always(self._optimiser()),
            "reference": _always(self._reference()),
            "gradients": {"training": self._gradients()},
            "activations": self._activations(),
        }
        if self.recipe == "grpo":
            found |= {
                "vLLM": _always(self._vllm()),
                "generator": _always(0.0 if self.workers else _times(self.drawer, "params", 2)),
                "rewards": _always(self._rewards()),
            }
        found["CUDA"] = _always(CONTEXT)
        return {name: {p: row.get(p, 0.0) for p in PHASES} for name, row in found.items()}

    def _shared(self, value: float) -> float:
        return value / self.hardware.processes if self.hardware.zero == 3 else value

    def _weights(self) -> float | None:
        if self.model is None or self.adapters is None:
            return None
        return self._shared(self.model.params * self.width) + self.adapters * 4

    def _trained(self) -> tuple[float, int] | None:
        """How many weights are trained, and bytes of each; adapters are kept in float32."""
        if self.model is None or self.adapters is None:
            return None
        if self.adapters:
            return float(self.adapters), 4
        return float(self.model.params), self.width

    def _optimiser(self) -> float | None:
        trained = self._trained()
        if trained is None:
            return None
        count, width = trained
        return self._shared(count * 12) if self.hardware.zero else count * 2 * width

    def _gradients(self) -> float | None:
        trained = self._trained()
        return None if trained is None else self._shared(trained[0] * trained[1])

    def _reference(self) -> float | None:
        """Held by GRPO with a KL term; adapters are switched off for it instead, and DPO computes
        it before it trains."""
        held = self.recipe == "grpo" and self.given["beta"] != 0 and self.adapters == 0
        if not held:
            return 0.0
        return None if self.model is None else self._shared(self.model.params * self.width)

    def _activations(self) -> dict[str, float | None]:
        if self.model is None:
            return dict.fromkeys(PHASES, None)
        model, batch = self.model, int(self.given["per_device_train_batch_size"])
        pairs = 2 if self.recipe.endswith("dpo") else 1
        tokens = batch * pairs * self.length
        layer = _LAYER * tokens * model.hidden
        kept = model.layers * 2 * tokens * model.hidden + layer
        if not self.given["gradient_checkpointing"]:
            kept = model.layers * layer
        scored = tokens if self.recipe != "grpo" else batch * (self.length - PROMPT)
        found: dict[str, float | None] = {
            "training": kept + scored * model.vocabulary * 8.0,  # logits and their gradient
        }
        if self.recipe != "grpo":
            return found
        cache = 4.0 * self.rows * self.length * model.layers * model.keys
        if self.hardware.zero:  # TRL puts the pieces together for generate
            cache += model.params * self.width
        found["sampling"] = 0.0 if self.given["use_vllm"] else cache
        found["drawing"] = self._drawing()
        return found

    def _drawing(self) -> float | None:
        """Of a batch: three maps of the decoder at full size, 12 values per token and width."""
        if self.drawer is None:
            return None
        if self.workers:
            return 0.0
        size, batch = self._size(), self.config.rollout.batch_size
        batch = self.reward.generator_options.get("batch_size", batch)
        passes = 2 if self._guided() else 1
        tokens = self.drawer.tokens(size) * passes
        return float(batch * (3 * size * size * 256 * 2 + 24 * tokens * self.drawer.width))

    def _size(self) -> int:
        sampling = self.reward.generator_options.get("sampling", {})
        return int(sampling.get("height", 1024))

    def _guided(self) -> bool:
        given = self.reward.generator_options.get("guidance_scale")
        return bool(self.drawer and self.drawer.guided and (given is None or given > 1))

    def _vllm(self) -> float:
        colocate = self.given["use_vllm"] and self.given["vllm_mode"] == "colocate"
        share: float = self.given["vllm_gpu_memory_utilization"]
        return share * self.card.memory if colocate else 0.0

    def _rewards(self) -> float | None:
        """Those that are trained on, and those that only watch."""
        held = getattr(getattr(self.config, "watch", None), "held_out", None)
        sizes = [_reward_sizes(section) for section in (self.reward, held) if section is not None]
        if any(size is None for size in sizes):
            return None
        return float(sum(count * width for size in sizes for count, width in size or ()))

    def seconds(self, phase: str) -> float | None:
        """Of one optimiser step."""
        if self.model is None:
            return None
        if phase == "training":
            written = WRITTEN if self.recipe == "grpo" else 1.0
            tokens = self.length if written == 1 else PROMPT + (self.length - PROMPT) * written
            pairs = 2 if self.recipe.endswith("dpo") else 1
            flops = self._passes() * self.model.params * self.rows * pairs * tokens
            return flops / (TRAINED * self.card.flops)
        if phase == "sampling":
            fast = bool(self.given["use_vllm"])
            step = max(TOKEN_SECONDS[fast], self.model.params * 2 / self.card.bandwidth)
            return step * (self.length - PROMPT) * WRITTEN
        if phase == "scoring":
            sizes = _reward_sizes(self.reward)
            return None if sizes is None else self._forward(2.0 * SEEN * sum(n for n, _ in sizes))
        if self.drawer is None:
            return None
        steps = self.reward.generator_options.get("num_inference_steps", self.drawer.steps)
        passes = steps * (2 if self._guided() else 1)
        return self._forward(passes * self.drawer.flops(self._size()))

    def _forward(self, flops: float) -> float:
        return flops * self.pictures / (DRAWN * self.card.flops)

    def _passes(self) -> float:
        """Operations per weight and token: 2 forward, 2 back to the inputs, 2 to the weights; 2
        again with checkpointing, and 2 for a reference."""
        passes = 4.0 if self.adapters else 6.0
        passes += 2.0 if self.given["gradient_checkpointing"] else 0.0
        return passes + (2.0 if self.recipe == "grpo" and self.given["beta"] else 0.0)


def _reward_sizes(section: Any) -> list[tuple[int, int]] | None:
    """Parameters and bytes of each of a section's rewards; None if one is unknown."""
    found = []
    for name in section.rewards:
        options = section.options.get(name, {})
        size = reward_size(name, options.get("source"))
        if size is None:
            return None
        found.append((size[0], _WIDTHS.get(str(options.get("dtype")), size[1])))
    return found


def _arguments(name: str) -> dict[str, Any]:
    """What TRL's own class gives where nothing is said, and the recipe's KL term."""
    import trl

    cls = getattr(trl, name)
    return {f.name: f.default for f in fields(cls)} | {"beta": 0.04}


def _always(value: float | None) -> dict[str, float | None]:
    return dict.fromkeys(PHASES, value)


def _times(thing: Any, name: str, factor: float) -> float | None:
    return None if thing is None else getattr(thing, name) * factor


def _gigabytes(row: Mapping[str, float | None], phase: str) -> str:
    value = row.get(phase, 0.0)
    return f"{'unknown':>10}" if value is None else f"{value / 1e9:>10.1f}"


def _seconds(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3g} s"
