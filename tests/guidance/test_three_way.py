"""Original-prompt-centred guidance on the real classes: what holds whatever the weights."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.functional.classifier_free import three_way
from t2x.guidance.hook import watch_steps
from t2x.guidance.three_way import original_prompt_guidance, parse_three_way
from t2x.testing import CALLS, FAMILIES, tiny_stable_diffusion

USER, REWRITE = ["a cat", "two dogs"], ["a large red cat on a pizza photo", "a photo of two dogs"]
SCALE = 5.0


def _drawer(family: str, pipe: Any = None) -> Callable[..., Tensor]:
    """draw(prompts, scale) -> latents, in two steps; ``draw.pipe`` is the pipeline."""
    pipe = pipe or FAMILIES[family]()
    pipe.set_progress_bar_config(disable=True)
    given = {k: v for k, v in CALLS[family].items() if not k.endswith("scale")}
    true = "true_cfg_scale" in CALLS[family]
    given |= {"negative_prompt": ""} if true else {}

    def draw(prompts: list[str], scale: float = SCALE, **changes: Any) -> Tensor:
        rows = len(prompts) * changes.get("num_images_per_prompt", 1)
        noise = [torch.Generator().manual_seed(i) for i in range(rows)]
        scales = {"true_cfg_scale" if true else "guidance_scale": scale - (family == "z")}
        found = pipe(
            prompt=list(prompts),
            generator=noise,
            num_inference_steps=2,
            output_type="latent",
            return_dict=False,
            **{**given, **scales, **changes},
        )[0]
        return found.float()

    draw.pipe, draw.family = pipe, family  # type: ignore[attr-defined]
    return draw


@pytest.fixture(params=FAMILIES, scope="module")
def draw(request: pytest.FixtureRequest) -> Callable[..., Tensor]:
    return _drawer(request.param)


def _close(found: Tensor, wanted: Tensor) -> bool:
    return bool((found - wanted).abs().max() <= 2e-4 * wanted.abs().max())


def test_one_prompt_twice_is_plain_guidance_at_the_sum(draw):
    """Also where the pipeline rescales to the conditional prediction's size (Qwen-Image)."""
    with original_prompt_guidance(draw.pipe, REWRITE, 2.0, 1.0):
        found = draw(REWRITE)
    assert _close(found, draw(REWRITE, 3.0))
    assert not _close(found, draw(REWRITE))


def test_the_users_words_alone_are_plain_guidance_by_them(draw):
    with original_prompt_guidance(draw.pipe, USER, SCALE, 0.0):
        found = draw(REWRITE)
    user, rewrite = draw(USER), draw(REWRITE)
    assert not _close(rewrite, user)
    if draw.family == "qwen":  # rescales each token to the size of the rewrite's prediction
        assert (found - user).abs().max() < 0.3 * (rewrite - user).abs().max()
        return
    assert _close(found, user)


def test_no_weight_on_the_users_words_is_the_pipelines_own_result(draw):
    plain = draw(REWRITE)
    with original_prompt_guidance(draw.pipe, USER, 0.0):
        assert torch.equal(draw(REWRITE), plain)
    with original_prompt_guidance(draw.pipe, USER, 0.0, SCALE):
        assert torch.equal(draw(REWRITE), plain)


@pytest.mark.parametrize("draw", ["sd15", "z", "wan"], indirect=True)
def test_a_batch_of_two_equals_two_singles(draw):
    with original_prompt_guidance(draw.pipe, USER, 2.0):
        both = draw(REWRITE)
    with original_prompt_guidance(draw.pipe, USER[:1], 2.0):
        single = draw(REWRITE[:1])
    assert _close(both[:1], single)


def test_originals_by_prompt():
    draw = _drawer("sd15")
    by_prompt = dict(zip(REWRITE, USER, strict=True))
    with original_prompt_guidance(draw.pipe, by_prompt, SCALE, 0.0):
        found = draw(REWRITE[1:])
        with pytest.raises(T2XError, match="no original"):
            draw(["another"])
    assert _close(found, draw(USER[1:]))


@pytest.mark.parametrize("draw", ["sd15", "z", "wan"], indirect=True)
def test_no_trace_is_left(draw):
    pipe, plain = draw.pipe, draw(REWRITE)
    denoiser = getattr(pipe, "unet", None) or pipe.transformer
    kind, before = type(pipe), set(vars(denoiser))
    with pytest.raises(ZeroDivisionError), original_prompt_guidance(pipe, USER, 1.0, 1.0):
        raise ZeroDivisionError
    assert type(pipe) is kind and set(vars(denoiser)) == before
    assert torch.equal(draw(REWRITE), plain)


class _Seen:
    """Control that keeps what it sees, and J's gradient of the sum of x0_hat."""

    def __init__(self) -> None:
        self.outputs: list[Tensor] = []
        self.gradients: list[Tensor] = []
        self.corrections: list[Tensor | None] = []

    def begin(self, call, scheduler):
        pass

    def gradient(self, index, total):
        return index == 0

    def visits(self, index, total):
        return 1

    def edit(self, step):
        self.outputs.append(step.output)
        self.corrections.append(step.cfg_correction())
        if step.has_graph:
            self.gradients.append(step.pull_back(torch.ones_like(step.clean)))

    def after(self, step, sample):
        return sample

    def end(self, call):
        pass


def _watched(draw: Callable[..., Tensor], prompts: list[str], scale: float, *weights: Any) -> _Seen:
    seen = _Seen()
    with watch_steps(draw.pipe, [seen], prompts=prompts):
        if weights:
            with original_prompt_guidance(draw.pipe, *weights):
                draw(prompts, scale)
        else:
            draw(prompts, scale)
    return seen


def test_the_first_prediction_and_its_gradient_are_those_of_the_equation(draw):
    """Of u + 5 (c - u) for both texts, and c at almost 1, u, c and o follow, and so does what the
    three make."""
    if draw.family == "qwen":  # its rescaling is not affine: the three don't follow from two runs
        return
    rewrite, user = (_watched(draw, texts, SCALE) for texts in (REWRITE, USER))
    twice = _watched(draw, REWRITE, 2 * SCALE)
    found = _watched(draw, REWRITE, SCALE, USER, 2.0, 1.5)
    for name in ("outputs", "gradients"):
        at_5, at_10, user_5 = (getattr(seen, name)[0] for seen in (rewrite, twice, user))
        u = 2 * at_5 - at_10  # u + 5 d and u + 10 d
        c, o = u + (at_5 - u) / SCALE, u + (user_5 - u) / SCALE
        assert _close(getattr(found, name)[0], three_way(u, o, c, 2.0, 1.5)), name


def test_the_hook_still_sees_a_correction(draw):
    """Equal prompts at the pipeline's own scale: the same correction as without."""
    plain = _watched(draw, REWRITE, SCALE).corrections[0]
    found = _watched(draw, REWRITE, SCALE, REWRITE, 2.0, 3.0).corrections[0]
    assert plain is not None and found is not None and _close(found, plain)


def test_refuses_what_has_no_guidance():
    draw = _drawer("sd15")
    with original_prompt_guidance(draw.pipe, USER, 2.0), pytest.raises(T2XError, match="raise"):
        draw(REWRITE, 1.0)
    distilled = _drawer("sd15", tiny_stable_diffusion(guidance_embedding=8))
    with (
        original_prompt_guidance(distilled.pipe, USER, 2.0),
        pytest.raises(T2XError, match="distilled"),
    ):
        distilled(REWRITE)


def test_refuses_other_numbers_of_texts_and_bad_weights():
    draw = _drawer("sd15")
    with original_prompt_guidance(draw.pipe, USER[:1], 2.0), pytest.raises(T2XError, match="one"):
        draw(REWRITE)
    with pytest.raises(T2XError, match="w_original"), original_prompt_guidance(draw.pipe, USER, -1):
        pass
    with original_prompt_guidance(draw.pipe, USER, 9.0), pytest.raises(T2XError, match="w_rewrite"):
        draw(REWRITE)
    with (
        original_prompt_guidance(draw.pipe, USER, 1.0),
        pytest.raises(T2XError, match="already"),
        original_prompt_guidance(draw.pipe, USER, 1.0),
    ):
        pass


@pytest.mark.parametrize("family", ["sd15", "z"])
def test_several_pictures_of_a_prompt(family):
    draw = _drawer(family)
    call = partial(draw, num_images_per_prompt=2)
    with original_prompt_guidance(draw.pipe, USER[:1], SCALE, 0.0):
        found = call(REWRITE[:1])
    assert _close(found, call(USER[:1]))


def test_parse():
    assert parse_three_way("2,3") == (2.0, 3.0)
    assert parse_three_way("2") == (2.0, None)
    for text in ("", "a", "1,2,3", "-1,2", "nan"):
        with pytest.raises(T2XError, match="three-way"):
            parse_three_way(text)
