"""Scoring many files: what is found, what is read, what fails, and the sheet that shows it."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest
import torch
from PIL import Image

from t2x.errors import T2XError
from t2x.evaluation import scores as module
from t2x.evaluation.contact_sheet import draw_contact_sheet, scores_page
from t2x.evaluation.scores import Item, Row, find_items, ranked, score_items
from t2x.media import save_png
from t2x.testing import FakeReward


class Named(FakeReward):
    def __init__(self, name: str = "bright", **options: object) -> None:
        super().__init__(**options)  # type: ignore[arg-type]
        self.name = name


class Fragile(FakeReward):
    """Fails as a whole if one picture is dark."""

    def score(self, prompts, media, *, context=None):
        if any(item.mean() < 0.1 for item in media):
            raise RuntimeError("too\ndark")
        return super().score(prompts, media)


def draw(name: str, level: float, size: tuple[int, int] = (4, 4)) -> Path:
    save_png(torch.full((3, *size), level), name)
    return Path(name)


def animate(name: str, levels: list[int], **options: object) -> Path:
    frames = [Image.new("RGB", (6, 4), (v, v, v)) for v in levels]
    frames[0].save(name, save_all=True, append_images=frames[1:], **options)
    return Path(name)


def test_folders_files_and_prompts() -> None:
    for name in ("d/b.png", "d/sub/a.PNG", "c.png"):
        draw(name, 0.5)
    Path("d/note.txt").write_text("no picture")
    items = find_items([Path("d"), Path("c.png")], ["x"])
    assert [item.picture for item in items] == ["d/b.png", "d/sub/a.PNG", "c.png"]
    assert {item.prompt for item in items} == {"x"}
    each = find_items([Path("d"), Path("c.png")], ["1", " ", "3"])
    assert [item.prompt for item in each] == ["1", " ", "3"]
    assert [item.error for item in each] == ["", "the prompt is empty", ""]
    with pytest.raises(T2XError, match="got 2 prompts for 3 pictures"):
        find_items([Path("d"), Path("c.png")], ["1", "2"])


def test_a_file_that_is_not_there_is_named_before_its_prompt() -> None:
    (item,) = find_items([Path("gone.png")])
    assert item.error == "there is no file 'gone.png'; give the path of a picture"


def test_pairs_of_a_jsonl_keep_their_prompts_and_bad_lines_say_why() -> None:
    draw("set/a.png", 0.2)
    lines = [
        json.dumps({"picture": "a.png", "prompt": "猫"}),
        "",
        "{broken",
        json.dumps({"picture": "a.png"}),
        json.dumps({"prompt": "x"}),
        json.dumps({"picture": "a.png", "prompt": 3}),
        json.dumps(["a.png"]),
    ]
    Path("set/pairs.jsonl").write_text("\n".join(lines), encoding="utf-8")
    items = find_items([Path("set/pairs.jsonl")], [])
    assert items[0] == Item("set/a.png", "猫")
    errors = [item.error for item in items]
    assert "not valid JSON" in errors[1] and "no prompt was given" in errors[2]
    assert all("'picture'" in errors[i] for i in (3, 5)) and "no text" in errors[4]
    assert items[1].picture == "set/pairs.jsonl:3"
    filled = find_items([Path("set/pairs.jsonl")], ["for all"])
    assert filled[2] == Item("set/a.png", "for all") and filled[0].prompt == "猫"


def test_every_failure_is_a_row_and_the_rest_is_scored() -> None:
    draw("a.png", 0.2)
    Path("text.png").write_text("no picture")
    Path("cut.png").write_bytes(Path("a.png").read_bytes()[:40])
    Path("empty").mkdir()
    paths = [Path(n) for n in ("gone.png", "a.png", "text.png", "empty", "cut.png", "gone.jsonl")]
    paths.append(draw("b.png", 0.6, (9, 5)))
    rows = score_items(find_items(paths, ["x"]), {"r": Named()})
    assert [bool(row.error) for row in rows] == [True, False, True, True, True, True, False]
    assert [row.scores["r"] for row in rows if not row.error] == pytest.approx([0.2, 0.6], abs=1e-6)
    assert "no file 'gone.png'" in rows[0].error and "is no picture" in rows[2].error
    assert all("\n" not in row.error for row in rows)


def test_a_batch_that_fails_is_scored_one_by_one() -> None:
    paths = [draw(f"{i}.png", level) for i, level in enumerate((0.5, 0.0, 1.0))]
    rows = score_items(find_items(paths, ["x"]), {"f": Fragile(), "r": Named()})
    assert [row.error for row in rows] == ["", "can't be scored: too dark", ""]
    assert [row.scores["f"] for row in rows[::2]] == pytest.approx([0.5, 1], abs=0.01)


def test_batches_give_what_singles_give(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [draw(f"{i}.png", i / 10, (4 + i % 3, 5)) for i in range(7)]
    items, seen = find_items(paths, ["x"]), []
    whole = score_items(items, {"r": Named()}, progress=lambda i, n: seen.append((i, n)))
    assert seen == [(7, 7)]
    monkeypatch.setattr(module, "BATCH", 3)
    cut = score_items(items, {"r": Named()}, progress=lambda i, n: seen.append((i, n)))
    assert seen[1:] == [(3, 7), (6, 7), (7, 7)]
    assert [row.scores for row in cut] == [row.scores for row in whole]
    monkeypatch.setattr(module, "VALUES", 1)
    assert [r.scores for r in score_items(items, {"r": Named()})] == [r.scores for r in whole]


def test_videos_beside_pictures() -> None:
    """A reward of pictures gives a video its frames' mean, one of videos is NaN for a picture."""
    gif = animate("v.gif", [51, 153], duration=100)
    png = animate("v.png", [0, 255, 102], duration=100)
    paths = [gif, draw("still.png", 0.4), png]
    rewards = {"p": Named("p"), "v": Named("v", modality="video")}
    rows = score_items(find_items(paths, ["x"]), rewards)
    assert not any(row.error for row in rows)
    means = [0.4, 0.4, 357 / 3 / 255]
    assert [row.scores["p"] for row in rows] == pytest.approx(means, abs=0.01)
    assert [math.isnan(row.scores["v"]) for row in rows] == [False, True, False]
    few = score_items(find_items([png], ["x"]), rewards, max_frames=2)
    assert few[0].scores["p"] == pytest.approx(102 / 2 / 255, abs=0.01)


def rows_to_show() -> list[Row]:
    paths = [draw(f"{n}.png", v) for n, v in (("low", 0.2), ("no", 0.9), ("high", 0.7))]
    items = find_items([*paths, Path("gone<b>.png")], ["cat", "unknown", "<i>dog</i> $title", "x"])
    return score_items(items, {"r": Named(fails_on="unknown"), "s": Named("s")}, thumbnails=True)


def test_ranking_is_by_one_reward_with_the_unmeasured_last() -> None:
    rows = rows_to_show()
    assert [Path(r.item.picture).stem for r in ranked(rows, "r")] == ["high", "low", "no"]
    assert [Path(r.item.picture).stem for r in ranked(rows, "s")] == ["no", "high", "low"]


def test_the_sheet_shows_pictures_in_that_order() -> None:
    sheet = draw_contact_sheet(rows_to_show(), "r")
    assert sheet.mode == "RGB" and sheet.width > 700
    row = [sheet.getpixel((x, 250))[0] for x in range(0, sheet.width, 4)]
    greys = [v for v in dict.fromkeys(row) if row.count(v) > 40 and v < 250]
    assert greys == [round(v * 255) for v in (0.7, 0.2, 0.9)]
    assert draw_contact_sheet([], "r").width > 100


def test_the_page_is_one_safe_file_in_that_order() -> None:
    page = scores_page(rows_to_show(), "r")
    names = re.findall(r"<h3>\d\. (\w+)\.png", page)
    assert names == ["high", "low", "no"]
    assert "<i>dog" not in page and "&lt;i&gt;dog&lt;/i&gt; $title" in page
    assert "gone&lt;b&gt;.png" in page and "there is no file" in page
    assert page.count("data:image/png;base64,") == 3 and "0.6980" in page
    assert "3 of 4 files scored" in page and "1 not measured by r" in page
    assert "default-src 'none'" in page and page.count("<style>") == 1 and "$style" not in page
    assert "Not scored" not in scores_page(rows_to_show()[:3], "r")
