"""Where the parts of a pipeline lie while it draws, and in how many bits: offload, quantised
loading and a VAE in tiles or slices, all by the libraries' own means.

    load_generator(source, offload="model")     whole parts on the accelerator in turn
    load_generator(source, offload="group")     blocks of layers in turn
    load_generator(source, offload="sequential")  single layers in turn: slowest, least memory
    load_generator(source, quantize="8bit")     int8 weights (torchao), on any device
    load_generator(source, quantize="4bit")     NF4 weights (bitsandbytes), on a GPU
    load_generator(source, vae_tiling=True)     decode in tiles; seams may show

``quantize`` is also a configuration of diffusers (``PipelineQuantizationConfig``) or, for a
rewriter, of transformers. Offload and NF4 were not run on an accelerator here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from t2x.devices import present_device
from t2x.errors import T2XError
from t2x.memory.machine import is_out_of_memory

if TYPE_CHECKING:
    import torch

Offload: TypeAlias = Literal["model", "sequential", "group"]
OFFLOADS = ("model", "group", "sequential")
QUANTIZED = ("8bit", "4bit")
BITS: Mapping[str, float] = {"8bit": 8, "4bit": 4}  # of a weight; scales come on top
DENOISER_PARTS = ("transformer", "transformer_2", "unet")
TEXT_PARTS = ("text_encoder", "text_encoder_2", "text_encoder_3")
_SWITCHES = ("vae_tiling", "vae_slicing")

__all__ = [
    "BITS",
    "DENOISER_PARTS",
    "OFFLOADS",
    "QUANTIZED",
    "TEXT_PARTS",
    "Offload",
    "Placement",
    "model_quantization",
    "placement_facts",
]


@dataclass(frozen=True)
class Placement:
    """How a pipeline is placed; the module's docstring says what each does."""

    offload: Offload | None = None
    quantize: Any = None
    vae_tiling: bool = False
    vae_slicing: bool = False

    @classmethod
    def taken_from(cls, options: dict[str, Any], offload: Offload | None = None) -> Self:
        """Take the options of placement out of those of loading.

        Raises T2XError for an unknown offload or quantisation.
        """
        found = cls(
            offload, options.pop("quantize", None), **{k: options.pop(k, False) for k in _SWITCHES}
        )
        if offload not in (None, *OFFLOADS):
            raise T2XError(f"unknown offload {offload!r}; allowed: {', '.join(OFFLOADS)}, or None")
        if isinstance(found.quantize, str) and found.quantize not in QUANTIZED:
            raise _unknown(found.quantize)
        if found.quantize is not None and "quantization_config" in options:
            raise T2XError("quantize and quantization_config say the same; leave one out")
        return found

    def load_options(self, dtype: torch.dtype, device: torch.device) -> dict[str, Any]:
        """Options for ``DiffusionPipeline.from_pretrained``, checked before anything is loaded.

        Denoisers and text encoders are quantised, the VAE is not. Raises T2XError for what can't
        be had on this device, MissingDependencyError where the library is missing.
        """
        if self.offload is not None and device.type == "cpu":
            raise T2XError(f"offload {self.offload!r} needs an accelerator; leave it out on a CPU")
        if self.quantize is None:
            return {}
        if not isinstance(self.quantize, str):
            return {"quantization_config": self.quantize}
        from diffusers import PipelineQuantizationConfig

        mapping = {
            **{name: _config("diffusers", self.quantize, dtype, device) for name in DENOISER_PARTS},
            **{name: _config("transformers", self.quantize, dtype, device) for name in TEXT_PARTS},
        }
        return {"quantization_config": PipelineQuantizationConfig(quant_mapping=mapping)}

    def refuse_loaded(self) -> None:
        """Raise T2XError for what only loading can do."""
        if self.quantize is not None:
            raise T2XError(
                "a loaded pipeline takes no quantize: weights are quantised while they load; give "
                "a hub id or folder"
            )

    def apply(self, pipeline: Any, device: torch.device | None) -> None:
        """Put a loaded pipeline in its place; a ``device`` of None leaves it where it is.

        Raises T2XError when memory does not suffice, and for a VAE that has no tiles or slices.
        """
        for name in _SWITCHES:
            if getattr(self, name):
                _switch_on(pipeline, name)
        if device is None:
            return
        if self.offload is not None and device.type == "cpu":
            raise T2XError(f"offload {self.offload!r} needs an accelerator; leave it out on a CPU")
        try:
            _move(pipeline, device, self.offload)
        except (RuntimeError, AssertionError) as error:  # a build without CUDA asserts
            present_device(device)
            if not is_out_of_memory(error):
                raise
            raise T2XError(
                f"{type(pipeline).__name__} does not fit into the memory of {device}; use "
                'offload="model", "group" or "sequential", quantize="8bit" or "4bit", or a '
                "shorter dtype"
            ) from error


def model_quantization(quantize: Any, dtype: Any, device: torch.device) -> dict[str, Any]:
    """Options for ``from_pretrained`` of transformers: ``quantize`` as for a generator, or a
    configuration of transformers."""
    if quantize is None:
        return {}
    given = isinstance(quantize, str)
    config = _config("transformers", quantize, dtype, device) if given else quantize
    return {"quantization_config": config}


def placement_facts(pipeline: Any) -> dict[str, Any]:
    """What of a pipeline's placement changes its pictures, as JSON values: quantised parts, parts
    in another number format than the pipeline's own, and a VAE in tiles. Empty where nothing
    does."""
    facts: dict[str, Any] = {}
    whole = getattr(pipeline, "dtype", None)
    for name, part in pipeline.components.items():
        if (own := getattr(part, "dtype", whole)) != whole:
            facts.setdefault("dtypes", {})[name] = str(own)
        config = getattr(getattr(part, "config", None), "quantization_config", None)
        if config is not None:
            facts.setdefault("quantized", {})[name] = _readable(config)
        if getattr(part, "use_tiling", False):
            facts["vae_tiling"] = True
    return facts


def _readable(config: Any) -> Any:
    return config.to_dict() if hasattr(config, "to_dict") else str(config)


def _move(pipeline: Any, device: torch.device, offload: Offload | None) -> None:
    if offload == "model":
        pipeline.enable_model_cpu_offload(device=device)
    elif offload == "sequential":
        pipeline.enable_sequential_cpu_offload(device=device)
    elif offload == "group":
        pipeline.enable_group_offload(
            onload_device=device, offload_type="block_level", num_blocks_per_group=1
        )
    else:
        pipeline.to(device)


def _switch_on(pipeline: Any, name: str) -> None:
    """Decode in tiles or in slices, where the VAE can."""
    vae = getattr(pipeline, "vae", None)
    method = getattr(vae, f"enable_{name.removeprefix('vae_')}", None)
    try:
        if method is None:
            raise NotImplementedError
        method()
    except NotImplementedError as error:
        raise T2XError(
            f"the {type(vae).__name__} of {type(pipeline).__name__} has no {name[4:]}; leave "
            f"{name} out"
        ) from error


def _unknown(quantize: str) -> T2XError:
    return T2XError(
        f"unknown quantize {quantize!r}; allowed: {', '.join(QUANTIZED)}, or a configuration of "
        "diffusers or transformers"
    )


def _config(library: str, bits: str, dtype: Any, device: torch.device) -> Any:
    """The configuration of one part, in the class of its library."""
    if bits not in QUANTIZED:
        raise _unknown(bits)
    if bits == "4bit" and device.type == "cpu":
        raise T2XError('quantize "4bit" needs a GPU (bitsandbytes); on a CPU take "8bit"')
    kinds: Any = import_module(library)
    if bits == "4bit":
        _needed("bitsandbytes")
        return kinds.BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype="bfloat16" if isinstance(dtype, str) else dtype,
        )
    weights: Any = _needed("torchao.quantization")
    return kinds.TorchAoConfig(weights.Int8WeightOnlyConfig(version=2))


def _needed(module: str) -> Any:
    from t2x.registry import missing_dependency

    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise missing_dependency(error) from error
