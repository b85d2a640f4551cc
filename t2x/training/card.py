"""The card of an exported model: what it is, how it is loaded, what it was trained on and by which
settings, what was measured, and whose licence holds.
"""

from __future__ import annotations

import json
import logging
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from t2x import __version__
from t2x.settings import SETTINGS_FILE

if TYPE_CHECKING:
    from t2x.training.export import Trained

# Of bases that have a name here and no card of their own.
LICENCES = {"smollm2": "apache-2.0"}

__all__ = ["base_licence", "code_version", "model_card", "root_base"]

log = logging.getLogger(__name__)


def model_card(trained: Trained, *, adapter: bool = False, licence: str | None = None) -> str:
    """Write the card, Markdown with what the hub reads in front of it."""
    from huggingface_hub import ModelCardData

    base = root_base(trained.base or trained.source)
    licence = licence or base_licence(base)
    data = ModelCardData(
        license=_hub_licence(licence),
        base_model=base if "/" in base and not Path(base).exists() else None,
        library_name="peft" if adapter else "transformers",
        pipeline_tag="text-generation",
        tags=["t2x", "prompt-rewriting", "text-to-image"],
    )
    parts = [
        f"---\n{data.to_yaml()}\n---",
        f"# Rewriter from {base}",
        _use(adapter, base),
        f"**Licence**: {licence}, of {base}."
        if licence
        else f"**Licence**: not found; the one of {base} holds.",
        f"**Made by**: {code_version()}.",
        _metrics(trained.metrics),
        _data(trained.config),
        _settings(trained.config),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def root_base(name: str) -> str:
    """Follow runs that started from the model of another run to what they all came from."""
    seen: set[str] = set()
    while name not in seen and (path := Path(name)).is_dir():
        seen.add(name)
        config = next(
            (p / "config.yaml" for p in (path, path.parent) if (p / "config.yaml").is_file()), None
        )
        given = yaml.safe_load(config.read_text("utf-8")) if config else None
        before = given.get("policy", {}).get("model") if isinstance(given, dict) else None
        if not isinstance(before, str):
            break
        name = before
    return name


def base_licence(base: str) -> str | None:
    """Give the licence that a base states: one with a name here, a folder with a card, or a card
    on the hub; None where there is none or it can't be reached."""
    from t2x.rewriters.presets import PRESETS
    from t2x.world.weights import EMBEDDED, model_dir

    if base in LICENCES:
        return LICENCES[base]
    if base in PRESETS:
        return PRESETS[base].licence
    folder = model_dir(base) if base in EMBEDDED else Path(base)
    try:
        from huggingface_hub import ModelCard

        card = folder / "README.md"
        if not card.is_file() and folder.is_dir():
            return None
        found = ModelCard.load(card if card.is_file() else base).data.license
    except Exception as error:  # no card, no such repository, no network, broken YAML, ...
        log.info("the licence of %s is unknown: %s", base, error)
        return None
    return found if isinstance(found, str) else None


def code_version() -> str:
    """Give the version of t2x, with the commit where it runs from a checkout."""
    root = Path(__file__).resolve().parents[2]
    command = ["git", "-C", str(root), "rev-parse", "--short=12", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return f"t2x {__version__}"
    own = (root / ".git").exists() and done.returncode == 0
    return f"t2x {__version__}" + (f", commit {done.stdout.strip()}" if own else "")


def _hub_licence(licence: str | None) -> str | None:
    """An identifier of the hub, or "other" for a licence in words."""
    if licence is None:
        return None
    return licence.lower() if " " not in licence else "other"


def _use(adapter: bool, base: str) -> str:
    kind = f"Adapters (LoRA) of `{base}`." if adapter else "Whole weights."
    return f"""{kind} Turns a user's words into a prompt that a text-to-image model understands.
`{SETTINGS_FILE}` holds the words around the prompt and the sampling settings.

```python
import t2x

rewriter = t2x.load_rewriter("THIS FOLDER")
print(rewriter.rewrite(["two cats to the left of a dog"])[0][0].text)
```"""


def _metrics(metrics: Mapping[str, Any]) -> str:
    rows = [(k, v) for k, v in metrics.items() if isinstance(v, (int, float, str))]
    if not rows:
        return ""
    shown = ((k, f"{v:.6g}" if isinstance(v, float) else v) for k, v in rows)
    lines = ["| metric | value |", "|---|---|", *(f"| {k} | {v} |" for k, v in shown)]
    return "## Metrics\n\nAs the run measured them at its end.\n\n" + "\n".join(lines)


def _data(config: Mapping[str, Any]) -> str:
    """The sources of the rows, with the cards that lie beside data files."""
    section = config.get("data")
    if not isinstance(section, dict):
        return ""
    parts = ["## Data"]
    for name in ("train", "validation"):
        source = section.get(name)
        if not source:
            continue
        parts.append(f"{name}: `{source}`")
        card = Path(str(source)).with_suffix(".json")
        if card.is_file() and card != Path(str(source)):
            text = json.dumps(json.loads(card.read_text("utf-8")), indent=1, ensure_ascii=False)
            parts.append(f"```json\n{text}\n```")
    return "\n\n".join(parts)


def _settings(config: Mapping[str, Any]) -> str:
    if not config:
        return ""
    text = yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True)
    return f"## Settings\n\n```yaml\n{text}```"
