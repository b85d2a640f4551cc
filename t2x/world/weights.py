"""Where the embedded models lie.

Each model is a folder ``t2x/world/models/<name>/`` in the format of its real counterpart, with a
card ``README.md`` beside the weights, written as cards on a model hub are: YAML between two
``---`` lines, then text.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from t2x.errors import T2XError, UnknownNameError
from t2x.settings import base_name

# The file that makes a folder a model of its format, and where in its --out a recipe writes it.
_FORMATS = {
    "emoji-flow": ("model_index.json", "pipeline"),
    "emoji-flow-turbo": ("t2x.json", "pipeline"),
    "emoji-clip": ("open_clip_model.safetensors", "model"),
    "emoji-hps": ("open_clip_model.safetensors", "model"),
    "emoji-aesthetic": ("head.safetensors", "model"),
    "emoji-vlm": ("model.safetensors", "model"),
    "emoji-lm": ("model.safetensors", "model"),
    "emoji-rewriter": ("model.safetensors", "model"),
}
EMBEDDED = tuple(_FORMATS)
MODELS = Path(__file__).parent / "models"

__all__ = ["EMBEDDED", "MODELS", "is_present", "model_dir", "require_model", "weight_digests"]


def model_dir(name: str) -> Path:
    """Give the folder of an embedded model, whether or not it has been trained yet.

    Raises ``UnknownNameError`` for a name outside ``EMBEDDED``.
    """
    if name not in EMBEDDED:
        raise UnknownNameError(
            f"{name!r} is not an embedded model; known are: {', '.join(EMBEDDED)}"
        )
    return MODELS / name


def is_present(name: str) -> bool:
    """Tell whether the weights of an embedded model are there, with those of its base if it holds
    only the parts that differ from one (``t2x.generators.folders``).

    A recipe's --out is no model: the model is a folder in it.
    """
    folder = model_dir(name)
    top, _ = _FORMATS[name]
    if not (folder / top).is_file() or not any(folder.rglob("*.safetensors")):
        return False
    base = _embedded_base(folder)
    return base in (None, name) or is_present(base)


def _embedded_base(folder: Path) -> str | None:
    """Name of the embedded model that a folder of parts is completed by."""
    base = base_name(folder)
    return base if base in EMBEDDED else None


def require_model(name: str) -> Path:
    """Give the folder of an embedded model, or raise ``T2XError`` if it holds no weights."""
    folder = model_dir(name)
    if not is_present(name):
        base = _embedded_base(folder)
        if base is not None and not is_present(base):
            name, folder = base, model_dir(base)
        _, part = _FORMATS[name]
        raise T2XError(
            f"the embedded model {name!r} has no weights in this install; train them with: "
            f"t2x world train {name} --out runs/{name}, then copy what is in runs/{name}/{part} "
            f"to {folder}"
        )
    return folder


def weight_digests(names: Iterable[str]) -> dict[str, str]:
    """Digests of the folders among ``names``, and of all embedded models that are there: a
    generator may build on another one, and rewards name none of theirs."""
    from t2x.generators.identity import folder_digest
    from t2x.registry import known_names

    known = {"dense", *EMBEDDED, *known_names("generators"), *known_names("rewriters")}
    folders = {name: model_dir(name) for name in EMBEDDED if is_present(name)}
    folders |= {name: Path(name) for name in sorted({*names} - known) if Path(name).is_dir()}
    return {name: folder_digest(folder) for name, folder in folders.items()}
