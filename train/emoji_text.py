"""Pre-train the text encoder of emoji-flow on captions alone, as real generators start from a
trained text encoder.

    t2x world train emoji-text --out runs/emoji-text

Nine learnt queries, one per slot of the picture, attend to the hidden states and read off which
class lies there, and in which colour. What the generator's cross-attention needs later, words that
know their place, colour and number, is there from the start; without it the generator ignored its
prompts for the first 60,000 pictures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from t2x.devices import set_threads
from t2x.files import write_metrics
from t2x.world.captions import sample_pair, sample_told_layout
from t2x.world.checkpoint import Stateful
from t2x.world.render import SLOT_CENTERS, Placed
from t2x.world.scene import CLASSES, COLORS
from t2x.world.tokenizer import build_clip_tokenizer, tokenize
from t2x.world.training import (
    Budget,
    autocast,
    descend,
    learning_rate,
    run_training,
)

from .emoji_flow import WIDTH, build_text_encoder

BATCH = 64
PEAK_LR = 1e-3
DEFAULT_STEPS = 2_500
MEASURED = 1_024  # captions
TOKENIZER_TEXTS = 4_000
SLOTS = tuple(SLOT_CENTERS)
ABSENT = -100  # the colour of an empty slot is not asked


class SlotReader(nn.Module):
    """Cross-attention from one query per slot to the words, and two linear heads."""

    def __init__(self) -> None:
        super().__init__()
        self.queries = nn.Parameter(torch.randn(len(SLOTS), WIDTH) * WIDTH**-0.5)
        self.attention = nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.cls = nn.Linear(WIDTH, len(CLASSES) + 1)
        self.color = nn.Linear(WIDTH, len(COLORS) + 1)

    def forward(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Hidden states (N, T, D) to logits of class (N, 9, classes + 1) and colour (N, 9, colours
        + 1)."""
        queries = self.queries.expand(len(hidden), -1, -1)
        read, _ = self.attention(queries, hidden, hidden)
        return self.cls(read), self.color(read)


def slot_targets(layouts: Sequence[Sequence[Placed]]) -> tuple[Tensor, Tensor]:
    """Class (0: empty) and colour (0: natural, ``ABSENT``: empty slot) of every slot: (N, 9)
    each."""
    cls = torch.zeros(len(layouts), len(SLOTS), dtype=torch.long)
    color = torch.full((len(layouts), len(SLOTS)), ABSENT)
    for row, placed in enumerate(layouts):
        for p in placed:
            slot = SLOTS.index(p.slot)
            cls[row, slot] = 1 + CLASSES.index(p.cls)
            color[row, slot] = 1 + COLORS.index(p.color) if p.color else 0
    return cls, color


def read_slots(model: nn.ModuleDict, tokenizer: Any, first: int) -> tuple[Tensor, ...]:
    """Logits of class and colour for captions number ``first`` and on, and what is true."""
    texts, layouts = zip(*(sample_told_layout(first + i) for i in range(BATCH)), strict=True)
    with autocast():
        of_class, of_color = model["reader"](model["encoder"](tokenize(tokenizer, texts))[0])
    return of_class.float(), of_color.float(), *slot_targets(layouts)


@torch.no_grad()
def measure(
    model: nn.ModuleDict, tokenizer: Any, *, first: int = 10**9, count: int | None = None
) -> dict[str, float]:
    """On ``count`` fresh captions: share of all slots whose class, empty ones included, is read
    right, and of the occupied ones whose colour is."""
    count = MEASURED if count is None else count
    classes, colors = [], []
    for start in range(first, first + count, BATCH):
        of_class, of_color, cls, color = read_slots(model, tokenizer, start)
        classes.append(of_class.argmax(-1) == cls)
        colors.append((of_color.argmax(-1) == color)[cls > 0])
    return {
        "slot_class": float(torch.cat(classes).float().mean()),
        "slot_color": float(torch.cat(colors).float().mean()),
    }


def main(
    *,
    out: Path,
    minutes: float | None = None,
    steps: int | None = None,
    seed: int = 0,
    resume: bool = True,
    threads: int | None = None,
) -> dict[str, float]:
    """Train and save ``out/text_encoder`` and ``out/tokenizer``; return what ``measure`` finds,
    steps and seconds."""
    set_threads(threads)
    budget = Budget.given(steps, minutes, Budget(steps=DEFAULT_STEPS))
    torch.manual_seed(seed)
    tokenizer = build_clip_tokenizer(sample_pair(i).text for i in range(TOKENIZER_TEXTS))
    encoder = build_text_encoder(len(tokenizer))
    encoder.set_attn_implementation("eager")
    model = nn.ModuleDict({"encoder": encoder, "reader": SlotReader()})
    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK_LR, weight_decay=0.01)

    def step_fn(step: int, fraction: float) -> Mapping[str, float | Tensor]:
        of_class, of_color, cls, color = read_slots(model, tokenizer, (seed << 32) + step * BATCH)
        loss = nn.functional.cross_entropy(of_class.flatten(0, 1), cls.flatten())
        loss = loss + nn.functional.cross_entropy(
            of_color.flatten(0, 1), color.flatten(), ignore_index=ABSENT
        )
        descend(loss, optimizer, learning_rate(fraction, PEAK_LR))
        return {"loss": loss.detach()}

    state: dict[str, Stateful] = {"model": model, "optimizer": optimizer}
    done, seconds = run_training(
        "emoji-text",
        step_fn,
        state,
        folder=out,
        budget=budget,
        settings={"seed": seed},
        resume=resume,
    )
    encoder.save_pretrained(out / "text_encoder")
    tokenizer.save_pretrained(out / "tokenizer")
    metrics = measure(model, tokenizer) | {"steps": done, "seconds": seconds}
    return write_metrics(out, metrics)
