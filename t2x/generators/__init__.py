"""Frozen text-to-image and text-to-video models behind one method, ``generate``.

diffusion.py   DiffusionGenerator: any stock diffusers pipeline, with one seed per sample
guided.py      GuidedGenerator: the same under guidance by rewards
presets.py     published models: what their authors sample with (presets.yaml), licence, gate
presumed.py    what an unknown model is probably sampled with, told by its parts
defaults.py    which of both holds, beside what the caller and the folder say
published.py   loading a published model: files, number formats, scheduler
calls.py       what a pipeline's call takes, and checks of what it is given
folders.py     what a local folder says about itself: settings, and the base of a folder of parts
placement.py   offload, quantised loading, a VAE in tiles
loading.py     from a hub id, a folder or an object to a pipeline on its device
single_file.py checkpoints and parts in one file, as web UIs have them; GGUF
adapters.py    LoRAs: loaded once, scales switched per call
embeddings.py  textual inversions
prompt_syntax.py  what becomes of LoRA tags, weights and long texts of a prompt, done or told
attention_weights.py  weights and texts beyond one window of CLIP, through compel
identity.py    what a stored picture's key must hold: weights, scheduler, sampling, versions
tokenizers.py  token limits of what will draw, from its tokenizers alone
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from t2x.generators.diffusion import DiffusionGenerator
    from t2x.generators.guided import GuidedGenerator
    from t2x.generators.prompt_syntax import PreparedPrompt

_HOME = {
    "DiffusionGenerator": "diffusion",
    "GuidedGenerator": "guided",
    "PreparedPrompt": "prompt_syntax",
}

__all__ = ["DiffusionGenerator", "GuidedGenerator", "PreparedPrompt"]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that listing generators costs nothing."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
