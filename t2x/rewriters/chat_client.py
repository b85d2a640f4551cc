"""One request to an OpenAI-compatible endpoint: a time limit over the whole answer, a bounded
number of retries that wait as long as the server asks for, and no key in any message.

The key is read from the environment for each client and sent in a header; it is in no attribute
that is shown, no log and no error, even where a server writes it into its answer.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from importlib import import_module
from textwrap import shorten
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from t2x.errors import MissingDependencyError, T2XError

__all__ = ["DEFAULT_URL", "ChatClient", "EndpointError", "RequestFailed", "shown_url"]

logger = logging.getLogger(__name__)

DEFAULT_URL = "https://api.openai.com/v1"
MAX_BYTES = 8_000_000
_RETRIED = frozenset((408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529))
_STOPS = {
    401: "does not accept the key",
    403: "does not allow this",
    404: "has no such address or model",
}
_FIRST_WAIT = 0.5
_LONGEST_BACKOFF = 30.0


class EndpointError(T2XError):
    """What no prompt will get past: a key that is not accepted, a model that is not there."""


class RequestFailed(Exception):
    """What one prompt came to grief over, after all retries."""


@dataclass
class Session:
    """Connections that requests share; whoever sets ``stop`` ends the waits of all."""

    http: Any
    stop: threading.Event = field(default_factory=threading.Event)


@dataclass
class ChatClient:
    """Posts JSON to ``base_url``.

    Args:
        base_url: address up to and with the version, for instance http://localhost:8000/v1.
        key_variable: environment variable that holds the key; without one nothing is sent.
        timeout: seconds for one attempt, from connecting to the last byte.
        retries: attempts after the first.
        longest_wait: seconds; a server that asks for more is not waited for.
        sleep: waits between attempts; None waits until ``Session.stop`` is set at most.
    """

    base_url: str = DEFAULT_URL
    key_variable: str = "OPENAI_API_KEY"
    timeout: float = 60.0
    retries: int = 4
    longest_wait: float = 60.0
    sleep: Callable[[float], None] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        parts = urlsplit(self.base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise T2XError(
                f"{self.base_url!r} is no address of an endpoint; give for instance "
                "http://localhost:8000/v1"
            )
        if self.timeout <= 0 or self.retries < 0:
            raise T2XError(
                f"timeout is {self.timeout} and retries {self.retries}; give a positive number of "
                "seconds, and 0 retries or more"
            )

    def check_key(self) -> None:
        """Raise ``EndpointError`` if the address is OpenAI's own and there is no key."""
        if self.base_url.rstrip("/") == DEFAULT_URL and not os.environ.get(self.key_variable):
            raise EndpointError(
                f"the environment variable {self.key_variable} holds no key for {DEFAULT_URL}; "
                "set it, or give another base_url"
            )

    @contextmanager
    def session(self) -> Iterator[Session]:
        """Open the connections of one run."""
        http = _http()
        limits = http.Limits(max_connections=None, max_keepalive_connections=20)
        with http.Client(timeout=self.timeout, limits=limits) as client:
            yield Session(client)

    def post(self, session: Session, path: str, body: Mapping[str, Any]) -> Any:
        """Give the JSON of the answer.

        Raises ``EndpointError`` for what concerns every prompt, ``RequestFailed`` for the rest.
        """
        reason = ""
        for attempt in range(self.retries + 1):
            wait = min(_FIRST_WAIT * 2**attempt, _LONGEST_BACKOFF)
            try:
                status, headers, text = self._once(session.http, path, body)
            except _transport_errors() as error:
                reason = f"no answer: {type(error).__name__} {error}".rstrip()
            else:
                if status < 300:
                    try:
                        return json.loads(text)
                    except (ValueError, RecursionError):
                        reason = "the answer is no JSON"
                else:
                    reason = self._judge(status, text)
                    asked = _asked_wait(headers)
                    if asked is not None and asked > self.longest_wait:
                        raise RequestFailed(f"{reason}; it asks to wait {asked:.0f} s")
                    wait = wait if asked is None else asked
            if attempt < self.retries:
                logger.info("attempt %d failed: %s", attempt + 1, self._clean(reason))
                (self.sleep or session.stop.wait)(wait)
            if session.stop.is_set():
                raise RequestFailed("stopped")
        raise RequestFailed(self._clean(f"{reason}, after {self.retries + 1} attempts"))

    def _judge(self, status: int, text: str) -> str:
        """Say what an error status means, and raise where another attempt is no use."""
        message, code = _error_of(text)
        reason = self._clean(f"status {status}: {message}" if message else f"status {status}")
        if status in _STOPS:
            raise EndpointError(f"{shown_url(self.base_url)} {_STOPS[status]} ({reason})")
        if code == "insufficient_quota":
            raise EndpointError(f"{shown_url(self.base_url)} has no quota left ({reason})")
        if status not in _RETRIED:
            raise RequestFailed(reason)
        return reason

    def _once(
        self, http: Any, path: str, body: Mapping[str, Any]
    ) -> tuple[int, Mapping[str, str], str]:
        end = time.monotonic() + self.timeout
        url = f"{self.base_url.rstrip('/')}/{path}"
        data = json.dumps(body, ensure_ascii=True).encode()
        with http.stream("POST", url, content=data, headers=self._headers()) as response:
            parts, size = [], 0
            for part in response.iter_bytes():
                parts.append(part)
                size += len(part)
                if time.monotonic() > end:
                    raise _http().ReadTimeout(f"not complete after {self.timeout:g} s")
                if size > MAX_BYTES:
                    raise RequestFailed(f"the answer is longer than {MAX_BYTES} bytes")
            return response.status_code, response.headers, b"".join(parts).decode(errors="replace")

    def _headers(self) -> dict[str, str]:
        key = self._key()
        headers = {"Content-Type": "application/json"}
        return headers | ({"Authorization": f"Bearer {key}"} if key else {})

    def _key(self) -> str:
        return os.environ.get(self.key_variable, "").strip()

    def _clean(self, text: str) -> str:
        """One line without the key."""
        key = self._key()
        text = text.replace(key, "***") if key else text
        return shorten(text, 300, placeholder=" ...")


def shown_url(url: str) -> str:
    """The address without a user's name and password in it."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def _http() -> Any:
    """The HTTP client that huggingface_hub brings, under either of its names."""
    for name in ("httpx2", "httpx"):
        try:
            return import_module(name)
        except ModuleNotFoundError:
            continue
    raise MissingDependencyError("an endpoint needs an HTTP client: pip install httpx")


def _transport_errors() -> tuple[type[Exception], ...]:
    return (_http().TransportError, _http().DecodingError)


def _error_of(text: str) -> tuple[str, str]:
    """Message and code of an error in OpenAI's form, or the first words of any other."""
    try:
        error = json.loads(text)["error"]
        if isinstance(error, str):
            return error, ""
        return str(error.get("message") or ""), str(error.get("code") or "")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return shorten(text, 100, placeholder=" ..."), ""


def _asked_wait(headers: Mapping[str, str]) -> float | None:
    """Seconds that ``Retry-After`` asks for, given as a number or as a date; None without it."""
    value = headers.get("retry-after")
    if value is None:
        return None
    try:
        return max(float(value), 0.0)
    except ValueError:
        pass
    try:
        until = parsedate_to_datetime(value)
    except (ValueError, TypeError):
        return None
    until = until if until.tzinfo else until.replace(tzinfo=UTC)
    return max((until - datetime.now(UTC)).total_seconds(), 0.0)
