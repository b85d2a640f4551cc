"""What ``t2x doctor`` finds on this machine, and on others that are laid out beside it."""

from __future__ import annotations

import json
import os
import socket
import time
from importlib.metadata import version

import huggingface_hub.constants as constants
import pytest
from packaging.requirements import Requirement

from t2x import cli
from t2x.doctor import hub, machine, packages
from t2x.doctor.findings import examine, within
from t2x.testing.hub import TinyHub, serve_hub

TOKEN = "hf_thisIsASecretOfSomebody"


@pytest.fixture
def at_hub(monkeypatch, tmp_path):
    """A hub that answers; what huggingface_hub reads of HF_ENDPOINT once, when it is imported."""
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serve_hub(TinyHub({}, accounts={TOKEN: "somebody"})) as served:
        monkeypatch.setattr(constants, "ENDPOINT", served.endpoint)
        yield served


def test_all_checks_on_this_machine(at_hub, capsys):
    code = cli.run(["doctor", "--json"])
    rows = json.loads(capsys.readouterr().out)
    topics = [row["topic"] for row in rows]
    expected = ["python", "processor", "memory", "accelerator", "libraries", "cache", "hub"]
    assert [topic for topic in expected if topic not in topics] == []
    assert all(row["status"] in ("ok", "warning", "problem") and row["said"] for row in rows)
    assert all(row["advice"] for row in rows if row["status"] != "ok")
    assert code == any(row["status"] == "problem" for row in rows)
    facts = {row["topic"]: row["facts"] for row in rows}
    assert facts["libraries"]["torch"] == version("torch")
    assert facts["memory"]["total"] > facts["memory"]["available"] > 1e8
    assert facts["hub"]["reachable"] is True and facts["hub"]["token"] is False
    assert facts["embedded models"]["absent"] == []
    assert at_hub.sent == 0 and {method for method, _ in at_hub.requests} == {"HEAD"}


def test_the_table_is_for_people(at_hub, capsys):
    cli.run(["doctor"])
    printed = capsys.readouterr()
    assert "embedded models" in printed.out and "warnings" in printed.err


def test_an_endpoint_with_a_password_is_shown_without(at_hub, monkeypatch):
    address = at_hub.endpoint.replace("://", "://me:secretOfMine@")
    monkeypatch.setattr(constants, "ENDPOINT", address)
    (found,) = hub.check_hub()
    assert "secretOfMine" not in str(found) and "127.0.0.1" in found.said


def test_whose_token(at_hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    (found,) = hub.check_hub()
    assert found.status == "ok" and "token of somebody" in found.said
    monkeypatch.setenv("HF_TOKEN", f"{TOKEN}Old")
    (found,) = hub.check_hub()
    assert found.status == "problem" and "hf auth login" in found.advice
    assert TOKEN not in f"{found}"


def test_no_hub(at_hub, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (found,) = hub.check_hub()
    assert found.status == "warning" and "HF_HUB_OFFLINE is set" in found.said
    monkeypatch.delenv("HF_HUB_OFFLINE")
    with socket.socket() as silent:  # takes connections and never answers
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setattr(constants, "ENDPOINT", address)
        monkeypatch.setattr(hub, "TIMEOUT", 0.3)
        begun = time.monotonic()
        (found,) = hub.check_hub()
        assert time.monotonic() - begun < 3
    assert found.status == "warning" and "can't be reached" in found.said


def test_nothing_waits_for_ever():
    with pytest.raises(TimeoutError, match=r"within 0\.1 s"):
        within(0.1, lambda: time.sleep(3))
    with pytest.raises(KeyError):
        within(1, lambda: {}["absent"])
    assert within(1, lambda: 3) == 3


def test_a_check_that_fails_is_told(monkeypatch):
    monkeypatch.setattr(machine, "check_memory", lambda: 1 / 0)
    (found,) = [f for f in examine() if f.topic == "memory"]
    assert found.status == "warning" and "division by zero" in found.said


def test_cache(monkeypatch, tmp_path):
    folder = tmp_path / "hub/models--a--b"
    (folder / "blobs").mkdir(parents=True)
    (folder / "snapshots/1").mkdir(parents=True)
    (folder / "blobs/x").write_bytes(b"0" * 1000)
    (folder / "snapshots/1/x").symlink_to(folder / "blobs/x")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(hub, "LITTLE", 0)
    (found,) = hub.check_cache()
    assert found.status == "ok" and found.facts["size"] == 1000 and "1 KB" in found.said
    (folder / "blobs/y.incomplete").write_bytes(b"0")
    (found,) = hub.check_cache()
    assert found.facts["incomplete"] == 1 and "hf cache prune" in found.advice
    monkeypatch.setattr(hub, "LITTLE", 10**18)
    (found,) = hub.check_cache()
    assert found.status == "warning" and "HF_HOME" in found.advice
    monkeypatch.setattr(constants, "HF_HUB_CACHE", "/proc/t2x")  # nobody may write there
    (found,) = hub.check_cache()
    assert found.status == "problem" and "may not write" in found.said


def test_versions():
    assert packages._state(Requirement("torch>=2.0"))[1] == ""
    installed, advice = packages._state(Requirement("torch>=99"))
    assert installed == version("torch") and advice == "pip install -U 'torch>=99'"
    assert packages._state(Requirement("no-such-package>=1"))[0] is None
    names = {requirement.name for requirement in packages._requirements("")}
    assert {"torch", "diffusers", "transformers"} <= names and "trl" not in names
    assert {"trl", "datasets"} <= {r.name for r in packages._requirements("train")}
    (train,) = [found for found in packages.check_extras() if found.topic == "extra train"]
    assert train.facts["packages"]["trl"] == version("trl")


def test_memory_of_a_container(monkeypatch, tmp_path):
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(machine, "CONTAINER", limit)
    limit.write_text("max\n")
    assert machine.check_memory()[0].facts["container_limit"] is None
    limit.write_text("1000000000\n")
    (found,) = machine.check_memory()
    assert found.status == "warning" and "this container may use 1 GB" in found.said


def test_a_card_that_torch_cannot_use(monkeypatch, tmp_path):
    import torch

    if torch.cuda.is_available():
        assert machine.check_accelerators()[0].facts["kind"] == "cuda"
        return
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'NVIDIA RTX 4090, 550.54'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    (found,) = machine.check_accelerators()
    assert found.status == "problem" and "NVIDIA RTX 4090 is there" in found.said
    assert "driver 550.54" in found.advice
    tool.write_text("#!/bin/sh\nexit 9\n")
    assert machine.check_accelerators()[0].said.startswith("none")


@pytest.mark.parametrize(
    ("built", "card", "runs"),
    [
        ("sm_80 sm_86 sm_90", (8, 9), True),  # RTX 4090: code of 8.6
        ("sm_75 sm_80 sm_86 sm_90", (12, 0), False),  # a card newer than the build
        ("sm_80 sm_90 compute_90", (12, 0), True),  # which the driver compiles
        ("sm_90a", (9, 0), True),
        ("sm_90a compute_90a", (10, 0), False),
        ("sm_75 sm_80", (6, 1), False),  # an older one
        ("sm_100 sm_120", (12, 0), True),
        ("gfx90a gfx1100", (11, 0), True),
        ("", (8, 9), True),
    ],
)
def test_a_build_of_torch_for_a_card(built, card, runs):
    assert machine._runs(built.split(), *card) is runs


def test_options_of_a_run_need_the_plan(capsys):
    assert cli.run(["doctor", "--size", "512x512"]) == 1
    assert "--size is about a run; give --plan" in capsys.readouterr().err
    assert cli.run(["doctor", "--plan", "--batch", "2"]) == 1
    assert "--plan needs a run" in capsys.readouterr().err
