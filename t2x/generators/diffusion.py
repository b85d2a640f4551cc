"""Any stock diffusers pipeline as a generator with one seed per picture.

``generate`` gives every sample its own noise, drawn on the CPU from its own seed, so that a picture
depends neither on the device's random stream nor on its neighbours in the batch: in float32 to one
grey level in 0.1 % of the pixels, while in bfloat16 rounding shows (a few levels in a seventh of
them). The same batch gives the same bytes. A batch that does not fit into memory is halved.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2x.devices import resolve_device
from t2x.errors import T2XError
from t2x.generators.calls import (
    SHOWN_DEFAULTS,
    call_arguments,
    check_prompts,
    checked_sampling,
    negative_matters,
    with_size,
)
from t2x.generators.folders import base_of, folder_settings
from t2x.generators.identity import (
    folder_digest,
    hub_commit,
    parameter_digest,
    versions,
)
from t2x.generators.loading import (
    Offload,
    device_of,
    holds_modules,
    load_pipeline,
    place,
    place_loaded,
    quiet,
    resolve_dtype,
)
from t2x.generators.memory import is_out_of_memory, release_memory
from t2x.generators.outputs import censored, pixels
from t2x.plain import plain
from t2x.prompts.budget import TokenBudget

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from t2x.types import Media, Modality

log = logging.getLogger(__name__)

SMALL_MODEL = 100_000_000  # parameters; below it a batch of 32 is cheap on any machine
__all__ = ["DiffusionGenerator"]


class DiffusionGenerator:
    """Frozen text-to-image or text-to-video model around one diffusers pipeline, used unmodified.

    ``model_id`` names it, ``modality`` is "image" or "video", ``pipeline`` is the diffusers object
    itself (its scheduler may be wrapped by guidance), ``sampling`` are the arguments of every call,
    ``batch_size`` the most samples in one.
    """

    model_id: str
    modality: Modality

    def __init__(
        self,
        pipeline: Any,
        *,
        model_id: str | None = None,
        revision: str | None = None,
        batch_size: int | None = None,
        sampling: Mapping[str, Any] | None = None,
    ) -> None:
        """Wrap a pipeline that is loaded and placed; its own progress bar is switched off."""
        if batch_size is not None and batch_size < 1:
            raise T2XError(f"batch_size must be at least 1, got {batch_size}")
        self.model_id = model_id or _name(pipeline)
        self._class = type(pipeline)
        self._arguments = call_arguments(pipeline)
        self.modality = "video" if "num_frames" in self._arguments else "image"
        self.sampling = checked_sampling(
            sampling or {}, self._arguments, pipeline=self._class.__name__
        )
        self.batch_size = batch_size or _default_batch_size(pipeline)
        self._find_revision: Callable[[], str] = lambda: parameter_digest(self.pipeline)
        self._revision: str | None = revision
        self._reload: Callable[[], Any] | None = None
        self._pipeline = _silenced(pipeline)

    @classmethod
    def from_pretrained(
        cls,
        source: Any,
        *,
        dtype: str | torch.dtype | None = None,
        device: str | torch.device | None = None,
        offload: Offload | None = None,
        batch_size: int | None = None,
        num_inference_steps: int | None = None,
        guidance_scale: float | None = None,
        revision: str | None = None,
        sampling: Mapping[str, Any] | None = None,
        **pipeline_kwargs: Any,
    ) -> DiffusionGenerator:
        """Make a generator from a hub id, a folder in diffusers' format, or a loaded pipeline.

        A folder may hold only the parts that differ from a base (``t2x.generators.folders``).
        ``sampling`` holds further arguments of the pipeline's call (true_cfg_scale,
        max_sequence_length, height, ...). What the caller gives overrides a local folder's
        ``t2x.json``, which overrides the pipeline's own defaults. ``pipeline_kwargs`` go to
        ``DiffusionPipeline.from_pretrained``. Number format: float32 on a CPU, bfloat16 or float16
        elsewhere; a loaded pipeline stays as and where it is unless ``dtype`` or ``device`` says
        otherwise, and takes no ``pipeline_kwargs``. Raises T2XError for a source that cannot be
        loaded.
        """
        named = {"num_inference_steps": num_inference_steps, "guidance_scale": guidance_scale}
        given = {**(sampling or {}), **{k: v for k, v in named.items() if v is not None}}
        if not isinstance(source, (str, Path)):
            if pipeline_kwargs:
                raise T2XError(
                    f"a loaded pipeline takes no {', '.join(sorted(pipeline_kwargs))}: that is for "
                    "loading; leave it out, or give a hub id or folder"
                )
            place_loaded(source, dtype=dtype, device=device, offload=offload)
            return cls(source, revision=revision, batch_size=batch_size, sampling=given)

        def load() -> Any:
            target = resolve_device(device)
            number = resolve_dtype(dtype, target)
            pipeline = load_pipeline(
                source, dtype=number, revision=revision, options=pipeline_kwargs
            )
            if "device_map" not in pipeline_kwargs:
                place(pipeline, target, offload=offload)
            return pipeline

        local = Path(source).is_dir()
        given = {**(folder_settings(source) if local else {}), **given}
        model_id = Path(source).resolve().name if local else str(source)
        generator = cls(load(), model_id=model_id, batch_size=batch_size, sampling=given)
        generator._reload = load
        if not holds_modules(pipeline_kwargs):
            generator._find_revision = lambda: _revision(source, revision, generator)
        return generator

    @property
    def pipeline(self) -> Any:
        """The diffusers pipeline; loaded again if ``free`` dropped it."""
        if self._pipeline is None:
            if self._reload is None:
                raise T2XError(
                    f"{self.model_id} was freed and came from a loaded object; make a new generator"
                )
            self._pipeline = _silenced(self._reload())
        return self._pipeline

    def free(self) -> None:
        """Drop the pipeline and give its memory back; the next use loads it again.

        A pipeline that the caller passed in as an object is only forgotten: it lives as long as the
        caller keeps it.
        """
        pipeline, self._pipeline = self._pipeline, None
        if pipeline is not None and self._reload is not None:
            pipeline.remove_all_hooks()
        del pipeline
        release_memory()

    @property
    def supports_negative(self) -> bool:
        """Whether a negative prompt has any effect: the call takes one and guidance is on."""
        return negative_matters(self._class, self._arguments, self.sampling, self.pipeline)

    def settings(
        self, *, size: tuple[int, int] | None = None, num_frames: int | None = None
    ) -> dict[str, Any]:
        """Give the arguments of a call of this size and length, the pipeline's defaults included.

        ``size`` is (height, width) in pixels; None leaves it to the pipeline.
        """
        shown = {k: self._arguments[k] for k in SHOWN_DEFAULTS if k in self._arguments}
        return {**shown, **self._call(size, num_frames)}

    def _call(self, size: tuple[int, int] | None, num_frames: int | None) -> dict[str, Any]:
        return with_size(self.sampling, self._arguments, size=size, num_frames=num_frames)

    def fingerprint(
        self, *, size: tuple[int, int] | None = None, num_frames: int | None = None
    ) -> dict[str, Any]:
        """Give all that decides a picture but its prompts and seed, as JSON values, for a key.

        Weights that change after the first call don't show, nor do hooks and guidance.
        """
        scheduler = getattr(self.pipeline, "scheduler", None)
        if self._revision is None:
            self._revision = self._find_revision()
        config = {k: v for k, v in getattr(scheduler, "config", {}).items() if k[0] != "_"}
        result: dict[str, Any] = plain(
            {
                "model_id": self.model_id,
                "revision": self._revision,
                "pipeline": self._class.__name__,
                "scheduler": type(scheduler).__name__,
                "scheduler_config": config,
                "settings": self.settings(size=size, num_frames=num_frames),
                "dtype": str(getattr(self.pipeline, "dtype", "unknown")),
                "device": device_of(self.pipeline).type,
                "versions": versions(),
            },
            exact=True,
        )
        return result

    def generate(
        self,
        prompts: Sequence[str],
        *,
        negative: Sequence[str] | None = None,
        seeds: Sequence[int],
        size: tuple[int, int] | None = None,
        num_frames: int | None = None,
        callback: Callable[[int, int], None] | None = None,
    ) -> Media:
        """Draw one picture (N, 3, H, W) or video (N, F, 3, H, W) per prompt.

        Media are float32 in [0, 1], in steps of 1/255, on the CPU. ``size`` is (height, width) in
        pixels; ``callback`` hears (done, total) after each batch. Batches are cut by input index,
        samples with and without a negative prompt apart. Raises T2XError for input that the model
        cannot take, for memory that one sample alone exceeds, and for pixels that are no numbers.
        """
        from t2x.media import quantize

        self._check_input(prompts, negative, seeds)
        call = self._call(size, num_frames)
        negatives = list(negative) if negative is not None else [""] * len(prompts)
        numbers = [int(seed) for seed in seeds]  # torch seeds with nothing that only acts like one
        self._warn_of_truncation(prompts)
        drawn: dict[int, Tensor] = {}
        for with_negative in (False, True):
            group = [i for i, text in enumerate(negatives) if bool(text) == with_negative]
            for rows, media in self._batches(group, list(prompts), negatives, numbers, call):
                drawn.update(zip(rows, media, strict=True))
                if callback is not None:
                    callback(len(drawn), len(prompts))
        import torch

        return quantize(torch.stack([drawn[i] for i in range(len(prompts))]))

    def _batches(
        self,
        group: list[int],
        prompts: list[str],
        negatives: list[str],
        seeds: list[int],
        call: dict[str, Any],
    ) -> Iterator[tuple[list[int], Tensor]]:
        """Draw the samples of ``group`` in order; lack of memory halves ``batch_size`` for good."""
        start = 0
        while start < len(group):
            rows = group[start : start + self.batch_size]
            arguments = {**call, "prompt": [prompts[i] for i in rows]}
            if negatives[rows[0]]:
                arguments["negative_prompt"] = [negatives[i] for i in rows]
            media = self._attempt(arguments, [seeds[i] for i in rows])
            if media is None:
                self._halve(len(rows))
                continue
            yield rows, media
            start += len(rows)

    def _attempt(self, arguments: dict[str, Any], seeds: list[int]) -> Tensor | None:
        """Run the pipeline once: pixels (n, ..., 3, H, W), or None when memory ran out."""
        import torch

        noise = [torch.Generator("cpu").manual_seed(seed) for seed in seeds]
        if "output_type" in self._arguments:
            arguments = {**arguments, "output_type": "pt"}
        try:
            with quiet():
                output = self.pipeline(**arguments, generator=noise)
        except ValueError as error:
            if "divisible" in str(error):
                raise T2XError(f"{self.model_id}: {error}") from error
            raise
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            return None
        if count := censored(output):
            log.warning("%s: its safety checker blacked out %d pictures", self.model_id, count)
        return pixels(output, self.modality)

    def _halve(self, size: int) -> None:
        hooks = getattr(self.pipeline, "maybe_free_model_hooks", None)
        if hooks is not None:
            hooks()
        release_memory()
        if size == 1:
            raise T2XError(
                f"{self.model_id}: memory ran out on a single sample; ask for a smaller size or "
                'fewer frames, dtype="bfloat16", or offload="model" or "sequential"'
            )
        self.batch_size = size // 2
        log.warning("%s: memory ran out, batch size is now %d", self.model_id, self.batch_size)

    def _check_input(
        self, prompts: Sequence[str], negative: Sequence[str] | None, seeds: Sequence[int]
    ) -> None:
        check_prompts(prompts, negative=negative, seeds=seeds)
        if any(negative or ()) and not self.supports_negative:
            raise T2XError(
                f"a negative prompt has no effect on {self.model_id} ({self._class.__name__}) with "
                f"guidance_scale {self.settings().get('guidance_scale')}; leave it out, or raise "
                "guidance_scale if the model is not distilled"
            )

    def _warn_of_truncation(self, prompts: Sequence[str]) -> None:
        """Say which prompts even the encoder that reads most will cut."""
        budget = TokenBudget.from_pipeline(self.pipeline, self.sampling)
        if budget is None:
            return
        with quiet():
            counted = [budget.count(text) for text in prompts]
        for index, counts in enumerate(counted):
            if all(count.truncated for count in counts):
                most = max(counts, key=lambda count: count.limit)
                message = "prompt %d has %d tokens, %s reads the first %d"
                log.warning(message, index, most.used, self.model_id, most.limit)


def _default_batch_size(pipeline: Any) -> int:
    import torch

    modules = [c for c in pipeline.components.values() if isinstance(c, torch.nn.Module)]
    size = sum(p.numel() for module in modules for p in module.parameters())
    return 32 if size < SMALL_MODEL else 4


def _revision(source: str | Path, revision: str | None, generator: DiffusionGenerator) -> str:
    """Name the weights behind a source: a folder's digest, with its base's if it has one, or a
    commit."""
    if not Path(source).is_dir():
        return hub_commit(str(source), revision) or parameter_digest(generator.pipeline)
    base = base_of(source)
    own = folder_digest(source)
    return own if base is None else f"{own}+{_revision(base, revision, generator)}"


def _name(pipeline: Any) -> str:
    """Name a loaded pipeline by the hub id or the folder it came from, else by its class."""
    name = str(getattr(getattr(pipeline, "config", None), "_name_or_path", None) or "")
    return (Path(name).name if Path(name).is_dir() else name) or type(pipeline).__name__


def _silenced(pipeline: Any) -> Any:
    pipeline.set_progress_bar_config(disable=True)
    return pipeline
