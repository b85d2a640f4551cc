"""Token limits of what will draw, from its tokenizers alone: no weights are loaded."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2x.errors import T2XError
from t2x.generators.defaults import stored_sampling
from t2x.generators.folders import base_of
from t2x.generators.single_file import config_source
from t2x.prompts.budget import TokenBudget, token_limits
from t2x.settings import INDEX_FILE, read_object
from t2x.weight_files import names_file

if TYPE_CHECKING:
    from t2x.types import Generator

log = logging.getLogger(__name__)

# Of a repository on the hub: tokenizers, and what tells of guidance (t2x.generators.negatives).
NEEDED = (INDEX_FILE, "tokenizer*/*", "unet/config.json", "transformer/config.json")

__all__ = ["stored_class", "token_budget"]


def token_budget(generator: str | Path | Generator) -> TokenBudget | None:
    """Give the token limits of what will draw, by name, folder, hub id or loaded.

    Of a hub id only the tokenizers are downloaded. None, with a line in the log that says why,
    where the limits can't be found out: a plug-in's generator that is not loaded or has no
    pipeline, a pipeline without tokenizers, a hub that does not answer. Raises UnknownNameError for
    a name that is nothing, T2XError for an embedded model without weights.
    """
    if not isinstance(generator, (str, Path)):
        pipeline = getattr(generator, "pipeline", None)
        sampling = getattr(generator, "sampling", None)
        budget = None if pipeline is None else TokenBudget.from_pipeline(pipeline, sampling)
        if budget is None:
            _warn(generator.model_id, "it has no tokenizer that could be asked")
        return budget
    from t2x.registry import generator_source

    source = generator_source(generator)
    if source is None:
        _warn(str(generator), "a plug-in tells them only once it is loaded")
        return None
    try:
        return _stored_budget(source, stored_sampling(generator, source))
    except T2XError as error:
        _warn(str(generator), str(error))
    except Exception as error:  # no such repository, gated, offline, a tokenizer that needs more
        _warn(str(generator), " ".join(f"{type(error).__name__}: {error}".split())[:200])
    return None


def _warn(name: str, reason: str) -> None:
    message = "token limits of %s are unknown, so that it may cut a prompt unseen: %s"
    log.warning(message, name, reason)


def _stored_budget(source: str, sampling: Mapping[str, Any]) -> TokenBudget:
    """Read tokenizers and class of a folder or hub id, which has these settings."""
    folder, kind = stored_class(source)
    tokenizers = _tokenizers(folder, read_object(folder / INDEX_FILE))
    if not tokenizers:
        raise T2XError("it has no tokenizer that could be asked")
    return TokenBudget(token_limits(tokenizers, pipeline=kind, sampling=sampling))


def stored_class(source: str) -> tuple[Path, type]:
    """Give the folder that holds the whole pipeline of a folder or hub id, and its class; of one
    file those of the pipeline that it belongs to.

    Raises T2XError if that is no class of diffusers.
    """
    import diffusers

    if names_file(source):
        source = config_source(source)
    whole = (base_of(source) if Path(source).is_dir() else None) or source
    folder = Path(whole) if Path(whole).is_dir() else _snapshot(whole)
    name = str(read_object(folder / INDEX_FILE).get("_class_name"))
    kind = getattr(diffusers, name, None)
    if not isinstance(kind, type):
        raise T2XError(f"{name!r} is no pipeline of diffusers")
    return folder, kind


def _snapshot(repository: str) -> Path:
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(repository, allow_patterns=list(NEEDED)))


def _tokenizers(folder: Path, index: Mapping[str, Any]) -> dict[str, Any]:
    """Load the tokenizers that an index names, each by its class; an entry of null is none."""
    import transformers

    entries = {name: entry for name, entry in index.items() if name.startswith("tokenizer")}
    kinds = {name: entry[-1] for name, entry in entries.items() if isinstance(entry, list)}
    loaded = {
        name: getattr(transformers, kind, transformers.AutoTokenizer).from_pretrained(folder / name)
        for name, kind in sorted(kinds.items())
        if isinstance(kind, str)
    }
    held = transformers.ProcessorMixin  # FLUX.2's, which reads pictures, too
    return {n: item.tokenizer if isinstance(item, held) else item for n, item in loaded.items()}
