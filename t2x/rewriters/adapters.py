"""Rewriters that are stored as adapters (LoRA, Hu et al. 2021, arXiv 2106.09685): a small folder in
peft's format, and the base that it belongs to.

The adapters are merged into the weights when they are loaded, so that what serves is a model of the
plain class, as fast as its base.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from t2x.errors import T2XError
from t2x.failures import reading
from t2x.settings import read_object

ADAPTER_FILE = "adapter_config.json"

__all__ = ["ADAPTER_FILE", "base_of_adapter", "merge_adapter"]


def base_of_adapter(folder: str | Path) -> str | None:
    """Give the name, folder or hub id of the base that adapters belong to; None for a folder that
    holds none."""
    path = Path(folder) / ADAPTER_FILE
    if not path.is_file():
        return None
    base = read_object(path).get("base_model_name_or_path")
    if not isinstance(base, str) or not base.strip():
        raise T2XError(f'{path}: "base_model_name_or_path" is {base!r}; name the base model there')
    return base


def merge_adapter(model: Any, folder: str | Path) -> Any:
    """Put the adapters of ``folder`` into the weights of their base; T2XError says what is wrong
    with them."""
    from t2x.registry import missing_dependency

    try:
        from peft import PeftModel
    except ModuleNotFoundError as error:
        raise missing_dependency(error) from error
    with reading(folder, "the adapters"):
        return PeftModel.from_pretrained(model, str(folder)).merge_and_unload()
