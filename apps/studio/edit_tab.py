"""The tab "Edit"."""

from __future__ import annotations

from .desk import Desk


def tab(desk: Desk) -> None:
    """Lay the tab out and wire it."""
    desk.edit_picture.render()
    desk.edit_shows.render()
