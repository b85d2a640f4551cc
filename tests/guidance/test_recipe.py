"""What can be asked of guidance, and what is refused before anything is loaded."""

from __future__ import annotations

import pytest

from t2x.errors import T2XError
from t2x.guidance.config import GuidanceConfig
from t2x.guidance.drawing import affordable_steps, trajectory_cost
from t2x.guidance.recipe import DEFAULT_MODE, make_recipe


def test_words_become_a_configuration():
    recipe = make_recipe("vqa=1,clip=0.3", mode="J", budget=40, options=["size=1e-1", "every=2"])

    assert recipe.config == GuidanceConfig({"vqa": 1.0, "clip": 0.3}, mode="J", size=0.1, every=2)
    assert (recipe.mode, recipe.budget) == ("J", 40)
    assert recipe.record()["config"]["rewards"] == {"vqa": 1.0, "clip": 0.3}


def test_a_configuration_keeps_its_values():
    config = GuidanceConfig({"clip": 1.0}, mode="J", size=0.7)

    assert make_recipe(config).config == config
    assert make_recipe(config).mode == "J"
    assert make_recipe(config, mode="E", options={"every": 3}).config.size == 0.7
    recipe = make_recipe(config)
    assert make_recipe(recipe) is recipe


@pytest.mark.parametrize(
    ("rewards", "given", "words"),
    [
        ("vqq=1", {}, "did you mean 'vqa'"),
        ("", {}, "names no rewards"),
        ("clip=x", {}, "NAME=WEIGHT"),
        ("clip=0", {}, "all weights of guidance are 0"),
        ({}, {}, "needs rewards"),
        ("clip=1,ocr=1", {"mode": "J"}, "no gradient comes from ocr"),
        ("ocr=1", {"mode": "noise"}, "no gradient comes from ocr"),
        ("clip", {"mode": "search", "options": ["pictures=0"]}, "pictures is 0; give 1 to"),
        ("clip", {"mode": "K"}, "allowed: E: gradients through the decoder; J:"),
        ("clip", {"budget": 0}, "at least 1 denoiser evaluation"),
        ("clip", {"options": ["sze=1"]}, "did you mean 'size'"),
        ("clip", {"options": ["size=big"]}, "'size' must be float"),
        ("clip", {"options": ["size"]}, "NAME=VALUE, like size=0.3; got 'size'"),
        ("clip", {"options": ["size=-1"]}, "size is -1"),
        ("clip", {"options": ["mode=J"]}, "the mode by its own"),
        ("clip", {"options": ["rewards=1"]}, "weights are given with the rewards"),
        ("clip", {"options": "size=1"}, "a list of name=value"),
        ("clip", {"mode": "particles", "options": ["size=1"]}, "of mode particles"),
        ("clip", {"mode": "particles", "options": ["count=0"]}, "count is 0"),
        ("clip", {"mode": "noise", "budget": 9, "options": ["iterations=2"]}, "one of the two"),
        ("clip", {"mode": "search", "options": ["method=best"]}, "'method' must be one of"),
    ],
)
def test_what_means_nothing_is_refused(rewards, given, words):
    with pytest.raises(T2XError, match=words):
        make_recipe(rewards, **given)


def test_options_go_where_the_mode_has_them():
    """``every`` is of both; where gradients steer it is theirs, and particles' behind a dot."""
    one = make_recipe("clip", mode="particles", options=["every=3", "count=6"])
    both = make_recipe("clip", mode="J+particles", options=["every=3", "particles.every=2"])

    assert (one.settings.every, one.settings.count, one.config.every) == (3, 6, 1)
    assert (both.settings.every, both.config.every, both.config.mode) == (2, 3, "J")


def test_a_budget_pays_for_steps():
    """E with two passes: 2 a step, and 2 more for each corrector at a guided level. J: 3 times
    that where it is guided; the last two steps are free."""
    assert trajectory_cost(make_recipe("clip", mode="E"), 8, 2) == 16
    assert trajectory_cost(make_recipe("clip", options=["correctors=1"]), 8, 2) == 28
    assert trajectory_cost(make_recipe("clip", mode="J"), 8, 2) == 6 * 6 + 2 * 2
    assert affordable_steps(make_recipe("clip", mode="E", budget=17), 2) == 8
    assert affordable_steps(make_recipe("clip", mode="J", budget=40), 2) == 8
    assert affordable_steps(make_recipe("clip", mode="J", budget=39), 2) == 7
    with pytest.raises(T2XError, match="pays for no step of mode E; give at least 2"):
        affordable_steps(make_recipe("clip", mode="E", budget=1), 2)
    with pytest.raises(T2XError, match="more than 1000 steps of mode E; give at most 2000"):
        affordable_steps(make_recipe("clip", mode="E", budget=10**12), 2)


def test_without_a_mode_pictures_are_searched_unless_an_option_is_about_gradients():
    assert make_recipe("clip").mode == DEFAULT_MODE == "search"
    assert make_recipe("clip").settings.pictures == 4
    assert make_recipe("clip", options=["pictures=2"]).mode == "search"
    assert make_recipe("clip", options=["size=0.3"]).mode == "E"
    assert make_recipe(GuidanceConfig(mode="J", rewards={"clip": 1.0})).mode == "J"
    with pytest.raises(T2XError, match="did you mean 'size', which is of the modes with gradients"):
        make_recipe("clip", options=["sise=0.3"])
