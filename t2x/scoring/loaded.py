"""What a reward's ``source`` may be, in one place.

A text or path names weights: an embedded name, a local folder or file, a hub id ``owner/model``,
and what else the reward's own loader says. Anything else is loaded already: a tuple or list of
objects as their library gives them, which stay as and where they are unless ``device`` or ``dtype``
say otherwise, in training mode or not.

    CLIP, HPSv2, PickScore       (model, tokenizer) or (model, preprocess, tokenizer) of open_clip,
    SigLIP, LAION's encoder      (model, processor) of transformers
    vision-language models       (model, processor)
    BLIP-ITM                     (model, processor)
    DINO                         (model, image processor)
    ImageReward                  (vision model, text model, tokenizer, layers), or the authors' own
                                 model
    HPSv3                        (model, processor, layers)
    aesthetic heads              layers, or any module that is a chain of them

``layers`` are pairs (weight, bias) of an affine head, or a module whose state they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from t2x.errors import T2XError

__all__ = ["CLIP_FORMS", "PROCESSOR_FORMS", "loaded_layers", "loaded_objects"]

PROCESSOR_FORMS = (("model", "processor"),)
CLIP_FORMS = (("model", "tokenizer"), ("model", "preprocess", "tokenizer"), *PROCESSOR_FORMS)


def loaded_objects(
    source: Any, *, what: str, forms: Sequence[tuple[str, ...]]
) -> tuple[Any, ...] | None:
    """Give the objects of a source that is loaded already, in the order of one of ``forms``; None
    for a text or path.

    ``what`` names the kind of model in messages ("CLIP"). Raises T2XError, which says the forms,
    for a model by itself, objects in another order, and anything else.
    """
    if isinstance(source, (str, Path)):
        return None
    given = tuple(source) if isinstance(source, (tuple, list)) else (source,)
    for form in forms:
        if len(form) == len(given) and all(map(_fits, form, given)):
            return given
    allowed = ", ".join(f"({', '.join(form)})" for form in dict.fromkeys(forms))
    shown = ", ".join(type(item).__name__ for item in given)
    shown = f"({shown})" if isinstance(source, (tuple, list)) else shown
    raise T2XError(
        f"{shown} is no {what}; give a name, folder or hub id, or what is loaded, in this order: "
        f"{allowed}"
    )


def _fits(role: str, item: Any) -> bool:
    return _ROLES.get(role.rpartition(" ")[2], callable)(item)


def _is_module(item: Any) -> bool:
    import torch

    return isinstance(item, torch.nn.Module)


def _is_processor(item: Any) -> bool:
    """Of pictures alone, or of pictures and text."""
    return hasattr(item, "image_processor") or hasattr(item, "image_mean")


def _is_tokenizer(item: Any) -> bool:
    return callable(item) and not _is_module(item) and not _is_processor(item)


_ROLES: Mapping[str, Callable[[Any], bool]] = {
    "model": _is_module,
    "processor": _is_processor,
    "tokenizer": _is_tokenizer,
    "preprocess": lambda item: callable(item) and not hasattr(item, "encode"),
    "layers": lambda item: isinstance(item, Sequence) or _is_module(item),
}


def loaded_layers(layers: Any, *, what: str) -> list[tuple[Any, Any]]:
    """Pairs (weight, bias) of a loaded affine head, detached: given so, or a module's."""
    if not _is_module(layers):
        return [(weight.detach(), bias.detach()) for weight, bias in layers]
    from t2x.scoring.state_files import affine_layers

    state = {name: value.detach() for name, value in layers.state_dict().items()}
    return affine_layers(state, source=type(layers).__name__, what=what)
