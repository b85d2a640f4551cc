"""What a model hub's refusals mean, and what to do about each.

Errors are told by the names of their classes, since huggingface_hub changed the HTTP library that
they come from.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import Any

from t2x.checkpoint_files import is_hub_id

Said = tuple[str, str]  # what is wrong, what to do

_UNREACHABLE = {
    "ConnectError",
    "ConnectTimeout",
    "ConnectionError",
    "NetworkError",
    "ProxyError",
    "ReadTimeout",
    "RemoteProtocolError",
    "SSLError",
    "TimeoutException",
    "URLError",
    "gaierror",
}
_ADDRESS = re.compile(r"https?://[^/\s]+/(?:api/models/)?([\w.-]+/[\w.-]+)")

__all__ = ["Said", "explain_hub", "model_page", "offline_switch"]


def offline_switch() -> str:
    """Give the environment variable that keeps the libraries from the hub, or an empty text."""
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        if os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE"):
            return name
    return ""


def model_page(repository: str) -> str:
    """Give the address of a model's page on the hub that is in use."""
    from huggingface_hub.constants import ENDPOINT

    return f"{ENDPOINT}/{repository}"


def explain_hub(errors: Sequence[BaseException], source: str) -> Said | None:
    """Read a chain of errors, outermost first; None where it is not about the hub."""
    for explain in _EXPLAINERS:
        for error in errors:
            if said := explain(error, source):
                return said
    return None


def _names(error: BaseException) -> set[str]:
    return {kind.__name__ for kind in type(error).__mro__}


def _status(error: BaseException) -> int | None:
    status = getattr(getattr(error, "response", None), "status_code", None)
    return status if isinstance(status, int) else None


def _sent_token(error: BaseException) -> bool:
    request = getattr(getattr(error, "response", None), "request", None)
    headers: Any = getattr(request, "headers", {})
    return bool(headers.get("authorization"))


def _repository(error: BaseException, source: str) -> str:
    """The repository that refused: not the one given, where a checkpoint names another as its
    base."""
    named = getattr(error, "repo_id", None)
    if isinstance(named, str) and "/" in named:
        return named
    found = _ADDRESS.search(str(error))
    return found[1] if found and _status(error) else source


def _gated(error: BaseException, source: str) -> Said | None:
    if "GatedRepoError" not in _names(error):
        return None
    repository = _repository(error, source)
    page = model_page(repository)
    if _sent_token(error):
        return (
            f"{repository} is gated, and the account of your token has no access to it",
            f"accept its licence at {page} with that account (some authors grant it by hand, later;"
            " a fine-grained token needs the permission to read gated repositories)",
        )
    return (
        f"{repository} is gated: its licence must be accepted before it can be downloaded",
        f"accept it at {page}, then log in: hf auth login (or set HF_TOKEN)",
    )


def _bad_token(error: BaseException, source: str) -> Said | None:
    if _status(error) != 401 or not _sent_token(error):
        return None
    wrong = f"the hub refuses your token, or {_repository(error, source)} is not there for it"
    return (
        wrong,
        "see hf auth whoami; log in again with hf auth login, or unset an old HF_TOKEN",
    )


def _missing(error: BaseException, source: str) -> Said | None:
    if "RepositoryNotFoundError" not in _names(error):
        return None
    repository = _repository(error, source)
    return (
        f"there is no model {repository!r} on the hub, or it is private",
        f"check the name ({model_page(repository)}); for a private one log in: hf auth login; a "
        "local checkpoint is given by the path of its folder",
    )


def _revision(error: BaseException, source: str) -> Said | None:
    if "RevisionNotFoundError" not in _names(error):
        return None
    found = re.search(r"/(?:resolve|revision|tree)/([^/\s]+)", str(error))
    named = f" {found[1].rstrip('.')!r}" if found else ""
    return (
        f"it has no revision{named}",
        f"give a branch, tag or commit of {model_page(_repository(error, source))}/commits/main, "
        "or leave revision out",
    )


def _disabled(error: BaseException, source: str) -> Said | None:
    if "DisabledRepoError" not in _names(error):
        return None
    return ("the hub has taken it offline", "give another model, or a local folder of it")


def _other_status(error: BaseException, source: str) -> Said | None:
    status = _status(error)
    if status == 403:
        return (
            "the hub forbids it to your token (403)",
            "give the token the permission to read this repository, or log in with another one",
        )
    if status == 429:
        more = "" if _sent_token(error) else "; with a login the limit is higher: hf auth login"
        return ("the hub limits how often you ask (429)", f"wait some minutes{more}")
    if status is not None and status >= 500:
        return (
            f"the hub has a fault of its own ({status})",
            "try again later, or give a local folder; what is in the cache loads with "
            "HF_HUB_OFFLINE=1",
        )
    return None


def _offline(error: BaseException, source: str) -> Said | None:
    names = _names(error)
    switch = offline_switch()
    if "OfflineModeIsEnabled" not in names and not (switch and "LocalEntryNotFoundError" in names):
        return None
    return (
        f"{switch or 'HF_HUB_OFFLINE'} keeps the libraries offline, and the cache does not hold "
        "all of it",
        "unset that variable once to download it, or give a local folder",
    )


def _unreachable(error: BaseException, source: str) -> Said | None:
    from huggingface_hub.constants import ENDPOINT

    names = _names(error)
    if not names & _UNREACHABLE or "OfflineModeIsEnabled" in names:
        return None
    if not is_hub_id(source) and "URLError" not in names:
        return None  # some other server's
    reason = " ".join(re.sub(r"\[Errno -?\d+\]|<[^>]*error|>", "", str(error)).split())
    where = "its server" if "URLError" in names else f"the hub ({ENDPOINT})"
    certificate = "certificate" in reason.lower()
    return (
        f"{where} can't be reached" + f" ({reason[:120]})" * bool(reason),
        "trust your network's own certificate (SSL_CERT_FILE), or give a local folder"
        if certificate
        else "check the network and its proxy (HTTPS_PROXY), name a mirror (HF_ENDPOINT), or give "
        "a local folder",
    )


def _not_cached(error: BaseException, source: str) -> Said | None:
    if "LocalEntryNotFoundError" not in _names(error):
        return None
    return (
        "the local cache does not hold all of it, and only local files are allowed or the hub "
        "can't be reached",
        "let it be downloaded once, or give a local folder",
    )


def _no_entry(error: BaseException, source: str) -> Said | None:
    names = _names(error)
    if "EntryNotFoundError" not in names or "LocalEntryNotFoundError" in names:
        return None
    found = re.search(r"/resolve/[^/\s]+/(\S+?)\.?(?:\s|$)", str(error))
    file = found[1] if found else "that file"
    kind = {
        "model_index.json": "it is no pipeline in diffusers' format",
        "config.json": "it is no checkpoint in transformers' format",
    }.get(file, "give a repository that holds it")
    return (
        f"the repository holds no {file}",
        f"{kind}; see its files at {model_page(_repository(error, source))}/tree/main",
    )


_EXPLAINERS: tuple[Callable[[BaseException, str], Said | None], ...] = (
    _gated,
    _disabled,
    _revision,
    _bad_token,
    _missing,
    _offline,
    _other_status,
    _unreachable,
    _not_cached,
    _no_entry,
)
