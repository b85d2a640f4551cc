"""The Edit tab as a person uses it: a picture, a box on it, rewards that steer, Stop, and an edited
picture that comes back with its source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from t2x.apps.studio.driving import open_tab
from t2x.generators.sources import source_digest
from t2x.studio.recipes import Recipe, stored_recipe, write_picture
from t2x.studio.requests import EditRequest, GuideRequest, request_record

REGION = "[...document.querySelectorAll('#edit-region input[type=number]')].map(i => +i.value)"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A red bus, about."""
    picture = Image.new("RGB", (64, 64), (235, 232, 225))
    picture.paste((200, 30, 30), (16, 22, 48, 42))
    path = tmp_path_factory.mktemp("sources") / "bus.png"
    picture.save(path)
    return path


def begin(page: Any, source: Path) -> None:
    """Give the picture and say what shall become of it."""
    open_tab(page, "Edit")
    page.set_input_files("#edit-picture input[type=file]", source)
    page.wait_for_function("document.querySelector('#edit-picture img')?.naturalWidth > 0")
    page.wait_for_function("document.querySelector('#edit-picture-said').innerText.includes('64')")
    page.fill("#edit-instruction textarea", "make the bus blue")
    page.fill("#edit-shows textarea", "a red bus")


def draw_box(page: Any, *ends: tuple[float, float]) -> None:
    """Drag on the picture from one end to the other, as parts of its sides."""
    page.locator(".t2x-region-layer").scroll_into_view_if_needed()
    frame = page.locator(".t2x-region-layer").bounding_box()
    points = [(frame["x"] + x * frame["width"], frame["y"] + y * frame["height"]) for x, y in ends]
    page.mouse.move(*points[0])
    page.mouse.down()
    for point in points[1:]:
        page.mouse.move(*point, steps=4)
    page.mouse.up()


def finish(page: Any) -> None:
    page.wait_for_selector("#edit-stop", state="visible")
    page.wait_for_selector("#edit-draw", state="visible")
    page.wait_for_function("document.querySelectorAll('#edit-gallery-right img').length > 0")


@pytest.mark.parametrize("size", ["wide", "narrow"])
def test_an_edit_stays_in_a_box_and_comes_back_with_its_source(
    studio, visit, source, size, tmp_path
):
    page = visit(studio, size=size)
    begin(page, source)
    page.click("#edit-region label:has-text('Inside a box')")
    assert page.evaluate(REGION) == [25, 25, 75, 75]
    draw_box(page, (0.1, 0.2), (0.3, 0.5), (0.6, 0.9))
    assert page.evaluate(REGION) == pytest.approx([10, 20, 60, 90], abs=2)
    page.fill("#edit-region input >> nth=4", "80")  # the right side, typed
    page.press("#edit-region input >> nth=4", "Tab")
    box = page.evaluate(REGION)
    assert box[2] == 80
    page.fill("#edit-instruction textarea", "make the bus blue")
    page.press("#edit-instruction textarea", "Enter")
    finish(page)
    assert page.locator("#edit-changed figure").count() == 1
    assert "outside the box" in page.inner_text("#edit-changed")
    named = page.get_attribute("#edit-gallery-right img", "alt")
    assert named == "After, a blue bus, seed 0"
    assert page.locator("#edit-bars .bar.source").count() >= 3
    # Its recipe, and the picture it was made from, come back from the file alone.
    page.locator("#edit-gallery-right button").first.click()
    page.wait_for_selector("#edit-picked", state="visible")
    with page.expect_download() as told:
        page.click("#edit-download-png")
    told.value.save_as(tmp_path / "edited.png")
    with Image.open(tmp_path / "edited.png") as image:
        recipe = stored_recipe(image)
    assert recipe.edit["region"] == pytest.approx([side / 100 for side in box], abs=0.006)
    page.keyboard.press("Escape")
    page.reload()
    page.wait_for_selector("#draw")
    open_tab(page, "Edit")
    page.set_input_files("#edit-picture input[type=file]", tmp_path / "edited.png")
    page.wait_for_selector("#edit-recipe", state="visible")
    assert page.input_value("#edit-shows textarea") == "a blue bus"
    page.click("#edit-recipe")
    page.wait_for_function(
        "document.querySelector('#edit-shows textarea').value === 'a red bus'"
        " && document.querySelector('.t2x-region.boxed') !== null"
    )
    assert page.evaluate(REGION) == box
    assert page.input_value("#edit-instruction textarea") == "make the bus blue"
    page.wait_for_selector("#edit-recipe", state="hidden")  # the picture is the source now
    page.click("#edit-region label:has-text('Everywhere')")
    page.wait_for_selector(".t2x-region-layer", state="hidden")


def test_rewards_steer_an_edit_until_it_is_stopped(studio, visit, source):
    page = visit(studio)
    begin(page, source)
    page.click("#edit-more > button")
    page.click("#edit-method input")
    page.get_by_role("option", name="RewardFlow").click()
    page.wait_for_function("document.querySelector('#edit-reward-1 input').value === 'vqa'")
    page.fill("#edit-steps textarea, #edit-steps input", "60")
    page.fill("#edit-num input[type=number]", "4")
    page.press("#edit-num input[type=number]", "Tab")
    page.click("#edit-draw")
    page.wait_for_selector("#edit-live [data-reward=vqa] polyline")
    page.wait_for_function("document.querySelectorAll('#edit-live .t2x-strip img').length >= 2")
    assert page.is_visible("#edit-stop")
    page.keyboard.press("Escape")  # the same as the button
    page.wait_for_selector("#edit-draw", state="visible")
    assert "Stopped" in page.inner_text("#edit-status")
    page.wait_for_selector("#edit-gallery-left img")  # what it began with stays
    assert page.locator("#edit-gallery-left img").count() == 1


def test_what_is_missing_is_said_beside_its_box_and_nothing_is_lost(studio, visit, source):
    page = visit(studio)
    begin(page, source)
    page.click("#edit-draw")
    finish(page)
    page.fill("#edit-instruction textarea", "remove the dog")
    page.click("#edit-draw")
    page.wait_for_selector("#edit-said [role=alert]")
    assert "tells of no" in page.inner_text("#edit-said")
    assert page.locator("#edit-gallery-right img").count() == 1
    page.click("#edit-picture button[aria-label='Remove Image']")
    page.fill("#edit-instruction textarea", "")
    page.click("#edit-draw")
    page.wait_for_selector("#edit-picture-said [role=alert]")
    assert "begins with a picture" in page.inner_text("#edit-picture-said")
    assert page.locator("#edit-gallery-right img").count() == 1


def written(path: Path, request: Any, **more: Any) -> Path:
    """A picture with the recipe of a request, as somebody else may have sent it."""
    recipe = Recipe("a cat", "a cat", seed=5, request=request_record(request), **more)
    write_picture(path, Image.new("RGB", (64, 64)), recipe)
    return path


def use_recipe(page: Any, path: Path) -> None:
    """Drop a picture on the history and take its recipe over."""
    open_tab(page, "History")
    page.set_input_files("#history-drop input[type=file]", path)
    page.wait_for_selector("#history-form", state="visible")
    page.click("#history-form")


def test_recipes_of_others_fill_in_what_steers_and_ask_for_the_source(
    studio, visit, source, tmp_path
):
    page = visit(studio)
    steered = GuideRequest("a cat", {"hps": 0.1, "vqa": 2.5}, "particles", 16, seed=5)
    use_recipe(page, written(tmp_path / "steered.png", steered))
    page.wait_for_selector("#guidance", state="visible")
    page.wait_for_function("document.querySelector('#steer-reward-2 input').value === 'vqa'")
    amounts = page.locator("#guidance input[type=number]").all()
    assert [amount.input_value() for amount in amounts[:2]] == ["0.1", "2.5"]
    assert page.input_value("#steer-budget input") == "16"
    assert page.is_checked("#steer-mode input[value=particles]")
    with Image.open(source) as image:
        digest = source_digest(image)
    edit = EditRequest(None, "make the bus blue", "a red bus", region=(0.25, 0.0, 0.75, 1.0))
    edited = written(tmp_path / "edited.png", edit, kind="edit", source={"digest": digest})
    page = visit(studio)
    use_recipe(page, edited)
    page.wait_for_selector("#edit-picture-said [role=alert]")
    assert "drop that picture here" in page.inner_text("#edit-picture-said")
    page.set_input_files("#edit-picture input[type=file]", source)
    page.wait_for_function(
        "document.querySelector('#edit-picture-said').innerText.includes('This is the picture')"
    )
    assert page.evaluate(REGION) == [25, 0, 75, 100]
    assert page.input_value("#edit-shows textarea") == "a red bus"
