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
from t2x.studio.requests import BestOfRequest, CompareRequest, EditRequest, GuideRequest
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


FRAMES = tuple(Image.new("RGB", (16, 16), (60 * i, 0, 0)) for i in range(3))


def test_a_video_is_an_mp4_file_beside_the_png_with_its_recipe(drawn: Callable[..., Drawn]) -> None:
    pytest.importorskip("av", reason="needs pip install 't2x[video]'")
    from t2x.apps.studio.album import Album
    from t2x.media import load_media

    album = Album()
    album.add(drawn(frames=FRAMES, fps=8))
    (picture,) = album.placed("original")
    assert load_media(picture.video).shape == (1, 3, 3, 16, 16) and not album.note
    assert album.gallery("original") == [(picture.video, "seed 0")]
    with Image.open(picture.path) as image:
        assert image.info["prompt"] == "a cat"
    album.remove()


@pytest.mark.parametrize(("size", "said"), [((16, 16), "t2x[video]"), ((15, 16), "even sides")])
def test_where_no_mp4_can_be_written_a_video_is_an_animated_png_and_a_line_says_why(
    drawn: Callable[..., Drawn], monkeypatch: pytest.MonkeyPatch, size: Any, said: str
) -> None:
    import sys

    from t2x.apps.studio.album import Album

    monkeypatch.setitem(sys.modules, "av", None)
    album = Album()
    album.add(drawn(frames=[frame.resize(size) for frame in FRAMES], fps=8))
    (picture,) = album.placed("original")
    assert said in album.note and "animated PNG" in album.note and "\n" not in album.note
    assert album.gallery("original") == [(picture.path, "seed 0")]
    assert not picture.video and not list(album.folder.glob("*.mp4"))
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
    from t2x.studio.recipes import Recipe

    desk, page, _ = built
    sampling = {"height": 96, "width": 64, "num_inference_steps": 7, "guidance_scale": 2.123456789}
    sampling["num_frames"] = 9  # what is loaded draws pictures
    recipe = Recipe("a cat", "one cat.", seed=5, negative="a dog", sampling=sampling)
    full = values(boxes(desk, page) | fill(desk, recipe))
    found = _request(page, desk, full, None)
    assert (found.prompt, found.seed, found.negative) == ("a cat", 5, "a dog")
    kept = found.sampling
    assert (kept.size, kept.steps, kept.guidance_scale) == ((96, 64), 7, 2.123456789)
    assert kept.num_frames is None
    with pytest.raises(T2XError):
        fill(desk, Recipe("a", "a", request={"kind": "none"}))


def fill(desk: Any, recipe: Any) -> dict[Any, Any]:
    """What the form becomes by a recipe; nothing that was not told to the page."""
    from t2x.apps.studio.filling import filled, form_boxes

    changes = filled(desk, recipe, user="ada")
    assert set(changes) <= set(form_boxes(desk))
    return changes


def values(changes: dict[Any, Any]) -> dict[Any, Any]:
    """Updates as the values that a handler is given next."""
    import gradio as gr

    return {
        part: new.value if isinstance(new, gr.blocks.Block) and hasattr(new, "value") else new
        for part, new in changes.items()
    }


@pytest.mark.parametrize(
    "request_",
    [
        GuideRequest("a cat", {"vqa": 2.0, "hps": -0.5}, "E+particles", 12, seed=4, rewrite=False),
        GuideRequest("a cat", {"my.rewards:one": 7.25}, seed=4, rewrite=False),
    ],
)
def test_the_recipe_of_a_steered_picture_fills_in_what_steers(built: Any, request_: Any) -> None:
    from t2x.apps.studio.create_tab import _request
    from t2x.studio.recipes import Recipe
    from t2x.studio.requests import request_record

    desk, page, _ = built
    recipe = Recipe("a cat", "a cat", seed=4, request=request_record(request_))
    changes = fill(desk, recipe)
    assert changes[page.guidance.group].visible
    found = _request(page, desk, values(boxes(desk, page) | changes), None)
    assert isinstance(found, GuideRequest)
    assert (found.weights, found.mode, found.budget, found.seed, found.rewrite) == (
        request_.weights, request_.mode, request_.budget, 4, False,
    )  # fmt: skip
    plain = fill(desk, Recipe("a cat", "a cat"))
    assert plain[page.mode] == "compare" and not plain[page.guidance.group].visible


def test_a_recipe_that_the_form_has_no_room_for_says_so(built: Any) -> None:
    from t2x.studio.recipes import Recipe
    from t2x.studio.requests import request_record

    many = GuideRequest("a", dict.fromkeys(["vqa", "hps", "clip", "align"], 1.0))
    with pytest.raises(T2XError, match="4 rewards, and the form takes 3"):
        fill(built[0], Recipe("a", "a", request=request_record(many)))
    more = GuideRequest("a", {"vqa": 1.0}, options={"size": 0.3})
    changes = fill(built[0], Recipe("a", "a", request=request_record(more)))
    assert "also sets size=0.3" in changes[built[1].stage.status]


def test_a_reward_that_is_not_chosen_has_no_weight_to_set(built: Any) -> None:
    rows = built[1].guidance.rows
    assert [amount.interactive for amount in rows.amounts] == [True, True, False]
    changes = rows.filled({"vqa": 2.0})
    assert [changes[amount].interactive for amount in rows.amounts] == [True, False, False]


def test_each_way_to_steer_has_plain_words_and_its_term(built: Any) -> None:
    from t2x.apps.studio.guidance_panel import _help
    from t2x.guidance.recipe import MODES

    labels = {name: label for label, name in built[1].guidance.mode.choices}
    assert set(labels) == set(MODES)
    for name, label in labels.items():
        assert "oder" not in label and "article" not in label  # denoiser, decoder, particles
        assert f"mode {name}: " in _help(name) and _help(name) != f"mode {name}: both"


# ---- the Edit tab -------------------------------------------------------------------------------


def edit_boxes(built: Any, **changed: Any) -> dict[Any, Any]:
    """Values of the Edit tab's boxes as they are at first, with some changed by id."""
    desk, _, page = built
    parts = {*page.boxes, *page.rows.inputs, desk.edit_picture, desk.edit_shows, desk.edit_region}
    assert {name.replace("_", "-") for name in changed} <= {part.elem_id for part in parts}
    return {part: changed.get(part.elem_id.replace("-", "_"), part.value) for part in parts}


@pytest.fixture
def picture(tmp_path: Path) -> str:
    path = tmp_path / "bus.png"
    Image.effect_noise((32, 24), 90).convert("RGB").save(path)
    return str(path)


def test_the_boxes_of_an_edit_make_a_request(built: Any, picture: str) -> None:
    from t2x.apps.studio.edit_tab import _asked

    desk, _, page = built
    given = edit_boxes(
        built, edit_picture=picture, edit_instruction="make the cat blue", edit_shows="a red cat",
        edit_region="0.25,0,0.75,1", edit_method="rewardflow", edit_reward_1="vqa",
        edit_weight_1=1.5, edit_steps="6", edit_strength="0.5", edit_tether="2", edit_num=2,
        edit_seed=9,
    )  # fmt: skip
    found, lines = _asked(page, desk, given)
    assert found is not None and found.picture.size == (32, 24) and lines[page.said] == ""
    assert (found.instruction, found.source_prompt) == ("make the cat blue", "a red cat")
    assert found.region == (0.25, 0, 0.75, 1) and found.weights == {"vqa": 1.5}
    assert (found.method, found.sampling.steps) == ("rewardflow", 6)
    assert (found.strength, found.tether, found.num, found.seed) == (0.5, 2.0, 2, 9)
    without = given | {page.method: "sdedit", desk.edit_region: ""}
    found, _ = _asked(page, desk, without)
    assert found is not None and found.weights == {} and found.region is None


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"edit_instruction": ""}, "say what to change"),
        ({"edit_instruction": "remove the dog"}, "tells of no"),
        ({"edit_shows": ""}, "flowedit compares"),
        ({"edit_region": "0.5,0,0.5,1"}, "a region is"),
        ({"edit_steps": "many"}, "give a whole number"),
        ({"edit_strength": "7"}, "strength is 7"),
        ({"edit_height": "64"}, "give both, or none"),
    ],
)
def test_an_edit_that_can_not_be_done_is_said_beside_the_box_and_loses_nothing(
    built: Any, picture: str, changed: dict[str, Any], said: str
) -> None:
    from t2x.apps.studio.edit_tab import _asked

    desk, _, page = built
    good = {
        "edit_picture": picture, "edit_instruction": "make the cat blue",
        "edit_shows": "a red cat", "edit_method": "flowedit",
    }  # fmt: skip
    assert _asked(page, desk, edit_boxes(built, **good))[0] is not None
    found, lines = _asked(page, desk, edit_boxes(built, **(good | changed)))
    assert (
        found is None
        and said in lines[page.said].lower()
        and set(lines) == {page.said, page.source.said}
    )
    found, lines = _asked(page, desk, edit_boxes(built, **(good | {"edit_picture": None})))
    assert found is None and "begins with a picture" in lines[page.source.said]
    assert lines[page.said] == ""


EDIT = EditRequest(
    None, "make the cat blue", "a red cat", method="rewardflow", weights={"clip": 0.25},
    strength=0.6, tether=0.1, region=(1 / 3, 0.0, 1.0, 0.5), num=1, seed=5,
)  # fmt: skip


def test_the_recipe_of_an_edit_fills_in_its_source_too(built: Any, picture: str) -> None:
    from t2x.apps.studio.edit_tab import _asked
    from t2x.generators.sources import source_digest
    from t2x.studio.recipes import Recipe
    from t2x.studio.requests import request_record

    desk, _, page = built
    with Image.open(picture) as image:
        source, digest = image.convert("RGB"), source_digest(image)
    recipe = Recipe(
        "a blue cat", "a blue cat", seed=5, kind="edit", request=request_record(EDIT),
        source={"digest": digest},
    )  # fmt: skip
    missing = fill(desk, recipe)
    assert missing[desk.edit_picture] is None and missing[desk.edit_wanted] == digest
    assert "drop that picture here" in missing[page.source.said]
    desk.history._keep_source(source, recipe, user="ada")
    full = fill(desk, recipe)
    assert full[desk.edit_wanted] == full[page.source.said] == ""
    assert source_digest(full[desk.edit_picture]) == digest
    given = values(edit_boxes(built) | full) | {desk.edit_picture: picture}
    found, lines = _asked(page, desk, given)
    assert found is not None, lines
    assert request_record(found) == request_record(EDIT)


def test_a_picture_that_is_dropped_is_known_again(built: Any, picture: str) -> None:
    from t2x.apps.studio.edit_source import _recognised, sizes
    from t2x.generators.sources import source_digest
    from t2x.studio.state import ModelState, StudioState
    from t2x.studio.uploads import read_dropped

    found = read_dropped(picture)
    assert "is the picture" in _recognised(found, source_digest(found.picture))
    assert "is not the picture" in _recognised(found, "0" * 16) and _recognised(found, "") == ""
    facts = {"edited_size": {"pixels": 64 * 64, "multiple": 8}}
    state = StudioState(ModelState("m", "ready", "", facts), ModelState("none", "none"), (), 0)
    own, drawn, said = sizes(found, state)
    assert own == (24, 32) and drawn == (56, 72) and said == "32 × 24 pixels, edited as 72 × 56."


def test_what_changed_and_what_was_kept_is_told() -> None:
    from t2x.apps.studio.changed import changed_html
    from t2x.studio.changes import Change

    change = Change(0.125, 41.25, Image.new("RGB", (8, 8)))
    html = changed_html([(3, change)], region=(0, 0, 0.5, 1))
    assert (
        "12 % of the pixels" in html
        and "outside the box kept to 41.2 dB" in html
        and "seed 3" in html
    )
    whole = changed_html([(3, Change(1.0, math.nan, change.map))], region=None)
    assert "dB" not in whole.split("figcaption")[1]


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
    from t2x.apps.studio.changed import decided_html

    request = EditRequest(source_prompt="a red cat", instruction="make the cat <blue>")
    html = decided_html(request, "a <blue> cat", "flowedit")
    assert "a <ins>&lt;blue&gt;</ins> cat" in html and "FlowEdit" in html
    assert "everywhere" in html
    boxed = decided_html(EditRequest(region=(0, 0, 0.5, 1)), "x", "sdedit")
    assert "SDEdit" in boxed and "0 to 50 % across" in boxed


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


def test_a_model_that_was_not_waited_for_is_told(built: Any) -> None:
    """With the state of the models that go on."""
    from t2x.apps.studio.settings_panel import _told

    desk = built[0]
    line, *others = _told(Cancelled(), desk, 7)
    assert "those that were there before" in line and len(others) == 7
    assert "emoji-flow" in others[0] and "emoji-rewriter" in others[0]
    line, *others = _told(Waiting("a", 0), desk, 7)
    assert "Starting" in line and len(others) == 7
    line, *others = _told(Failed("it can't be loaded"), desk, 7)
    assert "be loaded" in line and "emoji-flow" in others[0]


def test_models_are_shown_again_when_the_page_is_opened_and_after_each_job() -> None:
    """Another visitor may have swapped them: box and line say what there is."""
    from t2x.apps.studio import app
    from t2x.studio import Studio

    studio = Studio(rewriter="none")
    page = app.build(studio, home=studio.home)
    id = {block.elem_id: block._id for block in page.blocks.values() if block.elem_id}
    shows = [fn for fn in page.fns.values() if fn.name == "now"]
    studio.models._generator.source = "emoji-flow-turbo"
    values = dict(zip((block._id for block in shows[0].outputs), shows[0].fn(), strict=True))
    assert (values[id["generator"]], values[id["rewriter"]]) == ("emoji-flow-turbo", "none")
    line = values[id["models-state"]]
    assert "emoji-flow-turbo" in line and "<b>none</b> <span>not wanted" in line
    events = {event for fn in shows for _, event in fn.targets}
    assert {"load", "select", "then"} <= events


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
