"""Where a user's files lie."""

from __future__ import annotations

import hashlib

__all__ = ["folder_name"]


def folder_name(user: str) -> str:
    """The name of a user's folder, whatever the user is called: 20 digits in base 16."""
    return hashlib.sha256(user.encode("utf-8", "surrogatepass")).hexdigest()[:20]
