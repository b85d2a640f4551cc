"""Pictures that rewards steer while they are drawn, with each step told as it is made, beside the
same seeds without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from t2x.errors import T2XError
from t2x.studio.comparing import asked_rewards, joined, rewritten, words_of
from t2x.studio.drawing import Brush, Shot, as_pictures, call_of
from t2x.studio.events import GuidanceStep
from t2x.studio.scoring import score_pictures
from t2x.studio.work import ModelMissingError
from t2x.types import Context

if TYPE_CHECKING:
    from torch import Tensor

    from t2x.guidance.recipe import GuidanceRecipe
    from t2x.guidance.trace import TracedCall, TracedStep
    from t2x.studio.requests import EditRequest, GuideRequest
    from t2x.studio.work import Work
    from t2x.types import Generator, RewardModel

THUMBNAIL = 96  # longest side, in pixels, of pictures of x0_hat

__all__ = ["THUMBNAIL", "StepTeller", "guide", "steered_names", "steering_rewards"]


def guide(work: Work, request: GuideRequest) -> None:
    """Draw the rewrite, or the user's words, with and without guidance, then score both."""
    rewrite = rewritten(work, request)
    changed = rewrite is not None and rewrite.changed
    text = request.prompt if rewrite is None else rewrite.text
    negative = joined(request.negative, "" if rewrite is None else rewrite.negative)
    arms = ("plain", "guided") if request.beside else ("guided",)
    brush = Brush(work, request, request.sampling, total=request.num * len(arms))
    brush.rewrite = rewrite if changed else None
    pipe = _pipeline(brush.generator)  # before anything is drawn in vain
    rewards = steering_rewards(work, request.weights)
    weights = {r.name: w for r, w in zip(rewards, request.weights.values(), strict=True)}
    recipe = _recipe(request, weights)
    three_way = _three_way(work, request, text if changed else None)

    def guided(generator: Generator, shot: Shot) -> tuple[Tensor, Mapping[str, Any]]:
        with three_way(pipe):
            if recipe is None:
                return generator.generate(**call_of(generator, shot, request.sampling))[0], {}
            return _steered(work, brush, recipe, rewards, request.prompt, shot)

    for index in range(request.num):
        for arm in arms:
            shot = Shot(arm, index, text, negative, request.seed + index)
            brush.paint(shot, guided if arm == "guided" else None)
    score_pictures(work, steered_names(work, request), words_of(work, request.prompt), brush.media)


def _steered(
    work: Work,
    brush: Brush,
    recipe: GuidanceRecipe,
    rewards: list[RewardModel],
    prompt: str,
    shot: Shot,
) -> tuple[Tensor, Mapping[str, Any]]:
    from t2x.generators.diffusion import DiffusionGenerator
    from t2x.generators.guided import GuidedGenerator
    from t2x.guidance.recipe import MODES
    from t2x.studio.overhearing import overheard

    generator: Any = brush.generator
    assert isinstance(generator, DiffusionGenerator)
    teller = StepTeller(work, brush, shot, generator.pipeline, tuple(r.name for r in rewards))
    if not MODES[recipe.mode].steered:
        rewards = overheard(rewards, teller.overhear)
    steered = GuidedGenerator(
        generator, recipe, rewards=rewards, thumbnails=THUMBNAIL, on_step=teller
    )
    media = steered.generate(
        **call_of(generator, shot, brush.sampling),
        originals=[prompt],
        context=Context(user=(work.user,)),
    )
    return media[0], {"trace": steered.traces[0], "notes": steered.notes[0]}


def steered_names(work: Work, request: GuideRequest | EditRequest) -> tuple[str, ...]:
    """What scores pictures that rewards steered: what is asked for, else the studio's choice and
    what steers."""
    names = asked_rewards(work, request)
    if request.rewards is None:
        names = tuple(dict.fromkeys([*names, *request.weights]))
    return names


@dataclass
class StepTeller:
    """Tells each step of guidance while it is made. Of several trajectories of one picture it shows
    the one that is ahead."""

    work: Work
    brush: Brush
    shot: Shot
    pipe: Any
    rewards: tuple[str, ...]
    at: tuple[int, int] | None = field(default=None)  # step and steps of the trace, if it has any

    def __call__(self, call: TracedCall, step: TracedStep) -> None:
        """Hear one step of a trace."""
        from t2x.media import to_pil

        steps = max(step.index + 1, int(getattr(self.pipe, "num_timesteps", 0) or 0))
        self.at = step.index, steps
        values = step.values.nan_to_num(-1e30).sum(1)
        row = int(values.argmax()) if len(values) > 1 else 0
        names = self.rewards if step.values.shape[1] == len(self.rewards) else ("reward",)
        picture = None
        if step.thumbnails is not None:
            picture = to_pil(step.thumbnails[row : row + 1].float().div(255))[0]
        self.work.tell(
            GuidanceStep(
                index=self.shot.index,
                seed=self.shot.seed,
                step=step.index,
                steps=steps,
                sigma=step.sigma,
                values=dict(zip(names, step.values[row].tolist(), strict=True)),
                weights=dict(zip(names, step.weights[row].tolist(), strict=True)),
                eta=float(step.eta[row]),
                gradient_norm=float(step.gradient_norm[row]),
                thumbnail=picture,
            )
        )
        self.brush.tick(step.index + 1, steps)

    def overhear(self, number: int, values: Mapping[str, float], picture: Tensor) -> None:
        """Hear what rewards say of a whole sample. Where a trace shows its steps the values belong
        to its last one, and the picture is there already."""
        shown = None
        if self.at is None:
            shown = as_pictures(picture.float().nan_to_num().clamp(0, 1).cpu())["picture"]
            shown.thumbnail((THUMBNAIL, THUMBNAIL))
        nothing = float("nan")
        step, steps = self.at or (number, number + 1)
        self.work.tell(
            GuidanceStep(
                index=self.shot.index,
                seed=self.shot.seed,
                step=step,
                steps=steps,
                sigma=nothing,
                values=values,
                weights=dict.fromkeys(values, nothing),
                eta=nothing,
                gradient_norm=nothing,
                thumbnail=shown,
            )
        )


def steering_rewards(work: Work, weights: Mapping[str, float]) -> list[RewardModel]:
    """The rewards that steer, in the order of the weights. Raises ModelMissingError for one that
    can't be loaded, since the picture would be another one without it."""
    found: list[RewardModel] = []
    for name in weights:
        work.progress(f"loading {name}", len(found), len(weights))
        with work.phase("load"):
            try:
                found.append(work.models.reward(name, user=work.user))
            except ModelMissingError:
                raise
            except T2XError as error:
                raise ModelMissingError(f"the reward {name} can't steer: {error}") from error
    return found


def _pipeline(generator: Generator) -> Any:
    from t2x.generators.diffusion import DiffusionGenerator

    if not isinstance(generator, DiffusionGenerator):
        raise T2XError(
            f"{generator.model_id} can't be guided; load one that is a pipeline of diffusers"
        )
    return generator.pipeline


def _recipe(request: GuideRequest, weights: Mapping[str, float]) -> GuidanceRecipe | None:
    """What steers; None where only three-way guidance is asked for."""
    from t2x.guidance.recipe import MODES, make_recipe

    if not weights and request.three_way is not None:
        return None
    recipe = make_recipe(
        weights,
        mode=request.mode,
        budget=request.budget,
        options=request.options,
        loaded=list(weights),
    )
    bought = MODES[recipe.mode].bought == "num_inference_steps"
    if request.sampling.steps is not None and recipe.budget is not None and bought:
        raise T2XError(f"in mode {recipe.mode} a budget decides the steps; give one of the two")
    return recipe


def _three_way(work: Work, request: GuideRequest, rewrite: str | None) -> Callable[[Any], Any]:
    """Opens guidance by the user's words and the rewrite's, where both are there and it is asked
    for."""
    weights = request.three_way

    @contextmanager
    def opened(pipe: Any) -> Iterator[None]:
        if weights is None or rewrite is None:
            yield
            return
        from t2x.guidance.three_way import original_prompt_guidance

        with original_prompt_guidance(pipe, [words_of(work, request.prompt)], *weights):
            yield

    if weights is not None and rewrite is None:
        work.note("there is no rewrite, so three-way guidance has nothing to weigh your words with")
    return opened
