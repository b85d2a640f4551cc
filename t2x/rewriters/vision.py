"""Rewriters that look at the picture: instructions for editing it, or what sets it in motion.

Any chat model of ``AutoModelForImageTextToText`` (``t2x.scoring.vlm``). The picture of each prompt
comes beside it, ``rewrite(prompts, pictures=...)``, also through ``Guarded``. Every row is computed
alone, so that its text depends on no other; pictures of several sizes make no batch anyway. Line
breaks of the prompt reach the model as line breaks.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from t2x.errors import T2XError
from t2x.rewriters.completion import Completion, answer, decode
from t2x.rewriters.rows import check_sampling, complete_rows, generation_seed
from t2x.rewriters.sampling import GumbelRows
from t2x.rewriters.targets import TARGETS, Target
from t2x.rewriters.templates import Template
from t2x.types import Rewrite

if TYPE_CHECKING:
    from torch import Tensor

    from t2x.scoring.vlm import Vlm
    from t2x.types import Media

__all__ = ["TASKS", "VisionRewriter", "load_edit", "load_i2v"]

_EDIT = """\
You see a picture and what a user wants to have changed in it. Write the instruction for a model
that edits pictures, on two lines:
Change: one exact instruction that holds every wish of the request and nothing more. Name things as
the picture shows them (which one, where, in which colour), and how they look afterwards.
Keep: one sentence that begins with Keep and names what stays as it is: faces, poses, background,
light, style, and whatever else the request does not touch.
Text in quotes and words such as ITEM1 or TEXT2 are copied exactly.
Write in the language of the request. Answer with the two lines alone."""
_MOVE = """\
You see the first picture of a film and what a user wants to happen in it. Write the prompt for a
model that makes the film.
What the picture shows is given: name the subject in a few words and do not describe it again.
Describe what moves, how and in which order, what stays still, and what the camera does. Nothing
appears that neither the picture nor the request holds.
Text in quotes and words such as ITEM1 or TEXT2 are copied exactly.
Write in the language of the request, in present tense, {style}
Answer with the prompt alone: no introduction, no list, no explanation."""
TASKS = {
    "edit": Template(system=_EDIT, user="Request: {prompt}", reader="edit"),
    "i2v": Template(system=_MOVE, user="Request: {prompt}", style=TARGETS["wan"].style),
}


@dataclass(frozen=True)
class _Row:
    place: int  # of the picture
    text: str
    seed: int | None


class VisionRewriter:
    """Rewrites prompts about pictures with a vision-language model.

    Args:
        vlm: the model with its processor (``t2x.scoring.vlm.load_vlm``); it needs a chat template.
        task: "edit" for an instruction that says what to change and what to keep, "i2v" for the
            motion of a film that begins with the picture.
        template: words of your own in place of the task's.
        model_id: name that goes into every result.
        temperature: as in ``LanguageModelRewriter``.
    """

    def __init__(
        self,
        vlm: Vlm,
        *,
        task: str = "edit",
        template: Template | None = None,
        model_id: str = "",
        temperature: float | None = None,
    ) -> None:
        if task not in TASKS:
            raise T2XError(f"unknown task {task!r}; allowed are {', '.join(TASKS)}")
        if not vlm.has_template:
            raise T2XError(f"{vlm.key} has no chat template; give a chat model")
        check_sampling(temperature)
        self.vlm = vlm
        self.task = task
        self.template = template or TASKS[task]
        self.model_id = model_id or vlm.key
        self.temperature = temperature

    @classmethod
    def from_pretrained(
        cls,
        source: str | Path | tuple[Any, Any] = "",
        *,
        device: str | None = None,
        dtype: Any = None,
        **options: Any,
    ) -> VisionRewriter:
        """Load an embedded name, a folder, a hub id, or a loaded (model, processor).

        Args:
            source: see above; what is loaded stays as and where it is unless ``device`` or
                ``dtype`` say otherwise.
            device: None is a GPU if there is one.
            dtype: torch dtype; None is float32 on a CPU and bfloat16 elsewhere.
            options: what the constructor takes.
        """
        import torch

        from t2x.scoring.vlm import load_vlm

        if source == "":
            raise T2XError(
                "a rewriter that sees needs a vision-language model: vision-edit:owner/model, or "
                "load_rewriter('vision-edit', source=...)"
            )
        if isinstance(source, (str, Path)):
            device = device or ("cuda" if torch.cuda.is_available() else "cpu")
            dtype = dtype or (torch.float32 if device == "cpu" else torch.bfloat16)
            name = str(source)
        else:
            name = type(source[0]).__name__ if isinstance(source, (tuple, list)) else "loaded"
        options.setdefault("model_id", f"{name} ({options.get('task', 'edit')})")
        return cls(load_vlm(source, device=device, dtype=dtype), **options)

    def for_target(self, target: Target) -> Self:
        """Give the same model with instructions that ask for the target's kind of text; edits have
        a form of their own and stay as they are.
        """
        styled = copy(self)
        styled.template = target.put_into(self.template)
        return styled

    def rewrite(
        self,
        prompts: Sequence[str],
        *,
        pictures: Media | Sequence[Any] | None = None,
        num_generations: int = 1,
        seed: int = 0,
    ) -> list[list[Rewrite]]:
        """Give ``num_generations`` rewrites for each of B prompts: B lists of G.

        ``pictures``: one per prompt, (B, 3, H, W) in [0, 1], or a list of (1, 3, H, W), PIL
        pictures and paths. Raises T2XError without them or if their number is another.
        """
        shown = _pictures(pictures, prompts)
        completions = complete_rows(
            prompts,
            lambda place, prompt: self._rows(place, prompt, num_generations, seed),
            lambda rows: [self._complete(row, shown[row.place]) for row in rows],
            num_generations=num_generations,
        )
        return [
            [answer(p, c, self.template, seed=seed, model_id=self.model_id) for c in group]
            for p, group in zip(prompts, completions, strict=True)
        ]

    def _rows(
        self, place: int, prompt: str, num_generations: int, seed: int
    ) -> list[_Row | Completion]:
        template = self.template.for_prompt(prompt)
        words = template.user.replace("{prompt}", self.vlm.plain(prompt.strip(), one_line=False))
        text = self.vlm.chat(f"{template.instructions}\n\n{words}".strip())
        rows: list[_Row | Completion] = []
        for i in range(num_generations):
            own = generation_seed(
                prompt, i, seed=seed, temperature=self.temperature, template=self.template
            )
            rows.append(_Row(place, text, own))
        return rows

    def _complete(self, row: _Row, picture: Tensor) -> Completion:
        import torch
        from transformers import GenerationConfig

        inputs = self.vlm.inputs([row.text], [picture], padding_side="left")
        ends = self._ends()
        noise = GumbelRows(
            [row.seed],
            temperature=self.temperature or self.template.temperature or 1.0,
            top_p=self.template.top_p,
            top_k=self.template.top_k,
            min_p=self.template.min_p,
            repetition_penalty=self.template.repetition_penalty,
            eos_ids=ends,
        )
        pad = self.vlm.tokenizer.pad_token_id
        config = GenerationConfig(
            max_new_tokens=self.template.max_new_tokens,
            do_sample=False,
            num_beams=1,
            eos_token_id=ends or None,
            pad_token_id=pad if pad is not None else (ends[0] if ends else 0),
        )
        with torch.inference_mode():
            output = self.vlm.model.generate(
                **inputs, generation_config=config, logits_processor=[noise]
            )
        new = output[0]
        if not self.vlm.is_encoder_decoder:
            new = new[inputs["input_ids"].shape[1] :]
        return decode(self.vlm.tokenizer, new.tolist(), ends=ends)

    def _ends(self) -> list[int]:
        own = self.vlm.model.generation_config.eos_token_id
        ids = own if isinstance(own, list) else [own]
        return sorted({i for i in (*ids, self.vlm.tokenizer.eos_token_id) if i is not None})


def load_edit(source: Any = "", **options: Any) -> VisionRewriter:
    """Load a rewriter of instructions for editing; see ``VisionRewriter.from_pretrained``."""
    return VisionRewriter.from_pretrained(source, task="edit", **options)


def load_i2v(source: Any = "", **options: Any) -> VisionRewriter:
    """Load a rewriter that sets pictures in motion; see ``VisionRewriter.from_pretrained``."""
    return VisionRewriter.from_pretrained(source, task="i2v", **options)


def _pictures(pictures: Any, prompts: Sequence[str]) -> list[Tensor]:
    """Pictures (3, H, W) in [0, 1], one per prompt, through 8 bits as a file would be."""
    from t2x.media import from_pil, load_picture, quantize

    if pictures is None:
        raise T2XError("this rewriter looks at pictures; give pictures=, one per prompt")
    if len(pictures) != len(prompts):
        raise T2XError(f"{len(prompts)} prompts but {len(pictures)} pictures; give one per prompt")
    found = []
    for given in pictures:
        if isinstance(given, (str, Path)):
            media: Any = load_picture(given)
        elif hasattr(given, "convert"):  # a PIL picture
            media = from_pil([given])
        else:
            media = quantize(given)
        picture = media[0] if media.ndim == 4 else media
        if picture.ndim != 3 or picture.shape[0] != 3:
            raise T2XError(
                f"a picture has the shape {tuple(media.shape)}; give (3, H, W), (1, 3, H, W), a "
                "PIL picture or a path"
            )
        found.append(picture)
    return found
