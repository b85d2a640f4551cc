"""One rule of devices and number formats for everything that loads a model."""

from __future__ import annotations

import pytest
import torch

from t2x.devices import loading_dtype, move_loaded, resolve_device


@pytest.mark.parametrize(
    ("cuda", "mps", "best"), [(True, True, "cuda"), (False, True, "mps"), (False, False, "cpu")]
)
def test_the_best_device_here(
    cuda: bool, mps: bool, best: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    assert resolve_device(None) == torch.device(best)
    assert resolve_device("cuda:1") == torch.device("cuda", 1)


def test_float32_on_a_cpu_and_the_checkpoints_own_elsewhere() -> None:
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert loading_dtype(None, cpu) == torch.float32
    assert loading_dtype(None, gpu) == "auto"
    assert loading_dtype(torch.bfloat16, cpu) == torch.bfloat16
    assert loading_dtype("float16", gpu) == "float16"


def test_a_loaded_model_moves_only_when_it_is_asked_to() -> None:
    class Recorder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.moves: list[object] = []

        def to(self, *args: object, **kwargs: object) -> Recorder:
            self.moves += args
            return self

    model = Recorder()
    assert move_loaded(model, None, None) is model and not model.moves
    move_loaded(model, "cuda", torch.float16)
    assert model.moves == ["cuda", torch.float16]


def test_each_process_of_a_launcher_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert resolve_device(None) == torch.device("cuda", 3)
    assert resolve_device("cpu") == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert resolve_device(None) == torch.device("cpu")
