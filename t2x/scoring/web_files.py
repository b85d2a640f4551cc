"""Files of weights that lie outside a model hub, fetched once and checked."""

from __future__ import annotations

import hashlib
from pathlib import Path
from urllib.parse import unquote

from t2x.errors import T2XError

__all__ = ["web_file"]


def web_file(url: str, sha256: str) -> Path:
    """Fetch ``url`` into the cache folder of ``torch.hub``, or find it there.

    Raises ``T2XError`` if it can't be had or is not the file whose SHA-256 is given.
    """
    import torch

    path = Path(torch.hub.get_dir()) / "t2x" / f"{sha256[:16]}-{unquote(url.rpartition('/')[2])}"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            torch.hub.download_url_to_file(url, str(path), hash_prefix=sha256, progress=False)
        except (OSError, RuntimeError) as error:  # the latter for a wrong hash
            raise T2XError(
                f"can't fetch {url}: {error}; fetch it yourself and give its path as source"
            ) from error
    if hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
        raise T2XError(f"{str(path)!r} is damaged; delete it, then it is fetched again")
    return path
