"""Visitors with passwords, bad files, edits, preferences, histories, batches."""

from __future__ import annotations

import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from t2x.apps.studio.driving import draw, open_tab, running


def bomb(side: int = 60_000) -> bytes:
    """A small PNG that says it is ``side`` pixels wide and high."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    body = zlib.compress(bytes(100_000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


@pytest.fixture
def bad_files(tmp_path: Path) -> list[Path]:
    """Ten files that are no picture that can be edited, most with a picture's name."""
    Image.new("RGB", (64, 64)).save(tmp_path / "good.png")
    good = (tmp_path / "good.png").read_bytes()
    svg = (
        b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'><script>alert(2)</script></svg>"
    )
    contents = {
        "cut.png": good[: len(good) // 2],
        "empty.png": b"",
        "words.png": b"these are no pixels " * 50,
        "page.png": b"<html><script>alert(1)</script></html>",
        "vector.svg": svg,
        "vector.png": svg,
        "bomb.png": bomb(),
        "archive.png": b"PK\x03\x04" + bytes(1000),
        "<img src=x onerror=alert(1)>.png": good[:40],
        "..%2f..%2fsecret.png": b"\x89PNG\r\n\x1a\n" + bytes(200),
    }
    folder = tmp_path / "bad"
    folder.mkdir()
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return sorted(folder.iterdir())


def test_ten_bad_files_are_refused_in_words_and_the_page_lives_on(studio, visit, bad_files):
    page = visit(studio, allow=("Failed to load resource", "status of", "the server responded"))
    open_tab(page, "Edit")
    assert len(bad_files) == 10
    for path in bad_files:
        page.set_input_files("#edit-picture input[type=file]", path)
        page.wait_for_selector("#edit-picture-said [role=alert]")
        page.fill("#edit-instruction textarea", "make it blue")
        page.click("#edit-draw")
        page.wait_for_selector("#edit-said [role=alert]")
        shown = page.inner_text("body")
        assert "Traceback" not in shown and 'File "' not in shown, path.name
        assert not page.locator(".toast-body, .error:visible").count(), path.name
        assert page.input_value("#edit-instruction textarea") == "make it blue"
        page.wait_for_timeout(500)  # leaving in the middle of an answer is an error
        page.reload()
        page.wait_for_selector("#draw")
        open_tab(page, "Edit")
    good = bad_files[0].parent.parent / "good.png"
    edit(page, good)


def edit(page: Any, path: Path) -> None:
    """Give a picture and an instruction, and wait for the edited one."""
    page.set_input_files("#edit-picture input[type=file]", path)
    page.wait_for_selector("#edit-picture img")
    page.fill("#edit-instruction textarea", "make the bus blue")
    page.fill("#edit-shows textarea", "a red bus")
    page.click("#edit-draw")
    page.wait_for_selector("#edit-stop", state="visible")
    page.wait_for_selector("#edit-draw", state="visible")
    page.wait_for_function("document.querySelectorAll('#edit img').length >= 2")


def test_a_picture_is_edited_by_an_instruction(studio, visit):
    page = visit(studio)
    draw(page, "a red bus", num=1)
    page.locator("#gallery-left button").first.click()
    page.wait_for_selector("#picked", state="visible")
    page.click("#edit-this")
    page.wait_for_selector("#edit-picture img")
    page.fill("#edit-instruction textarea", "make the bus green")
    page.click("#edit-draw")
    page.wait_for_selector("#edit-stop", state="visible")
    page.wait_for_selector("#edit-draw", state="visible")
    page.wait_for_function("document.querySelectorAll('#edit-gallery-right img').length > 0")


def log_in(page: Any, name: str, password: str) -> None:
    page.get_by_label("username", exact=False).first.fill(name)
    page.fill("input[type=password]", password)
    with page.expect_response("**/login"):
        page.get_by_role("button", name="Login").click()


def test_behind_a_password(chromium, tmp_path):
    (tmp_path / "users.txt").write_text("# who may come in\nada:enigma\ngrace:cobol\n")
    options = ("--generator", "emoji-flow-turbo", "--rewriter", "none", "--rewards", "clip")
    with running(*options, "--auth", str(tmp_path / "users.txt"), home=tmp_path / "home") as app:
        page = chromium.new_page()
        page.set_default_timeout(120_000)
        page.goto(app.url)
        page.wait_for_selector("input[type=password]")
        assert page.locator("#draw").count() == 0
        for name, password in (("", ""), ("ada", "cobol"), ("eve", "enigma")):
            log_in(page, name, password)
            page.wait_for_selector("text=/incorrect/i")
            # The answer empties the boxes: what is typed before it comes is lost.
            page.wait_for_function("document.querySelector('input[type=password]').value === ''")
            assert page.locator("#draw").count() == 0
        log_in(page, "ada", "enigma")
        page.wait_for_selector("#draw")
        draw(page, "a cat", num=1)
        assert page.locator("#gallery-left img").count() == 1
        page.close()
        app.stop()
    said = app.log.read_text("utf-8")
    assert "enigma" not in said and "cobol" not in said and "Traceback" not in said


def test_tastes_and_history_outlive_the_process(chromium, tmp_path):
    apart = {"TMPDIR": str(tmp_path)}
    options = ("--generator", "emoji-flow-turbo", "--rewriter", "none", "--rewards", "clip")
    home, context = tmp_path / "data/home", chromium.new_context(accept_downloads=True)
    (tmp_path / "data").mkdir()
    page = context.new_page()
    page.set_default_timeout(120_000)
    with running(*options, home=home, environment=apart) as app:
        page.goto(app.url)
        page.wait_for_selector("#draw")
        draw(page, "a red bus", num=1)
        page.locator("#gallery-left button").first.click()
        page.wait_for_selector("#picked", state="visible")
        page.click("#thumb-up")
        page.wait_for_function("document.querySelector('#thumb-said').innerText.length > 0")
        app.stop()
    port = app.url.rpartition(":")[2]  # the browser keeps who it is for this address
    with running(*options, "--port", port, home=home, environment=apart) as app:
        page.goto(app.url)
        page.wait_for_selector("#draw")
        open_tab(page, "History")
        page.wait_for_selector("#history-gallery img")
        assert page.locator("#history-gallery img").count() == 1
        page.locator("#history-gallery button").first.click()
        page.wait_for_selector("#history-about b")
        assert "a red bus" in page.inner_text("#history-about")
        with page.expect_download() as loaded:
            page.click("#history-png")
        with Image.open(loaded.value.path()) as picture:
            assert "a red bus" in str(picture.info)
        page.click("#history-again")
        page.wait_for_selector("#history-result img")
        page.wait_for_function("/same/i.test(document.querySelector('#history-status').innerText)")
        other = chromium.new_page()
        other.goto(app.url)
        other.wait_for_selector("#draw")
        open_tab(other, "History")
        other.wait_for_function("/kept here/.test(document.querySelector('#history').innerText)")
        assert other.locator("#history-gallery img").count() == 0
        other.close()
    context.close()
    assert "Traceback" not in app.log.read_text("utf-8")


def test_two_sides_are_compared_by_a_click(studio, visit):
    page = visit(studio)
    draw(page, num=1)
    page.wait_for_selector("#right-better", state="visible")
    page.click("#right-better")
    page.wait_for_function("document.querySelector('#pair-said').innerText.length > 0")


def test_a_file_of_prompts_is_rewritten_drawn_and_given_back(studio, visit, tmp_path):
    lines = ['{"prompt": "two kittens"}', "no json", '{"prompt": "a red bus"}']
    (tmp_path / "prompts.jsonl").write_text("\n".join(lines))
    page = visit(studio)
    open_tab(page, "Batch")
    page.set_input_files("#batch-file input[type=file]", tmp_path / "prompts.jsonl")
    page.wait_for_function("document.querySelector('#batch-file').innerText.includes('prompts')")
    page.click("#batch-add")
    page.wait_for_selector("#batch-table table")
    page.wait_for_selector("#batch-jsonl", state="visible")
    assert page.locator("#batch-table tr").count() == 3 and "line 2" in page.inner_text("#batch")
    with page.expect_download() as loaded:
        page.click("#batch-jsonl")
    rows = Path(loaded.value.path()).read_text("utf-8").splitlines()
    assert len(rows) == 2 and "two kittens" in rows[0]
    page.click("#batch-draw")
    page.wait_for_function("document.querySelectorAll('#batch-gallery img').length === 2")


def test_what_was_made_and_said_can_be_deleted(studio, visit):
    """Some pictures, all of them, and the taste: each only behind a question with its number."""
    page, other = visit(studio), visit(studio)
    for one in (page, other):
        one.uncheck("#rewrite input")
    draw(other, "a cat", num=1)
    draw(page, "a red bus", num=3)
    page.locator("#gallery-left button").first.click()
    page.wait_for_selector("#picked", state="visible")
    page.click("#thumb-up")
    page.wait_for_function("/✓/.test(document.querySelector('#thumb-up').innerText)")
    open_tab(page, "History")
    page.wait_for_selector("#history-gallery img")
    page.check("#history-selecting input")
    for number in range(2):
        page.locator("#history-gallery button").nth(number).click()
        page.wait_for_selector(f"#history-marked:has-text('{number + 1} selected')")
        page.wait_for_function(  # with a tick on the picture
            "n => document.querySelectorAll('#history-gallery [data-marked]').length === n",
            arg=number + 1,
        )
    page.click("#history-zip-marked")
    with page.expect_download() as loaded:
        page.click("#history-zip-file")
    with zipfile.ZipFile(loaded.value.path()) as file:
        assert len(file.namelist()) == 4
    page.click("#history-delete-marked")
    page.click("#history-delete-marked-keep")
    page.click("#history-delete-marked")
    page.click("#history-delete-marked-sure:has-text('2 pictures')")
    page.wait_for_function("document.querySelectorAll('#history-gallery img').length === 1")
    page.click("#taste-forget")
    page.click("#taste-forget-sure:has-text('1 choice')")
    page.wait_for_function("/forgotten/.test(document.querySelector('#taste').innerText)")
    page.click("#history-delete-all")
    page.click("#history-delete-all-sure:has-text('1 picture')")
    page.wait_for_function("/kept here/.test(document.querySelector('#history').innerText)")
    open_tab(other, "History")
    other.wait_for_selector("#history-gallery img")
    assert other.locator("#history-gallery img").count() == 1
