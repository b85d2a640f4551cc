"""Any stock diffusers pipeline as a generator with one seed per picture.

``generate`` gives every sample its own noise, drawn on the CPU from its own seed, so that a picture
depends neither on the device's random stream nor on its neighbours in the batch: in float32 to one
grey level in 0.1 % of the pixels, while in bfloat16 rounding shows (a few levels in a seventh of
them). The same batch gives the same bytes. A batch that does not fit into memory is halved.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from t2x.devices import present_device
from t2x.errors import MemoryRanOutError, T2XError
from t2x.generators.adapters import Adapters
from t2x.generators.calls import (
    SHOWN_DEFAULTS,
    call_arguments,
    check_prompts,
    check_room,
    checked_sampling,
    guidance_acts,
    negative_matters,
    with_size,
)
from t2x.generators.defaults import (
    SamplingDefaults,
    chosen_preset,
    is_recorded,
    sampling_defaults,
)
from t2x.generators.folders import folder_settings
from t2x.generators.identity import origin_name, parameter_digest, versions
from t2x.generators.loading import (
    device_of,
    holds_parts,
    place_loaded,
    quiet,
)
from t2x.generators.outputs import censored, gathered, pixels
from t2x.generators.placement import Offload, Placement, placement_facts
from t2x.generators.prompt_syntax import PreparedPrompt, PromptSyntax, Syntax, checked_syntax
from t2x.generators.published import load_published, number_formats, published_options
from t2x.generators.single_file import named_after, origin_of, weights_revision
from t2x.generators.sources import (
    Sources,
    check_strength,
    checked_sources,
    rows_of_call,
    source_arguments,
)
from t2x.memory.machine import is_out_of_memory, release_memory
from t2x.plain import plain
from t2x.prompts.reading import read_prompt

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image
    from torch import Tensor

    from t2x.generators.presets import ModelPreset
    from t2x.types import Media, Modality

log = logging.getLogger(__name__)

SMALL_MODEL = 100_000_000  # parameters; below it a batch of 32 is cheap on any machine
Draw: TypeAlias = "Callable[[Sequence[int], dict[str, Any], list[int]], Any]"
"""From rows of the input, arguments of the pipeline's call (with ``prompt``) and seeds, n each, to
what the pipeline would give: an object with ``images`` or ``frames``. When memory runs out inside,
it is called again for fewer rows."""

__all__ = ["DiffusionGenerator", "Draw", "own_noise"]


class DiffusionGenerator:
    """Frozen text-to-image or text-to-video model around one diffusers pipeline, used unmodified.

    ``model_id`` names it, ``modality`` is "image" or "video", ``pipeline`` is the diffusers object
    itself (its scheduler may be wrapped by guidance), ``sampling`` are the arguments of every call,
    ``batch_size`` the most samples in one, ``adapters`` the LoRAs (``t2x.generators.adapters``),
    ``syntax`` whether syntax in prompts acts ("auto") or is text ("plain"). ``defaults`` says where
    the settings are from: the ``preset`` of a known model, or ``assumptions``, what was presumed of
    an unknown one, in words. ``together`` says of each sample of the last call how many the
    pipeline drew at once.
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
        sampling: Mapping[str, Any] | SamplingDefaults | None = None,
        adapters: Adapters | None = None,
        syntax: Syntax = "auto",
    ) -> None:
        """Wrap a pipeline that is loaded and placed; its own progress bar is switched off."""
        if batch_size is not None and batch_size < 1:
            raise T2XError(f"batch_size must be at least 1, got {batch_size}")
        self.model_id = model_id or origin_name(pipeline)
        self._class = type(pipeline)
        self._arguments = call_arguments(pipeline)
        self.modality = "video" if "num_frames" in self._arguments else "image"
        if not isinstance(sampling, SamplingDefaults):
            sampling = SamplingDefaults(dict(sampling or {}))
        self.defaults = sampling
        self.sampling = checked_sampling(
            sampling.sampling, self._arguments, pipeline=self._class.__name__
        )
        check_strength(self._class, self.sampling, self._arguments)
        self.batch_size = batch_size or _default_batch_size(pipeline)
        self._find_revision: Callable[[], str] = lambda: parameter_digest(self.pipeline)
        self._revision: str | None = revision
        self._reload: Callable[[], Any] | None = None
        self._pipeline = _silenced(pipeline)
        self.adapters = adapters or Adapters()
        self.adapters.attach(pipeline)
        self.syntax = checked_syntax(syntax)
        self.together: list[int] = []

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
        """Make a generator from a hub id, a folder in diffusers' format, one file of weights with
        ``config`` (``t2x.generators.single_file``), or a loaded pipeline.

        A folder may hold only the parts that differ from a base (``t2x.generators.folders``).
        ``sampling`` holds further arguments of the pipeline's call (true_cfg_scale,
        max_sequence_length, height, ...). What the caller gives overrides a local folder's
        ``t2x.json``, which overrides the model's preset (``t2x.generators.presets``; ``preset=``
        names another, or "none"), or of an unknown model what its parts let presume
        (``assumptions``), which overrides the pipeline's own defaults. ``pipeline_kwargs`` go to
        ``DiffusionPipeline.from_pretrained``, but for ``preset``, ``loras``, which act in every
        call, each a file, folder or hub id with its scale, ``lora_folder``, where those lie that
        are called by name, ``embeddings``, textual inversions with a token in place of their own or
        None, ``syntax`` (``prepare``), and for ``quantize``, ``vae_tiling`` and ``vae_slicing``
        (``t2x.generators.placement``). Number format: float32 on a CPU, bfloat16 or float16
        elsewhere; "auto" is bfloat16 on a CPU too if it is fast there. A loaded pipeline stays as
        and where it is unless ``dtype`` or ``device`` says otherwise, and takes no other
        ``pipeline_kwargs``. Raises T2XError for a source that cannot be loaded.
        """
        if not isinstance(sampling, Mapping | None):
            raise T2XError(f"sampling is {sampling!r}; give a dict, as {{'true_cfg_scale': 4.0}}")
        named = {"num_inference_steps": num_inference_steps, "guidance_scale": guidance_scale}
        given = {**(sampling or {}), **{k: v for k, v in named.items() if v is not None}}
        adapters = Adapters.taken_from(pipeline_kwargs)
        origin = origin_of(source, pipeline_kwargs, revision)
        preset = chosen_preset(origin, pipeline_kwargs.pop("preset", None))
        placement = Placement.taken_from(pipeline_kwargs, offload)
        syntax = checked_syntax(pipeline_kwargs.pop("syntax", "auto"))
        if not isinstance(source, (str, Path)):
            if pipeline_kwargs:
                raise T2XError(
                    f"a loaded pipeline takes no {', '.join(sorted(pipeline_kwargs))}: that is for "
                    "loading; leave it out, or give a hub id or folder"
                )
            place_loaded(source, dtype=dtype, device=device, placement=placement)
            found = sampling_defaults(source, preset=preset, given=given, recorded=True)
            return cls(
                source,
                revision=revision,
                batch_size=batch_size,
                sampling=found,
                adapters=adapters,
                syntax=syntax,
            )
        if preset is not None and str(source) == preset.name:
            source = preset.hub[0]
        options = published_options(source, preset, pipeline_kwargs)

        def load() -> Any:
            target = present_device(device)
            formats = number_formats(preset, dtype, target)
            placed = {**options, **placement.load_options(formats["default"], target)}
            pipeline = load_published(
                source, preset, formats=formats, revision=revision, options=placed
            )
            adapters.attach(pipeline)
            placement.apply(pipeline, None if "device_map" in options else target)
            return pipeline

        local = Path(source).is_dir()
        given = {**(folder_settings(source) if local else {}), **given}
        model_id = Path(source).resolve().name if local else named_after(source)
        pipeline = load()
        found = sampling_defaults(
            pipeline, preset=preset, given=given, name=model_id, recorded=is_recorded(source)
        )
        generator = cls(
            pipeline,
            model_id=model_id,
            batch_size=batch_size,
            sampling=found,
            adapters=adapters,
            syntax=syntax,
        )
        generator._reload = load
        if not holds_parts(options):
            generator._find_revision = partial(
                weights_revision, source, revision, options, lambda: generator.pipeline
            )
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
        self.adapters.attach(None)
        if pipeline is not None and self._reload is not None:
            pipeline.remove_all_hooks()
        del pipeline
        release_memory()

    def with_sampling(self, changes: Mapping[str, Any]) -> DiffusionGenerator:
        """The same model, pipeline and adapters with other arguments of the call; see __init__."""
        other, both = copy.copy(self), {**self.sampling, **changes}
        other._find_revision = self._weights
        other.sampling = checked_sampling(both, self._arguments, pipeline=self._class.__name__)
        return other

    @property
    def preset(self) -> ModelPreset | None:
        """What is known of the published model; None of an unknown one."""
        return self.defaults.preset

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What was presumed about how to sample, and why, in words."""
        return self.defaults.assumptions

    @property
    def supports_negative(self) -> bool:
        """Whether a negative prompt has any effect: the call takes one and guidance is on."""
        return negative_matters(self._class, self._arguments, self.sampling, self.pipeline)

    @property
    def passes(self) -> int:
        """Denoiser evaluations of a sample in one step: 2 with classifier-free guidance."""
        on = guidance_acts(self._class, self._arguments, self.sampling, self.pipeline)
        return 2 if on else 1

    def settings(
        self, *, size: tuple[int, int] | None = None, num_frames: int | None = None
    ) -> dict[str, Any]:
        """Give the arguments of a call of this size and length, the pipeline's defaults and the
        model's own negative prompt included.

        ``size`` is (height, width) in pixels; None leaves it to the pipeline.
        """
        shown = {k: self._arguments[k] for k in SHOWN_DEFAULTS if k in self._arguments}
        own = {"negative_prompt": self._negative} if self._negative else {}
        return {**shown, **self._call(size, num_frames), **own}

    @property
    def _negative(self) -> str:
        """What stands in for a negative prompt that is not given."""
        return self.defaults.negative if self.defaults.negative and self.supports_negative else ""

    def _call(self, size: tuple[int, int] | None, num_frames: int | None) -> dict[str, Any]:
        return with_size(self.sampling, self._arguments, size=size, num_frames=num_frames)

    def fingerprint(
        self, *, size: tuple[int, int] | None = None, num_frames: int | None = None
    ) -> dict[str, Any]:
        """Give all that decides a picture but its prompts and seed, as JSON values, for a key.

        Weights that change after the first call don't show, nor do hooks and guidance. LoRAs that
        act in every call are ``adapters``, textual inversions ``embeddings``; both are missing
        where there are none. What decides how prompts are read is ``syntax``.
        """
        scheduler = getattr(self.pipeline, "scheduler", None)
        config = {k: v for k, v in getattr(scheduler, "config", {}).items() if k[0] != "_"}
        result: dict[str, Any] = plain(
            {
                "model_id": self.model_id,
                "revision": self._weights(),
                "pipeline": self._class.__name__,
                "scheduler": type(scheduler).__name__,
                "scheduler_config": config,
                "settings": self.settings(size=size, num_frames=num_frames),
                "dtype": str(getattr(self.pipeline, "dtype", "unknown")),
                "device": device_of(self.pipeline).type,
                "versions": versions(),
                **placement_facts(self.pipeline),
            },
            exact=True,
        )
        result.update(plain(self.adapters.fingerprint(), exact=True))
        return {**result, "syntax": self._reader().mark()}

    def _weights(self) -> str:
        self._revision = self._revision or self._find_revision()
        return self._revision

    def prepare(
        self, prompts: Sequence[str], *, syntax: Syntax | None = None
    ) -> list[PreparedPrompt]:
        """Tell what of N prompts goes to the encoders, what acts beside it, and what doesn't."""
        reader = self._reader(syntax)
        return [reader.prepare(text) for text in prompts]

    def said(self, prompts: Sequence[str]) -> list[str]:
        """The words of N prompts, without syntax if that acts: what rewards score against."""
        return [read_prompt(p).text if self.syntax == "auto" else p for p in prompts]

    def groups(self, prompts: Sequence[str]) -> list[list[int]]:
        """Rows of prompts, without negative ones, that one call of the pipeline can draw together:
        what acts on a single call, such as guidance, is given these."""
        reader, own = self._reader(), self._negative
        given = reader.negatives(prompts, [""] * len(prompts))
        return reader.groups(prompts, [text or own for text in given])

    def _reader(self, syntax: Syntax | None = None) -> PromptSyntax:
        return PromptSyntax(
            self.pipeline,
            sampling=self.sampling,
            adapters=self.adapters,
            negative=self.supports_negative,
            syntax=self.syntax if syntax is None else checked_syntax(syntax),
        )

    def generate(
        self,
        prompts: Sequence[str],
        *,
        negative: Sequence[str] | None = None,
        seeds: Sequence[int],
        size: tuple[int, int] | None = None,
        num_frames: int | None = None,
        sources: Sources | None = None,
        syntax: Syntax | None = None,
        callback: Callable[[int, int], None] | None = None,
        draw: Draw | None = None,
    ) -> Media:
        """Draw one picture (N, 3, H, W) or video (N, F, 3, H, W) per prompt; a list of (1, ...)
        where sources make them of several sizes.

        Media are float32 in [0, 1], in steps of 1/255, on the CPU. ``size`` is (height, width) in
        pixels; ``sources`` are the pictures that image-to-image, editing and image-to-video
        pipelines start from, one for each prompt, of any sizes; ``callback`` hears (done, total)
        after each batch. Batches are cut by input index, samples with and without a negative prompt
        apart, sources of another size, and those whose syntax asks for another call (``prepare``;
        ``syntax`` overrides the generator's own). ``draw`` draws a batch in place of a plain call
        of the pipeline. Raises T2XError for input that the model cannot take, for memory that one
        sample alone exceeds, and for pixels that are no numbers.
        """
        from t2x.media import quantize

        self._check_input(prompts, negative, seeds)
        call = self._call(size, num_frames)
        check_room(call, self.model_id)
        reader = self._reader(syntax)
        given = list(negative) if negative is not None else [""] * len(prompts)
        own = self._negative
        negatives = [text or own for text in reader.negatives(prompts, given)]
        numbers = [int(seed) for seed in seeds]  # torch seeds with nothing that only acts like one
        pictures = checked_sources(self._class, self._arguments, sources, count=len(prompts))
        for line in reader.messages(prompts, negatives, model_id=self.model_id):
            log.warning("%s", line)
        drawn: dict[int, Tensor] = {}
        self.together = [1] * len(prompts)
        for group in reader.groups(prompts, negatives):
            for rows, media in self._batches(
                group, list(prompts), negatives, numbers, call, draw, reader, pictures
            ):
                drawn.update(zip(rows, media, strict=True))
                for row in rows:
                    self.together[row] = len(rows)
                if callback is not None:
                    callback(len(drawn), len(prompts))
        return quantize(gathered([drawn[i] for i in range(len(prompts))]))

    def _batches(
        self,
        group: list[int],
        prompts: list[str],
        negatives: list[str],
        seeds: list[int],
        call: dict[str, Any],
        draw: Draw | None,
        reader: PromptSyntax,
        pictures: list[Image] | None,
    ) -> Iterator[tuple[list[int], Tensor]]:
        """Draw the samples of ``group`` in order; lack of memory halves ``batch_size`` for good."""
        start = 0
        while start < len(group):
            rows = rows_of_call(self._class, group[start : start + self.batch_size], pictures)
            texts, others = [prompts[i] for i in rows], [negatives[i] for i in rows]
            arguments = {**call, "prompt": reader.sent(texts)}
            if pictures is not None:
                shown = [pictures[i] for i in rows]
                arguments |= source_arguments(self.pipeline, call, self._arguments, shown)
            if negatives[rows[0]]:
                arguments["negative_prompt"] = reader.sent(others)
            numbers, own = [seeds[i] for i in rows], None if draw is None else partial(draw, rows)
            with reader.acting(texts, others):
                media = self._attempt(arguments, numbers, own)
            if media is None:
                self._halve(len(rows))
                continue
            yield rows, media
            start += len(rows)

    def _attempt(
        self,
        arguments: dict[str, Any],
        seeds: list[int],
        draw: Callable[[dict[str, Any], list[int]], Any] | None,
    ) -> Tensor | None:
        """Draw one batch: pixels (n, ..., 3, H, W), or None when memory ran out."""
        if "output_type" in self._arguments:
            arguments = {**arguments, "output_type": "pt"}
        try:
            with quiet():
                output = self._plain(arguments, seeds) if draw is None else draw(arguments, seeds)
        except ValueError as error:
            if "divisible" in str(error):
                raise T2XError(f"{self.model_id}: {error}") from error
            raise
        except (RuntimeError, MemoryError) as error:
            alone = len(seeds) == 1 and isinstance(error, T2XError)  # which says more than we could
            if alone or not is_out_of_memory(error):
                raise
            return None
        if count := censored(output):
            log.warning("%s: its safety checker blacked out %d pictures", self.model_id, count)
        return pixels(output, self.modality)

    def _plain(self, arguments: dict[str, Any], seeds: list[int]) -> Any:
        return self.pipeline(**arguments, generator=own_noise(seeds))

    def _halve(self, size: int) -> None:
        hooks = getattr(self.pipeline, "maybe_free_model_hooks", None)
        if hooks is not None:
            hooks()
        release_memory()
        if size == 1:
            raise MemoryRanOutError(
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


def own_noise(seeds: Sequence[int]) -> list[torch.Generator]:
    """A random stream on the CPU for each seed, as pipelines take them."""
    import torch

    return [torch.Generator("cpu").manual_seed(seed) for seed in seeds]


def _default_batch_size(pipeline: Any) -> int:
    import torch

    modules = [c for c in pipeline.components.values() if isinstance(c, torch.nn.Module)]
    size = sum(p.numel() for module in modules for p in module.parameters())
    return 32 if size < SMALL_MODEL else 4


def _silenced(pipeline: Any) -> Any:
    pipeline.set_progress_bar_config(disable=True)
    return pipeline
