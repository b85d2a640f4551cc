"""From a run to a folder that others can use: weights whole or as adapters, tokenizer, template, a
model card, and GGUF through llama.cpp's own converter.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from t2x.devices import STORED
from t2x.errors import T2XError
from t2x.files import checkpoints, made_folder
from t2x.registry import looks_local
from t2x.rewriters.adapters import ADAPTER_FILE, base_of_adapter, merge_adapter
from t2x.rewriters.templates import read_template
from t2x.settings import SETTINGS_FILE
from t2x.training.config import PolicyConfig
from t2x.training.policy import load_policy, save_policy

CONFIG, METRICS, CARD, MODEL, ADAPTERS = (
    "config.yaml", "metrics.json", "README.md", "model", "adapter",
)  # fmt: skip
_PARTS = (
    "*.safetensors", "config.json", "generation_config.json", "tokenizer*", "*.safetensors.index.*",
    "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt", "spiece.model",
    "chat_template.*", SETTINGS_FILE, "LICENSE*", "NOTICE*",
)  # fmt: skip

__all__ = ["Trained", "export_model", "find_trained"]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Trained:
    """What there is to export: ``source``, a folder or the name of a model, and the ``run`` that
    it comes from, if any.

    ``adapters`` is the folder with the adapters of a run with LoRA; ``config`` and ``metrics`` are
    those of the run, empty without one.
    """

    source: str
    run: Path | None
    adapters: Path | None
    config: dict[str, Any]
    metrics: dict[str, Any]

    @property
    def base(self) -> str | None:
        """What the training started from; None where that is unknown."""
        if self.adapters is not None and not self.config:
            return base_of_adapter(self.adapters)
        base = self.config.get("policy", {}).get("model")
        return None if base is None else str(base)


def export_model(
    source: str | Path,
    out: str | Path,
    *,
    adapter: bool = False,
    gguf: str | None = None,
    converter: Path | None = None,
    licence: str | None = None,
) -> list[Path]:
    """Export a run, one of its checkpoints, or any rewriter that is a language model; give the
    files and folders that were written.

    Args:
        source: folder of a run, ``checkpoint-N`` in one, folder of a model, name or hub id.
        out: folder for it, which is empty or not there; ``t2x.load_rewriter`` loads it.
        adapter: adapters alone, of a run with LoRA; else they are merged into the weights, in the
            number format of the base.
        gguf: also write GGUF of this type, one of ``t2x.training.gguf.TYPES``.
        converter: llama.cpp's ``convert_hf_to_gguf.py``; None looks for it.
        licence: of the weights, for the card; None is that of the base, where it can be found.
    """
    from t2x.training.card import model_card
    from t2x.training.gguf import find_converter, write_gguf

    out = Path(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise T2XError(f"{str(out)!r} is there and not empty; give another folder")
    if adapter and gguf:
        raise T2XError("GGUF holds whole weights; leave --adapter out")
    tool = find_converter(gguf, converter) if gguf else None
    trained = find_trained(source)
    made_folder(out)
    if adapter:
        _write_adapters(trained, out)
    else:
        _write_whole(trained, out)
    for name in (CONFIG, METRICS):
        if trained.run is not None and (trained.run / name).is_file():
            shutil.copy2(trained.run / name, out / name)
    card = model_card(trained, adapter=adapter, licence=licence)
    (out / CARD).write_text(card, encoding="utf-8")
    files = [path for path in sorted(out.iterdir()) if path.is_file()]
    if tool is not None and gguf is not None:
        files.append(write_gguf(out, gguf, tool))
    return files


def find_trained(source: str | Path) -> Trained:
    """Tell a run, its checkpoint, a model and adapters apart.

    Raises T2XError for a run that holds no model yet, and for a path where nothing is.
    """
    path = Path(source)
    if not path.is_dir():
        if looks_local(str(source)):
            raise T2XError(f"there is no folder {str(source)!r}; `t2x train` writes runs/NAME")
        return Trained(str(source), None, None, {}, {})
    run = next((p for p in (path, path.parent) if (p / CONFIG).is_file()), None)
    if run is None:
        adapters = path if (path / ADAPTER_FILE).is_file() else None
        return Trained(str(path), None, adapters, {}, {})
    folder = run / MODEL if run == path else path
    if not folder.is_dir():
        raise T2XError(
            f"{str(run)!r} holds no trained model; let `t2x train` go on to its end, or give one "
            f"of its checkpoints: {', '.join(p.name for p in checkpoints(run)) or 'none yet'}"
        )
    adapters = next((p for p in _adapter_places(folder, run) if (p / ADAPTER_FILE).is_file()), None)
    # An exported folder keeps the run's config.yaml beside its own weights.
    return Trained(str(folder), run, adapters, _read(run / CONFIG), _read(run / METRICS))


def _adapter_places(folder: Path, run: Path) -> Iterator[Path]:
    """The folder itself; for a finished run the adapters beside its model, else its newest ones."""
    yield folder
    if folder == run / MODEL:
        yield run / ADAPTERS
        yield from reversed(checkpoints(run))


def _read(path: Path) -> dict[str, Any]:
    """YAML or JSON, which is YAML too; empty where there is none."""
    if not path.is_file():
        return {}
    try:
        value = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise T2XError(f"cannot read {str(path)!r}: {error}") from error
    return value if isinstance(value, dict) else {}


def _write_whole(trained: Trained, out: Path) -> None:
    folder = Path(trained.source)
    if any(folder.glob("*.safetensors")) and not (folder / ADAPTER_FILE).is_file():
        _copy(folder, out)
    elif trained.adapters is not None and trained.base is not None:
        base = PolicyConfig(model=trained.base, dtype=STORED, device="cpu")
        policy = load_policy(base)
        save_policy(replace(policy, model=merge_adapter(policy.model, trained.adapters)), out)
    else:
        save_policy(
            load_policy(PolicyConfig(model=trained.source, dtype=STORED, device="cpu")), out
        )
    _write_template(trained, out)


def _write_adapters(trained: Trained, out: Path) -> None:
    if trained.adapters is None:
        raise T2XError(
            f"{trained.source!r} holds no adapters: it was trained whole (no policy.lora); leave "
            "--adapter out"
        )
    _copy(trained.adapters, out)
    for name in ("tokenizer*", "chat_template.*", "special_tokens_map.json", SETTINGS_FILE):
        for path in Path(trained.source).glob(name):
            shutil.copy2(path, out / path.name)
    config = json.loads((trained.adapters / ADAPTER_FILE).read_text(encoding="utf-8"))
    if trained.base is not None:  # as the user named it, not where it lay on this computer
        config["base_model_name_or_path"] = trained.base
    base = config["base_model_name_or_path"]
    if Path(str(base)).is_dir():
        log.warning(
            "the adapters need the folder %s wherever they are used; whole weights do not", base
        )
    (out / ADAPTER_FILE).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    _write_template(trained, out)


def _copy(folder: Path, out: Path) -> None:
    parts = {path for pattern in (*_PARTS, ADAPTER_FILE) for path in folder.glob(pattern)}
    for path in sorted(parts):
        shutil.copy2(path, out / path.name)


def _write_template(trained: Trained, out: Path) -> None:
    """A trainer's checkpoint lacks the template: it is that of the policy that was trained."""
    if read_template(out) is not None or not trained.config:
        return
    given = trained.config["policy"]
    policy = load_policy(
        PolicyConfig(model=given["model"], template_of=given.get("template_of"), device="cpu")
    )
    settings = json.dumps({"rewriter": asdict(policy.template)}, indent=1)
    (out / SETTINGS_FILE).write_text(settings + "\n", encoding="utf-8")
