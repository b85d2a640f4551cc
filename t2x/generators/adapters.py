"""What is added to one pipeline: LoRAs, each loaded once, with scales that are switched per call;
and textual inversions (``t2x.generators.embeddings``), which stay.

    adapters = Adapters(pipeline, folder="loras", known={"neon": "owner/neon-lora"})
    adapters.find("neon")                      where the name leads, or None; loads nothing
    with adapters.scaled({"neon": 0.8}):       loaded at its first use; acts inside
        pipeline("a cat")
    adapters.fix("turbo.safetensors", 1.0)     from now on in every call
    adapters.record({"neon": 0.8})             names, digests, scales: for a key or a result

Outside of ``scaled`` and without fixed ones the pipeline computes as if nothing had been loaded,
bit for bit. LoRAs that the caller loaded himself stay as they are and act beside these.
"""

from __future__ import annotations

import difflib
import itertools
import logging
import math
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from t2x.errors import MissingDependencyError, T2XError
from t2x.generators.embeddings import Embedding, load_embedding
from t2x.generators.identity import file_digest
from t2x.generators.loading import quiet
from t2x.generators.peft_layers import (
    adapter_layers,
    adapter_scales,
    components_of,
    held_names,
    parameter_counts,
    taken_names,
    tuned_layers,
)
from t2x.plain import plain
from t2x.weight_files import PICKLES, SAFE, find_weights

log = logging.getLogger(__name__)

PREFERRED = ("pytorch_lora_weights.safetensors", "pytorch_lora_weights.bin")  # diffusers' own names
Scale: TypeAlias = "float | Mapping[str, float]"
"""How strongly a LoRA acts, any finite number; or one for each component, as {"unet": 0.8,
"text_encoder": 0.4}, where one that is not named gets 0."""

__all__ = ["Adapters", "Lora", "Scale"]


@dataclass(frozen=True, slots=True)
class Lora:
    """A LoRA that is loaded: the name that it goes by, its file, the digest of its content, the
    name under which peft holds it, and how many of its tensors the pipeline has no layer for.
    """

    name: str
    path: Path
    digest: str
    peft_name: str
    unused: int = 0


class Adapters:
    """LoRAs of a diffusers pipeline.

    Args:
        pipeline: what they act on; None until :meth:`attach` gives it.
        folder: where files lie that are called by name, subfolders included.
        known: further names, with the file, folder, hub id or address on the hub of each.
        fixed: LoRAs that act in every call, by name or source, with their scales.
        embeddings: textual inversions by source, each with a token in place of its own, or None.

    ``embeddings`` are those that are loaded, ``fixed`` the scales of LoRAs that act in every call.
    """

    def __init__(
        self,
        pipeline: Any = None,
        *,
        folder: str | Path | None = None,
        known: Mapping[str, str | Path] | None = None,
        fixed: Mapping[str | Path, Scale] | None = None,
        embeddings: Mapping[str | Path, str | None] | None = None,
    ) -> None:
        for name, given, one in (("loras", fixed, 0.8), ("embeddings", embeddings, None)):
            if not isinstance(given, Mapping | None):
                raise T2XError(f"{name} is {given!r}; give a dict by file, as {{'a.pt': {one}}}")
        if not isinstance(folder, str | Path | None):
            raise T2XError(f"lora_folder is {folder!r}; give a path, as 'loras'")
        if folder is not None and not Path(folder).expanduser().is_dir():
            raise T2XError(f"there is no folder {str(folder)!r}; give one that holds LoRAs")
        self.folder = None if folder is None else Path(folder).expanduser()
        self.known = dict(known or {})
        self._wanted = [(source, _checked(x, source)) for source, x in (fixed or {}).items()]
        self._words = dict(embeddings or {})
        self._pipeline: Any = None
        self._loaded: dict[str, Lora] = {}
        self.fixed: dict[str, Scale] = {}
        self._sources: dict[str, str | Path] = {}  # of those that are fixed, as they were given
        self.embeddings: list[Embedding] = []
        if pipeline is not None:
            self.attach(pipeline)

    @classmethod
    def taken_from(cls, options: dict[str, Any]) -> Adapters:
        """Take what is for them out of options of loading: ``loras`` (``fixed``), ``lora_folder``
        and ``embeddings``."""
        return cls(
            folder=options.pop("lora_folder", None),
            fixed=options.pop("loras", None),
            embeddings=options.pop("embeddings", None),
        )

    def attach(self, pipeline: Any) -> None:
        """Act on ``pipeline`` from now on, in place of another; load fixed LoRAs and textual
        inversions into it.

        The one before gets rid of the LoRAs; None takes no new one. Raises T2XError for one that
        can't be loaded.
        """
        if pipeline is self._pipeline:
            return
        if self._loaded:
            others, gone, self._loaded = self._foreign(), list(self._loaded.values()), {}
            for lora in gone:
                self._delete(lora.peft_name)
            self._activate({}, foreign=others)
        self._pipeline, self._loaded, self.fixed, self.embeddings = pipeline, {}, {}, []
        if pipeline is None:
            return
        for source, token in self._words.items():
            self.embeddings.append(load_embedding(pipeline, source, token))
        for source, scale in self._wanted:
            self._fix(source, scale)

    @property
    def supported(self) -> bool:
        """Whether diffusers can put LoRAs into this pipeline, and peft is there."""
        from importlib.util import find_spec

        return hasattr(self._pipeline, "load_lora_weights") and find_spec("peft") is not None

    @property
    def names(self) -> list[str]:
        """Every name that can be used: loaded, known and in the folder, sorted."""
        return sorted({*self._loaded, *self.known, *(p.stem for p in self._files())})

    def find(self, name: str) -> str | Path | None:
        """Where a name leads: what is loaded under it, a known one, or a file of the folder by its
        path without ending or its stem, in any case; None if nothing has it.

        Nothing is loaded or fetched. Raises T2XError if several files of the folder have the name.
        """
        if name in self._loaded:
            return self._loaded[name].path
        if name in self.known:
            return self.known[name]
        for same in (str, str.casefold):
            files = [path for path in self._files() if same(name) in self._called(path, same)]
            if len(files) > 1:
                shown = ", ".join(str(path) for path in files)
                raise T2XError(f"the LoRA {name!r} may be any of {shown}; give its path within")
            if files:
                return files[0]
        return None

    def _files(self) -> list[Path]:
        if self.folder is None:
            return []
        return sorted(p for p in self.folder.rglob("*") if p.suffix.lower() in (*SAFE, *PICKLES))

    def _called(self, path: Path, same: Any) -> set[str]:
        assert self.folder is not None
        relative = path.relative_to(self.folder)
        return {
            same(relative.as_posix()),
            same(relative.with_suffix("").as_posix()),
            same(path.stem),
        }

    @contextmanager
    def scaled(self, scales: Mapping[str, Scale]) -> Iterator[None]:
        """Let LoRAs act, by name, inside; beside the fixed ones, whose scale a name here replaces.

        Those that are not there yet are loaded. Raises T2XError for a name that nothing has, a
        scale that is no finite number, and a LoRA that does not fit the pipeline.
        """
        inside = self._inside(scales)
        if not inside:
            yield
            return
        try:
            self._activate({**self.fixed, **inside})
            yield
        finally:
            self._activate(self.fixed)

    def _inside(self, scales: Mapping[str, Scale]) -> dict[str, Scale]:
        checked = {name: _checked(scale, name) for name, scale in scales.items()}
        inside = {self._ready(name).name: scale for name, scale in checked.items()}
        if len(inside) < len(checked):
            raise T2XError(f"of the LoRAs {', '.join(checked)} two are the same file; name it once")
        return inside

    def fix(self, source: str | Path, scale: Scale = 1.0) -> str:
        """Load a LoRA that acts in every call from now on; give the name that it goes by.

        ``source``: a known name, a file, a folder that holds one, a hub id, or OWNER/MODEL/FILE.
        """
        checked = _checked(scale, source)
        name = self._fix(source, checked)
        self._wanted.append((source, checked))
        return name

    def _fix(self, source: str | Path, scale: Scale) -> str:
        named = not Path(source).is_file() and self.find(str(source)) is not None
        lora = self._ready(str(source)) if named else self._load(source)
        if lora.name in self.fixed:
            raise T2XError(f"the LoRA {str(source)!r} is given twice; give it one scale")
        self.fixed[lora.name], self._sources[lora.name] = scale, source
        self._activate(self.fixed)
        return lora.name

    def unload(self, name: str) -> None:
        """Take a loaded LoRA out of the pipeline and give its memory back."""
        if name not in self._loaded:
            raise T2XError(f"no LoRA {name!r} is loaded; loaded are: {', '.join(self._loaded)}")
        lora = self._loaded.pop(name)
        if self.fixed.pop(name, None) is not None:
            self._wanted = [(s, x) for s, x in self._wanted if s != self._sources[name]]
        self._delete(lora.peft_name)
        self._activate(self.fixed)

    def record(self, scales: Mapping[str, Scale] | None = None) -> list[dict[str, Any]]:
        """What acts in a call under ``scaled(scales)``, as JSON values sorted by name: name, digest
        of the file, scale. LoRAs that the caller loaded himself are among them, with a digest of
        their tensors and of the scale in each layer.
        """
        acting = {**self.fixed, **self._inside(scales or {})}
        own = [
            {"name": name, "digest": self._loaded[name].digest, "scale": plain(scale, exact=True)}
            for name, scale in acting.items()
        ]
        mine = {lora.peft_name for lora in self._loaded.values()}
        others = adapter_scales(self._pipeline, without=mine)
        return sorted([*own, *others], key=lambda entry: str(entry["name"]))

    def fingerprint(self) -> dict[str, Any]:
        """What every call has of them, as JSON values: ``adapters`` and ``embeddings``, each
        missing where there are none."""
        words = [{"token": word.token, "digest": word.digest} for word in self.embeddings]
        found = {"adapters": self.record(), "embeddings": words}
        return {key: value for key, value in found.items() if value}

    def _ready(self, name: str) -> Lora:
        """The LoRA of a name, loaded if it isn't yet."""
        if name in self._loaded:
            return self._loaded[name]
        found = self.find(name)
        if found is None:
            close = difflib.get_close_matches(name, self.names, n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            known = ", ".join(self.names[:20]) or "none"
            raise T2XError(f"there is no LoRA {name!r}: {hint}known are: {known}")
        return self._load(found, name=name)

    def _load(self, source: str | Path, *, name: str | None = None) -> Lora:
        """Put a LoRA into the pipeline, where it does not act yet; one that is there stays."""
        self._check_support()
        path = find_weights(source, what="LoRA", preferred=PREFERRED).absolute()
        for held in self._loaded.values():
            if held.path.samefile(path):
                return held
        name = name or _name_of(source, path)
        if name in self._loaded:
            raise T2XError(
                f"{path} and {self._loaded[name].path} are both called {name!r}; rename one, or "
                "name it in known="
            )
        taken = taken_names(self._pipeline)  # by other generators around this pipeline, too
        peft_name = next(n for n in (f"t2x_{i}" for i in itertools.count()) if n not in taken)
        before = self._foreign()
        try:
            unused = self._inject(path, peft_name)
        except BaseException:
            self._delete(peft_name)
            raise
        finally:
            self._activate(self.fixed, foreign=before)
        lora = self._loaded[name] = Lora(name, path, file_digest(path), peft_name, unused)
        return lora

    def _check_support(self) -> None:
        kind = type(self._pipeline).__name__
        if not hasattr(self._pipeline, "load_lora_weights"):
            raise T2XError(f"diffusers puts no LoRA into a {kind}; leave it out")
        try:
            import peft  # noqa: F401
        except ModuleNotFoundError as error:
            raise MissingDependencyError(
                "LoRAs need the module 'peft', which is not installed; install the extra: pip "
                "install 't2x[lora]'"
            ) from error
        if any(layer.merged for _, layer in adapter_layers(self._pipeline)):
            raise T2XError(
                "a LoRA is fused into this pipeline, beside which no other acts; call its "
                "unfuse_lora(), or unload_lora_weights() to keep what is fused, and load again"
            )

    def _inject(self, path: Path, peft_name: str) -> int:
        """Let diffusers convert and load a file; give how many tensors found no layer."""
        pipeline, given = self._pipeline, _readable(path)
        misfit = f"the LoRA {str(path)!r} does not fit {type(pipeline).__name__}"
        try:
            with _silent():
                names = _tensor_names(pipeline, given)
                pipeline.load_lora_weights(given, adapter_name=peft_name)
        except Exception as error:
            raise T2XError(f"{misfit}: {_reason(error)}; {_ADVICE}") from error
        found = parameter_counts(pipeline, peft_name)
        of_text = [name for name in names if name.startswith("text_encoder")]
        of_text_found = sum(n for part, n in found.items() if part.startswith("text_encoder"))
        total = sum(found.values())
        if not total or (total == of_text_found and len(of_text) < len(names)):
            other = next((name for name in names if name not in of_text or not total), None)
            why = f"it has no layer for {other!r}" if other else "it holds no tensors"
            raise T2XError(f"{misfit}: {why}; {_ADVICE}")
        if unused := max(0, len(names) - total):
            log.warning(
                "the LoRA %s: %d of its %d tensors fit no layer of %s and do nothing",
                path.name,
                unused,
                len(names),
                type(pipeline).__name__,
            )
        return unused

    def _delete(self, peft_name: str) -> None:
        for component in components_of(self._pipeline).values():
            configs = getattr(component, "peft_config", {})
            layers = [layer for layer in tuned_layers(component) if peft_name in held_names(layer)]
            if peft_name not in configs and not layers:
                continue
            for layer in layers:
                layer.set_adapter([n for n in layer.active_adapters if n != peft_name])
                layer.delete_adapter(peft_name)
            configs.pop(peft_name, None)

    def _activate(
        self, scales: Mapping[str, Scale], *, foreign: Mapping[int, list[str]] | None = None
    ) -> None:
        """Let these LoRAs act, and beside them those of the caller."""
        if not self._loaded and foreign is None:
            return
        others = self._foreign() if foreign is None else foreign
        every = sorted({name for names in others.values() for name in names})
        for component, layer in adapter_layers(self._pipeline):
            # A layer that is new has no others of its own, but may be one of them in later loads.
            kept = others.get(id(layer), every)
            active = [*kept, *(self._loaded[name].peft_name for name in scales)]
            layer.enable_adapters(bool(active))
            layer.set_adapter(active, inference_mode=True)
            for name, scale in scales.items():
                factor = scale.get(component, 0.0) if isinstance(scale, Mapping) else scale
                layer.set_scale(self._loaded[name].peft_name, factor)

    def _foreign(self) -> dict[int, list[str]]:
        """LoRAs of the caller that act, by the identity of each layer."""
        own = {lora.peft_name for lora in self._loaded.values()}
        return {
            id(layer): []
            if layer.disable_adapters
            else [n for n in layer.active_adapters if n not in own]
            for _, layer in adapter_layers(self._pipeline)
        }


_ADVICE = "take a LoRA that was made for this model"
_MISMATCH = re.compile(
    r"size mismatch for (\S+?)(?:\.t2x_\d+)?(?:\.weight)?: "
    r".*?Size\(\[(.*?)\]\) .*?Size\(\[(.*?)\]\)"
)


def _readable(path: Path) -> Any:
    """What diffusers takes: the path of a safetensors file, whose header may hold more than its
    tensors, or the state dict of another."""
    from t2x.scoring.state_files import read_file, read_state

    if path.suffix.lower() in SAFE:
        read_file(path, device="meta")  # so that a damaged one is told
        return str(path)
    return read_state(path)


def _tensor_names(pipeline: Any, given: Any) -> list[str]:
    """Names of a file's tensors, as diffusers writes them."""
    config = {"unet_config": pipeline.unet.config} if hasattr(pipeline, "unet") else {}
    found = pipeline.lora_state_dict(given if isinstance(given, str) else dict(given), **config)
    state = found[0] if isinstance(found, tuple) else found
    return [name for name in state if "alpha" not in name]


@contextmanager
def _silent() -> Iterator[None]:
    """Keep what diffusers, peft and transformers say of a LoRA that doesn't fit to ourselves."""
    from diffusers.utils import logging as diffusers_logging

    with quiet(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        diffusers_logging.set_verbosity(logging.CRITICAL)
        yield


def _reason(error: Exception, limit: int = 200) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    if found := _MISMATCH.search(text):
        return f"its {found[1]} is ({found[2]}), the model's would be ({found[3]})"
    return text if len(text) <= limit else f"{text[:limit]} ..."


def _name_of(source: str | Path, path: Path) -> str:
    """The stem of the file; of one with diffusers' own name that of its folder or repository."""
    if path.name not in PREFERRED:
        return path.stem
    given = Path(source)
    return given.parent.name if given.name in PREFERRED else given.name


def _checked(scale: Any, name: object) -> Scale:
    values = list(scale.values()) if isinstance(scale, Mapping) else [scale]
    for value in values:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not math.isfinite(value):
            raise T2XError(f"the scale of the LoRA {str(name)!r} must be a number, got {value!r}")
    return dict(scale) if isinstance(scale, Mapping) else float(scale)
