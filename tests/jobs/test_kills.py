"""Kill -9 at random moments of a long job: what is resumed is byte for byte an unbroken run."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from t2x.world.prompts import training_prompts

KILLS = 10


def start(out: str, model: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "t2x", "rewrite", "--in", "in.jsonl", "--out", out]
    return subprocess.Popen([*command, "--model", model], stderr=subprocess.DEVNULL)


def write_input(n: int, rng: random.Random) -> int:
    """Prompts of the world, one in a hundred broken in one of several ways."""
    texts = [prompt.text for prompt in training_prompts(500)]
    lines = [json.dumps({"prompt": f"{rng.choice(texts)}"}).encode() for _ in range(n)]
    bad = rng.sample(range(n), n // 100)
    for i in bad:
        lines[i] = rng.choice([b"{broken", b"\xff\xfe", b'""', b'{"text": 1}', lines[i][:-3]])
    Path("in.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    return len(bad)


@pytest.mark.slow
@pytest.mark.timeout(1800)
# A batch is 256 lines: ten kills need more of them than are done between two.
@pytest.mark.parametrize(("model", "n"), [("rules", 20_000), ("emoji-rewriter", 4_000)])
def test_ten_kills_change_no_byte(model: str, n: int) -> None:
    rng = random.Random(n)
    bad = write_input(n, rng)
    begun = time.monotonic()
    whole = start("whole.jsonl", model)
    while not (Path("whole.jsonl").exists() and Path("whole.jsonl").stat().st_size):
        time.sleep(0.01)
    before_first = time.monotonic() - begun
    assert whole.wait() == 1  # bad lines
    working = time.monotonic() - begun - before_first
    killed, sizes = 0, []
    while killed < KILLS:
        process = start("o.jsonl", model)
        time.sleep(rng.uniform(0.1, before_first + working / (KILLS - 1)))
        process.send_signal(signal.SIGKILL)
        if process.wait() != -signal.SIGKILL:
            break  # it was done already
        killed += 1
        sizes.append(Path("o.jsonl").stat().st_size if Path("o.jsonl").exists() else 0)
    assert killed == KILLS and len(set(sizes)) > 3, sizes
    assert sizes[-1] < Path("whole.jsonl").stat().st_size
    assert start("o.jsonl", model).wait() == 1
    for suffix in ("", ".errors", ".job"):
        assert Path(f"o.jsonl{suffix}").read_bytes() == Path(f"whole.jsonl{suffix}").read_bytes()
    good = [json.loads(line)["index"] for line in Path("o.jsonl").read_bytes().splitlines()]
    errors = [json.loads(row)["index"] for row in Path("o.jsonl.errors").read_bytes().splitlines()]
    assert len(errors) == bad and sorted([*good, *errors]) == list(range(n))
