"""What every SQLite file of t2x needs that several processes share."""

from __future__ import annotations

import sqlite3
import time

__all__ = ["switch_to_wal"]


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
