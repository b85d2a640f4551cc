"""What the tabs of the studio share: the loaded models, the user, and components that other tabs
fill in.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr

from t2x.studio.events import Event, Waiting

from .region import region_text

if TYPE_CHECKING:
    from PIL.Image import Image

    from t2x.studio.batches import Batches
    from t2x.studio.engine import Studio
    from t2x.studio.history import History
    from t2x.studio.preferences import Tastes
    from t2x.studio.requests import Request

    from .create_tab import CreatePage
    from .edit_tab import EditPage

# How events of the page are wired: without gradio's spinners, and hidden from its API. What answers
# at once passes gradio's queue by.
QUIET: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
FAST: dict[str, Any] = {"queue": False, **QUIET}

_GUEST = re.compile(r"guest-[0-9a-f]{32}")
_KEY = secrets.token_bytes(32)  # of this process


def new_guest(request: gr.Request | None = None) -> str:
    """An id for somebody who has not logged in, that can't be guessed: the same for the same open
    page, so that what is clicked before the browser has it belongs to it, too."""
    session = getattr(request, "session_hash", None)
    if not session:
        return f"guest-{secrets.token_hex(16)}"
    return f"guest-{hmac.new(_KEY, str(session).encode(), 'sha256').hexdigest()[:32]}"


def user_of(guest: str | None, request: gr.Request | None) -> str:
    """Whose history and taste it is: ``user-NAME`` behind ``--auth``, else the browser's own id.

    Anything that isn't such an id becomes a new guest, so that a browser can't take a logged-in
    user's name, nor smuggle a path in.
    """
    name = getattr(request, "username", None)
    if name:
        return f"user-{name}"
    return guest if isinstance(guest, str) and _GUEST.fullmatch(guest) else new_guest(request)


def page_of(request: gr.Request, part: str) -> str:
    """Names one part of one open page, for ``Desk.run`` and ``Desk.stop``: each part may be at work
    while the others are."""
    return f"{request.session_hash}/{part}"


@dataclass
class Desk:
    """Made by ``app.build`` before any tab, inside its ``gr.Blocks``.

    ``studio`` does the work; ``home`` is the folder of ``history``, ``tastes`` and ``batches``.
    ``guest`` is the browser's id (an input of each handler that needs a user:
    ``user_of(guest, request)``).
    ``prompt`` and ``seed`` are the Create tab's boxes: a tab hands something over by having them
    among its outputs, with ``open_tab(name)`` for ``tabs``. ``edit_picture`` (a path, so that the
    recipe inside stays readable), ``edit_shows`` (words for what it shows), ``edit_region`` and
    ``edit_wanted`` (digest of the picture that a recipe asks for and nobody has) are the Edit
    tab's, filled by ``to_edit``. They are rendered by the tab they belong to.

    ``picked`` holds the path of the picture that is selected on the Create tab, a PNG with its
    recipe, or None; ``picked_tools`` is the row of buttons below it, to which other tabs may add
    (``with desk.picked_tools:``). ``create`` and ``edit`` are the two forms, once they are laid out
    (``filling.filled``).
    """

    studio: Studio
    home: Path
    history: History
    tastes: Tastes
    batches: Batches
    guest: gr.BrowserState
    tabs: gr.Tabs
    prompt: gr.Textbox
    seed: gr.Number
    edit_picture: gr.Image
    edit_shows: gr.Textbox
    edit_region: gr.HTML
    edit_wanted: gr.State
    picked: gr.State
    picked_tools: gr.Row
    create: CreatePage | None = None
    edit: EditPage | None = None
    _jobs: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def open_tab(name: str) -> gr.Tabs:
        """Update for ``tabs``: "create", "edit", "ask", "history" or "batch" comes to the front."""
        return gr.Tabs(selected=name)

    @property
    def handed(self) -> list[Any]:
        """What ``to_edit`` changes."""
        return [self.edit_picture, self.edit_shows, self.edit_region, self.edit_wanted, self.tabs]

    def to_edit(
        self,
        picture: Image | str | None,
        shows: str,
        *,
        region: Sequence[float] | None = None,
        wanted: str = "",
    ) -> dict[Any, Any]:
        """Updates that hand a picture, pixels or a path, over to the Edit tab and open it."""
        values = [picture, shows, region_text(region), wanted, self.open_tab("edit")]
        return dict(zip(self.handed, values, strict=True))

    def run(self, request: Request, *, user: str, page: str) -> Iterator[Event]:
        """Do a job and give its events. ``page`` names what shows it (``page_of``) for ``stop``;
        when the caller stops reading, the job is cancelled."""
        return self.follow(self.studio.run(request, user=user), page=page)

    def follow(self, events: Iterator[Event], *, page: str) -> Iterator[Event]:
        """Give the events of a job of the studio, so that ``stop`` finds it; of two jobs of one
        page the one that came last."""
        job = None
        try:
            for event in events:
                if isinstance(event, Waiting) and job is None:
                    job = self._jobs[page] = event.job
                yield event
        finally:
            if job is not None and self._jobs.get(page) == job:
                del self._jobs[page]
            if close := getattr(events, "close", None):
                close()

    def stop(self, page: str, *, user: str) -> bool:
        """Cancel what the page does, if it does something."""
        job = self._jobs.get(page)
        return job is not None and self.studio.cancel(job, user=user)
