"""Published generators by name: what their authors sample with, and what to know before a download.

``presets.yaml`` holds the facts and where each was read; ``load_generator("z-image-turbo")`` and
``load_generator("Tongyi-MAI/Z-Image-Turbo")`` both use them, as does a folder or a loaded pipeline
that says it came from there. None has been run on its real weights here.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import yaml

from t2x.config import build_config
from t2x.errors import T2XError, UnknownNameError
from t2x.settings import INDEX_FILE, read_object

NOT_RUN = "not run on real weights"
_CACHED = re.compile(r"models--(?P<owner>[^/\\]+?)--(?P<name>[^/\\]+)")  # the hub's own cache
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

__all__ = ["NOT_RUN", "ModelPreset", "Task", "preset_for", "preset_named", "presets", "whence"]

Task = Literal["t2i", "i2i", "edit", "t2v", "i2v"]
"""Text to image, image to image, editing by an instruction, text to video, image to video."""


@dataclass(frozen=True)
class ModelPreset:
    """One published generator.

    Args:
        name: what it is called here.
        hub: repositories for which the facts hold; the first is the one that the name loads.
        pipelines: class of diffusers for each task.
        sampling: arguments of the pipeline's call.
        scheduler: class of diffusers that its authors sample with.
        dtype: number format of the weights on an accelerator.
        tokens: limit of each tokenizer, by the name of the component, special tokens included.
        sizes: (height, width) in pixels that it was made for, the native one first.
        divisible: what height and width must be divisible by.
        licence: of the weights; None if it could not be read.
        gated: whether the hub asks for an accepted licence first; None if that could not be read.
        memory: what is known about it, in words.
        guidance: modes of ``t2x.guidance.recipe.MODES`` that make sense; none where its class of
            pipelines can't be guided.
        read_from: where the facts were read.
        base: repository of the whole pipeline where ``hub`` holds only a denoiser.
        denoiser_file: that denoiser, a file of ``hub[0]``.
        few_step: distilled to a few steps; it is spoilt by many steps or classifier-free guidance.
        only_at_steps: names in ``sampling`` that hold for this number of steps and no other.
        negative: negative prompt that stands in where none is given, "" for none.
        scheduler_changes: what its configuration must be, over the repository's own.
        variant: of the files of ``hub[0]``.
        parts_dtype: number format of components that differ from ``dtype``.
        target: kind of text it reads, a name of ``t2x.rewriters.targets.TARGETS``; None for an
            instruction that edits.
        frames, fps: native number of frames, and of frames a second, of a video.
        frame_step: a video has a multiple of it and one frame more.
        download_bytes: what the name makes diffusers download, rounded where ``read_from`` says so;
            None if it could not be read.
        notes: what else a user should know.
        run_on_real_weights: whether anybody did, here.
    """

    name: str
    hub: tuple[str, ...]
    pipelines: dict[Task, str]
    sampling: dict[str, Any]
    scheduler: str
    dtype: str
    tokens: dict[str, int]
    sizes: tuple[tuple[int, int], ...]
    divisible: int
    licence: str | None
    gated: bool | None
    memory: str
    guidance: tuple[str, ...]
    read_from: tuple[str, ...]
    base: str = ""
    denoiser_file: str = ""
    few_step: bool = False
    only_at_steps: tuple[str, ...] = ()
    negative: str = ""
    scheduler_changes: dict[str, Any] = field(default_factory=dict)
    variant: str | None = None
    parts_dtype: dict[str, str] = field(default_factory=dict)
    target: str | None = None
    frames: int | None = None
    frame_step: int | None = None
    fps: int | None = None
    download_bytes: int | None = None
    notes: str = ""
    run_on_real_weights: bool = False

    @property
    def pipeline_source(self) -> str:
        """Repository that holds the whole pipeline: tokenizers, configurations, weights."""
        return self.base or self.hub[0]

    @property
    def access(self) -> str:
        """Licence and gate in a few words."""
        gate = {True: "gated", False: "not gated", None: "gate unknown"}[self.gated]
        return f"{self.licence or 'licence unknown'}, {gate}"

    @property
    def size(self) -> str:
        """Size of the download in words, "unknown" if it could not be read."""
        known = self.download_bytes
        return "unknown" if known is None else f"{known / 1e9:.1f} GB"

    @property
    def download(self) -> str:
        """What loading it by name downloads, in words."""
        size = "size unknown" if self.download_bytes is None else self.size
        parts = f"{self.denoiser_file} and {self.base}" if self.base else ""
        source = f"{self.hub[0]} ({parts})" if parts else self.hub[0]
        return f"{source}: {size}; {self.access}; {NOT_RUN}"

    def guidance_hint(self, mode: str) -> str:
        """Say in a line why ``mode`` of guidance is not for this model; "" if it is."""
        if mode in self.guidance or mode.rpartition("+")[2] in self.guidance:
            return ""
        if not self.guidance:
            return f"{self.name}: no mode of guidance acts on its class of pipelines"
        why = "x0_hat jumps between its few steps" if self.few_step else "it was made for others"
        known = " or ".join(self.guidance)
        return f"{self.name}: guidance in mode {mode} may do little, since {why}; try {known}"

    def sampling_for(
        self, arguments: Mapping[str, Any], given: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Give the settings for a call that takes ``arguments``, beside those that are ``given``.

        A setting that holds for the preset's number of steps alone becomes None with another one.
        """
        own = {key: value for key, value in self.sampling.items() if key in arguments}
        steps = given.get("num_inference_steps", self.sampling.get("num_inference_steps"))
        if steps != self.sampling.get("num_inference_steps"):
            own.update({key: None for key in self.only_at_steps if key in own})
        return own


@cache
def presets() -> Mapping[str, ModelPreset]:
    """Give all presets by name."""
    text = files(__package__).joinpath("presets.yaml").read_text("utf-8")
    entries = yaml.load(text, Loader=_LOADER)  # a safe one
    found = {name: build_config(ModelPreset, {"name": name, **e}) for name, e in entries.items()}
    return MappingProxyType(found)


def preset_named(name: str) -> ModelPreset:
    """Give a preset by its name; UnknownNameError lists the names."""
    known = presets()
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise UnknownNameError(
            f"unknown preset {name[:80]!r}: {hint}known are: {', '.join(known)}, or 'none'"
        )
    return known[name]


def preset_for(source: Any) -> ModelPreset | None:
    """Give the preset of a name, a hub id, a local folder or a loaded pipeline; None if it has
    none.

    A folder and a pipeline are known by the repository that they say they were made from: a preset
    holds for them only if the class of the pipeline is one of its own.
    """
    if isinstance(source, (str, Path)):
        text = str(source)
        if text in presets():
            return presets()[text]
        index = Path(text) / INDEX_FILE
        try:
            if not index.is_file():
                return None if Path(text).is_dir() else _of_repository(text)
            stored = read_object(index)
        except (OSError, T2XError):  # a name longer than any path, a file that is no JSON
            return None
        names = (str(stored.get("_name_or_path") or ""), str(Path(text).resolve()))
        return _recorded(names, str(stored.get("_class_name")))
    config: Any = getattr(source, "config", None)
    name = str(getattr(config, "_name_or_path", None) or "")
    origin = _origin(name) if Path(name).is_dir() else ""
    return _recorded((name, origin), type(source).__name__)


def whence(name: str) -> str:
    """Give the hub id ``owner/model`` that a folder of the hub's cache is of, else ``name``."""
    found = _CACHED.search(name)
    return f"{found['owner']}/{found['name']}" if found else name


def _origin(folder: str) -> str:
    """What the ``model_index.json`` of a folder says it was made from."""
    try:
        return str(read_object(Path(folder) / INDEX_FILE).get("_name_or_path") or "")
    except T2XError:
        return ""


def _recorded(names: tuple[str, ...], kind: str) -> ModelPreset | None:
    """The preset of one of the names, which are repositories or folders of the same name."""
    for name in filter(None, names):
        last = re.split(r"[/\\]", name.rstrip("/\\"))[-1].lower()
        same = [p for p in presets().values() if any(last == _last(hub) for hub in p.hub)]
        for preset in (_of_repository(whence(name)), *same):
            if preset is not None and kind in preset.pipelines.values():
                return preset
    return None


def _last(repository: str) -> str:
    return repository.rpartition("/")[2].lower()


def _of_repository(name: str) -> ModelPreset | None:
    return _by_repository().get(name.lower())


@cache
def _by_repository() -> Mapping[str, ModelPreset]:
    return {repository.lower(): p for p in presets().values() for repository in p.hub}
