"""Each method does what its paper says, in a world whose best text is known."""

from __future__ import annotations

from typing import Any

import pytest

from t2x.errors import T2XError, UnknownNameError
from t2x.registry import load_rewriter
from t2x.rewriters.templates import GENERAL, Template
from t2x.search import (
    METHODS,
    BestOfN,
    Cooperative,
    CritiqueRefine,
    Evolution,
    Reflective,
    SearchRewriter,
    instructions,
    load_search,
    make_method,
)
from t2x.search.evolution import OPERATORS
from t2x.search.mending import fault_words
from t2x.search.records import Candidate, Shot
from t2x.search.reflective import pareto_parents
from t2x.types import Rewrite

from .worlds import PROMPT, WORDS, Chat, Endings, Points, Redness, WordPainter

CRITIC_SAYS = "no, there is no fox"


class Critic:
    """Says that there is no fox until the picture is fully red."""

    name = "critic"

    def details(self, prompts: Any, media: Any) -> list[list[Any]]:
        rows = []
        for item in media:
            good = float(item[0].mean()) > 0.99

            class Critique:
                dimension = "faithfulness"
                score = float(good)
                text = "yes" if good else CRITIC_SAYS

            rows.append([Critique()])
        return rows


def history_of(method: Any, rewriter: Any = None, budget: int = 12, **options: Any) -> Any:
    search = SearchRewriter(
        rewriter or Endings(), WordPainter(), [Redness()], method=method, budget=budget, **options
    )
    [history] = search.search([PROMPT], seed=1)
    return history


# ---- evolution ----------------------------------------------------------------------------------


def test_evolution_finds_what_no_single_answer_has() -> None:
    """Answers have one good word each; children of two parents have both."""
    endings = Endings((WORDS[0], WORDS[1], WORDS[3]))
    once = history_of(BestOfN(), endings, 16)
    evolved = history_of(Evolution("ga"), endings, 16)
    assert once.winner.mean() == pytest.approx(0.25, abs=0.01)
    assert evolved.winner.mean() >= 0.49
    assert evolved.winner.parents and len(evolved.lineage()) >= 3
    assert set(evolved.lineage()) >= set(evolved.winner.parents)


@pytest.mark.parametrize("operators", OPERATORS)
def test_every_set_of_operators_makes_children_of_the_best(operators: str) -> None:
    history = history_of(Evolution(operators), Endings((*WORDS, "in detail", "by a lake")), 16)
    children = [c for c in history.candidates if c.parents]
    assert children and all(c.turn >= 2 for c in children)
    for child in children:
        before = [c for c in history.candidates if c.turn < child.turn]
        # Scores of the first seed alone; the last rounds of seeds came after all children.
        top = sorted((next(iter(c.shots.values())).score for c in before), reverse=True)[:3]
        for n in child.parents:
            assert next(iter(history.candidates[n].shots.values())).score >= top[-1]


def test_children_come_in_rounds_of_three() -> None:
    history = history_of(Evolution(first=2), Endings((*WORDS, "in detail", "by a lake")), 12)
    sizes = [sum(c.turn == t for c in history.candidates) for t in (0, 1, 2)]
    assert sizes == [1, 2, 3]


def test_instructed_evolution_shows_prompts_with_their_scores() -> None:
    def do(template: Template, body: str, g: int) -> str:
        if template is GENERAL or template.system == GENERAL.system:
            return f"{body}, {WORDS[g % 2]}"
        return f"{PROMPT}, {WORDS[0]}, {WORDS[1]}, {WORDS[len(body) % 4]}"

    chat = Chat(do)
    history = history_of(Evolution("prompt-a-video"), chat, 8)
    assert history.settings["operators"] == "instructions to the rewriter"
    bodies = [body for template, body in chat.told if template is instructions.HISTORY]
    assert bodies and all(
        body.startswith(f"Request: {PROMPT}\nscore 0.251: ") for body in bodies[:1]
    )
    assert history.winner.operator == "history (instruction)"
    assert history.winner.rewrite.original == PROMPT


@pytest.mark.parametrize("operators", ["ga", "de", "promptbreeder", "spell", "mixed"])
def test_instructed_operators_are_checked_like_any_other(operators: str) -> None:
    chat = Chat(lambda template, body, g: "Sure! Here is your prompt: a blue wolf")
    history = history_of(Evolution(operators), chat, 6)
    assert {c.rewrite.text.partition(",")[0] for c in history.candidates} == {PROMPT}
    assert any("reverted" in r.reason for r in history.refusals)


# ---- reflective ---------------------------------------------------------------------------------


def candidate(number: int, score: float, **points: float) -> Candidate:
    shot = Shot(0, None, {"r": score}, score)
    return Candidate(number, ("x",), Rewrite("x", "x"), "", shots={0: shot}, points=points)


def test_parents_are_the_pareto_front_weighted_by_what_they_are_best_in() -> None:
    rows = [
        candidate(0, 0.1, count=0.1, layout=0.1),  # dominated
        candidate(1, 0.5, count=0.9, layout=0.2),
        candidate(2, 0.4, count=0.3, layout=0.8),
        candidate(3, 0.5, count=0.8, layout=0.3),
    ]
    assert pareto_parents(rows) == {1: 3, 2: 2, 3: 2}
    assert pareto_parents(rows[:1]) == {0: 4}
    assert pareto_parents([]) == {}


def test_reflection_mends_and_a_child_that_is_worse_is_no_parent() -> None:
    history = history_of(Reflective(Points()), Endings(("in detail", *WORDS)), 14)
    assert history.winner.mean() > 0.25
    bad = {
        c.number
        for c in history.candidates
        if c.parents and c.mean() < max(history.candidates[n].mean() for n in c.parents)
    }
    assert not bad & {n for c in history.candidates for n in c.parents}


def test_an_instructed_rewriter_is_told_the_key_points_that_are_wrong() -> None:
    chat = Chat(lambda template, body, g: f"{PROMPT}, {WORDS[g % 4]}")
    points = Points()
    history = history_of(Reflective(points), chat, 6)
    body = next(body for template, body in chat.told if template is instructions.MEND)
    assert body.startswith(f"Request: {PROMPT}\nPrompt: {PROMPT}")
    assert "Fault: sharp focus (right with probability 0%); soft light" in body
    assert points.looked == len(history.candidates)


def test_fault_words_are_those_of_the_critique_or_of_the_point() -> None:
    asked = frozenset({"fox", "snow", "two", "left"})
    one = candidate(1, 0.5, counting=0.1)
    one.parts = ("two foxes left of snow",)
    assert fault_words(one, asked) == {"two"}
    assert "left" in fault_words(candidate(1, 0.5, layout=0.1), asked)
    assert fault_words(candidate(1, 0.5, overall=0.1), asked) == asked
    one.remarks = ("no, there is no fox",)
    assert fault_words(one, asked) == {"fox"}


# ---- critique-refine ----------------------------------------------------------------------------


def test_refining_goes_on_from_the_best_until_the_critic_is_content() -> None:
    chat = Chat(lambda template, body, g: _with_one_more(body))
    history = history_of(CritiqueRefine(Critic()), chat, 12)
    bodies = [body for template, body in chat.told if template is instructions.MEND]
    assert bodies and all(CRITIC_SAYS in body for body in bodies)
    chain = [c for c in history.candidates if c.operator == "refine (instruction)"]
    assert [c.parents for c in chain] == [(c.number - 1,) for c in chain]
    assert history.winner.mean() > 0.99 and len(history.candidates) == 5
    assert history.cost.pictures == 12  # what is left confirms the leaders
    assert len(history.winner.shots) > 1


def _with_one_more(body: str) -> str:
    text = body.partition("Prompt: ")[2].partition("\n")[0] or body
    return f"{text}, {next((w for w in WORDS if w not in text), 'more')}"


def test_without_instructions_the_fault_is_mended_on_clauses() -> None:
    history = history_of(CritiqueRefine(Critic()), Endings(("soft light",)), 6)
    operators = {c.operator for c in history.candidates}
    assert operators & {"fault first", "fault said twice"}
    assert any(c.remarks == (CRITIC_SAYS,) for c in history.candidates)


# ---- cooperative --------------------------------------------------------------------------------


def test_prompters_take_turns_and_see_what_was_written() -> None:
    def do(template: Template, body: str, g: int) -> str:
        if template is instructions.FOUND:
            return f"{PROMPT}, {WORDS[3]}"
        return WORDS[0] if template is instructions.ARRANGE else WORDS[1]

    chat = Chat(do)
    history = history_of(Cooperative(tries=1), chat, 5)
    texts = [c.rewrite.text for c in history.candidates]
    first = f"{PROMPT}, {WORDS[3]}"
    assert texts == [PROMPT, first, f"{first}, {WORDS[0]}", f"{first}, {WORDS[0]}, {WORDS[1]}"]
    assert [c.operator for c in history.candidates[1:]] == ["subject", "arrangement", "style"]
    seen = [b for t, b in chat.told if t in (instructions.ARRANGE, instructions.CROWN)]
    assert f"Written so far: {first}" in seen[0] and f"{first}, {WORDS[0]}" in seen[1]


def test_on_clauses_the_first_prompter_is_the_rewriter() -> None:
    history = history_of(Cooperative(), Endings(("soft light, snowflakes", "in detail")), 9)
    by_role = {c.operator: c for c in history.candidates}
    assert set(by_role) == {"no rewrite", "subject", "arrangement", "style"}
    assert by_role["style"].parents and by_role["arrangement"].parents


# ---- by name ------------------------------------------------------------------------------------


def test_methods_have_names() -> None:
    made = [make_method(n, **({} if n != "reflective" else {"inspector": Points()}))
            for n in ("best-of-n", "evolution", "reflective", "cooperative")]  # fmt: skip
    assert [m.name for m in made] == list(METHODS)[:4]
    assert make_method("critique-refine", critic=Critic()).name == "critique-refine"
    assert make_method("evolution:de").operators == "de"
    for name in ("annealing", "best-of-n:ga"):
        with pytest.raises(UnknownNameError, match="allowed: best-of-n, evolution"):
            make_method(name)
    with pytest.raises(T2XError, match="unknown operators 'xx'; allowed: prompt-a-video"):
        make_method("evolution:xx")


def test_the_registry_knows_each_search() -> None:
    parts: dict[str, Any] = {"rewriter": Endings(), "generator": WordPainter()}
    for name in METHODS:
        options = {"method_options": {"inspector": Points()}} if name == "reflective" else {}
        if name == "critique-refine":
            options = {"method_options": {"critic": Critic()}}
        search = load_rewriter(f"search:{name}", **parts, rewards=Redness(), budget=3, **options)
        assert search.model_id == f"search:{name}(endings)"


def test_what_can_not_look_at_pictures_is_refused() -> None:
    for method in (Reflective, CritiqueRefine):
        with pytest.raises(T2XError, match=r"Redness .*details"):
            method(Redness())


def test_the_embedded_world_is_searched_by_default() -> None:
    search = load_search("cooperative", budget=4)
    [history] = search.search(["two kittens on a sofa"])
    assert history.settings["operators"] == "clauses"  # emoji-rewriter knows one task
    assert history.cost.lm_calls > 0 and history.cost.pictures == 4
    assert history.shot is not None and history.shot.picture.shape == (3, 64, 64)


def test_parents_on_record_are_those_that_were_used() -> None:
    """Every clause of a crossover or style swap comes from one of its parents."""
    for seed in range(4):
        search = SearchRewriter(
            Endings((*WORDS, "by a lake", "in detail")), WordPainter(), [Redness()],
            method=Evolution("ga", children=4), budget=16,
        )  # fmt: skip
        [history] = search.search([PROMPT], seed=seed)
        children = [c for c in history.candidates if c.operator in ("crossover", "style swap")]
        assert children
        for child in children:
            had = " ".join(history.candidates[n].rewrite.text for n in child.parents)
            assert all(clause in had for clause in child.rewrite.text.split(", "))


def test_a_model_is_asked_for_new_answers_each_time() -> None:
    chat = Chat(lambda template, body, g: f"{PROMPT}, variant {'abcdefghij'[g]}")
    history = history_of(Evolution("prompt-a-video", first=1, children=2), chat, 8)
    texts = [c.rewrite.text for c in history.candidates]
    assert len(texts) == len(set(texts)) >= 4
