"""What every SQLite file of t2x needs that several processes share."""

from __future__ import annotations

import sqlite3
import time

from t2x.errors import T2XError

PATIENCE = 10.0  # seconds that are waited for another process's transaction

__all__ = ["PATIENCE", "check_version", "erase_deleted", "switch_to_wal", "what_to_do"]


def check_version(db: sqlite3.Connection, known: int, what: str) -> None:
    """Raise T2XError for a file of a newer version of the tables (``PRAGMA user_version``), which
    is left as it is."""
    found = int(db.execute("PRAGMA user_version").fetchone()[0])
    if found > known:
        raise T2XError(
            f"the {what} were written by a newer t2x (version {found} of their tables, this one "
            f"knows {known}) and are left alone; upgrade t2x, or give another --home"
        )


def erase_deleted(db: sqlite3.Connection) -> None:
    """See that what was deleted under ``PRAGMA secure_delete`` is in the journal no more, either,
    unless another process reads it now."""
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def what_to_do(error: Exception) -> str:
    """What a user can do about a file that SQLite can't use now."""
    if "locked" in str(error):
        return "another program holds it; try again in a moment"
    return "see that there is space and that you may write there; what it holds stays"


def switch_to_wal(db: sqlite3.Connection) -> None:
    """Switch the journal mode, again and again for a minute while another process does the same:
    SQLite's own timeout does not wait for this."""
    for left in reversed(range(1200)):
        try:
            db.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError:
            if not left:
                raise
            time.sleep(0.05)
