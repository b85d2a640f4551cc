"""The step hook on the real classes of all families, with each one's own guidance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from diffusers import (
    CogVideoXDPMScheduler,
    DDIMScheduler,
    DPMSolverMultistepScheduler,
    EulerAncestralDiscreteScheduler,
    EulerDiscreteScheduler,
    FlowMatchEulerDiscreteScheduler,
    HeunDiscreteScheduler,
    StableDiffusionImg2ImgPipeline,
    UniPCMultistepScheduler,
)
from torch import Tensor

from t2x.errors import T2XError
from t2x.guidance.hook import watch_steps
from t2x.guidance.step import Step
from t2x.testing import (
    CALLS,
    DISTILLED,
    FAMILIES,
    tiny_cogvideox,
    tiny_flux,
    tiny_sana_sprint,
    tiny_stable_diffusion,
    tiny_wan,
)

STEPS = 2
PROMPTS = ["a red cat", "a dog"]


class Probe:
    """A control made of what a test needs."""

    def __init__(
        self, *, gradient: bool = False, visits: int = 1, edit: Callable[[Step], None] | None = None
    ) -> None:
        self.wanted, self.times, self.act = gradient, visits, edit
        self.steps: list[Step] = []

    def begin(self, call: Any, scheduler: Any) -> None:
        self.call, self.scheduler = call, scheduler

    def gradient(self, index: int, total: int) -> bool:
        return self.wanted

    def visits(self, index: int, total: int) -> int:
        return self.times

    def edit(self, step: Step) -> None:
        self.steps.append(step)
        if self.act is not None:
            self.act(step)

    def after(self, step: Step, sample: Tensor) -> Tensor:
        return sample

    def end(self, call: Any) -> None:
        pass


def draw(
    pipe: Any, family: str, seeds: Sequence[int] = (0, 1), probe: Probe | None = None, **more: Any
) -> Tensor:
    """Final latents, prompts and noise by seed."""
    pipe.set_progress_bar_config(disable=True)
    options = {"num_inference_steps": STEPS, "output_type": "latent", **CALLS[family], **more}
    if "true_cfg_scale" in options:
        options["negative_prompt"] = ["blue"] * len(seeds)

    def call() -> Tensor:
        noise = [torch.Generator().manual_seed(seed) for seed in seeds]
        prompts = [PROMPTS[seed] for seed in seeds]
        found: Tensor = pipe(prompt=prompts, generator=noise, return_dict=False, **options)[0]
        return found

    if probe is None:
        return call()
    with watch_steps(pipe, [probe]):
        return call()


@pytest.fixture(scope="module", params=FAMILIES)
def case(request: pytest.FixtureRequest) -> tuple[str, Any, Tensor]:
    """(family, pipeline, what it draws unguided)."""
    pipe = FAMILIES[request.param]()
    return request.param, pipe, draw(pipe, request.param)


# ---- seeing ----------------------------------------------------------------------------------


def combined(family: str, outputs: list[Tensor], like: Tensor) -> tuple[Tensor, Tensor]:
    """(what the scheduler should get, conditional less unconditional) of a denoiser's outputs, by
    the formulas of the families' papers and a scale of 3."""
    if family in ("flux", "qwen", "wan", "klein"):
        given, nothing = outputs
    else:
        nothing, given = outputs[0].chunk(2)
    if family == "z":  # the conditional half first, of the other sign, one frame
        given, nothing = -nothing.squeeze(2), -given.squeeze(2)
        return given + 3 * (given - nothing), given - nothing
    if family == "pixart":  # a variance as well
        given, nothing = given[:, :4], nothing[:, :4]
    found = nothing + 3 * (given - nothing)
    if family == "qwen":
        found = found * given.norm(dim=-1, keepdim=True) / found.norm(dim=-1, keepdim=True)
    assert found.shape == like.shape
    return found, given - nothing


def clean(family: str, scheduler: Any, index: int, x: Tensor, output: Tensor) -> Tensor:
    """x0_hat by hand."""
    if family in ("pixart", "cogvideox"):
        kept = scheduler.alphas_cumprod[int(scheduler.timesteps[index])].sqrt()
        noise = (1 - kept**2).sqrt()
        if family == "cogvideox":
            return kept * x - noise * output
        return (x - noise * output) / kept
    return x - float(scheduler.sigmas[index]) * output


def test_seeing_changes_nothing_and_sees_right(case: tuple[str, Any, Tensor]) -> None:
    """Bit for bit the unguided run, with gradients through the whole step; x0_hat and the CFG
    correction are those that are worked out by hand."""
    family, pipe, plain = case
    raw: list[Tensor] = []
    network = pipe.unet if hasattr(pipe, "unet") else pipe.transformer

    def keep(module: Any, given: Any, result: Any) -> None:
        found = result[0]
        raw.append(torch.stack(found).detach() if isinstance(found, list) else found.detach())

    def look(step: Step) -> None:
        gradient = step.pull_back(torch.ones_like(step.clean))
        assert gradient.shape == step.sample.shape
        assert gradient.isfinite().all() and (gradient != 0).float().mean() > 0.9
        output, correction = combined(family, raw, step.sample)
        expected = clean(family, probe.scheduler, step.index, step.sample, output)
        torch.testing.assert_close(step.output, output, atol=1e-5, rtol=1e-4)
        # float32 of a sum whose terms are large where little signal is left
        loss = 1e-5 * max(1.0, step.level.sigma / max(step.level.alpha, 1e-2))
        torch.testing.assert_close(step.clean, expected, atol=loss, rtol=1e-3)
        found = step.cfg_correction()
        assert found is not None
        torch.testing.assert_close(found, correction, atol=1e-6, rtol=1e-4)
        raw.clear()

    probe = Probe(gradient=True, edit=look)
    handle = network.register_forward_hook(keep)
    try:
        assert torch.equal(draw(pipe, family, probe=probe), plain)
    finally:
        handle.remove()
    assert [step.index for step in probe.steps] == list(range(STEPS))
    assert probe.call.prompts == PROMPTS and probe.call.steps == STEPS


def test_several_visits(case: tuple[str, Any, Tensor]) -> None:
    """Each level is evaluated twice, and the scheduler steps once."""
    family, pipe, plain = case
    probe = Probe(visits=2)
    assert torch.equal(draw(pipe, family, probe=probe), plain)
    assert [(s.index, s.visit) for s in probe.steps] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert probe.call.steps == STEPS


@pytest.mark.parametrize("family", ["sdxl", "flux", "z", "wan"])
def test_a_moved_sample_is_evaluated_anew(family: str) -> None:
    def move(step: Step) -> None:
        if step.visit == 0:
            step.move(step.sample + 0.5)

    probe = Probe(visits=2, edit=move)
    draw(FAMILIES[family](), family, probe=probe)
    first, second = probe.steps[:2]
    torch.testing.assert_close(second.sample, first.sample + 0.5)
    assert not torch.equal(second.output, first.output)


# ---- steering --------------------------------------------------------------------------------


def aim(step: Step) -> None:
    """Where to: another constant for each sample."""
    goal = torch.arange(1.0, 1 + len(step.clean)).view(-1, *[1] * (step.clean.ndim - 1))
    step.clean = goal.expand_as(step.clean) / 2


def test_the_end_is_what_x0_hat_was_set_to(case: tuple[str, Any, Tensor]) -> None:
    family, pipe, _ = case
    last = draw(pipe, family, probe=Probe(edit=aim))
    goal = torch.tensor([0.5, 1.0]).view(-1, *[1] * (last.ndim - 1)).expand_as(last)
    torch.testing.assert_close(last, goal, atol=0.02, rtol=0)


SOLVERS = {
    "sd15-ddim": ("sd15", DDIMScheduler(clip_sample=False, steps_offset=1)),
    "sd15-euler": ("sd15", EulerDiscreteScheduler()),
    "sd15-ancestral": ("sd15", EulerAncestralDiscreteScheduler()),
    "sdxl-dpm": ("sdxl", DPMSolverMultistepScheduler(euler_at_final=True)),
    "sdxl-sde": ("sdxl", DPMSolverMultistepScheduler(algorithm_type="sde-dpmsolver++")),
    "wan-unipc": (
        "wan",
        UniPCMultistepScheduler(
            prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0
        ),
    ),
    "cogvideox-dpm": (
        "cogvideox",
        CogVideoXDPMScheduler(
            prediction_type="v_prediction", rescale_betas_zero_snr=True, timestep_spacing="trailing"
        ),
    ),
    "flux-stochastic": ("flux", FlowMatchEulerDiscreteScheduler(stochastic_sampling=True)),
}


@pytest.mark.parametrize("name", SOLVERS)
def test_other_solvers(name: str) -> None:
    """Looking changes nothing, several visits neither; the end is where x0_hat was set to, past
    the memory and the correctors of the solver."""
    family, scheduler = SOLVERS[name]
    pipe = FAMILIES[family]()
    pipe.scheduler = scheduler
    steps = {"num_inference_steps": 4}
    torch.manual_seed(0)  # some of them draw noise from the global stream
    plain = draw(pipe, family, **steps)
    for probe in (Probe(gradient=True), Probe(visits=2)):
        torch.manual_seed(0)
        assert torch.equal(draw(pipe, family, probe=probe, **steps), plain)
        assert len(probe.steps) == 4 * probe.times
    last = draw(pipe, family, probe=Probe(edit=aim), **steps)
    goal = torch.tensor([0.5, 1.0]).view(-1, *[1] * (last.ndim - 1)).expand_as(last)
    torch.testing.assert_close(last, goal, atol=0.05, rtol=0)


def test_an_early_edit_is_not_thrown_away_by_unipc() -> None:
    """A callback's would be: its corrector goes back to the sample before (diffusers)."""
    family, scheduler = SOLVERS["wan-unipc"]
    pipe = tiny_wan()

    def nudge(step: Step) -> None:
        if step.index == 1:
            step.clean = step.clean + 1.0

    effects = []
    for solver in (scheduler, FlowMatchEulerDiscreteScheduler(shift=3.0)):
        pipe.scheduler = solver
        moved = draw(pipe, family, probe=Probe(edit=nudge), num_inference_steps=6)
        effects.append((moved - draw(pipe, family, num_inference_steps=6)).mean())
    assert effects[0] > 0.5 * effects[1] > 0.05


def test_batch_of_two_is_two_singles(case: tuple[str, Any, Tensor]) -> None:
    family, pipe, _ = case

    def climb(step: Step) -> None:
        step.clean = step.clean + 0.1 * step.pull_back(step.clean)

    both = draw(pipe, family, probe=Probe(gradient=True, edit=climb))
    alone = [draw(pipe, family, [s], Probe(gradient=True, edit=climb)) for s in (0, 1)]
    torch.testing.assert_close(both, torch.cat(alone), atol=2e-3, rtol=2e-3)


@pytest.mark.parametrize("family", FAMILIES)
def test_bfloat16(family: str) -> None:
    pipe = FAMILIES[family]().to(torch.bfloat16)
    small = {} if family in ("ltx", "sana") else {"height": 16, "width": 16}

    def climb(step: Step) -> None:
        assert step.clean.dtype == torch.float32
        gradient = step.pull_back(torch.ones_like(step.clean))
        assert gradient.isfinite().all() and gradient.any()
        step.clean = step.clean + 1.0

    moved = draw(pipe, family, probe=Probe(gradient=True, edit=climb), **small)
    plain = draw(pipe, family, **small)
    assert torch.equal(draw(pipe, family, probe=Probe(), **small), plain)
    assert moved.dtype == plain.dtype and (moved - plain).float().mean() > 0.5


# ---- leaving ---------------------------------------------------------------------------------


def state(pipe: Any) -> list[Any]:
    hooks = [len(m._forward_hooks) for m in pipe.components.values() if hasattr(m, "parameters")]
    asked = [
        p.requires_grad
        for m in pipe.components.values()
        if hasattr(m, "parameters")
        for p in m.parameters()
    ]
    return [set(vars(pipe)), set(vars(pipe.scheduler)), hooks, asked, torch.is_grad_enabled()]


def test_nothing_stays_behind(case: tuple[str, Any, Tensor]) -> None:
    family, pipe, plain = case
    before = state(pipe)
    tables = pipe.scheduler.timesteps.clone()

    def fall(step: Step) -> None:
        if step.index == 1:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        draw(pipe, family, probe=Probe(gradient=True, visits=2, edit=fall))
    assert state(pipe) == before
    assert torch.equal(pipe.scheduler.timesteps, tables)
    assert torch.equal(draw(pipe, family), plain)


# ---- what only some have ---------------------------------------------------------------------


def test_two_experts() -> None:
    """Wan 2.2: the second takes over below half of the noise."""
    pipe = tiny_wan(experts=2)
    used: list[str] = []
    for name in ("transformer", "transformer_2"):
        getattr(pipe, name).register_forward_hook(lambda *_, name=name: used.append(name))

    def look(step: Step) -> None:
        gradient = step.pull_back(torch.ones_like(step.clean))
        assert gradient.isfinite().all() and gradient.any()
        assert step.cfg_correction() is not None

    plain = draw(pipe, "wan", num_inference_steps=4)
    used.clear()
    probe = Probe(gradient=True, edit=look)
    assert torch.equal(draw(pipe, "wan", probe=probe, num_inference_steps=4), plain)
    assert used == ["transformer"] * 6 + ["transformer_2"] * 2
    assert all(p.requires_grad for p in pipe.transformer_2.parameters())


def test_distilled_guidance_has_no_correction() -> None:
    probe = Probe()
    draw(tiny_flux(), "flux", probe=probe, true_cfg_scale=1.0)
    assert all(step.cfg_correction() is None for step in probe.steps)


@pytest.mark.parametrize("family", DISTILLED)
def test_families_that_take_the_guidance_scale_as_an_input(family: str) -> None:
    """Seeing changes nothing; x0_hat is that worked out by hand; the end is where it was set to;
    there is one pass, and a gradient through it."""
    pipe = DISTILLED[family]()
    plain = draw(pipe, family)
    data = pipe.scheduler.config.get("sigma_data", 1.0)  # what Sana-Sprint divides by at the end

    def look(step: Step) -> None:
        gradient = step.pull_back(torch.ones_like(step.clean))
        assert gradient.isfinite().all() and (gradient != 0).float().mean() > 0.9
        assert step.cfg_correction() is None and step.evaluations == len(PROMPTS)
        if family == "sprint":  # TrigFlow: angles
            angle = probe.scheduler.timesteps[step.index]
            expected = angle.cos() * step.sample - angle.sin() * step.output
        else:
            expected = clean(family, probe.scheduler, step.index, step.sample, step.output)
        torch.testing.assert_close(step.clean, expected, atol=1e-5, rtol=1e-4)

    probe = Probe(gradient=True, edit=look)
    assert torch.equal(draw(pipe, family, probe=probe), plain)
    assert [step.index for step in probe.steps] == list(range(STEPS)) and probe.call.steps == STEPS
    twice = Probe(visits=2)
    torch.testing.assert_close(draw(pipe, family, probe=twice), plain)
    assert len(twice.steps) == 2 * STEPS
    last = draw(pipe, family, probe=Probe(edit=aim)) * data
    goal = torch.tensor([0.5, 1.0]).view(-1, *[1] * (last.ndim - 1)).expand_as(last)
    torch.testing.assert_close(last, goal, atol=0.02, rtol=0)


def test_sana_sprint_decodes_a_sample_that_a_control_changed_last() -> None:
    """Its pipeline takes x0_hat of the last step, not the sample after it."""

    class Shift(Probe):
        def after(self, step: Step, sample: Tensor) -> Tensor:
            return sample + 0.5 if step.index == STEPS - 1 else sample

    pipe = tiny_sana_sprint()
    moved = draw(pipe, "sprint", probe=Shift()) - draw(pipe, "sprint")
    torch.testing.assert_close(moved, torch.full_like(moved, 1.0))  # 0.5 / sigma_data


def test_padded_frames_of_cogvideox_1_5() -> None:
    pipe = tiny_cogvideox(patch_size_t=2)
    plain = draw(pipe, "cogvideox", num_frames=9)
    probe = Probe(gradient=True)
    assert torch.equal(draw(pipe, "cogvideox", probe=probe, num_frames=9), plain)
    assert probe.steps[0].clean.shape[1] == 4


def test_reordered_rows_take_the_history_that_the_pipeline_keeps() -> None:
    """CogVideoXDPMScheduler's is in the pipeline's hands: rows that are swapped stay swapped."""
    pipe = tiny_cogvideox()
    pipe.set_progress_bar_config(disable=True)
    pipe.scheduler = SOLVERS["cogvideox-dpm"][1]
    first = torch.randn(2, 2, 4, 4, 4, generator=torch.Generator().manual_seed(0))

    def call(probe: Probe) -> Tensor:
        with watch_steps(pipe, [probe]):
            found: Tensor = pipe(
                ["a dog", "a dog"],
                latents=first.clone(),
                generator=[torch.Generator().manual_seed(0) for _ in range(2)],
                num_inference_steps=4,
                output_type="latent",
                **CALLS["cogvideox"],
            ).frames
        return found

    def swap(step: Step) -> None:
        if step.index == 2:
            step.reorder(torch.tensor([1, 0]))

    plain = call(Probe())
    assert (plain - plain.flip(0)).abs().max() > 0.01
    torch.testing.assert_close(call(Probe(edit=swap)), plain.flip(0), atol=1e-5, rtol=1e-4)


def test_two_calls_in_one_with() -> None:
    pipe = FAMILIES["z"]()
    probe = Probe(gradient=True)
    first = draw(pipe, "z", probe=probe)
    with watch_steps(pipe, [probe]):
        for seeds, steps in (((0, 1), STEPS), ((1,), 3)):
            noise = [torch.Generator().manual_seed(seed) for seed in seeds]
            found = pipe(
                [PROMPTS[seed] for seed in seeds],
                generator=noise,
                num_inference_steps=steps,
                output_type="latent",
                **CALLS["z"],
            ).images
            assert probe.call.steps == steps and len(probe.call.prompts) == len(seeds)
            assert len(probe.steps[-1].sample) == len(seeds) == len(found)
            if steps == STEPS:
                assert torch.equal(found, first)


def test_picture_to_picture() -> None:
    """Starts within the list of timesteps."""
    text = tiny_stable_diffusion()
    pipe = StableDiffusionImg2ImgPipeline(**text.components, requires_safety_checker=False)
    pipe.set_progress_bar_config(disable=True)

    def call(probe: Probe) -> Any:
        with watch_steps(pipe, [probe]):
            return pipe(
                "a cat",
                image=torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(0)),
                strength=0.5,
                num_inference_steps=4,
                guidance_scale=3.0,
                generator=torch.Generator().manual_seed(0),
                output_type="latent",
            ).images

    def look(step: Step) -> None:
        assert step.pull_back(step.clean).any()

    seen = Probe(gradient=True, edit=look)
    call(seen)
    assert [step.index for step in seen.steps] == [2, 3]
    torch.testing.assert_close(
        call(Probe(edit=aim)), torch.full((1, 4, 8, 8), 0.5), atol=0.02, rtol=0
    )
    with pytest.raises(T2XError, match="starts within its list of timesteps"):
        call(Probe(visits=2))


def test_solvers_of_second_order_are_refused_before_sampling() -> None:
    pipe = tiny_stable_diffusion()
    pipe.scheduler = HeunDiscreteScheduler()
    probe = Probe(visits=2)
    with pytest.raises(T2XError, match="HeunDiscreteScheduler"):
        draw(pipe, "sd15", probe=probe)
    assert probe.steps == []
