"""``t2x serve``: a rewriter behind an OpenAI-compatible endpoint."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from t2x.commands.console import note

KEY = "T2X_API_KEY"
_LOCAL = ("127.0.0.1", "localhost", "::1")

__all__ = ["serve"]


def serve(
    model: Annotated[
        str, typer.Option("--model", help="A name from `t2x list`, a folder, or a hub id.")
    ] = "emoji-rewriter",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
    target: Annotated[
        str | None, typer.Option(help="Generator whose token limits a rewrite must keep.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name under which it is served; that of --model without.")
    ] = None,
    window: Annotated[
        float, typer.Option(min=0, help="Milliseconds to wait for requests to rewrite together.")
    ] = 10.0,
    max_batch: Annotated[int, typer.Option(min=1, help="Prompts rewritten at a time.")] = 64,
    max_queue: Annotated[
        int, typer.Option(min=1, help="Requests that may wait; more are told to come again.")
    ] = 1024,
    max_body: Annotated[int, typer.Option(min=1, help="Bytes of a request.")] = 1 << 20,
) -> None:
    """Serve a rewriter to any UI that speaks OpenAI's API: /v1/chat/completions (whole or as a
    stream), /v1/completions, /v1/models, /health.

    The answer is the guarded rewrite of the last user message. If T2X_API_KEY is set, requests
    must bring it. Neither prompts nor keys are logged. Ctrl-C ends it once running requests are
    answered.
    """
    from t2x.registry import import_attr, load_app
    from t2x.rewriters.loading import load_guard

    start = load_app("serve")  # first: a missing package is told before a model is loaded
    limits = import_attr("t2x.apps.rewrite_server:Limits")(
        window=window / 1000, max_batch=max_batch, max_queue=max_queue, max_body=max_body
    )
    key = os.environ.get(KEY, "")
    guarded = load_guard(model, generator=target)
    if host not in _LOCAL and not key:
        note(f"anyone who reaches {host} can use this server; set {KEY} to ask for a key")
    shown = f"[{host}]" if ":" in host else host
    start(
        guarded, model=name or model, host=host, port=port, key=key, limits=limits,
        ready=lambda at: note(f"serving {name or model} on http://{shown}:{at}/v1"),
    )  # fmt: skip
