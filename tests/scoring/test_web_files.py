"""Files from the web: fetched once, checked always."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import torch

from t2x.errors import T2XError
from t2x.scoring.web_files import web_file


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "hub"))


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    path = tmp_path / "a+b.pth"
    path.write_bytes(b"weights")
    return path


def test_fetched_once_and_kept(remote: Path) -> None:
    digest = hashlib.sha256(b"weights").hexdigest()
    path = web_file(remote.as_uri(), digest)
    assert path.read_bytes() == b"weights" and path.name.endswith("a+b.pth")
    remote.unlink()
    assert web_file(remote.as_uri(), digest) == path


def test_another_file_is_refused_and_not_kept(remote: Path) -> None:
    wrong = hashlib.sha256(b"others").hexdigest()
    for _ in range(2):
        with pytest.raises(T2XError, match="can't fetch"):
            web_file(remote.as_uri(), wrong)


def test_a_damaged_copy_is_noticed(remote: Path) -> None:
    digest = hashlib.sha256(b"weights").hexdigest()
    web_file(remote.as_uri(), digest).write_bytes(b"wei")
    with pytest.raises(T2XError, match="damaged"):
        web_file(remote.as_uri(), digest)


def test_what_is_not_there_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(T2XError, match="give its path as source"):
        web_file((tmp_path / "none.pth").as_uri(), "0" * 64)
