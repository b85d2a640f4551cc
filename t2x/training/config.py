"""Sections of a recipe's configuration. A recipe's own dataclass puts together those that it needs:

policy:   {model: emoji-rewriter, lora: {rank: 16}}
data:     {train: pairs.parquet, validation: held.parquet}
reward:   {rewards: {vqa: 1.0, clip: 1.0}, generator: emoji-flow-turbo}
run:      {out: runs/grpo, seed: 0}
trainer:  {learning_rate: 1e-4, max_steps: 300}     # TRL's own arguments, checked by name
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from t2x.errors import T2XError

__all__ = ["DataConfig", "LoraSection", "PolicyConfig", "RewardConfig", "RunConfig"]


@dataclass(frozen=True)
class LoraSection:
    """Low-rank adapters in place of full fine-tuning (Hu et al. 2021, arXiv 2106.09685).

    ``targets``: names of modules, or ``all-linear``.
    """

    rank: int = 16
    alpha: float = 32.0
    dropout: float = 0.0
    targets: str | list[str] = "all-linear"

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise T2XError(f"lora.rank is {self.rank}; give at least 1, or leave lora out")


@dataclass(frozen=True)
class PolicyConfig:
    """The rewriter that is trained.

    ``model``: a name of `t2x list rewriters` that is a language model, ``emoji-lm``, a folder or a
    hub id. ``template_of``: such a model whose template is used in place of the model's own;
    ``template``: fields of it that differ (``t2x.rewriters.templates.Template``).
    ``dtype``: of the weights while they are trained; None is float32 on a CPU, else the
    checkpoint's own ("stored" is that everywhere); "auto" is bfloat16 where it is fast, else
    float32.
    """

    model: str = "emoji-rewriter"
    template_of: str | None = None
    template: dict[str, Any] = field(default_factory=dict)
    revision: str | None = None
    dtype: str | None = None
    device: str | None = None
    lora: LoraSection | None = None
    trust_remote_code: bool = False


@dataclass(frozen=True)
class DataConfig:
    """Rows to train on and to watch: files, folders, hub ids, or ``world:...``
    (``t2x.training.data.load_rows``). ``limit`` keeps the first rows of ``train``.
    ``train_split``, ``validation_split``: which split of a folder or hub id each is.
    """

    train: str
    validation: str | None = None
    limit: int | None = None
    train_split: str = "train"
    validation_split: str = "validation"

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise T2XError(f"data.limit is {self.limit}; give at least 1, or leave it out")


@dataclass(frozen=True)
class RewardConfig:
    """What a rewrite is worth: pictures of ``generator``, scored against the user's own prompt.

    ``rewards``: names with weights; ``options``: by name, what their factory takes (``source``,
    ``dtype``, ...). ``combine``: a rule of ``t2x.scoring.combine.COMBINERS``. ``pictures``: seeds
    per rewrite, the same for all rewrites of a prompt. ``store``: folder that keeps pictures; they
    are scored anew.
    """

    rewards: dict[str, float]
    options: dict[str, dict[str, Any]] = field(default_factory=dict)
    combine: str = "sum"
    generator: str = "emoji-flow-turbo"
    generator_options: dict[str, Any] = field(default_factory=dict)
    pictures: int = 1
    store: Path | None = None

    def __post_init__(self) -> None:
        if not self.rewards:
            raise T2XError("reward.rewards is empty; give names with weights, as vqa: 1.0")
        if unknown := sorted(set(self.options) - set(self.rewards)):
            raise T2XError(f"reward.options for {unknown}, but the rewards are: {[*self.rewards]}")
        if self.pictures < 1:
            raise T2XError(f"reward.pictures is {self.pictures}; give at least 1")


@dataclass(frozen=True)
class RunConfig:
    """Where a run writes, and what makes it repeatable. ``resume``: go on from the last checkpoint
    in ``out``. ``threads``: CPU threads; None keeps what the environment says.
    """

    out: Path
    seed: int = 0
    resume: bool = True
    threads: int | None = None
