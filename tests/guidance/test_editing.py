"""Editing on the real classes: identities that hold whatever the weights."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.generators.diffusion import DiffusionGenerator
from t2x.guidance.config import GuidanceConfig
from t2x.guidance.editing import EditConfig, edit, sdedit
from t2x.guidance.hook import watch_steps
from t2x.guidance.trace import GuidanceTrace
from t2x.media import quantize
from t2x.testing import CALLS, FAMILIES, FakeReward, tiny_stable_diffusion

SOURCE, TARGET = ["a red cat", "two dogs and a bus"], ["a blue cat", "two dogs"]
SEEDS = [3, 4]


def _generator(family: str, steps: int = 4) -> DiffusionGenerator:
    own = ("height", "width", "num_frames")
    given = {k: v for k, v in CALLS[family].items() if k not in own}
    return DiffusionGenerator(
        FAMILIES[family](), sampling={**given, "num_inference_steps": steps}, batch_size=4
    )


def _media(family: str, count: int = 2) -> Tensor:
    call = CALLS[family]
    shape = (3, call["height"], call["width"])
    shape = (9, *shape) if "num_frames" in call else shape  # CogVideoX makes 8 of 5
    noise = torch.Generator().manual_seed(0)
    return quantize(torch.rand(count, *shape, generator=noise))  # type: ignore[return-value]


def _round_trip(generator: DiffusionGenerator, media: Tensor) -> Tensor:
    """Media through the pipeline's own encoder and decoder, by an edit that is held all along."""
    config = EditConfig("sdedit", 0.5, tether=math.inf)
    found = edit(generator, media, target_prompts=TARGET, seeds=SEEDS, config=config)
    assert isinstance(found, Tensor)
    return found


@pytest.fixture(scope="module")
def sd() -> DiffusionGenerator:
    return _generator("sd15")


class _Counted:
    """Counts the rows that a denoiser evaluates."""

    def __init__(self, generator: DiffusionGenerator) -> None:
        self.rows: list[int] = []
        module = getattr(generator.pipeline, "unet", None) or generator.pipeline.transformer
        self.hook = module.register_forward_hook(self._add)

    def _add(self, module: Any, given: Any, result: Any) -> None:
        self.rows.append(len(result[0]))


@pytest.mark.parametrize("family", FAMILIES)
def test_equal_prompts_give_the_source_back(family):
    """The difference of two equal predictions is 0 at each step, whatever they are."""
    generator, media = _generator(family), _media(family)
    config = EditConfig("flowedit", 0.75)
    found = edit(
        generator,
        media,
        source_prompts=SOURCE,
        target_prompts=SOURCE,
        seeds=SEEDS,
        config=config,
    )
    assert found.shape == media.shape
    assert (found - _round_trip(generator, media)).abs().max() <= 2.1 / 255


@pytest.mark.parametrize("family", ["sd15", "flux", "wan"])
def test_other_words_change_the_picture_and_skipped_steps_cost_nothing(family):
    generator, media = _generator(family), _media(family)
    source = _round_trip(generator, media)
    for config, samples in ((EditConfig("flowedit", 0.75), 2), (EditConfig("sdedit", 0.75), 1)):
        counted = _Counted(generator)
        found = edit(
            generator,
            media,
            source_prompts=SOURCE,
            target_prompts=TARGET,
            seeds=SEEDS,
            config=config,
        )
        counted.hook.remove()
        guided = 1 if family == "flux" else 2  # without a negative prompt Flux has no CFG
        assert sum(counted.rows) == 3 * samples * guided * 2
        assert (found - source).abs().mean() > 1e-3


def test_a_batch_of_two_equals_two_singles(sd):
    media = _media("sd15")
    for config in (EditConfig(), EditConfig("sdedit", 0.6), EditConfig(focus=0.2)):
        whole = edit(
            sd, media, source_prompts=SOURCE, target_prompts=TARGET, seeds=SEEDS, config=config
        )
        second = edit(
            sd,
            media[1:],
            source_prompts=SOURCE[1:],
            target_prompts=TARGET[1:],
            seeds=SEEDS[1:],
            config=config,
        )
        assert (whole[1:] - second).abs().max() <= 1.1 / 255


def test_strength_and_tether_move_between_the_source_and_a_new_picture(sd):
    media = _media("sd15")
    source = _round_trip(sd, media)

    def distance(**changes: Any) -> float:
        config = EditConfig(**{"method": "sdedit", "strength": 0.75, **changes})
        found = edit(sd, media, target_prompts=TARGET, seeds=SEEDS, config=config)
        return float((found - source).abs().mean())

    free = distance()
    assert distance(strength=0.25) < free < distance(strength=1.0)
    assert distance(tether=100.0) < distance(tether=1.0) < free
    assert distance(tether=math.inf) == 0


@pytest.mark.parametrize("method", ["sdedit", "flowedit"])
def test_outside_the_region_nothing_changes(sd, method):
    """A decoder's norms are over the whole picture, so the source's own pixels are put back."""
    media, config = _media("sd15"), EditConfig(method, 0.75)
    words = {"source_prompts": SOURCE, "target_prompts": TARGET, "seeds": SEEDS}
    part = torch.zeros(2, 1, 32, 32)
    part[..., :16, :] = 1
    regions = {"none": torch.zeros_like(part), "part": part, "all": torch.ones_like(part)}
    found = {
        name: edit(sd, media, config=config, regions=region, **words)
        for name, region in regions.items()
    }
    assert torch.equal(found["none"], quantize(media))
    assert torch.equal(found["all"], edit(sd, media, config=config, **words))
    moved = (found["part"] - found["none"]).abs().mean((0, 1, 3))
    assert moved[:16].mean() > 0.02 and moved[16:].max() == 0
    half = edit(sd, media, config=config, regions=torch.full_like(part, 0.5), **words)
    assert 0 < (half - found["none"]).abs().max() < 1


def test_guidance_scale_of_the_source(sd):
    """At the call's own scale the same; at another one not."""
    media, words = _media("sd15"), {"source_prompts": SOURCE, "target_prompts": TARGET}
    scale = float(sd.settings()["guidance_scale"])
    plain, same, other = (
        edit(sd, media, seeds=SEEDS, config=EditConfig(source_scale=value), **words)
        for value in (None, scale, 1.0)
    )
    assert (plain - same).abs().max() <= 1.1 / 255
    assert (plain - other).abs().max() > 2.1 / 255


def test_rewards_steer_an_edit(sd):
    media = _media("sd15")
    reward = _Brightness()
    found = {}
    for size in (0.0, 2.0):
        guidance = GuidanceConfig(size=size, free_last=0)
        config = EditConfig("rewardflow", 0.75, guidance=guidance)
        edited = edit(
            sd, media, target_prompts=TARGET, seeds=SEEDS, config=config, rewards=[reward]
        )
        found[size] = edited.mean()
    plain = sdedit(sd, media, target_prompts=TARGET, seeds=SEEDS, strength=0.75)
    assert torch.allclose(found[0.0], plain.mean(), atol=1e-6)
    assert found[2.0] > found[0.0] + 1 / 255


class _Closeness(FakeReward):
    """How near the picture is to its source; NaN without one."""

    name = "dino"

    def score(self, prompts: Any, media: Any, *, context: Any = None) -> Tensor:
        if context is None or context.source is None:
            return media.new_full((len(media),), math.nan)
        return 1 - (media - context.source).flatten(1).abs().mean(1)


def test_rewards_see_the_source_and_the_policy_the_instruction(sd):
    """A local colour edit starts later, smaller, and for what keeps the rest (policy.RULES)."""
    traces: list[GuidanceTrace] = []
    guidance = GuidanceConfig(rewards={"dino": 1.0, "brightness": 1.0}, free_last=0)

    def steps(**changes: Any) -> list[Any]:
        edit(
            sd,
            _media("sd15", 1),
            target_prompts=["a blue cat"],
            seeds=SEEDS[:1],
            config=EditConfig("rewardflow", 1.0, guidance=changes.pop("guidance", guidance)),
            rewards=[_Closeness(), _Brightness()],
            observe=traces.append,
            **changes,
        )
        found: list[Any] = traces[-1].calls[-1].steps
        return found

    for told in steps():
        assert bool(told.values.isfinite().all()) and told.weights.tolist() == [[1.0, 1.0]]
        assert bool((told.eta > 0).all())
    first, *others = steps(instructions=["make the cat blue"])
    assert first.weights[0].tolist() == pytest.approx([1.2, 0.8])  # fidelity x 1.5
    assert float(first.extra["shift"]) == 0 and all(o.extra["shift"] > 0 for o in others)
    plain = steps(instructions=["make the cat blue"], guidance=replace(guidance, adaptive=False))
    assert plain[0].weights.tolist() == [[1.0, 1.0]] and plain[0].extra["shift"] > 0


@pytest.mark.parametrize(("scale", "side"), [(1.0, 32), (0.5, 16)])
def test_the_source_is_compared_in_the_size_that_is_decoded(sd, scale, side):
    traces: list[GuidanceTrace] = []
    seen: list[Tensor] = []

    class Watching(_Closeness):
        def score(self, prompts: Any, media: Any, *, context: Any = None) -> Tensor:
            assert media.shape == context.source.shape
            seen.append(context.source)
            return super().score(prompts, media, context=context)

    media = _media("sd15", 1)
    media[..., ::2] = 0.0  # stripes, which a picture of half the size may not keep
    guidance = GuidanceConfig(rewards={"dino": 1.0}, free_last=0, decode_scale=scale)
    edit(
        sd,
        media,
        target_prompts=TARGET[:1],
        seeds=SEEDS[:1],
        config=EditConfig("rewardflow", 0.5, guidance=guidance),
        rewards=[Watching()],
        observe=traces.append,
    )
    assert all(bool(step.values.isfinite().all()) for step in traces[0].calls[-1].steps)
    assert seen and all(source.shape[-2:] == (side, side) for source in seen)
    columns = seen[0].mean((0, 1, 2))
    assert float((columns - columns.mean()).abs().mean()) == pytest.approx(
        float((media.mean((0, 1, 2)) - media.mean()).abs().mean()) if scale == 1 else 0.0, abs=0.03
    )


@pytest.mark.parametrize("frames", [None, 1, 2])
def test_rewards_compare_each_frame_of_a_video_with_its_own_of_the_source(frames):
    """Wan's 9 frames are 3 latent ones: 1, 4 and 4."""
    generator, told = _generator("wan"), []
    media = torch.arange(9).view(1, 9, 1, 1, 1).expand(1, 9, *_media("wan", 1).shape[2:]) / 10

    class Watching(_Closeness):
        def score(self, prompts: Any, media: Any, *, context: Any = None) -> Tensor:
            told.append([round(10 * float(frame.mean())) for frame in context.source])
            return super().score(prompts, media, context=context)

    traces: list[GuidanceTrace] = []
    guidance = GuidanceConfig(rewards={"dino": 1.0}, free_last=0, frames=frames)
    edit(
        generator,
        media,
        target_prompts=TARGET[:1],
        seeds=SEEDS[:1],
        config=EditConfig("rewardflow", 1.0, guidance=guidance),
        rewards=[Watching()],
        observe=traces.append,
    )
    for step in traces[0].calls[-1].steps:
        assert bool(step.values.isfinite().all())
    groups = [[0], [1, 2, 3, 4], [5, 6, 7, 8]]
    allowed = {
        None: [[0, 1, 2, 3, 4, 5, 6, 7, 8]],
        1: [[group[-1]] for group in groups],
        2: [[0, *group] for group in groups[1:]],
    }[frames]
    assert len(told) == 4 and all(row in allowed for row in told)
    assert len({tuple(row) for row in told}) == len(allowed)


def test_the_region_of_an_edit_is_where_rewards_of_regions_look(sd):
    """With the phrase of the instruction, if it is of one thing."""
    told: list[Any] = []

    class Grounded(_Brightness):
        name = "grounded"

        def score(self, prompts: Any, media: Any, *, context: Any = None) -> Tensor:
            told.append((context.boxes.tolist(), context.phrases))
            return super().score(prompts, media)

    traces: list[GuidanceTrace] = []
    part = torch.zeros(1, 1, 32, 32)
    part[..., 8:, :16] = 1
    edit(
        sd,
        _media("sd15", 1),
        target_prompts=["a blue cat and a dog"],
        seeds=SEEDS[:1],
        config=EditConfig("rewardflow", 0.75, guidance=GuidanceConfig(free_last=0)),
        rewards=[Grounded()],
        regions=part,
        instructions=["make the cat blue"],
        observe=traces.append,
    )
    assert told and all(one == ([[[0.0, 0.25, 0.5, 1.0]]], [["a blue cat"]]) for one in told)
    assert [region.phrase for region in traces[0].sample(0).regions] == ["a blue cat"]


def test_says_before_sampling_that_no_step_is_guided(sd, caplog):
    """Of 4 steps 3 are run, 2 of which are free; a colour's policy begins after a fifth."""

    def draw(instruction: str, strength: float, **changes: Any) -> list[int]:
        counted = _Counted(sd)
        try:
            edit(
                sd,
                _media("sd15", 1),
                target_prompts=TARGET[:1],
                seeds=SEEDS[:1],
                config=EditConfig("rewardflow", strength, guidance=GuidanceConfig(**changes)),
                rewards=[_Brightness()],
                instructions=[instruction],
            )
        finally:
            counted.hook.remove()
            drawn.append(len(counted.rows))
        return counted.rows

    drawn: list[int] = []
    for changes in ({}, {"stop": 0.25}):
        with pytest.raises(T2XError, match=r"guide no step.*free_last"):
            draw("make the cat blue", 0.5, **changes)
    assert drawn == [0, 0]
    draw("make the cat blue", 1.0)
    assert not caplog.records  # the second step is guided
    draw("make the cat blue", 1.0, free_last=3)
    (record,) = [r for r in caplog.records if "editing" in r.name]
    assert "'make the cat blue'" in record.message and "20 %" in record.message
    caplog.clear()
    draw("swap the cat for a dog", 1.0, free_last=3)
    draw("make the cat blue", 0.5, size=0.0)
    assert not [r for r in caplog.records if "editing" in r.name]


class _Brightness(FakeReward):
    """The mean pixel."""

    name = "brightness"
    differentiable = True

    def score(self, prompts: Any, media: Any, *, context: Any = None) -> Tensor:
        return media.flatten(1).mean(1)


def test_the_pipeline_is_as_before(sd):
    pipe, before = sd.pipeline, set(vars(sd.pipeline.scheduler))
    kind = type(pipe)
    edit(sd, _media("sd15"), source_prompts=SOURCE, target_prompts=TARGET, seeds=SEEDS)
    assert type(pipe) is kind and "prepare_latents" not in vars(pipe)
    assert set(vars(pipe.scheduler)) - before <= {"_begin_index", "_step_index"}
    with watch_steps(pipe, []):
        pass


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seeds": [1]}, "seeds"),
        ({"sources": _media("sd15", 1)}, "one for each"),
        ({"sources": [torch.zeros(1, 3, 8, 8), torch.zeros(1, 3, 16, 8)]}, "several sizes"),
        ({"sources": torch.zeros(2, 5, 3, 32, 32)}, "edits images"),
        ({"source_prompts": None}, "source_prompts"),
        ({"rewards": ["clip"]}, "rewardflow"),
        ({"instructions": ["make it blue"]}, "1"),
        ({"config": EditConfig("rewardflow")}, "needs rewards"),
        ({"regions": torch.ones(2, 32, 32)}, "regions are"),
        ({"sources": torch.zeros(2, 3, 30, 30)}, "resize"),
    ],
)
def test_says_what_is_wrong(sd, changes, said):
    given = {
        "sources": _media("sd15"),
        "source_prompts": SOURCE,
        "target_prompts": TARGET,
        "seeds": SEEDS,
    }
    given |= changes
    with pytest.raises(T2XError, match=said):
        edit(sd, given.pop("sources"), **given)


def test_refuses_pipelines_that_edit_themselves():
    from diffusers import StableDiffusionImg2ImgPipeline

    pipe = tiny_stable_diffusion()
    own = StableDiffusionImg2ImgPipeline(**pipe.components, requires_safety_checker=False)
    with pytest.raises(T2XError, match="edits pictures itself"):
        edit(own, _media("sd15"), source_prompts=SOURCE, target_prompts=TARGET, seeds=SEEDS)


@pytest.mark.parametrize(
    "wrong",
    [{"method": "ddim"}, {"strength": 0.0}, {"focus": 0.9}, {"tether": -1.0}],
)
def test_refuses_bad_settings(wrong):
    with pytest.raises(T2XError, match="edit:"):
        EditConfig(**wrong)
