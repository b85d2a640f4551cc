"""Memory that guidance is said to need, against what torch saves for the backward pass."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch

from t2x.errors import T2XError
from t2x.generators import DiffusionGenerator, GuidedGenerator
from t2x.guidance import preflight
from t2x.guidance.config import GuidanceConfig
from t2x.guidance.guide import guide
from t2x.guidance.noise_optimisation import NoiseConfig, optimise_noise
from t2x.guidance.objective import Objective
from t2x.guidance.preflight import Estimate, MemoryCheck
from t2x.guidance.step import Call
from t2x.memory.counting import Footprint, Live, footprint, shadow
from t2x.testing import CALLS, FAMILIES, FakeReward, tiny_stable_diffusion, tiny_z_image


def saved(run: Any, module: torch.nn.Module) -> int:
    """Bytes that autograd's hooks see, each storage once, without the module's own."""
    own = {t.untyped_storage().data_ptr() for t in (*module.parameters(), *module.buffers())}
    kept: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        run()
    return sum(storage.nbytes() for storage in kept.values())


def first_arguments(pipe: Any, name: str) -> tuple[Any, Any]:
    """What the pipeline gives its denoiser."""
    found: list[tuple[Any, Any]] = []

    def keep(module: Any, args: Any, kwargs: Any) -> None:
        found.append((args, kwargs))

    pipe.set_progress_bar_config(disable=True)
    with getattr(pipe, name).register_forward_pre_hook(keep, with_kwargs=True):
        pipe(["a cat", "a dog"], num_inference_steps=1, guidance_scale=3.0, output_type="latent",
             height=64, width=64)  # fmt: skip
    return found[0]


@pytest.mark.parametrize(
    ("build", "name", "checkpointing"),
    [
        (tiny_stable_diffusion, "unet", False),
        (tiny_stable_diffusion, "unet", True),
        (tiny_z_image, "transformer", False),
    ],
)
def test_held_memory_is_what_torch_saves(build: Any, name: str, checkpointing: bool) -> None:
    pipe = build()
    denoiser, vae = getattr(pipe, name).requires_grad_(False), pipe.vae.requires_grad_(False)
    args, kwargs = first_arguments(pipe, name)
    if checkpointing:
        denoiser.enable_gradient_checkpointing()
        vae.enable_gradient_checkpointing()
    args, kwargs = preflight._asking(args, kwargs)
    latents = torch.randn(2, 4, 16, 16, requires_grad=True)

    said = footprint(denoiser.forward, *args, **kwargs)
    truth = saved(lambda: denoiser(*args, **kwargs), denoiser)
    assert said.held == pytest.approx(truth, rel=0.25)
    assert said.held < said.peak
    said = footprint(lambda x: vae.decode(x).sample, latents)
    assert said.held == pytest.approx(saved(lambda: vae.decode(latents), vae), rel=0.25)


def test_checkpointing_is_said_to_save_and_the_run_leaves_no_trace() -> None:
    pipe = tiny_stable_diffusion()
    pipe.vae.requires_grad_(False)
    latents = torch.randn(1, 4, 16, 16, requires_grad=True)
    before = torch.random.get_rng_state()
    plain = footprint(lambda x: pipe.vae.decode(x).sample, latents)
    pipe.vae.enable_gradient_checkpointing()
    less = footprint(lambda x: pipe.vae.decode(x).sample, latents)

    assert less.held < plain.held / 2
    assert less.peak < plain.peak
    assert latents.grad is None
    assert torch.equal(torch.random.get_rng_state(), before)
    assert type(pipe.vae.decode(latents).sample) is torch.Tensor


def test_weights_are_no_part_of_a_graph() -> None:
    """A layer holds its weights for the backward pass, and they are there already."""
    layers = [torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.Linear(256, 256)]
    module = torch.nn.Sequential(*layers).requires_grad_(False)
    x = torch.randn(2, 256, requires_grad=True)
    assert footprint(shadow(module).forward, x).held == x.nbytes  # what GELU saves


TWO_IN_TURN = {"flux", "qwen", "wan", "klein"}
QUICK = ("sdxl", "flux", "klein", "wan")


@pytest.mark.parametrize(
    "family",
    [pytest.param(n, marks=() if n in QUICK else (pytest.mark.slow,)) for n in FAMILIES],
)
def test_what_a_step_of_the_chain_holds_is_what_is_said(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the pipeline predicts with and without the prompt in turn, two graphs wait."""
    said: list[Estimate] = []
    monkeypatch.setattr(preflight, "SMALL_PIXELS", 0)
    monkeypatch.setattr(
        preflight.MemoryCheck, "_judge", lambda self, estimate, *given: said.append(estimate)
    )
    pipe, steps, live = FAMILIES[family](), 3, []
    sampling = {**CALLS[family], "num_inference_steps": steps}
    generator = DiffusionGenerator(pipe, sampling=sampling)
    reward = FakeReward(modality=generator.modality)

    def optimise() -> None:
        optimise_noise(
            generator,
            ["a cat", "a dog"],
            seeds=[0, 1],
            objective=Objective([reward], normalise=False),
            config=NoiseConfig(iterations=1),
            beside={"negative_prompt": ["blue"] * 2} if "true_cfg_scale" in sampling else None,
        )

    optimise()  # what is made once is there afterwards
    denoiser = pipe.components.get("unet") or pipe.transformer
    with Live(fake=False) as count:
        hook = denoiser.register_forward_hook(lambda *_: live.append(count.now))
        optimise()
        hook.remove()
    evaluations = len(live) // steps
    assert evaluations == (2 if family in TWO_IN_TURN else 1)
    held = (live[-1] - live[evaluations - 1]) / (steps - 1)
    assert said[-1].denoiser is not None
    assert said[-1].denoiser.held / steps == pytest.approx(held, rel=0.1)


def test_a_graph_waits_while_those_after_it_run() -> None:
    """Rewards 5, decoder holds 10 and peaks at 12, denoiser holds 20 and peaks at 50."""
    rewards, decoder = Footprint(4, 5), Footprint(10, 12)

    assert Estimate(None, decoder, rewards).needed == 15
    assert Estimate(Footprint(20, 30), decoder, rewards).needed == 35
    assert Estimate(Footprint(20, 50), decoder, rewards).needed == 50
    assert Estimate(Footprint(20, 50), None, rewards).unknown == ("decoder",)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A pipeline that is counted in spite of its size."""
    monkeypatch.setattr(preflight, "SMALL_PIXELS", 0)
    pipe = tiny_stable_diffusion()
    pipe.set_progress_bar_config(disable=True)
    return pipe


def free(monkeypatch: pytest.MonkeyPatch, megabytes: float) -> None:
    monkeypatch.setattr(preflight, "available_bytes", lambda device: int(1e6 * megabytes))


def draw(pipe: Any, config: GuidanceConfig, n: int = 2) -> None:
    with guide(pipe, [FakeReward()], config):
        pipe(["a cat"] * n, num_inference_steps=3, guidance_scale=3.0, output_type="latent")


def test_what_does_not_fit_is_refused_before_the_first_evaluation(
    counted: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    runs: list[int] = []
    counted.unet.register_forward_hook(lambda *_: runs.append(1))
    free(monkeypatch, 0.5)
    with pytest.raises(T2XError, match=r"mode J needs about .* for a batch of 2 .*use mode E"):
        draw(counted, GuidanceConfig(mode="J"))
    assert not runs
    with pytest.raises(T2XError, match=r"decode smaller \(decode_scale=0.5\)") as error:
        draw(counted, GuidanceConfig(), n=1)
    assert "mode E" not in str(error.value).partition("free:")[2]
    assert "step" not in vars(counted.scheduler)

    free(monkeypatch, 9)
    draw(counted, GuidanceConfig())  # and what was counted without data leaves none behind
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        free(monkeypatch, 7)
        draw(counted, GuidanceConfig())
    assert "mode E needs about" in caplog.text


def test_noise_is_not_optimised_through_more_than_fits(
    counted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The graph of each step waits for the last."""
    runs: list[int] = []
    counted.unet.register_forward_hook(lambda *_: runs.append(1))
    objective = Objective([FakeReward()], normalise=False)
    needed: list[int] = []

    def optimise(steps: int) -> None:
        generator = DiffusionGenerator.from_pretrained(counted, num_inference_steps=steps)
        optimise_noise(
            generator,
            ["a cat"] * 2,
            seeds=[0, 1],
            objective=objective,
            config=NoiseConfig(iterations=1),
        )

    def noted(self: preflight.MemoryCheck, estimate: Estimate, *given: Any) -> None:
        needed.append(estimate.needed)
        judge(self, estimate, *given)

    judge = preflight.MemoryCheck._judge
    monkeypatch.setattr(preflight.MemoryCheck, "_judge", noted)
    free(monkeypatch, 1e6)
    for steps in (1, 2, 3):
        optimise(steps)
    assert needed[2] - needed[1] == needed[1] - needed[0] > 0 and runs
    runs.clear()
    free(monkeypatch, needed[1] / 1e6)
    optimise(1)
    assert runs
    runs.clear()
    with pytest.raises(T2XError, match=r"noise through 3 steps needs about .* take fewer steps"):
        optimise(3)
    assert not runs


def test_an_estimate_is_made_anew_once_memory_is_saved(
    counted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a refusal that advised it."""
    made: list[Estimate] = []
    estimated = preflight.MemoryCheck._estimated

    def kept(self: Any, *given: Any) -> Estimate:
        made.append(estimated(self, *given))
        return made[-1]

    monkeypatch.setattr(preflight.MemoryCheck, "_estimated", kept)
    free(monkeypatch, 1e6)
    draw(counted, GuidanceConfig(mode="J"))
    draw(counted, GuidanceConfig(mode="J"))
    assert len(made) == 1
    counted.unet.enable_gradient_checkpointing()
    draw(counted, GuidanceConfig(mode="J"))
    counted.vae.enable_slicing()
    draw(counted, GuidanceConfig(mode="J"))
    assert len(made) == 3
    assert made[0].denoiser and made[1].denoiser
    assert made[1].denoiser.held < made[0].denoiser.held


def test_a_generator_halves_its_batch_until_it_fits(
    counted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = DiffusionGenerator.from_pretrained(counted, num_inference_steps=3, guidance_scale=3.0)
    generator = GuidedGenerator(plain, GuidanceConfig(), rewards=[FakeReward()])
    free(monkeypatch, 8)
    media = generator.generate(["a cat"] * 4, seeds=range(4))

    assert (len(media), plain.batch_size) == (4, 2)
    free(monkeypatch, 1)
    with pytest.raises(T2XError, match="decode smaller"):
        generator.generate(["a cat"], seeds=[0])


def test_what_a_denoiser_caches_without_data_stays_out_of_it() -> None:
    class Caching(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 2)
            self.cache: dict[str, torch.Tensor] = {}

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            table = self.cache.setdefault("table", torch.ones(2))
            found: torch.Tensor = self.layer(x) * table
            return found

    module = torch.nn.Sequential(Caching(), Caching())
    footprint(shadow(module).forward, torch.ones(1, 2, requires_grad=True))
    assert [part.cache for part in module] == [{}, {}]
    assert shadow(module)[0].layer.weight is module[0].layer.weight


def test_small_models_and_what_cannot_be_counted_run_unchecked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pipe = tiny_stable_diffusion()
    pipe.set_progress_bar_config(disable=True)
    free(monkeypatch, 0.001)
    draw(pipe, GuidanceConfig(mode="J"))

    check = MemoryCheck(None, GuidanceConfig())  # type: ignore[arg-type]
    found = check._estimated(
        pipe.unet, (), {}, Call(pipe), (torch.Size([1, 4, 16]), torch.device("cpu"))
    )
    assert found == Estimate(None, None, None)
    assert found.needed == 0
