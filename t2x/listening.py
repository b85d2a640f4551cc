"""A port that is taken before anything is loaded, so that one that can't be had is told at once."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from t2x.errors import T2XError

__all__ = ["Address", "bound"]

_EVERY = {"0.0.0.0": "127.0.0.1", "::": "::1"}
_LOCAL = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class Address:
    """Where a server listens; ``port`` is the one that it got."""

    host: str
    port: int
    listener: socket.socket = field(repr=False, compare=False)

    @property
    def url(self) -> str:
        """What a browser on this machine opens."""
        host = _EVERY.get(self.host, self.host)
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    @property
    def local(self) -> bool:
        """Whether only this machine reaches it."""
        return self.host in _LOCAL


@contextmanager
def bound(host: str, port: int) -> Iterator[Address]:
    """Listen on a port for as long as the context lasts; 0 is any free one.

    Raises T2XError for an address that can't be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sends small answers at once only through sockets that say that they are TCP; through
    # others each waits for the client's acknowledgement, 40 ms of a file.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
            listener.listen(2048)
        except OSError as error:
            raise T2XError(
                f"cannot listen on {host} port {port}: {error.strerror or error}; give another "
                "--host or --port"
            ) from error
        yield Address(host, int(listener.getsockname()[1]), listener)
