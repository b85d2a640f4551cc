"""The history: what is kept survives kills, restarts and damage; what is deleted is gone."""

from __future__ import annotations

import errno
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import IO

import pytest
from PIL import Image

from t2x.errors import T2XError
from t2x.media import png_text
from t2x.studio import Studio
from t2x.studio.events import Drawn, Finished, Scored
from t2x.studio.history import History
from t2x.studio.history_zip import zip_history
from t2x.studio.recipes import Recipe, read_chunks
from t2x.studio.requests import BestOfRequest, EditRequest

REQUEST = BestOfRequest("a cat")
JOB = "0123456789abcdef"


def drawn(index: int = 0, prompt: str = "a cat", arm: str = "original", **facts: object) -> Drawn:
    recipe = Recipe(prompt, prompt, seed=index, model="fake", **facts)  # type: ignore[arg-type]
    picture = Image.new("RGB", (16, 16), (index % 256, 9, 9))
    return Drawn(arm, index, index, picture, recipe.record())


def fill(history: History, number: int, user: str = "ada", job: str = JOB) -> list[str]:
    return [history.add(drawn(i), user=user, job=job) for i in range(number)]


def test_pages_words_marks_and_users(tmp_path: Path) -> None:
    history = History(tmp_path)
    ids = fill(history, 5)
    history.add(drawn(9, "Ein GRÜNER Hund, 50% off_"), user="../../ben", job=JOB)
    page = history.page("ada", size=2)
    assert [kept.id for kept in page.items] == [ids[4], ids[3]]
    assert (page.total, page.pages) == (5, 3)
    assert [kept.id for kept in history.page("ada", size=2, number=99).items] == [ids[0]]
    history.set_favourite("ada", ids[1], True)
    history.set_favourite("ben", ids[2], True)  # not theirs
    assert [kept.id for kept in history.page("ada", favourites=True).items] == [ids[1]]
    for words, total in (("grüner hund", 1), ("50% off_", 1), ("hund cat", 0), ("%", 1), ("'", 0)):
        assert history.page("../../ben", words=words).total == total, words
    with pytest.raises(T2XError, match="not in your history"):
        history.get("../../ben", ids[0])
    assert {path.parent for path in tmp_path.rglob("*.png")} == {
        history.files.folder("ada"),
        history.files.folder("../../ben"),
    }


@pytest.mark.parametrize("id", ["../x", "/etc/passwd", "", "a" * 4000, f"{JOB}-original-0\0", None])
def test_what_is_no_id_is_refused(tmp_path: Path, id: str) -> None:
    history = History(tmp_path)
    for call in (history.get, lambda u, i: history.delete(u, [i])):
        with pytest.raises(T2XError, match="no picture of the history"):
            call("ada", id)


def test_events_are_kept_with_their_scores(tmp_path: Path) -> None:
    history = History(tmp_path)
    for event in (drawn(0), drawn(1), Scored("clip", {"original": (0.5, float("nan"))})):
        history.watch(JOB, "ada", REQUEST, event)
    second, first = history.page("ada").items
    assert dict(first.scores) == {"clip": 0.5} and dict(second.scores) == {"clip": None}
    json.dumps(first.record(), allow_nan=False)
    assert read_chunks(png_text(first.path)) == first.recipe


def test_it_survives_a_restart_and_a_lost_index(tmp_path: Path) -> None:
    history = History(tmp_path)
    ids = fill(history, 3)
    again = History(tmp_path)
    assert again.page("ada").total == 3 and again.problems == ()
    for name in ("history.sqlite", "history.sqlite-wal", "history.sqlite-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    again = History(tmp_path)
    assert {kept.id for kept in again.page("ada").items} == set(ids)


@pytest.mark.parametrize("damage", ["text", "middle"])
def test_a_damaged_index_is_made_anew_and_said(tmp_path: Path, damage: str) -> None:
    history = History(tmp_path)
    ids = fill(history, 30)
    index = tmp_path / "history.sqlite"
    for ending in ("-wal", "-shm"):
        index.with_name(index.name + ending).unlink(missing_ok=True)
    data = index.read_bytes()
    index.write_bytes(b"nonsense" * 999 if damage == "text" else data[:2048] + b"\xff" * 6144)
    (history.files.folder("ada") / f"{JOB}-original-99.png").write_bytes(b"no picture")
    again = History(tmp_path)
    assert {kept.id for kept in again.page("ada", size=99).items} == set(ids)
    said = " ".join(again.problems)
    assert "index was damaged" in said and "1 files of the history can't be read" in said
    assert (tmp_path / "history.damaged-1.sqlite").exists()


def test_an_index_that_is_damaged_while_it_is_open_mends_itself(tmp_path: Path) -> None:
    history = History(tmp_path)
    fill(history, 2)
    for name in ("history.sqlite-wal", "history.sqlite-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / "history.sqlite").write_bytes(b"nonsense" * 999)
    with pytest.raises(T2XError, match="damaged"):
        history.page("ada")
    assert history.page("ada").total == 2


def test_what_a_newer_version_wrote_is_left_alone(tmp_path: Path) -> None:
    fill(History(tmp_path), 2)
    index = tmp_path / "history.sqlite"
    with closing(sqlite3.connect(index)) as db:
        db.execute("PRAGMA user_version = 99")
    history = History(tmp_path)  # the studio starts all the same
    for call in (lambda: history.page("ada"), lambda: fill(history, 1, job="f" * 16)):
        with pytest.raises(T2XError, match=r"newer t2x.*upgrade") as caught:
            call()
        assert "\n" not in str(caught.value)
    assert not list(tmp_path.glob("history.damaged*"))
    with closing(sqlite3.connect(index)) as db:
        db.execute("PRAGMA user_version = 1")
    assert history.page("ada").total == 3  # the third was kept as a file, and is taken in


def test_while_another_program_writes_the_history_is_read_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History(tmp_path)
    fill(history, 1)
    monkeypatch.setattr("t2x.studio.history_files.PATIENCE", 0.1)
    with closing(sqlite3.connect(tmp_path / "history.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert history.page("ada").total == 1
        with pytest.raises(T2XError, match="locked; another program holds it; try again"):
            history.add(drawn(1), user="ada", job=JOB)
        other.execute("ROLLBACK")
    history.add(drawn(2), user="ada", job=JOB)
    assert history.page("ada").total == 2 and History(tmp_path).page("ada").total == 3


def test_a_full_disk_is_one_line_and_leaves_no_half_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History(tmp_path)
    fill(history, 1)

    def full(file: IO[bytes], *given: object, **more: object) -> None:
        file.write(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), file.name)

    with monkeypatch.context() as patch:
        patch.setattr("t2x.studio.history_files.write_picture", full)
        with pytest.raises(T2XError, match="can't be kept: No space left on device; download it"):
            history.add(drawn(1), user="ada", job=JOB)
    assert [path.suffix for path in history.files.folder("ada").iterdir()].count(".png") == 1
    assert not list(tmp_path.rglob("*.part"))
    history.add(drawn(1), user="ada", job=JOB)
    assert history.page("ada").total == 2


def test_a_folder_that_can_not_be_written_is_told_until_it_can(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.write_text("a file is in the way")
    history = History(home)
    for call in (lambda: history.page("ada"), lambda: fill(history, 1)):
        with pytest.raises(T2XError, match=r"cannot write into|can't be kept") as caught:
            call()
        assert "\n" not in str(caught.value)
    home.unlink()
    fill(history, 1)
    assert history.page("ada").total == 1


def test_what_can_not_be_kept_reaches_its_user_and_is_told_once(
    tmp_path: Path, make_studio: Callable[..., Studio], caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "taken").write_text("a file is in the way")
    studio = make_studio()
    studio.listen(History(tmp_path / "taken").watch)
    *events, last = studio.run(BestOfRequest("a cat", num=3, rewrite=False), user="ada")
    assert sum(isinstance(event, Drawn) for event in events) == 3 and isinstance(last, Finished)
    assert len(last.entry.scores) > 0  # which can't be kept either, and is no second sentence
    (said,) = last.entry.notes
    assert said.startswith("the picture can't be kept: ") and "--home" in said
    (logged,) = [record for record in caplog.records if record.name.startswith("t2x.studio")]
    assert said in logged.getMessage() and not logged.exc_info


def test_missing_and_cut_files_are_said_and_the_rest_is_shown(tmp_path: Path) -> None:
    history = History(tmp_path)
    ids = fill(history, 3)
    history.files.path("ada", ids[0]).unlink()
    path = history.files.path("ada", ids[1])
    path.write_bytes(path.read_bytes()[:-9])
    problems = {kept.id: kept.problem for kept in History(tmp_path).page("ada").items}
    assert problems == {ids[0]: "its file is gone", ids[1]: "its file is damaged", ids[2]: ""}


def test_deleting_really_deletes(tmp_path: Path) -> None:
    history = History(tmp_path)
    source = Image.new("RGB", (16, 16), "red")
    request = EditRequest(picture=source, instruction="make it blue")
    from t2x.generators.sources import source_digest

    digest = source_digest(source)
    for i in range(2):
        facts = {"kind": "edit", "source": {"digest": digest}}
        history.watch(JOB, "ada", request, drawn(i, arm="edited", **facts))
    fill(history, 2, "ben")
    first, second = (kept.id for kept in history.page("ada").items)
    assert history.source("ada", digest) is not None and history.source("ben", digest) is None
    assert history.delete("ben", [first]) == 0
    assert history.delete("ada", [first]) == 1 and history.source("ada", digest) is not None
    assert history.delete("ada") == 1 and history.page("ada").total == 0
    assert not list(history.files.folder("ada").rglob("*.png"))
    private = drawn(7, "a secret birthday cake")
    history.add(private, user="ada", job="f" * 16)
    assert history.delete("ada") == 1
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert kept and not any(b"secret birthday" in path.read_bytes() for path in kept)
    assert second and History(tmp_path).page("ada").total == 0 and history.page("ben").total == 2


def test_a_zip_holds_pictures_and_recipes_and_names_what_is_gone(tmp_path: Path) -> None:
    history = History(tmp_path)
    ids = fill(history, 3)
    fill(history, 1, "ben", job="fedcba9876543210")
    history.files.path("ada", ids[0]).unlink()
    with zipfile.ZipFile(zip_history(history, "ada")) as file:
        names = file.namelist()
        assert sum(n.endswith(".png") for n in names) == 2 and "MISSING.txt" in names
        records = [json.loads(file.read(n)) for n in names if n.endswith(".json")]
        assert {record["id"] for record in records} == set(ids)
        assert file.testzip() is None
    with zipfile.ZipFile(zip_history(history, "ada", [ids[1]])) as file:
        assert len(file.namelist()) == 2
    with pytest.raises(T2XError, match="no picture"):
        zip_history(history, "nobody")
    assert not list(history.files.folder("nobody").rglob("*.zip"))
    history.delete("ada")
    assert not list(history.files.folder("ada").rglob("*.zip"))


def test_downloads_and_halves_of_files_do_not_stay(tmp_path: Path) -> None:
    history = History(tmp_path)
    (id,) = fill(history, 1)
    folder = history.files.folder("ada")
    old, new = zip_history(history, "ada"), zip_history(history, "ada")
    (folder / "half.part").write_bytes(b"PNG")
    for path in (old.parent, folder / "half.part"):
        os.utime(path, (1, 1))
    History(tmp_path)
    assert not old.exists() and new.exists() and not (folder / "half.part").exists()
    assert history.get("ada", id).problem == ""


WRITER = """
import sys
sys.path.insert(0, sys.argv[1])
from test_history import *
history = History(sys.argv[2])
print("ready", flush=True)
for i in range(100000):
    history.add(drawn(i), user="ada", job=sys.argv[3])
    print(i, flush=True)
"""


def start(home: Path, job: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(Path(__file__).parent), str(home), job]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ))


def test_two_processes_and_a_kill_lose_nothing_that_was_kept(tmp_path: Path) -> None:
    jobs = ("aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb")
    writers = [start(tmp_path, job) for job in jobs]
    try:
        for writer in writers:
            assert writer.stdout is not None and writer.stdout.readline() == "ready\n"
        time.sleep(1)
    finally:
        for writer in writers:
            writer.send_signal(signal.SIGKILL)
    said = [len(writer.communicate()[0].splitlines()) for writer in writers]
    history = History(tmp_path)
    page = history.page("ada", size=1 << 20)
    for job, number in zip(jobs, said, strict=True):
        kept = [item for item in page.items if item.job == job]
        assert number > 3 and number <= len(kept) <= number + 1
        assert all(not item.problem for item in kept)
    files = list(history.files.folder("ada").glob("*.png"))
    assert len(files) == page.total and history.problems == ()


def test_whose_a_folder_is_does_not_lie_among_the_files_that_are_served(tmp_path: Path) -> None:
    history = History(tmp_path)
    ids = fill(history, 2)
    pictures = history.files.folder("ada")
    assert {path.suffix for path in (tmp_path / "pictures").rglob("*") if path.is_file()} == {
        ".png"
    }
    (tmp_path / "owners" / f"{pictures.name}.json").replace(pictures / "user.txt")  # as it once was
    (tmp_path / "history.sqlite").unlink()
    again = History(tmp_path)
    assert not (pictures / "user.txt").exists()
    assert {kept.id for kept in again.page("ada").items} == set(ids)
