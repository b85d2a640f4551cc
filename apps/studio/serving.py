"""The studio over HTTP: one port, the studio's own files and nothing else, no call to anywhere.

gradio makes the application; it stands behind a gate that takes away what the studio does not need
of it (fetching addresses for others, monitoring, editing the app from the browser, the sharing of a
page's state) and that tells the browser to load nothing from another host.
"""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
import signal
import socket
import threading
import webbrowser
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import gradio as gr
import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from gradio.route_utils import FnIndexInferError
from starlette.routing import Mount

from t2x.errors import T2XError
from t2x.failures import first_line
from t2x.listening import Address
from t2x.studio.hurry import hurry

from .app import build, look
from .served import ServedFiles, user_named

if TYPE_CHECKING:
    from t2x.studio import Studio

__all__ = ["Serving", "make_app", "open_studio", "serve"]

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
App = Callable[[dict[str, Any], Receive, Send], Awaitable[None]]

# Of gradio's own, what no part of the page asks for. The first two fetch what a stranger names.
_CLOSED = re.compile(
    r"/gradio_api/(proxy=|file=\s*https?:|(upload|stream)?/?.*vibe|vibe-|undo-vibe|dev/|deep_link"
    r"|process_recording|run-history|runs|profiling)|/monitoring|/svelte/|/pwa_icon|/openapi\.json"
)
# The page's own code is inline and uses Function(); everything else comes from this address.
_POLICY = (
    "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; object-src 'none'; "
    "base-uri 'self'; form-action 'self'; frame-ancestors 'self'"
)
_HEADERS = [
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
]
SERVED = ("pictures", "batches")  # of the studio's home
_CLOSING = 1.0  # seconds that a running job has to stop in when the studio is ended
_ENDING = 3.0  # and the whole server, before the process ends over it


@dataclass(frozen=True)
class Serving:
    """How the page is served.

    Args:
        users: passwords by name; empty lets everybody in.
        waiting: events of all pages that may wait in gradio's queue; jobs have their own limit.
        max_upload: bytes of one file.
        max_request: bytes of one request, of whatever kind.
        mcp: whether language models can use the endpoints as tools (MCP).

    Raises T2XError where MCP and users go together: its clients can't log in.
    """

    users: Mapping[str, str] = field(default_factory=dict)
    waiting: int = 256
    max_upload: int = 32 << 20
    max_request: int = 256 << 20
    mcp: bool = False

    def __post_init__(self) -> None:
        if self.mcp and self.users:
            raise T2XError("clients of MCP can't log in; leave out --mcp or --auth")


def open_studio(
    studio: Studio,
    address: Address,
    *,
    served: Mapping[str, Any],
    share: bool = False,
    open_page: bool = False,
    say: Callable[[str, str], None] = lambda what, url: None,
) -> None:
    """Serve a studio until the process is told to stop, and close it; what ``t2x app`` does.

    ``served`` are arguments of ``Serving``. ``say`` hears what is served ("studio", "tools (MCP)",
    "public link") and where.
    """
    settings = Serving(**served)
    with hurry():
        app = make_app(
            build(studio, home=studio.home),
            served=[studio.home / name for name in SERVED],
            settings=settings,
            look=look(),
        )

    def ready() -> None:
        studio.start()
        say("studio", address.url)
        if settings.mcp:
            say("tools (MCP)", f"{address.url}/gradio_api/mcp/")
        if share:
            threading.Thread(target=_share, args=(address, say), daemon=True).start()
        if open_page:
            webbrowser.open(address.url)

    serve(app, address, ready=ready, close=studio.close)


def _share(address: Address, say: Callable[[str, str], None]) -> None:
    """Make gradio's public link, or say that there is none."""
    from gradio.networking import setup_tunnel

    try:
        url = setup_tunnel(
            local_host=address.host, local_port=address.port,
            share_token=secrets.token_urlsafe(32), share_server_address=None,
            share_server_tls_certificate=None,
        )  # fmt: skip
    except Exception as error:
        say("no public link", f"gradio's servers can't be reached ({first_line(error)})")
        return
    say("public link", url)


def make_app(
    page: gr.Blocks,
    *,
    served: Sequence[Path],
    settings: Serving,
    look: Mapping[str, Any] | None = None,
) -> FastAPI:
    """The studio as an ASGI application.

    Args:
        page: what ``app.build`` made.
        served: folders whose files are given out, beside what users uploaded themselves.
        settings: who may come in, and limits.
        look: theme and style sheet (``app.look``).
    """
    page.queue(max_size=settings.waiting, default_concurrency_limit=None, api_open=False)
    # gradio's own launch() says so; without it, it takes any path on this machine that a client
    # names for an upload, and shows what is drawn in SVG as part of the page.
    page.has_launched = page.is_running = True
    outer = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    files: list[ServedFiles] = []  # gradio's application is made after its gate
    outer.add_middleware(_Gate, limit=settings.max_request, files=files)
    gr.mount_gradio_app(
        outer, page, path="/",
        app_kwargs={"openapi_url": None},
        auth=list(settings.users.items()) or None,
        allowed_paths=[str(folder.resolve()) for folder in served],
        max_file_size=settings.max_upload,
        show_error=True,
        ssr_mode=False,
        enable_monitoring=False,
        run_history=False,
        pwa=False,
        mcp_server=settings.mcp,
        **(look or {}),
    )  # fmt: skip
    inner = next(route.app for route in outer.routes if isinstance(route, Mount))
    assert isinstance(inner, FastAPI)
    files.append(ServedFiles(served, user_named(inner) if settings.users else None))
    for kind in (FnIndexInferError, KeyError, TypeError, ValueError):
        inner.add_exception_handler(kind, _unknown)
    return outer


async def _unknown(request: Request, error: Exception) -> Response:
    """Answer calls of endpoints that there are not, and what is no call, as gradio does not."""
    part = request.url.path.partition("/gradio_api/")[2]
    if not part.startswith(("call/", "queue/", "run/", "api/")):
        raise error
    said, status = "there is no such endpoint; /gradio_api/info names those there are", 404
    if not isinstance(error, FnIndexInferError | KeyError):
        said, status = 'this is no request; send JSON like {"data": [...]}', 400
    return JSONResponse({"detail": said}, status_code=status)


def serve(
    app: FastAPI,
    address: Address,
    *,
    ready: Callable[[], None] | None = None,
    close: Callable[[], None] | None = None,
) -> None:
    """Serve until the process is told to stop (SIGINT, SIGTERM), then end at once: pages that are
    open are not waited for.

    ``ready`` is called once requests are taken; ``close`` at the end, and is waited for one second
    at most.
    """
    config = uvicorn.Config(
        app, access_log=False, log_level="warning", server_header=False, ws="none",
    )  # fmt: skip
    server = _Server(config, ready, close)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        server.run(sockets=[address.listener])
    except KeyboardInterrupt:  # uvicorn has ended, and raises the signal again
        pass
    finally:
        server.ending.cancel()
        signal.signal(signal.SIGTERM, before)


class _Server(uvicorn.Server):
    def __init__(
        self,
        config: uvicorn.Config,
        ready: Callable[[], None] | None,
        close: Callable[[], None] | None,
    ) -> None:
        super().__init__(config)
        self._ready, self._close = ready, close
        self.ending = threading.Timer(_ENDING, os._exit, (0,))
        self.ending.daemon = True

    def handle_exit(self, sig: int, frame: Any) -> None:
        """End, and see to it: a library's thread may hold the loop, and all is on the disk."""
        super().handle_exit(sig, frame)
        if not self.ending.is_alive() and not self.ending.finished.is_set():
            self.ending.start()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._ready is not None and self.started:
            self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End jobs first: threads that wait for their events would keep the process."""
        if self._close is not None:
            thread = threading.Thread(target=self._close, daemon=True)
            thread.start()
            thread.join(_CLOSING)
        # A page holds its stream of events open for ever, and that it is cut off is no news.
        self.force_exit = True
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        await super().shutdown(sockets)


class _Gate:
    """Refuses what the studio does not need of gradio, requests that another site's page makes a
    browser send, and bodies that are too large; adds headers for browsers."""

    def __init__(self, app: App, *, limit: int, files: Sequence[ServedFiles]) -> None:
        self.app, self.limit, self.files = app, limit, files

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {key.lower(): value for key, value in scope["headers"]}
        if _CLOSED.search(unquote(scope["path"])):
            await _refuse(send, 404, "there is nothing here")
        elif any(files.refuses(scope["path"], headers) for files in self.files):
            await _refuse(send, 403, "this file is not for you")
        elif _foreign(headers):
            await _refuse(send, 403, "this request was made by a page of another site")
        elif int(headers.get(b"content-length") or 0) > self.limit:
            await _refuse(send, 413, f"a request may have {self.limit} bytes")
        else:
            answered = _with_headers(send)
            if scope["path"].rstrip("/") == "/login":
                answered = _with_refusals(answered)
            await self.app(scope, _counted(receive, self.limit), answered)


def _foreign(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a browser says that a page of another host sent the request."""
    origin = headers.get(b"origin")
    if origin is None:
        return False
    host = urlsplit(origin.decode("latin-1")).netloc
    own = (headers.get(b"host"), headers.get(b"x-forwarded-host"))
    return host not in {name.decode("latin-1") for name in own if name}


def _counted(receive: Receive, limit: int) -> Receive:
    """Give the body's parts, and an end of the connection once they are more than ``limit``."""
    size = 0

    async def counted() -> dict[str, Any]:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        return message if size <= limit else {"type": "http.disconnect"}

    return counted


def _with_headers(send: Send) -> Send:
    async def sent(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *_HEADERS]}
        await send(message)

    return sent


def _with_refusals(send: Send) -> Send:
    """Answer an empty name or password as a wrong one: of 422 the page would say nothing."""

    async def sent(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start" and message["status"] == 422:
            message = {**message, "status": 400}
        await send(message)

    return sent


async def _refuse(send: Send, status: int, said: str) -> None:
    body = json.dumps({"detail": said}).encode()
    kind = (b"content-type", b"application/json")
    await send({"type": "http.response.start", "status": status, "headers": [kind, *_HEADERS]})
    await send({"type": "http.response.body", "body": body})
