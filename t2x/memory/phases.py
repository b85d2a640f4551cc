"""Bytes of the phases of a run, each from a name, a folder, a hub id or what is loaded."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from t2x.errors import T2XError
from t2x.generators.loading import quiet, resolve_dtype
from t2x.generators.placement import BITS, DENOISER_PARTS, TEXT_PARTS, Placement
from t2x.memory import skeletons
from t2x.memory.activations import pipeline_activations
from t2x.memory.guided import GuidanceBytes
from t2x.memory.machine import release_memory
from t2x.memory.models import reward_activations, reward_weights, writing_bytes
from t2x.memory.placements import largest_layer, peaks_by_placement, quantised_bytes
from t2x.memory.plan import PhasePlan
from t2x.memory.weights import module_bytes, weight_bytes

if TYPE_CHECKING:
    from t2x.generators.defaults import SamplingDefaults
    from t2x.types import Generator, RewardModel, Rewriter

__all__ = ["generate_plan", "rewrite_plan", "score_plan"]

log = logging.getLogger(__name__)

PROMPT = " ".join(["a small red cat sits to the left of a large blue dog in a sunny garden"] * 3)
PROMPT_TOKENS, NEW_TOKENS = 256, 256  # where a rewriter's own are unknown
_SWITCHES = ("vae_tiling", "vae_slicing")


# ---- generate -----------------------------------------------------------------------------------


def generate_plan(
    source: str | Path | Generator | Any,
    *,
    device: torch.device,
    dtype: str | torch.dtype | None = None,
    size: tuple[int, int] | None = None,
    num_frames: int | None = None,
    batch: int = 1,
    sampling: Mapping[str, Any] | None = None,
    source_size: tuple[int, int] | None = None,
    prompt: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> PhasePlan:
    """Plan the phase that draws; ``sampling``, ``source_size`` and ``prompt`` as in ``plan_run``.
    What they do not say is as the generator would be sampled: by its folder, its preset, or what is
    presumed of it. ``options`` are those of ``load_generator`` that change what is there: preset,
    config, loras, guidance and rewards. Parts from other files count as those they stand for."""
    given, loading = dict(sampling or {}), dict(options or {})
    placement = Placement.taken_from({k: given.pop(k) for k in _SWITCHES if k in given})
    name = _name(source)
    notes: list[str] = []
    pipe, fake = None, None
    try:
        pipe, fake, defaults = _pipeline(source, device, dtype, given, loading)
    except T2XError:
        raise
    except Exception as error:  # offline, gated, a class that data must be had for, ...
        notes.append(f"unknown: {_line(error)}")
    if pipe is None:
        weights: dict[str, int | None] = {"all": _stored(source, device, dtype)}
        return PhasePlan(
            "generate", name, weights, {"call": None}, {"resident": None}, {"batch": batch},
            tuple(notes),
        )  # fmt: skip
    placement.apply(pipe, None)
    call = _call(
        defaults, pipe, size=size, num_frames=num_frames, batch=batch, source_size=source_size,
        prompt=prompt or PROMPT,
    )  # fmt: skip
    guiding = _guidance(source, loading)
    acts, drawn = pipeline_activations(
        pipe, call, fake=fake, media_there=device.type == "cpu",
        graphs=None if guiding is None else guiding.graphs,
        prepared=lambda twin: _as_written(twin, defaults.sampling, call),
    )  # fmt: skip
    if defaults.preset is None:
        notes += [f"presumed: {text}" for text in defaults.assumptions]
    notes += [f"{step}: could not be counted" for step, size_ in acts.items() if size_ is None]
    parts = {k: v for k, v in pipe.components.items() if isinstance(v, torch.nn.Module)}
    shown = {k: v for k, v in call.items() if isinstance(v, (int, float)) and v is not None}
    if drawn is not None:
        shown |= dict(zip(("height", "width"), drawn, strict=True))
    added = _added_bytes(loading, notes)
    if guiding is not None:
        more, step = guiding.counted(drawn, len(call["prompt"]))
        added |= more
        denoise = acts.get("denoise")
        acts["guide"] = None if denoise is None else denoise + step
        notes += guiding.notes
    return PhasePlan(
        "generate",
        name,
        {**{k: module_bytes(v) for k, v in parts.items()}, **added},
        acts,
        peaks_by_placement(parts, acts, beside=sum(added.values())),
        {**shown, "batch": len(call["prompt"]), "dtype": _dtype_of(parts)},
        tuple(notes),
    )


def _pipeline(
    source: Any,
    device: torch.device,
    dtype: str | torch.dtype | None,
    given: Mapping[str, Any],
    loading: Mapping[str, Any],
) -> tuple[Any, Any, SamplingDefaults]:
    """The pipeline, the mode of its weights if they have no data, and what it is sampled with."""
    from t2x.generators.defaults import chosen_preset, is_recorded, sampling_defaults
    from t2x.generators.folders import folder_settings
    from t2x.generators.published import number_formats
    from t2x.generators.single_file import config_source, origin_of
    from t2x.registry import generator_source
    from t2x.weight_files import names_file

    if not isinstance(source, (str, Path)):
        source = getattr(source, "generator", source)  # of one under guidance
        if hasattr(source, "defaults"):
            sampling = {**source.sampling, **given}
            return source.pipeline, None, replace(source.defaults, sampling=sampling)
        pipe = getattr(source, "pipeline", source)
        if not hasattr(pipe, "components"):
            raise ValueError(f"{type(source).__name__} does not tell its parts")
        known = chosen_preset(pipe, loading.get("preset"))
        found = sampling_defaults(pipe, preset=known, given=given, recorded=True, say=False)
        return pipe, None, found
    place = generator_source(source)
    if place is None:
        raise ValueError("a plug-in tells its size only once it is loaded")
    preset = chosen_preset(origin_of(source, loading), loading.get("preset"))
    if names_file(place):
        place = config_source(place, loading.get("config"))
    pipe, fake = skeletons.pipeline(place, dtype=number_formats(preset, dtype, device))
    own = folder_settings(source) if Path(source).is_dir() else {}
    if not own and Path(place).is_dir() and not names_file(source):
        own = folder_settings(place)
    found = sampling_defaults(
        pipe, preset=preset, given={**own, **given}, name=str(source),
        recorded=is_recorded(source), say=False,
    )  # fmt: skip
    return pipe, fake, found


def _guidance(source: Any, loading: Mapping[str, Any]) -> GuidanceBytes | None:
    """What steers, as ``load_generator`` is told or a loaded generator says."""
    from t2x.guidance.recipe import make_recipe

    recipe, rewards = loading.get("guidance"), loading.get("rewards") or ()
    if hasattr(source, "recipe"):  # a GuidedGenerator
        return GuidanceBytes(source.recipe, source.rewards)
    if recipe is None and not rewards:
        return None
    return GuidanceBytes(make_recipe(recipe or {}, loaded=[r.name for r in rewards]), rewards)


def _as_written(
    pipe: Any, sampling: Mapping[str, Any], call: Mapping[str, Any]
) -> AbstractContextManager[None]:
    """What the generator does to a call: texts beyond one window are encoded in several."""
    from t2x.generators.adapters import Adapters
    from t2x.generators.prompt_syntax import PromptSyntax

    negatives = call.get("negative_prompt") or []
    reader = PromptSyntax(
        pipe, sampling=sampling, adapters=Adapters(pipe), negative=bool(negatives), syntax="auto"
    )
    return reader.acting(call["prompt"], negatives)


def _added_bytes(loading: Mapping[str, Any], notes: list[str]) -> dict[str, int]:
    """Bytes of LoRAs, by the files that lie here; of others a note says that they are unknown."""
    sizes = {}
    for source in loading.get("loras") or {}:
        path = Path(source).expanduser()
        files = [path] if path.is_file() else list(path.glob("*.safetensors"))
        if not files:
            notes.append(f"the LoRA {source} comes on top; its size is not known before it is here")
            continue
        sizes[f"LoRA {path.name}"] = max(file.stat().st_size for file in files)
    return sizes


def _call(
    defaults: SamplingDefaults,
    pipe: Any,
    *,
    size: tuple[int, int] | None,
    num_frames: int | None,
    batch: int,
    source_size: tuple[int, int] | None = None,
    prompt: str = PROMPT,
) -> dict[str, Any]:
    """Arguments of the call that the generator would make, of fewer samples than ``batch`` where
    its class takes one source at a time."""
    from PIL import Image

    from t2x.generators.calls import call_arguments, checked_sampling, with_size
    from t2x.generators.diffusion import own_noise
    from t2x.generators.sources import needs_source, rows_of_call, source_arguments, takes_source

    arguments = call_arguments(pipe)
    if source_size is not None and not takes_source(arguments):
        raise T2XError(f"{type(pipe).__name__} takes no source picture; leave its size out")
    chosen = checked_sampling(defaults.sampling, arguments, pipeline=type(pipe).__name__)
    call = with_size(chosen, arguments, size=size, num_frames=num_frames)
    if source_size is not None or needs_source(type(pipe), arguments):
        height, width = source_size or size or (call.get("height") or 512, call.get("width") or 512)
        pictures = [Image.new("RGB", (width, height), "grey")] * batch
        batch = len(rows_of_call(type(pipe), list(range(batch)), pictures))
        call |= source_arguments(pipe, call, arguments, pictures[:batch])
    call |= {"prompt": [prompt] * batch, "generator": own_noise(range(batch))}
    scale = call.get("true_cfg_scale", arguments.get("true_cfg_scale"))
    if (scale or 1) > 1 and "negative_prompt" in arguments:
        call["negative_prompt"] = [defaults.negative] * batch
    return call


def _dtype_of(parts: Mapping[str, torch.nn.Module]) -> str:
    denoiser = next((parts[name] for name in DENOISER_PARTS if name in parts), None)
    number = getattr(denoiser, "dtype", None)
    return str(number).removeprefix("torch.")


def _stored(source: Any, device: torch.device, dtype: str | torch.dtype | None) -> int | None:
    """Weights from headers, where the networks could not be built."""
    from t2x.registry import generator_source

    found = generator_source(source) if isinstance(source, (str, Path)) else source
    if not isinstance(found, (str, Path)) and not hasattr(found, "components"):
        return None
    try:
        return weight_bytes(found, dtype=resolve_dtype(dtype, device))
    except T2XError as error:
        log.info("size of %s is unknown: %s", source, error)
        return None


# ---- rewrite ------------------------------------------------------------------------------------


def rewrite_plan(
    source: str | Path | Rewriter,
    *,
    device: torch.device,
    dtype: str | torch.dtype | None = None,
    batch: int = 1,
) -> PhasePlan:
    """Plan the phase that rewrites ``batch`` prompts at a time, one rewrite each."""
    from t2x.registry import is_language_model

    name = _name(source)
    nothing = PhasePlan("rewrite", name, {}, {}, {"resident": 0}, {"batch": batch})
    if isinstance(source, str) and not is_language_model(source):
        note = ("its memory is not counted",) if source.startswith(("search:", "v")) else ()
        peaks: dict[str, int | None] = {"resident": None if note else 0}
        return PhasePlan("rewrite", name, {}, {}, peaks, {"batch": batch}, note)
    inner = getattr(source, "rewriter", source)  # of a guard, what it guards
    if not isinstance(source, (str, Path)) and not hasattr(inner, "model"):
        return nothing
    try:
        model, fake, prompt, new, shared = _writer(inner, device, dtype)
        found = writing_bytes(
            model, rows=batch, prompt_tokens=prompt, new_tokens=new, shared_tokens=shared, fake=fake
        )
    except T2XError:
        raise
    except Exception as error:
        stored = weight_bytes(source) if isinstance(source, (str, Path)) else None
        note = (f"unknown: {_line(error)}",)
        return PhasePlan(
            "rewrite", name, {"model": stored}, {"write": None}, {"resident": None},
            {"batch": batch}, note,
        )  # fmt: skip
    weights = module_bytes(model)
    peaks = {"resident": weights + found["read"]}
    layer = largest_layer({"model": model})
    for bits, width in BITS.items():
        peaks[bits] = quantised_bytes(TEXT_PARTS[0], model, width) + found["read"] + layer
    shown = {"batch": batch, "prompt_tokens": prompt, "new_tokens": new}
    shown |= {"cache": found["cache"], "logits": found["logits"]}
    return PhasePlan("rewrite", name, {"model": weights}, {"write": found["read"]}, peaks, shown)


def _writer(
    source: Any, device: torch.device, dtype: str | torch.dtype | None
) -> tuple[Any, Any, int, int, int]:
    """The model, the mode of its weights, and how many tokens it reads, writes, and reads before
    every prompt."""
    from t2x.devices import named_dtype

    if not isinstance(source, (str, Path)):
        tokens, shared = _tokens(source.encoder)
        return source.model, None, tokens, source.template.max_new_tokens, shared
    from transformers import AutoTokenizer

    from t2x.rewriters.encoding import PromptEncoder
    from t2x.rewriters.language_model import find_weights
    from t2x.rewriters.presets import PRESETS, checkpoint_template, default_template

    weights, parts = find_weights(source)
    number = named_dtype(dtype, device) if isinstance(dtype, str) else dtype
    if number is None:
        number = torch.float32 if device.type == "cpu" else torch.bfloat16
    model, fake = skeletons.language_model(
        weights, subfolder=parts.get("subfolder", ""), file=parts.get("gguf_file"), dtype=number
    )
    preset = str(source) if weights != str(source) and str(source) in PRESETS else None
    try:
        folder = skeletons.config_folder(parts.get("tokenizer", weights))
        own = {} if "tokenizer" in parts else {k: v for k, v in parts.items()}
        tokenizer = AutoTokenizer.from_pretrained(folder, **own)
        template = checkpoint_template(weights, preset) or default_template(tokenizer)
        tokens, shared = _tokens(PromptEncoder(tokenizer, template))
        return model, fake, tokens, template.max_new_tokens, shared
    except Exception as error:
        log.info("how many tokens %s reads is unknown: %s", source, _line(error))
        return model, fake, PROMPT_TOKENS, NEW_TOKENS, 0


def _tokens(encoder: Any) -> tuple[int, int]:
    """Tokens of a prompt with the words around it, and of those that all prompts begin with."""
    whole, other = encoder.encode(PROMPT), encoder.encode("one red dog")
    pairs = enumerate(zip(whole, other, strict=False))
    return len(whole), next((i for i, (one, two) in pairs if one != two), 0)


# ---- score --------------------------------------------------------------------------------------


def score_plan(
    source: str | RewardModel,
    *,
    batch: int = 1,
    size: tuple[int, int] = (512, 512),
    num_frames: int | None = None,
) -> PhasePlan:
    """Plan one reward's phase. What is loaded or comes with this package is run once; of published
    weights only the size is known."""
    from t2x.registry import check_names, load_reward
    from t2x.reward_facts import FACTS

    name = source if isinstance(source, str) else str(source.name)
    settings = {"batch": batch, "height": size[0], "width": size[1]}
    if isinstance(source, str):
        check_names("rewards", [source])
        facts = FACTS.get(source)
        if facts is None or facts.download != "embedded":
            return _published(source, settings)
    try:
        with quiet():
            reward = load_reward(source)
        weights = reward_weights(reward)
        acts = reward_activations(reward, batch=batch, size=size, frames=num_frames)
    except Exception as error:  # weights that are missing, a reward that needs a context
        note = (f"unknown: {_line(error)}",)
        return PhasePlan(
            "score", name, {"model": None}, {"score": None}, {"resident": None}, settings, note
        )
    del reward
    release_memory()  # it holds itself in cycles
    peaks = {"resident": weights + acts}
    return PhasePlan("score", name, {"model": weights}, {"score": acts}, peaks, settings)


def _published(name: str, settings: dict[str, Any]) -> PhasePlan:
    from t2x.training.architectures import reward_size

    known = reward_size(name)
    weights = None if known is None else known[0] * known[1]
    note = ("activations are not known before the weights are there",)
    return PhasePlan(
        "score", name, {"model": weights}, {"score": None}, {"resident": None}, settings, note
    )


# ---- shared -------------------------------------------------------------------------------------


def _name(source: Any) -> str:
    if isinstance(source, (str, Path)):
        return str(source)
    return str(getattr(source, "model_id", None) or type(source).__name__)


def _line(error: Exception) -> str:
    text = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
