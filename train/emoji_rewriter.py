"""Train emoji-rewriter: emoji-lm after supervised fine-tuning on the mixed teacher.

    t2x world train emoji-rewriter --out runs/emoji-rewriter

Recipe of RePrompt (arXiv 2505.17540) and PromptEnhancer (arXiv 2509.04545), first stage: user
prompt -> <think>plan</think><answer>caption</answer>, loss on the completion. Differs: a tenth of
every batch is pretraining text, so that general English is not forgotten, and a few prompts hold a
stand-in such as ITEM1 that the answer must keep.

A plain loop, not TRL's SFTTrainer: the base install, which holds no TRL, must be able to re-train
every embedded model, and the data is drawn by number and never repeats, which a map-style data set
would have to store. Larger models: ``t2x.train``'s recipes on TRL.
"""

from __future__ import annotations

import json
import logging
import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from t2x.devices import set_threads
from t2x.files import write_metrics
from t2x.rewriters.encoding import PromptEncoder
from t2x.rewriters.language_model import LanguageModelRewriter
from t2x.rewriters.templates import SETTINGS_FILE, Template
from t2x.world.content import style_of, tells_scene
from t2x.world.corpus import corpus_turns
from t2x.world.prompts import UserPrompt, held_out_prompts, validation_prompts
from t2x.world.teacher import teacher_pair, teaching_prompt
from t2x.world.training import (
    Budget,
    Ema,
    build_optimizer,
    descend,
    learning_rate,
    run_training,
)
from t2x.world.weights import require_model

from .emoji_lm import (
    ATTENTION,
    BETAS,
    Batches,
    encode_turns,
    language_loss,
    save_half,
)

BATCH = 32
PEAK_LR = 1.5e-3
DEFAULT_STEPS = 4000
REPLAY = 0.1
KEPT_WORDS = 0.04
CURVE_PROMPTS = 120
FINAL_PROMPTS = 360
TEMPLATE = Template(
    require_answer=True, max_new_tokens=128, temperature=0.8, top_p=0.95, domain="emoji"
)

log = logging.getLogger(__name__)


def completion_text(think: str, answer: str) -> str:
    """The completion that is learnt and parsed."""
    return f"<think>{think}</think><answer>{answer}</answer>"


def draw_row(tokenizer: Any, encoder: PromptEncoder, number: int) -> tuple[list[int], list[int]]:
    """Training row ``number`` as (context, completion) ids: a teacher's pair, or replay."""
    rng = random.Random(f"sft {number}")
    if rng.random() < REPLAY:
        return encode_turns(tokenizer, corpus_turns(rng.getrandbits(48)))
    prompt = teaching_prompt(rng.getrandbits(48))
    think, answer = teacher_pair(prompt, rng)
    text = prompt.text
    if rng.random() < KEPT_WORDS:
        item = rng.choice((f"ITEM{rng.randint(1, 9)}", f'"TEXT{rng.randint(1, 9)}"'))
        text, think, answer = f"{text}, {item}", f"{think}; keep {item}", f"{answer} {item}"
    ids = tokenizer(completion_text(think, answer), add_special_tokens=False)["input_ids"]
    return encoder.encode(text), [*ids, tokenizer.eos_token_id]


def content_scores(
    model: Any, tokenizer: Any, prompts: Sequence[UserPrompt]
) -> tuple[dict[str, float], dict[str, float]]:
    """Greedy rewrites read back: share of exact content per phrasing kind, and of each style."""
    rewriter = LanguageModelRewriter(
        model, tokenizer, template=TEMPLATE, batch_size=64, temperature=0, exact=False
    )
    rewrites = rewriter.rewrite([p.text for p in prompts])
    hits: dict[str, list[bool]] = defaultdict(list)
    styles: Counter[str] = Counter()
    for prompt, (rewrite,) in zip(prompts, rewrites, strict=True):
        good = rewrite.status != "failed" and tells_scene(rewrite.text, prompt.scene)
        hits[prompt.kind].append(good)
        styles["failed" if rewrite.status == "failed" else style_of(rewrite.text)] += 1
    shares = {style: n / len(prompts) for style, n in styles.most_common()}
    return {kind: sum(v) / len(v) for kind, v in sorted(hits.items())}, shares


def overall(by_kind: Mapping[str, float], prompts: Sequence[UserPrompt]) -> float:
    """Mean over prompts of scores that are given per kind."""
    return sum(by_kind[p.kind] for p in prompts) / len(prompts)


def save_rewriter(model: Any, tokenizer: Any, folder: Path) -> None:
    """Save in stock formats, with the template that the model was trained with."""
    save_half(model, tokenizer, folder)
    settings = {"rewriter": asdict(TEMPLATE)}
    (folder / SETTINGS_FILE).write_text(json.dumps(settings, indent=1) + "\n")


def _load_start(start: Path) -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(start, dtype=torch.float32)
    model.set_attn_implementation(ATTENTION)
    return model, AutoTokenizer.from_pretrained(start)


def main(
    *,
    out: Path,
    minutes: float | None = None,
    steps: int | None = None,
    seed: int = 0,
    resume: bool = True,
    threads: int | None = None,
    start: Path | None = None,
) -> dict[str, float]:
    """Train from ``start`` (emoji-lm) and save to ``out``; return shares of exact content.

    ``curve.jsonl`` holds the validation score at every checkpoint.
    """
    set_threads(threads)
    budget = Budget.given(steps, minutes, Budget(steps=DEFAULT_STEPS))
    start = start or require_model("emoji-lm")
    model, tokenizer = _load_start(start)
    averaged, _ = _load_start(start)
    ema = Ema(model, 0.998)
    optimizer = build_optimizer(model.parameters(), PEAK_LR, betas=BETAS)
    encoder = PromptEncoder(tokenizer, TEMPLATE)
    offset = seed << 40
    pad = tokenizer.pad_token_id
    batches = Batches(lambda i: draw_row(tokenizer, encoder, offset + i), pad, batch=BATCH)
    validation = validation_prompts(CURVE_PROMPTS, seed=0)

    def step_fn(step: int, fraction: float) -> Mapping[str, float | Tensor]:
        model.train()
        loss = language_loss(model, *batches[step])
        descend(loss, optimizer, learning_rate(fraction, PEAK_LR))
        ema.update(model)
        return {"loss": loss.detach()}

    def on_checkpoint(step: int) -> dict[str, Any]:
        ema.copy_to(averaged)
        by_kind, styles = content_scores(averaged, tokenizer, validation)
        exact = overall(by_kind, validation)
        log.info("step %d: exact content of %.3f", step, exact)
        return {"exact": exact, "styles": styles}

    state = {"model": model, "optimizer": optimizer, "ema": ema}
    done, seconds = run_training(
        "emoji-rewriter",
        step_fn,
        state,
        folder=out,
        budget=budget,
        settings={"seed": seed, "start": start},
        resume=resume,
        on_checkpoint=on_checkpoint,
    )
    ema.copy_to(model)
    save_rewriter(model, tokenizer, out / "model")
    metrics = final_metrics(model, tokenizer) | {"steps": done, "seconds": seconds}
    return write_metrics(out, metrics)


def final_metrics(
    model: Any, tokenizer: Any, *, count: int = FINAL_PROMPTS, held_out: bool = True
) -> dict[str, float]:
    """Exact content on validation, per kind as ``exact/KIND``; held-out prompts are looked at here
    alone.
    """
    validation = validation_prompts(count, seed=1)
    by_kind, styles = content_scores(model, tokenizer, validation)
    metrics = {"exact_validation": overall(by_kind, validation), **_named("exact", by_kind)}
    metrics |= _named("style", styles)
    if held_out:
        test = held_out_prompts(count, seed=1)
        by_kind, _ = content_scores(model, tokenizer, test)
        metrics |= {"exact_test": overall(by_kind, test), **_named("test", by_kind)}
    return metrics


def _named(prefix: str, values: Mapping[str, float]) -> dict[str, float]:
    return {f"{prefix}/{key}": value for key, value in values.items()}
