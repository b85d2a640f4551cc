"""Nothing is wider than the window and no two things lie on each other, in each tab at both sizes,
before and after pictures are made."""

from __future__ import annotations

from typing import Any

import pytest

from t2x.apps.studio.driving import choose, draw, open_tab

TABS = ("Create", "Edit", "Ask me", "History", "Batch")
# Boxes of what people read or press, without those inside of others of the list; of each pair that
# shares more than 2 pixels in both directions, what they are.
OVERLAPS = """() => {
    const chosen = 'button, input, textarea, img, label, h3, p, summary, .chip, li, figure, table, '
        + '.caption-label';
    const all = [...document.querySelectorAll(chosen)].filter(element => {
        const box = element.getBoundingClientRect(), style = getComputedStyle(element);
        return box.width > 1 && box.height > 1 && style.visibility === 'visible'
            && style.opacity !== '0' && element.offsetParent !== null
            && element.dataset.testid !== 'block-label'  // gradio's, in a corner of its area
            && element.checkVisibility({checkOpacity: true, checkVisibilityCSS: true});
    });
    // What of an element is seen: the part inside everything that scrolls or clips around it.
    const seen = element => {
        const {left, top, right, bottom} = element.getBoundingClientRect();
        const box = {left, top, right, bottom};
        for (let up = element.parentElement; up; up = up.parentElement) {
            const style = getComputedStyle(up), outer = up.getBoundingClientRect();
            if (style.overflowX !== 'visible') {
                box.left = Math.max(box.left, outer.left);
                box.right = Math.min(box.right, outer.right);
            }
            if (style.overflowY !== 'visible') {
                box.top = Math.max(box.top, outer.top);
                box.bottom = Math.min(box.bottom, outer.bottom);
            }
        }
        return box;
    };
    const own = all.filter(one => !all.some(other => other !== one && one.contains(other)));
    const name = element => {
        const id = element.closest('[id]')?.id;
        return `${element.tagName} in #${id}: ${(element.innerText || '').slice(0, 40)}`;
    };
    const found = [];
    own.forEach((one, at) => own.slice(at + 1).forEach(other => {
        const a = seen(one), b = seen(other);
        const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (wide > 2 && high > 2) found.push(`${name(one)} | ${name(other)}`);
    }));
    return found;
}"""
WIDER = """() => {
    const width = document.documentElement.clientWidth;
    const inside = element => {
        for (let up = element.parentElement; up; up = up.parentElement) {
            if (['auto', 'scroll', 'hidden', 'clip'].includes(getComputedStyle(up).overflowX)
                && up.getBoundingClientRect().right <= width + 1) return true;
        }
        return false;
    };
    return [...document.querySelectorAll('body *')].filter(element => {
        const box = element.getBoundingClientRect();
        return box.width && element.checkVisibility() && box.right > width + 1 && !inside(element);
    }).map(element => `${element.tagName}.${element.className} #${element.closest('[id]')?.id}`);
}"""


# Labels of drop areas that reach over what is in their middle, or to the cross at the right.
LABELS = """() => [...document.querySelectorAll('[data-testid=block-label]')].filter(label => {
    const box = label.getBoundingClientRect();
    const area = label.closest('.block').getBoundingClientRect();
    return box.width > 1 && label.checkVisibility()
        && (box.height > 32 || box.right > area.right - 90);
}).map(label => label.innerText)"""
# Pixels between things side by side in the panel of what steers: of a pair, and between pairs.
GAPS = """() => {
    const apart = (one, other) => Math.round(
        other.getBoundingClientRect().left - one.getBoundingClientRect().right);
    const [first, second] = document.querySelectorAll('#guidance .reward-row');
    return [apart(...first.querySelectorAll('.block')), apart(first, second)];
}"""


def check(page: Any, where: str) -> None:
    page.wait_for_timeout(300)
    width = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    assert width <= 0, f"{where} is {width} pixels wider than the window: {page.evaluate(WIDER)}"
    assert not page.evaluate(WIDER), where
    assert not page.evaluate(OVERLAPS), where
    assert not page.evaluate(LABELS), where


@pytest.mark.parametrize("size", ["wide", "narrow"])
def test_every_tab_fits_and_nothing_lies_on_another(studio, visit, size):
    page = visit(studio, size=size)
    for name in TABS:
        open_tab(page, name)
        check(page, f"{name} before anything was made")
    open_tab(page, "Edit")
    page.locator("input[name=t2x-region][value=box]").check()
    check(page, "Edit inside a box")
    open_tab(page, "Create")
    choose(page, "Steer")
    # The ring around the last pill is not cut.
    assert page.evaluate("getComputedStyle(document.querySelector('#mode')).overflow") == "visible"
    if size == "wide":
        assert page.evaluate(GAPS) == [0, 1]
    draw(page, num=1)
    page.wait_for_function("document.querySelectorAll('#gallery-right img').length > 0")
    check(page, "Create with pictures, settings and guidance")
    page.locator("#gallery-left button").first.click()
    page.wait_for_selector("#picked", state="visible")
    opened = page.locator("#gallery-left .preview").bounding_box()
    picture = page.locator("#gallery-left .preview .media-button img").bounding_box()
    assert opened["height"] < picture["width"] + 150 and picture["width"] >= 300
    assert not page.evaluate(WIDER)
    page.keyboard.press("Escape")
    for name in TABS:
        open_tab(page, name)
        check(page, f"{name} after pictures were made")
