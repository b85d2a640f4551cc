"""What is presumed of unknown models, on tiny real pipelines made to look like each."""

from __future__ import annotations

from typing import Any

import pytest

from t2x.generators.presumed import presumed
from t2x.testing.distilled_pipelines import (
    tiny_flux2,
    tiny_flux2_klein,
    tiny_sana_sprint,
    tiny_sdxl_turbo,
)
from t2x.testing.pipelines import (
    tiny_flux,
    tiny_pixart,
    tiny_qwen_image,
    tiny_sana,
    tiny_sd3,
    tiny_sdxl,
    tiny_stable_diffusion,
    tiny_z_image,
)
from t2x.testing.video_pipelines import tiny_cogvideox, tiny_ltx, tiny_wan


def scheduled(pipeline: Any, name: str, **changes: Any) -> Any:
    import diffusers

    config = pipeline.scheduler.config
    fixed = {"prediction_type": "epsilon", **changes}
    pipeline.scheduler = getattr(diffusers, name).from_config(config, **fixed)
    return pipeline


@pytest.mark.parametrize(
    ("scheduler", "changes", "scale"),
    [
        ("EulerAncestralDiscreteScheduler", {"timestep_spacing": "trailing"}, 0.0),  # SDXL-Turbo
        ("EulerDiscreteScheduler", {"timestep_spacing": "trailing"}, 0.0),  # SDXL-Lightning
        ("LCMScheduler", {}, 0.0),
        ("TCDScheduler", {}, 0.0),
    ],
)
def test_schedulers_of_few_steps(scheduler: str, changes: dict[str, Any], scale: float) -> None:
    found = presumed(scheduled(tiny_sdxl(), scheduler, **changes))
    assert found.sampling == {"num_inference_steps": 4, "guidance_scale": scale}
    assert found.few_step and not found.negative
    said = "; ".join(found.reasons)
    assert scheduler in said
    assert "num_inference_steps 4 in place of 50, guidance_scale 0 in place of 5.0" in said
    assert "native size 64x64" in said


@pytest.mark.parametrize(
    ("scheduler", "changes"),
    [
        ("EulerDiscreteScheduler", {"timestep_spacing": "leading"}),
        ("DPMSolverMultistepScheduler", {"timestep_spacing": "trailing"}),
        ("DDIMScheduler", {"timestep_spacing": "trailing"}),
        (
            "EulerDiscreteScheduler",  # no noise at the last level: trailing by need
            {"timestep_spacing": "trailing", "rescale_betas_zero_snr": True},
        ),
        (
            "EulerDiscreteScheduler",
            {"timestep_spacing": "trailing", "prediction_type": "v_prediction"},
        ),
    ],
)
def test_ordinary_schedulers_leave_the_defaults(scheduler: str, changes: dict[str, Any]) -> None:
    found = presumed(scheduled(tiny_sdxl(), scheduler, **changes))
    assert found.sampling == {} and not found.few_step
    assert "defaults stay (num_inference_steps 50, guidance_scale 5.0)" in found.reasons[-1]


def test_what_the_caller_gives_is_not_said_to_be_presumed() -> None:
    pipe = scheduled(tiny_sdxl(), "LCMScheduler")
    found = presumed(pipe, given={"num_inference_steps": 8})
    assert "num_inference_steps" not in found.reasons[-1] and "guidance_scale" in found.reasons[-1]
    assert found.sampling == presumed(pipe).sampling
    whole = presumed(pipe, given={"num_inference_steps": 8, "guidance_scale": 1.0})
    assert whole.reasons[-1].endswith("; the settings are the caller's own")
    plain = presumed(tiny_sdxl(), given={"num_inference_steps": 8})
    assert "num_inference_steps" not in plain.reasons[-1]


def test_a_guidance_embedding_keeps_its_scale() -> None:
    """Latent Consistency Models take the scale as an input: off, they would draw another thing."""
    lcm = scheduled(tiny_stable_diffusion(guidance_embedding=8), "LCMScheduler")
    for pipeline in (lcm, tiny_stable_diffusion(guidance_embedding=8)):
        found = presumed(pipeline)
        assert found.sampling == {"num_inference_steps": 4} and found.few_step
        assert "scale stays" in found.reasons[-1]


def flux(*, embedded: bool, dynamic: bool) -> Any:
    from diffusers import FlowMatchEulerDiscreteScheduler

    pipeline = tiny_flux()
    pipeline.transformer.register_to_config(guidance_embeds=embedded)
    pipeline.scheduler = FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=dynamic)
    return pipeline


def test_flux_by_its_guidance_embedding_and_shift() -> None:
    dev = presumed(flux(embedded=True, dynamic=True))
    assert dev.sampling == {} and "guidance is distilled" in dev.reasons[-1]
    assert "shift by size" in dev.reasons[0]
    schnell = presumed(flux(embedded=False, dynamic=False))
    assert schnell.few_step
    assert schnell.sampling == {
        "num_inference_steps": 4,
        "guidance_scale": 0.0,
        "max_sequence_length": 256,
    }
    undone = presumed(flux(embedded=False, dynamic=True), name="owner/Flux-dev-de-distill")
    assert undone.sampling == {}
    merged = presumed(flux(embedded=True, dynamic=True), name="owner/FLUX.1-dev-turbo-8steps")
    assert merged.sampling == {"num_inference_steps": 8} and not merged.few_step


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("owner/my-Z-Image-Turbo-tuned", 8),  # as the one of its class that is known
        ("owner/z-image-lightning-4step", 4),
        ("owner/z-image-distilled", 8),
        ("/models/z_image_lcm", 8),
        ("owner/z-image", 0),
        ("turbo-owner/z-image", 0),  # an owner is no model
        ("owner/z-image-undistilled", 0),
        ("owner/lcmodel-50steps", 0),
    ],
)
def test_a_name_is_a_hint_where_nothing_else_speaks(name: str, steps: int) -> None:
    found = presumed(tiny_z_image(), name=name)
    wanted = {"num_inference_steps": steps, "guidance_scale": 0.0} if steps else {}
    assert found.sampling == wanted and not found.few_step
    assert ("is a hint" in found.reasons[-1]) == bool(steps)


def test_a_denoiser_remembers_its_own_name() -> None:
    pipeline = tiny_sd3()
    pipeline.transformer.config._name_or_path = ""
    pipeline.transformer.register_to_config(_name_or_path="a/models--o--sd3.5-turbo/snapshots/1")
    found = presumed(pipeline)
    assert found.sampling == {"num_inference_steps": 4, "guidance_scale": 0.0}
    assert "'sd3.5-turbo'" in found.reasons[-1]


def test_qwen_image_needs_a_negative_prompt_for_its_guidance() -> None:
    found = presumed(tiny_qwen_image())
    assert found.sampling == {} and found.negative == " "
    assert "true_cfg_scale 4 acts only beside a negative prompt" in found.reasons[-1]
    fast = presumed(tiny_qwen_image(), name="owner/Qwen-Image-Lightning-8steps")
    assert fast.sampling == {"num_inference_steps": 8, "true_cfg_scale": 1.0} and not fast.negative


@pytest.mark.parametrize("tiny", [tiny_sana, tiny_pixart, tiny_wan, tiny_cogvideox, tiny_ltx])
def test_ordinary_families_keep_their_defaults(tiny: Any) -> None:
    """CogVideoX has trailing timesteps because its last level is pure noise."""
    found = presumed(tiny())
    assert found.sampling == {} and not found.negative and not found.few_step
    assert "nothing says how its authors sample" in found.reasons[-1]
    assert found.reasons[0].startswith("scheduler ")


def test_flow_schedulers_show_their_shift() -> None:
    assert "flow matching, shift 3.0" in presumed(tiny_sana()).reasons[0]


def test_distilled_families_that_say_so() -> None:
    klein = tiny_flux2_klein()
    klein.register_to_config(is_distilled=False)
    assert presumed(klein).sampling == {}
    klein.register_to_config(is_distilled=True)
    assert presumed(klein).sampling == {"num_inference_steps": 4, "guidance_scale": 0.0}
    assert "is_distilled" in presumed(klein).reasons[-1]
    turbo = presumed(tiny_sdxl_turbo())
    assert turbo.sampling == {"num_inference_steps": 4, "guidance_scale": 0.0} and turbo.few_step


def test_classes_that_are_for_few_steps_keep_their_defaults() -> None:
    for tiny, steps in ((tiny_sana_sprint, 2), (tiny_flux2, 50)):
        found = presumed(tiny(), name="owner/some-turbo-sprint" if steps == 2 else "")
        assert found.sampling == {}
        assert (
            f"the scale is an input: the defaults stay (num_inference_steps {steps}"
            in (found.reasons[-1])
        )
