"""A rewriter behind an OpenAI-compatible endpoint, so that any UI that can talk to one rewrites
prompts with it.

    GET  /health                 is it up
    GET  /v1/models              its one model
    POST /v1/chat/completions    the guarded rewrite of the last user message, whole or as a stream
    POST /v1/completions         the same for prompts

The content of an answer is what a generator gets: the rewrite, or the user's own words where the
guard gave it back; ``t2x`` beside each choice says which and why. Neither prompts nor keys are
logged.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from t2x.errors import MissingDependencyError
from t2x.listening import bound
from t2x.plain import plain
from t2x.rewriters.guarded import Guarded

from .chat_requests import BadRequest, answer_body, answer_events, read_request
from .request_batcher import Batcher, Busy, RewriterFailed

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response, StreamingResponse
    from starlette.routing import Route
except ModuleNotFoundError as error:
    raise MissingDependencyError(
        f"the server needs the package {error.name}: pip install 't2x[serve]'"
    ) from error

__all__ = ["Limits", "make_app", "serve"]


@dataclass(frozen=True)
class Limits:
    """``window`` in seconds, see ``Batcher``; ``max_body`` bytes of a request, ``max_prompt``
    characters of a prompt; ``patience`` seconds that requests have to end when the server is
    stopped."""

    window: float = 0.01
    max_batch: int = 64
    max_queue: int = 1024
    max_body: int = 1 << 20
    max_prompt: int = 10_000
    patience: int = 30


class _Server:
    def __init__(self, guarded: Guarded, model: str, key: str, limits: Limits) -> None:
        self.model = model
        self._key = key
        self._limits = limits
        self._guarded = guarded

    @asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        limits = self._limits
        self.batcher = Batcher(
            self._guarded, window=limits.window, max_batch=limits.max_batch,
            max_queue=limits.max_queue,
        )  # fmt: skip
        await self.batcher.start()
        yield
        await self.batcher.stop()

    async def health(self, _: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def models(self, request: Request) -> Response:
        self._check_key(request)
        card = {"id": self.model, "object": "model", "created": 0, "owned_by": "t2x"}
        if name := request.path_params.get("name"):
            if name != self.model:
                raise BadRequest("there is no such model", status=404, code="model_not_found")
            return JSONResponse(card)
        return JSONResponse({"object": "list", "data": [card]})

    async def chat(self, request: Request) -> Response:
        return await self._complete(request, chat=True)

    async def completions(self, request: Request) -> Response:
        return await self._complete(request, chat=False)

    async def _complete(self, request: Request, *, chat: bool) -> Response:
        self._check_key(request)
        body = await self._body(request)
        asked = read_request(
            body, model=self.model, chat=chat, takes_temperature=self.batcher.takes_temperature,
            max_prompt=self._limits.max_prompt,
        )  # fmt: skip
        if len(asked.requests) > self._limits.max_queue:
            raise BadRequest(f"give {self._limits.max_queue} prompts at most", param="prompt")
        groups = await asyncio.gather(*map(self.batcher.rewrite, asked.requests))
        if not asked.stream:
            return _json(answer_body(asked, groups, self.model))
        events = answer_events(asked, groups, self.model)
        lines = [f"data: {_text(event)}\n\n" for event in events]
        return StreamingResponse(
            iter([*lines, "data: [DONE]\n\n"]), media_type="text/event-stream",
            headers={"Cache-Control": "no-cache"},
        )  # fmt: skip

    async def _body(self, request: Request) -> bytes:
        """Read the body up to the limit, whatever length it claims.

        Only JSON is taken: a page of another site can send a browser's request with any other type
        without being asked.
        """
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise BadRequest("the content type must be application/json", status=415)
        parts, size = [], 0
        async for part in request.stream():
            size += len(part)
            if size > self._limits.max_body:
                raise BadRequest(
                    f"the body is larger than {self._limits.max_body} bytes", status=413
                )
            parts.append(part)
        return b"".join(parts)

    def _check_key(self, request: Request) -> None:
        if not self._key:
            return
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        sent = given.strip().encode("latin-1")  # how headers are decoded
        good = hmac.compare_digest(sent, self._key.encode("utf-8"))
        if scheme.lower() != "bearer" or not good:
            raise BadRequest("the API key is missing or wrong", status=401, code="invalid_api_key")


def make_app(
    guarded: Guarded, *, model: str, key: str = "", limits: Limits | None = None
) -> Starlette:
    """The server as an ASGI application.

    Args:
        guarded: what rewrites.
        model: name under which it is served.
        key: what requests must bring as a bearer token; "" for none.
        limits: sizes and times.
    """
    server = _Server(guarded, model, key, limits or Limits())
    return Starlette(
        routes=[
            Route("/health", server.health),
            Route("/v1/models", server.models),
            Route("/v1/models/{name:path}", server.models),
            Route("/v1/chat/completions", server.chat, methods=["POST"]),
            Route("/v1/completions", server.completions, methods=["POST"]),
        ],
        exception_handlers={
            BadRequest: _bad_request,
            Busy: _busy,
            RewriterFailed: _failed,
            HTTPException: _http_error,
        },
        lifespan=server.lifespan,
    )


def serve(
    guarded: Guarded,
    *,
    model: str,
    host: str = "127.0.0.1",
    port: int = 8000,
    key: str = "",
    limits: Limits | None = None,
    ready: Callable[[int], None] | None = None,
) -> None:
    """Serve until the process is told to stop (SIGINT, SIGTERM); running requests end first.

    ``ready`` hears the port once requests are taken; ``port`` 0 is any free one. Raises T2XError
    for an address that can't be had.
    """
    limits = limits or Limits()
    app = make_app(guarded, model=model, key=key, limits=limits)
    config = uvicorn.Config(
        app, host=host, port=port, access_log=False, log_level="warning", server_header=False,
        timeout_graceful_shutdown=limits.patience,
    )  # fmt: skip
    with bound(host, port) as address:
        if ready is not None:
            ready(address.port)
        uvicorn.Server(config).run(sockets=[address.listener])


async def _bad_request(_: Request, error: Exception) -> Response:
    assert isinstance(error, BadRequest)
    kind = "authentication_error" if error.status == 401 else "invalid_request_error"
    return _error(error.status, error.message, kind, param=error.param, code=error.code)


async def _busy(_: Request, error: Exception) -> Response:
    return _error(503, str(error), "server_error", code="overloaded", **{"Retry-After": "1"})


async def _failed(_: Request, error: Exception) -> Response:
    return _error(500, str(error), "server_error")


async def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    said = "unknown path or method; see /v1/models, /v1/chat/completions and /v1/completions"
    return _error(error.status_code, said, "invalid_request_error")


def _error(
    status: int,
    message: str,
    kind: str,
    *,
    param: str | None = None,
    code: str | None = None,
    **headers: str,
) -> Response:
    body = {"error": {"message": message, "type": kind, "param": param, "code": code}}
    return JSONResponse(body, status, headers)


def _text(value: Any) -> str:
    return json.dumps(plain(value), ensure_ascii=False, allow_nan=False)


def _json(value: Any) -> Response:
    return Response(_text(value), media_type="application/json")
