"""The step hook on a stock pipeline; every family is in test_families.py."""

from __future__ import annotations

import copy
from typing import Any

import diffusers
import pytest
import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.guidance.config import GuidanceConfig
from t2x.guidance.hook import watch_steps
from t2x.guidance.objective import Objective
from t2x.guidance.reward_guidance import RewardGuidance
from t2x.guidance.step import Call, Step
from t2x.testing import tiny_stable_diffusion


@pytest.fixture(scope="module")
def pipe() -> Any:
    found = tiny_stable_diffusion()
    found.set_progress_bar_config(disable=True)
    return found


class Probe:
    """Control that does what it is told and remembers what it saw."""

    def __init__(self, *, gradient: bool = False, visits: int = 1, push: float = 0.0) -> None:
        self._gradient, self._visits, self.push = gradient, visits, push
        self.seen: list[Step] = []
        self.told: list[str] = []

    def begin(self, call: Call, scheduler: Any) -> None:
        self.call = call
        self.told.append("begin")

    def gradient(self, index: int, total: int) -> bool:
        return self._gradient

    def visits(self, index: int, total: int) -> int:
        return self._visits

    def edit(self, step: Step) -> None:
        self.seen.append(step)
        if self.push:
            step.clean = step.clean + self.push

    def after(self, step: Step, sample: Tensor) -> Tensor:
        return sample

    def end(self, call: Call) -> None:
        self.told.append("end")


class Bright:
    """How bright a picture is."""

    name, modality, differentiable, scale, range = "bright", "image", True, "bright", (0.0, 1.0)

    def score(self, prompts: Any, media: Tensor, *, context: object = None) -> Tensor:
        return media.mean((1, 2, 3))


def draw(pipe: Any, seeds: tuple[int, ...] = (0, 1), **more: Any) -> Tensor:
    streams = [torch.Generator().manual_seed(seed) for seed in seeds]
    prompts = ["a cat", "two dogs"][: len(seeds)]
    options = {"num_inference_steps": 4, "guidance_scale": 3.0, "output_type": "pt", **more}
    return pipe(prompts, generator=streams, **options).images


@pytest.mark.parametrize("probe", [Probe(), Probe(gradient=True), Probe(visits=3)])
def test_watching_alone_changes_no_bit(pipe: Any, probe: Probe) -> None:
    plain = draw(pipe)
    with watch_steps(pipe, [probe]):
        watched = draw(pipe)
    assert torch.equal(plain, watched)
    assert probe.told == ["begin", "end"]


def test_a_step_says_where_it_is(pipe: Any) -> None:
    probe = Probe(visits=2)
    with watch_steps(pipe, [probe]):
        draw(pipe)
    assert [(s.index, s.visit, s.last_visit) for s in probe.seen[:4]] == [
        (0, 0, False),
        (0, 1, True),
        (1, 0, False),
        (1, 1, True),
    ]
    assert probe.call.prompts == ["a cat", "two dogs"]
    assert (probe.call.arguments["height"], probe.call.steps) == (64, 4)
    for step in probe.seen:
        x0 = step.sample - step.level.sigma * step.output
        assert torch.allclose(step.clean, x0, atol=1e-5)


def test_prompts_of_several_pictures_each(pipe: Any) -> None:
    probe = Probe()
    with watch_steps(pipe, [probe]):
        pipe(
            ["a cat", "two dogs"], num_images_per_prompt=2, num_inference_steps=2, output_type="pt"
        )
    assert probe.call.prompts == ["a cat", "a cat", "two dogs", "two dogs"]
    with watch_steps(pipe, [probe], prompts=["mine", "yours"]):
        draw(pipe)
    assert probe.call.prompts == ["mine", "yours"]
    watched = watch_steps(pipe, [probe], prompts=["one", "two", "three"])
    with watched, pytest.raises(T2XError, match="2 pictures and 3 prompts"):
        draw(pipe)


def test_the_gradient_is_that_of_the_whole_prediction(pipe: Any) -> None:
    """J^T g against a finite difference of x0_hat along a direction: the denoiser run by hand, with
    the same CFG, at x_t moved by a little."""
    found: dict[str, Tensor] = {}

    class Pull(Probe):
        def edit(self, step: Step) -> None:
            super().edit(step)
            if step.index == 1:
                found["sample"], found["clean"] = step.sample, step.clean
                found["weights"] = torch.ones_like(step.clean)
                found["pulled"] = step.pull_back(found["weights"])

    probe = Pull(gradient=True)
    with watch_steps(pipe, [probe]):
        draw(pipe)
    direction = torch.randn(found["sample"].shape, generator=torch.Generator().manual_seed(0))
    moved: list[Tensor] = []

    class Nudge(Probe):
        def edit(self, step: Step) -> None:
            if step.index == 1 and step.visit == 0:
                step.move(step.sample + self.push * direction)
            elif step.index == 1:
                moved.append(step.clean)

    for sign in (1, -1):
        nudge = Nudge(visits=2)
        nudge.push = sign * 1e-2
        with watch_steps(pipe, [nudge]):
            draw(pipe)
    slope = ((moved[0] - moved[1]) / 2e-2 * found["weights"]).sum()
    assert slope.item() == pytest.approx((found["pulled"] * direction).sum().item(), rel=1e-2)


def test_an_edit_reaches_the_picture(pipe: Any) -> None:
    plain = draw(pipe)

    class Early(Probe):
        def edit(self, step: Step) -> None:
            if step.index < 2:
                step.clean = step.clean + 0.1

    with watch_steps(pipe, [Early()]):
        edited = draw(pipe)
    assert (edited - plain).abs().mean() > 1e-3


def test_nothing_stays_behind(pipe: Any) -> None:
    before = {k: v for k, v in vars(pipe.scheduler).items() if callable(v)}
    with watch_steps(pipe, [Probe(gradient=True)]):
        draw(pipe)
        assert "step" in vars(pipe.scheduler)

    class Breaks(Probe):
        def edit(self, step: Step) -> None:
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"), watch_steps(pipe, [Breaks(gradient=True)]):
        draw(pipe)
    assert {k: v for k, v in vars(pipe.scheduler).items() if callable(v)} == before
    assert not {"check_inputs", "prepare_latents"} & set(vars(pipe))
    assert torch.is_grad_enabled()
    assert all(p.requires_grad for p in pipe.unet.parameters())
    assert not pipe.unet._forward_hooks


def test_a_copied_scheduler_counts_for_itself(pipe: Any) -> None:
    with watch_steps(pipe, [Probe()]):
        copied = copy.deepcopy(pipe.scheduler)
        copied.set_timesteps(3)
        assert copied.step.__self__ is copied
        assert len(copied.timesteps) == 3 and len(pipe.scheduler.timesteps) != 3


def test_twice_is_refused(pipe: Any) -> None:
    again = watch_steps(pipe, [Probe()])
    with watch_steps(pipe, [Probe()]), pytest.raises(T2XError, match="guided already"), again:
        pass


def test_moving_on_the_last_visit_is_refused(pipe: Any) -> None:
    class Late(Probe):
        def edit(self, step: Step) -> None:
            step.move(step.sample)

    with watch_steps(pipe, [Late()]), pytest.raises(T2XError, match="last visit"):
        draw(pipe)


def test_the_cfg_correction_is_conditional_less_unconditional(pipe: Any) -> None:
    """The pipeline's output is u + scale (c - u): two scales give c - u."""
    outputs = {}
    for scale in (3.0, 5.0):
        probe = Probe()
        with watch_steps(pipe, [probe]):
            draw(pipe, guidance_scale=scale)
        outputs[scale] = probe.seen[0]
    difference = (outputs[5.0].output - outputs[3.0].output) / 2
    assert torch.allclose(outputs[3.0].cfg_correction(), difference, atol=1e-5)
    for scale, step in outputs.items():
        assert torch.allclose(step.cfg_scale(), torch.tensor(scale), rtol=1e-3)
    probe = Probe()
    with watch_steps(pipe, [probe]):
        draw(pipe, guidance_scale=1.0)
    assert probe.seen[0].cfg_correction() is None
    assert probe.seen[0].cfg_scale().tolist() == [1.0, 1.0]


def test_a_batch_of_two_is_two_singles(pipe: Any) -> None:
    with watch_steps(pipe, [Probe(gradient=True)]):
        both, alone = draw(pipe), draw(pipe, (0,))
    assert torch.allclose(both[:1], alone, atol=1e-5)


def test_a_scheduler_replaced_inside_or_shared_is_refused() -> None:
    pipe, other = (tiny_stable_diffusion() for _ in range(2))
    own = pipe.scheduler
    with watch_steps(pipe, [Probe()]):
        pipe.scheduler = copy.deepcopy(own)
        vars(pipe.scheduler).pop("step")
        with pytest.raises(T2XError, match="was replaced"):
            pipe("a cat", num_inference_steps=2)
    other.scheduler = pipe.scheduler = own
    with watch_steps(pipe, [Probe()]):
        pipe("a cat", num_inference_steps=2)
        with pytest.raises(T2XError, match="another pipeline"):
            other("a dog", num_inference_steps=2)


def test_a_copy_made_inside_is_not_watched_afterwards() -> None:
    pipe, watcher = tiny_stable_diffusion(), Probe()
    with watch_steps(pipe, [watcher]):
        copied = copy.deepcopy(pipe.scheduler)
    pipe.scheduler = copied
    pipe("a cat", num_inference_steps=2)
    assert not watcher.seen


@pytest.mark.parametrize("way", ["in place", "given back"])
def test_a_callback_gets_plain_latents_that_it_may_change(pipe: Any, way: str) -> None:
    def half(pipe: Any, index: int, timestep: Any, given: dict[str, Any]) -> dict[str, Any]:
        latents = given["latents"]
        assert latents.cpu().numpy().shape == (2, 4, 16, 16)
        assert not torch.is_grad_enabled()
        if way == "in place":
            latents.mul_(0.5)
            return {}
        return {"latents": latents * 0.5}

    plain, kind = draw(pipe, callback_on_step_end=half), type(pipe)
    pulled = []

    class Pull(Probe):
        def edit(self, step: Step) -> None:
            pulled.append(step.pull_back(torch.ones_like(step.clean)))

    with watch_steps(pipe, [Pull(gradient=True)]):
        watched = draw(pipe, callback_on_step_end=half)
    assert torch.equal(plain, watched)
    assert not torch.equal(plain, draw(pipe))
    assert len(pulled) == 4 and all(bool(p.any()) for p in pulled)
    assert type(pipe) is kind


def _refused(name: str) -> tuple[Any, GuidanceConfig, str]:
    """A scheduler of the tiny pipeline's kind, settings, and what is said of them."""
    table = {
        "EDM": (diffusers.EDMEulerScheduler, {}, GuidanceConfig(), "can't read the noise levels"),
        "zero": (
            diffusers.DDIMScheduler,
            {"rescale_betas_zero_snr": True, "timestep_spacing": "trailing"},
            GuidanceConfig(),
            "pure noise",
        ),
        "flow": (
            diffusers.DPMSolverMultistepScheduler,
            {"use_flow_sigmas": True, "prediction_type": "v_prediction"},
            GuidanceConfig(),
            "contradict",
        ),
        "PRK": (diffusers.PNDMScheduler, {}, GuidanceConfig(), "Runge-Kutta"),
        "ancestral": (
            diffusers.EulerAncestralDiscreteScheduler,
            {},
            GuidanceConfig(noise=0.5),
            "adds noise itself",
        ),
        "Heun": (diffusers.HeunDiscreteScheduler, {}, GuidanceConfig(noise=0.5), "of before"),
    }
    kind, settings, config, message = table[name]
    return kind(**settings), config, message


@pytest.mark.parametrize("name", ["EDM", "zero", "flow", "PRK", "ancestral", "Heun"])
def test_a_scheduler_is_refused_before_the_first_evaluation(pipe: Any, name: str) -> None:
    scheduler, config, message = _refused(name)
    control = RewardGuidance(Objective([Bright()]), config)
    own, pipe.scheduler, calls = pipe.scheduler, scheduler, []
    counter = pipe.unet.register_forward_hook(lambda *given: calls.append(given))
    try:
        with watch_steps(pipe, [control]), pytest.raises(T2XError, match=message):
            draw(pipe)
    finally:
        counter.remove()
        pipe.scheduler = own
    assert not calls
