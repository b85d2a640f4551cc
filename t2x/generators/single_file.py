"""Checkpoints in one file, as their authors' own code and web UIs write them.

    load_generator("dream.safetensors", config="FOLDER or hub id")    a whole pipeline
    load_generator("flux1-dev-Q4_K_S.gguf", config=...)               a denoiser alone
    load_generator("owner/model", unet="lightning.safetensors", vae="owner/vae/file.safetensors")

diffusers converts tensors to its own names; what it needs beside them, the configurations, is
``config``: a folder of diffusers' format (weights may be missing where the file has them) or a hub
id. Without it, that of the family which the names of the tensors tell. Pickles are read under
``torch.load(weights_only=True)`` and refused where they hold more than tensors. Not run on real
weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from t2x.errors import MissingDependencyError, T2XError
from t2x.failures import UNUSED, explain, first_line, reading, without_secrets
from t2x.generators.identity import file_digest, folder_digest, hub_commit, source_revision
from t2x.generators.loading import LOAD_OPTIONS, check_options, load_pipeline, quiet
from t2x.settings import INDEX_FILE, read_object
from t2x.weight_files import GGUF, PICKLES, SAFE, find_weights, names_file

if TYPE_CHECKING:
    import torch

Numbers: TypeAlias = "torch.dtype | Mapping[str, torch.dtype]"
"""The number format of all parts, or of each, with the "default" of the others."""
_SUFFIXES = (*SAFE, *PICKLES, *GGUF)
_DENOISERS = ("unet", "transformer", "transformer_2", "prior", "decoder")
_TEXT = ("cond_stage_model.", "conditioner.embedders.", "text_encoders.", "text_encoder.")
_INPUTS = (  # of denoisers and autoencoders: what the other parts of a pipeline give them
    "in_channels",
    "out_channels",
    "latent_channels",
    "cross_attention_dim",
    "addition_embed_type",
    "joint_attention_dim",
    "pooled_projection_dim",
    "caption_channels",
    "text_dim",
)
_COMPONENTS = (*_DENOISERS, "vae", "text_encoder", "text_encoder_2", "text_encoder_3")

__all__ = [
    "Contents",
    "config_of",
    "config_source",
    "inspect_file",
    "load_single_file",
    "loaded_parts",
    "named_after",
    "origin_of",
    "weights_revision",
]


@dataclass(frozen=True, slots=True)
class Contents:
    """What a file of weights holds, by the names of its tensors.

    ``family`` is diffusers' name of the kind of checkpoint ("v1" is Stable Diffusion 1), None
    where it knows none; ``repository`` the hub id whose configuration belongs to it; ``denoiser``,
    ``vae`` and ``text`` tell which parts are there.
    """

    family: str | None
    repository: str | None
    denoiser: bool
    vae: bool
    text: bool

    @property
    def whole(self) -> bool:
        """Whether denoiser, autoencoder and text encoders are all there."""
        return self.denoiser and self.vae and self.text


def inspect_file(path: str | Path) -> Contents:
    """Tell what a local file holds; of safetensors and GGUF only the header is read.

    Raises T2XError for a LoRA, a textual inversion or a ControlNet, saying how those are given, for
    a pickle that holds more than tensors, and for a damaged file.
    """
    shapes = _shapes(Path(path))
    _refuse_additions(shapes, str(path))
    from diffusers.loaders.single_file_utils import (
        DIFFUSERS_DEFAULT_PIPELINE_PATHS,
        infer_diffusers_model_type,
    )

    vae = _any(shapes, "first_stage_model.", "vae.")
    text = _any(shapes, *_TEXT)
    try:
        family: str | None = infer_diffusers_model_type(shapes)
    except (KeyError, IndexError, AttributeError, RuntimeError, UnboundLocalError, ValueError):
        family = None  # a mixture that diffusers does not expect
    if family == "v1" and not _any(shapes, "model.diffusion_model.input_blocks."):
        family = None  # which diffusers calls all that it does not know
    if family is not None and "controlnet" in family:
        raise T2XError(f"{str(path)!r} is a ControlNet ({family}), which no generator is made of")
    known = DIFFUSERS_DEFAULT_PIPELINE_PATHS.get(family or "", {})
    return Contents(
        family,
        known.get("pretrained_model_name_or_path"),
        denoiser=not _only_vae(shapes) and not _only_text(shapes),
        vae=vae or _only_vae(shapes),
        text=text or _only_text(shapes),
    )


def _shapes(path: Path) -> dict[str, Any]:
    """Tensors without data, by name."""
    if path.suffix.lower() in GGUF:
        import torch

        reader = _gguf_reader(path)
        sizes = {t.name: [int(n) for n in reversed(t.shape)] for t in reader.tensors}
        return {name: torch.empty(size, device="meta") for name, size in sizes.items()}
    from t2x.scoring.state_files import read_file

    held = read_file(path, device="meta")
    while isinstance(held, Mapping) and isinstance(held.get("state_dict"), Mapping):
        held = held["state_dict"]
    if not isinstance(held, Mapping):
        raise T2XError(f"{str(path)!r} holds a {type(held).__name__}; give a file of tensors")
    return {str(name): value for name, value in held.items()}


def _gguf_reader(path: Path) -> Any:
    try:
        from gguf import GGUFReader
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"{path.name} needs the module 'gguf', which is not installed; pip install gguf"
        ) from error
    try:
        return GGUFReader(str(path))
    except (OSError, ValueError, IndexError, KeyError) as error:
        raise T2XError(f"cannot read {str(path)!r}: {error}; fetch it again") from error


def _any(names: Mapping[str, Any], *beginnings: str) -> bool:
    return any(name.startswith(beginnings) for name in names)


def _only_vae(names: Mapping[str, Any]) -> bool:
    own = ("encoder.", "decoder.", "quant_conv.", "post_quant_conv.", "first_stage_model.", "vae.")
    return all(name.startswith(own) or "statistics" in name for name in names)


def _only_text(names: Mapping[str, Any]) -> bool:
    own = (*_TEXT, "text_model.", "text_projection", "shared.", "encoder.block.", "transformer.res")
    return all(name.startswith(own) for name in names)


def _refuse_additions(names: Mapping[str, Any], path: str) -> None:
    """Say of what is no model, but is added to one, how it is given."""
    first = next(iter(names), None)
    if first is None:
        raise T2XError(f"{path!r} holds no tensors; fetch it again")
    if any("lora_" in name or ".lora." in name or "lokr_" in name for name in names):
        raise T2XError(f"{path!r} is a LoRA; give it to a model: loras={{{path!r}: 0.8}} (--lora)")
    words = {"string_to_param", "emb_params", "clip_l", "clip_g"}
    if words & set(names) or (len(names) == 1 and first.startswith("<")):
        given = f"embeddings={{{path!r}: None}} (--embedding)"
        raise T2XError(f"{path!r} is a textual inversion; give it as {given}")


@cache
def config_of(config: str, what: str) -> Path:
    """The local folder that holds a pipeline's configurations and tokenizers, without weights that
    a single file brings; those of a hub id are fetched. ``what`` says for what in messages.

    Raises T2XError that names what to give where they can't be had.
    """
    if (Path(config) / INDEX_FILE).is_file():
        return Path(config)
    if Path(config).is_dir():
        raise T2XError(f"config {config!r} has no {INDEX_FILE}; give a folder of a whole pipeline")
    from huggingface_hub import snapshot_download

    patterns = ["**/*.json", "*.json", "*.txt", "**/*.txt", "**/*.model"]
    try:
        folder = Path(snapshot_download(config, allow_patterns=patterns))
    except (OSError, ValueError) as error:
        said = str(explain(error, config) or first_line(error))
        reason = said.removeprefix(f"cannot load {config!r}: ")
        raise T2XError(
            f"{what} needs the configuration of {config}, which can't be fetched: {reason}; give "
            "config= a local folder in diffusers' format (its .json files and tokenizers will do)"
        ) from error
    if not (folder / INDEX_FILE).is_file():
        raise T2XError(f"config {config!r} has no {INDEX_FILE}; give that of a whole pipeline")
    return folder


def load_single_file(
    source: str | Path,
    *,
    dtype: Numbers,
    revision: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Any:
    """Load a pipeline from one file: a path, OWNER/MODEL/FILE or an address on the hub.

    ``options``: ``config``, components in place of the file's (a file, a folder, a module or None),
    and what ``DiffusionPipeline.from_pretrained`` takes where the file is a denoiser alone. Raises
    T2XError, in one line, for what can't be loaded.
    """
    given = dict(options or {})
    path = find_weights(source, what="checkpoint", suffixes=_SUFFIXES, revision=revision)
    contents = inspect_file(path)
    config = _config_for(path, contents, given.pop("config", None))
    if not contents.whole:
        return _around_denoiser(path, config, dtype=dtype, options=given)
    if "quantization_config" in given:
        raise T2XError(
            f"{path.name} is a whole pipeline in one file, which diffusers does not quantise while "
            "it loads; give a folder in diffusers' format, or its denoiser as .gguf"
        )
    folder = config_of(config, path.name)
    kind = _pipeline_class(folder)
    if not hasattr(kind, "from_single_file"):
        raise T2XError(f"diffusers reads no single file as a {kind.__name__}; give a folder")
    check_options(given, kind)
    parts = loaded_parts(config, given, dtype=dtype)
    try:
        with quiet():
            number = _number(dtype)
            pipeline = kind.from_single_file(str(path), config=str(folder), dtype=number, **parts)
    except Exception as error:
        raise T2XError(_why(error, path, contents, config)) from error
    return _complete(pipeline, path, config)


def _around_denoiser(path: Path, config: str, *, dtype: Numbers, options: Mapping[str, Any]) -> Any:
    """The pipeline of ``config`` with its denoiser from a file."""
    index = read_object(config_of(config, path.name) / INDEX_FILE)
    name = next((part for part in _DENOISERS if isinstance(index.get(part), list)), None)
    if name is None:
        raise T2XError(f"{config} has no denoiser that {path.name} could be; give another config=")
    return load_pipeline(config, dtype=dtype, options={**options, name: path})


def config_source(
    source: str | Path, config: str | Path | None = None, *, revision: str | None = None
) -> str:
    """The folder or hub id whose configuration a single file has: ``config``, or that of its
    family. Raises T2XError where neither tells."""
    if config is not None:
        return str(config)
    path = find_weights(source, what="checkpoint", suffixes=_SUFFIXES, revision=revision)
    return _config_for(path, inspect_file(path), None)


def _config_for(path: Path, contents: Contents, config: Any) -> str:
    """What the configuration of a pipeline from this file is; refuses a part that is none."""
    if not contents.denoiser:
        part = "vae" if contents.vae else "text_encoder"
        raise T2XError(
            f"{path.name} is a part alone; load the pipeline and give it as {part}={str(path)!r} "
            f"(--part {part}={path})"
        )
    if config is not None:
        return str(config)
    if contents.repository is None:
        raise T2XError(
            f"{path.name}: no family of checkpoints is known by the names of its tensors; give "
            "config= a local folder in diffusers' format, or the hub id of the model it belongs to"
        )
    return contents.repository


def _pipeline_class(folder: Path) -> Any:
    import diffusers

    name = str(read_object(folder / INDEX_FILE).get("_class_name"))
    kind = getattr(diffusers, name, None)
    if kind is None:
        raise T2XError(f"{folder}: {name!r} is no pipeline of diffusers")
    return kind


def loaded_parts(base: str, options: Mapping[str, Any], *, dtype: Numbers) -> dict[str, Any]:
    """Load those options that name a component by a file or a folder; give all options back.

    ``base``: the folder or hub id whose index says of which class each component is, and whose
    configuration a file gets. Raises T2XError for a component that the pipeline does not have, and
    for a file that does not fit it.
    """
    named = {k: v for k, v in options.items() if k in _COMPONENTS and isinstance(v, (str, Path))}
    if not named:
        return dict(options)
    folder = config_of(str(base), f"a {next(iter(named))} from a file")
    index = read_object(folder / INDEX_FILE)
    loaded = {
        name: _part(name, value, folder, index, _number(dtype, name))
        for name, value in named.items()
    }
    return {**options, **loaded}


def _number(dtype: Numbers, name: str = "default") -> torch.dtype:
    if isinstance(dtype, Mapping):
        return dtype.get(name, dtype["default"])
    return dtype


def _part(
    name: str, source: str | Path, folder: Path, index: Mapping[str, Any], dtype: torch.dtype
) -> Any:
    import diffusers
    import transformers

    entry = index.get(name)
    if not isinstance(entry, list) or entry[-1] is None:
        known = ", ".join(key for key in _COMPONENTS if isinstance(index.get(key), list))
        raise T2XError(f"{folder} has no {name}; it has {known}")
    kind: Any = getattr(diffusers, entry[-1], None) or getattr(transformers, entry[-1], None)
    if _is_folder_of_part(source):
        with reading(source, f"the {name}", unused=UNUSED, otherwise=(Exception,)), quiet():
            part = kind.from_pretrained(source, dtype=dtype, use_safetensors=True)
        _fits(part, name, source, folder)
        return part
    if not hasattr(kind, "from_single_file"):
        raise T2XError(f"diffusers reads no {entry[-1]} from a file; give {name}= a folder of it")
    path = find_weights(source, what=name, suffixes=_SUFFIXES)
    contents = inspect_file(path)
    options: dict[str, Any] = {}
    if path.suffix.lower() in GGUF:
        from diffusers import GGUFQuantizationConfig

        options["quantization_config"] = GGUFQuantizationConfig(compute_dtype=dtype)
    try:
        with quiet():
            part = kind.from_single_file(
                str(path), config=str(folder), subfolder=name, dtype=dtype, **options
            )
    except Exception as error:
        raise T2XError(_why(error, path, contents, str(folder))) from error
    _no_gaps(part, path, f"the {name} of {folder}")
    return part


def _fits(part: Any, name: str, source: str | Path, folder: Path) -> None:
    """Refuse a part whose inputs are not those of the one that it stands in for."""
    path = folder / name / "config.json"
    wanted, own = (read_object(path) if path.is_file() else {}), getattr(part, "config", {})
    for key in _INPUTS:
        if key in wanted and own.get(key, wanted[key]) != wanted[key]:
            raise T2XError(
                f"the {name} of {str(source)!r} is of another model: its {key} is "
                f"{own.get(key)!r}, and {folder} needs {wanted[key]!r}"
            )


def _complete(pipeline: Any, path: Path, config: str) -> Any:
    import torch

    for name, part in pipeline.components.items():
        if isinstance(part, torch.nn.Module):
            _no_gaps(part, path, f"the {name} of {config}")
    return pipeline


def _no_gaps(module: Any, path: Path, what: str) -> None:
    """Refuse a module that the file left without some weights."""
    empty = [name for name, value in module.state_dict().items() if value.is_meta]
    if empty:
        raise T2XError(
            f"{path.name} does not fit {what}: it lacks {len(empty)} of its tensors, {empty[0]} "
            "among them; give the config= that it belongs to"
        )


def _why(error: Exception, path: Path, contents: Contents, config: str) -> str:
    from t2x.memory.machine import is_out_of_memory

    machine = isinstance(error, OSError) or is_out_of_memory(error)
    if machine and (said := explain(error, path)):  # no other config= would help
        return str(said)
    line = " ".join(str(error).split()) or type(error).__name__
    cut = line.find(" If you want to instead")
    line = line[: cut if cut > 0 else None][:240]
    kind = f", a checkpoint of the family {contents.family!r}," if contents.family else ""
    advice = "give the config= that it belongs to"
    if "meta tensor" in line:
        line = "it lacks tensors that this model has"
    elif type(error).__name__ == "SingleFileComponentError" or "valid CLIP" in line:
        line = line.partition(" Please load")[0]
        advice = "give that part as an option, like text_encoder=FOLDER, or None to leave it out"
    where = f"{path.name}{kind} with the configuration of {config}"
    return without_secrets(f"cannot load {where}: {line.rstrip(' .')}; {advice}")


def weights_revision(
    source: str | Path,
    commit: str | None,
    options: Mapping[str, Any],
    pipeline: Callable[[], Any],
) -> str:
    """Name the weights behind a source (``t2x.generators.identity.source_revision``), and those of
    files and folders that stand in for it or for its parts, by the digests of their content; parts
    that are left out (None), and a variant of the files, by name."""
    found = []
    if names_file(source):
        path = find_weights(source, what="checkpoint", suffixes=_SUFFIXES, revision=commit)
        config = _config_for(path, inspect_file(path), options.get("config"))
        found += [file_digest(path), _config_digest(config)]
    else:
        found.append(source_revision(source, commit, pipeline))
    for name, value in sorted(options.items()):
        if name in _COMPONENTS and isinstance(value, (str, Path)):
            is_folder = _is_folder_of_part(value)
            part = value if is_folder else find_weights(value, what=name, suffixes=_SUFFIXES)
            digest = folder_digest(part) if is_folder else file_digest(part)
            found.append(f"{name}:{digest}")
        elif name == "variant" and value is not None:
            found.append(f"variant:{value}")
        elif value is None and name not in LOAD_OPTIONS:
            found.append(f"{name}:none")
    return "+".join(found)


def _is_folder_of_part(source: str | Path) -> bool:
    return (Path(source) / "config.json").is_file()


def origin_of(source: Any, options: Mapping[str, Any], revision: str | None = None) -> Any:
    """What a source says that it is: of a single file the folder or hub id of its configuration."""
    if not names_file(source):
        return source
    return config_source(source, options.get("config"), revision=revision)


def named_after(source: str | Path) -> str:
    """What a generator from the hub or from a file is called: the hub id, or the stem of the
    file."""
    return Path(str(source).partition("?")[0]).stem if names_file(source) else str(source)


def _config_digest(config: str) -> str:
    if Path(config).is_dir():
        return folder_digest(config)
    return hub_commit(config, None) or config
