"""What the tabs of the studio share: the loaded models, the user, and components that other tabs
fill in.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gradio as gr

_GUEST = re.compile(r"guest-[0-9a-f]{32}")


def new_guest() -> str:
    """A random id for somebody who has not logged in; it can't be guessed."""
    return f"guest-{secrets.token_hex(16)}"


def user_of(guest: str | None, request: gr.Request | None) -> str:
    """Whose history and taste it is: ``user-NAME`` behind ``--auth``, else the browser's own id.

    Anything that isn't such an id becomes a new guest, so that a browser can't take a logged-in
    user's name, nor smuggle a path in.
    """
    name = getattr(request, "username", None)
    if name:
        return f"user-{name}"
    return guest if isinstance(guest, str) and _GUEST.fullmatch(guest) else new_guest()


@dataclass
class Desk:
    """Made by ``app.build`` before any tab, inside its ``gr.Blocks``.

    ``studio`` does the work; ``home`` is the folder of history, tastes and uploads. ``guest`` is
    the browser's id (an input of each handler that needs a user: ``user_of(guest, request)``).
    ``prompt`` and ``seed`` are the Create tab's boxes, ``edit_picture`` the Edit tab's picture:
    a tab hands something over by having them among its outputs, with ``open_tab(name)`` for
    ``tabs``. They are rendered by the tab they belong to. ``shared`` is for what a tab offers to
    those after it, by name.
    """

    studio: Any
    home: Path
    guest: gr.BrowserState
    tabs: gr.Tabs
    prompt: gr.Textbox
    seed: gr.Number
    edit_picture: gr.Image
    shared: dict[str, Any] = field(default_factory=dict)

    @staticmethod
    def open_tab(name: str) -> gr.Tabs:
        """Update for ``tabs``: "create", "edit", "ask", "history" or "batch" comes to the front."""
        return gr.Tabs(selected=name)
