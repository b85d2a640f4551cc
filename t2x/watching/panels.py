"""Which curves a report shows, in which order and under which words."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PANELS", "Panel"]


@dataclass(frozen=True)
class Panel:
    """One curve: ``key`` of ``log.jsonl``, the key of its standard ``error`` if it has one, whether
    ``zero`` means something, and whether it is a ``share``, which begins at 0."""

    key: str
    title: str
    error: str = ""
    zero: bool = False
    share: bool = False


PANELS = {
    "Reward": (
        Panel("reward", "Training reward"),
        Panel("gain", "Gain over own words, training", zero=True),
        Panel("heldout/reward", "Held-out reward"),
        Panel("heldout/gain", "Gain over own words, held out", "heldout/gain_error", True),
    ),
    "Rewards by name": (),
    "Policy": (
        Panel("kl", "KL to the reference, nats per token", zero=True),
        Panel("kl/round", "KL to the policy that wrote the round, nats per token", zero=True),
        Panel("entropy", "Entropy, nats per token"),
        Panel("length", "Tokens per completion"),
        Panel("distinct_1", "Distinct words (distinct-1)"),
        Panel("distinct_2", "Distinct pairs of words (distinct-2)"),
        Panel("heldout/similarity", "Drift: meaning kept, held out"),
        Panel("heldout/words", "Words per rewrite, held out"),
        Panel("heldout/changed", "Share of prompts rewritten, held out"),
    ),
    "Failures": (
        Panel("zero_variance", "Groups without variance", share=True),
        Panel("truncated", "Cut off", share=True),
        Panel("failed", "No answer", share=True),
        Panel("broken", "A check not passed", share=True),
        Panel("missing", "Reward not measured", share=True),
        Panel("heldout/violations", "A check not passed, held out", share=True),
        Panel("heldout/failed", "No answer, held out", share=True),
        Panel("heldout/missing", "Reward not measured, held out", share=True),
    ),
    "Optimisation": (
        Panel("loss", "Loss"),
        Panel("heldout/loss", "Loss, held out"),
        Panel("pair_accuracy", "Pairs ranked right"),
        Panel("heldout/pair_accuracy", "Pairs ranked right, held out"),
        Panel("log_ratio/margin", "Margin of log ratios", zero=True),
        Panel("log_ratio/chosen", "Log ratio of the chosen", zero=True),
        Panel("log_ratio/rejected", "Log ratio of the rejected", zero=True),
        Panel("token_accuracy", "Tokens predicted right"),
        Panel("heldout/token_accuracy", "Tokens predicted right, held out"),
        Panel("grad_norm", "Gradient norm"),
        Panel("clipped", "Tokens clipped", share=True),
        Panel("learning_rate", "Learning rate"),
        Panel("floor", "Deviation that seeds alone make", share=True),
        Panel("advantage", "Size of the advantages", share=True),
        Panel("step_seconds", "Seconds per step", share=True),
        Panel("seconds/drawing", "Seconds of drawing", share=True),
        Panel("seconds/scoring", "Seconds of scoring", share=True),
    ),
}
