"""Two processes: one log of both, one decision for both."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from t2x.watching.steps import read_steps

pytestmark = [pytest.mark.slow, pytest.mark.extra("train")]

CODE = """
import sys
from pathlib import Path
from tests_of_watch import Counting, CONFIG, made_policy, grpo, held_out
from dataclasses import replace
from t2x.watching.alarms import AlarmConfig
from t2x.watching.watch import Watch

folder = Path(sys.argv[1])
config = replace(CONFIG, report=0, alarms=AlarmConfig(stop=("truncated",), recent=3))
policy = made_policy()
watch = Watch(folder, config, policy=policy, held_out=held_out())
trainer = grpo(folder, policy, Counting(watch), steps=8)
watch.train(trainer)
(folder / f"ended-{trainer.args.process_index}").write_text(
    f"{trainer.state.global_step} of {trainer.args.world_size}"
)
"""


def test_two_processes_write_one_log_and_stop_together(tmp_path: Path) -> None:
    """The tiny policy never ends its answers: all are cut off, and the third line says so."""
    source = Path(__file__).with_name("test_watch_trainers.py")
    (tmp_path / "tests_of_watch.py").write_text(source.read_text())
    (tmp_path / "script.py").write_text(CODE)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    run = tmp_path / "run"
    run.mkdir()
    base = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    base |= {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(
            [sys.executable, str(tmp_path / "script.py"), str(run)],
            env={**base, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        errors = [process.communicate(timeout=280)[1] for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0, 0], "\n".join(errors)[-4000:]
    assert [(run / f"ended-{rank}").read_text() for rank in range(2)] == ["3 of 2"] * 2
    lines = read_steps(run / "log.jsonl")
    assert [line["step"] for line in lines] == [0, 1, 2, 3]
    assert all("distinct_1" in line for line in lines[1:])
    assert "heldout/reward" in lines[2]
