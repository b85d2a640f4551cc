"""The studio's named endpoints, for ``gradio_client``, plain HTTP and language models (MCP).

What the page itself wires is private; this is all that a program can call. Each endpoint is one job
of the studio in the same queue as everybody's, and gives its pictures as PNG files that hold their
recipes. A job that fails is an error in one line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import gradio as gr

from t2x.errors import T2XError
from t2x.plain import plain
from t2x.studio.events import Cancelled, Drawn, Entry, Failed, Finished
from t2x.studio.limits import check_request
from t2x.studio.requests import (
    BestOfRequest,
    CompareRequest,
    EditRequest,
    GuideRequest,
    Request,
    Sampling,
    TaskRequest,
)
from t2x.studio.uploads import read_dropped

from .album import Album
from .desk import Desk, page_of, user_of
from .given import PictureFile, WholeNumber, refusal
from .region import region_of

if TYPE_CHECKING:
    from t2x.studio.work import Work

__all__ = ["add_endpoints"]

Pictures = tuple[str | None, list[str], dict[str, Any]]
WEIGHTS = {"questions": 1.0, "clip": 0.3}


def add_endpoints(desk: Desk) -> None:
    """Add them to the page, inside its ``gr.Blocks``; nothing of them is seen on it."""
    calls = _Calls(desk)
    with gr.Column(visible=False):
        prompt, seed = gr.Textbox(label="prompt"), WholeNumber(value=0, precision=0, label="seed")
        num = WholeNumber(value=1, precision=0, label="num")
        rewards, negative = gr.Textbox("", label="rewards"), gr.Textbox("", label="negative")
        rewrite = gr.Checkbox(True, label="rewrite")
        steps = WholeNumber(value=0, precision=0, label="steps")
        budget = WholeNumber(value=0, precision=0, label="budget")
        size, mode = gr.Textbox("", label="size"), gr.Textbox("J", label="mode")
        weights = gr.JSON(WEIGHTS, label="weights")
        picture = PictureFile(label="picture", type="filepath", image_mode=None)
        instruction, shows = gr.Textbox(label="instruction"), gr.Textbox("", label="shows")
        strength = gr.Number(0, label="strength")
        region, method = gr.Textbox("", label="region"), gr.Textbox("", label="method")
        steering = gr.JSON({}, label="weights")
        answers = gr.JSON([], label="answers")
        drawn = [
            gr.Image(label="picture", type="filepath", format="png"),
            gr.File(label="pictures", file_count="multiple"),
            gr.JSON(label="result"),
        ]
        record = gr.JSON(label="result")
        drawing = [prompt, rewrite, num, seed, negative, size, steps]
        _add(calls.rewrite, [prompt, seed], record)
        _add(calls.draw, [prompt, rewrite, seed], drawn[0])
        _add(calls.generate, drawing, drawn)
        _add(calls.compare, [prompt, num, seed, rewards], drawn)
        _add(calls.best, [prompt, rewrite, num, seed, rewards], drawn)
        _add(calls.guide, [prompt, weights, mode, budget, rewrite, num, seed], drawn)
        how = [region, method, steering, steps]
        _add(calls.edit, [picture, instruction, shows, strength, seed, *how], drawn)
        _add(calls.score, [picture, prompt, rewards], record)
        _add(calls.ask, [prompt, answers, seed], drawn)
        _add(calls.models, [], record)


def _add(call: Callable[..., Any], inputs: Sequence[Any], outputs: Any) -> None:
    gr.on(
        [], call, list(inputs), outputs,
        api_name=call.__name__, concurrency_limit=None, show_progress="hidden",
    )  # fmt: skip


class _Calls:
    """One method for each endpoint; their names, signatures and words are what clients see."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def rewrite(self, prompt: str, seed: int, request: gr.Request) -> dict[str, Any]:
        """Rewrite a prompt so that the text-to-image model understands it. No picture is drawn.

        Args:
            prompt: what the picture should show, in the user's own words
            seed: whole number; the same seed gives the same rewrite

        Returns:
            text, status (accepted, unchanged, reverted, failed), negative, reasoning, checks
        """
        from t2x.studio.comparing import rewritten

        asked = CompareRequest(self._words(prompt, seed), seed=seed)

        def run(work: Work) -> dict[str, Any]:
            rewrite = rewritten(work, asked)
            if rewrite is None:
                raise T2XError(" ".join(work.told.notes) or "the studio has no rewriter")
            return dict(plain(rewrite))

        return dict(self._finish(TaskRequest("rewrite", run), request).answer)

    def draw(
        self, prompt: str, rewrite: bool, seed: int, request: gr.Request
    ) -> Iterator[str | None]:
        """Draw one picture of a prompt and give it alone, for tools that look at it.

        Args:
            prompt: what the picture should show
            rewrite: whether the prompt is rewritten for the model first
            seed: whole number; the same seed gives the same picture

        Returns:
            the picture, a PNG with its recipe
        """
        asked = BestOfRequest(_words(prompt), num=1, seed=seed, rewrite=bool(rewrite), rewards=())
        for picture, _, _ in self._drawn(asked, request):
            yield picture

    def generate(
        self,
        prompt: str,
        rewrite: bool,
        num: int,
        seed: int,
        negative: str,
        size: str,
        steps: int,
        request: gr.Request,
    ) -> Iterator[Pictures]:
        """Draw pictures of a prompt, which is rewritten first unless that is switched off.

        Args:
            prompt: what the picture should show
            rewrite: whether the prompt is rewritten for the model first
            num: how many pictures
            seed: of the first picture; the next ones have the numbers after it
            negative: what must not be shown
            size: height and width in pixels, like 512x768; empty for the model's own
            steps: of the denoiser; 0 for the model's own

        Returns:
            the first picture, all pictures as PNG files with their recipes, and the rewrite
        """
        sampling = Sampling(_size(size), steps or None)
        asked = BestOfRequest(
            _words(prompt), num=num, seed=seed, rewrite=bool(rewrite),
            negative=negative or "", sampling=sampling, rewards=(),
        )  # fmt: skip
        yield from self._drawn(asked, request)

    def compare(
        self, prompt: str, num: int, seed: int, rewards: str, request: gr.Request
    ) -> Iterator[Pictures]:
        """Draw a prompt as it is and rewritten, from the same seeds, and score both against it.

        Args:
            prompt: what the picture should show
            num: pictures of each
            seed: of the first pair
            rewards: names of what scores, with commas; empty for the studio's choice

        Returns:
            the first rewritten picture, all pictures, and the rewrite and scores of both
        """
        names = _names(rewards)
        asked = CompareRequest(_words(prompt), num=num, seed=seed, rewards=names)
        yield from self._drawn(asked, request, first="rewritten")

    def best(
        self, prompt: str, rewrite: bool, num: int, seed: int, rewards: str, request: gr.Request
    ) -> Iterator[Pictures]:
        """Draw several pictures of a prompt and order them by the first reward, the best first.

        Args:
            prompt: what the picture should show
            rewrite: whether the prompt is rewritten for the model first
            num: how many pictures
            seed: of the first picture
            rewards: names of what scores, with commas; empty for the studio's choice

        Returns:
            the best picture, all pictures from the best on, and their scores by seed
        """
        asked = BestOfRequest(
            _words(prompt), num=num, seed=seed, rewrite=bool(rewrite),
            rewards=_names(rewards),
        )  # fmt: skip
        yield from self._drawn(asked, request, sort=True)

    def guide(
        self,
        prompt: str,
        weights: Any,
        mode: str,
        budget: int,
        rewrite: bool,
        num: int,
        seed: int,
        request: gr.Request,
    ) -> Iterator[Pictures]:
        """Draw a prompt while rewards steer the model, beside the same seeds without.

        Args:
            prompt: what the picture should show
            weights: of the rewards that steer, by name, like {"questions": 1, "clip": 0.3}
            mode: E (through the decoder), J (through the denoiser too), particles, search, noise
            budget: evaluations of the denoiser for each picture; 0 for the mode's own
            rewrite: whether the prompt is rewritten for the model first
            num: how many pictures
            seed: of the first picture

        Returns:
            the first steered picture, all pictures, and the scores of both
        """
        asked = GuideRequest(
            _words(prompt), weights=_weights(weights), mode=mode, rewrite=bool(rewrite),
            budget=budget or None, num=num, seed=seed,
        )  # fmt: skip
        yield from self._drawn(asked, request, first="guided")

    def edit(
        self,
        picture: str | None,
        instruction: str,
        shows: str,
        strength: float,
        seed: int,
        region: str,
        method: str,
        weights: Any,
        steps: int,
        request: gr.Request,
    ) -> Iterator[Pictures]:
        """Change a picture by an instruction.

        Args:
            picture: the picture to change
            instruction: what to change, like: make the cat blue
            shows: what the picture shows now, which some methods need
            strength: up to 1 (drawn anew); 0 for the method's own
            seed: whole number
            region: left, top, right and bottom of the box that may change, each from 0 to 1, like
                0,0,0.5,1 for the left half; empty for everywhere
            method: flowedit, sdedit or rewardflow; empty for the one that fits
            weights: of rewards that steer the edit, by name, like {"vqa": 1}
            steps: of the denoiser; 0 for the model's own

        Returns:
            the changed picture, what the model saw and the changed one, their scores, how much of
            the picture changed (0 to 1), and the decibels (PSNR) to which the rest was kept
        """
        steering = _weights(weights)
        try:
            box = region_of(region)
            pixels = read_dropped(picture).picture if picture else None
        except T2XError as error:
            _refuse(str(error))
        asked = EditRequest(
            pixels, instruction or "", source_prompt=shows or "", strength=strength or None,
            seed=seed, region=box, method=method or None, weights=steering,
            sampling=Sampling(steps=steps or None),
        )  # fmt: skip
        yield from self._drawn(asked, request, first="edited")

    def score(
        self, picture: str | None, prompt: str, rewards: str, request: gr.Request
    ) -> dict[str, Any]:
        """Score how well a picture fits a prompt; higher is better, null is not measured.

        Args:
            picture: the picture
            prompt: what it should show
            rewards: names of what scores, with commas; empty for the studio's choice

        Returns:
            for each reward its value, what the number means, its range, and why it is missing
        """
        from t2x.media import from_pil
        from t2x.studio.scoring import score_pictures

        if picture is None:
            _refuse("there is no picture to score; give one")
        words, names = self._words(prompt), _names(rewards)
        try:
            media = {"given": [from_pil([read_dropped(picture).picture])[0]]}
        except T2XError as error:
            _refuse(str(error))

        def run(work: Work) -> None:
            score_pictures(work, work.models.usual if names is None else names, words, media)

        entry = self._finish(TaskRequest("score", run), request)
        return {
            s.reward: {"value": plain(s.values["given"][0]), "scale": s.scale, "problem": s.problem}
            for s in entry.scores
        }

    def ask(self, prompt: str, answers: Any, seed: int, request: gr.Request) -> Iterator[Pictures]:
        """Ask the next short question that finds out what the user means, with pictures to choose
        from. Call it again with the answers so far; the result holds the prompt that they make.

        Args:
            prompt: the user's own words
            answers: a list of the answers so far, each one of the options of its question
            seed: whole number; the same in all calls of a conversation

        Returns:
            the first picture, one picture for each option, and question, options and prompt
        """
        from t2x.asking.elicitation import Elicitation

        words = self._words(prompt, seed)
        if not (isinstance(answers, list) and all(isinstance(a, str | int) for a in answers)):
            _refuse("answers are a list of texts, each one of the options of its question")

        def run(work: Work) -> Any:
            asking = Elicitation(words, generator=work.models.generator(), seed=seed)
            for answer in answers:
                work.check()
                asking.answer(answer)
            return asking.next_question(), asking.prompt()

        question, made = self._finish(TaskRequest("ask", run), request).answer
        yield from _asked(question, made, words=words, seed=seed)

    def models(self) -> dict[str, Any]:
        """Tell which models the studio has, whether they are ready, and how many jobs wait.

        Returns:
            generator, rewriter, rewards and waiting
        """
        return dict(plain(self._desk.studio.state()))

    def _words(self, prompt: str | None, seed: int = 0) -> str:
        """A prompt that a job without a request of its own may use, with this seed."""
        words = _words(prompt)
        try:
            check_request(CompareRequest(words, seed=seed), self._desk.studio.limits)
        except T2XError as error:
            _refuse(str(error))
        return words

    # ---- jobs -----------------------------------------------------------------------------------

    def _finish(self, asked: Request, request: gr.Request) -> Entry:
        """Do a job to its end. Raises gr.Error with what went wrong."""
        events = self._desk.studio.run(asked, user=user_of(None, request))
        for event in self._desk.follow(events, page=page_of(request, f"call-{id(events)}")):
            if isinstance(event, Finished):
                return event.entry
            if isinstance(event, Failed):
                _refuse(event.message)
            if isinstance(event, Cancelled):
                _refuse("the job was cancelled")
        _refuse("the job ended without an answer")

    def _drawn(
        self, asked: Any, request: gr.Request, *, first: str = "", sort: bool = False
    ) -> Iterator[Pictures]:
        """Do a job and give its pictures as files, which are removed once they are sent."""
        entry = self._finish(asked, request)
        album = Album(asked, scores=list(entry.scores))
        try:
            for drawn in entry.pictures:
                album.add(drawn)
            if sort and album.measured():
                album.sort(album.measured()[0])
            placed = {arm: [p.path for p in album.placed(arm)] for arm in album.arms}
            paths = [path for arm in placed.values() for path in arm]
            yield next(iter(placed.get(first) or paths), None), paths, _record(entry)
        finally:
            album.remove()


def _asked(question: Any, made: str, *, words: str, seed: int) -> Iterator[Pictures]:
    """A question with a picture for each option; without one the prompt is all there is to say."""
    from t2x.asking.turns import middles
    from t2x.media import to_pil

    album = Album()
    record: dict[str, Any] = {"prompt": made, "question": None, "options": []}
    try:
        if question is not None:
            record |= {"question": question.text, "options": list(question.feature.answers)}
            frames = to_pil(question.pictures)
            pictures = middles(frames, len(question.options))
            for index, (text, picture) in enumerate(zip(question.texts, pictures, strict=True)):
                recipe = {"prompt": words, "text": text, "seed": seed}
                album.add(Drawn("option", index, seed, picture, recipe))
        paths = [picture.path for picture in album.placed("option")]
        yield next(iter(paths), None), paths, record
    finally:
        album.remove()


def _record(entry: Entry) -> dict[str, Any]:
    """What an endpoint tells beside the pictures, as JSON."""
    return dict(
        plain(
            {
                "job": entry.job,
                "words": entry.words,
                "rewrite": entry.rewrite,
                "pictures": [_picture_record(drawn) for drawn in entry.pictures],
                "scores": {score.reward: score.values for score in entry.scores},
                "problems": {s.reward: s.problem for s in entry.scores if s.problem},
                "seconds": entry.seconds,
                "notes": entry.notes,
            }
        )
    )


def _picture_record(drawn: Drawn) -> dict[str, Any]:
    record = {"arm": drawn.arm, "index": drawn.index, "seed": drawn.seed}
    if drawn.change is not None:
        record |= {"changed": drawn.change.share, "kept_psnr": drawn.change.kept}
    return record


def _refuse(message: str) -> NoReturn:
    raise refusal(message)


def _words(prompt: str | None) -> str:
    if not (prompt or "").strip():
        _refuse("the prompt is empty; say what the picture should show")
    return str(prompt)


def _weights(weights: Any) -> dict[str, float]:
    if not isinstance(weights, Mapping):
        _refuse('weights are numbers by name, like {"questions": 1, "clip": 0.3}')
    return dict(weights)


def _names(rewards: str | None) -> tuple[str, ...] | None:
    """Names with commas between them; None for none."""
    return tuple(name.strip() for name in (rewards or "").split(",") if name.strip()) or None


def _size(text: str | None) -> tuple[int, int] | None:
    if not (text or "").strip():
        return None
    height, _, width = str(text).lower().partition("x")
    if not (height.strip().isdecimal() and width.strip().isdecimal()):
        _refuse(f"a size is height and width in pixels, like 512x768; got {str(text)[:40]!r}")
    return int(height), int(width)
