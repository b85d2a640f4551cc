"""The tab "Ask me": three questions by picture and button, back, and what Create gets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from t2x.apps.studio.driving import Running, open_tab

CHANGED = "old => document.querySelector('#ask-question p')?.innerText !== old"


def _after(page: Any, press: Callable[[], None]) -> str:
    """What is asked after something was pressed."""
    old = page.locator("#ask-question p").inner_text()
    press()
    page.wait_for_function(CHANGED, arg=old)
    return str(page.locator("#ask-question p").inner_text())


@pytest.mark.parametrize("size", ["wide", "narrow"])
def test_three_questions_make_a_prompt(
    studio: Running, visit: Callable[..., Any], size: str
) -> None:
    page = visit(studio, size=size)
    open_tab(page, "Ask me")
    page.fill("#ask-prompt textarea", "an animal and a vehicle")
    page.click("#ask-begin")
    page.wait_for_selector("#ask-option-0:enabled")
    grown = page.locator(".t2x-grown")
    before = grown.inner_text()
    second = _after(page, lambda: page.click("#ask-option-0"))
    third = _after(page, lambda: page.click("#ask-picture-1 img"))
    assert "an animal" not in grown.inner_text() and grown.inner_text() != before
    fourth = _after(page, lambda: page.click("#ask-any"))
    assert len({second, third, fourth}) == 3
    assert page.locator(".t2x-settled li").count() == 3
    assert _after(page, lambda: page.click("#ask-back")) == third
    said = grown.inner_text()
    page.click("#ask-draw")
    page.wait_for_selector("#stop", state="visible")
    assert page.input_value("#prompt textarea") == said
    page.wait_for_function("document.querySelectorAll('#gallery-left img').length > 0")


def test_an_empty_box_is_told_what_to_do(studio: Running, visit: Callable[..., Any]) -> None:
    page = visit(studio)
    open_tab(page, "Ask me")
    page.click("#ask-begin")
    page.wait_for_selector("#ask-status .problem")
