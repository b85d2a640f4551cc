"""One rule of devices and number formats for everything that loads a model."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import t2x
from t2x import devices
from t2x.devices import (
    auto_dtype,
    fast_bfloat16,
    loading_dtype,
    move_loaded,
    named_dtype,
    present_device,
    resolve_device,
    warn_emulated,
)
from t2x.errors import T2XError


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
    assert loading_dtype("float16", gpu) == torch.float16
    assert loading_dtype("stored", cpu) == "auto"  # which is transformers' word for it


CPUS = {
    "AVX2": ({"avx2": True, "avx512_bf16": False, "amx_bf16": False}, False),
    "AVX-512 of 2017": ({"avx512_f": True, "avx512_bf16": False}, False),
    "Zen 4": ({"avx512_f": True, "avx512_bf16": True, "amx_bf16": False}, True),
    "Sapphire Rapids": ({"avx512_bf16": True, "amx_bf16": True}, True),
    "Graviton 2": ({"neon": True, "bf16": False}, False),
    "Graviton 3": ({"neon": True, "bf16": True}, True),
}


def on_cpu(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    found = CPUS[name][0]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: found, raising=False)


@pytest.mark.parametrize("name", CPUS)
def test_auto_is_bfloat16_where_a_cpu_has_instructions_for_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_cpu(monkeypatch, name)
    fast = CPUS[name][1]
    assert fast_bfloat16() is fast
    expected = torch.bfloat16 if fast else torch.float32
    assert auto_dtype("cpu") == auto_dtype("cpu", half=True) == expected
    assert named_dtype("auto") == loading_dtype("auto", torch.device("cpu")) == expected
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert not fast_bfloat16()  # PyTorch for macOS


@pytest.mark.parametrize("fast", [True, False])
def test_auto_on_a_gpu(fast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def supported(including_emulation: bool = True) -> bool:
        return including_emulation or fast  # Turing says yes, and emulates

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", supported)
    assert auto_dtype("cuda") == (torch.bfloat16 if fast else torch.float32)
    assert auto_dtype("cuda", half=True) == (torch.bfloat16 if fast else torch.float16)
    assert auto_dtype("mps", half=True) == torch.float16
    assert auto_dtype("mps") == torch.float32


def test_emulated_bfloat16_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    devices._warn_once.cache_clear()
    on_cpu(monkeypatch, "Zen 4")
    assert named_dtype("bf16", "cpu") == torch.bfloat16
    assert not caplog.records
    on_cpu(monkeypatch, "AVX2")
    warn_emulated("dtype bf16", "dtype: auto", "cuda")
    assert not caplog.records
    assert [named_dtype("bf16", "cpu") for _ in range(2)] == [torch.bfloat16] * 2
    assert [r.getMessage() for r in caplog.records] == [
        "dtype bf16: this CPU has no instructions for bfloat16 and emulates it, which can take 40 "
        "times as long as float32; give dtype: auto, which is bfloat16 only where that is fast"
    ]
    with pytest.raises(T2XError, match=r"unknown dtype 'int8'; allowed: auto, float32"):
        named_dtype("int8")


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
    move_loaded(model, "meta", torch.float16)
    assert model.moves == [torch.device("meta"), torch.float16]


def test_each_process_of_a_launcher_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert resolve_device(None) == torch.device("cuda", 3)
    assert resolve_device("cpu") == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert resolve_device(None) == torch.device("cpu")


def test_what_is_no_device_is_one_line() -> None:
    with pytest.raises(T2XError, match="there is no device 'toaster'; give cpu, cuda or mps"):
        resolve_device("toaster")


def test_a_device_that_is_not_here_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(T2XError, match=r"there is no cuda:1 here: PyTorch .* sees none; give cpu"):
        present_device("cuda:1")
    assert present_device("cpu") == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert present_device("cuda") == torch.device("cuda")
    assert present_device("cuda:1") == torch.device("cuda", 1)
    with pytest.raises(T2XError, match=r"there is no cuda:2 here: PyTorch .* sees 2, numbered"):
        present_device("cuda:2")


@pytest.mark.parametrize(
    "load",
    [
        lambda: t2x.load_generator("z-image-turbo", device="cuda"),
        lambda: t2x.load_rewriter("Qwen/Qwen3-4B-Instruct-2507", device="cuda"),
        lambda: t2x.load_reward("clip", source="hf-hub:owner/model", device="cuda"),
        lambda: t2x.load_reward("vqa", source="owner/model", device="cuda"),
        lambda: t2x.load_reward("imagereward", device="cuda"),
        lambda: t2x.load_reward("hpsv3", device="cuda"),
        lambda: t2x.load_reward("blip-itm", device="cuda"),
        lambda: t2x.load_reward("dino", device="cuda"),
    ],
)
def test_it_is_said_before_anything_is_downloaded(
    load: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(T2XError, match="there is no cuda here: PyTorch"):
        load()
