"""Models from their configurations alone: the real classes, with weights that have shapes and no
data, so that neither a download nor memory is needed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from t2x.errors import T2XError
from t2x.generators.folders import CONFIG_FILES, base_of, part_names
from t2x.generators.loading import quiet
from t2x.settings import INDEX_FILE, read_object

__all__ = ["NEEDED", "config_folder", "language_model", "pipeline"]

log = logging.getLogger(__name__)

# What of a repository is read: everything but weights and pictures.
NEEDED = ("*.json", "*.txt", "*.model", "*.jinja")
SKIPPED = ("safety_checker", "feature_extractor")


def config_folder(source: str | Path) -> Path:
    """Give a local folder with the configurations of ``source``, of a hub id those that are
    downloaded now, without weights: a few MB, most of it vocabularies.

    Raises what the hub's client raises for an id that can't be reached.
    """
    if Path(source).is_dir():
        return Path(source)
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(str(source), allow_patterns=list(NEEDED)))


def pipeline(
    source: str | Path, *, dtype: torch.dtype | Mapping[str, torch.dtype] = torch.float32
) -> tuple[Any, FakeTensorMode]:
    """Build the pipeline of a folder or hub id with weights of ``dtype`` that have no data, and the
    mode in which they were made. ``dtype`` may differ by part, with the "default" of the others.

    Parts that a folder has of its own replace those of its base. The safety checker is left out.
    Raises T2XError for a folder that is no pipeline.
    """
    own = config_folder(source)
    base = base_of(own)
    whole = own if base is None else config_folder(base)
    if not (whole / INDEX_FILE).is_file():
        raise T2XError(f"{whole} has no {INDEX_FILE}; give a folder in diffusers' format or hub id")
    replaced = part_names(own) if base is not None else []
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    formats = dtype if isinstance(dtype, Mapping) else {"default": dtype}
    index = read_object(whole / INDEX_FILE)
    kind = _pipeline_class(index)
    parts: dict[str, Any] = {}
    with quiet():
        for name, entry in index.items():
            if name.startswith("_"):
                continue
            if not isinstance(entry, list):
                parts[name] = entry
            elif name in SKIPPED or entry[0] is None:
                parts[name] = None
            else:
                folder = (own if name in replaced else whole) / name
                number = formats.get(name, formats["default"])
                parts[name] = _part(folder, *entry, dtype=number, fake=fake)
        made = kind(**_taken(kind, parts))
    return made, fake


def language_model(
    source: str | Path,
    *,
    subfolder: str = "",
    file: str | None = None,
    dtype: torch.dtype = torch.float32,
) -> tuple[Any, FakeTensorMode]:
    """Build the causal language model of a folder or hub id in the same way; ``file`` is that of
    GGUF weights, which hold their configuration."""
    from transformers import AutoConfig, AutoModelForCausalLM

    held = {"gguf_file": file} if file else {}
    config = AutoConfig.from_pretrained(config_folder(source) / subfolder, **held)
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    with quiet(), _without_data(fake):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
        model.tie_weights()
        return model.eval(), fake


@contextmanager
def _without_data(fake: FakeTensorMode) -> Iterator[None]:
    """Build modules inside without data and without drawing their weights."""
    from transformers.initialization import no_init_weights

    with torch.random.fork_rng(devices=[]), no_init_weights(), fake:
        yield


def _pipeline_class(index: Mapping[str, Any]) -> Any:
    import diffusers

    name = str(index.get("_class_name"))
    kind = getattr(diffusers, name, None)
    if not isinstance(kind, type):
        raise T2XError(f"{name!r} is no pipeline of diffusers")
    return kind


def _taken(kind: Any, parts: Mapping[str, Any]) -> dict[str, Any]:
    """What the class's constructor takes; what an index lacks is None, as in diffusers."""
    required, optional = map(set, kind._get_signature_keys(kind))
    found = {name: value for name, value in parts.items() if name in required | optional}
    found |= {name: None for name in required - found.keys()}
    if "requires_safety_checker" in optional:
        found["requires_safety_checker"] = False
    return found


def _part(
    folder: Path, library: str, name: str, *, dtype: torch.dtype, fake: FakeTensorMode
) -> Any:
    from diffusers.pipelines.pipeline_loading_utils import simple_get_class_obj

    kind: Any = simple_get_class_obj(library, name)
    if torch.nn.Module not in kind.__mro__:
        return kind.from_pretrained(folder)
    if hasattr(kind, "config_class") and kind.config_class is not None:  # of transformers
        config = kind.config_class.from_pretrained(folder)
        with _without_data(fake):
            model = kind(config)
            model.tie_weights()
            return _converted(model, dtype)
    config = read_object(folder / CONFIG_FILES[0])
    with _without_data(fake):
        return _converted(kind.from_config(config), dtype)


def _converted(module: Any, dtype: torch.dtype) -> Any:
    """The module in ``dtype``, but for the parts that its class keeps in float32."""
    kept = getattr(module, "_keep_in_fp32_modules", None) or ()
    made: dict[int, Any] = {}  # weights that are shared stay so
    for path, part in module.named_modules():
        whole = dtype == torch.float32 or set(path.split(".")) & set(kept)
        for held in (part._parameters, part._buffers):
            for name, value in held.items():
                if value is None or not value.is_floating_point() or whole or name in kept:
                    continue
                if id(value) not in made:
                    new = torch.empty(value.shape, dtype=dtype)
                    is_weight = held is part._parameters
                    made[id(value)] = torch.nn.Parameter(new, False) if is_weight else new
                held[name] = made[id(value)]
    return module.eval()
