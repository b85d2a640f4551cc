"""Where a studio's process keeps what lives no longer than its page: copies that are shown, files
that wait for their download, uploads.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from t2x.files import take_lock

_PREFIX, _LOCK = "t2x-studio-", "in-use"
_FRESH = 60  # seconds in which another process may be about to take the lock of its new folder

__all__ = ["temporary_folder"]


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Give a folder, in which ``tempfile`` makes all files of this process meanwhile; it goes with
    the context. What processes that were killed have left behind goes first.
    """
    _remove_abandoned(Path(tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    before = tempfile.tempdir
    with (folder / _LOCK).open("wb") as lock:
        take_lock(lock)
        tempfile.tempdir = str(folder)
        try:
            yield folder
        finally:
            tempfile.tempdir = before
            shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned(root: Path) -> None:
    """Remove this user's folders whose process has ended, which leaves their lock free."""
    if os.name == "nt":  # no such locks: nobody can tell
        return
    for lock in root.glob(f"{_PREFIX}*/{_LOCK}"):
        try:
            found = lock.stat()
            if found.st_uid != os.getuid() or found.st_mtime > time.time() - _FRESH:
                continue
            with lock.open("ab") as file:
                if take_lock(file):
                    shutil.rmtree(lock.parent, ignore_errors=True)
        except OSError:
            continue
