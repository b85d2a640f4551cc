"""The Create tab as a person uses it: words go in, pictures, changed words and bars come out."""

from __future__ import annotations

import time
from typing import Any

import pytest

from t2x.apps.studio.driving import PROMPT, choose, draw, open_tab, start_drawing, write_request


def pictures(page: Any, side: str) -> int:
    """Pictures of a gallery that have loaded."""
    return int(
        page.evaluate(
            f"[...document.querySelectorAll('#gallery-{side} img')]"
            ".filter(i => i.complete && i.naturalWidth > 0).length"
        )
    )


def test_words_are_rewritten_drawn_and_compared(studio, visit):
    page = visit(studio)
    draw(page, num=1)
    assert page.locator("#words del").count() and page.locator("#words ins").count()
    assert page.inner_text("#rewrite-text") != PROMPT
    assert page.locator("#words .checks .yes").count() > 3
    page.wait_for_function("document.querySelectorAll('#gallery-right img').length > 0")
    assert pictures(page, "left") == 1 and pictures(page, "right") == 1
    rewards = page.locator("#bars [data-reward]")
    assert rewards.count() >= 3
    for bar in page.locator("#bars [data-reward=clip] .bar").all():
        assert 0 < bar.locator("b").bounding_box()["width"] <= bar.bounding_box()["width"]
    assert "Done in" in page.inner_text("#status")


def test_rewards_steer_and_their_curve_is_seen_meanwhile(studio, visit):
    page = visit(studio)
    page.evaluate(
        """() => { window.curves = new Set();
        new MutationObserver(() => {
            const line = document.querySelector('#live polyline');
            const running = document.querySelector('#stop')?.offsetParent;
            if (line && running) window.curves.add(line.getAttribute('points'));
        }).observe(document.body, {subtree: true, childList: true, attributes: true}); }"""
    )
    choose(page, "Steer")
    draw(page, num=1)
    assert len(page.evaluate("[...window.curves]")) >= 2
    assert page.locator("#live .t2x-strip img").count() >= 2
    assert page.locator("#live [data-reward]").count() >= 1
    page.wait_for_function("document.querySelectorAll('#gallery-right img').length > 0")
    assert pictures(page, "left") == 1 and pictures(page, "right") == 1


def test_on_a_phone_a_job_is_in_sight_and_pictures_far_below_are_loaded(studio, visit):
    page = visit(studio, size="narrow")
    choose(page, "Steer")
    start_drawing(page, "a red bus", num=2)
    page.wait_for_function(  # the line of the job, and Stop, without scrolling
        "['#status', '#stop'].every(name => {"
        " const box = document.querySelector(name)?.getBoundingClientRect();"
        " return box && box.top >= 0 && box.bottom <= innerHeight; }) && scrollY > 500"
    )
    page.mouse.wheel(0, -20000)  # whoever scrolls stays there
    page.wait_for_selector("#draw", state="visible")
    page.wait_for_timeout(1000)
    assert page.evaluate("scrollY") == 0
    top = page.locator("#gallery-left").bounding_box()["y"]
    assert top > 844 and pictures(page, "left") == pictures(page, "right") == 2
    named = page.get_attribute("#gallery-right img", "alt")
    assert named.startswith("Steered, ") and named.endswith("seed 0")


def test_the_best_of_many_comes_first_by_any_reward(studio, visit):
    page = visit(studio)
    choose(page, "Best of many")
    draw(page, "a red bus", num=3)
    page.wait_for_selector("#sort", state="visible")
    assert pictures(page, "left") == 3
    values = [
        float(text.rsplit(" ", 1)[1])
        for text in page.locator("#gallery-left .caption-label").all_inner_texts()
    ]
    assert values == sorted(values, reverse=True) and len(values) == 3


def test_a_job_is_stopped_and_the_studio_goes_on(studio, visit):
    page = visit(studio)
    choose(page, "Steer")
    start_drawing(page, num=4)
    page.wait_for_selector("#live polyline")
    begun = time.monotonic()
    page.click("#stop")
    page.wait_for_selector("#draw", state="visible")
    assert time.monotonic() - begun < 20
    assert "Stopped" in page.inner_text("#status")
    choose(page, "Compare")
    page.uncheck("#rewrite input")
    draw(page, "a cat", num=1)
    assert pictures(page, "left") == 1


def test_two_people_at_once_wait_for_each_other_and_both_get_theirs(studio, visit):
    first, second = visit(studio), visit(studio)
    choose(first, "Steer")
    second.uncheck("#rewrite input")
    write_request(second, "a yellow bird", num=1)
    start_drawing(first, num=4)
    first.wait_for_selector("#live polyline")
    second.click("#draw")
    second.wait_for_function("/before yours/.test(document.querySelector('#status').innerText)")
    first.wait_for_selector("#draw", state="visible")
    second.wait_for_selector("#draw", state="visible")
    assert pictures(first, "left") == 4 and pictures(second, "left") == 1


@pytest.mark.parametrize(
    ("prompt", "said"), [("", "empty"), ("   ", "empty"), ("cat " * 5000, "too long")]
)
def test_what_can_not_be_drawn_is_told_on_the_page(studio, visit, prompt, said):
    page = visit(studio)
    page.fill("#prompt textarea", prompt)
    page.click("#draw")
    page.wait_for_function(f"document.querySelector('#status').innerText.includes('{said}')")
    assert page.locator("#status [role=alert]").count() == 1
    assert "Traceback" not in page.content()


SCRIPT = "<img src=x onerror=alert(1)><script>alert(2)</script>\"'><svg onload=alert(3)> a cat"


def test_a_script_in_the_prompt_is_text(studio, visit):
    page = visit(studio)
    draw(page, SCRIPT, num=1)
    for _ in range(2):  # what is shown, and what comes back with the next job
        assert not page.evaluate(
            "[...document.querySelectorAll('[onerror], [onload]')].length"
            " + document.querySelectorAll('#words script, #words svg, img[src=x]').length"
        )
        page.click("#same-seeds")
        page.wait_for_selector("#draw", state="visible")
    assert "onerror=alert(1)" in page.inner_text("#words")


def test_what_was_typed_is_there_when_the_page_is_loaded_again(studio, visit):
    page = visit(
        studio, allow=("aborted", "Connection errored out")
    )  # gradio's, of a page that goes
    page.fill("#prompt textarea", "a red cat")
    open_tab(page, "Edit")
    page.fill("#edit-instruction textarea", "make the cat blue")
    page.fill("#edit-shows textarea", "a cat")
    page.reload()
    page.wait_for_function("document.querySelector('#prompt textarea')?.value === 'a red cat'")
    page.uncheck("#rewrite input")
    page.click("#draw")  # gradio has it, too
    page.wait_for_function("document.querySelectorAll('#gallery-left img').length > 0")
    assert "a red cat" in page.get_attribute("#left-title h3", "data-words")
    open_tab(page, "Edit")
    assert page.input_value("#edit-instruction textarea") == "make the cat blue"
    assert page.input_value("#edit-shows textarea") == "a cat"
    page.fill("#edit-shows textarea", "")
    page.reload()
    open_tab(page, "Edit")
    page.wait_for_function("document.querySelector('#edit-instruction textarea')?.value")
    assert page.input_value("#edit-shows textarea") == ""
