"""What the tests of all recipes share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from t2x.world import training
from t2x.world.checkpoint import Checkpoint


class Killed(BaseException):
    """Stands for a signal: no recipe may catch it."""


def _tensors(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _tensors(item, f"{name}.{key}")
    elif isinstance(value, (list, tuple)):
        for key, item in enumerate(value):
            yield from _tensors(item, f"{name}.{key}")
    else:
        yield name, value


@pytest.fixture(scope="session")
def check_resume() -> Callable[..., None]:
    """Train once unbroken and once killed behind a checkpoint: the states must be equal, bit by
    bit."""

    def check(main: Callable[..., Any], folder: Path, *, steps: int, killed: int) -> None:
        @contextmanager
        def killing() -> Iterator[None]:
            save = Checkpoint.save

            def save_and_die(self: Checkpoint, step: int, seconds: float) -> None:
                save(self, step, seconds)
                if step == killed:
                    raise Killed

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(training, "_CHECKPOINT_SECONDS", -1.0)
                patch.setattr(Checkpoint, "save", save_and_die)
                yield

        main(out=folder / "whole", steps=steps)
        with killing(), pytest.raises(Killed):
            main(out=folder / "parts", steps=steps)
        main(out=folder / "parts", steps=steps)
        whole, parts = (
            torch.load(folder / name / "checkpoint.pt", weights_only=True)
            for name in ("whole", "parts")
        )
        assert whole["step"] == parts["step"] == steps
        left, right = dict(_tensors(whole["state"])), dict(_tensors(parts["state"]))
        assert left.keys() == right.keys()
        for name, value in left.items():
            same = torch.equal if isinstance(value, torch.Tensor) else lambda a, b: a == b
            assert same(value, right[name]), name

    return check
