"""What a prompt should look like for the model that will draw it.

Each family of generators was trained on texts of its own kind: tags of at most 77 tokens, prose of
a few sentences, or a shot with its motion and its camera. A target holds that in words that go into
the instructions of a rewriter (``Template.in_style``). Formats that a checkpoint was trained to
write are not touched. The lengths are words, a third below the limit in tokens that the family's
text encoders have; the limit itself is counted by the generator's own tokenizers
(``t2x.generators.tokenizers``).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from t2x.errors import T2XError, UnknownNameError
from t2x.rewriters.templates import Template
from t2x.settings import INDEX_FILE, read_object
from t2x.types import Modality

if TYPE_CHECKING:
    from t2x.types import Generator

__all__ = ["TARGETS", "Target", "target_named", "target_of"]


_FORMS = {
    "tags": (
        "as one line of at most {words} words: what is shown first, in the words of the request, "
        "then short descriptive tags between commas for look, light and viewpoint; no full "
        "sentence.",
        "写成一行，不超过{words}个字：先写画面主体，再用逗号分隔的短语描述外观、光线和视角，"
        "不写完整句子。",
    ),
    "prose": (
        "as flowing prose of {words} words at most: the main subject and its action first, then "
        "what is around it and where exactly, then light, colours and the medium; whole "
        "sentences, no tags.",
        "写成连贯的一段话，不超过{words}个字：先写主体和动作，再写周围的事物和确切位置，"
        "最后写光线、色彩和画面媒介；用完整句子，不用标签。",
    ),
    "shot": (
        "as one continuous shot of {words} words at most: the subject and its look, how it moves "
        "from beginning to end, the surroundings, the light, and one movement of the camera "
        "(still, pan, push in, follow) with the size of the shot; motion that can happen within a "
        "few seconds, no cut.",
        "写成一个连续镜头，不超过{words}个字：主体及其外观、从头到尾的动作、环境、光线，"
        "以及一种镜头运动（固定、平移、推近、跟随）和景别；动作要能在几秒内完成，不要切换镜头。",
    ),
}


@dataclass(frozen=True)
class Target:
    """Kind of text that a family of generators reads.

    ``form`` is tags, prose or a shot of a film, of at most ``words`` words; ``reads`` says what its
    text encoders take. ``negative`` says whether a negative prompt is read, ``weights`` whether
    its common user interfaces read ``(words:1.2)``: a user's weights are kept by the guard for
    every target, and no rewriter adds any. ``pipelines`` are classes of diffusers, ``pattern``
    finds the names of repositories.
    """

    form: Literal["tags", "prose", "shot"]
    words: int
    reads: str
    pattern: str
    pipelines: tuple[str, ...]
    modality: Modality = "image"
    negative: bool = True
    weights: bool = False

    @property
    def style(self) -> str:
        """What continues "Write in the language of the request, in present tense, ..."."""
        return _FORMS[self.form][0].format(words=self.words)

    @property
    def chinese(self) -> str:
        """The same in Chinese, which takes about three characters for two English words."""
        return _FORMS[self.form][1].format(words=self.words * 3 // 2)

    def put_into(self, template: Template) -> Template:
        """Give a template that asks for this kind of text, if it asks for any in words."""
        return template.in_style(self.style, chinese=self.chinese, words=self.words)


TARGETS: Mapping[str, Target] = {
    "sd15": Target(
        "tags",
        45,
        reads="one CLIP of 77 tokens",
        pattern=r"stable-diffusion-(?:v?1|2)(?:[.-]\d)?(?:-|$)|(?:^|[-_])sd[-_]?(?:v?1[._-]?\d|2)",
        pipelines=("StableDiffusionPipeline",),
        weights=True,
    ),
    "sdxl": Target(
        "tags",
        50,
        reads="two CLIPs of 77 tokens",
        pattern=r"(?:^|[-_])(?:sdxl|stable-diffusion-xl|pony|illustrious)",
        pipelines=("StableDiffusionXLPipeline",),
        weights=True,
    ),
    "sd3": Target(
        "prose",
        100,
        reads="two CLIPs of 77 tokens and a T5 of 256",
        pattern=r"stable-diffusion-3|(?:^|[-_])sd[-_]?3",
        pipelines=("StableDiffusion3Pipeline",),
    ),
    "flux2": Target(
        "prose",
        140,
        reads="Mistral-Small (klein: Qwen3) with its chat template, 512 tokens",
        pattern=r"(?:^|[-_])flux[-_.]?2",
        pipelines=("Flux2Pipeline", "Flux2KleinPipeline"),
        negative=False,
    ),
    "flux": Target(
        "prose",
        120,
        reads="a T5 of 512 tokens (256 for schnell)",
        pattern=r"(?:^|[-_])flux",
        pipelines=("FluxPipeline",),
        negative=False,
    ),
    "sana": Target(
        "prose",
        110,
        reads="Gemma-2 of 300 tokens",
        pattern=r"(?:^|[-_])sana(?:[-_.\d]|$)",
        pipelines=("SanaPipeline", "SanaSprintPipeline"),
    ),
    "pixart": Target(
        "prose",
        105,
        reads="a T5 of 300 tokens",
        pattern=r"(?:^|[-_])pixart",
        pipelines=("PixArtSigmaPipeline",),
    ),
    "z-image": Target(
        "prose",
        160,
        reads="Qwen3 with its chat template, 512 tokens; English and Chinese",
        pattern=r"z[-_]image",
        pipelines=("ZImagePipeline",),
    ),
    "qwen-image": Target(
        "prose",
        180,
        reads="Qwen2.5-VL, 1024 tokens; English and Chinese",
        pattern=r"qwen[-_]image",
        pipelines=("QwenImagePipeline",),
    ),
    "wan": Target(
        "shot",
        100,
        reads="umT5 of 512 tokens; English and Chinese",
        pattern=r"(?:^|[-_])wan[-_]?[2-9]",
        pipelines=("WanPipeline", "WanImageToVideoPipeline"),
        modality="video",
    ),
    "ltx": Target(
        "shot",
        70,
        reads="a T5 of 128 tokens (256 with conditions); English",
        pattern=r"(?:^|[-_])ltx(?:v|[-_]?video)",
        pipelines=("LTXPipeline", "LTXImageToVideoPipeline", "LTXConditionPipeline"),
        modality="video",
    ),
    "cogvideox": Target(
        "shot",
        110,
        reads="a T5 of 226 tokens; English",
        pattern=r"cogvideo",
        pipelines=("CogVideoXPipeline", "CogVideoXImageToVideoPipeline"),
        modality="video",
    ),
}


def target_named(name: str) -> Target:
    """Give a target by its name; UnknownNameError lists the names."""
    if name not in TARGETS:
        close = difflib.get_close_matches(name, TARGETS, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise UnknownNameError(
            f"unknown target {name[:80]!r}: {hint}known are: {', '.join(TARGETS)}"
        )
    return TARGETS[name]


def target_of(generator: str | Path | Generator) -> Target | None:
    """Give the target that a generator belongs to: by the name of a target, its preset, the class
    of its pipeline, or the name of its repository.

    None where none says it, and for the embedded models: they draw the emoji world, whatever class
    they are of.
    """
    from t2x.generators.presets import preset_for
    from t2x.world.weights import EMBEDDED

    name = generator if isinstance(generator, (str, Path)) else generator.model_id
    if str(name) in EMBEDDED:
        return None
    if str(name) in TARGETS:
        return TARGETS[str(name)]
    pipeline = getattr(generator, "pipeline", None)
    loaded = getattr(generator, "preset", None)
    if preset := loaded or preset_for(name if pipeline is None else pipeline):
        return None if preset.target is None else TARGETS[preset.target]
    kind = type(pipeline).__name__ if pipeline is not None else _stored_class(str(name))
    if found := next((t for t in TARGETS.values() if kind in t.pipelines), None):
        return found
    last = str(name).rstrip("/").rpartition("/")[2].lower()
    return next((t for t in TARGETS.values() if re.search(t.pattern, last)), None)


def _stored_class(name: str) -> str:
    """Class of the pipeline in a local folder, "" if there is none."""
    path = Path(name) / INDEX_FILE
    try:
        return str(read_object(path).get("_class_name")) if path.is_file() else ""
    except (OSError, T2XError):  # a name longer than any path, a file that is no JSON
        return ""
