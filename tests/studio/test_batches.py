"""Batches: bad lines are told, what is stopped goes on, after a restart too."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from t2x.errors import T2XError
from t2x.jobs.lines import read_lines
from t2x.media import png_text
from t2x.plain import json_line
from t2x.studio import Studio
from t2x.studio.batches import Batches, _save
from t2x.studio.events import Cancelled, Drawn, Failed, Finished, Progress, Waiting
from t2x.studio.recipes import read_chunks

LINES = '{"prompt": "two kittens"}\n\nnot json\n"a crimson bus"\n{"prompt": " "}\n'


@pytest.fixture(scope="module")
def studio() -> Iterator[Studio]:
    studio = Studio(generator="emoji-flow-turbo", rewriter="rules", rewards=())
    yield studio
    studio.close()


def test_from_upload_to_download(studio: Studio, tmp_path: Path) -> None:
    path = tmp_path / "up"
    path.write_text(LINES)
    batches = Batches(tmp_path / "home")
    batch = batches.add("ada", path, name="my prompts.jsonl", seed=3)
    with pytest.raises(T2XError, match="nothing is made"):
        batches.zip(batch)
    last = list(studio.run(batches.drawing(batch), user="ada"))[-1]
    assert isinstance(last, Failed) and "rewritten yet" in last.message
    assert isinstance(list(studio.run(batches.rewriting(batch), user="ada"))[-1], Finished)
    state = batches.state(batch)
    assert (state.total, state.written, state.bad, state.done) == (4, 2, 2, True)
    assert [number for number, _ in state.errors] == [3, 5]
    assert "not valid JSON" in state.errors[0][1] and "empty" in state.errors[1][1]
    events = list(studio.run(batches.drawing(batch), user="ada"))
    assert any(isinstance(e, Progress) and e.seconds_left is not None for e in events)
    recipe = read_chunks(png_text(batches.picture(batch, 3, 0)))
    assert recipe is not None and (recipe.prompt, recipe.seed) == ("a crimson bus", 6)
    with zipfile.ZipFile(batches.zip(batch)) as file:
        assert set(file.namelist()) == {
            "rewrites.jsonl", "rewrites.jsonl.errors",
            "pictures/00000000-00.png", "pictures/00000003-00.png",
        }  # fmt: skip
    assert batches.zip(batch).name == "my-prompts.zip"
    offered = batches.offered(batch, batches.output(batch), ".jsonl")
    assert offered.name == "my-prompts.jsonl"
    assert offered.read_bytes() == batches.output(batch).read_bytes()
    again = Batches(tmp_path / "home")
    assert not offered.exists() and batches.output(batch).exists()
    assert again.all("ada") == [batch] and again.all("ben") == []
    for id in (batch.id + "0", "../x", batch.id):
        with pytest.raises(T2XError, match="not there"):
            again.get("ben", id)
    again.delete(batch)
    assert again.all("ada") == [] and not list((tmp_path / "home").rglob("*.png"))


def read_in(tmp_path: Path, name: str, data: bytes) -> tuple[list[str], str | None]:
    """Prompts of the lines of an upload, and the column that was guessed."""
    (path := tmp_path / "upload").write_bytes(data)
    batches = Batches(tmp_path / "home")
    _, likely = batches.columns(path, name=name)
    batch = batches.add("ada", path, name=name, column=likely)
    prompts = [line.prompt for line in read_lines(batches.source(batch)) if line.prompt]
    assert batch.total == len(prompts) and batches.get("ada", batch.id) == batch
    return prompts, likely


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize(
    ("name", "lines", "column"),
    [
        ("a.csv", [b"prompt", b"a cat", b'"two, dogs"'], "prompt"),
        ("a.csv", [b"id;Caption", b"1;a cat", b"2;two, dogs"], "Caption"),
        ("A.TSV", [b"text\tprompt", b"x\ta cat", b"y\ttwo, dogs"], "prompt"),
        ("a.csv", [b"words", b"a cat", b'"two, dogs"'], "words"),
        ("a.txt", [b"a cat", b"", b"two, dogs"], None),
        ("a.jsonl", [b'{"prompt": "a cat"}', b'"two, dogs"'], None),
    ],
)
def test_tables_and_lines_as_programs_of_windows_write_them(
    tmp_path: Path, name: str, lines: list[bytes], column: str | None, end: bytes, mark: bytes
) -> None:
    for data in (mark + end.join(lines), mark + end.join(lines) + end):
        assert read_in(tmp_path, name, data) == (["a cat", "two, dogs"], column)


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("a.csv", b"", "is empty"),
        ("a.csv", b"prompt\r\n", "holds no prompt"),
        ("a.csv", b"id,size\n1,2\n", "names no column 'prompt'; it names 'id', 'size'"),
        ("a.csv", b"\xff\xfep\0r\0", "UTF-16"),
        ("a.txt", b"\n\n \n", "holds no prompt"),
        ("a.txt", b"a cat\ra dog\ra bus", "end in CR alone"),
    ],
)
def test_what_holds_no_prompts_is_one_line_and_leaves_nothing(
    tmp_path: Path, name: str, data: bytes, said: str
) -> None:
    with pytest.raises(T2XError, match=said) as caught:
        read_in(tmp_path, name, data)
    assert "\n" not in str(caught.value) and not list((tmp_path / "home").rglob("input*"))


def test_a_column_of_the_file_before_is_nothing_to_plain_lines(tmp_path: Path) -> None:
    (path := tmp_path / "upload").write_text("a cat\n")
    assert Batches(tmp_path).add("ada", path, name="a.txt", column="Caption").column is None


def test_a_hundred_thousand_lines(tmp_path: Path) -> None:
    prompts = [f"{n} cats" for n in range(100_000)]
    found, _ = read_in(tmp_path, "a.csv", "\r\n".join(["prompt", *prompts]).encode())
    assert found == prompts
    batches = Batches(tmp_path / "home")
    (batch,) = batches.all("ada")
    done = [{"index": n, "prompt": prompts[n], "rewrites": []} for n in range(60_000)]
    batches.output(batch).write_text("".join(map(json_line, done)) + '{"index": 60000, "cut')
    state = batches.state(batch)
    assert (state.written, state.total, state.done) == (60_000, 100_000, False)
    assert sum(1 for _ in batches.records(batch)) == 60_000


def test_a_video_of_a_batch_keeps_its_frames(tmp_path: Path) -> None:
    frames = tuple(Image.new("RGB", (8, 8), (60 * i, 0, 0)) for i in range(3))
    recipe = {"prompt": "a cat", "text": "one cat.", "seed": 0, "kind": "picture"}
    _save(Drawn("original", 0, 0, frames[1], recipe, frames, 8), path := tmp_path / "a.png")
    with Image.open(path) as image:
        assert image.n_frames == 3 and image.info["duration"] == 125  # type: ignore[attr-defined]
        assert image.info["prompt"] == "a cat"
    assert list(tmp_path.iterdir()) == [path]


def test_what_was_cancelled_goes_on_to_the_same_bytes(studio: Studio, tmp_path: Path) -> None:
    path = tmp_path / "prompts.txt"
    path.write_text("".join(f"{n} red cats and a bus\n" for n in range(600)))
    batches = Batches(tmp_path / "home")
    whole, stopped = (batches.add("ada", path) for _ in range(2))
    assert isinstance(list(studio.run(batches.rewriting(whole), user="ada"))[-1], Finished)
    job = ""
    for event in studio.run(batches.rewriting(stopped), user="ada"):
        if isinstance(event, Waiting):
            job = event.job
        if isinstance(event, Progress) and event.done >= 300:
            studio.cancel(job)
        last = event
    assert isinstance(last, Cancelled) and 0 < batches.state(stopped).written < 600
    again = Batches(tmp_path / "home")  # after a restart
    assert isinstance(list(studio.run(again.rewriting(stopped), user="ada"))[-1], Finished)
    assert again.output(stopped).read_bytes() == again.output(whole).read_bytes()
    lines = again.output(whole).read_text().splitlines()
    assert [json.loads(line)["index"] for line in lines] == list(range(600))
