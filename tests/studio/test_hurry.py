"""What loads in a hurry leaves the process as it was, however the contexts overlap."""

from __future__ import annotations

import gc
import sys

import pytest

from t2x.studio.hurry import OBJECTS, hurry


def settings() -> tuple[object, ...]:
    return (gc.get_threshold(), sys.getswitchinterval())


def test_the_last_context_that_ends_puts_things_back():
    before = settings()
    page, model = hurry(), hurry()
    page.__enter__()
    model.__enter__()
    assert gc.get_threshold()[0] == OBJECTS and sys.getswitchinterval() < before[1]
    page.__exit__(None, None, None)
    assert gc.get_threshold()[0] == OBJECTS
    model.__exit__(None, None, None)
    assert settings() == before


def test_a_model_that_can_not_be_loaded_puts_things_back():
    before = settings()
    with pytest.raises(RuntimeError), hurry():
        raise RuntimeError
    assert settings() == before
