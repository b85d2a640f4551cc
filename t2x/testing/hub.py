"""A small model hub on 127.0.0.1 that huggingface_hub's own client downloads from, for tests of
what happens between a hub id and a loaded model.

It speaks the part of the hub's HTTP interface that loading uses: facts and files of a repository,
its tree, each file with commit and ETag, and refusals with the hub's ``X-Error-Code``. A process
finds it by ``HF_ENDPOINT``, which huggingface_hub reads once, when it is imported.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"

__all__ = [
    "BAD_TOKEN",
    "COMMIT",
    "GATED",
    "MISSING",
    "NOT_ACCEPTED",
    "Refusal",
    "TinyHub",
    "serve_hub",
]


@dataclass(frozen=True)
class Refusal:
    """What a repository answers: an HTTP ``status``, the hub's ``code`` and ``message``; with
    ``files_only`` its facts and tree stay public, as those of gated repositories are."""

    status: int
    code: str = ""
    message: str = ""
    files_only: bool = False


# As the hub answers without a login, with one that has not accepted the licence, and for a name
# that nobody has (or that is private).
GATED = Refusal(401, "GatedRepo", "Access to this model is restricted. Please log in.", True)
NOT_ACCEPTED = Refusal(403, "GatedRepo", "You are not in the authorized list.", True)
MISSING = Refusal(401, "RepoNotFound", "Invalid username or password.")
BAD_TOKEN = Refusal(401, "", "Invalid credentials in Authorization header")


@dataclass
class TinyHub:
    """Repositories "owner/model" as folders, and refusals of some; what was asked for is kept."""

    folders: Mapping[str, Path]
    refusals: Mapping[str, Refusal] = field(default_factory=dict)
    accounts: Mapping[str, str] = field(default_factory=dict)  # name of each token
    endpoint: str = ""
    requests: list[tuple[str, str]] = field(default_factory=list)  # method and path
    sent: int = 0  # bytes of files

    def facts(self, name: str) -> dict[str, Any]:
        refusal = self.refusals.get(name)
        gated = "manual" if refusal is not None and refusal.code == "GatedRepo" else False
        siblings = [
            {"rfilename": path, "size": file.stat().st_size}
            for path, file in sorted(self.files(name).items())
        ]
        return {"id": name, "modelId": name, "sha": COMMIT, "siblings": siblings, "gated": gated}

    def files(self, name: str) -> dict[str, Path]:
        root = self.folders.get(name)
        if root is None:
            return {}
        return {p.relative_to(root).as_posix(): p for p in root.rglob("*") if p.is_file()}


@contextmanager
def serve_hub(hub: TinyHub) -> Iterator[TinyHub]:
    """Serve ``hub`` until the block ends, on a free port; ``hub.endpoint`` is its address.

    Afterwards the port is closed, so that the same address is a hub that can't be reached.
    """
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    server.daemon_threads = True
    hub.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: TinyHub

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def log_message(self, format: str, *args: Any) -> None:
        return

    def _answer(self, *, body: bool) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append((self.command, path))
        parts = path.strip("/").split("/")
        if path == "/api/whoami-v2":
            token = self.headers.get("Authorization", "").removeprefix("Bearer ")
            if token not in self.hub.accounts:
                return self._refuse(BAD_TOKEN)
            return self._json({"type": "user", "name": self.hub.accounts[token], "orgs": []}, body)
        facts = parts[:2] == ["api", "models"]
        name = "/".join(parts[2:4] if facts else parts[:2])
        refusal = self.hub.refusals.get(name)
        if refusal is not None and not (facts and refusal.files_only):
            return self._refuse(refusal)
        if name not in self.hub.folders:
            return self._refuse(MISSING)
        rest = parts[4:] if facts else parts[3:]
        revision = rest[1] if facts and len(rest) > 1 else rest[0] if rest else "main"
        if revision not in ("main", COMMIT):
            return self._refuse(Refusal(404, "RevisionNotFound", "Invalid rev id"))
        if not facts:
            return self._file(name, "/".join(rest[1:]), body)
        if rest[:1] == ["tree"]:
            return self._json(self._tree(name), body)
        return self._json(self.hub.facts(name), body)

    def _tree(self, name: str) -> list[dict[str, Any]]:
        return [
            {"type": "file", "path": path, "size": file.stat().st_size, "oid": _digest(file)}
            for path, file in sorted(self.hub.files(name).items())
        ]

    def _file(self, name: str, path: str, body: bool) -> None:
        file = self.hub.files(name).get(path)
        if file is None:
            return self._refuse(Refusal(404, "EntryNotFound", "Entry not found"))
        content = file.read_bytes()
        asked = self.headers.get("Range", "")
        first, _, last = asked.removeprefix("bytes=").partition("-")
        part = content[int(first or 0) : int(last) + 1 if last else None]
        self.send_response(206 if asked else 200)
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{_digest(file)}"')
        if asked:
            whole = f"bytes {int(first or 0)}-{int(first or 0) + len(part) - 1}/{len(content)}"
            self.send_header("Content-Range", whole)
        self._body(part, "application/octet-stream", body)
        self.hub.sent += len(part) * body

    def _json(self, value: object, body: bool) -> None:
        self.send_response(200)
        self._body(json.dumps(value).encode(), "application/json", body)

    def _refuse(self, refusal: Refusal) -> None:
        self.send_response(refusal.status)
        if refusal.code:
            self.send_header("X-Error-Code", refusal.code)
        if refusal.message:
            self.send_header("X-Error-Message", refusal.message)
        self._body(b"", "text/plain", False)

    def _body(self, content: bytes, kind: str, body: bool) -> None:
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if body:
            self.wfile.write(content)


def _digest(file: Path) -> str:
    return hashlib.sha1(file.read_bytes(), usedforsecurity=False).hexdigest()
