"""Several prompters write one prompt in turns and are one rewriter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import t2x
from t2x.errors import T2XError
from t2x.rewriters.completion import Completion
from t2x.rewriters.domain import domain_named
from t2x.rewriters.language_model import LanguageModelRewriter
from t2x.rewriters.templates import Template
from t2x.rewriters.turns import (
    Draft,
    Prompter,
    TurnsRewriter,
    join_parts,
    joint_completion,
    save_turns,
)
from t2x.training.config import PolicyConfig
from t2x.training.policy import load_policy

PROMPTS = ["two cats", "a dog to the left of a red bus"]


class Scripted:
    """Answers from a table of what it is asked, else with the same words."""

    temperature = None
    domain = domain_named("")

    def __init__(self, says: str, *, model_id: str = "scripted", **answers: Completion) -> None:
        self.template = Template(require_answer=True)
        self.says, self.model_id, self.answers = says, model_id, answers
        self.asked: list[tuple[str, int, float | None]] = []

    def complete(
        self, prompts: Sequence[str], *, num_generations: int = 1, seed: int = 0
    ) -> list[list[Completion]]:
        self.asked += [(p, seed, self.temperature) for p in prompts]
        return [[self._answer(p)] * num_generations for p in prompts]

    def _answer(self, prompt: str) -> Completion:
        if not prompt.strip():
            return Completion(problem="the prompt is empty")
        given = Completion(f"<answer>{self.says}</answer>")
        return next((a for word, a in self.answers.items() if word in prompt), given)


def prompter(role: str, says: str, **options: Any) -> Prompter:
    return Prompter(role, Scripted(says, **options))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("written", "part", "whole"),
    [
        ("two cats.", "soft light", "two cats, soft light"),
        ("two cats", " , soft light. ", "two cats, soft light"),
        ("two cats.", "Nothing.", "two cats."),
        ("two cats.", "", "two cats."),
        ("", "two cats", "two cats"),
    ],
)
def test_parts_are_joined(written: str, part: str, whole: str) -> None:
    assert join_parts(written, part) == whole


def test_each_prompter_sees_what_was_written() -> None:
    first, second = prompter("subject", "two cats on a sofa"), prompter("style", "soft light")
    [[rewrite]] = TurnsRewriter([first, second]).rewrite(["two kittens"])
    assert (rewrite.status, rewrite.text) == ("accepted", "two cats on a sofa, soft light")
    assert rewrite.raw == "<answer>two cats on a sofa</answer>\n<answer>soft light</answer>"
    [(asked, _, _)] = second.rewriter.asked  # type: ignore[attr-defined]
    assert asked == "Request: two kittens\nWritten so far: two cats on a sofa"


def test_a_prompt_fails_with_one_of_its_prompters_and_no_other_does() -> None:
    cut = Completion("<answer>soft", truncated=True)
    turns = TurnsRewriter(
        [
            prompter("subject", "a big animal", dog=Completion("a dog")),
            prompter("style", "soft light", cat=cut),
        ]
    )
    rows = turns.rewrite(["a dog", "a cat", "a cow", " "])
    assert [row[0].status for row in rows] == ["failed", "failed", "accepted", "failed"]
    reasons = [row[0].checks[0].reason for row in rows]
    assert reasons[0] == "subject: no closed answer block"
    assert reasons[1] == "style: cut off before its end"
    assert rows[1][0].text == "a cat"
    assert rows[1][0].raw == "<answer>a big animal</answer>\n<answer>soft"
    assert "empty" in reasons[3]


def test_a_negative_prompt_stays_beside_the_text() -> None:
    draft = Draft("two cats", negative="dogs")
    assert "Negative prompt: dogs" in joint_completion(draft).text
    said = Completion("<answer>two cats\nNegative prompt: dogs</answer>")
    turns = TurnsRewriter([prompter("a", "-", cats=said), prompter("b", "soft light")])
    [[rewrite]] = turns.rewrite(["cats"])
    assert (rewrite.text, rewrite.negative) == ("two cats, soft light", "dogs")


def test_further_generations_are_sampled_with_seeds_of_their_own() -> None:
    second = prompter("style", "soft light")
    turns = TurnsRewriter([prompter("subject", "two cats"), second])
    turns.rewrite(["cats"], num_generations=3, seed=5)
    asked = second.rewriter.asked  # type: ignore[attr-defined]
    assert [row[2] for row in asked] == [None, 0.8, 0.8]
    assert len({row[1] for row in asked}) == 3


def test_wrong_prompters_are_refused() -> None:
    with pytest.raises(T2XError, match="at least one"):
        TurnsRewriter([])
    with pytest.raises(T2XError, match="roles of their own"):
        TurnsRewriter([prompter("a", "x"), prompter("a", "y")])
    late = replace(prompter("b", "y"), sees="prompt")
    with pytest.raises(T2XError, match="only the first"):
        TurnsRewriter([prompter("a", "x"), late])


def test_one_prompter_writes_what_its_rewriter_writes() -> None:
    alone = t2x.load_rewriter("emoji-rewriter")
    assert isinstance(alone, LanguageModelRewriter)
    turns = TurnsRewriter([Prompter("subject", alone, "prompt")])
    wanted = alone.rewrite(PROMPTS, num_generations=2, seed=3)
    found = turns.rewrite(PROMPTS, num_generations=2, seed=3)
    assert [[r.text for r in row] for row in found] == [[r.text for r in row] for row in wanted]
    assert [r.reasoning for r in found[1]] == [r.reasoning for r in wanted[1]]


def test_a_saved_folder_loads_as_one_rewriter(tmp_path: Path) -> None:
    first, second = load_policy(PolicyConfig()), load_policy(PolicyConfig("emoji-lm"))
    second = replace(second, template=Template(max_new_tokens=6, top_p=1.0, domain="emoji"))
    save_turns([("subject", "prompt", first), ("style", "turns", second)], tmp_path)
    turns = t2x.load_rewriter(str(tmp_path))
    assert isinstance(turns, TurnsRewriter)
    assert isinstance(t2x.load_rewriter(tmp_path), TurnsRewriter)
    assert turns.model_id == tmp_path.name
    assert [(p.role, p.sees) for p in turns.prompters] == [
        ("subject", "prompt"),
        ("style", "turns"),
    ]
    together = turns.rewrite(PROMPTS, num_generations=2)
    alone = turns.rewrite(PROMPTS[1:], num_generations=2)
    assert [r.raw for r in together[1]] == [r.raw for r in alone[0]]
    assert turns.rewrite(PROMPTS, num_generations=2) == together
    with pytest.raises(T2XError, match="can't be trained"):
        load_policy(PolicyConfig(str(tmp_path)))
    (tmp_path / "t2x.json").write_text('{"turns": [{"role": "a"}]}')
    with pytest.raises(T2XError, match="role, folder and sees"):
        t2x.load_rewriter(str(tmp_path))
