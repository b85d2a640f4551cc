"""A process's temporary files go with it, or with the next one."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from t2x.studio.temporary import temporary_folder

OTHER = """
import os, sys
from t2x.studio.temporary import temporary_folder
with temporary_folder() as folder:
    print(folder, flush=True)
    sys.stdin.readline()
    os._exit(9)
"""


@pytest.mark.skipif(os.name == "nt", reason="there are no locks that show whether a process lives")
def test_what_a_killed_process_left_goes_and_what_is_in_use_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    other = subprocess.Popen(
        [sys.executable, "-c", OTHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert other.stdin is not None and other.stdout is not None
    theirs = Path(other.stdout.readline().strip())
    os.utime(theirs / "in-use", (1, 1))
    (tmp_path / "t2x-studio-no-lock").mkdir()  # of who knows whom
    with temporary_folder() as own:
        assert theirs.is_dir() and own.parent == theirs.parent == tmp_path
        made = Path(tempfile.mkdtemp())
        assert made.parent == own
    assert not own.exists() and tempfile.gettempdir() == str(tmp_path)
    other.communicate("\n")
    os.utime(theirs / "in-use", (1, 1))
    with temporary_folder():
        assert not theirs.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["t2x-studio-no-lock"]
