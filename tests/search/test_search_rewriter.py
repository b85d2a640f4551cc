"""The search as a whole: its budget, its fairness, its contract as a rewriter."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
import torch

from t2x.errors import T2XError
from t2x.rewriters.guarded import Guarded
from t2x.rewriters.loading import load_guarded
from t2x.scoring.ensemble import RewardEnsemble
from t2x.search import (
    BestOfN,
    Cooperative,
    CritiqueRefine,
    Evolution,
    Reflective,
    SearchRewriter,
)
from t2x.search.history import History
from t2x.search.records import Candidate, Shot, Track
from t2x.search.rewriter import read_details
from t2x.search.writer import Ask, Writer
from t2x.testing import FakeGenerator, FakeReward, FakeRewriter
from t2x.types import Rewrite, Rewriter

from .worlds import PROMPT, WORDS, Endings, Points, Redness, WordPainter

METHODS = {
    "best-of-n": BestOfN,
    "evolution": Evolution,
    "reflective": lambda: Reflective(Points()),
    "cooperative": Cooperative,
    "critique-refine": lambda: CritiqueRefine(Points()),
}


def searching(method: str = "best-of-n", **options: Any) -> SearchRewriter:
    parts = {"rewriter": Endings(), "generator": WordPainter(), "rewards": [Redness()]}
    parts |= {k: options.pop(k) for k in list(options) if k in parts}
    return SearchRewriter(*parts.values(), method=METHODS[method](), **options)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_spends_its_budget_and_not_one_picture_more(method: str) -> None:
    painter = WordPainter()
    search = searching(method, generator=painter, budget=7)
    [history] = search.search([PROMPT])
    assert history.cost.pictures == 7
    assert len(painter.calls) == 7
    assert len(set(painter.calls)) == 7  # no text and seed is drawn twice
    assert sum(len(c.shots) for c in history.candidates) == 7
    assert history.cost.reward_calls == 7 + (len(history.candidates) if "-ref" in method else 0) + (
        len(history.candidates) if method == "reflective" else 0
    )


@pytest.mark.parametrize("method", METHODS)
def test_the_user_s_words_come_first_and_all_start_from_the_same_noise(method: str) -> None:
    [history] = searching(method, budget=8).search([PROMPT], seed=5)
    own = history.candidates[0]
    assert own.rewrite.text == PROMPT and own.operator == "no rewrite"
    assert {next(iter(c.shots)) for c in history.candidates} == {5}
    assert all(list(c.shots) == list(range(5, 5 + len(c.shots))) for c in history.candidates)


@pytest.mark.parametrize("method", METHODS)
def test_a_prompt_gets_the_same_alone_and_in_company(method: str) -> None:
    others = ["a blue boat", "two dogs on a bench", PROMPT, "an old clock, night"]
    company = searching(method, budget=8).search(others, seed=3)
    [alone] = searching(method, budget=8).search([PROMPT], seed=3)
    (same,) = [h for h in company if h.prompt == PROMPT]
    assert [c.rewrite for c in same.candidates] == [c.rewrite for c in alone.candidates]
    assert [c.mean() for c in same.candidates] == [c.mean() for c in alone.candidates]
    assert same.winner.rewrite == alone.winner.rewrite
    assert same.lineage() == alone.lineage()


@pytest.mark.parametrize("method", METHODS)
def test_the_winner_is_better_than_the_user_s_words_or_is_them(method: str) -> None:
    [history] = searching(method, budget=8).search([PROMPT])
    assert history.winner.mean() > history.candidates[0].mean()
    flat = searching(method, budget=8, generator=WordPainter(words=("nothing has this",)))
    [history] = flat.search([PROMPT])
    assert history.winner.number == 0
    [[rewrite]] = flat.rewrite([PROMPT])
    assert rewrite.text == PROMPT and rewrite.status == "unchanged"
    assert rewrite.checks[-1].name == "search" and "scored higher" in rewrite.checks[-1].reason


def test_pictures_are_scored_against_the_user_s_words_after_eight_bits() -> None:
    reward = Redness()
    [history] = searching(rewards=[reward], budget=5).search([PROMPT])
    assert set(reward.prompts) == {PROMPT}
    for candidate in history.candidates:
        for shot in candidate.shots.values():
            assert shot.picture.dtype == torch.uint8
            assert shot.score == pytest.approx(float(shot.picture[0].float().mean() / 255))


def test_best_of_n_draws_each_answer_once_and_puts_the_rest_into_seeds_of_the_leaders() -> None:
    search = searching(rewriter=Endings(("in detail", "in detail", WORDS[0])), budget=8)
    [history] = search.search([PROMPT])
    assert [c.rewrite.text for c in history.candidates] == [
        PROMPT, f"{PROMPT}, in detail", f"{PROMPT}, {WORDS[0]}",
    ]  # fmt: skip
    assert Counter(len(c.shots) for c in history.candidates) == {4: 1, 3: 1, 1: 1}
    assert len(history.winner.shots) == 4
    assert all(r.reason == "tried before" for r in history.refusals) and history.refusals


def test_seeds_and_confirmation_are_kept_from_the_candidates() -> None:
    endings = [f"number {word}" for word in ["one", "two", "three", "four", "five", "six", "seven"]]
    [history] = searching(rewriter=Endings(endings), budget=8, seeds=2).search([PROMPT])
    assert [len(c.shots) for c in history.candidates] == [2, 2, 2, 2]
    [history] = searching(rewriter=Endings(("in detail", *WORDS)), budget=8, confirm=4).search(
        [PROMPT]
    )
    assert len(history.candidates) == 4
    assert sorted(len(c.shots) for c in history.candidates) == [1, 1, 3, 3]


def test_what_the_guard_refuses_is_never_drawn() -> None:
    class Loses(Endings):
        def _one(self, prompt: str, ending: str) -> Rewrite:
            return Rewrite(prompt, f"a blue wolf, {ending}")

    painter = WordPainter()
    [history] = searching(rewriter=Loses(), generator=painter, budget=4).search([PROMPT])
    assert {text for text, _ in painter.calls} == {PROMPT}
    assert history.winner.number == 0
    reasons = [r.reason for r in history.refusals]
    assert sum(r.startswith("reverted: ") for r in reasons) == 3  # the others repeat those
    assert set(reasons[3:]) <= {"tried before"}


def test_protected_text_is_in_every_picture_s_prompt() -> None:
    prompt = 'a red fox <lora:snow_v2:0.8> beside a sign that says "Zoë, stop"'
    for method in METHODS:
        painter = WordPainter()
        list(searching(method, generator=painter, budget=8).search([prompt]))
        assert len({text for text, _ in painter.calls}) > 1
        for text, _ in painter.calls:
            assert text.count("<lora:snow_v2:0.8>") == 1 and text.count('"Zoë, stop"') == 1


def test_it_is_a_rewriter_and_guards_itself() -> None:
    search = searching(budget=6)
    assert isinstance(search, Rewriter)
    assert load_guarded(search) is search
    with pytest.raises(T2XError, match="guarded already takes no checks"):
        load_guarded(search, checks=())
    rows = search.rewrite([PROMPT, "a blue boat"], num_generations=3, seed=2)
    assert [len(row) for row in rows] == [3, 3]
    best, second, third = rows[0]
    assert best.original == PROMPT and best.status == "accepted" and best.checks
    assert best.scores["search/score"] >= second.scores["search/score"]
    assert best.scores["redness"] == best.scores["search/score"]
    assert best.scores["search/pictures"] >= 1
    assert third.text == PROMPT and not third.checks[-1].passed  # no third one was better
    assert best.model_id == "search:best-of-n(endings)"
    assert search.rewrite([]) == []
    with pytest.raises(TypeError, match="list of strings"):
        search.rewrite(PROMPT)


def test_what_is_not_measured_is_no_score() -> None:
    [[rewrite]] = searching(rewards=[Redness(fails_on="fox")], budget=4).rewrite([PROMPT])
    assert rewrite.text == PROMPT
    assert rewrite.checks[-1].reason == "nothing was scored"
    assert math.isnan(rewrite.scores["search/score"])


def test_an_empty_prompt_costs_nothing_and_stops_no_other() -> None:
    painter = WordPainter()
    empty, full = searching(generator=painter, budget=4).search([" ", PROMPT])
    assert empty.cost.pictures == 0 and empty.winner.rewrite.text == " "
    assert empty.winner.rewrite.checks[0].reason == "the prompt is empty"
    assert full.cost.pictures == 4


def test_rounds_are_drawn_together_over_prompts() -> None:
    painter = WordPainter()
    prompts = [f"a fox and {n} birds" for n in ("two", "three", "four", "five")]
    list(searching(generator=painter, budget=3, batch_size=8).search(prompts))
    assert painter.batches == [4, 8]


def test_memory_does_not_grow_with_the_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("t2x.search.rewriter.CHUNK", 2)
    search = searching(budget=3)
    prompts = [f"a fox and {n} birds" for n in ("two", "three", "four", "five", "six")]
    for history in search.search(prompts):
        assert len(search.evaluator) == 0 and history.cost.pictures == 3
    assert search.writer.guarded.rewriter.asked  # its answers are forgotten as well
    asked = len(search.writer.guarded.rewriter.asked)
    list(search.search(prompts[:1]))
    assert len(search.writer.guarded.rewriter.asked) > asked


def test_two_searches_share_a_studio_and_both_are_charged() -> None:
    painter = WordPainter()
    first = searching(generator=painter, budget=4)
    second = SearchRewriter.sharing(first.evaluator, first.writer, BestOfN(), budget=4)
    [one], [two] = first.search([PROMPT]), second.search([PROMPT])
    assert len(painter.calls) == 4 * 2  # the owner forgets its pictures
    third = SearchRewriter.sharing(first.evaluator, first.writer, BestOfN(), budget=4)
    [three] = third.search([PROMPT])
    assert len(painter.calls) == 4 * 2 and three.cost.pictures == 4
    assert one.cost.pictures == two.cost.pictures == 4
    assert two.cost.seconds["drawing"] == three.cost.seconds["drawing"] > 0
    assert one.winner.rewrite == two.winner.rewrite


def test_weights_and_ensembles_choose() -> None:
    class Blueness(Redness):
        name = "blueness"

        def score(self, prompts, media, *, context=None):
            return torch.stack([1 - item[0].mean() for item in media])

    both = [Redness(), Blueness()]
    [up] = searching(rewards=both, weights={"blueness": 0.0}, budget=4).search([PROMPT])
    [down] = searching(rewards=both, weights={"blueness": 2.0}, budget=4).search([PROMPT])
    assert up.winner.number > 0 and down.winner.number == 0
    ensemble = RewardEnsemble(both, {"blueness": 0.0}, name="mine")
    [same] = searching(rewards=ensemble, budget=4).search([PROMPT])
    assert same.winner.rewrite == up.winner.rewrite


def test_bad_settings_are_refused_in_plain_words() -> None:
    for options, words in (
        ({"budget": 1}, "at least 2"),
        ({"budget": 4, "seeds": 5}, "seeds is 5"),
        ({"budget": 4, "confirm": 3}, "confirm 3"),
    ):
        with pytest.raises(T2XError, match=words):
            searching(**options)
    batchwise = RewardEnsemble([Redness()], combine="gdpo")
    with pytest.raises(T2XError, match="another score in another batch"):
        searching(rewards=batchwise)
    with pytest.raises(T2XError, match="makes videos"):
        searching(generator=FakeGenerator("video"))
    with pytest.raises(T2XError, match="4 different seeds for each of 1"):
        list(searching(budget=4).search([PROMPT], picture_seeds=[[1, 1, 2, 3]]))


def test_videos_are_searched_as_pictures_are() -> None:
    search = SearchRewriter(
        FakeRewriter(), FakeGenerator("video"), [FakeReward(modality="video")],
        method=BestOfN(), budget=4,
    )  # fmt: skip
    [history] = search.search([PROMPT])
    assert history.shot is not None and history.shot.picture.ndim == 4
    assert history.cost.pictures == 4


def test_flops_are_counted_when_asked_for() -> None:
    class Multiplies(WordPainter):
        def generate(self, prompts, **options):
            torch.ones(len(prompts), 2, 3) @ torch.ones(len(prompts), 3, 5)
            return super().generate(prompts, **options)

    [plain] = searching(generator=Multiplies(), budget=4).search([PROMPT])
    assert math.isnan(plain.cost.flops)
    [counted] = searching(generator=Multiplies(), budget=4, count_flops=True).search([PROMPT])
    assert counted.cost.flops == 4 * 2 * 2 * 3 * 5


def test_the_noise_of_seeds_is_told() -> None:
    class Wavers(Redness):
        def score(self, prompts, media, *, context=None):
            return torch.stack([item[2].mean() * 255 for item in media])  # the seed itself

    steady = searching(rewriter=Endings(("in detail",)), budget=6)
    [history] = steady.search([PROMPT], seed=10)
    assert history.noise() == pytest.approx(0, abs=1e-6)
    wavering = searching(rewriter=Endings(("in detail",)), budget=6, rewards=[Wavers()])
    [history] = wavering.search([PROMPT], seed=10)  # two texts, seeds 10, 11, 12 each
    assert history.noise() == pytest.approx(1, abs=1e-4)
    [once] = searching(rewriter=Endings(("in detail",)), budget=2).search([PROMPT])
    assert math.isnan(once.noise())


def test_a_search_by_name_draws_with_the_generator_that_it_is_for() -> None:
    painter = WordPainter()
    search = load_guarded("search:best-of-n", generator=painter)
    assert isinstance(search, SearchRewriter) and search.evaluator.generator is painter


def test_details_of_both_kinds_of_inspectors_are_read() -> None:
    points, remarks = read_details({"relations": {"layout": 0.2}, "overall": {"overall": 0.9}})
    assert points == {"layout": 0.2, "overall": 0.9} and remarks == ()

    class Critique:
        def __init__(self, score: float | None, text: str) -> None:
            self.dimension, self.score, self.text = text, score, text

    found = [Critique(0.5, "blurred"), Critique(None, "n/a"), Critique(math.nan, "unread")]
    assert read_details(found) == ({"blurred": 0.5}, ("blurred", "n/a", "unread"))


def test_the_guard_of_the_caller_is_used() -> None:
    guarded = Guarded(Endings())
    search = searching(rewriter=guarded, budget=4)
    assert search.writer.guarded.rewriter is guarded.rewriter


class Counting(Endings):
    """A model that counts the texts that it writes."""

    def __init__(self) -> None:
        super().__init__(tuple(f"look {i}" for i in range(40)))
        self.model, self.written = "a model", 0

    def rewrite(self, prompts: Any, *, num_generations: int = 1, seed: int = 0) -> Any:
        self.written += len(prompts) * num_generations
        return super().rewrite(prompts, num_generations=num_generations, seed=seed)


def test_texts_that_are_written_again_are_charged() -> None:
    model = Counting()
    writer = Writer(load_guarded(model))
    track = Track(PROMPT, (PROMPT,), (0,), 8, 0)
    for _ in range(5):  # writes 1, then 2, 4 and 8 texts
        writer.ask([Ask(track, track.sources)])
    assert track.cost.lm_calls == model.written == 15
    beside = Track(PROMPT, (PROMPT,), (0,), 8, 0)
    for _ in range(5):
        writer.ask([Ask(beside, beside.sources)])
    assert model.written == 15 and beside.cost.lm_calls == 15  # as if it had been alone


@pytest.mark.parametrize("method", METHODS)
def test_a_search_is_charged_for_all_that_it_made_the_model_write(method: str) -> None:
    model = Counting()
    [history] = searching(method, rewriter=model, budget=12).search([PROMPT])
    assert history.cost.lm_calls == model.written > 0


def test_more_texts_are_compared_with_the_user_s_on_seeds_of_both() -> None:
    def candidate(number: int, **scores: float) -> Candidate:
        shots = {
            int(s[1:]): Shot(int(s[1:]), torch.zeros(3, 1, 1, dtype=torch.uint8), {}, v)
            for s, v in scores.items()
        }
        rewrite = Rewrite(PROMPT, f"text {number}")
        return Candidate(number, (rewrite.text,), rewrite, "test", shots=shots)

    track = Track(PROMPT, (PROMPT,), (0, 1), 8, 0)
    track.candidates = [
        candidate(0, s0=0.6, s1=0.0),  # its mean is 0.3
        candidate(1, s0=0.9, s1=0.9),
        candidate(2, s0=0.5),  # above 0.3, and below the user's words on the seed of both
        candidate(3, s0=0.7),
        candidate(4, s0=0.8, s1=0.2),  # a lower mean than 3, and better on the seed of both
    ]
    texts = [r.text for r in History.of(track, {}).rewrites(4)]
    assert texts == ["text 1", "text 4", "text 3", "text 0"]
