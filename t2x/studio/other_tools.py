"""Prompts in the metadata of pictures that other programs drew: A1111 and its heirs ("parameters"),
ComfyUI ("prompt", the graph), InvokeAI ("invokeai_metadata", once "sd-metadata"), Fooocus and
SwarmUI ("parameters" as JSON). JPEG and WebP have the first kind in their EXIF block.

Formats as the programs write them; what can't be read is named, never guessed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from t2x.plain import is_text

__all__ = ["OtherPrompt", "read_other"]

Graph: TypeAlias = "Mapping[str, Any]"
_LONGEST = 20_000  # characters of a prompt
_NODES = 200  # of a graph, on the way from a sampler to a text
_SETTINGS = {
    "steps": "num_inference_steps",
    "cfg scale": "guidance_scale",
    "cfg_scale": "guidance_scale",
    "cfgscale": "guidance_scale",
    "guidance_scale": "guidance_scale",
    "width": "width",
    "height": "height",
}
_USER_COMMENT, _EXIF_BLOCK = 0x9286, 0x8769


@dataclass(frozen=True)
class OtherPrompt:
    """What another program tells of its picture.

    ``prompt`` is "" if it could not be read, and ``problem`` says why. ``settings`` have the names
    of diffusers' arguments; ``left`` are the names of settings that mean nothing here.
    """

    tool: str
    prompt: str = ""
    negative: str = ""
    seed: int | None = None
    settings: Mapping[str, float] = field(default_factory=dict)
    left: tuple[str, ...] = ()
    problem: str = ""


def read_other(text: Mapping[str, str], exif: Any = None) -> OtherPrompt | None:
    """Read the text chunks of a picture, and its EXIF block (``PIL.Image.Exif``); None if no
    program that is known wrote them."""
    known: dict[str, Callable[[str], OtherPrompt | None]] = {
        "invokeai_metadata": _invoke,
        "sd-metadata": _old_invoke,
        "parameters": _parameters,
        "prompt": _comfy,
        "workflow": _comfy_workflow,
    }
    chunks = dict(text)
    if "parameters" not in chunks and (comment := _user_comment(exif)):
        chunks["parameters"] = comment
    for key, read in known.items():
        if key in chunks and (found := read(chunks[key])) is not None:
            return _checked(found)
    return None


def _checked(found: OtherPrompt) -> OtherPrompt:
    texts = found.prompt, found.negative
    if all(map(is_text, texts)) and max(map(len, texts)) <= _LONGEST:
        empty = not found.prompt.strip() and not found.problem
        return OtherPrompt(found.tool, problem="its prompt is empty") if empty else found
    return OtherPrompt(found.tool, problem="its prompt is too long, or no valid Unicode")


def _user_comment(exif: Any) -> str:
    """EXIF's comment: eight bytes name the encoding, the text follows."""
    try:
        value = exif.get_ifd(_EXIF_BLOCK).get(_USER_COMMENT) if exif is not None else None
    except Exception:  # what parses EXIF raises anything
        return ""
    if not isinstance(value, bytes):
        return value if isinstance(value, str) else ""
    code, rest = value[:8], value[8:]
    if code.startswith(b"UNICODE"):
        big = rest[:1] == b"\0" or not rest
        return rest.decode("utf-16-be" if big else "utf-16-le", "replace").strip("\0")
    return rest.decode("utf-8", "replace").strip("\0")


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _whole(value: Any) -> int | None:
    """A seed, which some programs write as a text."""
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if 0 <= number < 2**63 else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _plain_settings(values: Mapping[str, Any]) -> tuple[dict[str, float], tuple[str, ...]]:
    """Settings that diffusers has, too, and the names of the others that say something."""
    taken: dict[str, float] = {}
    left = []
    for key, value in values.items():
        name = _SETTINGS.get(str(key).lower())
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = None
        if name is not None and number is not None and 0 <= number < 1e5:
            taken[name] = number if name == "guidance_scale" else int(number)
        elif value not in (None, "", [], {}):
            left.append(str(key))
    return taken, tuple(left)


# ---- A1111, Fooocus, SwarmUI: "parameters" -------------------------------------------------------

_PAIR = re.compile(r'\s*([\w][\w \-/]*):\s*("(?:\\.|[^"\\])*"|[^,]*)(?:,|$)')
_SIZE = re.compile(r"(\d+)\s*x\s*(\d+)")


def _parameters(text: str) -> OtherPrompt | None:
    if (values := _object(text)) is not None:
        return _parameters_object(values)
    lines = text.strip().split("\n")
    settings = dict(_PAIR.findall(lines[-1])) if "Steps:" in lines[-1] else {}
    if settings:
        lines.pop()
    elif "Negative prompt:" not in text:
        return None  # not in A1111's form
    words = "\n".join(lines)
    prompt, _, negative = words.partition("Negative prompt:")
    given = {k: v for k, v in settings.items() if k not in ("Seed", "Size")}
    if size := _SIZE.fullmatch(settings.get("Size", "").strip()):
        given |= {"width": size[1], "height": size[2]}
    taken, left = _plain_settings(given)
    tool = "Fooocus" if settings.get("Version", "").startswith("Fooocus") else "A1111"
    seed = _whole(settings.get("Seed"))
    return OtherPrompt(tool, prompt.strip(), negative.strip(), seed, taken, left)


def _parameters_object(values: dict[str, Any]) -> OtherPrompt | None:
    if isinstance(swarm := values.get("sui_image_params"), dict):
        return _flat("SwarmUI", swarm, "prompt", "negativeprompt")
    if "prompt" in values:
        return _flat("Fooocus", values, "prompt", "negative_prompt")
    return None


def _flat(tool: str, values: dict[str, Any], prompt: str, negative: str) -> OtherPrompt:
    own = (prompt, negative, "seed", "resolution")
    given = {k: v for k, v in values.items() if k not in own}
    if size := re.fullmatch(r"\(?\s*(\d+)\D+(\d+)\s*\)?", str(values.get("resolution", ""))):
        given |= {"width": size[1], "height": size[2]}
    taken, left = _plain_settings(given)
    words = _text(values.get(prompt)).strip(), _text(values.get(negative)).strip()
    return OtherPrompt(tool, *words, _whole(values.get("seed")), taken, left)


# ---- InvokeAI ------------------------------------------------------------------------------------


def _invoke(text: str) -> OtherPrompt | None:
    values = _object(text)
    if values is None:
        return OtherPrompt("InvokeAI", problem="its metadata is no valid JSON")
    if not isinstance(values.get("positive_prompt"), str):
        return OtherPrompt("InvokeAI", problem="its metadata names no prompt")
    return _flat("InvokeAI", values, "positive_prompt", "negative_prompt")


def _old_invoke(text: str) -> OtherPrompt | None:
    values = _object(text) or {}
    image = values.get("image")
    if not isinstance(image, dict):
        return OtherPrompt("InvokeAI", problem="its metadata names no prompt")
    said = image.get("prompt")
    if isinstance(said, list):  # weighted parts
        parts = [_text(item.get("prompt")) for item in said if isinstance(item, dict)]
        image = image | {"prompt": ", ".join(filter(None, parts))}
    return _flat("InvokeAI", image, "prompt", "negative_prompt")


# ---- ComfyUI -------------------------------------------------------------------------------------

_TEXTS = ("text", "text_g", "t5xxl", "prompt", "string", "value", "wildcard_text", "positive")
_SEEDS = ("seed", "noise_seed")


def _comfy(text: str) -> OtherPrompt | None:
    graph = _object(text)
    if graph is None or not any(_inputs(node) for node in graph.values()):
        return None  # other programs store other things under this name
    samplers = [node for node in graph.values() if _is_sampler(node)]
    for node in samplers:
        inputs = _inputs(node)
        source = inputs
        if not _is_link(inputs.get("positive")):
            source = _inputs(_linked(graph, inputs.get("guider")))
        prompt = _words(graph, source.get("positive", source.get("conditioning")))
        if prompt:
            taken, left = _plain_settings(_literals(inputs))
            left = tuple(name for name in left if name not in _SEEDS)
            negative = _words(graph, source.get("negative"))
            return OtherPrompt("ComfyUI", prompt, negative, _seed(graph, inputs), taken, left)
    encoders = [node for node in graph.values() if "TextEncode" in _kind(node)]
    found = [words for node in encoders if (words := _words_of(graph, node))]
    if len(found) == 1:
        return OtherPrompt("ComfyUI", found[0])
    why = f"its graph has {len(graph)} nodes, and no sampler with a text that could be followed"
    return OtherPrompt("ComfyUI", problem=why)


def _comfy_workflow(text: str) -> OtherPrompt | None:
    values = _object(text)
    if values is None or "nodes" not in values:
        return None
    return OtherPrompt("ComfyUI", problem="it holds the page's workflow and not the graph that ran")


def _kind(node: Any) -> str:
    return _text(node.get("class_type")) if isinstance(node, dict) else ""


def _inputs(node: Any) -> dict[str, Any]:
    inputs = node.get("inputs") if isinstance(node, dict) else None
    return inputs if isinstance(inputs, dict) else {}


def _is_link(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and isinstance(value[0], str | int)


def _linked(graph: Graph, value: Any) -> Any:
    return graph.get(str(value[0])) if _is_link(value) else None


def _is_sampler(node: Any) -> bool:
    inputs = _inputs(node)
    return _is_link(inputs.get("positive")) or _is_link(inputs.get("guider"))


def _literals(inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {"cfg_scale" if k == "cfg" else k: v for k, v in inputs.items() if not _is_link(v)}


def _seed(graph: Graph, inputs: Mapping[str, Any]) -> int | None:
    noise = _inputs(_linked(graph, inputs.get("noise")))
    for place in (inputs, noise):
        for name in _SEEDS:
            value = place.get(name)
            if _is_link(value):
                value = next((v for v in _literals(_inputs(_linked(graph, value))).values()), None)
            if (number := _whole(value)) is not None:
                return number
    return None


def _words(graph: Graph, link: Any) -> str:
    """The first text on the way back from an input of a sampler, breadth first."""
    waiting, seen = [link], set[str]()
    while waiting and len(seen) < _NODES:
        value = waiting.pop(0)
        if not _is_link(value) or str(value[0]) in seen:
            continue
        seen.add(str(value[0]))
        node = graph.get(str(value[0]))
        if words := _words_of(graph, node):
            return words
        waiting += [v for v in _inputs(node).values() if _is_link(v)]
    return ""


def _words_of(graph: Graph, node: Any) -> str:
    """The text that a node holds, or that the node behind its text holds."""
    for value in _named(_inputs(node)):
        if isinstance(value, str) and value.strip():
            return value.strip()
        for inner in _named(_inputs(_linked(graph, value))):
            if isinstance(inner, str) and inner.strip():
                return inner.strip()
    return ""


def _named(inputs: Mapping[str, Any]) -> Iterator[Any]:
    yield from (inputs[name] for name in _TEXTS if name in inputs)
