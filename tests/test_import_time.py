"""What ``import t2x`` and the light commands may load, and how fast."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

HEAVY = ("torch", "diffusers", "transformers", "open_clip", "trl", "gradio", "numpy", "PIL")


def loaded_after(code: str) -> set[str]:
    """Run code in a new interpreter and give the heavy packages that it loaded."""
    script = f"import sys\n{code}\nprint('\\nLOADED', *(m for m in {HEAVY!r} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.rpartition("LOADED")[2].split())


def test_the_probe_sees_a_heavy_package():
    assert loaded_after("import numpy") == {"numpy"}


@pytest.mark.parametrize(
    "code",
    [
        "import t2x",
        "import t2x.types, t2x.registry, t2x.config, t2x.store, t2x.world.weights",
        "import t2x.generators, t2x.rewriters, t2x.scoring, t2x.prompts, t2x.evaluation",
        "import t2x.rewards, t2x.train, t2x.apps",
        "from t2x.cli import run; assert run(['--help']) == 0",
        "from t2x.cli import run; assert run(['list']) == 0",
        "from t2x.cli import run; assert run(['rewards']) == 0",
        "from t2x.cli import run; assert run(['rewrite', '--help']) == 0",
        "from t2x.cli import run; assert run(['world', 'eval', '--help']) == 0",
        "from t2x.cli import run; assert run(['serve', '--help']) == 0",
        "from t2x.cli import run; assert run(['data', 'pairs', '--help']) == 0",
        "from t2x.cli import run; assert run(['eval', 'world', '--help']) == 0",
        "from t2x.cli import run; assert run(['claims', '--help']) == 0",
        "import t2x.data.collect, t2x.data.pairs, t2x.data.checking",
        "import t2x.jobs.rewriting, t2x.jobs.engines, t2x.rewriters.decoding",
    ],
)
def test_nothing_heavy_is_loaded(code: str):
    assert loaded_after(code) == set()


def child_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_help_answers_within_a_second():
    """Processor time, the best of three: the clock would measure what else the machine does."""
    seconds = []
    for _ in range(3):
        start = child_seconds()
        subprocess.run([sys.executable, "-m", "t2x", "--help"], check=True, capture_output=True)
        seconds.append(child_seconds() - start)
    assert 0.01 < min(seconds) < 1.0
