"""``t2x app``: passwords, and what is wrong is told in a line before anything is loaded."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path

import pytest

from t2x.cli import run
from t2x.commands.app import _environment, read_users
from t2x.errors import T2XError
from t2x.listening import bound


def test_users_come_from_words_and_from_files(tmp_path: Path):
    (tmp_path / "users").write_text("# who\nada:enig:ma\n\n  grace:cobol  \n")
    assert read_users(["bob:x", str(tmp_path / "users")]) == {
        "bob": "x",
        "ada": "enig:ma",
        "grace": "cobol",
    }
    assert read_users([]) == {}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["ada"], "no file that can be read"),
        (["ada:"], "no password"),
        ([":secret"], "USER:PASSWORD"),
        (["a/../b:secret"], "USER:PASSWORD"),
        (["a b:secret"], "USER:PASSWORD"),
        (["ada:x", "ada:y"], "'ada' twice"),
    ],
)
def test_what_names_no_user_is_refused_without_its_password(given, said):
    with pytest.raises(T2XError, match=said) as caught:
        read_users(given)
    assert "secret" not in str(caught.value)


def test_a_file_without_users_lets_nobody_in(tmp_path: Path):
    (tmp_path / "users").write_text("# nobody yet\n")
    with pytest.raises(T2XError, match="without users"):
        read_users([str(tmp_path / "users")])


def test_a_taken_port_is_told_before_anything_loads(capsys, monkeypatch):
    monkeypatch.setattr("t2x.commands.app._studio", lambda *a, **k: pytest.fail("loaded"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert run(["app", "--port", str(taken.getsockname()[1])]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: cannot listen on 127.0.0.1") and "--port" in line


def test_a_missing_package_is_told_with_what_to_install(capsys, monkeypatch):
    monkeypatch.setattr("t2x.commands.app.find_spec", lambda name: None)
    assert run(["app"]) == 1
    assert "pip install 't2x[app]'" in capsys.readouterr().err
    monkeypatch.setattr("t2x.commands.app.find_spec", lambda name: None if name == "mcp" else sys)
    assert run(["app", "--mcp"]) == 1
    assert "pip install 't2x[mcp]'" in capsys.readouterr().err


def test_addresses_are_what_a_browser_opens():
    with bound("127.0.0.1", 0) as address:
        assert address.local and address.port > 0
        assert address.url == f"http://127.0.0.1:{address.port}"
    with bound("0.0.0.0", 0) as address:
        assert not address.local and address.url.startswith("http://127.0.0.1:")
    with pytest.raises(T2XError, match="cannot listen"), bound("192.0.2.1", 0):
        pass


def test_small_answers_are_sent_at_once():
    """A file of the page took 40 ms while asyncio left Nagle's algorithm on."""

    async def no_delay() -> int:
        found: list[int] = []

        def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connection = writer.get_extra_info("socket")
            found.append(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        with bound("127.0.0.1", 0) as address:
            server = await asyncio.start_server(answer, sock=address.listener)
            reader, writer = await asyncio.open_connection("127.0.0.1", address.port)
            await reader.read()
            writer.close()
            server.close()
        return found[0]

    assert asyncio.run(no_delay())


def test_what_the_process_is_told_by_its_environment_is_put_back(monkeypatch):
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    before = dict(os.environ)
    with _environment():
        assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"
        assert os.environ["GRADIO_ANALYTICS_ENABLED"] == "False"
    assert dict(os.environ) == before
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    with _environment():
        assert os.environ["OMP_WAIT_POLICY"] == "ACTIVE"
