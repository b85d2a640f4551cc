"""What the package gives, and that listing it costs nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

import t2x.rollouts


def test_every_public_name_is_there() -> None:
    for name in t2x.rollouts.__all__:
        assert getattr(t2x.rollouts, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'Rollouts'"):
        _ = t2x.rollouts.Rollouts


def test_configurations_import_no_torch() -> None:
    code = "import sys, t2x.rollouts, t2x.rollouts.config; print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
