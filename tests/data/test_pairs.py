"""Pairs from candidates whose scores are known: what wins, what loses, and what makes no pair."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from t2x.data.answers import AnswerRules, accepted_answers, best_answers
from t2x.data.pairs import PairRules, choose_pairs
from t2x.data.ranking import rank
from t2x.data.records import Candidate, Scored
from t2x.errors import T2XError
from t2x.rewriters.parsing import parse_completion, write_completion

SEEDS = (1, 2)
QUIET = (0.0, 0.0)  # what seeds add
NEVER = PairRules(original="never", length_ratio=None)


def candidate(name: str, *scores: float, kind: str = "rewrite", **rewards: float) -> Candidate:
    """A rewrite with one score per seed, or with rewards that are the same on each."""
    given = {"r": scores} if scores else {k: (v,) * len(SEEDS) for k, v in rewards.items()}
    completion = write_completion(f"a {name}", "a plan")
    return Candidate(completion, f"a {name}", kind=kind, scores=given)


def prompt(
    *candidates: Candidate, original: Any = (0.0, 0.0), text: str = "a thing", index: int = 0
) -> Scored:
    own = original if isinstance(original, dict) else {"r": original}
    return Scored(index, text, text, candidates, SEEDS, own)


def pairs_of(
    scored: Sequence[Scored], rules: PairRules = NEVER, weights: Any = None, **options: Any
) -> tuple[list[tuple[str, str]], Counter[str], dict[str, Any]]:
    dropped: Counter[str] = Counter()
    ranking = rank(scored, weights or {"r": 1.0}, **options)
    rows, known = choose_pairs(ranking, rules, dropped)
    found = [(_said(row["chosen"]), _said(row["rejected"])) for row in rows]
    return found, dropped, known | {"rows": rows}


def _said(answer: Any) -> str:
    return parse_completion(answer[0]["content"], require_answer=True).text.removeprefix("a ")


def test_a_difference_within_what_seeds_do_makes_no_pair():
    # Two texts of equal mean but for 0.1, whose seeds differ by 2 in other directions.
    noisy = prompt(candidate("x", 1.0, -1.0), candidate("y", -0.9, 1.1))
    found, dropped, _ = pairs_of([noisy])
    assert (found, dropped["no difference beyond noise"]) == ([], 1)
    found, _, _ = pairs_of([noisy], PairRules(noise=0.0, original="never", length_ratio=None))
    assert found == [("y", "x")]


def test_seeds_in_common_are_no_noise():
    """A seed that is bad for every text says nothing about their difference."""
    same = prompt(candidate("x", 1.0, -1.0), candidate("y", 1.5, -0.5), original=(0.9, -1.1))
    found, _, known = pairs_of([same])
    assert found == [("y", "x")]
    assert known["noise"] == pytest.approx(0, abs=1e-12)
    row = known["rows"][0]
    assert row["margin"] == pytest.approx(0.5)
    assert row["margin"] == row["score_chosen"] - row["score_rejected"]


def test_a_text_that_is_alone_says_nothing_of_noise():
    """A seed moves it as it moves every text, and there is none to tell that by."""
    whole = [prompt(candidate("x", 1.0, -1.0), candidate("y", 1.6, -0.4), original=(0.9, -1.1))]
    failed = prompt(candidate("x", kind="failed"), original=(9.0, -9.0))
    lost = prompt(candidate("x", math.nan, math.nan), original=(9.0, -9.0))
    known = rank(whole, {"r": 1.0}).noise
    assert rank([*whole, failed, lost], {"r": 1.0}).noise == pytest.approx(known, abs=1e-9)


def test_identical_candidates_make_no_pair():
    found, dropped, _ = pairs_of([prompt(candidate("x", 1.0, 2.0), candidate("x", 1.0, 2.0))])
    assert not found
    assert dropped.total() == 1


def test_one_picture_each_needs_a_margin():
    one = Scored(0, "t", "t", (candidate("x", 1.0), candidate("y", 0.0)), (5,), {"r": (0.0,)})
    with pytest.raises(T2XError, match="2 pictures"):
        pairs_of([one])
    rules = PairRules(noise=0.0, margin=0.5, original="never", length_ratio=None)
    assert pairs_of([one], rules)[0] == [("x", "y")]


def test_best_and_second_best_win():
    """Prompt-A-Video: both may win; with one winner only the best does."""
    row = prompt(candidate("x", 3, 3), candidate("y", 2, 2), candidate("z", 1, 1))
    assert pairs_of([row])[0] == [("x", "z"), ("y", "z")]
    one = PairRules(original="never", winners=1, length_ratio=None)
    assert pairs_of([row], one)[0] == [("x", "z")]


@pytest.mark.parametrize(
    ("original", "expected"),
    [
        ("both", [("x", "z"), ("thing", "z")]),
        ("winner", [("x", "z"), ("thing", "z")]),
        ("loser", [("x", "z")]),
        ("never", [("x", "z")]),
    ],
)
def test_the_prompt_as_it_is_can_win(original: Any, expected: list[tuple[str, str]]):
    row = prompt(candidate("x", 3, 3), candidate("z", 1, 1), original=(2.0, 2.0))
    found, _, known = pairs_of([row], PairRules(original=original, length_ratio=None))
    assert found == expected
    kinds = [(r["chosen_kind"], r["rejected_kind"]) for r in known["rows"]]
    assert kinds[-1][0] == ("no rewrite" if len(expected) > 1 else "rewrite")


def test_the_prompt_as_it_is_can_lose_and_differs_in_the_answer_alone():
    row = prompt(candidate("x", 3, 3), original=(2.0, 2.0))
    found, _, known = pairs_of([row], PairRules(length_ratio=None))
    assert found == [("x", "thing")]
    made = known["rows"][0]
    assert made["rejected"][0]["content"] == "<think>a plan</think><answer>a thing</answer>"
    assert pairs_of([row], NEVER)[0] == []


def test_an_answer_that_the_policy_wrote_itself_is_taken_for_the_prompt_as_it_is():
    echo = Candidate(write_completion("a thing", "own words"), "a thing", scores={"r": (2.0, 2.0)})
    row = prompt(candidate("x", 3, 3), echo, original=(2.0, 2.0))
    _, _, known = pairs_of([row], PairRules(length_ratio=None))
    assert [r["rejected"][0]["content"] for r in known["rows"]] == [echo.completion]


def test_dominance_wants_no_reward_to_be_worse():
    """VPO: ahead in the sum is not enough."""
    mixed = prompt(
        candidate("x", r=5.0, s=0.0), candidate("y", r=1.0, s=1.0), candidate("z", r=0.0, s=0.0),
        original={"r": (0.0, 0.0), "s": (0.0, 0.0)},
    )  # fmt: skip
    weights = {"r": 1.0, "s": 1.0}
    assert pairs_of([mixed], weights=weights)[0] == [("x", "z"), ("y", "z")]
    strict = PairRules(dominance=True, original="never", length_ratio=None)
    close = prompt(*mixed.candidates[:2], original=mixed.original)
    assert pairs_of([close], weights=weights)[0] == [("x", "y")]
    assert pairs_of([close], strict, weights=weights)[0] == []


def test_lengths_are_matched_both_ways():
    """Not only long winners go: a short winner beside a long loser teaches length as well."""
    long = "very " * 40 + "long"
    rules = PairRules(original="never", length_ratio=1.5)
    for scores in ((3.0, 1.0), (1.0, 3.0)):
        row = prompt(candidate("x", *[scores[0]] * 2), candidate(long, *[scores[1]] * 2))
        found, dropped, _ = pairs_of([row], rules)
        assert (found, dropped["answers of different lengths"]) == ([], 1)
        assert len(pairs_of([row])[0]) == 1


def test_lengths_can_be_balanced_over_the_file():
    short, long = "x", "x of many words"
    rows = [
        prompt(candidate(long, 2 + i, 2 + i), candidate(short, 0, 0), index=i, text=f"thing {i}")
        for i in range(3)
    ] + [prompt(candidate(short, 9, 9), candidate(long, 0, 0), index=3, text="thing 3")]
    balanced = PairRules(balanced=True, original="never", length_ratio=None)
    found, dropped, known = pairs_of(rows, balanced)
    assert len(pairs_of(rows)[0]) == 4
    assert found == [(long, short), (short, long)]
    assert known["rows"][0]["margin"] == 4  # the closest pairs went
    assert dropped["pairs left out to balance lengths"] == 2
    assert known["mean_length_difference"] == 0


def test_failures_lose_to_the_best_and_never_win():
    broken = candidate("broken one", kind="broken")
    failed = Candidate("<think>no end", "", kind="failed")
    row = prompt(candidate("x", 1, 1), broken, original=(0.5, 0.5))
    found, _, known = pairs_of([row])
    assert found == [("x", "broken one")]
    assert known["rows"][0]["score_rejected"] < 0.5  # below the prompt as it is
    assert known["rejected_kinds"] == {"broken": 1}
    none = PairRules(failures=False, original="never", length_ratio=None)
    assert pairs_of([row], none)[0] == []
    both = prompt(candidate("x", 1, 1), failed, original=(0.0, 0.0))
    assert known_rejected(both) == ["<think>no end"]
    alone = prompt(broken, failed, original=(1.0, 1.0))
    winners = pairs_of([alone], PairRules(length_ratio=None))[0]
    assert winners == [("thing", "broken one")]


@pytest.mark.parametrize("margin", [1.0, 2.5])
def test_a_failure_is_as_far_below_as_in_training(margin: float):
    broken = candidate("broken one", kind="broken")
    row = prompt(candidate("x", 1, 1), broken, original=(0.5, 0.5))
    totals = {
        i.kind: i.total for i in rank([row], {"r": 1.0}, failure_margin=margin).prompts[0].items
    }
    deviation = math.sqrt(0.125)  # of 0.5 and 1
    assert totals["broken"] == pytest.approx(0.5 - margin * deviation)
    alike = prompt(candidate("x", 1, 1), broken, original=(1.0, 1.0))
    (ranked,) = rank([alike], {"r": 1.0}, failure_margin=margin).prompts
    assert ranked.items[2].total == 1.0 - margin  # where scores don't differ: of 1, not of 0


def known_rejected(row: Scored) -> list[str]:
    known = pairs_of([row])[2]
    return [r["rejected"][0]["content"] for r in known["rows"]]


def test_what_was_cut_off_or_not_measured_is_in_no_pair():
    row = prompt(
        candidate("x", 3, 3),
        candidate("cut", kind="truncated"),
        candidate("unknown", math.nan, 9.0),
        candidate("z", 1, 1),
    )
    found, _, _ = pairs_of([row])
    assert found == [("x", "z")]
    lost = prompt(candidate("x", math.nan, 1.0), original=(math.nan, 0.0), text="other")
    assert pairs_of([row, lost], PairRules())[1]["not measured"] == 1
    with pytest.raises(T2XError, match="none was measured"):
        pairs_of([lost])


def test_gates_are_for_winners():
    row = prompt(candidate("x", 3, 3), candidate("z", 1, 1))
    rules = PairRules(gates={"r": 3.5}, original="never", length_ratio=None)
    assert pairs_of([row], rules)[0] == []
    assert pairs_of([row], PairRules(gates={"r": 3.0}, original="never", length_ratio=None))[0]
    with pytest.raises(T2XError, match="gates"):
        pairs_of([row], PairRules(gates={"q": 1.0}))


def test_scale_does_not_choose_when_scores_are_standardised():
    """Trap 4: one reward times ten changes no pair."""

    def rows(factor: float) -> list[Scored]:
        return [
            prompt(
                candidate("x", r=1.0 * factor, s=0.0), candidate("y", r=0.0, s=1.1),
                candidate("z", r=0.2 * factor, s=0.9 + 0.1 * i),
                original={"r": (0.1 * factor,) * 2, "s": (0.3, 0.3)}, text=f"thing {i}",
            )
            for i in range(3)
        ]  # fmt: skip

    weights = {"r": 1.0, "s": 1.0}
    same = [pairs_of(rows(f), weights=weights, combine="standardised")[0] for f in (1.0, 10.0)]
    assert same[0] == same[1] != []
    summed = [pairs_of(rows(f), weights=weights)[0] for f in (1.0, 10.0)]
    assert summed[0] != summed[1]


def test_weights_of_other_rewards_are_refused():
    with pytest.raises(T2XError, match="scored by r"):
        pairs_of([prompt(candidate("x", 1, 1))], weights={"clip": 1.0})


@pytest.mark.parametrize(
    "wrong", [{"noise": -1.0}, {"margin": math.nan}, {"winners": 0}, {"length_ratio": 0.5}]
)
def test_wrong_rules_are_refused(wrong: dict[str, Any]):
    with pytest.raises(T2XError, match=next(iter(wrong))):
        pairs_of([prompt(candidate("x", 1, 1))], PairRules(**wrong))


# ---- answers ------------------------------------------------------------------------------------


def answers_of(rows: list[dict[str, Any]]) -> list[str]:
    return [_said(row["completion"]) for row in rows]


def test_answers_are_learnt_that_beat_the_prompt_as_it_is():
    dropped: Counter[str] = Counter()
    rows = [
        prompt(candidate("x", 1, 1), candidate("y", 3, 3), text="good"),
        prompt(candidate("x", -1, -1), text="worse"),
        prompt(candidate("broken", kind="broken"), text="broken"),
    ]
    ranking = rank(rows, {"r": 1.0})
    assert answers_of(best_answers(ranking, AnswerRules(), dropped)) == ["y"]
    assert dropped["no better than the prompt as it is"] == 2
    assert answers_of(best_answers(ranking, AnswerRules(best=2), Counter())) == ["y", "x"]
    kept = best_answers(ranking, AnswerRules(unchanged=True), Counter())
    assert answers_of(kept) == ["y", "worse", "broken"]


def test_answers_without_scores_are_those_that_pass_the_checks():
    dropped: Counter[str] = Counter()
    row = prompt(
        candidate("broken", kind="broken"), candidate("x"), candidate("y"), candidate("x"),
        candidate("thing"), original={},
    )  # fmt: skip
    assert answers_of(accepted_answers([row], AnswerRules(best=2), dropped)) == ["x", "y"]
    assert dropped == {"answer broken": 1, "answer unchanged": 1}
