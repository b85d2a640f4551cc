"""Distil emoji-flow into emoji-flow-turbo: four steps, guidance as an embedding, no second pass for
the unconditional part.

    t2x world train emoji-flow-turbo --out runs/emoji-flow-turbo --minutes 30

Trajectory distillation in the spirit of progressive distillation (Salimans & Ho 2022, arXiv
2202.00512) and guided distillation (Meng et al. 2023, arXiv 2210.03142). Differs from both: the
teacher's whole guided path is walked from pure noise, so that the student is trained on the very
states that it will meet; every second state of the eight-step path becomes a target. The student's
step is the plain Euler step in flow form, x_{k+1} = x_k - (sigma_k - sigma_{k+1}) v, so v has a
closed-form target.

What is saved is what differs from the teacher, as checkpoints of Latent Consistency Models are
passed on: UNet, scheduler and the name of the base (``t2x.generators.folders``).
"""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from diffusers import StableDiffusionPipeline, UNet2DConditionModel
from torch import Tensor, nn

from t2x.devices import set_threads
from t2x.files import write_metrics
from t2x.world.captions import sample_pair
from t2x.world.checkpoint import Stateful
from t2x.world.flow import flow_scheduler
from t2x.world.prompts import training_prompts
from t2x.world.tokenizer import tokenize
from t2x.world.training import (
    Budget,
    Ema,
    autocast,
    descend,
    learning_rate,
    run_training,
)
from t2x.world.weights import model_dir

from .emoji_flow import SETTINGS

STUDENT_STEPS = 4
TEACHER_STEPS = 8
BATCH = 64
TRAJECTORY_BATCH = 32
POOL = 6_400  # teacher paths
PEAK_LR = 3e-4
GUIDANCE_RANGE = (1.5, 5.0)
GUIDANCE_EMBEDDING = 64
USER_PROMPT_SHARE = 0.3
NEW_PATHS_UNTIL = 0.35  # share of the budget
DEFAULT_MINUTES = 30.0

log = logging.getLogger(__name__)


def guided_velocity(
    unet: UNet2DConditionModel, x: Tensor, timestep: Tensor, hidden: Tensor, guidance: Tensor
) -> Tensor:
    """Classifier-free guidance in one doubled batch; ``hidden`` is (2N, T, D), unconditional half
    first."""
    with autocast():
        v = unet(torch.cat([x, x]), timestep, hidden).sample.float()
    unconditional, conditional = v.chunk(2)
    return unconditional + guidance.view(-1, 1, 1, 1) * (conditional - unconditional)


def student_unet(teacher: UNet2DConditionModel) -> UNet2DConditionModel:
    """The teacher's network with a guidance embedding whose projection starts at zero."""
    kept = {k: v for k, v in teacher.config.items() if not k.startswith("_")}  # no path of its own
    config = {**kept, "time_cond_proj_dim": GUIDANCE_EMBEDDING}
    student: UNet2DConditionModel = UNet2DConditionModel.from_config(config)
    student.load_state_dict(teacher.state_dict(), strict=False)
    nn.init.zeros_(student.time_embedding.cond_proj.weight)
    return student


def sigmas_of(num_steps: int) -> Tensor:
    """Noise levels of the stock sampler: (num_steps + 1,), from 0.999 to 0."""
    scheduler = flow_scheduler()
    scheduler.set_timesteps(num_steps)
    sigmas: Tensor = scheduler.sigmas
    return sigmas.float()


class TrajectoryPool:
    """Teacher paths by number: states at the student's noise levels, made at first use and kept in
    half precision.

    A checkpoint holds how many there are, not the paths: they are walked again when it is loaded.
    """

    def __init__(self, pipeline: StableDiffusionPipeline, seed: int, size: int) -> None:
        self.pipeline, self.seed, self.size = pipeline, seed, size
        self.states = torch.zeros(size, STUDENT_STEPS + 1, 4, 16, 16, dtype=torch.float16)
        tokens = pipeline.tokenizer.model_max_length
        self.ids = torch.zeros(size, tokens, dtype=torch.int16)
        self.guidance = torch.zeros(size)
        self.known = 0

    def ensure(self, count: int) -> None:
        """Walk teacher paths until ``count`` of them are known."""
        while self.known < min(count, self.size):
            self._walk(self.known)
            self.known += TRAJECTORY_BATCH

    def state_dict(self) -> dict[str, Any]:
        return {"known": self.known}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        log.info("walking %d paths of the teacher again", state_dict["known"])
        self.ensure(state_dict["known"])

    @torch.no_grad()
    def _walk(self, first: int) -> None:
        texts = [_text(self.seed, i) for i in range(first, first + TRAJECTORY_BATCH)]
        generator = torch.Generator().manual_seed((self.seed << 32) + first)
        low, high = GUIDANCE_RANGE
        guidance = low + (high - low) * torch.rand(len(texts), generator=generator)
        guidance[::2] = SETTINGS["guidance_scale"]
        ids = tokenize(self.pipeline.tokenizer, texts)
        empty = tokenize(self.pipeline.tokenizer, [""] * len(texts))
        hidden = self.pipeline.text_encoder(torch.cat([empty, ids]))[0]
        scheduler = copy.deepcopy(self.pipeline.scheduler)
        scheduler.set_timesteps(TEACHER_STEPS)
        x = torch.randn(len(texts), 4, 16, 16, generator=generator)
        states = [x]
        for timestep in scheduler.timesteps:
            v = guided_velocity(self.pipeline.unet, x, timestep, hidden, guidance)
            x = scheduler.step(v, timestep, x).prev_sample
            states.append(x)
        rows = slice(first, first + len(texts))
        stride = TEACHER_STEPS // STUDENT_STEPS
        self.states[rows] = torch.stack(states[::stride], dim=1).half()
        self.ids[rows], self.guidance[rows] = ids.short(), guidance


def _text(seed: int, index: int) -> str:
    """Prompt number ``index``: a generator caption, or now and then what a user would type."""
    if index % 10 < 10 * USER_PROMPT_SHARE:
        return training_prompts(1, seed=(seed << 32) + index)[0].text
    return sample_pair((seed << 32) + 10**8 + index).text


@torch.no_grad()
def endpoint_error(pool: TrajectoryPool, unet: UNet2DConditionModel, count: int) -> float:
    """Mean squared distance of the student's last state to the teacher's over the last ``count``
    paths, which are not trained on."""
    rows = slice(pool.size - count, pool.size)
    hidden = pool.pipeline.text_encoder(pool.ids[rows].long())[0]
    condition = guidance_embedding(pool.pipeline, pool.guidance[rows])
    sigmas = sigmas_of(STUDENT_STEPS)
    x = pool.states[rows, 0].float()
    for k in range(STUDENT_STEPS):
        timestep = (sigmas[k] * 1000).long()
        v = unet(x, timestep, hidden, timestep_cond=condition).sample
        x = x - (sigmas[k] - sigmas[k + 1]) * v
    return float((x - pool.states[rows, -1].float()).pow(2).mean())


def guidance_embedding(pipeline: StableDiffusionPipeline, guidance: Tensor) -> Tensor:
    """What the stock pipeline feeds to ``timestep_cond`` for these guidance scales: (N, D)."""
    embedding: Tensor = pipeline.get_guidance_scale_embedding(
        guidance - 1, embedding_dim=GUIDANCE_EMBEDDING
    )
    return embedding


def teacher_source(teacher: Path | None) -> tuple[Path, str]:
    """The teacher's folder, and its name as a base: that of the embedded model holds anywhere."""
    embedded = model_dir("emoji-flow").resolve()
    source = (teacher or embedded).resolve()
    return source, "emoji-flow" if source == embedded else str(source)


def save_parts(folder: Path, unet: UNet2DConditionModel, base: str) -> None:
    """Write UNet (half precision), scheduler and ``t2x.json``; the other parts are those of
    ``base``."""
    copy.deepcopy(unet).half().save_pretrained(folder / "unet")
    flow_scheduler(solver_order=1).save_pretrained(folder / "scheduler")
    settings = {"base": base, **SETTINGS, "num_inference_steps": STUDENT_STEPS}
    (folder / "t2x.json").write_text(json.dumps(settings, indent=1) + "\n")


def main(
    *,
    out: Path,
    minutes: float | None = None,
    steps: int | None = None,
    seed: int = 0,
    resume: bool = True,
    threads: int | None = None,
    teacher: Path | None = None,
) -> dict[str, float]:
    """Distil ``teacher`` (default: the embedded emoji-flow) and save what differs from it to
    ``out/pipeline``."""
    set_threads(threads)
    budget = Budget.given(steps, minutes, Budget(minutes=DEFAULT_MINUTES))
    torch.manual_seed(seed)
    source, base = teacher_source(teacher)
    pipeline = StableDiffusionPipeline.from_pretrained(source, dtype=torch.float32)
    pipeline.unet.requires_grad_(False).to(memory_format=torch.channels_last)
    unet = student_unet(pipeline.unet).requires_grad_(True).to(memory_format=torch.channels_last)
    ema = Ema(unet, 0.998)
    optimizer = torch.optim.AdamW(
        unet.parameters(), lr=PEAK_LR, betas=(0.9, 0.99), weight_decay=0.0
    )
    pool = TrajectoryPool(pipeline, seed, POOL)
    trained = pool.size - 4 * TRAJECTORY_BATCH  # the rest is for measuring
    sigmas = sigmas_of(STUDENT_STEPS)

    def step_fn(step: int, fraction: float) -> Mapping[str, float | Tensor]:
        # New paths are walked until a third of the budget is spent on them, then old ones are met
        # again.
        if fraction < NEW_PATHS_UNTIL:
            pool.ensure(min(trained, TRAJECTORY_BATCH * (step + 1)))
        generator = torch.Generator().manual_seed((seed << 32) + step)
        rows = torch.randint(0, pool.known, (BATCH,), generator=generator)
        k = torch.arange(BATCH) % STUDENT_STEPS
        x, after = pool.states[rows, k].float(), pool.states[rows, k + 1].float()
        target = (x - after) / (sigmas[k] - sigmas[k + 1]).view(-1, 1, 1, 1)
        condition = guidance_embedding(pipeline, pool.guidance[rows])
        with torch.no_grad(), autocast():
            hidden = pipeline.text_encoder(pool.ids[rows].long())[0]
        with autocast():
            v = unet(x, (sigmas[k] * 1000).long(), hidden, timestep_cond=condition).sample
        loss = (v.float() - target).pow(2).mean()
        descend(loss, optimizer, learning_rate(fraction, PEAK_LR))
        ema.update(unet)
        return {"loss": loss.detach(), "paths": float(pool.known)}

    averaged = student_unet(pipeline.unet)

    def save(_: int) -> None:
        ema.copy_to(averaged)
        save_parts(out / "pipeline", averaged, base)

    state: dict[str, Stateful] = {"unet": unet, "ema": ema, "optimizer": optimizer, "pool": pool}
    done, seconds = run_training(
        "emoji-flow-turbo",
        step_fn,
        state,
        folder=out,
        budget=budget,
        settings={"seed": seed, "teacher": base},
        resume=resume,
        on_checkpoint=save,
    )
    pool.known = pool.size - 4 * TRAJECTORY_BATCH
    pool.ensure(pool.size)
    error = endpoint_error(pool, averaged, 64)
    return write_metrics(out, {"steps": done, "seconds": seconds, "endpoint_mse": error})
