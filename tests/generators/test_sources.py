"""Source pictures: what is refused, how calls are cut, and what names a picture in a store."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from t2x.errors import T2XError
from t2x.generators import DiffusionGenerator, GuidedGenerator
from t2x.generators.sources import source_digest
from t2x.guidance.recipe import make_recipe
from t2x.media import to_pil
from t2x.store import media_key
from t2x.testing import (
    CALLS,
    EDITING,
    EDITING_CALLS,
    FakeReward,
    tiny_ltx,
    tiny_stable_diffusion,
)

PROMPTS = ["a red cat", "a dog", "a bus"]


def generator(name: str, **more: object) -> DiffusionGenerator:
    sampling = {**EDITING_CALLS[name], "num_inference_steps": 2, **more}
    return DiffusionGenerator(EDITING[name](), sampling=sampling)


def pictures(count: int = 3, side: int = 32) -> torch.Tensor:
    found = torch.rand(count, 3, side, side, generator=torch.Generator().manual_seed(0))
    return found.mul(255).round().div(255)


@pytest.fixture(scope="module")
def img2img() -> DiffusionGenerator:
    return generator("sd15-img2img")


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        (None, r"StableDiffusionImg2ImgPipeline starts from a picture: give sources="),
        (pictures(2), "3 prompts but 2 sources"),
        (pictures()[0], r"got shape \(3, 32, 32\)"),
        (pictures() * 255, r"from .* to 255; give \[0, 1\]"),
        (pictures() * torch.nan, r"give \[0, 1\]"),
        ([torch.zeros(4, 8, 8)] * 3, r"float32 of shape \(4, 8, 8\)"),
        ([torch.zeros(3, 8, 8, dtype=torch.uint8)] * 3, "got torch.uint8"),
        (["a.png"] * 3, "got str; read files with t2x.media.load_picture"),
        ("a.png", "a list of pictures, got str"),
    ],
)
def test_wrong_sources_are_one_clear_line(
    img2img: DiffusionGenerator, sources: object, message: str
) -> None:
    with pytest.raises(T2XError, match=message) as caught:
        img2img.generate(PROMPTS, seeds=[0, 1, 2], sources=sources)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_a_pipeline_of_text_takes_none() -> None:
    with pytest.raises(T2XError, match="StableDiffusionPipeline takes no source picture"):
        DiffusionGenerator(tiny_stable_diffusion()).generate(
            PROMPTS, seeds=[0, 1, 2], sources=pictures()
        )


@pytest.mark.parametrize(
    ("sampling", "message"),
    [
        ({"strength": 0.0}, "strength is 0.0; give more than 0"),
        ({"strength": 1.5}, "strength is 1.5"),
        ({"strength": 0.4}, "strength 0.4 of 2 steps runs none of them; .* 0.5 or more"),
        ({"image": None}, "'image' is no sampling setting"),
    ],
)
def test_wrong_strengths_are_refused_when_made(sampling: dict[str, object], message: str) -> None:
    with pytest.raises(T2XError, match=message):
        generator("sd15-img2img", **sampling)


def test_inpainting_is_refused() -> None:
    from diffusers import StableDiffusionInpaintPipeline

    parts = tiny_stable_diffusion().components
    pipe = StableDiffusionInpaintPipeline(**parts, requires_safety_checker=False)
    with pytest.raises(T2XError, match="needs a mask"):
        DiffusionGenerator(pipe).generate(["a cat"], seeds=[0], sources=pictures(1))


@pytest.mark.parametrize(("strength", "steps"), [(0.25, 2), (1.0, 8)])
def test_strength_is_the_part_of_the_steps_that_are_run(strength: float, steps: int) -> None:
    made = generator("sd15-img2img", strength=strength, num_inference_steps=8)
    calls: list[int] = []
    made.pipeline.unet.register_forward_hook(lambda *_: calls.append(1))
    made.generate(["a cat"], seeds=[0], sources=pictures(1))
    assert len(calls) == steps


def test_forms_of_a_picture_draw_the_same(img2img: DiffusionGenerator) -> None:
    stack = pictures()
    forms = [stack, list(stack), [p.unsqueeze(0) for p in stack], to_pil(stack)]
    drawn = [img2img.generate(PROMPTS, seeds=[0, 1, 2], sources=form) for form in forms]
    assert all(torch.equal(drawn[0], other) for other in drawn[1:])


def test_calls_hold_sources_of_a_size_and_keep_their_order(img2img: DiffusionGenerator) -> None:
    """32, 48, 32 pixels: three calls; each picture is what it is alone."""
    sizes = [32, 48, 32]
    given = [pictures(1, side)[0] for side in sizes]
    calls: list[int] = []

    def count(rows: object, arguments: dict[str, object], seeds: list[int]) -> object:
        calls.append(len(seeds))
        return img2img._plain(arguments, seeds)

    listed = img2img.generate(PROMPTS, seeds=[0, 1, 2], sources=given, draw=count)
    assert calls == [1, 1, 1]
    assert [tuple(item.shape) for item in listed] == [(1, 3, side, side) for side in sizes]
    pipe = generator("sd3-img2img", height=32, width=32)
    mixed = pipe.generate(PROMPTS, seeds=[0, 1, 2], sources=given)
    alone = [pipe.generate([p], seeds=[i], sources=[given[i]]) for i, p in enumerate(PROMPTS)]
    assert torch.equal(mixed, torch.cat(alone))


def test_a_source_keeps_its_shape_where_the_class_would_stretch_it() -> None:
    """Classes with a size of their own default to a square of the model's; multiples of 8 here."""
    drawn = generator("sd3-img2img").generate(
        ["a cat"], seeds=[0], sources=[torch.zeros(3, 33, 55)]
    )
    assert drawn.shape == (1, 3, 32, 48)
    sized = generator("sd3-img2img").generate(
        ["a cat"], seeds=[0], sources=[torch.zeros(3, 33, 55)], size=(32, 32)
    )
    assert sized.shape == (1, 3, 32, 32)


def test_a_digest_names_pixels_and_size() -> None:
    picture = pictures(1)
    name = source_digest(picture)
    assert name == source_digest(picture[0]) == source_digest(to_pil(picture)[0])
    changed = picture.clone()
    changed[0, 0, 0, 0] = 1 - changed[0, 0, 0, 0].round()
    assert source_digest(changed) != name
    assert source_digest(torch.zeros(3, 2, 8)) != source_digest(torch.zeros(3, 8, 2))
    keys = {media_key("a", fingerprint={}, seed=0, source=s) for s in (None, name, "0" * 16)}
    assert len(keys) == 3
    assert media_key("a", fingerprint={}, seed=0) == media_key(
        "a", fingerprint={}, seed=0, source=None
    )


def test_other_modes_of_a_file_are_rgb() -> None:
    grey = Image.fromarray(np.full((8, 8), 128, dtype=np.uint8))
    assert source_digest(grey) == source_digest(torch.full((3, 8, 8), 128 / 255))


def test_ltx_by_conditions_draws_with_and_without_a_picture():
    """The class of ltx-video-13b-distilled for text to video and picture to video."""
    from diffusers import FlowMatchEulerDiscreteScheduler, LTXConditionPipeline

    pipe = LTXConditionPipeline(**tiny_ltx().components)
    config = pipe.scheduler.config
    pipe.scheduler = FlowMatchEulerDiscreteScheduler.from_config(config, use_dynamic_shifting=False)
    drawer = DiffusionGenerator(pipe, sampling={**CALLS["ltx"], "num_inference_steps": 2})
    bare = drawer.generate(PROMPTS[:2], seeds=[0, 1])
    assert torch.equal(bare[1:], drawer.generate(PROMPTS[1:2], seeds=[1]))
    begun = drawer.generate(PROMPTS[:2], seeds=[0, 1], sources=pictures(2))
    assert begun.shape == bare.shape and not torch.equal(begun, bare)
    recipe = make_recipe("fake-reward", mode="search", loaded=["fake-reward"])
    guided = GuidedGenerator(drawer, recipe, rewards=[FakeReward()])
    with pytest.raises(T2XError, match="levels for each token"):
        guided.generate(PROMPTS[:1], seeds=[0])
