"""Published rewriters by name: what each wants to be shown and how its answer is read.

``load_rewriter("promptist")`` loads the published weights, ``load_rewriter("owner/model",
preset="promptist")`` puts the same words around any others; a repository or folder whose name says
clearly what it is needs no preset. Trained formats are kept to the letter of their fields and tags;
instructions are in our own words. None of these has been run on its real weights here: the tests
run the real classes with tiny random weights, and the readers on written answers.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from t2x.errors import T2XError, UnknownNameError
from t2x.rewriters import tipo
from t2x.rewriters.targets import TARGETS
from t2x.rewriters.templates import BASE, GENERAL, Template, read_template

__all__ = [
    "PRESETS",
    "Preset",
    "checkpoint_template",
    "default_template",
    "preset_named",
    "preset_template",
    "published",
    "recognised",
]

logger = logging.getLogger(__name__)

NOT_RUN = "not run on real weights"


@dataclass(frozen=True)
class Preset:
    """How a published rewriter is used.

    ``weights`` is the repository that its name loads, "" if none is published; ``subfolder`` and
    ``tokenizer`` say where in it or elsewhere the parts lie. ``pattern`` finds repositories and
    folders that are clearly of this kind, "" where a name says nothing.
    """

    template: Template
    reference: str
    licence: str
    languages: tuple[str, ...]
    task: str
    weights: str = ""
    subfolder: str = ""
    tokenizer: str = ""
    pattern: str = ""
    warning: str = ""
    tested: str = field(default=NOT_RUN)


_ENHANCER = """\
Think about the user's request first, then rewrite it as the prompt of an image generator.
Think about what has to be in the picture: who and what, how many, doing what, where, in which
style, with which text; what is only implied; what is easily drawn wrong. Do not write the final
prompt there.
The prompt begins with the picture as a whole, goes through it in spatial order, large things before
small ones, and ends with one sentence that names the style. Present tense, concrete adjectives,
exact places; no markdown, no opening such as "the image shows".
Subjects, actions, numbers, colours, style, layout, names and text of the request are all kept.
Text in quotes and words such as ITEM1 or TEXT2 are copied exactly.
Write in the language of the request: <think>thoughts</think><answer>the prompt</answer>"""
_REPROMPT = """\
You help users of an image generator: think about the style, the subject and its features, the
background, and how colours and light play together, then turn the request into a detailed prompt
that the generator can follow.
The thoughts stand between <think> and </think>, the prompt between <answer> and </answer>:
<think>thoughts</think><answer>the prompt</answer>"""
_VENDOR = """\
You turn a user's request into the prompt of {kind}.
Keep what the request fixes: subjects, their number, colours and actions, names, numbers, places and
styles. Fill in what it leaves open, so that it fits; invent no new main subject.
Text that shall be seen stays in its quotation marks, letter by letter and never translated; say
where it stands. Words such as ITEM1 or TEXT2 are copied exactly.
What the request rules out goes into "negative_prompt" as bare nouns between commas; "prompt" does
not mention it.
Write in the language of the request, in present tense, {style}
Answer with one JSON object and nothing else: {"prompt": "...", "negative_prompt": "..."}
"negative_prompt" is "" if the request rules nothing out."""
_VENDOR_ZH = """\
你把用户的请求改写成{kind}的提示词。
保留请求中确定的内容：主体及其数量、颜色、动作、专有名词、数字、地点和风格。请求没有说明的部分可以合理补充，但不要添加新的主体。
画面中要出现的文字保留在引号内，逐字不变，不翻译，并说明文字的位置。ITEM1、TEXT2 这类词原样照抄。
请求中不要的东西写进 "negative_prompt"，只写名词，用逗号分隔；"prompt" 里不再提到它们。
用中文写，{style}
只回答一个 JSON 对象：{"prompt": "...", "negative_prompt": "..."}
请求没有排除任何东西时，"negative_prompt" 为 ""。"""


def _vendor(
    target: str, *, kind: str, chinese: str, suffix: tuple[str, str] = ("", "")
) -> Template:
    """Instructions for any chat model in English and Chinese, by the prompt's own language."""
    english = Template(
        system=_VENDOR.replace("{kind}", kind),
        style=TARGETS[target].style,
        suffix=suffix[0],
        max_new_tokens=512,
        temperature=0.7,
        top_p=0.8,
    )
    other = replace(
        english,
        system=_VENDOR_ZH.replace("{kind}", chinese),
        style=TARGETS[target].chinese,
        suffix=suffix[1],
    )
    return replace(english, variants=(("zh", other),))


_TIPO = Template(
    user=tipo.TEXT_USER,
    chat=False,
    lead="",
    one_line=False,
    reader="tipo-long",
    max_new_tokens=512,
    temperature=0.35,
    top_p=0.95,
    top_k=60,
    min_p=0.1,
)

PRESETS: Mapping[str, Preset] = {
    "promptenhancer": Preset(
        Template(system=_ENHANCER, thinking=True, max_new_tokens=1024, temperature=0.7),
        reference="PromptEnhancer, arXiv 2509.04545",
        licence="Tencent Hunyuan Community: not valid in the EU, the UK and South Korea",
        languages=("zh", "en"),
        task="text to image",
        weights="tencent/HunyuanImage-2.1",
        subfolder="reprompt",
        pattern=r"(?i:promptenhancer)|(?i:hunyuanimage[^/]*)/reprompt",
        warning="its licence is not valid in the EU, the UK and South Korea",
    ),
    "promptist": Preset(
        # The card's settings: 8 beams, length penalty -1, 75 tokens, no token of beginning.
        Template(
            user="{prompt} Rephrase:",
            chat=False,
            lead="",
            begin=False,
            reader="items",
            max_new_tokens=75,
            num_beams=8,
            length_penalty=-1.0,
        ),
        reference="Promptist, arXiv 2212.09611",
        licence="MIT",
        languages=("en",),
        task="text to image, Stable Diffusion 1.4",
        weights="microsoft/Promptist",
        tokenizer="openai-community/gpt2",
        pattern=r"(?i)promptist",
    ),
    "qwen-image": Preset(
        _vendor(
            "qwen-image",
            kind="an image generator",
            chinese="图像生成模型",
            suffix=("Ultra HD, 4K", "超清，4K"),
        ),
        reference="style of Qwen-Image's prompt_utils, arXiv 2508.02324",
        licence="Apache-2.0 (weights: Qwen2.5-7B-Instruct)",
        languages=("zh", "en", "the prompt's own"),
        task="text to image",
        weights="Qwen/Qwen2.5-7B-Instruct",
    ),
    "reprompt": Preset(
        Template(
            system=_REPROMPT,
            # The checkpoint continues these words; training and use must begin alike.
            prefill="Let me solve this step by step.\n<think>",
            require_answer=True,
            max_new_tokens=512,
        ),
        reference="RePrompt, arXiv 2505.17540",
        licence="MIT (code; no weights published)",
        languages=("en",),
        task="text to image, FLUX / SD3 / PixArt",
        pattern=r"RePrompt|(?i:reprompt)[-_](?:with[-_])?(?:flux|sd3|pixart|qwen)",
    ),
    "tipo": Preset(
        replace(_TIPO, variants=(("tags", replace(
            _TIPO, user=tipo.TAGS_USER, reader="tipo-tags")),)),
        reference="TIPO, arXiv 2411.08127",
        licence="Apache-2.0 (code); see the card of the weights",
        languages=("en", "Danbooru tags"),
        task="text to image, tags and prose",
        weights="KBlueLeaf/TIPO-500M-ft",
        pattern=r"(?i)(?:^|/)TIPO-\d+M",
    ),
    "wan": Preset(
        _vendor("wan", kind="a video generator", chinese="视频生成模型"),
        reference="style of Wan2.1's prompt_extend, arXiv 2503.20314",
        licence="Apache-2.0 (weights: Qwen2.5-7B-Instruct)",
        languages=("zh", "en", "the prompt's own"),
        task="text to video",
        weights="Qwen/Qwen2.5-7B-Instruct",
    ),
}  # fmt: skip


def preset_named(name: str) -> Preset:
    """Give a preset by its name; UnknownNameError lists the names."""
    if name not in PRESETS:
        close = difflib.get_close_matches(name, PRESETS, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise UnknownNameError(
            f"unknown preset {name[:80]!r}: {hint}known are: {', '.join(PRESETS)}, or 'none'"
        )
    return PRESETS[name]


def recognised(source: str | Path) -> str:
    """Name of the preset that a repository's or folder's name clearly belongs to, "" if none; what
    it finds is logged.
    """
    last = "/".join(Path(source).parts[-2:])
    for name, preset in PRESETS.items():
        found = list(re.finditer(preset.pattern, last)) if preset.pattern else []
        if found and "/" not in last[found[-1].end() :]:  # no name of an owner or a parent folder
            logger.info(
                "%s is used with the preset %r, by its name; preset='none' turns that off",
                source,
                name,
            )
            return name
    return ""


def published(name: str) -> Preset:
    """Give a preset whose weights are published; T2XError if there are none."""
    preset = preset_named(name)
    if not preset.weights:
        raise T2XError(
            f"no weights of {name} are published; give a checkpoint: "
            f"load_rewriter('owner/model', preset={name!r})"
        )
    return preset


def preset_template(preset: str | None) -> Template | None:
    """Give the words of a preset, with its warning in the log; None of None and "none"."""
    if preset is None or preset == "none":
        return None
    known = preset_named(preset)
    if known.warning:
        logger.warning("%s: %s", preset, known.warning)
    return known.template


def checkpoint_template(source: str | Path, preset: str | None) -> Template | None:
    """Give the words of the preset, else those that the checkpoint's ``t2x.json`` holds, else those
    of the preset that its name clearly belongs to; None if there are none.
    """
    if preset is not None and preset != "none":
        return preset_template(preset)
    own = read_template(source) if Path(source).is_dir() else None
    return own or (None if preset == "none" else preset_template(recognised(source) or None))


def default_template(tokenizer: Any) -> Template:
    """Words for a model of which nothing is known but whether it has a chat template."""
    return GENERAL if getattr(tokenizer, "chat_template", None) else BASE
