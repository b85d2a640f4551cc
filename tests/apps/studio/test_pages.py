"""From the events of a job to what the page shows, and from its boxes to a request."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from t2x.errors import T2XError
from t2x.studio.events import Cancelled, Drawn, Entry, Failed, Finished, Rewritten, Scored, Waiting
from t2x.studio.requests import BestOfRequest, CompareRequest, EditRequest
from t2x.types import Rewrite

pytestmark = pytest.mark.extra("app")


def test_a_picture_on_the_page_holds_its_recipe(drawn: Callable[..., Drawn]) -> None:
    from t2x.apps.studio.album import Album
    from t2x.studio.recipes import stored_recipe

    album = Album()
    album.add(drawn(index=2))
    (picture,) = album.placed("original")
    with Image.open(picture.path) as image:
        recipe = stored_recipe(image)
    assert recipe is not None and (recipe.prompt, recipe.seed) == ("a cat", 2)
    assert json.loads(Path(picture.recipe).read_text(encoding="utf-8"))["text"] == "one cat."
    album.remove()
    assert not Path(picture.path).exists()


def test_a_video_is_shown_as_one_that_moves(drawn: Callable[..., Drawn]) -> None:
    from t2x.apps.studio.album import Album

    frames = tuple(Image.new("RGB", (8, 8), (60 * i, 0, 0)) for i in range(3))
    album = Album()
    album.add(drawn(frames=frames, fps=8))
    (picture,) = album.placed("original")
    with Image.open(picture.path) as image:
        assert image.n_frames == 3  # type: ignore[attr-defined]
        assert image.info["prompt"] == "a cat"
    album.remove()


def test_the_best_come_first_and_what_is_not_measured_last(drawn: Callable[..., Drawn]) -> None:
    from t2x.apps.studio.album import BY_SEED, Album

    album = Album()
    for index in range(4):
        album.add(drawn(index=index))
    album.scores = [Scored("clip", {"original": (0.1, math.nan, 0.9, 0.1)})]
    album.sort("clip")
    assert [p.index for p in album.placed("original")] == [2, 0, 3, 1]
    captions = [caption for _, caption in album.gallery("original", by="clip")]
    assert captions[0] == "seed 2 · clip 0.9" and captions[-1] == "seed 1 · clip –"
    album.sort(BY_SEED)
    assert [p.index for p in album.placed("original")] == [0, 1, 2, 3]
    album.remove()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The desk, and the two pages, of a studio that has loaded nothing."""
    import gradio as gr

    from t2x.apps.studio import app, create_tab, edit_tab
    from t2x.studio import Studio

    home = tmp_path_factory.mktemp("home")
    with gr.Blocks():
        desk = app._desk(Studio(home=home), home, gr.BrowserState(None), gr.Tabs())
        return desk, create_tab._layout(desk), edit_tab._layout(desk)


def boxes(desk: Any, page: Any, **changed: Any) -> dict[Any, Any]:
    """Values of the Create tab's boxes as they are at first, with some changed by id."""
    parts = page.settings.inputs | page.guidance.inputs | {desk.prompt, desk.seed}
    parts |= {page.mode, page.rewrite}
    assert set(changed) <= {part.elem_id for part in parts}
    return {part: changed.get(part.elem_id, part.value) for part in parts}


def ask(built: Any, **changed: Any) -> Any:
    from t2x.apps.studio.create_tab import _request

    desk, page, _ = built
    return _request(page, desk, boxes(desk, page, **changed), None)


def test_the_boxes_make_a_request(built: Any) -> None:
    found = ask(built, prompt=" a cat ", height="96", width="64", scale="2.5", num=3)
    assert isinstance(found, CompareRequest)
    assert (found.prompt, found.num, found.rewrite) == ("a cat", 3, True)
    assert found.sampling.size == (96, 64) and found.sampling.guidance_scale == 2.5
    assert found.sampling.steps is None and found.rewards == ("clip", "hps", "aesthetic", "vqa")


def test_the_recipe_of_a_picture_fills_the_boxes(built: Any) -> None:
    from t2x.apps.studio.create_tab import _request
    from t2x.apps.studio.history_picture import _filled
    from t2x.studio.recipes import Recipe

    desk, page, _ = built
    sampling = {"height": 96, "width": 64, "num_inference_steps": 7, "guidance_scale": 2.123456789}
    sampling["num_frames"] = 9  # what is loaded draws pictures
    recipe = Recipe("a cat", "one cat.", seed=5, negative="a dog", sampling=sampling)
    full = boxes(desk, page) | _filled(desk, recipe)
    found = _request(page, desk, full, None)
    assert (found.prompt, found.seed, found.negative) == ("a cat", 5, "a dog")
    kept = found.sampling
    assert (kept.size, kept.steps, kept.guidance_scale) == ((96, 64), 7, 2.123456789)
    assert kept.num_frames is None
    with pytest.raises(T2XError):
        _filled(desk, Recipe("a", "a", request={"kind": "none"}))
    bare = full | _filled(desk, Recipe("a bus", "a bus", kind="edit"))
    after = _request(page, desk, bare, None)
    assert (after.prompt, after.negative, after.sampling) == ("a bus", "", type(kept)())


def test_steering_asks_also_for_the_scores_of_what_steers(built: Any) -> None:
    found = ask(built, prompt="a cat", mode="guide", rewards=["clip"], **{"steer-budget": "40"})
    assert found.weights == {"questions": 1.0, "clip": 0.3} and found.budget == 40
    assert found.rewards == ("clip", "questions")


@pytest.mark.parametrize(
    ("boxes", "said"),
    [
        ({"steps": "many"}, "steps is 'many'; give a whole number, or leave it empty"),
        ({"steps": "2.5"}, "steps is '2.5'"),
        ({"height": "64"}, "give both, or none"),
        ({"mode": "guide", "steer-weight-1": 0, "steer-weight-2": 0}, "nothing steers"),
    ],
)
def test_a_box_that_makes_no_sense_is_one_line(
    built: Any, boxes: dict[str, Any], said: str
) -> None:
    with pytest.raises(T2XError, match=said) as error:
        ask(built, prompt="a cat", **boxes)
    assert "\n" not in str(error.value)


def test_pictures_appear_side_by_side_as_they_come(built: Any, drawn: Callable[..., Drawn]) -> None:
    from t2x.apps.studio.stage import Show

    stage = built[1].stage
    show = Show(stage, CompareRequest("a cat", num=1), None)
    request = CompareRequest("a cat")
    events = [
        Waiting("j", 0),
        drawn(),
        drawn("rewritten"),
        Scored("clip", {"original": (0.1,), "rewritten": (0.2,)}),
        Finished(Entry("j", "u", request, seconds={"total": 1.5}, notes=("memory ran out",))),
    ]
    first, left, right, bars, last = [changes for _, changes in show.updates(iter(events))]
    assert first[stage.stop].visible and not first[stage.draw].visible
    assert stage.left in left and stage.right not in left
    assert stage.right in right and right[stage.right_column].visible
    assert "+0.1" in bars[stage.bars].value
    assert "Done in 1.5 s. memory ran out" in last[stage.status]
    assert last[stage.draw].visible and not last[stage.stop].visible
    assert all(set(changes) <= set(stage.outputs) for changes in (first, left, right, last))
    show.album.remove()


def test_a_stopped_job_leaves_its_pictures(built: Any, drawn: Callable[..., Drawn]) -> None:
    from t2x.apps.studio.stage import Show

    stage = built[1].stage
    show = Show(stage, BestOfRequest("a cat"), None)
    events = [Waiting("j", 0), drawn(), Cancelled(1)]
    *_, last = [changes for _, changes in show.updates(iter(events))]
    assert "Stopped. One picture was finished." in last[stage.status]
    assert stage.left not in last and last[stage.tools].visible
    show.album.remove()


def test_a_new_job_removes_the_files_of_the_one_before(
    built: Any, drawn: Callable[..., Drawn]
) -> None:
    from t2x.apps.studio.stage import Show

    first = Show(built[1].stage, BestOfRequest("a cat"), None)
    list(first.updates(iter([drawn()])))
    second = Show(built[1].stage, BestOfRequest("a dog"), first.album)
    refused = list(second.updates(iter([Failed("the prompt is empty")])))
    assert [list(changes) for _, changes in refused] == [[built[1].stage.status]]
    assert first.album.folder.exists()
    list(second.updates(iter([Waiting("j", 0), drawn()])))
    assert not first.album.folder.exists() and second.album.folder.exists()
    second.album.remove()


def test_the_rewrite_is_shown_when_it_comes(built: Any) -> None:
    from t2x.apps.studio.album import Album
    from t2x.apps.studio.create_tab import _words

    page, album = built[1], Album()
    found = _words(page, album, Rewritten(Rewrite("a cat", "one cat"), "a cat"))
    assert found[page.own] == "one cat" and found[page.use].visible
    assert album.rewrite is not None and _words(page, album, Cancelled(0)) == {}
    album.remove()


def test_an_edit_tells_what_it_decided() -> None:
    from t2x.apps.studio.edit_tab import decided_html

    request = EditRequest(source_prompt="a red cat", instruction="make the cat <blue>")
    html = decided_html(request, "a <blue> cat")
    assert "a <ins>&lt;blue&gt;</ins> cat" in html and "FlowEdit" in html
    assert "SDEdit" in decided_html(EditRequest(instruction="x"), "x")


def test_the_desk_stops_the_job_of_one_page(built: Any) -> None:
    from dataclasses import replace

    stopped: list[tuple[str, str]] = []

    class OneJob:
        def run(self, request: object, *, user: str) -> Any:
            yield Waiting("job-1", 0)
            yield Cancelled(0)

        def cancel(self, job: str, *, user: str) -> bool:
            stopped.append((job, user))
            return True

    desk = replace(built[0], studio=OneJob())
    events = desk.run(CompareRequest("a cat"), user="ada", page="p")
    assert next(events) == Waiting("job-1", 0)
    assert not desk.stop("another", user="ada") and desk.stop("p", user="ada")
    assert list(events) == [Cancelled(0)] and not desk.stop("p", user="ada")
    assert stopped == [("job-1", "ada")]


def test_a_job_that_ends_leaves_a_later_one_of_its_page_to_be_stopped(built: Any) -> None:
    from dataclasses import replace

    class Jobs:
        names = iter(["first", "second"])

        def run(self, request: object, *, user: str) -> Any:
            name = next(self.names)
            yield Waiting(name, 1)
            yield Waiting(name, 0)
            yield Cancelled(0)

        def cancel(self, job: str, *, user: str) -> bool:
            return job == "second"

    desk = replace(built[0], studio=Jobs(), _jobs={})
    first, second = (desk.run(CompareRequest("a cat"), user="ada", page="p") for _ in range(2))
    assert [next(first), next(second)] == [Waiting("first", 1), Waiting("second", 1)]
    assert list(first)[-1] == Cancelled(0)
    assert desk.stop("p", user="ada")


def test_two_stages_of_a_page_do_not_stop_each_other(built: Any) -> None:
    from types import SimpleNamespace
    from typing import cast

    request = cast(Any, SimpleNamespace(session_hash="s"))
    _, create, edit = built
    assert create.stage.page(request) != edit.stage.page(request)
