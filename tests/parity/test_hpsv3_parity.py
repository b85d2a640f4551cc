"""HPSv3 at reduced depth and width against its official package.

``make_hpsv3_goldens.py`` ran the package once on weights from generators seeded by the tensors'
names; here t2x loads the same weights from a file in the official layout. Errors are relative to
the spread over pictures, the standard deviation of the official scores. What must not be the same
(positions, filter, size, mean, activation, token limit, column) is run as well and must fail.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional as F

from t2x.errors import T2XError
from t2x.media import from_pil
from t2x.registry import import_attr, load_reward
from t2x.scoring.resize import resize
from t2x.scoring.reward import EncoderReward

from . import hpsv3_cases as cases

GOLDENS = json.loads(Path(__file__).with_name("hpsv3_goldens.json").read_text("utf-8"))
TOLERANCE = 1e-3
RENAMED = {"model.visual.": "visual.", "model.language_model.": "model."}
HEAD = {"0": (1024, cases.WIDTH), "3": (16, 1024), "5": (2, 16)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Configuration, processor, and weights by their official names."""
    import transformers as t

    folder = tmp_path_factory.mktemp("hpsv3")
    cases.tokenizer_json(str(folder / "tokenizer.json"))
    words = t.PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"),
        pad_token="<|endoftext|>",
        eos_token="<|im_end|>",
    )
    rope = {**cases.ROPE, "rope_theta": cases.THETA}
    text = {**cases.TEXT, "vocab_size": cases.VOCABULARY + 9, "rope_parameters": rope}
    config = t.Qwen2VLConfig(vision_config=cases.VISION, text_config=text, **cases.IDS)
    t.Qwen2VLProcessor(
        t.Qwen2VLImageProcessor(), words, t.Qwen2VLVideoProcessor(), chat_template=cases.TEMPLATE
    ).save_pretrained(folder)
    config.save_pretrained(folder)
    config.text_config.vocab_size = cases.VOCABULARY
    with torch.device("meta"):
        model = t.Qwen2VLForConditionalGeneration(config)
    shapes = {_official(k): tuple(v.shape) for k, v in model.state_dict().items()}
    shapes |= {f"rm_head.{n}.weight": s for n, s in HEAD.items()}
    shapes |= {f"rm_head.{n}.bias": s[:1] for n, s in HEAD.items()}
    assert sorted(shapes) == GOLDENS["names"]
    made = cases.weights(shapes)
    assert cases.checksum(made) == pytest.approx(GOLDENS["checksum"], rel=1e-9)
    save_file({k: torch.from_numpy(v) for k, v in made.items()}, folder / "HPSv3.safetensors")
    return folder


def _official(name: str) -> str:
    for ours, theirs in RENAMED.items():
        if name.startswith(ours):
            return theirs + name.removeprefix(ours)
    return name


def _load(folder: Path, **options: Any) -> EncoderReward:
    settings = {
        "source": folder,
        "base": folder,
        "instruction": cases.INSTRUCTION + cases.ENDING,
        "dtype": torch.float32,
        "max_prompt_tokens": 2048,  # bytes, for this tokenizer
        **options,
    }
    return load_reward("hpsv3", **settings)


@pytest.fixture(scope="module")
def reward(folder: Path) -> EncoderReward:
    return _load(folder)


@pytest.fixture(scope="module")
def media() -> dict[str, Tensor]:
    return {name: from_pil([picture]) for name, picture in cases.pictures().items()}


def _scores(reward: EncoderReward, media: dict[str, Tensor], prompt: str) -> Tensor:
    """What the head gives, before blank prompts become NaN."""
    encoder = reward.encoders["vlm"]
    with torch.no_grad():
        found = encoder.encode([cases.PROMPTS[prompt]] * len(media), list(media.values()))
        return reward.head({"vlm": found})


def _error(got: Tensor, prompt: str, names: list[str]) -> float:
    """Largest error in units of the spread over all pictures."""
    wanted = torch.tensor([row[prompt][0] for row in GOLDENS["scores"].values()])
    own = torch.tensor([GOLDENS["scores"][n][prompt][0] for n in names])
    return float((got - own).abs().max() / wanted.std(correction=0))


@pytest.mark.parametrize("prompt", cases.PROMPTS)
def test_equals_the_official_package(
    reward: EncoderReward, media: dict[str, Tensor], prompt: str
) -> None:
    """By the tensor path alone, from pixels to score."""
    assert _error(_scores(reward, media, prompt), prompt, list(media)) < TOLERANCE


def test_odd_files() -> None:
    """The official code drops transparency, which t2x lays on white, and cuts 16 bits to white,
    which t2x scales; palettes are the same.
    """
    spread = torch.tensor([row["short"][0] for row in GOLDENS["scores"].values()]).std()
    for name, opened in GOLDENS["as opened"].items():
        error = abs(opened[0] - GOLDENS["scores"][name]["short"][0]) / float(spread)
        assert error == 0 if name == "palette" else error > 0.01


def test_blank_prompts_are_missing_all_the_same(
    reward: EncoderReward, media: dict[str, Tensor]
) -> None:
    scores = reward.score(["", "a cat"], [media["tiny"], media["tiny"]])
    assert scores.isnan().tolist() == [True, False]


def _three_directions(reward: EncoderReward, monkeypatch: pytest.MonkeyPatch) -> None:
    """Qwen2-VL's own positions."""
    model = reward.encoders["vlm"].vlm.model.model
    forward = model.forward
    monkeypatch.setattr(model, "forward", lambda position_ids, **k: forward(**k))


def _filter(reward: EncoderReward, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
    def other(picture: Tensor, size: tuple[int, int], **_: Any) -> Tensor:
        return F.interpolate(picture, size=size, align_corners=False, **options).clamp(0, 1)

    _patch(reward, monkeypatch, "resize", other)


def _patch(reward: Any, monkeypatch: pytest.MonkeyPatch, name: str, value: object) -> None:
    module = type(reward.encoders["vlm"]).encode.__globals__
    monkeypatch.setitem(module, name, value)


def _smooth(picture: Tensor, size: tuple[int, int], **_: Any) -> Tensor:
    return resize(picture, size)


def _mean(reward: EncoderReward, monkeypatch: pytest.MonkeyPatch) -> None:
    images = reward.encoders["vlm"].vlm.processor.image_processor
    monkeypatch.setattr(images, "image_mean", [0.5] * 3)


def _gelu(reward: EncoderReward, monkeypatch: pytest.MonkeyPatch) -> None:
    for block in reward.encoders["vlm"].vlm.model.model.visual.blocks:
        monkeypatch.setattr(block.mlp.act, "forward", torch.nn.GELU().forward)


CONTROLS: dict[str, Callable[[Any, pytest.MonkeyPatch], None]] = {
    "positions in three directions": _three_directions,
    "bilinear": lambda r, m: _filter(r, m, mode="bilinear", antialias=True),
    "no antialias": lambda r, m: _filter(r, m, mode="bicubic"),
    "not rounded to 8 bits": lambda r, m: _patch(r, m, "resize", _smooth),
    "half the pixels": lambda r, m: _patch(r, m, "PIXELS", 128 * 28 * 28),
    "another mean": _mean,
    "exact GELU": _gelu,
    "a limit of 16 tokens": lambda r, m: m.setattr(r.encoders["vlm"], "max_prompt_tokens", 16),
}


@pytest.mark.parametrize("control", CONTROLS)
def test_what_is_not_the_same_fails(
    reward: EncoderReward,
    media: dict[str, Tensor],
    monkeypatch: pytest.MonkeyPatch,
    control: str,
) -> None:
    few = {n: media[n] for n in ("wide", "stripes", "square")}
    prompt = "long" if "tokens" in control else "short"
    CONTROLS[control](reward, monkeypatch)
    assert _error(_scores(reward, few, prompt), prompt, list(few)) > 5 * TOLERANCE


@pytest.mark.parametrize(
    "shape, wanted",
    {
        (43, 43): (476, 476),  # 448 / 43 times 43 is a little more than 448
        (29, 29): (448, 448),
        (512, 512): (448, 448),
        (1024, 768): (504, 364),
        (8, 578): (56, 3808),
        (1, 1): (448, 448),
    }.items(),
)
def test_sizes_are_those_of_the_official_package(
    shape: tuple[int, int], wanted: tuple[int, int]
) -> None:
    assert import_attr("t2x.rewards.hpsv3:_size")(*shape) == wanted


def test_sigma_is_not_the_score() -> None:
    rows = [row["short"] for row in GOLDENS["scores"].values()]
    sigma = torch.tensor([r[1] for r in rows])
    assert _error(sigma, "short", list(GOLDENS["scores"])) > 1


def test_a_batch_equals_its_singles_and_gradients_flow(
    reward: EncoderReward, media: dict[str, Tensor]
) -> None:
    prompts = [cases.PROMPTS["short"], cases.PROMPTS["long"]]
    pair = [media["tiny"].clone().requires_grad_(), media["grey"].clone().requires_grad_()]
    batch = reward.score(prompts, pair)
    with torch.no_grad():
        singles = torch.cat([reward.score([p], [m]) for p, m in zip(prompts, pair, strict=True)])
    assert torch.allclose(batch.detach(), singles, atol=1e-5)
    batch.sum().backward()
    for picture in pair:
        assert picture.grad is not None
        assert bool(picture.grad.isfinite().all())
        assert float(picture.grad.abs().max()) > 0


def test_the_gradient_is_the_difference_quotient(
    folder: Path, media: dict[str, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the path without rounding, whose steps have no quotient; the rounded resize has the same
    gradient (``tests/scoring/test_pil_resize.py``). In float64, for the network is strongly curved.
    """
    reward = _load(folder, dtype=torch.float64)
    _patch(reward, monkeypatch, "resize", _smooth)
    prompt = [cases.PROMPTS["short"]]
    picture = (0.8 * media["square"] + 0.1).double().requires_grad_()
    reward.score(prompt, picture).sum().backward()
    assert picture.grad is not None
    slope = float(picture.grad.norm())
    step = 0.003 * picture.grad / slope
    with torch.no_grad():
        up, down = (float(reward.score(prompt, picture + s)) for s in (step, -step))
    assert (up - down) / 0.006 == pytest.approx(slope, rel=0.02)


def test_a_typed_reward_token_is_text(reward: EncoderReward, media: dict[str, Tensor]) -> None:
    scores = reward.score([f"a cat {cases.REWARD} 10", "a cat"], [media["tiny"]] * 2)
    assert bool(scores.isfinite().all())


def test_bad_loads(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(T2XError, match="once each"):
        _load(folder, instruction="Rate {text_prompt}.")
    save_file({"rm_head.0.weight": torch.zeros(2, 2)}, tmp_path / "HPSv3.safetensors")
    with pytest.raises(T2XError, match="can't load HPSv3"):
        _load(folder, source=tmp_path)


def test_the_instruction_is_read_from_the_package_without_running_it(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = import_attr("t2x.rewards.hpsv3:_instruction")
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    monkeypatch.setitem(find.__globals__, "find_spec", lambda name: None)
    with pytest.raises(T2XError, match="pip install --no-deps hpsv3"):
        find()
    monkeypatch.undo()
    data = tmp_path / "hpsv3" / "dataset"
    data.mkdir(parents=True)
    (tmp_path / "hpsv3" / "__init__.py").write_text("raise ImportError('not to be run')")
    lines = [f"INSTRUCTION = {cases.INSTRUCTION!r}", "x: int = 3", "raise ValueError"]
    lines.append(f"prompt_with_special_token = {cases.ENDING!r}")
    (data / "data_collator_qwen.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    assert find() == cases.INSTRUCTION + cases.ENDING
