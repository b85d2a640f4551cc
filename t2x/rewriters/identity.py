"""The no-rewrite arm: every comparison has it."""

from __future__ import annotations

from collections.abc import Sequence

from t2x.types import Rewrite

__all__ = ["IdentityRewriter"]


class IdentityRewriter:
    """Gives every prompt back as it is."""

    model_id = "none"

    def rewrite(
        self, prompts: Sequence[str], *, num_generations: int = 1, seed: int = 0
    ) -> list[list[Rewrite]]:
        """Give each of B prompts back ``num_generations`` times, status "unchanged"."""
        return [
            [Rewrite(p, p, status="unchanged", seed=seed, model_id=self.model_id)] * num_generations
            for p in prompts
        ]
