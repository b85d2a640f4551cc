"""Which files of the studio's home are given out, and to whom: pictures, and what was prepared for
a download; behind passwords to the user whose folder they lie in.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Any

from t2x.studio.users import folder_name

__all__ = ["ServedFiles", "user_named"]

_FILE = re.compile(r"/gradio_api/file[=/](.*)", re.DOTALL)
_USER = re.compile(r"[0-9a-f]{20}")
_PREPARED = ("exports", "downloads")  # folders of what is made for a download


class ServedFiles:
    """Judges requests for files below ``folders``; others are gradio's to judge.

    ``who`` gives the folder of whoever asks from the headers of a request, "" of somebody who has
    not logged in; None where everybody may
    have what they know the name of.
    """

    def __init__(
        self, folders: Sequence[Path], who: Callable[[Mapping[bytes, bytes]], str] | None = None
    ) -> None:
        self._folders, self._who = [folder.resolve() for folder in folders], who

    def refuses(self, path: str, headers: Mapping[bytes, bytes]) -> bool:
        """Whether this path of a URL, decoded, names a file that is not for whoever asks."""
        if (match := _FILE.fullmatch(path)) is None:
            return False
        try:
            file = Path(os.path.realpath(match[1]))
        except (OSError, ValueError):
            return True
        inside = [file.relative_to(f).parts for f in self._folders if file.is_relative_to(f)]
        return any(not self._gives(parts, headers) for parts in inside)

    def _gives(self, parts: tuple[str, ...], headers: Mapping[bytes, bytes]) -> bool:
        if not parts:
            return False
        if not parts[-1].endswith(".png") and not set(_PREPARED).intersection(parts[:-1]):
            return False
        if self._who is None:
            return True
        if not (asks := self._who(headers)):
            return True  # gradio sends them to the login
        return asks == next((part for part in parts[:2] if _USER.fullmatch(part)), None)


def user_named(app: Any) -> Callable[[Mapping[bytes, bytes]], str]:
    """Give a function that names the folder of whoever has logged in to gradio's ``app``."""

    def who(headers: Mapping[bytes, bytes]) -> str:
        try:
            cookies = SimpleCookie(headers.get(b"cookie", b"").decode("latin-1"))
        except CookieError:
            return ""
        for kind in ("access-token", "access-token-unsecure"):
            cookie = cookies.get(f"{kind}-{app.cookie_id}")
            if cookie is not None and (name := app.tokens.get(cookie.value)):
                return folder_name(f"user-{name}")
        return ""

    return who
