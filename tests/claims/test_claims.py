"""From a protocol to a verdict: plans, records, comparisons, the page, the command."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from t2x.claims import jobs, runner
from t2x.claims.curves import target_score, when_reached
from t2x.claims.index import index_page, read_verdict, write_index, write_plot
from t2x.claims.jobs import make_plan
from t2x.claims.protocol import Claim, Comparison, Curve, EqualCost, known_claims, load_claim
from t2x.claims.records import Records, Run, read_curve, read_records, write_records
from t2x.claims.verdict import judge_claim
from t2x.cli import run
from t2x.config import ConfigError, build_config, find_config, load_config
from t2x.errors import T2XError
from t2x.registry import RECIPES, load_recipe

from .queues import FAKE

N = 120
TASKS = [f"task {i % 6}" for i in range(N)]
PROTOCOL = """
claim: The good arm beats the bad one.
paper: none
seeds: SEEDS
screening: SCREENING
arms:
  good: {steps: [{recipe: sft, config: sft.yaml, overrides: [level=0.8]}]}
  bad:
    steps:
      - {recipe: sft, config: sft.yaml, overrides: [level=0.5]}
      - {recipe: grpo, config: sft.yaml, overrides: ["from={sft}", level=0.5]}
comparisons: [{first: good, second: bad}]
conditions: [{first: good, second: bad, metric: similarity, margin: -0.01}]
evaluation: {n: 120, minimum: 120}
"""


def protocol(name: str = "good", text: str = PROTOCOL, seeds: str = "[0, 1, 2]") -> Path:
    folder = Path("protocols")
    folder.mkdir(exist_ok=True)
    screening = "true" if "," not in seeds else "false"
    text = text.replace("SEEDS", seeds).replace("SCREENING", screening)
    (folder / f"{name}.yaml").write_text(text)
    Path("sft.yaml").write_text("policy: {model: emoji-lm}\n")
    return folder


def claim(**options: object) -> Claim:
    return replace(load_claim("good", protocol()), **options)


def records(own: Claim, effect: float = 0.1, *, spread: float = 0.01, seeds: int = 3) -> Records:
    """Runs whose good arm is right more often by ``effect``."""
    rng = np.random.default_rng(0)
    hard = rng.random(N)
    runs = []
    for seed in range(seeds):
        for arm, level in (("bad", 0.5), ("good", 0.5 + effect)):
            right = hard + 0.2 * rng.random(N) < level + spread * rng.normal() + 0.1
            curve = {
                "pictures": [100.0 * i for i in range(11)],
                "heldout/reward": [1 - (0.5 if arm == "good" else 0.7) ** i for i in range(11)],
            }
            rows = {"correct": right.astype(float).tolist(), "similarity": [0.9] * N}
            step = {"label": arm, "seconds": 60.0, "metrics": {"pictures": 1000.0}}
            runs.append(Run(arm, seed, [step], {}, rows, curve))
    return Records(own.name, {}, own.digest, "0", TASKS, runs)


# ---- protocols ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", known_claims())
def test_the_claims_of_the_package_are_sound(name: str) -> None:
    own = load_claim(name)
    assert own.seeds == ([0] if own.screening else [0, 1, 2])
    assert own.evaluation.n >= 1000 or own.screening
    for arm in own.arms.values():
        assert {step.recipe for step in arm.steps if step.recipe} <= set(RECIPES)


def test_what_a_protocol_may_not_say() -> None:
    def built(**values: object) -> Claim:
        arms = {"a": {"source": "raw"}, "b": {"source": "rules"}}
        given = {"claim": "x", "paper": "y", "arms": arms}
        return build_config(
            Claim, given | {"comparisons": [{"first": "a", "second": "b"}]} | values
        )

    built()
    for values, words in (
        ({"seeds": [0]}, "screening"),
        ({"seeds": [0, 0]}, "each once"),
        ({"comparisons": []}, "needs a comparison"),
        ({"comparisons": [{"first": "a", "second": "c"}]}, "no arm 'c'"),
        ({"comparisons": [{"first": "a", "second": "b", "metric": "luck"}]}, "unknown metric"),
        ({"comparisons": [{"first": "a", "second": "b", "metric": "diversity"}]}, "group"),
        ({"arms": {"a": {}}}, "steps, or a source"),
        ({"arms": {"a": {"steps": [{"recipe": "sft", "minutes": 21}]}}}, "at most 20"),
        ({"arms": {"a": {"steps": [{"recipe": "sft", "overrides": ["m={dpo}"]}]}}}, "{dpo}"),
        ({"arms": {"a": {"steps": [{"command": ["data"], "product": "x"}]}}}, "no model"),
    ):
        with pytest.raises((ConfigError, T2XError), match=words):
            built(**values)


def test_a_digest_tells_a_changed_protocol_but_not_other_words() -> None:
    own = claim()
    assert own.digest == replace(own, notes="more", claim="Said better.").digest
    assert own.digest != replace(own, seeds=[0, 1, 3]).digest


# ---- plans --------------------------------------------------------------------------------------


def test_a_plan_goes_seed_by_seed_and_shares_what_is_equal() -> None:
    plan = make_plan(claim())
    labels = [job.label for job in plan.jobs]
    assert labels[:5] == [
        "sft, seed 0",
        "evaluation of good, seed 0",
        "sft, seed 0",
        "grpo, seed 0",
        "evaluation of bad, seed 0",
    ]
    assert len(plan.jobs) == 15 and len(plan.runs) == 6
    first, second = plan.jobs[2], plan.jobs[3]
    assert second.after == (first.key,)
    assert f"from={{work}}/{first.key}/run/model" in second.arguments
    assert "run.seed=0" in first.arguments and first.arguments[:2] == ("train", "sft")
    shared = {job.key for job in plan.jobs} & {job.key for job in make_plan(claim(name="b")).jobs}
    assert len(shared) == 15


def test_a_key_changes_with_all_that_decides_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def keys() -> list[str]:
        return [job.key for job in make_plan(load_claim("good", Path("protocols"))).jobs]

    protocol()
    before = keys()
    Path("sft.yaml").write_text("policy: {model: emoji-lm}   # said otherwise\n")
    assert keys() == before
    Path("sft.yaml").write_text("policy: {model: emoji-rewriter}\n")
    assert not set(keys()) & set(before)
    Path("sft.yaml").write_text("policy: {model: emoji-lm}\n")
    protocol(text=PROTOCOL.replace("level=0.8", "level=0.7"))
    changed = [a != b for a, b in zip(before, keys(), strict=True)]
    assert changed == [True, True, False, False, False] * 3
    protocol()
    monkeypatch.setattr("t2x.__version__", "99")
    assert not set(keys()) & set(before)


@pytest.mark.parametrize("form", ["config", "override"])
def test_a_template_that_is_taken_alone_ties_no_key_to_the_weights_beside_it(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {"recipe": "sft", "config": {"policy": {"model": "emoji-lm"}}}
    given["overrides"] = []
    if form == "config":
        given["config"] = {"policy": {"model": "emoji-lm", "template_of": "emoji-rewriter"}}
    else:
        given["overrides"] = ["policy.template_of=emoji-rewriter"]
    settings = {"rewriter": {"domain": "emoji"}}
    monkeypatch.setattr("t2x.settings.read_settings", lambda folder: settings)
    monkeypatch.setattr(jobs, "_digest", lambda name: name)
    before = jobs._key(given)
    monkeypatch.setattr(jobs, "_digest", lambda name: name.replace("rewriter", "trained anew"))
    assert jobs._key(given) == before
    settings["rewriter"] = {"domain": "none"}
    assert jobs._key(given) != before
    monkeypatch.setattr(jobs, "_digest", lambda name: name.replace("lm", "other"))
    settings["rewriter"] = {"domain": "emoji"}
    assert jobs._key(given) != before


# ---- verdicts -----------------------------------------------------------------------------------


def test_an_effect_holds_and_the_reverse_does_not() -> None:
    own = claim()
    found = judge_claim(own, records(own, 0.2)).summary()
    low, high = found["ci95"]
    assert found["holds"] is True and 0 < low < found["effect"] < high
    assert found["minimum_detectable"] < found["effect"] and found["n"] == N
    assert judge_claim(own, records(own, -0.2)).summary()["holds"] is False
    assert judge_claim(own, records(own, 0.0)).summary()["holds"] == "undecided"
    assert judge_claim(own, None).summary()["holds"] == "undecided"


def test_a_condition_must_be_shown() -> None:
    own = claim()
    found = records(own, 0.2)
    for run_ in found.runs:
        if run_.arm == "good":
            run_.rows["similarity"] = [0.88] * N
    verdict = judge_claim(own, found).summary()
    assert verdict["conditions"][0]["holds"] is False and verdict["holds"] is False
    assert verdict["comparisons"][0]["holds"] is True
    for at, run_ in enumerate(found.runs):
        run_.rows["similarity"] = np.random.default_rng(at).normal(0.9, 2, N).tolist()
    assert judge_claim(own, found).summary()["holds"] == "undecided"


def test_a_claim_of_two_comparisons_is_as_strong_as_the_weaker() -> None:
    own = claim(conditions=[])
    pair = own.comparisons[0]
    own = replace(own, comparisons=[pair, replace(pair, margin=0.5)])
    found = judge_claim(own, records(own, 0.2)).summary()
    assert [row["holds"] for row in found["comparisons"]] == [True, False]
    assert found["holds"] is False


def test_nothing_is_decided_without_all_that_was_asked_for() -> None:
    own = claim()
    found = records(own, 0.2)
    missing = {"arm": "good", "seed": 2, "why": "not done"}
    for given, words in (
        (replace(found, missing=[missing]), "runs are missing: good seed 2"),
        (replace(found, digest="other"), "changed after the runs"),
    ):
        verdict = judge_claim(own, given)
        assert verdict.holds == "undecided" and words in verdict.reasons[0]
    own = replace(own, evaluation=replace(own.evaluation, minimum=1000))
    assert "120 of 1000 prompts" in judge_claim(own, records(own, 0.2)).reasons


@pytest.mark.parametrize(
    ("metric", "column", "better"),
    [("violations", "violated", "lower"), ("similarity", "similarity", "higher")],
)
def test_an_arm_does_not_win_by_answers_that_cant_be_read(
    metric: str, column: str, better: str
) -> None:
    """Where an arm can be read at all, it does better; that is one prompt in three."""
    own = claim(conditions=[], comparisons=[Comparison("good", "bad", metric, better)])
    found = records(own)
    for own_run in found.runs:
        plain = [float((i % 4 == 0) == (better == "lower")) for i in range(N)]
        best = float(better == "higher")
        rare: list[float | None] = [None if i % 3 else best for i in range(N)]
        own_run.rows[column] = rare if own_run.arm == "good" else plain  # type: ignore[assignment]
    verdict = judge_claim(own, found)
    assert verdict.holds != "true"
    if metric == "violations":
        assert verdict.holds == "false" and verdict.weakest.n == N
    else:
        said = f"similarity of good and bad is known of {N // 3} prompts; {N} are needed"
        assert verdict.reasons == (said,)


def test_costs_must_be_equal_where_the_protocol_says_so() -> None:
    own = claim(equal_cost=EqualCost("pictures", 0.1))
    found = records(own, 0.2)
    assert judge_claim(own, found).holds == "true"
    for run_ in found.runs:
        run_.steps[0]["metrics"]["pictures"] *= 2 if run_.arm == "good" else 1
    verdict = judge_claim(own, found)
    assert verdict.holds == "undecided" and "pictures differ: 2e+03" in verdict.reasons[0]
    for run_ in found.runs:
        run_.steps[0]["metrics"] = {}
    assert "not measured" in judge_claim(own, found).reasons[0]


def test_lower_is_better_turns_the_sign() -> None:
    own = claim(conditions=[])
    turned = replace(own, comparisons=[replace(own.comparisons[0], better="lower")])
    assert judge_claim(turned, records(turned, 0.2)).summary()["holds"] is False
    assert judge_claim(turned, records(turned, -0.2)).summary()["effect"] > 0


def test_pictures_on_the_way_to_the_same_score() -> None:
    """The good arm's distance from 1 halves at every point, the other's loses 30 %: the smoothed
    curves come to the same score in about half of the pictures."""
    own = claim(conditions=[])
    own = replace(own, comparisons=[replace(own.comparisons[0], metric="pictures")])
    found = records(own)
    for at, run_ in enumerate(found.runs):  # no two runs are alike
        run_.curve["pictures"] = [x * (1 + 0.01 * at) for x in run_.curve["pictures"]]
    verdict = judge_claim(own, found).summary()
    assert verdict["holds"] is True and 0.3 < verdict["effect"] < 0.6
    found.runs[1].curve["heldout/reward"] = [0.0] * 11
    verdict = judge_claim(own, found)
    assert verdict.holds == "undecided" and "1 trainings did not reach" in verdict.reasons[0]


@pytest.mark.extra("report")
def test_a_training_that_began_at_the_score_says_nothing_and_is_drawn() -> None:
    own = claim(conditions=[])
    own = replace(own, comparisons=[replace(own.comparisons[0], metric="pictures")])
    found = records(own)
    for run_ in found.runs:
        run_.curve["heldout/reward"] = [1.0 - 0.1 * i for i in range(11)]
    verdict = judge_claim(own, found)
    assert verdict.holds == "undecided" and "began there" in verdict.reasons[0]
    write_plot(verdict, Path("docs"))
    assert b"<svg" in Path("docs/good/plot.svg").read_bytes()


def test_a_score_is_reached_on_the_line_between_two_points() -> None:
    keys = Curve("x", "y", share=0.5)
    columns = {"x": [0, 10, 20, 30], "y": [0.0, 0.0, 0.3, 0.6]}
    assert target_score([columns], keys) == pytest.approx(0.15)  # of the last three, 0.3
    assert when_reached(columns, keys, 0.2) == pytest.approx(25)  # 0.1 at 20, 0.3 at 30
    assert math.isnan(when_reached(columns, keys, 0.31))
    assert math.isnan(target_score([{}, {"x": [1.0]}], keys))


def test_curves_are_read_from_the_log_with_what_was_spent_carried_on() -> None:
    """Held-out values stand in lines of their own, and the first before anything was drawn."""
    lines = [
        {"step": 0, "heldout/reward": 0.1},
        {"step": 1, "pictures": 50, "reward": 0.5},
        {"step": 1, "heldout/reward": 0.2},
        {"step": 2, "pictures": 90, "reward": 0.6, "heldout/reward": None},
    ]
    path = Path("log.jsonl")
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"step": 3, "pic')
    found = read_curve(path, Curve())
    assert found == {"step": [0, 1], "pictures": [0.0, 50], "heldout/reward": [0.1, 0.2]}
    assert read_curve(path, Curve("pictures", "kl"))["reward"] == [None, 0.5, None, 0.6]
    assert read_curve(Path("nothing"), Curve()) == {}


def test_records_are_read_back_as_they_were_written() -> None:
    own = claim()
    found = records(own)
    found.failures = [{"job": "sft", "key": "k\u2028\x85", "code": 1}]
    found.missing = [{"arm": "good", "seed": 9, "why": "not done"}]
    write_records(found, Path("docs/good"))
    assert read_records(Path("docs/good")) == found
    assert read_records(Path("docs/nothing")) is None
    Path("docs/good/runs.jsonl").write_text("{}\n")
    with pytest.raises(T2XError, match="holds no runs"):
        read_records(Path("docs/good"))


# ---- the whole way ------------------------------------------------------------------------------


@pytest.mark.extra("report")
def test_the_command_runs_a_claim_and_writes_it_down(ledger, monkeypatch, capsys) -> None:
    monkeypatch.setattr(runner, "COMMAND", FAKE)
    folder = protocol()
    options = ["--docs", "docs", "--protocols", str(folder), "--work", "work", "--json"]
    assert run(["claims", "good", "--run", "--workers", "2", *options]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found)[:5] == ["claim", "effect", "ci95", "holds", "minimum_detectable"]
    assert found["holds"] is True and found["effect"] == pytest.approx(0.28, abs=0.1)
    assert found["seeds"] == [0, 1, 2] and found["cost"]["bad"]["seconds"] > 0
    result = json.loads(Path("docs/good/result.json").read_text())
    assert result == found
    page = Path("docs/README.md").read_text()
    assert "| holds | +0." in page and "good/plot.svg" in page
    plot = Path("docs/good/plot.svg").read_bytes()
    assert b"<svg" in plot and len(plot) < 300_000
    begun = len(ledger("begin"))
    assert run(["claims", "good", "--run", *options]) == 0
    assert len(ledger("begin")) == begun == 15
    assert Path("docs/good/plot.svg").read_bytes() == plot


@pytest.mark.extra("report")
def test_a_failed_run_is_listed_and_nothing_is_decided(ledger, monkeypatch, capsys) -> None:
    monkeypatch.setattr(runner, "COMMAND", FAKE)
    text = PROTOCOL.replace("[level=0.8]", "[level=0.8, fail=1]")
    folder = protocol(text=text)
    options = ["--docs", "docs", "--protocols", str(folder), "--work", "work"]
    assert run(["claims", "good", "--run", "--json", *options]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert found["holds"] == "undecided" and found["failures"] == 2
    assert found["missing"] == [{"arm": "good", "seed": 1, "why": "not done: sft, seed 1"}]
    assert "failed: sft, seed 1" in err and "it broke on purpose" in err
    assert str(Path.cwd()) not in Path("docs/good/runs.jsonl").read_text()
    page = Path("docs/README.md").read_text()
    assert "failed: sft, seed 1" in page and "missing: good, seed 1" in page
    assert run(["claims", "good", "--plan", "--json", *options]) == 0
    states = [row["state"] for row in json.loads(capsys.readouterr().out)]
    assert states.count("done") == 13 and "failed before" in states


def test_claims_are_listed_before_any_is_run(capsys) -> None:
    folder = protocol()
    assert run(["claims", "--docs", "docs", "--protocols", str(folder), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["name"] == "good" and row["seeds"] == [] and row["reasons"] == ["not run yet"]
    assert run(["claims", "nothing", "--docs", "docs", "--protocols", str(folder)]) == 1
    assert "unknown claim 'nothing'; known are: good" in capsys.readouterr().err
    assert run(["claims", "--run"]) == 1


# ---- what is committed --------------------------------------------------------------------------

DOCS = Path(__file__).parents[2] / "docs" / "claims"


def test_the_page_of_the_checkout_is_that_of_its_runs() -> None:
    verdicts = [read_verdict(load_claim(name), DOCS) for name in known_claims()]
    assert (DOCS / "README.md").read_text("utf-8") == index_page(verdicts)


@pytest.mark.parametrize("name", known_claims())
def test_committed_results_are_computed_from_committed_runs(name: str) -> None:
    verdict = read_verdict(load_claim(name), DOCS)
    path = DOCS / name / "result.json"
    assert path.is_file() == (verdict.records is not None)
    if verdict.records is not None:
        assert json.loads(path.read_text("utf-8")) == json.loads(json.dumps(verdict.summary()))
        assert verdict.records.digest == verdict.claim.digest


def test_write_index_makes_the_page(tmp_path: Path) -> None:
    path = write_index(tmp_path / "docs", protocol())
    assert "The good arm beats the bad one. | not run |" in path.read_text()


@pytest.mark.parametrize("name", known_claims())
def test_every_training_of_a_claim_is_one_that_its_recipe_takes(name: str) -> None:
    """Settings are read as `t2x train` reads them, so that no queue finds a wrong one at night."""
    for job in make_plan(load_claim(name)).jobs:
        if job.arguments[0] != "train":
            continue
        _, recipe, _, path, _, *overrides = job.arguments
        schema, _ = load_recipe(recipe)
        settings = load_config(schema, path, [text.replace("{work}", "w") for text in overrides])
        assert settings.run.out == Path(f"w/{job.key}/run") and settings.run.threads == 1


def test_the_arms_of_reasoning_differ_by_the_plan_alone() -> None:
    rows = []
    for arm in load_claim("reasoning_grpo").arms.values():
        step = arm.steps[0]
        schema, _ = load_recipe(step.recipe)
        rows.append(load_config(schema, find_config(step.config), step.overrides).data.train)
    assert rows[1] == f"{rows[0]}&reasoning=0"


def test_claims_share_the_runs_that_they_have_in_common() -> None:
    firsts = {
        name: make_plan(load_claim(name)).jobs[0].key
        for name in ("reasoning_grpo", "sft_and_rl", "sem_dpo_drift")
    }
    assert len(set(firsts.values())) == 1
