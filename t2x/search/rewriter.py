"""The search itself: rounds of proposals, guarded, drawn and scored, until the pictures are spent.

Every method gets the same budget of pictures, the one of the user's own words included. A text is
drawn once for each seed, however often it is proposed; what a method can't spend on new texts goes
into further seeds of the two leading candidates, so that the winner rests on more than one draw.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, Self

from t2x.errors import T2XError
from t2x.prompts.protect import protect
from t2x.search.evaluator import Evaluator, Inspector, Order
from t2x.search.history import History
from t2x.search.records import NO_REWRITE, Candidate, Proposal, Refusal, Track
from t2x.search.writer import Writer
from t2x.types import Rewrite

if TYPE_CHECKING:
    from pathlib import Path

    from t2x.types import Generator, RewardModel, Rewriter

__all__ = ["Method", "SearchRewriter"]

IDLE = 2  # rounds without one new text, after which a prompt's search has no more ideas
CHUNK = 64  # prompts whose pictures are in memory together
LEADERS = 2


class Method(Protocol):
    """A way to come to new texts. ``inspector`` is None where no picture has to be looked at."""

    name: str
    inspector: Inspector | None

    def propose(self, tracks: Sequence[Track], writer: Writer) -> list[list[Proposal]]:
        """For each track, texts to try in this round, those to try first in front; at most
        :meth:`width` of them that are new and sound are drawn."""
        ...

    def width(self, track: Track) -> int:
        """How many new texts this round may draw."""
        ...

    def settings(self) -> dict[str, Any]:
        """What decides its outcome, as plain values."""
        ...


class SearchRewriter:
    """A ``Rewriter`` that tries texts out and gives back the best.

    Args:
        rewriter: what proposes, as ``load_rewriter`` takes it; it is wrapped in ``Guarded``.
        generator: what draws, as ``load_generator`` takes it.
        rewards: names or loaded objects; several are summed with ``weights`` (by name, 1 without),
            so on different scales they need some; names with their weights, {"clip": 1.0}, say
            both. A ``RewardEnsemble`` combines as it was told.
        method: how new texts come about, one of ``t2x.search``.
        budget: pictures per prompt, at least 2.
        seeds: pictures of each candidate; more cost more and make the choice less noisy.
        confirm: pictures of the budget that are kept for further seeds of the leaders.
        instructs: whether the rewriter follows instructions; None finds out
            (``t2x.search.writer``).
        batch_size: pictures drawn and scored at a time.
        count_flops: count the FLOPs of one sample in each phase, in a run of its own.
        progress: hears (what, done, total).
    """

    guards_itself = True  # no guard around it would see more

    def __init__(
        self,
        rewriter: str | Path | Rewriter,
        generator: str | Path | Generator,
        rewards: Sequence[str | RewardModel] | Mapping[str, float] | str | RewardModel,
        *,
        method: Method,
        budget: int = 8,
        seeds: int = 1,
        confirm: int = 0,
        weights: Mapping[str, float] | None = None,
        instructs: bool | None = None,
        **options: Any,
    ) -> None:
        from t2x.registry import load_generator, load_reward
        from t2x.rewriters.loading import load_guard

        _check_numbers(budget, seeds, confirm)
        self.method, self.budget, self.seeds, self.confirm = method, budget, seeds, confirm
        model = load_generator(generator)
        given = [rewards] if isinstance(rewards, str) or hasattr(rewards, "score") else rewards
        loaded = [load_reward(reward) for reward in given]
        if isinstance(given, Mapping):
            weights = {r.name: given[name] for r, name in zip(loaded, given, strict=True)}
        self.evaluator = Evaluator(model, loaded, dict(weights or {}), **options)
        guarded = load_guard(rewriter, generator=model)
        flops = self.evaluator.count_flops
        self.writer = Writer(guarded, instructs=instructs, count_flops=flops)
        self.model_id = f"search:{method.name}({guarded.model_id})"
        self.domain = self.writer.domain
        self.shares = False

    @classmethod
    def sharing(cls, evaluator: Evaluator, writer: Writer, method: Method, **numbers: int) -> Self:
        """A search beside others of the same prompts: what one has drawn or written costs the next
        no time. ``numbers`` are budget, seeds and confirm. Pictures and texts are kept until the
        caller clears evaluator and writer."""
        search = cls.__new__(cls)
        numbers = {"budget": 8, "seeds": 1, "confirm": 0, **numbers}
        _check_numbers(**numbers)
        search.method, search.evaluator, search.writer = method, evaluator, writer
        search.budget, search.seeds = numbers["budget"], numbers["seeds"]
        search.confirm = numbers["confirm"]
        search.model_id = f"search:{method.name}({writer.guarded.model_id})"
        search.domain = writer.domain
        search.shares = True
        return search

    # ---- the contract of a rewriter -------------------------------------------------------------

    def rewrite(
        self, prompts: Sequence[str], *, num_generations: int = 1, seed: int = 0
    ) -> list[list[Rewrite]]:
        """Give the best ``num_generations`` texts for each of B prompts, the winner first.

        Their ``scores`` are means of each reward, ``search/score`` and ``search/pictures``; what
        was not better than the user's own words is not given: these come in its place, and a last
        check says so.
        """
        if isinstance(prompts, str):
            raise TypeError("prompts is one string; give a list of strings")
        return [h.rewrites(num_generations) for h in self.search(list(prompts), seed=seed)]

    def search(
        self,
        prompts: Sequence[str],
        *,
        seed: int = 0,
        picture_seeds: Sequence[Sequence[int]] | None = None,
    ) -> Iterator[History]:
        """Search for each prompt, and give what happened, prompt by prompt, in order.

        Prompts are worked on ``CHUNK`` at a time, their pictures drawn together. ``picture_seeds``
        are the seeds of each prompt's pictures in the order of use, as many as the budget; without,
        ``seed``, ``seed`` + 1, and so on, the same for all prompts.
        """
        plain = [range(seed, seed + self.budget)] * len(prompts)
        noise = plain if picture_seeds is None else picture_seeds
        if len(noise) != len(prompts) or any(len(set(row)) < self.budget for row in noise):
            raise T2XError(
                f"picture_seeds must hold {self.budget} different seeds for each of {len(prompts)} "
                "prompts"
            )
        for start in range(0, len(prompts), CHUNK):
            part = slice(start, start + CHUNK)
            tracks = [
                self._begin(prompt, tuple(row), seed)
                for prompt, row in zip(prompts[part], noise[part], strict=True)
            ]
            self._run(tracks)
            if not self.shares:  # or memory would grow with the number of prompts
                self.evaluator.clear()
                self.writer.clear()
            yield from (History.of(track, self.settings()) for track in tracks)

    def settings(self) -> dict[str, Any]:
        """What decides the outcome, as plain values; ``operators`` says how new texts come
        about."""
        rewards = {r.name: self.evaluator.ensemble.weights[r.name] for r in self.evaluator.rewards}
        operators = "instructions to the rewriter" if self.writer.instructs else "clauses"
        return {
            "method": self.method.name,
            "rewriter": self.writer.guarded.model_id,
            "generator": self.evaluator.generator.model_id,
            "rewards": rewards,
            "operators": operators,
            "budget": self.budget,
            "seeds": self.seeds,
            "confirm": self.confirm,
            **self.method.settings(),
        }

    # ---- rounds ---------------------------------------------------------------------------------

    def _begin(self, prompt: str, noise: tuple[int, ...], seed: int) -> Track:
        if not isinstance(prompt, str):
            raise TypeError(f"a prompt is a string, given {type(prompt).__name__}")
        sources = protect(prompt).sources
        budget = self.budget if prompt.strip() else 0
        track = Track(prompt, sources, noise[: self.budget], budget, seed)
        # The guard's own words about a prompt that it gives back: its token counts and its limits.
        same = tuple(Rewrite(s, s, seed=seed) for s in sources)
        rewrite = self.writer.guarded.judge(prompt, same, seed=seed)
        rewrite = replace(rewrite, status="unchanged", negative="", text=prompt)
        track.candidates.append(Candidate(0, sources, rewrite, NO_REWRITE))
        return track

    def _run(self, tracks: Sequence[Track]) -> None:
        live = [t for t in tracks if t.budget]
        self._shoot([(t, t.candidates[0]) for t in live])
        while live := [t for t in live if self._goes_on(t)]:
            for track in live:
                track.turn += 1
            found = self.method.propose(live, self.writer)
            new = []
            for track, proposals in zip(live, found, strict=True):
                admitted = self._admit(track, proposals)
                track.idle = 0 if admitted else track.idle + 1
                new += [(track, candidate) for candidate in admitted]
            self._shoot(new)
        self._confirm([t for t in tracks if t.budget])

    def _goes_on(self, track: Track) -> bool:
        open_ = track.left - self.confirm >= self.seeds and track.idle < IDLE
        return open_ and bool(track.sources)

    def _admit(self, track: Track, proposals: Sequence[Proposal]) -> list[Candidate]:
        """Candidates that are new and that the guard lets through, as many as may be drawn."""
        room = min(self.method.width(track), (track.left - self.confirm) // self.seeds)
        known = {(c.rewrite.text, c.rewrite.negative) for c in track.candidates}
        admitted: list[Candidate] = []
        for proposal in proposals:
            if len(admitted) >= room:
                break
            parts = tuple(part.text for part in proposal.parts)
            repeated = parts in track.tried and not any(p.negative for p in proposal.parts)
            track.tried.add(parts)
            rewrite = track.candidates[0].rewrite
            if not repeated:
                rewrite = self.writer.judge(track, proposal)
            if reason := "tried before" if repeated else _refused(rewrite, known):
                said = " ".join(parts)
                track.refusals.append(Refusal(said, proposal.operator, track.turn, reason))
                continue
            known.add((rewrite.text, rewrite.negative))
            candidate = Candidate(
                len(track.candidates) + len(admitted),
                parts,
                rewrite,
                proposal.operator,
                proposal.parents,
                track.turn,
            )
            admitted.append(candidate)
        track.candidates += admitted
        return admitted

    def _confirm(self, tracks: Sequence[Track]) -> None:
        """Spend what is left on further seeds of the leaders, in turn."""
        orders: list[tuple[Track, Candidate, int]] = []
        for track in tracks:
            leaders = track.ranked()[:LEADERS]
            further = track.seeds[self.seeds :]
            pairs = [(c, s) for s in further for c in leaders][: max(track.left, 0)]
            if pairs:
                track.leaders = tuple(c.number for c in leaders)
            orders += [(track, c, s) for c, s in pairs]
        self._draw(orders)

    # ---- pictures -------------------------------------------------------------------------------

    def _shoot(self, new: Sequence[tuple[Track, Candidate]]) -> None:
        """Draw candidates from their first seeds, and look at them where the method wants that."""
        self._draw([(t, c, s) for t, c in new for s in t.seeds[: self.seeds]])
        inspector = self.method.inspector
        if inspector is None or not new:
            return
        orders = [_order(t, c, t.seeds[0]) for t, c in new]
        for (track, candidate), look in zip(
            new, self.evaluator.look(inspector, orders), strict=True
        ):
            candidate.points, candidate.remarks = read_details(look.found)
            track.cost.reward_calls += 1
            track.cost.add_seconds("looking", look.seconds)
            track.cost.add_flops(look.flops)

    def _draw(self, wanted: Sequence[tuple[Track, Candidate, int]]) -> None:
        shots = self.evaluator.draw([_order(*row) for row in wanted])
        for (track, candidate, seed), shot in zip(wanted, shots, strict=True):
            candidate.shots[seed] = shot
            track.cost.charge(shot)


def _check_numbers(budget: int, seeds: int, confirm: int) -> None:
    if budget < 2:
        raise T2XError(f"budget is {budget}; give at least 2 pictures, one is of the prompt itself")
    if not 1 <= seeds <= budget or not 0 <= confirm <= budget - 2:
        raise T2XError(
            f"seeds is {seeds} and confirm {confirm} with a budget of {budget} pictures; give at "
            "least 1 seed per candidate, and keep two pictures or more for candidates"
        )


def _order(track: Track, candidate: Candidate, seed: int) -> Order:
    rewrite = candidate.rewrite
    return Order(track.prompt, rewrite.text, rewrite.negative, seed)


def _refused(rewrite: Rewrite, known: set[tuple[str, str]]) -> str:
    """Why a judged proposal is not drawn; "" if it is."""
    if rewrite.status != "accepted":
        reasons = [check.reason for check in rewrite.checks if not check.passed]
        return f"{rewrite.status}: {'; '.join(reasons)}" if reasons else rewrite.status
    return "tried before" if (rewrite.text, rewrite.negative) in known else ""


def read_details(found: Any) -> tuple[dict[str, float], tuple[str, ...]]:
    """Key points and remarks from what an inspector says of one picture.

    ``align`` gives key points by group, ``critique`` texts with a score each; a score that does not
    apply or could not be read is no key point.
    """
    if isinstance(found, Mapping):
        points: dict[str, float] = {}
        for group, inner in found.items():
            own = inner if isinstance(inner, Mapping) else {group: inner}
            points |= {str(name): float(value) for name, value in own.items()}
        return {k: v for k, v in points.items() if not math.isnan(v)}, ()
    points = {
        c.dimension: float(c.score)
        for c in found
        if c.score is not None and not math.isnan(c.score)
    }
    return points, tuple(c.text for c in found)
