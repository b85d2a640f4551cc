"""What is served and to whom, over gradio's own application and a small page."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("gradio")
import gradio as gr
from starlette.testclient import TestClient

from t2x.apps.studio.app import look
from t2x.apps.studio.serving import Serving, make_app
from t2x.errors import T2XError
from t2x.studio.users import folder_name

pytestmark = [
    pytest.mark.extra("app"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # fastapi's and starlette's own
]
FILE = "/gradio_api/file="
GIVEN = ("mine", "bens", "batch", "zip")  # of ``files``, where nobody has to log in


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("studio")


@pytest.fixture(scope="module")
def uploads(home: Path) -> Iterator[Path]:
    """gradio's folder for uploads, of this module alone."""
    folder = home / "uploads"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRADIO_TEMP_DIR", str(folder))
        patch.setenv("GRADIO_EXAMPLES_CACHE", str(folder / "examples"))
        yield folder


@pytest.fixture(scope="module")
def site(home: Path, uploads: Path) -> Iterator[Callable[..., TestClient]]:
    """Serve a page with one event; gives a client for each."""
    clients: list[TestClient] = []

    def start(**settings: Any) -> TestClient:
        with gr.Blocks(analytics_enabled=False, title="small") as page:
            text = gr.Textbox()
            gr.Button().click(lambda text: text[::-1], text, text, api_name="reverse")
            gr.Button().click(lambda text: text, text, text, api_visibility="private")
            file = gr.File(type="filepath")
            gr.Button().click(lambda path: Path(path).read_text(), file, text, api_name="read")
        app = make_app(
            page, served=[home / "home/pictures"], settings=Serving(**settings), look=look()
        )
        clients.append(TestClient(app, base_url="http://127.0.0.1:7860"))
        return clients[-1].__enter__()

    yield start
    for client in clients:
        client.__exit__(None, None, None)


@pytest.fixture(scope="module")
def client(site: Callable[..., TestClient]) -> TestClient:
    return site()


@pytest.fixture(scope="module")
def files(home: Path) -> dict[str, Path]:
    """A file that is served and several that are not."""
    names = {
        "mine": f"home/pictures/{folder_name('user-ada')}/mine.png",
        "bens": f"home/pictures/{folder_name('user-ben')}/bens.png",
        "batch": f"home/pictures/batches/{folder_name('user-ben')}/1-a/pictures/bens.png",
        "zip": f"home/pictures/{folder_name('user-ada')}/exports/0f/mine.zip",
        "owner": f"home/pictures/{folder_name('user-ada')}/user.txt",
        "prompts": f"home/pictures/batches/{folder_name('user-ada')}/1-a/batch.json",
        "database": "home/history.db",
        "secret": "secret.txt",
        "beside": "home/pictures-of-others/a.png",
    }
    for name in names.values():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("content")
    return {key: home / name for key, name in names.items()}


def tricks(files: dict[str, Path]) -> list[str]:
    """Ways to name a file outside of the folder that is served."""
    folder, secret = files["mine"].parent, files["secret"]
    up = f"{folder}/../../../secret.txt"
    return [
        *(str(path) for key, path in files.items() if key not in GIVEN),
        "/etc/passwd",
        up,
        up.replace("..", "%2e%2e"),
        up.replace("/", "%2F"),
        up.replace("..", "%252e%252e"),
        up.replace("../", "..\\"),
        f"{folder}/./.././../../secret.txt",
        f"/{secret}",
        f"file://{secret}",
        f"{secret}%00.png",
        f"{folder}/mine.png/../../../../secret.txt",
        f"{str(secret).upper()}",
        "secret.txt",
        "../secret.txt",
        "~/.bashrc",
        str(folder.parent),
        str(folder.parents[1]) + "/",
        "/proc/self/environ",
        "/dev/stdin",
        "",
    ]


def test_one_folder_is_served_and_no_trick_gets_out_of_it(client, files):
    for name in GIVEN:
        assert client.get(f"{FILE}{files[name]}").text == "content"
    for trick in tricks(files):
        for path in (f"{FILE}{trick}", f"/gradio_api/file/{trick}", f"/static/{trick}"):
            answer = client.get(path, follow_redirects=False)
            assert answer.status_code in (301, 307, 400, 403, 404, 422), (trick, answer.status_code)
            assert "content" not in answer.text and "root:" not in answer.text, trick


def test_a_link_in_the_folder_is_no_way_out(client, files):
    link = files["mine"].with_name("link.png")
    link.symlink_to(files["secret"])
    assert "content" not in client.get(f"{FILE}{link}").text


@pytest.mark.parametrize(
    "path",
    [
        "/gradio_api/proxy=https://example.com/a",
        f"{FILE}https://example.com/a",
        f"{FILE}http:/example.com/a",
        f"{FILE}%68ttps://example.com/a",
        f"{FILE}HTTPS://example.com/a",
        "/monitoring",
        "/monitoring/summary",
        "/gradio_api/deep_link?session_hash=a",
        "/gradio_api/vibe-code",
        "/gradio_api/dev/reload",
        "/gradio_api/run-history/buckets",
        "/openapi.json",
        "/docs",
    ],
)
def test_what_the_studio_does_not_need_is_not_there(client, path):
    assert client.get(path).status_code in (403, 404)


def test_the_page_loads_from_here_alone(client):
    answer = client.get("/")
    assert (
        answer.status_code == 200
        and "default-src 'self'" in (answer.headers["content-security-policy"])
    )
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "fonts.googleapis.com" not in answer.text
    theme = client.get("/gradio_api/theme.css")
    assert theme.status_code == 200
    assert not re.findall(r"https?://(?!www.w3.org)", theme.text)


def test_a_page_of_another_site_can_not_ask(client):
    body = {"data": ["abc"]}
    path = "/gradio_api/call/reverse"
    assert client.post(path, json=body).status_code == 200
    own = {"Origin": "http://127.0.0.1:7860"}
    assert client.post(path, json=body, headers=own).status_code == 200
    behind = {"Origin": "https://studio.example", "X-Forwarded-Host": "studio.example"}
    assert client.post(path, json=body, headers=behind).status_code == 200
    for origin in ("https://evil.example", "null", "http://127.0.0.1:1"):
        answer = client.post(path, json=body, headers={"Origin": origin})
        assert answer.status_code == 403, origin
        assert client.get("/", headers={"Origin": origin}).status_code == 403


def test_private_events_are_hidden_and_the_queue_can_not_be_passed(client):
    info = client.get("/gradio_api/info").json()
    assert list(info["named_endpoints"]) == ["/reverse", "/read"] and not info["unnamed_endpoints"]
    assert client.post("/gradio_api/run/reverse", json={"data": ["abc"]}).status_code >= 400


def test_uploads_have_limits(site, uploads):
    client = site(max_upload=1000, max_request=3000)

    def upload(size: int) -> Any:
        return client.post("/gradio_api/upload", files={"files": ("a.png", b"x" * size)})

    good = upload(900)
    assert good.status_code == 200 and Path(good.json()[0]).is_relative_to(uploads)
    assert upload(2000).status_code == 413
    assert upload(5000).status_code == 413
    assert client.post("/gradio_api/queue/join", content=b"[" * 5000).status_code == 413
    assert not [path for path in uploads.rglob("*") if path.is_file() and path.stat().st_size > 900]


def test_a_body_that_hides_its_length_is_cut_off(site):
    client = site(max_request=3000)
    with pytest.raises(Exception, match=r"(?i)disconnect|no response"):
        answer = client.post("/gradio_api/queue/join", content=(b"[" * 1000 for _ in range(10)))
        assert answer.status_code >= 400
        raise RuntimeError("disconnect: it was refused")


@pytest.mark.parametrize("name", ["../../evil.png", "..\\evil.png", "/etc/evil.png", "a/../b.png"])
def test_a_name_of_an_upload_is_no_path(client, uploads, name):
    answer = client.post("/gradio_api/upload", files={"files": (name, b"an upload")})
    assert answer.status_code == 200
    assert Path(answer.json()[0]).resolve().is_relative_to(uploads.resolve())


def test_behind_a_password_nothing_is_open(site, files):
    client = site(users={"ada": "enigma"})
    guarded = ("/gradio_api/info", "/config", f"{FILE}{files['mine']}", "/gradio_api/upload")
    assert "auth_required" in client.get("/").text
    for path in guarded:
        assert client.get(path).status_code in (401, 405), path
    assert client.post("/gradio_api/call/reverse", json={"data": ["a"]}).status_code == 401
    wrong = client.post("/login", data={"username": "ada", "password": "no"})
    assert wrong.status_code == 400
    empty = client.post("/login", data={"username": "", "password": ""})
    assert empty.status_code == 400  # for this alone the page says that it was wrong
    assert client.post("/login", data={"username": "ada", "password": "enigma"}).is_success
    for name, path in files.items():
        answer = client.get(f"{FILE}{path}")
        assert (answer.text == "content") == (name in ("mine", "zip")), name
    assert client.get(f"/gradio_api/file/{files['bens']}").status_code == 403
    assert client.post("/gradio_api/call/reverse", json={"data": ["a"]}).status_code == 200


@pytest.mark.parametrize(
    ("path", "sent", "status"),
    [
        ("call/nothing", {"json": {"data": []}}, 404),
        ("call/v2/nothing", {"json": {}}, 404),
        ("call/v2/reverse", {"json": {"x": 1}}, 400),
        ("queue/join", {"json": {"data": [], "fn_index": 99999, "session_hash": "a"}}, 404),
        ("queue/join", {"content": b'{"data":['}, 422),
        ("call/reverse", {"content": b"\xff\xfe{"}, 400),
    ],
)  # fmt: skip
def test_what_is_no_call_is_refused_in_one_line(client, path, sent, status):
    answer = client.post(f"/gradio_api/{path}", **sent)
    assert answer.status_code == status
    assert answer.json()["detail"] and "\n" not in answer.text


def test_tools_and_passwords_do_not_go_together():
    with pytest.raises(T2XError, match="can't log in"):
        Serving(users={"ada": "enigma"}, mcp=True)


def test_a_path_on_this_machine_is_no_upload(client, files, uploads):
    """gradio takes only what was uploaded, and only if it knows that it is serving."""

    def read(path: Path) -> str:
        body = {"data": [{"path": str(path), "meta": {"_type": "gradio.FileData"}}]}
        event = client.post("/gradio_api/call/read", json=body).json()["event_id"]
        return str(client.get(f"/gradio_api/call/read/{event}").text)

    sent = client.post("/gradio_api/upload", files={"files": ("a.txt", b"my own words")})
    assert "my own words" in read(Path(sent.json()[0]))
    own = Path(__file__)
    for path in (
        files["secret"],
        files["database"],
        own,
        Path("pyproject.toml"),
        Path("/etc/passwd"),
    ):
        said = read(path)
        assert "event: error" in said and "content" not in said and "root:" not in said, path
    assert not any(path.read_text() == "content" for path in uploads.rglob("*") if path.is_file())
