"""What a local folder of a generator says about itself, before any weights are read.

A folder is a whole pipeline (``pipeline.save_pretrained``), or, as checkpoints of Latent
Consistency Models are passed on (Luo et al. 2023, arXiv 2310.04378), only the parts that differ
from another pipeline: ``unet/``, ``scheduler/`` and a ``t2x.json`` whose ``"base"`` names it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2x.errors import T2XError
from t2x.settings import INDEX_FILE, base_name, read_object, read_settings
from t2x.world.weights import EMBEDDED, require_model

if TYPE_CHECKING:
    import torch

CONFIG_FILES = ("config.json", "scheduler_config.json")

__all__ = [
    "base_of",
    "folder_settings",
    "load_parts",
    "part_names",
    "pipeline_folder",
]


def folder_settings(source: str | Path) -> dict[str, Any]:
    """Read the default sampling settings (``t2x.json``) of a local folder; empty when there are
    none.

    Keys are arguments of the pipeline's own call, such as num_inference_steps, guidance_scale,
    height, width.
    """
    settings = read_settings(source)
    settings.pop("base", None)
    return settings


def base_of(folder: str | Path) -> str | None:
    """Give the pipeline that the parts in ``folder`` belong to; None for a whole pipeline.

    It is the folder of an embedded model, any other folder (a relative one counts from ``folder``,
    then from where the process runs) or a hub id. Raises T2XError if the embedded base has no
    weights.
    """
    base = base_name(folder)
    if base is None:
        return None
    if base in EMBEDDED:
        return str(require_model(base))
    return next((str(path) for path in (Path(folder) / base, Path(base)) if path.is_dir()), base)


def pipeline_folder(folder: str | Path) -> Path | None:
    """Give the local folder that holds the whole pipeline: ``folder`` or its base, or None."""
    root = Path(base_of(folder) or folder)
    return root if (root / INDEX_FILE).is_file() else None


def part_names(folder: str | Path) -> list[str]:
    """List the components that a folder holds: subfolders with a configuration of diffusers."""
    found = (path for path in Path(folder).iterdir() if path.is_dir())
    return sorted(p.name for p in found if any((p / name).is_file() for name in CONFIG_FILES))


def load_parts(folder: str | Path, *, dtype: torch.dtype) -> dict[str, Any]:
    """Load the parts in ``folder``, by name: models in ``dtype`` from safetensors, and schedulers.

    Raises T2XError if there is none, or one that is not of diffusers.
    """
    names = part_names(folder)
    if not names:
        raise T2XError(f'{folder} names a "base" and holds no parts; give it a unet/ or scheduler/')
    return {name: _load_part(Path(folder) / name, dtype) for name in names}


def _load_part(folder: Path, dtype: torch.dtype) -> Any:
    import diffusers

    path = next(folder / name for name in CONFIG_FILES if (folder / name).is_file())
    name = read_object(path).get("_class_name")
    kind: Any = getattr(diffusers, name, None) if isinstance(name, str) else None
    if _is_a(kind, diffusers.SchedulerMixin):
        return kind.from_pretrained(folder)
    if _is_a(kind, diffusers.ModelMixin):
        return kind.from_pretrained(folder, dtype=dtype, use_safetensors=True)
    raise T2XError(f"{path} is of class {name!r}; allowed are models and schedulers of diffusers")


def _is_a(kind: Any, parent: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, parent)
