"""Drawing one picture at a time, so that each is the same bytes alone or among others, is seen as
soon as it is there, and can be stopped between two steps of the denoiser.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from t2x.errors import T2XError
from t2x.studio.events import Drawn
from t2x.studio.recipe_facts import picture_recipe

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor

    from t2x.generators.diffusion import Draw
    from t2x.studio.requests import Request, Sampling
    from t2x.studio.work import Work
    from t2x.types import Generator, Rewrite

Way: TypeAlias = "Callable[[Generator, Shot], tuple[Tensor, Mapping[str, Any]]]"
"""Draws one picture, (3, H, W) or (F, 3, H, W), with further fields of ``Drawn``."""

__all__ = [
    "FPS",
    "Brush",
    "Shot",
    "Way",
    "as_pictures",
    "call_of",
    "check_area",
    "own_pixels",
    "sampled",
    "size_of",
]

FPS = 8  # frames a second of videos


@dataclass(frozen=True)
class Shot:
    """One picture to draw: its place in an arm, the text as it goes to the generator, its seed."""

    arm: str
    index: int
    text: str
    negative: str
    seed: int


def sampled(generator: Generator, sampling: Sampling) -> Generator:
    """The same generator with the steps and the guidance scale of a request. Raises T2XError for
    one that takes none."""
    asked = {"num_inference_steps": sampling.steps, "guidance_scale": sampling.guidance_scale}
    given = {name: value for name, value in asked.items() if value is not None}
    if not given:
        return generator
    from t2x.generators.diffusion import DiffusionGenerator

    if not isinstance(generator, DiffusionGenerator):
        raise T2XError(
            f"{generator.model_id} takes no {' and no '.join(given)}; leave that to the model"
        )
    return generator.with_sampling(given)


def size_of(sampling: Sampling) -> tuple[int, int] | None:
    """(height, width), or None for the model's own."""
    return None if sampling.size is None else (sampling.size[0], sampling.size[1])


def own_pixels(generator: Generator) -> int | None:
    """Pixels of the pictures that a generator draws when no size is asked for; None where it does
    not tell."""
    from t2x.generators.diffusion import DiffusionGenerator
    from t2x.generators.presumed import native_side

    if not isinstance(generator, DiffusionGenerator):
        return None
    settings, side = generator.settings(), native_side(generator.pipeline) or 0
    return (settings.get("height") or side) * (settings.get("width") or side) or None


def check_area(generator: Generator, sampling: Sampling, enlarged: float) -> None:
    """Raise T2XError for a picture of more than ``enlarged`` times the model's own pixels."""
    own, size = own_pixels(generator), size_of(sampling)
    if own is None or size is None or size[0] * size[1] <= enlarged * own:
        return
    side = int((enlarged * own) ** 0.5)
    raise T2XError(
        f"{size[0]}x{size[1]} pixels are too many for {generator.model_id}, which draws "
        f"{int(own**0.5)}x{int(own**0.5)}; give at most as many as {side}x{side} has"
    )


class Brush:
    """Draws the pictures of one job, one by one, and tells each with its recipe.

    ``total`` is how many there will be; what they are drawn for is ``request``.
    """

    def __init__(self, work: Work, request: Request, sampling: Sampling, *, total: int) -> None:
        self.work, self.request, self.sampling, self.total = work, request, sampling, total
        self.done = 0
        self.media: dict[str, list[Tensor]] = {}
        self.rewrite: Rewrite | None = None
        self._generator: Generator | None = None

    @property
    def generator(self) -> Generator:
        """The studio's, with the request's settings. Raises ModelMissingError."""
        if self._generator is None:
            if not self.work.models.generator_ready:
                self.work.progress(f"loading {self.work.models.generator_name}", 0, 1)
            with self.work.phase("load"):
                found = self.work.models.generator()
            check_area(found, self.sampling, self.work.models.limits.enlarged)
            self._generator = sampled(found, self.sampling)
        return self._generator

    def paint(self, shot: Shot, how: Way | None = None) -> None:
        """Draw one picture, as the generator does or in another way, and tell it."""
        generator = self.generator  # loaded before the clock of drawing runs
        self.tick(0, 0)
        with self.work.phase("draw"):
            media, facts = self._drawn(generator, shot, how or self._plain)
        self.keep(shot, media, **facts)

    def keep(self, shot: Shot, media: Tensor, *, counted: bool = True, **facts: Any) -> None:
        """Tell a picture that is there, (3, H, W) or (F, 3, H, W), with further fields of
        ``Drawn``; it is ``counted`` if it was drawn."""
        self.media.setdefault(shot.arm, []).append(media)
        self.done += counted
        self.work.tell(
            Drawn(
                arm=shot.arm,
                index=shot.index,
                seed=shot.seed,
                recipe=picture_recipe(
                    self.request, shot, self.generator, self.work.models, rewrite=self.rewrite
                ),
                **as_pictures(media),
                **facts,
            )
        )
        self.tick(0, 0)

    def tick(self, step: int, steps: int) -> None:
        """Tell how far the drawing is; the picture at hand is at ``step`` of ``steps``."""
        what = f"drawing with {self.generator.model_id}"
        self.work.progress(what, self.done, self.total, step=step, steps=steps)

    def _drawn(
        self, generator: Generator, shot: Shot, how: Way
    ) -> tuple[Tensor, Mapping[str, Any]]:
        """Draw it; where memory runs out once more without the models that are not drawing."""
        from t2x.memory.machine import is_out_of_memory

        self.work.check()
        names = denoisers(generator)
        try:
            with put_back(generator), self.work.stoppable(*names):
                return how(generator, shot)
        except Exception as error:
            if not is_out_of_memory(error) or not self.work.models.relieve():
                raise
        self.work.note("memory ran out: models that were not drawing were freed for a while")
        with put_back(generator), self.work.stoppable(*names):
            return how(generator, shot)

    def _plain(self, generator: Generator, shot: Shot) -> tuple[Tensor, Mapping[str, Any]]:
        from t2x.generators.diffusion import DiffusionGenerator

        given = call_of(generator, shot, self.sampling)
        if isinstance(generator, DiffusionGenerator):
            given["draw"] = ticking_draw(generator.pipeline, self.tick)
        return generator.generate(**given)[0], {}


def call_of(generator: Generator, shot: Shot, sampling: Sampling) -> dict[str, Any]:
    """The arguments of ``generate`` for one picture."""
    from t2x.generators.negatives import usable_negatives

    return {
        "prompts": [shot.text],
        "negative": usable_negatives(generator, [shot.negative]),
        "seeds": [shot.seed],
        "size": size_of(sampling),
        "num_frames": sampling.num_frames,
    }


def denoisers(generator: Generator) -> tuple[Any, tuple[str, ...]]:
    """What ``Work.stoppable`` takes to stop a generator between two steps; nothing of one that is
    no pipeline, which stops between two pictures."""
    pipe = getattr(generator, "pipeline", None)
    if pipe is None:
        return None, ()
    from t2x.guidance.step import DENOISERS

    return pipe, DENOISERS


@contextmanager
def put_back(generator: Generator) -> Iterator[None]:
    """Where a call of an offloaded pipeline ends before its time, put its models back to where they
    wait, as the call itself does at its end."""
    try:
        yield
    except BaseException:
        hooks = getattr(getattr(generator, "pipeline", None), "maybe_free_model_hooks", None)
        if hooks is not None:
            hooks()
        raise


def ticking_draw(pipe: Any, tick: Callable[[int, int], None]) -> Draw:
    """A plain call of the pipeline that tells (step, steps) after each step, where it can."""
    from t2x.generators.calls import call_arguments
    from t2x.generators.diffusion import own_noise

    def each(pipe: Any, step: int, timestep: Any, given: dict[str, Any]) -> dict[str, Any]:
        tick(step + 1, int(getattr(pipe, "num_timesteps", 0)))
        return given

    takes = "callback_on_step_end" in call_arguments(pipe)
    told = {"callback_on_step_end": each} if takes else {}

    def draw(rows: Sequence[int], arguments: dict[str, Any], seeds: list[int]) -> Any:
        return pipe(**arguments, generator=own_noise(seeds), **told)

    return draw


def as_pictures(media: Tensor) -> Mapping[str, Any]:
    """The fields of ``Drawn`` that show (3, H, W) or (F, 3, H, W)."""
    from t2x.media import to_pil

    if media.ndim == 3:
        return {"picture": to_pil(media.unsqueeze(0))[0]}
    frames: tuple[Image, ...] = tuple(to_pil(media.unsqueeze(0)))
    return {"picture": frames[len(frames) // 2], "frames": frames, "fps": FPS}
