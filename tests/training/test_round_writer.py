"""What a policy writes for a round of REBEL, with the models behind it left out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from t2x.rewriters.completion import Completion
from t2x.rewriters.templates import Template
from t2x.rollouts.config import RolloutConfig
from t2x.training.round_section import RoundSection

pytestmark = pytest.mark.extra("train")


class Echo:
    """Writes the same twice, so that there is no pair to tokenise."""

    def __init__(self, *_: Any, **options: Any) -> None:
        pass

    def complete(self, prompts: list[str], *, num_generations: int, seed: int) -> Any:
        return [[Completion(prompt)] * num_generations for prompt in prompts]


@pytest.mark.parametrize("fixed", [False, True])
def test_fixed_seeds_are_those_of_a_prompt_in_every_round(
    fixed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from t2x.training import round_writer

    monkeypatch.setattr(round_writer, "LanguageModelRewriter", Echo)
    rounds: list[dict[str, tuple[int, ...]]] = []

    def score(originals: Any, completions: Any, *, seeds: Any, groups: Any) -> Any:
        rounds.append(dict(zip(originals, seeds, strict=True)))
        return [SimpleNamespace(reward=0.0)] * len(originals)

    scorer: Any = SimpleNamespace(
        score=score,
        config=RolloutConfig(fixed_seeds=fixed),
        metrics={},
        measurer=SimpleNamespace(drawn=0),
    )
    policy: Any = SimpleNamespace(model=None, tokenizer=None, template=Template())
    write = round_writer.RoundWriter(
        policy, scorer, ["a cat", "a dog"], RoundSection(prompts=2), pictures=2, seed=3
    )
    write(0)
    write(1)
    assert rounds[0].keys() == rounds[1].keys() == {"a cat", "a dog"}
    assert (rounds[0] == rounds[1]) is fixed
