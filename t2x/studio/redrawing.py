"""A picture drawn again from its recipe, to the byte where model and libraries are the same.

The last bit of a picture may hang on how many were drawn in one call (never on which): a picture of
a batch of four is drawn as four copies. That is tried only where it, drawn alone, is not the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from t2x.errors import T2XError
from t2x.studio.events import Drawn
from t2x.studio.recipes import Recipe
from t2x.studio.requests import (
    BestOfRequest,
    CompareRequest,
    EditRequest,
    GuideRequest,
    Request,
    Sampling,
    TaskRequest,
    request_from_record,
)

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor

    from t2x.studio.work import Work
    from t2x.types import Generator

__all__ = ["draw_again", "form_request", "request_of"]

_FORM = ("steps", "guidance_scale", "num_frames")


def request_of(recipe: Recipe, *, picture: Image | None = None) -> Request:
    """The request that draws the picture again, alone and without asking the rewriter.

    ``picture`` is what an edit starts from. Raises T2XError where that is missing, or another one.
    """
    request = form_request(recipe, picture=picture)
    _check_source(recipe, picture)
    return request


def form_request(recipe: Recipe, *, picture: Image | None = None) -> Request:
    """The same for a form in which what an edit starts from may still be missing."""
    if recipe.request:
        return request_from_record(recipe.request, picture=picture)
    given: dict[str, Any] = {"seed": recipe.seed, "sampling": _sampling(recipe)}
    if recipe.kind == "edit":
        return _edit(recipe, picture, given)
    text = recipe.text if recipe.text != recipe.prompt else None
    given |= {"prompt": recipe.prompt, "text": text, "negative": recipe.negative, "rewrite": False}
    if recipe.kind == "sheet":
        return CompareRequest(num=recipe.num, **given)
    if recipe.guidance or recipe.three_way:
        return GuideRequest(beside=False, **_guidance(recipe), **given)
    return BestOfRequest(num=1, **given)


def _sampling(recipe: Recipe) -> Sampling:
    """What the recipe says of the call, as far as a form has it."""
    values = recipe.sampling
    steps, scale = values.get("num_inference_steps"), values.get("guidance_scale")
    frames = values.get("num_frames")
    return Sampling(
        size=recipe.size,
        steps=steps if type(steps) is int else None,
        guidance_scale=float(scale) if isinstance(scale, int | float) else None,
        num_frames=frames if type(frames) is int else None,
    )


def _guidance(recipe: Recipe) -> dict[str, Any]:
    """Fields of ``GuideRequest`` from ``GuidanceRecipe.record``."""
    config: Any = recipe.guidance.get("config")
    config = dict(config) if isinstance(config, Mapping) else {}
    weights = config.pop("rewards", {})
    config.pop("mode", None)
    own = recipe.guidance.get("settings")
    mode = str(recipe.guidance.get("mode", "E"))
    options = {k: v for k, v in config.items() if v is not None}
    if isinstance(own, Mapping) and own:
        section = mode.rpartition("+")[2]
        options = {**options, section: dict(own)} if "+" in mode else dict(own)
    budget = recipe.guidance.get("budget")
    three = [float(w) if w is not None else None for w in recipe.three_way]
    return {
        "weights": {str(k): float(v) for k, v in dict(weights).items()},
        "mode": mode,
        "budget": budget if type(budget) is int else None,
        "options": options,
        "three_way": (three[0], three[1]) if len(three) == 2 and three[0] is not None else None,
    }


def _edit(recipe: Recipe, picture: Image | None, given: dict[str, Any]) -> EditRequest:
    how = recipe.edit
    size, region = how.get("size"), how.get("region")
    sampling: Sampling = given.pop("sampling")
    if isinstance(size, list) and len(size) == 2:
        sampling = replace(sampling, size=(int(size[0]), int(size[1])))
    numbers = ("strength", "source_scale", "focus", "tether")
    given |= {key: float(how[key]) for key in numbers if how.get(key) is not None}
    return EditRequest(
        picture=picture,
        instruction=str(how.get("instruction", "")),
        source_prompt=str(how.get("source_prompt", "")),
        target_prompt=recipe.text,
        method=str(how["method"]) if "method" in how else None,
        weights={str(k): float(v) for k, v in dict(how.get("weights") or {}).items()},
        mode=str(how["mode"]) if how.get("mode") else None,
        options=dict(how.get("options") or {}),
        region=(*map(float, region),) if isinstance(region, list) else None,  # type: ignore[arg-type]
        sampling=sampling,
        **given,
    )


def _check_source(recipe: Recipe, picture: Image | None) -> None:
    if recipe.kind != "edit":
        return
    named = recipe.source.get("name") or "the picture that was edited"
    if picture is None:
        raise T2XError(f"this is an edit: give {named}, too, and it can be made again")
    from t2x.generators.sources import source_digest

    digest = recipe.source.get("digest")
    if digest and source_digest(picture) != digest:
        raise T2XError(f"the picture given is not {named}: its pixels differ")


def draw_again(
    recipe: Recipe, *, picture: Image | None = None, expected: Image | None = None
) -> TaskRequest:
    """A task that draws the picture again and tells it with the same recipe; of a sheet all its
    pictures, arm by arm.

    ``picture`` is what an edit starts from; ``expected`` is what should come out: where it is
    known, a picture of a batch is first drawn alone. The answer is whether it came out, None
    without it.
    """
    request = request_of(recipe, picture=picture)

    def run(work: Work) -> bool | None:
        return _Redrawing(work, recipe, request, expected).run()

    state = {"recipe": recipe.record()}
    return TaskRequest("draw again", run, state)


class _Redrawing:
    """One run of such a task."""

    def __init__(
        self, work: Work, recipe: Recipe, request: Request, expected: Image | None
    ) -> None:
        self.work, self.recipe, self.request, self.expected = work, recipe, request, expected

    def run(self) -> bool | None:
        if self.recipe.kind == "sheet":
            self._sheet()
            return None
        self._check_model(self.work.models.generator())
        drawn = None
        if self.recipe.batch == 1 or self.expected is not None:
            drawn = self._alone()
        if self.recipe.batch > 1 and (drawn is None or not self._same(drawn)):
            drawn = self._copies() or drawn
        assert drawn is not None
        self.work.tell(replace(drawn, recipe=self.recipe.record()))
        return None if self.expected is None else self._same(drawn)

    def _check_model(self, generator: Generator) -> None:
        from t2x.studio.recipes import generator_facts

        recipe = self.recipe
        if recipe.model and recipe.model != generator.model_id:
            raise T2XError(
                f"{recipe.model} drew this, and {generator.model_id} is loaded; load that one, or "
                "fill the form and draw anew"
            )
        here = generator_facts(generator).get("revision")
        if recipe.revision and here and here != recipe.revision:
            self.work.note(f"{recipe.model} has other weights here: the picture may differ")

    def _same(self, drawn: Drawn) -> bool:
        from t2x.generators.sources import source_digest

        if self.expected is None:
            return False
        return source_digest(drawn.picture) == source_digest(self.expected)

    def _alone(self) -> Drawn:
        """Do the request's own job, and take its picture from what it tells."""
        from t2x.registry import import_attr
        from t2x.studio.engine import JOBS

        heard: list[Drawn] = []
        inner = self.work.aside(heard.append)
        assert not isinstance(self.request, TaskRequest)
        request: Any = self.request
        request = replace(request, rewards=())
        import_attr(JOBS[request.kind])(inner, request)
        return [drawn for drawn in heard if drawn.arm not in ("source", "plain")][-1]

    def _copies(self) -> Drawn | None:
        """Draw as many copies in one call as there were pictures; None where that is not known to
        be done."""
        if self.recipe.kind == "edit" or self.recipe.guidance or self.recipe.three_way:
            return None
        rows = self._drawn([self.recipe.text], [self.recipe.negative], self.recipe.batch)
        return self._told(rows[0], self.recipe.arm or "original", 0, self.recipe.seed)

    def _drawn(self, texts: list[str], negatives: list[str], copies: int) -> list[Tensor]:
        from t2x.generators.negatives import usable_negatives
        from t2x.studio.drawing import sampled

        assert not isinstance(self.request, TaskRequest)
        sampling = self.request.sampling
        generator = sampled(self.work.models.generator(), sampling)
        self.work.progress(f"drawing with {generator.model_id}", 0, 1)
        seeds = [self.recipe.seed] * copies
        with self.work.phase("draw"):
            media = generator.generate(
                texts * copies,
                negative=usable_negatives(generator, negatives * copies),
                seeds=seeds,
                size=sampling.size,
                num_frames=sampling.num_frames,
            )
        return [item if item.ndim < 5 else item[0] for item in media]

    def _sheet(self) -> None:
        """Both arms in the order and the batches of ``t2x demo``."""
        from t2x.generators.negatives import usable_negatives
        from t2x.studio.drawing import sampled

        recipe = self.recipe
        self._check_model(self.work.models.generator())
        generator = sampled(self.work.models.generator(), _sampling(recipe))
        arms = [("original", recipe.prompt, ""), ("rewritten", recipe.text, recipe.negative)]
        if recipe.text == recipe.prompt and not recipe.negative:
            arms.pop()
        seeds = range(recipe.seed, recipe.seed + recipe.num)
        jobs = [(*arm, i, seed) for arm in arms for i, seed in enumerate(seeds)]
        for start in range(0, len(jobs), recipe.batch):
            some = jobs[start : start + recipe.batch]
            self.work.progress(f"drawing with {generator.model_id}", start, len(jobs))
            negatives = usable_negatives(generator, [job[2] for job in some])
            media = generator.generate(
                [job[1] for job in some],
                negative=negatives,
                seeds=[job[4] for job in some],
                size=recipe.size,
            )
            for (arm, *_, index, seed), item in zip(some, media, strict=True):
                self.work.tell(self._told(item, arm, index, seed))

    def _told(self, media: Tensor, arm: str, index: int, seed: int) -> Drawn:
        from t2x.studio.drawing import as_pictures

        own = replace(self.recipe, arm=arm, seed=seed) if self.recipe.kind == "sheet" else None
        if own is not None:
            text = own.prompt if arm == "original" else own.text
            negative = "" if arm == "original" else own.negative
            own = replace(own, kind="picture", num=1, text=text, negative=negative)
        record = (own or self.recipe).record()
        return Drawn(arm=arm, index=index, seed=seed, recipe=record, **as_pictures(media))
