"""The contract of rewards, held by every one in the registry: a new one needs a line in cases.py.

Gradients are compared with finite differences in float64, in two steps, since pictures that a
network does not take as they are are rounded to 8 bits after resizing, as PIL does, and the
gradient is by intention that of the filter without the rounding: at the network's own size, where
nothing is resized, and at another one with the rounding taken out. That the rounding changes the
gradient by little is checked apart.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.registry import REWARDS, import_attr
from t2x.reward_facts import FACTS
from t2x.scoring import resize as resizing
from t2x.scoring.ensemble import RewardEnsemble
from t2x.scoring.frames import frames
from t2x.testing import check_gradient, check_reward, check_truncation
from t2x.types import RewardModel

from .cases import CASES, WORDS, Case, exact
from .worlds import captioned

GRADIENT = [name for name, facts in FACTS.items() if facts.differentiable]
EMBEDDED = [n for n, f in FACTS.items() if f.download == "embedded" and f.modality == "image"]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], RewardModel]:
    """Each reward in float32, built once."""
    found: dict[str, RewardModel] = {}

    def get(name: str) -> RewardModel:
        if name not in found:
            found[name] = CASES[name].build(torch.float32, tmp_path_factory.mktemp("reward"))
        return found[name]

    return get


def test_every_reward_of_the_registry_has_a_case() -> None:
    assert set(CASES) == set(REWARDS)


@pytest.mark.parametrize("name", CASES)
def test_contract(name: str, loaded: Callable[[str], RewardModel]) -> None:
    case, reward = CASES[name], loaded(name)
    assert reward.differentiable == FACTS[name].differentiable
    media, prompts = case.media(), case.prompts
    if name in EMBEDDED:  # what they can tell apart
        media, right, wrong = captioned(12)
        prompts = [*right[:2], *wrong[2:4]]
        media = media[: len(prompts)]
    context, slack = case.context_of(media), case.slope_tolerance
    check_reward(reward, prompts, media, context=context, slope_tolerance=slack)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.cuts])
def test_truncation(name: str, loaded: Callable[[str], RewardModel]) -> None:
    case = CASES[name]
    media = case.media()[:1]
    fits = check_truncation(loaded(name), media, context=case.context_of(media))
    assert fits == case.cuts


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.cuts])
def test_a_blank_prompt_is_missing_and_spoils_no_other(
    name: str, loaded: Callable[[str], RewardModel]
) -> None:
    case = CASES[name]
    media = case.media()
    context = case.context_of(media)
    expected = loaded(name).score(case.prompts, media, context=context)
    scores = loaded(name).score(["", *case.prompts[1:3], " \n"], media, context=context)
    assert scores.isnan().tolist() == [True, False, False, True]
    assert torch.allclose(scores[1:3], expected[1:3], rtol=1e-5, atol=1e-5)


def test_composites_keep_the_contract(loaded: Callable[[str], RewardModel]) -> None:
    """Of rewards that share an encoder, and of the frames of a video."""
    media = CASES["clip"].media()
    both = RewardEnsemble([loaded("clip"), loaded("aesthetic")], {"aesthetic": 0.1})
    check_reward(both, WORDS, media)
    videos = torch.stack([media, media.flip(0)], 1)
    check_reward(frames(loaded("clip")), WORDS, videos)
    with pytest.raises(T2XError, match="critique give no gradient"):
        RewardEnsemble([loaded("clip"), loaded("critique")]).score(WORDS, media.requires_grad_())


def _values(reward: Any, case: Case, media: Tensor) -> Callable[[Tensor], Tensor]:
    context = case.context_of(media)
    return lambda x: exact(reward).score(case.prompts, x, context=context)


@pytest.mark.parametrize("name", GRADIENT)
def test_finite_differences(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[name]
    reward = case.build(torch.float64, tmp_path)
    native = case.media().double()
    options = {"step": case.step, "tolerance": case.tolerance}
    check_gradient(_values(reward, case, native), native, **options)
    height, width = case.size
    other = case.media((height + 16, width - 7)).double().requires_grad_()
    values = _values(reward, case, other)
    (rounded,) = torch.autograd.grad(values(other).sum(), other)

    def smooth(pictures: Tensor, size: tuple[int, int], *, filter: str) -> Tensor:
        return resizing.resize(pictures, size, filter=filter)

    monkeypatch.setattr(resizing, "pil_resize", smooth)
    check_gradient(values, other.detach(), **options)
    (exactly,) = torch.autograd.grad(values(other).sum(), other)
    assert (rounded - exactly).norm() < case.off * exactly.norm()


@pytest.mark.parametrize("name", [name for name in CASES if name not in GRADIENT])
def test_without_a_gradient_nothing_runs(
    name: str, loaded: Callable[[str], RewardModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    case, reward = CASES[name], loaded(name)

    def never(*args: object, **kwargs: object) -> None:
        raise AssertionError("it ran")

    for target in ("torch.nn.Module.__call__", "t2x.media.to_pil"):
        monkeypatch.setattr(target, never)
    if name == "ocr":
        monkeypatch.setattr(reward, "engine", never)
    with pytest.raises(T2XError, match="gradient"):
        reward.score(case.prompts, case.media().requires_grad_())


@pytest.mark.parametrize("name", REWARDS)
def test_options_have_names_and_the_device_is_nobodys_guess(name: str) -> None:
    """Order of arguments can't go wrong between versions: beside the source, all are by name."""
    options = inspect.signature(import_attr(REWARDS[name])).parameters
    named = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
    by_place = [p.name for p in options.values() if p.kind not in named]
    assert by_place in ([], ["source"], ["net"], ["reward"])
    passed_on = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in options.values())
    for option in ("device", "dtype"):
        assert passed_on if option not in options else options[option].default is None


@pytest.mark.parametrize(
    "name", ["blip-itm", "clip", "hps", "hpsv2", "pickscore", "siglip", "yes-no"]
)
def test_the_raw_value_is_among_the_named_scales(name: str, tmp_path: Path) -> None:
    """No hidden divisor: every scale has a name, which the reward bears, and one is the model's own
    number; what the others are of it is in the tests of each reward.
    """
    scales = import_attr(REWARDS[name].partition(":")[0] + ":SCALES")
    assert {"cos", "logit"} & set(scales)
    reward = CASES[name].build(torch.float32, tmp_path)
    assert reward.scale.split()[0] in scales
    with pytest.raises(T2XError, match=", ".join(scales)):
        import_attr(REWARDS[name].partition(":")[0] + ":load")(scale="percent")


@pytest.mark.parametrize("name", CASES)
def test_the_context_is_given_by_name(name: str, loaded: Callable[[str], RewardModel]) -> None:
    prompts, media, context = inspect.signature(loaded(name).score).parameters.values()
    assert (prompts.name, media.name, context.name) == ("prompts", "media", "context")
    assert context.kind is inspect.Parameter.KEYWORD_ONLY
