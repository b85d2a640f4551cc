"""What a policy writes for a round of REBEL, drawn and scored: two samples for each prompt."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from t2x.errors import T2XError
from t2x.rewriters.completion import Completion
from t2x.rewriters.language_model import LanguageModelRewriter
from t2x.rollouts.reading import policy_text
from t2x.rollouts.records import Outcome, rollout_seeds
from t2x.rollouts.scorer import RolloutScorer
from t2x.training.policy import Policy
from t2x.training.round_section import RoundSection
from t2x.training.rounds import Round, ScoredPair

__all__ = ["RoundWriter"]

_SAMPLES = 2


class RoundWriter:
    """Writes and scores a round, this process's share of it: ``RebelTrainer``'s ``write``.

    Prompts are taken in an order shuffled anew at each pass; texts, pictures and their seeds depend
    on the run's seed, the round and the prompt alone. Pairs are left out that are equal, cut off,
    or not measured; what a policy fails at keeps the fixed score of failures. ``tell`` gets the
    outcomes of every round.
    """

    def __init__(
        self,
        policy: Policy,
        scorer: RolloutScorer,
        prompts: Sequence[str],
        section: RoundSection,
        *,
        pictures: int,
        seed: int,
        tell: Callable[[Sequence[Outcome]], None] = lambda outcomes: None,
    ) -> None:
        if len(prompts) < section.prompts:
            raise T2XError(
                f"{len(prompts)} prompts are fewer than the {section.prompts} of a round; give "
                "more, or set rebel.prompts"
            )
        # The policy's own distribution: nothing is cut from it.
        template = replace(
            policy.template, top_p=1.0, top_k=0, min_p=0.0, repetition_penalty=1.0, num_beams=1
        )
        self._policy, self._scorer, self._prompts, self._section = policy, scorer, prompts, section
        self._pictures, self._seed, self._tell = pictures, seed, tell
        self._rewriter = LanguageModelRewriter(
            policy.model,
            policy.tokenizer,
            template=template,
            batch_size=section.batch_size,
            temperature=section.temperature,
            exact=False,
        )

    def __call__(self, number: int) -> Round:
        """Write round ``number``."""
        places, prompts = self._of_round(number)
        seed = random.Random(f"rebel {self._seed} {number}").getrandbits(32)
        written = self._rewriter.complete(
            [policy_text(p) for p in prompts], num_generations=_SAMPLES, seed=seed
        )
        step = 0 if self._scorer.config.fixed_seeds else number
        pictures = [rollout_seeds(self._seed, step, p, self._pictures) for p in prompts]
        outcomes = self._scorer.score(
            [p for p in prompts for _ in range(_SAMPLES)],
            [completion for group in written for completion in group],
            seeds=[seeds for seeds in pictures for _ in range(_SAMPLES)],
            groups=[i for i in range(len(prompts)) for _ in range(_SAMPLES)],
        )
        self._tell(outcomes)
        pairs: list[ScoredPair] = []
        for i, (prompt, (first, second)) in enumerate(zip(prompts, written, strict=True)):
            ours = outcomes[_SAMPLES * i : _SAMPLES * (i + 1)]
            if first.text != second.text and not any(math.isnan(o.reward) for o in ours):
                pairs.append(self._pair(prompt, (first, second), ours, places[i]))
        return Round(pairs, self._scorer.metrics)

    def _of_round(self, number: int) -> tuple[range, list[str]]:
        """This process's prompts of a round, and their places in it."""
        from accelerate import PartialState

        size, total = self._section.prompts, len(self._prompts)
        orders: dict[int, list[int]] = {}
        chosen = []
        for place in range(number * size, (number + 1) * size):
            turn, index = divmod(place, total)
            if turn not in orders:
                orders[turn] = list(range(total))
                random.Random(f"prompts {self._seed} {turn}").shuffle(orders[turn])
            chosen.append(self._prompts[orders[turn][index]])
        processes = PartialState()
        places = range(processes.process_index, size, processes.num_processes)
        return places, [chosen[place] for place in places]

    def _pair(
        self,
        prompt: str,
        texts: tuple[Completion, Completion],
        outcomes: Sequence[Outcome],
        place: int,
    ) -> ScoredPair:
        first, second = (list(completion.ids) for completion in texts)
        asked = self._policy.encoder.encode(policy_text(prompt))
        one, two = (outcome.reward for outcome in outcomes)
        return ScoredPair(asked, first, second, one, two, place)
