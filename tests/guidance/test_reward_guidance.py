"""RewardFlow's control on a stock pipeline; its mathematics are on the Gaussian bed."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import diffusers
import pytest
import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.guidance.config import GuidanceConfig
from t2x.guidance.guide import guide
from t2x.guidance.hook import watch_steps
from t2x.guidance.levels import Level
from t2x.guidance.objective import Objective
from t2x.guidance.particles import ParticleConfig, Particles
from t2x.guidance.reward_guidance import RewardGuidance, Tether
from t2x.guidance.step import Step
from t2x.guidance.streams import normal_rows
from t2x.guidance.trace import GuidanceTrace, TracedStep
from t2x.testing import tiny_stable_diffusion


class Redness:
    """How much redder than green and blue a picture is."""

    name, modality, differentiable, scale, range = "red", "image", True, "red", (-1.0, 1.0)

    def score(self, prompts: Sequence[str], media: Tensor, *, context: object = None) -> Tensor:
        means = media.mean((2, 3))
        return means[:, 0] - means[:, 1:].mean(1)


class Brightness(Redness):
    """Mean square of what is drawn, which has no place in a run where it weighs 0."""

    name, range = "bright", (0.0, 1.0)

    def score(self, prompts: Sequence[str], media: Tensor, *, context: object = None) -> Tensor:
        return media.square().mean((1, 2, 3))


@pytest.fixture(scope="module")
def pipe() -> Any:
    found = tiny_stable_diffusion()
    found.set_progress_bar_config(disable=True)
    return found


def draw(pipe: Any, seeds: Sequence[int] = (0, 1), **more: Any) -> Tensor:
    streams = [torch.Generator().manual_seed(seed) for seed in seeds]
    options = {"num_inference_steps": 5, "guidance_scale": 3.0, "output_type": "pt", **more}
    return pipe(["a cat"] * len(seeds), generator=streams, **options).images


def guided(
    pipe: Any, config: GuidanceConfig, seeds: Sequence[int] = (0, 1), **more: Any
) -> tuple[Tensor, GuidanceTrace]:
    with guide(pipe, [Redness()], config, seeds=seeds, **more) as trace:
        media = draw(pipe, seeds)
    return media, trace


def acted(trace: GuidanceTrace) -> list[TracedStep]:
    return [step for step in trace.calls[-1].steps if step.values.isfinite().any()]


@pytest.mark.parametrize("rewards", [[Redness(), Brightness()], [Brightness(), Redness()]])
@pytest.mark.parametrize("rule", ["relative", "tilt"])
@pytest.mark.parametrize("mode", ["E", "J"])
def test_a_weight_of_0_is_the_run_without_that_reward_bit_for_bit(
    pipe: Any, mode: Any, rule: Any, rewards: list[Any]
) -> None:
    """Under the default policy too: one reward that weighs something gets no policy."""
    config = GuidanceConfig(rewards={"red": 1.0, "bright": 0.0}, mode=mode, rule=rule, size=0.5)
    with guide(pipe, rewards, config, seeds=[0, 1]) as trace:
        media = draw(pipe)
    alone, _ = guided(pipe, GuidanceConfig(mode=mode, rule=rule, size=0.5))
    assert torch.equal(media, alone) and not torch.equal(media, draw(pipe))
    column = [reward.name for reward in rewards].index("bright")  # it is looked at
    assert all(step.values[:, column].isfinite().all() for step in acted(trace))


@pytest.mark.parametrize("mode", ["E", "J"])
def test_size_0_is_the_unguided_run_bit_for_bit(pipe: Any, mode: Any) -> None:
    media, trace = guided(pipe, GuidanceConfig(mode=mode, size=0.0))
    assert torch.equal(media, draw(pipe))
    assert acted(trace) == [] and len(trace.calls[-1].steps) == 5


def test_nothing_to_move_is_the_unguided_run_bit_for_bit(pipe: Any) -> None:
    media, trace = guided(pipe, GuidanceConfig(eta_min=0.0, eta_max=0.0))
    assert len(acted(trace)) == 3 and torch.equal(media, draw(pipe))
    with pytest.raises(T2XError, match="all weights of guidance are 0"):
        guided(pipe, GuidanceConfig(rewards={"red": 0.0}))


@pytest.mark.parametrize("mode", ["E", "J"])
@pytest.mark.parametrize("rule", ["relative", "tilt"])
def test_guidance_raises_its_reward(pipe: Any, mode: Any, rule: Any) -> None:
    size = {"relative": 0.5, "tilt": 50.0}[rule]
    config = GuidanceConfig(mode=mode, rule=rule, size=size, damping=False)
    media, trace = guided(pipe, config)
    gain = Redness().score([], media) - Redness().score([], draw(pipe))
    assert (gain > 2e-4).all()
    assert [step.index for step in acted(trace)] == [0, 1, 2]
    assert all((step.gradient_norm > 0).all() for step in acted(trace))
    cost = trace.cost
    assert (cost["decoder"].backward, cost["reward"].backward) == (6, 6)
    through = 0 if mode == "E" else 12 if rule == "relative" else 8  # the first is all but noise
    assert (cost["denoiser"].forward, cost["denoiser"].backward) == (20, through)


def test_the_step_is_tied_to_the_cfg_correction(pipe: Any) -> None:
    """Root mean square of the shift = size * eta / (1 + 2 size s^2) * scale * rms(c - u) * gain."""
    config = GuidanceConfig(size=0.3, free_last=0, stop=0.2)
    seen = []

    class Watch:
        def begin(self, call: Any, scheduler: Any) -> None: ...
        def gradient(self, index: int, total: int) -> bool:
            return False

        def visits(self, index: int, total: int) -> int:
            return 1

        def edit(self, step: Any) -> None:
            seen.append((step.level, step.cfg_correction()))

        def after(self, step: Any, sample: Tensor) -> Tensor:
            return sample

        def end(self, call: Any) -> None: ...

    with guide(pipe, [Redness()], config, controls=[Watch()]) as trace:
        draw(pipe)
    level, correction = seen[0]
    (record,) = acted(trace)
    variance = level.sigma**2 / (level.alpha**2 + level.sigma**2)
    reference = 3.0 * correction.flatten(1).pow(2).mean(1).sqrt() * level.sigma
    expected = 0.3 / (1 + 0.6 * variance) * record.eta * reference
    assert torch.allclose(record.extra["shift"], expected, rtol=1e-4)


def test_low_rewards_take_larger_steps() -> None:
    """The logistic map is eta_min + (eta_max - eta_min) / (1 + exp(steepness (R - target)))."""
    from t2x.guidance.objective import Valued

    config = GuidanceConfig(eta_min=0.5, eta_max=1.5, steepness=4.0, target=0.5)
    guidance = RewardGuidance(Objective([Redness()]), config)
    values = torch.tensor([[-1.0], [0.0], [1.0]])  # places 0, 1/2, 1 in the range
    eta = guidance._eta(Valued(values, values, values, values))
    assert torch.allclose(eta, 0.5 + 1 / (1 + torch.exp(4 * torch.tensor([-0.5, 0.0, 0.5]))))


@pytest.mark.parametrize(
    "config",
    [
        GuidanceConfig(),
        GuidanceConfig(mode="J"),
        GuidanceConfig(noise=0.7, seed=3),
        GuidanceConfig(noise=0.5, correctors=1),
    ],
)
def test_a_batch_of_two_is_two_singles(pipe: Any, config: GuidanceConfig) -> None:
    both, _ = guided(pipe, config)
    for row, seed in enumerate((0, 1)):
        alone, _ = guided(pipe, config, [seed])
        assert torch.allclose(both[row], alone[0], atol=2e-4)


def test_noise_comes_from_its_own_seed(pipe: Any) -> None:
    first, _ = guided(pipe, GuidanceConfig(size=0.0, noise=1.0))
    again, _ = guided(pipe, GuidanceConfig(size=0.0, noise=1.0))
    other, _ = guided(pipe, GuidanceConfig(size=0.0, noise=1.0, seed=1))
    assert torch.equal(first, again)
    assert (first - other).abs().mean() > 1e-3
    state = torch.random.get_rng_state()
    guided(pipe, GuidanceConfig(noise=1.0))
    assert torch.equal(state, torch.random.get_rng_state())


def test_a_corrector_is_one_more_evaluation(pipe: Any) -> None:
    _, trace = guided(pipe, GuidanceConfig(correctors=2, stop=0.4))
    wanted = [(index, visit) for index in (0, 1) for visit in range(3)]
    assert [(step.index, step.visit) for step in acted(trace)] == wanted


class Again:
    """Asks for each level twice, and does nothing."""

    def begin(self, call: Any, scheduler: Any) -> None:
        pass

    def gradient(self, index: int, total: int) -> bool:
        return False

    def visits(self, index: int, total: int) -> int:
        return 2

    def edit(self, step: Any) -> None:
        pass

    def after(self, step: Any, sample: Tensor) -> Tensor:
        return sample

    def end(self, call: Any) -> None:
        pass


def test_without_correctors_x_t_stays_on_the_visits_of_others(pipe: Any) -> None:
    media, trace = guided(pipe, GuidanceConfig(size=0.0), controls=[Again()])
    assert len(trace.calls[-1].steps) == 10
    assert torch.equal(media, draw(pipe))


def test_a_strong_tether_gives_the_source_back(pipe: Any) -> None:
    """As its precision grows, x0_hat = (x0_hat + p s^2 source) / (1 + p s^2) becomes the source."""
    source = torch.randn(2, 4, 16, 16, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        wanted = (pipe.vae.decode(source).sample / 2 + 0.5).clamp(0, 1)
    near = {}
    for strength in (1.0, 1e6):
        config = GuidanceConfig(size=0.0, tether=strength, free_last=0)
        media, _ = guided(pipe, config, tether=Tether(source))
        near[strength] = (media - wanted).abs().mean().item()
    assert near[1e6] < 0.02 < near[1.0]
    kept = torch.zeros(1, 1, 16, 16)
    media, _ = guided(pipe, config, tether=Tether(source, kept))
    assert torch.allclose(media, draw(pipe), atol=1e-4)


def test_what_cant_be_guided_is_refused_before_it_is_drawn(pipe: Any) -> None:
    class Blind(Redness):
        differentiable = False

    class Film(Redness):
        modality = "video"

    with pytest.raises(T2XError, match="no gradient comes from"), guide(pipe, [Blind()]):
        pass
    with pytest.raises(T2XError, match="needs rewards"), guide(pipe):
        pass
    with pytest.raises(T2XError, match="videos"), guide(pipe, [Film()]):
        pass
    tethered = GuidanceConfig(tether=1.0)
    with pytest.raises(T2XError, match="nothing says to what"), guide(pipe, [Redness()], tethered):
        pass


def test_noise_is_traded_once(pipe: Any) -> None:
    """Twice would leave samples of the wrong law."""
    noisy, particles = GuidanceConfig(noise=1.0), Particles(Redness(), ParticleConfig(count=2))
    with (
        pytest.raises(T2XError, match="both trade"),
        guide(pipe, [Redness()], noisy, controls=[particles]),
    ):
        pass
    assert "step" not in vars(pipe.scheduler)
    still = Particles(Redness(), ParticleConfig(count=2, noise=0.0))
    with guide(pipe, [Redness()], noisy, controls=[still]):
        pass


def test_what_is_no_list_of_rewards_says_what_is(pipe: Any) -> None:
    class Nameless:
        def score(self, prompts: Sequence[str], media: Tensor, *, context: object) -> Tensor:
            return media.mean((1, 2, 3))

    for wrong in ("vqa=1,clip=0.3", {"vqa": 1.0, "clip": 0.3}, Redness()):
        given: Any = wrong
        with pytest.raises(T2XError, match=r"GuidanceConfig\(rewards="), guide(pipe, given):
            pass
    nameless: Any = Nameless()
    with pytest.raises(T2XError, match="Nameless has no name, modality"), guide(pipe, [nameless]):
        pass


def test_a_run_too_short_to_be_guided_says_so(pipe: Any, caplog: pytest.LogCaptureFixture) -> None:
    with guide(pipe, [Redness()], GuidanceConfig()):
        draw(pipe, num_inference_steps=2)
    assert "no step of 2 is guided" in caplog.text
    caplog.clear()
    guided(pipe, GuidanceConfig())
    assert "is guided" not in caplog.text


def test_checkpointing_is_switched_on_and_off(pipe: Any) -> None:
    plain, _ = guided(pipe, GuidanceConfig(mode="J"))
    with guide(pipe, [Redness()], GuidanceConfig(mode="J", checkpointing=True)):
        assert pipe.unet.is_gradient_checkpointing and pipe.vae.is_gradient_checkpointing
        saved = draw(pipe)
    assert not pipe.unet.is_gradient_checkpointing
    assert torch.allclose(plain, saved, atol=1e-5)


def test_wrong_input_is_one_clear_line(pipe: Any) -> None:
    with pytest.raises(T2XError, match="rewards are a list"), guide(pipe, "red"):  # type: ignore[arg-type]
        pass
    with pytest.raises(T2XError, match="prompts is a list"), guide(pipe, [Redness()], prompts="a"):
        pass
    config = GuidanceConfig(noise=1.0)
    wrong = guide(pipe, [Redness()], config, seeds=[0])
    with pytest.raises(T2XError, match="1 seeds of guidance for 2 pictures"), wrong:
        draw(pipe)


@pytest.mark.parametrize("shape", ["scalar", "column", "number"])
def test_a_reward_of_another_shape_is_named(pipe: Any, shape: str) -> None:
    class Odd(Redness):
        def score(self, prompts: Sequence[str], media: Tensor, *, context: object = None) -> Tensor:
            found = super().score(prompts, media)
            odd = {
                "scalar": found.mean(),
                "column": found[:, None],
                "number": float(found[0].detach()),
            }
            return odd[shape]  # type: ignore[return-value]

    with pytest.raises(T2XError, match=r"red gave .* for 2 media"), guide(pipe, [Odd()]):
        draw(pipe)


def test_without_a_cfg_correction_a_step_is_tied_to_the_output(pipe: Any) -> None:
    """Of each picture by itself: the first one's prompt is its negative prompt."""
    streams = [torch.Generator().manual_seed(seed) for seed in (0, 1)]
    seen: list[Step] = []

    class Spy(RewardGuidance):
        def edit(self, step: Step) -> None:
            seen.append(step)
            super().edit(step)

    spy = Spy(Objective([Redness()]), GuidanceConfig())
    words = {"prompt": ["a cat", "a dog"], "negative_prompt": ["a cat", "a cat"]}
    with watch_steps(pipe, [spy]):
        pipe(**words, generator=streams, num_inference_steps=3, guidance_scale=3.0)
    step, found = seen[0], spy._reference(seen[0])
    output, correction = (v.flatten(1).pow(2).mean(1).sqrt() for v in (step.output, _pair(step)))
    assert correction[0] == 0 < correction[1]
    expected = torch.stack([output[0], 3 * correction[1]]) * step.level.gain
    assert torch.allclose(found, expected, rtol=1e-3)


def _pair(step: Step) -> Tensor:
    found = step.cfg_correction()
    assert found is not None
    return found


def test_what_no_picture_is_measured_by_is_noted_once(
    pipe: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Lost(Redness):
        name = "lost"

        def score(self, prompts: Sequence[str], media: Tensor, *, context: object = None) -> Tensor:
            return super().score(prompts, media) * torch.nan

    with guide(pipe, [Redness(), Lost()], GuidanceConfig()) as trace:
        draw(pipe)
    assert trace.notes["unmeasured"] == {"lost": 0}
    assert caplog.text.count("lost could not measure any picture") == 1


def test_noise_beside_the_schedulers_own_eta_is_refused(pipe: Any) -> None:
    own = pipe.scheduler
    pipe.scheduler = diffusers.DDIMScheduler(clip_sample=False)
    try:
        with guide(pipe, [Redness()], GuidanceConfig(noise=0.5)):
            with pytest.raises(T2XError, match=r"eta 0\.5 and the noise"):
                draw(pipe, eta=0.5)
            draw(pipe, num_inference_steps=3)
    finally:
        pipe.scheduler = own


class Room:
    """A latent space whose latents are pictures."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    def decode(self, clean: Tensor, **asked: Any) -> Tensor:
        self.asked.append(asked)
        return clean * 0.1 + 0.5


def bare(
    config: GuidanceConfig, *, index: int = 0, policy: Any = None, tether: Tether | None = None
) -> tuple[RewardGuidance, Step]:
    """Guidance of two samples, and one step of five, without a pipeline."""
    call: Any = SimpleNamespace(space=Room(), prompts=["a", "b"], steps=5, index=0)
    level = Level(0.6, 0.8, 0.8, 0.6, "epsilon", index, 5)
    sample, output = torch.randn(2, 2, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    step = Step(
        call, level, sample, output, visit=0, visits=1, corrections=[], scheduler=SimpleNamespace()
    )
    guidance = RewardGuidance(Objective([Redness()], policy=policy), config, tether=tether)
    guidance.begin(call, None) if not config.noise else guidance.begin(call, _euler())
    return guidance, step


def _euler() -> Any:
    return diffusers.EulerDiscreteScheduler()


def test_a_policy_sizes_each_pictures_steps() -> None:
    class Halved:
        def weights(
            self, prompts: Any, index: int, total: int, values: Tensor, given: Tensor
        ) -> Tensor:
            return given.expand_as(values)

        def factors(self, prompts: Any, index: int, total: int) -> Tensor:
            return torch.tensor([1.0, 0.5])

    shifts = []
    for policy in (None, Halved()):
        guidance, step = bare(GuidanceConfig(), policy=policy)
        guidance.edit(step)
        shifts.append(step.clean - step.predicted)
    assert torch.allclose(shifts[1][0], shifts[0][0])
    assert torch.allclose(shifts[1][1], 0.5 * shifts[0][1], atol=1e-7)


@pytest.mark.parametrize(("index", "noisy"), [(0, True), (2, True), (3, False), (4, False)])
def test_the_last_steps_get_no_noise(index: int, noisy: bool) -> None:
    guidance, step = bare(GuidanceConfig(noise=1.0, free_last=2), index=index)
    assert torch.equal(guidance.after(step, step.sample), step.sample) is not noisy


def test_a_corrector_is_sized_by_the_models_own_score() -> None:
    """x + e s + sqrt(2 e) z, where e = 2 (r |z| / |plain s|)^2, however strong guidance is."""
    guidance, step = bare(GuidanceConfig(corrector_ratio=0.1))
    z = normal_rows(bare(GuidanceConfig())[0]._noise, step.sample)
    step.clean = step.clean + 5.0
    plain, score = (
        (0.6 * clean - step.sample) / 0.64 for clean in (step.predicted, step.predicted + 5.0)
    )
    norms = [value.flatten(1).norm(dim=1)[:, None, None, None] for value in (z, plain)]
    e = 2 * (0.1 * norms[0] / norms[1]) ** 2
    expected = step.sample + e * score + (2 * e).sqrt() * z
    assert torch.allclose(guidance._corrected(step), expected, atol=1e-5)


def test_a_tether_pulls_by_what_x_t_leaves_open() -> None:
    """(x0_hat + p s^2 source) / (1 + p s^2), s^2 = v sigma^2 / (alpha^2 v + sigma^2)."""
    source = torch.ones(2, 3, 4, 4)
    config = GuidanceConfig(size=0.0, tether=3.0, variance=0.5)
    guidance, step = bare(config, tether=Tether(source))
    guidance.edit(step)
    pull = 3.0 * 0.5 * 0.64 / (0.36 * 0.5 + 0.64)
    assert torch.allclose(step.clean, (step.predicted + pull * source) / (1 + pull), atol=1e-6)


def test_the_decoder_is_asked_for_what_the_settings_say() -> None:
    guidance, step = bare(GuidanceConfig(frames=2, decode_scale=0.5))
    guidance.edit(step)
    room: Any = step.call.space
    assert room.asked == [{"frames": 2, "scale": 0.5}]
