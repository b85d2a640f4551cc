"""A history, or some of it, as one zip file that the studio makes."""

from __future__ import annotations

import json
import secrets
import shutil
import time
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from t2x.errors import T2XError
from t2x.studio.history_files import EXPORTS, tidy

if TYPE_CHECKING:
    from t2x.studio.history import History, Kept

__all__ = ["json_beside", "zip_history"]


def zip_history(history: History, user: str, ids: Iterable[str] | None = None) -> Path:
    """Write the pictures of a user, or those of ``ids``, each with its JSON beside it, into a file
    under a name that can't be guessed; one picture is held at a time.

    Pictures whose files are gone have their JSON alone, and ``MISSING.txt`` names them. Files of
    the user that are older than an hour go. Raises T2XError if there is nothing, or no space.
    """
    folder = _new_folder(history, user)
    path = folder / f"t2x-history-{time.strftime('%Y%m%d-%H%M%S')}.zip"
    try:
        folder.mkdir(parents=True)
        number = _write(history, user, ids, path)
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise T2XError(f"the zip can't be written: {error}; free some space") from error
    if not number:
        shutil.rmtree(folder, ignore_errors=True)
        raise T2XError("there is no picture to put into a zip; draw one first")
    return path


def json_beside(history: History, user: str, kept: Kept) -> Path:
    """Write what is known of one picture into a file for its download."""
    folder = _new_folder(history, user)
    path = folder / (kept.file_name.removesuffix(".png") + ".json")
    try:
        folder.mkdir(parents=True)
        path.write_text(json.dumps(kept.record(), ensure_ascii=False, indent=1), encoding="utf-8")
    except OSError as error:
        raise T2XError(f"the file can't be written: {error}; free some space") from error
    return path


def _new_folder(history: History, user: str) -> Path:
    folder = history.files.folder(user)
    tidy(folder)
    return folder / EXPORTS / secrets.token_hex(16)


def _write(history: History, user: str, ids: Iterable[str] | None, path: Path) -> int:
    number, missing = 0, []
    with zipfile.ZipFile(path, "x", zipfile.ZIP_STORED) as file:  # PNG is packed already
        for kept in history.each(user, ids):
            number += 1
            name = kept.file_name
            text = json.dumps(kept.record(), ensure_ascii=False, indent=1)
            file.writestr(name.removesuffix(".png") + ".json", text)
            try:
                file.write(kept.path, name)
            except FileNotFoundError:
                missing.append(name)
        if missing:
            lines = "\n".join(missing)
            file.writestr("MISSING.txt", f"The files of these pictures are gone:\n{lines}\n")
    return number
