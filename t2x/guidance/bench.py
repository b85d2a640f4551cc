"""What guidance costs: seconds and memory per picture, unguided and in modes E and J, split into
denoiser, decoder and rewards, forward and backward.

Parts are timed by themselves, on the arguments that the pipeline gives them. ``overhead_E`` and
``overhead_J`` are the time of a guided run over that of the unguided run and the parts that
guidance adds, as often as the trace counts them. All take turns, so that what else the machine does
hits all.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from t2x.generators.diffusion import own_noise
from t2x.generators.loading import quiet
from t2x.guidance.config import GuidanceConfig
from t2x.guidance.guide import guide
from t2x.guidance.latents import latent_space
from t2x.guidance.step import DENOISERS
from t2x.guidance.trace import PARTS, GuidanceTrace, PartCost
from t2x.memory.counting import peak_bytes
from t2x.scoring.ensemble import RewardEnsemble
from t2x.testing import fixed_weights, tiny_clip_tokenizer

if TYPE_CHECKING:
    from t2x.types import RewardModel

__all__ = ["ARMS", "bench_guidance", "mid_size_pipeline"]

Clock: TypeAlias = Callable[[], float]
Progress: TypeAlias = Callable[[str, int, int], None]

ARMS: dict[str, dict[str, Any] | None] = {
    "unguided": None,
    "E": {"mode": "E"},
    "J": {"mode": "J"},
    "E, decoded at half size": {"mode": "E", "decode_scale": 0.5},
    "E, every second step": {"mode": "E", "every": 2},
    "J, every second step": {"mode": "J", "every": 2},
}


@dataclass(frozen=True)
class _Subject:
    """What is timed: a pipeline, the arguments of its call for N prompts, and rewards."""

    pipe: Any
    prompts: list[str]
    call: Mapping[str, Any]
    rewards: Sequence[RewardModel]
    clock: Clock

    def draw(self, changes: Mapping[str, Any] | None, seeds: Sequence[int]) -> Drawn:
        """Draw N pictures: (media, trace, seconds)."""
        arguments = {**self.call, "prompt": list(self.prompts), "output_type": "pt"}
        run = partial(self.pipe, **arguments, generator=own_noise(seeds))
        start = self.clock()
        with quiet():
            if changes is None:
                return run().images, None, self.clock() - start
            weights = {reward.name: 1.0 for reward in self.rewards}
            config = GuidanceConfig(weights, **changes)
            with guide(self.pipe, self.rewards, config, seeds=seeds) as trace:
                media = run().images
        return media, trace, self.clock() - start


Drawn: TypeAlias = "tuple[Tensor, GuidanceTrace | None, float]"


def bench_guidance(
    pipe: Any,
    rewards: Sequence[RewardModel],
    prompts: Sequence[str],
    *,
    call: Mapping[str, Any],
    repeats: int = 3,
    scored: bool = True,
    clock: Clock = time.perf_counter,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Time the arms of ``ARMS`` and the parts on N ``prompts`` at once; ``call`` are the pipeline's
    arguments.

    Gives ``arms``: by name seconds and megabytes per picture (tensors beyond weights, the most at
    any moment), and each reward's mean on the finished pictures if ``scored`` (by a model that
    learned something); ``parts``: by name seconds of one forward and one backward pass per picture;
    ``overhead_E`` and ``overhead_J``; ``pipeline``: what the unguided run takes beside denoiser and
    decoder. Medians over ``repeats`` rounds after one that does not count.
    """
    subject = _Subject(pipe, list(prompts), call, list(rewards), clock)
    seconds: dict[str, list[float]] = {name: [] for name in ARMS}
    memory, scores, traces = {}, {name: list[Tensor]() for name in ARMS}, {}
    n = len(prompts)
    for name, changes in ARMS.items():  # the round that does not count
        memory[name] = peak_bytes(partial(subject.draw, changes, range(n))) / n / 1e6
        if progress is not None:
            progress(f"measuring memory: {name}", len(memory), len(ARMS))
    parts = _Parts(subject)
    for turn in range(repeats):
        for name, changes in ARMS.items():
            media, trace, spent = subject.draw(changes, range(turn * n, (turn + 1) * n))
            seconds[name].append(spent / n)
            traces[name] = trace
            scores[name].append(_scores(subject, media))
        parts.time()
        if progress is not None:
            progress("timing", turn + 1, repeats)
    found: dict[str, dict[str, Any]] = {
        name: {"seconds": statistics.median(seconds[name]), "megabytes": memory[name]}
        for name in ARMS
    }
    if scored:
        names = [reward.name for reward in rewards]
        for name, rows in scores.items():
            means = torch.cat(rows).nanmean(0).tolist()
            found[name]["scores"] = dict(zip(names, means, strict=True))
    costs = {name: trace.cost for name, trace in traces.items() if trace is not None}
    return _record(found, parts, costs, call["num_inference_steps"])


def _record(
    arms: dict[str, Any], parts: _Parts, spent: Mapping[str, Mapping[str, PartCost]], steps: int
) -> dict[str, Any]:
    unguided = arms["unguided"]["seconds"]
    seconds = parts.seconds()
    result: dict[str, Any] = {}
    for name in ("E", "J"):
        added = sum(
            seconds[part][way] * getattr(spent[name][part], way) / parts.rows[part]
            for part in PARTS
            for way in ("forward", "backward")
            if (part, way) != ("denoiser", "forward")  # as often as without guidance
        )
        arms[name]["sum_of_parts"] = unguided + added
        result[f"overhead_{name}"] = arms[name]["seconds"] / (unguided + added)
    for arm in arms.values():
        arm["over_unguided"] = arm["seconds"] / unguided
    rest = unguided - steps * seconds["denoiser"]["forward"] - seconds["decoder"]["forward"]
    return {**result, "arms": arms, "parts": seconds, "pipeline": rest}


def _scores(subject: _Subject, media: Tensor) -> Tensor:
    with torch.no_grad():
        found = RewardEnsemble(subject.rewards).components(subject.prompts, media.float())
    return torch.stack(list(found.values()), 1)


class _Parts:
    """Each part by itself, on what the pipeline gives it, as often as ``time`` is called."""

    def __init__(self, subject: _Subject) -> None:
        self.subject = subject
        self.module = next(m for m in (getattr(subject.pipe, n, None) for n in DENOISERS) if m)
        self.arguments = self._first_arguments()
        height, width = subject.call["height"], subject.call["width"]
        self.space = latent_space(subject.pipe, {"height": height, "width": width})
        media = torch.rand(len(subject.prompts), 3, height, width)
        with torch.no_grad():
            self.latents = self.space.encode(media)
            self.media = self.space.decode(self.latents).clamp(0, 1)
        self.times: dict[str, list[tuple[float, float]]] = {part: [] for part in PARTS}
        n = len(subject.prompts)
        # Evaluations that the trace counts where a part is timed once.
        self.rows = {
            "denoiser": len(self.arguments[0][0]),
            "decoder": n,
            "reward": n * len(subject.rewards),
        }

    def _first_arguments(self) -> tuple[Any, Any]:
        found: list[tuple[Any, Any]] = []

        def keep(module: Any, args: Any, kwargs: Any) -> None:
            found.append((args, kwargs))

        with self.module.register_forward_pre_hook(keep, with_kwargs=True):
            self.subject.draw(None, range(len(self.subject.prompts)))
        return found[0]

    def time(self) -> None:
        """One forward and backward pass of each."""
        (first, *args), kwargs = self.arguments
        score = RewardEnsemble(self.subject.rewards).components
        prompts = self.subject.prompts

        def denoise(sample: Tensor) -> Tensor:
            found: Tensor = self.module(sample, *args, **kwargs)[0]
            return found

        def reward(media: Tensor) -> Tensor:
            return torch.stack(list(score(prompts, media).values()), 1)

        for part, run, given in (
            ("denoiser", denoise, first),
            ("decoder", self.space.decode, self.latents),
            ("reward", reward, self.media),
        ):
            self.times[part].append(self._both(run, given, separate=part == "reward"))

    def _both(
        self, run: Callable[[Tensor], Tensor], given: Tensor, *, separate: bool
    ) -> tuple[float, float]:
        """Seconds of a forward and a backward pass; of rewards, a backward pass each."""
        clock = self.subject.clock
        leaf = given.detach().requires_grad_()
        with torch.enable_grad():
            start = clock()
            found = run(leaf)
            middle = clock()
            columns = found.unbind(1) if separate else [found]
            for at, column in enumerate(columns):
                torch.autograd.grad(column.sum(), leaf, retain_graph=at < len(columns) - 1)
        return middle - start, clock() - middle

    def seconds(self) -> dict[str, dict[str, float]]:
        """Medians per picture."""
        n = len(self.subject.prompts)
        return {
            part: {
                way: statistics.median(pair[at] for pair in times) / n
                for at, way in enumerate(("forward", "backward"))
            }
            for part, times in self.times.items()
        }


def mid_size_pipeline(seed: int = 0) -> Any:
    """A StableDiffusionPipeline of SD 1.5's shape with random weights: a UNet of about 90 M
    parameters (of 860 M) and a decoder of a quarter of its width, 512 x 512 from 64 x 64 latents.
    """
    from diffusers import AutoencoderKL, StableDiffusionPipeline, UNet2DConditionModel
    from transformers import CLIPTextConfig, CLIPTextModel

    from t2x.world.flow import flow_scheduler

    tokenizer = tiny_clip_tokenizer()
    text = CLIPTextConfig(
        vocab_size=len(tokenizer),
        hidden_size=256,
        intermediate_size=1024,
        num_hidden_layers=6,
        num_attention_heads=4,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with fixed_weights(seed):
        unet = UNet2DConditionModel(
            sample_size=64,
            block_out_channels=(104, 208, 416, 416),
            norm_num_groups=8,
            cross_attention_dim=256,
            attention_head_dim=8,
        )
        vae = AutoencoderKL(
            down_block_types=("DownEncoderBlock2D",) * 4,
            up_block_types=("UpDecoderBlock2D",) * 4,
            block_out_channels=(32, 64, 128, 128),
            layers_per_block=2,
            latent_channels=4,
            sample_size=512,
        )
        encoder = CLIPTextModel(text)
    return StableDiffusionPipeline(
        vae=vae.eval(),
        text_encoder=encoder.eval(),
        tokenizer=tokenizer,
        unet=unet.eval(),
        scheduler=flow_scheduler(),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
