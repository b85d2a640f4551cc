"""What all rewriters with a model behind them share: B prompts become rows, equal rows are computed
once, and the order of the answer is that of the prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from t2x.errors import T2XError
from t2x.rewriters.completion import Completion
from t2x.rewriters.encoding import PromptEncoder
from t2x.rewriters.sampling import row_seed
from t2x.rewriters.templates import Template

__all__ = ["TokenRow", "check_sampling", "complete_rows", "generation_seed", "token_rows"]

Row = TypeVar("Row", bound=Hashable)


@dataclass(frozen=True)
class TokenRow:
    """The token ids of one input, and the seed of what is sampled behind it; None is greedy."""

    ids: tuple[int, ...]
    seed: int | None


def complete_rows(
    prompts: Sequence[str],
    make: Callable[[int, str], list[Row | Completion]],
    run: Callable[[list[Row]], list[Completion]],
    *,
    num_generations: int,
) -> list[list[Completion]]:
    """Give the completions of B prompts, B lists of ``num_generations``.

    ``make`` turns the place of a prompt and the prompt into its rows, or into completions that only
    hold a problem; ``run`` completes rows. An empty prompt fails alone. Raises TypeError for what
    is no list of strings, T2XError for fewer than one generation.
    """
    if isinstance(prompts, str):
        raise TypeError("prompts is one string; give a list of strings")
    if num_generations < 1:
        raise T2XError(f"num_generations is {num_generations}; give at least 1")
    rows: list[list[Row | Completion]] = []
    for index, prompt in enumerate(prompts):
        if not isinstance(prompt, str):
            raise TypeError(f"a prompt is a string, given {type(prompt).__name__}")
        empty = Completion(problem="the prompt is empty")
        rows.append(make(index, prompt) if prompt.strip() else [empty] * num_generations)
    unique = list(dict.fromkeys(r for g in rows for r in g if not isinstance(r, Completion)))
    done = dict(zip(unique, run(unique), strict=True)) if unique else {}
    return [[r if isinstance(r, Completion) else done[r] for r in group] for group in rows]


def check_sampling(temperature: float | None) -> None:
    """Refuse a temperature that is none: T2XError."""
    if temperature is not None and not 0 <= temperature < float("inf"):
        raise T2XError(f"temperature is {temperature}; give 0 for greedy or a positive number")


def generation_seed(
    prompt: str, generation: int, *, seed: int, temperature: float | None, template: Template
) -> int | None:
    """Seed of one generation; None where it is not sampled.

    With a temperature of None the first generation is not sampled and the others are, at the
    template's temperature; with 0 none is.
    """
    if temperature is None:
        greedy = generation == 0 or template.temperature == 0
    else:
        greedy = temperature == 0
    return None if greedy else row_seed(seed, prompt, generation=generation)


def token_rows(
    encoder: PromptEncoder,
    prompt: str,
    num_generations: int,
    *,
    context: int,
    seed: int,
    temperature: float | None,
) -> list[TokenRow | Completion]:
    """Give the rows of one prompt, or what says that ``context`` tokens are too few for it.

    ``temperature`` is what ``generation_seed`` takes.
    """
    template = encoder.template
    ids = tuple(encoder.encode(prompt))
    room = context - template.max_new_tokens
    if len(ids) > room:
        problem = f"the prompt takes {len(ids)} tokens, the model has room for {max(room, 0)}"
        return [Completion(problem=problem)] * num_generations
    return [
        TokenRow(
            ids,
            generation_seed(prompt, i, seed=seed, temperature=temperature, template=template),
        )
        for i in range(num_generations)
    ]
