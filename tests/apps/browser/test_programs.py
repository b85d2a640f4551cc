"""The studio as programs see it: named endpoints, many calls at once, files, tools; no browser."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from gradio_client import Client, handle_file
from gradio_client.exceptions import AppError
from PIL import Image

from t2x.apps.studio.driving import Running, running
from t2x.testing.snippets import fenced_blocks

NAMES = {
    *("/rewrite", "/draw", "/generate", "/compare", "/best", "/guide", "/edit", "/score"),
    *("/ask", "/models"),
}
GUIDE = Path(__file__).parents[3] / "docs" / "studio.md"


@pytest.fixture(scope="module")
def client(studio: Running) -> Iterator[Client]:
    client = Client(studio.url, verbose=False, analytics_enabled=False)
    yield client
    client.close()


def test_only_named_endpoints_are_seen(client):
    info = client.view_api(return_format="dict", print_info=False)
    assert set(info["named_endpoints"]) == NAMES and not info["unnamed_endpoints"]
    for name, endpoint in info["named_endpoints"].items():
        assert endpoint["description"], name


def test_each_endpoint_answers(client):
    rewrite = client.predict("two kittens and a bus", api_name="/rewrite")
    assert rewrite["status"] in ("accepted", "unchanged", "reverted") and rewrite["checks"]
    picture = client.predict("a cat", False, api_name="/draw")
    with Image.open(picture) as drawn:
        assert drawn.size == (64, 64) and "a cat" in str(drawn.info)
    _, files, result = client.predict("two kittens", rewards="clip", api_name="/compare")
    assert len(files) == len(result["pictures"]) and set(result["scores"]) == {"clip"}
    _, files, result = client.predict("a cat", num=2, rewards="clip", api_name="/best")
    (values,) = result["scores"]["clip"].values()
    first = client.predict(handle_file(files[0]), "a cat", "clip", api_name="/score")
    assert first["clip"]["value"] == pytest.approx(max(values), abs=1e-5)
    _, files, _ = client.predict("a cat", weights={"clip": 1}, mode="E", api_name="/guide")
    assert len(files) == 2
    changed, files, result = client.predict(
        handle_file(picture), "make the cat blue", "a cat", region="0,0,0.5,1", api_name="/edit"
    )
    assert Path(changed).is_file() and len(files) == 2
    assert 0 < result["pictures"][1]["changed"] < 1 and result["pictures"][1]["kept_psnr"] > 20
    assert client.predict(api_name="/models")["generator"]["readiness"] == "ready"


def test_a_conversation_is_its_answers(client):
    answers: list[str] = []
    for _ in range(2):
        _, files, result = client.predict("an animal", answers, api_name="/ask")
        assert len(files) >= 2 and len(result["options"]) > len(files)
        answers.append(result["options"][0])
    _, _, after = client.predict("an animal", answers, api_name="/ask")
    assert after["question"] != result["question"] and after["prompt"] != "an animal"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ({"prompt": "", "api_name": "/draw"}, "the prompt is empty"),
        ({"prompt": "x" * 9000, "api_name": "/rewrite"}, "too long"),
        ({"prompt": "x", "num": 1000, "api_name": "/generate"}, "give 1 to 4"),
        ({"prompt": "x", "size": "8x8x8", "api_name": "/generate"}, "like 512x768"),
        ({"prompt": "x", "size": "99999x8", "api_name": "/generate"}, "give 8 to 2048"),
        ({"prompt": "x", "rewards": "clp", "api_name": "/compare"}, "did you mean 'clip'"),
        ({"prompt": "x", "weights": 3, "api_name": "/guide"}, "numbers by name"),
        ({"prompt": "x", "seed": 10**30, "api_name": "/draw"}, "seed"),
        ({"prompt": "x", "seed": 10**30, "api_name": "/rewrite"}, "seed"),
        ({"prompt": "x", "seed": -5, "api_name": "/rewrite"}, "seed is -5"),
        ({"prompt": "x", "num": None, "api_name": "/generate"}, "num is null"),
        ({"picture": None, "prompt": "x", "api_name": "/score"}, "no picture"),
        ({"prompt": "x", "answers": {"a": 1}, "api_name": "/ask"}, "list of texts"),
    ],
)
def test_what_can_not_be_done_is_one_line(client, call, said):
    with pytest.raises(AppError, match=said) as caught:
        client.predict(**call)
    assert "\n" not in str(caught.value) and "Traceback" not in str(caught.value)


@pytest.mark.parametrize("name", ["/score", "/edit"])
def test_what_is_no_picture_is_told_by_its_name(client, tmp_path, name):
    words = {"/score": ("a cat", "clip"), "/edit": ("make it blue", "a cat")}[name]
    for text, said in (("no picture", "is no picture"), ("", "is empty")):
        (tmp_path / "x.png").write_text(text)
        with pytest.raises(AppError, match=f"^x.png {said}"):
            client.predict(handle_file(tmp_path / "x.png"), *words, api_name=name)


def asked(url: str, number: int) -> tuple[str, Any]:
    """Call /rewrite by plain HTTP; gives the last event and its data."""
    prompt = f"{number % 4 + 1} cats"
    with httpx.Client(base_url=f"{url}/gradio_api/call/rewrite", timeout=240) as http:
        answer = http.post("", json={"data": [prompt, number]})
        answer.raise_for_status()
        lines = http.get(answer.json()["event_id"]).text.strip().splitlines()
    events = [line.partition(": ")[2] for line in lines if line]
    return events[-2], json.loads(events[-1])


def test_fifty_calls_at_once_are_answered_or_refused_in_words(studio):
    with ThreadPoolExecutor(50) as pool:
        found = list(pool.map(lambda n: asked(studio.url, n), range(50)))
    done = {n: data[0] for n, (event, data) in enumerate(found) if event == "complete"}
    refused = [data for event, data in found if event == "error"]
    assert len(done) + len(refused) == 50 and len(done) >= 32
    for number, rewrite in done.items():
        assert rewrite["original"] == f"{number % 4 + 1} cats" and rewrite["seed"] == number
    assert all("jobs are waiting already" in str(said) for said in refused), refused[:1]


def test_no_file_outside_of_the_studio_s_folder_is_served(studio):
    home = studio.log.parent
    secret = home / "secret.txt"
    secret.write_text("hidden words")
    names = [secret, home / "page-secret", studio.log, home / "pictures/../secret.txt", GUIDE]
    names += [*home.rglob("*.db"), Path("/etc/passwd"), Path(os.__file__)]
    for name in names:
        for path in (str(name), str(name).replace("/", "%2f"), f"pictures/../{name}"):
            answer = httpx.get(f"{studio.url}/gradio_api/file={path}")
            assert answer.status_code in (400, 403, 404), (path, answer.status_code)
            assert "hidden words" not in answer.text


def test_a_path_that_was_never_uploaded_is_no_picture(client, studio):
    for path in ("/etc/passwd", str(GUIDE), str(studio.log)):
        body = {"data": [{"path": path, "meta": {"_type": "gradio.FileData"}}, "a cat", "clip"]}
        answer = httpx.post(f"{studio.url}/gradio_api/call/score", json=body)
        event = httpx.get(f"{studio.url}/gradio_api/call/score/{answer.json()['event_id']}").text
        assert "event: error" in event and "Traceback" not in event


def test_the_guide_s_program_runs(studio, capsys):
    (block,) = [b for b in fenced_blocks(GUIDE.read_text("utf-8")) if b.language == "python"]
    code = block.text.replace("http://127.0.0.1:7860", studio.url)
    exec(compile(code, str(GUIDE), "exec"), {})
    text, picture = capsys.readouterr().out.strip().splitlines()[-2:]
    assert text and ".png" in picture


@pytest.mark.extra("mcp")
def test_language_models_get_the_same_as_tools(tmp_path):
    from mcp import ClientSession
    from mcp.client.streamable_http import streamable_http_client

    async def use(url: str) -> tuple[list[Any], Any]:
        async with (
            streamable_http_client(f"{url}/gradio_api/mcp/") as (read, write, _),
            ClientSession(read, write) as session,
        ):
            await session.initialize()
            tools = (await session.list_tools()).tools
            return tools, await session.call_tool("draw", {"prompt": "a cat", "rewrite": False})

    options = ("--mcp", "--generator", "emoji-flow-turbo", "--rewriter", "none")
    with running(*options, home=tmp_path / "home") as app:
        # In a thread of its own: playwright keeps a loop of asyncio running in this one.
        with ThreadPoolExecutor(1) as apart:
            tools, drawn = apart.submit(asyncio.run, use(app.url)).result()
        app.stop()
    assert {f"/{tool.name}" for tool in tools} == NAMES
    for tool in tools:
        assert tool.description
        for name, schema in tool.inputSchema["properties"].items():
            assert schema.get("description"), (tool.name, name)
    assert drawn.content[0].type == "image" and not drawn.isError
    assert "Traceback" not in app.log.read_text("utf-8")
