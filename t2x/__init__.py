"""Make a text-to-image model do what the user meant: rewrite the prompt, draw, score, compare.

Folders at the root of the repository install under this package:

    rewards/  ->  t2x.rewards    reward models
    train/    ->  t2x.train      training recipes
    apps/     ->  t2x.apps       applications
    configs/  ->  t2x.configs    one YAML per experiment

``import t2x`` loads neither torch nor diffusers; a name is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from t2x.errors import MissingDependencyError, T2XError, UnknownNameError

if TYPE_CHECKING:
    from t2x.asking.elicitation import Elicitation
    from t2x.asking.simulated import SimulatedUser
    from t2x.config import load_config
    from t2x.evaluation.demo import run_demo
    from t2x.generators.diffusion import DiffusionGenerator
    from t2x.generators.guided import GuidedGenerator
    from t2x.guidance.config import GuidanceConfig
    from t2x.guidance.editing import EditConfig, edit
    from t2x.guidance.guide import guide
    from t2x.guidance.three_way import original_prompt_guidance
    from t2x.jobs.rewriting import rewrite_file, rewrite_stream
    from t2x.media import from_pil, load_picture, quantize, save_png, to_pil
    from t2x.registry import load_generator, load_reward, load_rewriter
    from t2x.rewriters.endpoint import OpenAIRewriter
    from t2x.rewriters.guarded import Guarded
    from t2x.rewriters.language_model import LanguageModelRewriter
    from t2x.rewriters.loading import load_guarded
    from t2x.rewriters.vision import VisionRewriter
    from t2x.rewriters.vllm_engine import VllmRewriter
    from t2x.scoring.ensemble import RewardEnsemble
    from t2x.search.loading import load_search
    from t2x.search.rewriter import SearchRewriter
    from t2x.store import Store
    from t2x.types import Check, Context, Generator, Media, RewardModel, Rewrite, Rewriter

__version__ = "0.1.0"

__all__ = [
    "Check",
    "Context",
    "DiffusionGenerator",
    "EditConfig",
    "Elicitation",
    "Generator",
    "Guarded",
    "GuidanceConfig",
    "GuidedGenerator",
    "LanguageModelRewriter",
    "Media",
    "MissingDependencyError",
    "OpenAIRewriter",
    "RewardEnsemble",
    "RewardModel",
    "Rewrite",
    "Rewriter",
    "SearchRewriter",
    "SimulatedUser",
    "Store",
    "T2XError",
    "UnknownNameError",
    "VisionRewriter",
    "VllmRewriter",
    "__version__",
    "edit",
    "from_pil",
    "guide",
    "load_config",
    "load_generator",
    "load_guarded",
    "load_picture",
    "load_reward",
    "load_rewriter",
    "load_search",
    "original_prompt_guidance",
    "quantize",
    "rewrite_file",
    "rewrite_stream",
    "run_demo",
    "save_png",
    "to_pil",
]

_MODULES = {
    "t2x.asking.elicitation": ("Elicitation",),
    "t2x.asking.simulated": ("SimulatedUser",),
    "t2x.config": ("load_config",),
    "t2x.evaluation.demo": ("run_demo",),
    "t2x.generators.diffusion": ("DiffusionGenerator",),
    "t2x.generators.guided": ("GuidedGenerator",),
    "t2x.guidance.config": ("GuidanceConfig",),
    "t2x.guidance.editing": ("EditConfig", "edit"),
    "t2x.guidance.guide": ("guide",),
    "t2x.guidance.three_way": ("original_prompt_guidance",),
    "t2x.jobs.rewriting": ("rewrite_file", "rewrite_stream"),
    "t2x.media": ("from_pil", "load_picture", "quantize", "save_png", "to_pil"),
    "t2x.registry": ("load_generator", "load_reward", "load_rewriter"),
    "t2x.rewriters.endpoint": ("OpenAIRewriter",),
    "t2x.rewriters.guarded": ("Guarded",),
    "t2x.rewriters.language_model": ("LanguageModelRewriter",),
    "t2x.rewriters.loading": ("load_guarded",),
    "t2x.rewriters.vision": ("VisionRewriter",),
    "t2x.rewriters.vllm_engine": ("VllmRewriter",),
    "t2x.scoring.ensemble": ("RewardEnsemble",),
    "t2x.search.loading": ("load_search",),
    "t2x.search.rewriter": ("SearchRewriter",),
    "t2x.store": ("Store",),
    "t2x.types": ("Check", "Context", "Generator", "Media", "RewardModel", "Rewrite", "Rewriter"),
}
_LAZY = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 't2x' has no attribute {name!r}")
    value = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
