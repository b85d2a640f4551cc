"""A generator whose pictures are steered, or chosen, by rewards.

    generator = t2x.load_generator("emoji-flow", guidance="vqa=1,clip=0.3")
    generator.generate(["two cats, detailed"], seeds=[0], originals=["two cats"])

Rewards score against the user's own words (``originals``), whatever the text that is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from t2x.errors import T2XError
from t2x.generators.diffusion import DiffusionGenerator
from t2x.generators.prompt_syntax import PreparedPrompt, Syntax
from t2x.guidance.recipe import MODES, GuidanceRecipe, check_reader, make_recipe
from t2x.plain import plain
from t2x.registry import import_attr, load_reward

if TYPE_CHECKING:
    from t2x.generators.adapters import Adapters
    from t2x.generators.sources import Sources
    from t2x.guidance.config import GuidanceConfig
    from t2x.guidance.drawing import Drawn
    from t2x.guidance.primitives import Primitives
    from t2x.guidance.trace import PartCost, SampleTrace, TracedCall, TracedStep
    from t2x.types import Context, Media, Modality, RewardModel

__all__ = ["GuidedGenerator", "reward_identity"]


class GuidedGenerator:
    """A ``DiffusionGenerator`` under guidance; itself a ``Generator``.

    Args:
        generator: what draws; it stays usable by itself, unguided.
        guidance: rewards with weights ("vqa=1,clip=0.3"), a ``GuidanceConfig`` or a recipe
            (``t2x.guidance.recipe.make_recipe``) that also says mode and budget.
        rewards: loaded ones, in place of loading those that are named.
        thumbnails: longest side in pixels of the pictures of x0_hat that traces keep; None keeps
            none.
        on_step: hears each step of a trace as it is written, with its call.
        reader: for the policy (``GuidanceConfig.adaptive``) finds what a prompt asks for: the name
            of a chat model, as ``load_rewriter`` takes it, or a function; rules without.

    Raises T2XError for a reader where no policy would ask it.

    ``traces``, ``notes`` and ``cost`` are of the last call: one trace for each picture (None where
    a mode has none), what was decided and tried for it, and passes by part.
    """

    model_id: str
    modality: Modality

    def __init__(
        self,
        generator: DiffusionGenerator,
        guidance: str | Mapping[str, float] | GuidanceConfig | GuidanceRecipe,
        *,
        rewards: Sequence[RewardModel] = (),
        thumbnails: int | None = None,
        on_step: Callable[[TracedCall, TracedStep], None] | None = None,
        reader: str | Callable[[str], Primitives] | None = None,
    ) -> None:
        if not isinstance(generator, DiffusionGenerator):
            raise T2XError(
                f"{type(generator).__name__} can't be guided; give a DiffusionGenerator or what "
                "load_generator makes of a diffusers pipeline"
            )
        self.generator = generator
        self.recipe = make_recipe(guidance, loaded=[reward.name for reward in rewards])
        check_reader(self.recipe, reader)
        self.reader = reader
        self.thumbnails, self.on_step = thumbnails, on_step
        self.model_id, self.modality = generator.model_id, generator.modality
        self._rewards = list(rewards)
        self._given = bool(rewards)
        self.traces: list[SampleTrace | None] = []
        self.notes: list[dict[str, Any]] = []
        self.cost: dict[str, PartCost] = {}

    @property
    def rewards(self) -> list[RewardModel]:
        """The rewards, loaded when first asked for."""
        if not self._rewards:
            self._rewards = [load_reward(name) for name in self.recipe.config.rewards]
        return self._rewards

    @cached_property
    def _read(self) -> Callable[[str], Primitives] | None:
        from t2x.guidance.model_reader import load_reader

        # the policy and the scores ask for the regions of the same prompts
        return None if self.reader is None else cache(load_reader(self.reader))

    def _named(self) -> GuidanceRecipe:
        """The recipe with weights under the rewards' own names, which may not be those that they
        are loaded by."""
        config = self.recipe.config
        if self._given:
            return self.recipe
        pairs = zip(self.rewards, config.rewards.values(), strict=True)
        weights = {reward.name: weight for reward, weight in pairs}
        if len(weights) < len(config.rewards):
            raise T2XError(f"of {', '.join(config.rewards)} two are the same reward; give one")
        return replace(self.recipe, config=replace(config, rewards=weights))

    @property
    def pipeline(self) -> Any:
        """The diffusers pipeline."""
        return self.generator.pipeline

    @property
    def adapters(self) -> Adapters:
        """LoRAs and textual inversions of the generator."""
        return self.generator.adapters

    @property
    def batch_size(self) -> int:
        """The most pictures in one call; lack of memory halves it."""
        return self.generator.batch_size

    @property
    def supports_negative(self) -> bool:
        """Whether a negative prompt has any effect."""
        return self.generator.supports_negative

    def prepare(
        self, prompts: Sequence[str], *, syntax: Syntax | None = None
    ) -> list[PreparedPrompt]:
        """Tell what of N prompts goes to the encoders, as ``DiffusionGenerator.prepare``."""
        return self.generator.prepare(prompts, syntax=syntax)

    def scores(
        self, originals: Sequence[str], media: Media, *, context: Context | None = None
    ) -> dict[str, list[float]]:
        """What each reward says of N finished pictures, against the user's words without their
        syntax; by name, NaN where it can't tell. Guidance itself only sees x0_hat of the steps."""
        from t2x.guidance.guide import for_pipeline

        originals = self.generator.said(originals)
        context = self._located(originals, context)
        fitting = {r.name: for_pipeline(r, self.pipeline) for r in self.rewards}
        return {
            name: reward.score(originals, media, context=context).tolist()
            for name, reward in fitting.items()
        }

    def free(self) -> None:
        """Drop the pipeline and the rewards that were loaded by name; the next use loads them."""
        if not self._given:
            self._rewards = []
        self.generator.free()

    def settings(
        self, *, size: tuple[int, int] | None = None, num_frames: int | None = None
    ) -> dict[str, Any]:
        """Give the arguments of a call, the pipeline's defaults and a budget's steps included."""
        found = self.generator.settings(size=size, num_frames=num_frames)
        if self.recipe.budget is not None and self._buys_steps:
            from t2x.guidance.drawing import affordable_steps

            found["num_inference_steps"] = affordable_steps(self.recipe, self.generator.passes)
        return found

    def fingerprint(
        self, *, size: tuple[int, int] | None = None, num_frames: int | None = None
    ) -> dict[str, Any]:
        """Give all that decides a picture but its prompt, the user's own words where they differ
        from it, its context and seed, as JSON values, for a key."""
        own = self.generator.fingerprint(size=size, num_frames=num_frames)
        return own | {
            "settings": plain(self.settings(size=size, num_frames=num_frames), exact=True),
            "guidance": self.recipe.record(),
            "rewards": [reward_identity(reward) for reward in self.rewards],
        }

    def generate(
        self,
        prompts: Sequence[str],
        *,
        negative: Sequence[str] | None = None,
        seeds: Sequence[int],
        size: tuple[int, int] | None = None,
        num_frames: int | None = None,
        sources: Sources | None = None,
        originals: Sequence[str] | None = None,
        context: Context | None = None,
        syntax: Syntax | None = None,
        callback: Callable[[int, int], None] | None = None,
    ) -> Media:
        """Draw one picture (N, 3, H, W) or video (N, F, 3, H, W) per prompt, as
        ``DiffusionGenerator.generate``.

        ``originals``: N texts that rewards score against, without their syntax; the prompts if
        none are given. ``context``: for rewards that need more than prompt and media, N entries in
        each field. Raises T2XError for rewards that can't guide this pipeline, before anything is
        drawn.
        """
        if originals is not None and len(originals) != len(prompts):
            raise T2XError(f"{len(prompts)} prompts but {len(originals)} originals; give one each")
        words = list(prompts if originals is None else originals)
        if syntax != "plain":
            words = self.generator.said(words)
        drawn: dict[int, SampleTrace | None] = {}
        notes: dict[int, dict[str, Any]] = {}
        cost: dict[str, PartCost] = {}

        def draw(rows: Sequence[int], arguments: dict[str, Any], numbers: list[int]) -> Any:
            from t2x.scoring.pairs import context_rows

            found = self._draw(
                arguments, numbers, [words[i] for i in rows], context_rows(context, rows)
            )
            for row, place, note in zip(rows, found.places, found.notes, strict=True):
                drawn[row] = None if place is None else found.trace.sample(place[1], call=place[0])
                notes[row] = note
            for part, spent in found.trace.cost.items():
                cost[part] = cost[part] + spent if part in cost else spent
            return found.output

        media = self.generator.generate(
            prompts,
            negative=negative,
            seeds=seeds,
            size=size,
            num_frames=num_frames,
            sources=sources,
            syntax=syntax,
            callback=callback,
            draw=draw,
        )
        self.traces = [drawn[i] for i in range(len(prompts))]
        self.notes, self.cost = [notes[i] for i in range(len(prompts))], cost
        return media

    def _located(self, originals: Sequence[str], context: Context | None) -> Context | None:
        """The context with where the words tell things to be, in modes without gradients, too."""
        from t2x.guidance.policy import own_policy

        policy = own_policy(self.rewards, self.recipe.config, read=self._read)
        return context if policy is None else policy.located(originals, context)

    @property
    def _buys_steps(self) -> bool:
        return MODES[self.recipe.mode].bought == "num_inference_steps"

    def _draw(
        self,
        arguments: dict[str, Any],
        seeds: list[int],
        originals: list[str],
        context: Context | None,
    ) -> Drawn:
        from t2x.guidance.drawing import Batch

        batch = Batch(
            self.generator,
            arguments,
            seeds,
            originals,
            self._located(originals, context),
            self.rewards,
            self._named(),
            self.generator.passes,
            self.thumbnails,
            self.on_step,
            self._read,
        )
        found: Drawn = import_attr(MODES[self.recipe.mode].draw)(batch)
        return found


def reward_identity(reward: RewardModel) -> dict[str, Any]:
    """What decides a reward's values, as JSON values: name, scale, and its encoders' keys or, of
    one without, its class."""
    encoders = getattr(reward, "encoders", None)
    keys = sorted(str(e.key) for e in encoders.values()) if encoders else [type(reward).__name__]
    return {"name": reward.name, "scale": reward.scale, "weights": keys}
