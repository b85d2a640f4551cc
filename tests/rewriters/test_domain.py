"""The emoji world's words, so that a translation is not taken for a loss."""

from __future__ import annotations

import random
from typing import Any

import pytest

from t2x.errors import T2XError
from t2x.rewriters.domain import domain_named
from t2x.rewriters.guarded import Guarded
from t2x.world.captions import caption
from t2x.world.prompts import UserPrompt, validation_prompts
from t2x.world.scene import Scene
from t2x.world.teacher import STYLE_SHARES

emoji = domain_named("emoji")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("the animal with a trunk", "the elephant"),
        ("Two kittens to the left of a crimson slice of pizza", "two cats the of a red pizza"),
        ("a long day at work, so cheer me up with one blue bus", "a , one blue bus"),
        ("not cakes but a giraffe", "not cakes but a giraffe"),
        ("a road seen from the air", "a road seen from the air"),
    ],
)
def test_canonical(text: str, words: str) -> None:
    assert emoji.canonical(text) == words


def test_no_domain_leaves_text_alone() -> None:
    assert domain_named("").canonical("a  Kitten") == "a  Kitten"
    with pytest.raises(T2XError, match="emoji"):
        domain_named("martian")


def told(prompts: list[UserPrompt], shift: int) -> dict[str, str]:
    """Captions of each prompt's scene, or with ``shift`` of another one's."""
    rng = random.Random(0)
    styles = tuple(STYLE_SHARES)
    return {
        p.text.strip(): caption(
            prompts[(i + shift) % len(prompts)].scene, rng.choice(styles), rng.getrandbits(32)
        )
        for i, p in enumerate(prompts)
    }


@pytest.mark.parametrize(("shift", "low", "high"), [(0, 0.0, 0.03), (7, 0.93, 1.0)])
def test_the_guard_tells_right_from_wrong_captions(
    scripted: Any, shift: int, low: float, high: float
) -> None:
    """At most 3 % of right captions are reverted, and at least 93 % of those of other scenes."""
    prompts = validation_prompts(400)
    answers = told(prompts, shift)
    guarded = Guarded(scripted(answers.__getitem__), domain=emoji)
    results = [group[0] for group in guarded.rewrite([p.text for p in prompts])]
    share = sum(r.status == "reverted" for r in results) / len(results)
    assert low <= share <= high


def test_the_guard_sees_a_dropped_thing(scripted: Any) -> None:
    """A caption of the first group alone, every count, colour and style of which is right."""
    pairs = [p for p in validation_prompts(400) if len(p.scene.groups) == 2]
    first = [Scene(p.scene.groups[:1]) for p in pairs]
    answers = {p.text.strip(): caption(s, "sentence", 0) for p, s in zip(pairs, first, strict=True)}
    guarded = Guarded(scripted(answers.__getitem__), domain=emoji)
    results = [group[0] for group in guarded.rewrite([p.text for p in pairs])]
    assert len(results) > 100
    assert sum(r.status == "reverted" for r in results) / len(results) >= 0.97
    reasons = [c.reason for r in results for c in r.checks if c.name == "things_kept"]
    assert sum("is gone" in reason for reason in reasons) > 0.9 * len(results)


def test_nothing_like_rules_out(scripted: Any) -> None:
    guarded = Guarded(scripted(lambda _: "one object. center: a zebra."), domain=emoji)
    assert guarded.rewrite(["a zebra and nothing like bears"])[0][0].status == "accepted"


def test_a_rewriter_brings_its_domain(chat_model: Any, chat_tokenizer: Any) -> None:
    from t2x.rewriters.language_model import LanguageModelRewriter
    from t2x.rewriters.templates import Template

    rewriter = LanguageModelRewriter(chat_model, chat_tokenizer, template=Template(domain="emoji"))
    assert rewriter.domain.canonical("a kitten") == "a cat"
