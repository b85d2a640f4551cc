"""Guidance at equal FLOPs: budgets kept, all drawn once, over-optimisation seen in the data."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from t2x.errors import T2XError, UnknownNameError
from t2x.evaluation.intervals import paired_difference
from t2x.generators.diffusion import DiffusionGenerator
from t2x.registry import load_generator
from t2x.store import Store
from t2x.testing.fakes import FakeReward
from t2x.testing.pipelines import tiny_stable_diffusion
from t2x.types import Context, Media
from t2x.world.guided import GuidedSetup, ablated_arms, evaluate_guidance, over_optimised
from t2x.world.guided_arms import Order, fit_size
from t2x.world.guided_names import ARMS, GRIDS, make_arm
from t2x.world.guided_pictures import Workbench
from t2x.world.guided_plot import draw_guidance
from t2x.world.guided_tuning import load_tuned, save_tuned, tune_guidance
from t2x.world.judge import Verdict
from t2x.world.scene import Scene

N, BUDGET = 3, 4.0
CHECKED = (
    "one-picture",
    "unguided",
    "best-of-n",
    "fk",
    "reno",
    "mpgd",
    "rewardflow-j",
    "rewardflow-select",
)


class Redness(FakeReward):
    """What arms optimise: mean red, so a long step along it is easy."""

    name = "redness"


class Greenness(FakeReward):
    """What none sees."""

    name = "greenness"

    def __init__(self) -> None:
        super().__init__(1)


def setup(**changes: Any) -> GuidedSetup:
    sampling = {"num_inference_steps": 3, "guidance_scale": 3.0, "height": 64, "width": 64}
    pipe = tiny_stable_diffusion(guidance_embedding=8)
    whole = GuidedSetup(
        arms=CHECKED,
        n=N,
        budgets=(BUDGET,),
        rewriters=("raw",),
        generator=DiffusionGenerator(pipe, model_id="tiny", revision="r", sampling=sampling),
        rewards=[Redness()],
        held_out=Greenness(),
        diverse=2,
        diverse_seeds=2,
        chunk=4,
    )
    return replace(whole, **changes)


@pytest.fixture(scope="module", autouse=True)
def quick_judge() -> Iterator[None]:
    """Half of all pictures are right: the judge itself takes its time on noise, and has tests of
    its own."""

    def judge(scenes: Sequence[Scene], media: torch.Tensor) -> list[Verdict]:
        return [Verdict(bool(picture[2].mean() > 0.5), ()) for picture in media]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("t2x.world.judge.judge_pictures", judge)
        yield


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def result(store: Store) -> dict[str, Any]:
    return evaluate_guidance(setup(), store=store)


def test_every_arm_keeps_the_budget(result: dict[str, Any]) -> None:
    plain = result["plain_picture_flops"]
    assert result["arms"]["one-picture@4"]["flops"] == pytest.approx(plain)
    for name, arm in result["arms"].items():
        if name == "one-picture@4":
            continue
        assert 0.5 * BUDGET * plain < arm["flops"] <= 1.02 * BUDGET * plain
        assert arm["flops_of_budget"] == pytest.approx(arm["flops"] / plain / BUDGET)
        assert arm["seconds"] > 0 and arm["nfe"] >= 1
    assert result["arms"]["unguided@4"]["reward_forwards"] == 0
    assert result["arms"]["unguided@4"]["nfe"] == result["arms"]["unguided@4"]["size"] > 3
    best = result["arms"]["best-of-n@4"]
    assert best["reward_forwards"] == best["size"] and best["nfe"] == 3 * best["size"]
    assert all(arm["size"] is not None for arm in result["arms"].values())
    assert result["arms"]["rewardflow-j@4"]["reward_backwards"] > 0


def test_the_table_has_what_was_promised(result: dict[str, Any]) -> None:
    for arm in result["arms"].values():
        for key in ("overall", "ci95", "flops", "nfe", "seconds", "heldout_reward", "diversity"):
            assert key in arm
        assert math.log(3) - 1e-6 <= arm["diversity"] <= 2 * math.log(2) + 1e-6
        assert arm["over_optimised"] in ("true", "false", "undecided")
    gap = result["differences"]["best-of-n@4 - unguided@4"]
    arms = result["arms"]
    assert gap["reward"]["mean"] == pytest.approx(
        arms["best-of-n@4"]["reward"] - arms["unguided@4"]["reward"]
    )
    assert "mpgd@4 - best-of-n@4" in result["differences"]
    assert json.loads(json.dumps(result))["held_out"] == "greenness"


def test_arms_raise_what_they_optimise(result: dict[str, Any]) -> None:
    reward = {name: arm["rewards"]["redness"] for name, arm in result["arms"].items()}
    assert reward["mpgd@4"] > reward["unguided@4"]
    assert reward["best-of-n@4"] >= reward["unguided@4"] - 0.02


def test_a_stopped_evaluation_goes_on(
    result: dict[str, Any], store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("drawn again")

    heard: list[tuple[str, int, int]] = []
    monkeypatch.setattr("t2x.world.guided_arms.Bench.sampling", _only_one(refuse))
    again = evaluate_guidance(setup(), store=store, progress=lambda *said: heard.append(said))
    assert json.dumps(again) == json.dumps(result)  # text, since NaN is no equal of itself
    what, done, total = heard[-1]
    assert done == total == len(CHECKED) * (N + 2) and what == "rewardflow-select@4"


def _only_one(refuse: Any) -> Any:
    """The plain picture that a budget is told in is drawn in every run; nothing else is."""
    from t2x.world.guided_arms import Bench

    own, left = Bench.sampling, [None]

    def sampling(bench: Any, *args: Any, **kwargs: Any) -> Any:
        if not left:
            refuse()
        left.pop()
        return own(bench, *args, **kwargs)

    return sampling


def test_a_budget_below_the_least_buys_nothing() -> None:
    found = evaluate_guidance(setup(arms=("unguided", "rewardflow-j"), budgets=(1.0,), n=5))
    assert found["arms"]["unguided@1"]["size"] == 3
    assert found["arms"]["rewardflow-j@1"]["size"] is None


def test_rewritten_texts_are_drawn_and_the_user_s_words_scored() -> None:
    class Spelling(FakeReward):
        name = "spelling"
        heard: ClassVar[set[str]] = set()

        def score(
            self, prompts: Sequence[str], media: Media, *, context: Context | None = None
        ) -> torch.Tensor:
            self.heard |= set(prompts)
            return super().score(prompts, media, context=context)

    whole = setup(arms=("best-of-n",), rewriters=("raw", "rules"), rewards=[Spelling()], diverse=0)
    found = evaluate_guidance(whole)
    assert set(found["arms"]) == {"best-of-n@4", "best-of-n+rules@4"}
    assert "best-of-n+rules@4 - best-of-n@4" in found["differences"]
    assert math.isnan(found["arms"]["best-of-n@4"]["diversity"])
    known = {p.text for p in whole.prompts}
    assert known <= Spelling.heard


def test_each_call_is_told_its_own_rows() -> None:
    class Told:
        def run(self, bench: Any, size: int, orders: Sequence[Order]) -> torch.Tensor:
            calls.append([order.seed for order in orders])
            return torch.tensor([[float(order.seed)] for order in orders])

    calls: list[list[int]] = []
    generator = SimpleNamespace(groups=lambda texts: [[0, 3], [1, 2]])
    workbench: Any = Workbench(SimpleNamespace(generator=generator), [], None, 1.0)  # type: ignore[arg-type]
    orders = [Order("a cat", "a cat", seed) for seed in range(4)]
    assert workbench._run(Told(), 1, orders).flatten().tolist() == [0, 1, 2, 3]
    assert calls == [[0, 3], [1, 2]]


def test_texts_of_two_lengths_are_drawn_by_two_calls() -> None:
    generator = load_generator("emoji-flow-turbo")
    long = "we need a picture. " * 12 + "it should show one cat."
    assert generator.groups(["a cat", long, "a dog"]) == [[0, 2], [1]]


def test_a_size_is_the_largest_that_fits() -> None:
    asked: list[int] = []

    def cost(size: int) -> float:
        asked.append(size)
        return 5.0 + 3.0 * size + (size > 20)

    for budget, wanted in ((5.0, 0), (8.0, 1), (35.0, 10), (66.0, 20), (305.0, 99)):
        assert fit_size(0, cost, budget) == wanted
    assert fit_size(2, cost, 10.0) is None and fit_size(0, cost, 1e9, most=7) == 7
    assert len(asked) < 60


def test_over_optimised_is_told_from_data() -> None:
    rng = np.random.default_rng(0)
    rise, fall = rng.normal(1.0, 0.2, 60), rng.normal(-1.0, 0.2, 60)
    noise, zero = rng.normal(0, 0.2, 60), np.zeros(60)

    def gaps(judge: Any, reward: Any, heldout: Any) -> str:
        named = {"judge": judge, "reward": reward, "heldout_reward": heldout}
        return over_optimised(**{k: paired_difference(v, zero) for k, v in named.items()})

    assert gaps(fall, rise, noise) == gaps(noise, rise, fall) == "true"
    assert gaps(rise, rise, rise) == gaps(fall, fall, fall) == "false"
    assert gaps(noise, rise, noise) == "undecided"


def test_tuning_gives_every_arm_as_many_settings(tmp_path: Path) -> None:
    assert len({len(grid) for grid in GRIDS.values()}) == 1
    for name, grid in GRIDS.items():
        assert {make_arm(name, settings).name for settings in grid} == {name}
    whole = setup(arms=("mpgd", "over-optimised"), n=5)
    tuned = tune_guidance(whole, budget=3.0)
    rows = tuned.tried["mpgd"]
    assert set(tuned.arms) == {"mpgd"} and [r["settings"] for r in rows] == GRIDS["mpgd"]
    best = max(rows, key=lambda row: row["heldout_reward"])
    assert tuned.arms["mpgd"] == best["settings"] and tuned.tuned_by == "greenness"
    save_tuned(tuned, tmp_path / "tiny.yaml", command="t2x eval guidance --tune")
    assert load_tuned(str(tmp_path / "tiny.yaml")) == tuned
    assert load_tuned("no-such-generator") is None
    assert "t2x eval guidance --tune" in (tmp_path / "tiny.yaml").read_text()


def test_committed_settings_are_of_known_arms() -> None:
    for name in ("emoji-flow-turbo", "emoji-flow"):
        tuned = load_tuned(name)
        if tuned is not None:
            for arm, settings in tuned.arms.items():
                assert settings in GRIDS[arm] and len(tuned.tried[arm]) == len(GRIDS[arm])


def test_names() -> None:
    for name in ARMS:
        assert make_arm(name).name == name
    arms = ablated_arms(["rewardflow-e"])
    assert arms[:3] == ["one-picture", "unguided", "best-of-n"]
    assert "rewardflow-e without vqa" in arms
    without: Any = make_arm("rewardflow-e without adaptive weights")
    assert not without.config.adaptive
    with pytest.raises(UnknownNameError, match="allowed: one-picture"):
        make_arm("magic")
    with pytest.raises(T2XError, match="do not fit"):
        make_arm("unguided", {"size": 3})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arms": ("unguided", "unguided")}, "give each once"),
        ({"budgets": (0.5,)}, "1 plain picture or more"),
        ({"budgets": (math.nan,)}, "1 plain picture or more"),
        ({"split": "train"}, "unknown split"),
        ({"held_out": Redness()}, "optimised and held out"),
    ],
)
def test_what_can_t_be_run_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(T2XError, match=message):
        evaluate_guidance(setup(**changes))


def test_the_plot_shows_every_arm(result: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "plot.svg"
    draw_guidance(result, path)
    assert path.stat().st_size > 5000
