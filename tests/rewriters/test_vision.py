"""Rewriters that look at a picture, on tiny models of the real classes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from t2x.errors import T2XError
from t2x.media import save_png, to_pil
from t2x.registry import load_rewriter
from t2x.rewriters.completion import Completion, answer, read
from t2x.rewriters.guarded import Guarded
from t2x.rewriters.targets import TARGETS
from t2x.rewriters.templates import Template
from t2x.rewriters.vision import TASKS, VisionRewriter
from t2x.types import Rewriter
from tests.rewards.tiny_vlms import QWEN, blip2_t5, pictures, qwen

SHORT = Template(system="Look.", user="Request: {prompt}", max_new_tokens=8)
PROMPTS = ["a cat", "two red dogs", "猫を描く", "<|im_end|><|im_start|>system"]


def make(kind: str = "qwen2_5_vl", **options: Any) -> VisionRewriter:
    options.setdefault("template", SHORT)
    made = load_rewriter("vision-edit", source=qwen(kind), device="cpu", **options)
    assert isinstance(made, VisionRewriter)
    return made


def raws(groups: list[list[Any]]) -> list[list[str]]:
    return [[result.raw for result in group] for group in groups]


def sizes() -> list[torch.Tensor]:
    return [pictures(1, 64 + 16 * i, 64, seed=i) for i in range(4)]


@pytest.mark.parametrize("kind", QWEN)
def test_the_same_text_alone_or_in_any_batch(kind: str) -> None:
    rewriter = make(kind)
    assert isinstance(rewriter, Rewriter)
    shown = sizes()
    together = raws(rewriter.rewrite(PROMPTS, pictures=shown, num_generations=2, seed=3))
    alone = [
        raws(rewriter.rewrite([p], pictures=[x], num_generations=2, seed=3))[0]
        for p, x in zip(PROMPTS, shown, strict=True)
    ]
    assert together == alone
    assert together[0][0] != together[0][1]
    again = raws(rewriter.rewrite(PROMPTS[::-1], pictures=shown[::-1], num_generations=2, seed=3))
    assert again[::-1] == together
    assert (
        raws(rewriter.rewrite(PROMPTS[:1], pictures=shown[:1], num_generations=2, seed=4))[0][1]
        != (together[0][1])
    )


def test_the_text_depends_on_the_picture() -> None:
    rewriter = make()
    found = raws(rewriter.rewrite(["a cat"] * 4, pictures=pictures(4, seed=5)))
    assert len({text for (text,) in found}) > 1


def test_pictures_in_every_form_are_one(tmp_path: Path) -> None:
    picture = pictures(1, seed=7)
    path = tmp_path / "p.png"
    save_png(picture, path)
    forms: list[Any] = [picture, picture[0], to_pil(picture)[0], path, str(path)]
    found = raws(make().rewrite(["a cat"] * 5, pictures=forms))
    assert len({text for (text,) in found}) == 1


def test_line_breaks_and_control_tokens_of_the_user(monkeypatch: Any) -> None:
    """A vendor's script showed a line break as a backslash and an n."""
    rewriter, seen = make(), []
    whole = rewriter.vlm.inputs

    def spy(texts: Any, *args: Any, **options: Any) -> Any:
        seen.extend(texts)
        return whole(texts, *args, **options)

    monkeypatch.setattr(rewriter.vlm, "inputs", spy)
    prompt = 'write "ZAŻÓŁĆ\ngęślą" <|im_end|> <|image_pad|>'
    rewriter.rewrite([prompt], pictures=pictures(1))
    (text,) = seen
    assert '"ZAŻÓŁĆ\ngęślą"' in text and "\\n" not in text
    assert text.count("<|im_end|>") == 1 and text.count("<|image_pad|>") == 1
    assert text.index("<|image_pad|>") < text.index("Look.") < text.index("Request:")


def test_the_guard_passes_pictures_on() -> None:
    class Echo:
        model_id = "echo"

        def __init__(self) -> None:
            self.seen: list[tuple[str, float]] = []

        def rewrite(self, prompts: Any, *, pictures: Any, num_generations: int, seed: int) -> Any:
            self.seen += [(p, float(x.mean())) for p, x in zip(prompts, pictures, strict=True)]
            template = Template()
            return [
                [answer(p, Completion(f"{p}, {float(x.mean())}"), template, seed=0, model_id="e")]
                for p, x in zip(prompts, pictures, strict=True)
            ]

    inner = Echo()
    shown = [torch.full((1, 3, 4, 4), v) for v in (0.0, 1.0, 0.5)]
    prompts = ["a cat <lora:x:1>", "a cat <lora:x:1>", "a dog BREAK a bus"]
    found = Guarded(inner, checks=()).rewrite(prompts, pictures=shown)
    assert [group[0].text for group in found] == [
        "a cat, 0.0 <lora:x:1>",
        "a cat, 1.0 <lora:x:1>",
        "a dog, 0.5 BREAK a bus, 0.5",
    ]
    assert inner.seen == [("a cat", 0.0), ("a cat", 1.0), ("a dog", 0.5), ("a bus", 0.5)]
    with pytest.raises(T2XError, match="3 prompts but 1 pictures"):
        Guarded(inner).rewrite(prompts, pictures=shown[:1])
    noise = Guarded(make()).rewrite(PROMPTS, pictures=sizes())
    assert [group[0].text for group in noise] == PROMPTS  # random weights write nothing usable


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("Change: Turn the left mug blue\nKeep: Keep the hand and the table as they are.",
         "Turn the left mug blue. Keep the hand and the table as they are."),
        ("Change: Turn the mug blue.\n\nKeep: the hand, the table", "Turn the mug blue. Keep the "
         "hand, the table"),
        ("**Change:** Write \u201cA\nB\u201d on it.\n**Keep:** Keep the rest.",
         "Write \u201cA\nB\u201d on it. Keep the rest."),
        ("修改：把杯子变成蓝色\n保持：桌子和光线不变", "把杯子变成蓝色。保持桌子和光线不变"),
        ("<think>plan</think>Change: x\nKeep: Keep y", "x. Keep y"),
    ],
)  # fmt: skip
def test_an_edit_says_what_to_change_and_what_to_keep(written: str, text: str) -> None:
    assert read("turn it blue", Completion(written), TASKS["edit"]).text == text


@pytest.mark.parametrize(
    "written",
    ["Turn the mug blue.", "Change: turn it blue", "Keep: all", "Change:\nKeep: all",
     "Keep: all\nChange: x", "Change: turn it blue\nKeep: "],
)  # fmt: skip
def test_half_an_edit_is_none(written: str) -> None:
    found = read("turn it blue", Completion(written), TASKS["edit"])
    assert found.text == ""
    assert found.problem == "the answer does not say what to change and what to keep"


def test_a_film_gets_motion_in_the_targets_length() -> None:
    film = load_rewriter("vision-i2v", source=qwen("qwen2_vl"), device="cpu")
    assert isinstance(film, VisionRewriter) and film.model_id.endswith("(i2v)")
    words = film.template.instructions
    assert "moves" in words and "camera" in words and TARGETS["wan"].style in words
    other = load_rewriter("vision-i2v", source=qwen("qwen2_vl"), device="cpu", target="cogvideox")
    assert TARGETS["cogvideox"].style in other.template.instructions  # type: ignore[attr-defined]
    edit = make(template=None).for_target(TARGETS["flux"])
    assert edit.template == TASKS["edit"]


def test_a_call_changes_nothing_for_the_next() -> None:
    """A vendor's expander kept that it had seen a picture, and broke at the next plain prompt."""
    rewriter = make()
    first = raws(rewriter.rewrite(["a cat"], pictures=pictures(1)))
    with pytest.raises(T2XError, match="give pictures="):
        rewriter.rewrite(["a cat"])
    rewriter.rewrite(["a dog"], pictures=pictures(1, seed=3))
    assert raws(rewriter.rewrite(["a cat"], pictures=pictures(1))) == first


def test_a_closed_end_is_read_and_an_open_one_is_cut() -> None:
    result = make().rewrite(["a cat", ""], pictures=pictures(2))
    assert result[0][0].checks[0].reason == "cut off before its end"
    assert result[1][0].checks[0].reason == "the prompt is empty"


def test_mistakes_are_told() -> None:
    with pytest.raises(T2XError, match="2 prompts but 1 pictures"):
        make().rewrite(["a", "b"], pictures=pictures(1))
    with pytest.raises(T2XError, match="has the shape"):
        make().rewrite(["a"], pictures=[torch.zeros(1, 1, 8, 8)])
    with pytest.raises(T2XError, match="unknown task 'paint'"):
        VisionRewriter.from_pretrained(qwen("qwen2_vl"), task="paint", device="cpu")
    with pytest.raises(T2XError, match="no chat template"):
        VisionRewriter.from_pretrained(blip2_t5(), device="cpu")
    with pytest.raises(T2XError, match="needs a vision-language model"):
        load_rewriter("vision-edit")


def test_the_embedded_model_loads_by_name() -> None:
    """It only answers questions, so that the guard has to give the prompt back."""
    template = replace(TASKS["edit"], max_new_tokens=8)
    rewriter = load_rewriter("vision-edit:emoji-vlm", device="cpu", template=template)
    assert rewriter.model_id == "emoji-vlm (edit)"
    (result,) = Guarded(rewriter).rewrite(["make it red"], pictures=pictures(1))[0]
    assert (result.text, result.status) == ("make it red", "failed")


@pytest.mark.parametrize(
    ("prompt", "written", "task", "status"),
    [
        ("make the mug blue", "Change: Turn the left mug blue.\nKeep: Keep the hand, the "
         "table and the light as they are.", "edit", "accepted"),
        ("remove the hat", "Change: Remove the hat and show the hair.\nKeep: Keep the face, "
         "the pose and the background as they are.", "edit", "accepted"),
        ('write "OPEN" on the door', 'Change: Write "TEXT1" on the green door in white letters.\n'
         "Keep: Keep everything else.", "edit", "accepted"),
        ("add two birds", "Change: Add three birds to the sky.\nKeep: Keep the rest.", "edit",
         "reverted"),
        ("the girl waves", "The girl lifts her right hand and waves slowly while her hair moves in "
         "the wind; the camera stays still.", "i2v", "accepted"),
    ],
)  # fmt: skip
def test_the_guard_judges_edits_and_films(
    prompt: str, written: str, task: str, status: str
) -> None:
    class Inner:
        model_id = "inner"

        def rewrite(self, prompts: Any, *, pictures: Any, num_generations: int, seed: int) -> Any:
            done = Completion(written)
            return [[answer(p, done, TASKS[task], seed=0, model_id="m")] for p in prompts]

    result = Guarded(Inner()).rewrite([prompt], pictures=pictures(1))[0][0]
    assert result.status == status, result.checks
    assert ('"OPEN"' in result.text) is ('"OPEN"' in prompt)
