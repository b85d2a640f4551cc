"""DiffusionGenerator over tiny pipelines of the real classes: CPU, float32."""

from __future__ import annotations

import hashlib
import json
import logging
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from t2x.errors import T2XError
from t2x.generators import DiffusionGenerator
from t2x.memory.machine import is_out_of_memory
from t2x.testing import (
    tiny_sdxl,
    tiny_stable_diffusion,
    tiny_wan,
    tiny_z_image,
)
from t2x.types import Generator

PROMPTS = [
    "a red cat",
    "two dogs on a pizza",
    "",
    "a bus to the left of a green cat, with a long text behind it",
    "three pizzas",
    "a cat",
    "a blue bus",
]
SEEDS = [11, 12, 13, 14, 15, 16, 2**63 + 5]
TURBO = {"guidance_embedding": 32}


def same_picture(one: torch.Tensor, other: torch.Tensor) -> bool:
    """The contract between batch sizes: one grey level in 0.1 % of the pixels."""
    levels = (one - other).abs() * 255
    return levels.max() <= 1.01 and (levels > 0.5).float().mean() <= 1e-3


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("tiny-flow")
    tiny_stable_diffusion().save_pretrained(path)
    settings = {"num_inference_steps": 4, "guidance_scale": 3.0, "height": 64, "width": 64}
    (path / "t2x.json").write_text(json.dumps(settings))
    return path


@pytest.fixture(scope="module")
def generator(folder):
    return DiffusionGenerator.from_pretrained(folder)


class Limited:
    """Pipeline that runs out of memory above ``most`` samples a call, after spoiling its state."""

    def __init__(self, pipeline, most, error):
        self.pipeline, self.most, self.error, self.calls = pipeline, most, error, []

    def __getattr__(self, name):
        return getattr(self.pipeline, name)

    def __call__(
        self,
        prompt=None,
        generator=None,
        output_type="pil",
        num_inference_steps=4,
        guidance_scale=3.0,
    ):
        self.calls.append(len(prompt))
        if len(prompt) > self.most:
            torch.randn(3, generator=generator[0])
            prompt.clear()
            raise self.error
        return self.pipeline(
            prompt=prompt,
            generator=generator,
            output_type=output_type,
            num_inference_steps=num_inference_steps,
            guidance_scale=guidance_scale,
        )


@pytest.mark.parametrize(
    ("build", "call"),
    [
        (tiny_stable_diffusion, {}),
        (lambda: tiny_stable_diffusion(**TURBO), {}),
        (tiny_sdxl, {}),
        (tiny_z_image, {"size": (64, 64)}),
        (tiny_wan, {"size": (32, 32), "num_frames": 5}),
    ],
    ids=["sd", "sd-turbo", "sdxl", "z-image", "wan"],
)
def test_a_sample_depends_on_its_seed_and_not_on_its_batch(build, call):
    generator = DiffusionGenerator.from_pretrained(
        build(), num_inference_steps=4, guidance_scale=4.0
    )
    prompts = list(PROMPTS)
    together = generator.generate(prompts, seeds=SEEDS, **call)
    alone = [
        generator.generate([p], seeds=[s], **call) for p, s in zip(PROMPTS, SEEDS, strict=True)
    ]

    assert prompts == PROMPTS  # Z-Image writes its chat template into the list it is given
    assert torch.equal(together, generator.generate(PROMPTS, seeds=SEEDS, **call))
    assert same_picture(together, torch.cat(alone))
    other = generator.generate(PROMPTS[:1], seeds=[99], **call)
    assert not same_picture(together[:1], other)
    other = generator.generate(PROMPTS[1:2], seeds=SEEDS[:1], **call)
    assert not same_picture(together[:1], other)


@pytest.mark.parametrize("seeds", [torch.tensor([1]), [True], np.array([1])])
def test_whatever_acts_like_a_whole_number_is_a_seed(generator, seeds):
    expected = generator.generate(["a cat"], seeds=[1])
    assert torch.equal(generator.generate(["a cat"], seeds=seeds), expected)


def test_media_are_float32_in_steps_of_a_grey_level(generator):
    media = generator.generate(PROMPTS[:2], seeds=[1, 2])
    assert isinstance(generator, Generator)
    assert generator.modality == "image"
    assert media.shape == (2, 3, 64, 64)
    assert media.dtype == torch.float32
    assert media.min() >= 0
    assert media.max() <= 1
    assert torch.equal(media, (media * 255).round() / 255)
    assert media.std() > 0.01


def test_videos_have_frames():
    generator = DiffusionGenerator.from_pretrained(tiny_wan(), num_inference_steps=2)
    assert generator.modality == "video"
    media = generator.generate(["a cat"], seeds=[1], size=(32, 48), num_frames=5)
    assert media.shape == (1, 5, 3, 32, 48)
    assert not torch.equal(media[:, 0], media[:, 1])


def test_a_folder_brings_its_sampling_settings(folder, generator):
    assert generator.settings()["num_inference_steps"] == 4
    assert generator.settings()["guidance_scale"] == 3.0
    changed = DiffusionGenerator.from_pretrained(
        folder, num_inference_steps=6, sampling={"guidance_rescale": 0.5}
    )
    assert changed.settings()["num_inference_steps"] == 6
    assert changed.settings()["guidance_rescale"] == 0.5
    first, second = (g.generate(["a cat"], seeds=[1]) for g in (generator, changed))
    assert not torch.equal(first, second)


def test_size_reaches_the_pipeline(generator):
    assert generator.generate(["a cat"], seeds=[1], size=(32, 96)).shape == (1, 3, 32, 96)
    assert generator.settings(size=(32, 96))["width"] == 96


def test_negative_prompts_change_only_their_own_samples(generator):
    plain = generator.generate(PROMPTS[:3], seeds=[1, 2, 3])
    mixed = generator.generate(PROMPTS[:3], seeds=[1, 2, 3], negative=["", "a dog", ""])
    assert same_picture(plain[[0, 2]], mixed[[0, 2]])
    assert not same_picture(plain[1:2], mixed[1:2])


def test_an_empty_negative_prompt_is_none_even_beside_others():
    # SDXL takes zeros without a negative prompt and the encoded "" with an empty one.
    generator = DiffusionGenerator.from_pretrained(
        tiny_sdxl(), num_inference_steps=2, guidance_scale=8.0
    )
    plain = generator.generate(PROMPTS[:2], seeds=[1, 2])
    mixed = generator.generate(PROMPTS[:2], seeds=[1, 2], negative=["", "a dog"])
    assert same_picture(plain[:1], mixed[:1])


def test_negative_prompts_without_effect_are_refused(folder):
    turbo = DiffusionGenerator.from_pretrained(tiny_stable_diffusion(**TURBO), guidance_scale=4.0)
    unguided = DiffusionGenerator.from_pretrained(folder, guidance_scale=1.0)
    for generator in (turbo, unguided):
        assert not generator.supports_negative
        with pytest.raises(T2XError, match="negative prompt has no effect"):
            generator.generate(["a cat"], seeds=[1], negative=["a dog"])
        blank = generator.generate(["a cat"], seeds=[1], negative=[""])
        assert torch.equal(blank, generator.generate(["a cat"], seeds=[1]))


def test_distilled_guidance_is_an_input_of_the_unet():
    pipeline = tiny_stable_diffusion(**TURBO)
    seen = []
    pipeline.unet.register_forward_pre_hook(
        lambda _, args, kwargs: seen.append((len(args[0]), int(args[1]), kwargs["timestep_cond"])),
        with_kwargs=True,
    )
    for scale in (2.0, 5.0):
        generator = DiffusionGenerator.from_pretrained(
            pipeline, num_inference_steps=4, guidance_scale=scale
        )
        generator.generate(["a cat", "a dog"], seeds=[1, 2])
    assert [batch for batch, _, _ in seen] == [2] * 8  # no second pass
    assert [step for _, step, _ in seen[:4]] == [999, 749, 499, 249]
    assert seen[0][2].shape == (2, 32)
    assert not torch.equal(seen[0][2], seen[4][2])


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: not enough memory: you tried to ..."),
        MemoryError(),
    ],
    ids=["cuda", "cpu", "python"],
)
def test_a_batch_that_does_not_fit_is_halved(error, caplog):
    pipeline = Limited(tiny_stable_diffusion(), 2, error)
    generator = DiffusionGenerator.from_pretrained(pipeline, batch_size=7)
    done = []
    with caplog.at_level(logging.WARNING, "t2x.generators.diffusion"):
        media = generator.generate(PROMPTS, seeds=SEEDS, callback=lambda *now: done.append(now))
    assert pipeline.calls == [7, 3, 1, 1, 1, 1, 1, 1, 1]
    assert done == [(count, 7) for count in range(1, 8)]
    assert generator.batch_size == 1
    assert "memory ran out" in caplog.text
    whole = DiffusionGenerator.from_pretrained(
        tiny_stable_diffusion(), num_inference_steps=4, guidance_scale=3.0
    )
    assert same_picture(media, whole.generate(PROMPTS, seeds=SEEDS))


def test_one_sample_that_does_not_fit_is_an_error():
    pipeline = Limited(tiny_stable_diffusion(), 0, MemoryError())
    generator = DiffusionGenerator.from_pretrained(pipeline, batch_size=2)
    with pytest.raises(T2XError, match="single sample"):
        generator.generate(PROMPTS, seeds=SEEDS)


def test_other_failures_pass_through():
    broken = RuntimeError("mat1 and mat2 shapes cannot be multiplied")
    assert not is_out_of_memory(broken)
    assert not is_out_of_memory(ValueError("out of memory"))
    generator = DiffusionGenerator.from_pretrained(Limited(tiny_stable_diffusion(), 0, broken))
    with pytest.raises(RuntimeError, match="mat1"):
        generator.generate(PROMPTS, seeds=SEEDS)


def test_pixels_that_are_no_numbers_are_an_error():
    pipeline = tiny_stable_diffusion()
    pipeline.vae.decoder.conv_out.bias.data[0] = torch.nan
    generator = DiffusionGenerator.from_pretrained(pipeline, num_inference_steps=1)
    with pytest.raises(T2XError, match="no numbers"):
        generator.generate(["a cat"], seeds=[1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"prompts": [], "seeds": []}, "no prompts"),
        ({"prompts": ["a", "b"], "seeds": [1]}, "2 prompts but 1 seeds"),
        ({"prompts": "a cat", "seeds": [1]}, "list of strings"),
        ({"prompts": ["a"], "seeds": [-1]}, "seed -1"),
        ({"prompts": ["a", "b\udc80"], "seeds": [1, 2]}, "prompt 1 is no valid Unicode"),
        ({"prompts": ["a"], "seeds": [1], "negative": ["b", "c"]}, "negative prompts"),
        ({"prompts": ["a"], "seeds": [1], "negative": [None]}, "'' for none.*, got NoneType"),
        ({"prompts": ["a"], "seeds": [1.5]}, "a seed must be a whole number, got 1.5"),
        ({"prompts": ["a"], "seeds": [1], "size": (64.0, 64)}, "size must be a whole number"),
        ({"prompts": ["a"], "seeds": [1], "size": (0, 64)}, "both positive"),
        ({"prompts": ["a"], "seeds": [1], "size": (60, 64)}, "divisible by 8"),
        ({"prompts": ["a"], "seeds": [1], "num_frames": 5}, "leave num_frames out"),
    ],
)
def test_wrong_input_is_one_clear_line(generator, arguments, message):
    prompts = arguments.pop("prompts")
    with pytest.raises(T2XError, match=message) as caught:
        generator.generate(prompts, **arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "float8"}, "unknown dtype"),
        ({"offload": "model", "device": "cpu"}, "needs an accelerator"),
        ({"offload": "disk", "device": "cpu"}, "unknown offload"),
        ({"num_inference_steps": 0}, "at least 1"),
        ({"batch_size": 0}, "at least 1"),
        ({"num_inference_steps": 2.5}, "must be a whole number, got 2.5"),
        ({"guidance_scale": float("nan")}, "guidance_scale must be a finite number, got nan"),
        ({"sampling": {"guidence_scale": 3}}, "no sampling setting .* allowed: .*guidance_scale"),
        ({"sampling": {"latents": None}}, "no sampling setting"),
        ({"varient": "fp16"}, "varient: no option"),
    ],
)
def test_wrong_options_are_one_clear_line(folder, options, message):
    with pytest.raises(T2XError, match=message) as caught:
        DiffusionGenerator.from_pretrained(folder, **options)
    assert "\n" not in str(caught.value)


def test_options_of_loading_are_not_for_a_loaded_pipeline():
    with pytest.raises(T2XError, match="a loaded pipeline takes no token, variant"):
        DiffusionGenerator.from_pretrained(tiny_stable_diffusion(), variant="fp16", token="x")


def test_what_is_no_pipeline_is_refused(tmp_path):
    with pytest.raises(T2XError, match=r"no model_index\.json"):
        DiffusionGenerator.from_pretrained(tmp_path)
    with pytest.raises(T2XError, match="cannot load"):
        DiffusionGenerator.from_pretrained(str(tmp_path / "a" / "missing"))
    with pytest.raises(T2XError, match="is no generator"):
        DiffusionGenerator.from_pretrained(torch.nn.Linear(2, 2))
    (tmp_path / "t2x.json").write_text("{")
    with pytest.raises(T2XError, match="no valid JSON"):
        DiffusionGenerator.from_pretrained(tmp_path)


def test_pickled_weights_are_refused(folder, tmp_path):
    tiny_stable_diffusion().save_pretrained(tmp_path, safe_serialization=False)
    assert (tmp_path / "unet" / "diffusion_pytorch_model.bin").is_file()
    with pytest.raises(T2XError, match="safetensors"):
        DiffusionGenerator.from_pretrained(tmp_path)


def test_offload_is_asked_of_the_pipeline():
    pipeline = tiny_stable_diffusion()
    asked = []
    pipeline.enable_model_cpu_offload = lambda device: asked.append(("model", device.type))
    pipeline.enable_sequential_cpu_offload = lambda device: asked.append(("layers", device.type))
    DiffusionGenerator.from_pretrained(pipeline, device="cuda", offload="model")
    DiffusionGenerator.from_pretrained(pipeline, device="cuda", offload="sequential")
    assert asked == [("model", "cuda"), ("layers", "cuda")]


@pytest.mark.gpu
@pytest.mark.parametrize("offload", [None, "model", "sequential"])
def test_offloaded_parts_draw_the_same_picture(folder, offload):
    plain = DiffusionGenerator.from_pretrained(folder, device="cuda", dtype="float32")
    moved = DiffusionGenerator.from_pretrained(
        folder, device="cuda", dtype="float32", offload=offload
    )
    first, second = (g.generate(PROMPTS[:3], seeds=[1, 2, 3]) for g in (plain, moved))
    assert same_picture(first, second)


def test_a_loaded_pipeline_changes_its_number_format_without_a_word(capfd):
    generator = DiffusionGenerator.from_pretrained(tiny_stable_diffusion(), dtype="bf16")
    assert generator.pipeline.vae.dtype == torch.bfloat16
    assert capfd.readouterr().err == ""


def test_half_precision_on_request(folder):
    generator = DiffusionGenerator.from_pretrained(folder, dtype="bfloat16")
    assert generator.pipeline.unet.dtype == torch.bfloat16
    assert generator.fingerprint()["dtype"] == "torch.bfloat16"
    assert generator.generate(["a cat"], seeds=[1]).dtype == torch.float32


def test_free_drops_the_pipeline_and_use_loads_it_again(folder):
    generator = DiffusionGenerator.from_pretrained(folder)
    before = generator.generate(["a cat"], seeds=[1])
    generator.free()
    assert generator._pipeline is None
    assert torch.equal(before, generator.generate(["a cat"], seeds=[1]))

    given = DiffusionGenerator.from_pretrained(tiny_stable_diffusion())
    given.free()
    with pytest.raises(T2XError, match="was freed"):
        given.generate(["a cat"], seeds=[1])


def test_fingerprint_holds_what_decides_a_picture(folder, generator):
    base = generator.fingerprint()
    assert json.loads(json.dumps(base)) == base
    assert base == DiffusionGenerator.from_pretrained(folder).fingerprint()
    assert base["scheduler"] == "DPMSolverMultistepScheduler"
    assert base["scheduler_config"]["use_flow_sigmas"] is True
    assert base["versions"]["torch"] == torch.__version__
    assert base != generator.fingerprint(size=(32, 32))
    steps = DiffusionGenerator.from_pretrained(folder, num_inference_steps=5)
    assert base != steps.fingerprint()


def test_fingerprint_of_a_loaded_pipeline_follows_its_weights():
    revision = [
        DiffusionGenerator.from_pretrained(pipeline).fingerprint()["revision"]
        for pipeline in (tiny_stable_diffusion(), tiny_stable_diffusion(), tiny_stable_diffusion(1))
    ]
    assert revision[0] == revision[1] != revision[2]
    nudged = tiny_stable_diffusion()
    next(iter(nudged.vae.parameters())).data.view(-1)[0] += 1e-3
    assert DiffusionGenerator.from_pretrained(nudged).fingerprint()["revision"] != revision[0]
    named = DiffusionGenerator.from_pretrained(nudged, revision="mine")
    assert named.fingerprint()["revision"] == "mine"


def test_too_long_a_prompt_is_reported_in_one_line(generator, caplog, capfd):
    with caplog.at_level(logging.WARNING):
        generator.generate(["a cat", "cat " * 5000, "狗🐶"], seeds=[1, 2, 3])
    assert [record.name for record in caplog.records] == ["t2x.generators.diffusion"]
    assert "prompt 1 has 15002 tokens, " in caplog.text
    assert "reads the first 77" in caplog.text
    assert capfd.readouterr().err == ""


def test_safety_checker_is_reported(caplog):
    class Censoring(Limited):
        def __call__(self, prompt=None, generator=None):
            return SimpleNamespace(
                images=torch.zeros(len(prompt), 3, 8, 8), nsfw_content_detected=[True, False]
            )

    generator = DiffusionGenerator.from_pretrained(Censoring(tiny_stable_diffusion(), 9, None))
    generator.generate(["a", "b"], seeds=[1, 2])
    assert "blacked out 1 pictures" in caplog.text


def test_a_fresh_process_draws_the_same_bytes_and_says_nothing(folder, generator):
    code = (
        "import hashlib, sys\n"
        "from t2x.generators import DiffusionGenerator\n"
        "g = DiffusionGenerator.from_pretrained(sys.argv[1])\n"
        "media = g.generate(['a red cat', 'two dogs'], seeds=[5, 6])\n"
        "print(hashlib.sha256(media.numpy().tobytes()).hexdigest())"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True
    )
    media = generator.generate(["a red cat", "two dogs"], seeds=[5, 6])
    assert run.stderr == ""
    assert run.stdout.strip() == hashlib.sha256(media.numpy().tobytes()).hexdigest()
