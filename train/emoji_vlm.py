"""Train emoji-vlm, the world's vision-language model: a stock LlavaForConditionalGeneration.

    t2x world train emoji-vlm --out runs/emoji-vlm

LLaVA (Liu et al. 2023, arXiv 2304.08485) with a CLIP vision tower and a Qwen2 decoder, from
scratch, on questions about pictures with answers from scene truth (``t2x.world.questions``). Each
picture is encoded once for about nine questions; every question sees the picture and itself, at
the positions that it would have alone, so that training equals single-question inference. The
vision tower first learns what each of its patches shows, alone, then together with the rest.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import (
    CLIPVisionConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaImageProcessor,
    LlavaProcessor,
    PreTrainedTokenizerFast,
    Qwen2Config,
)

from t2x.devices import set_threads
from t2x.files import write_metrics
from t2x.world.captions import caption
from t2x.world.corruption import corrupt, partly_denoised, to_pictures, vae_round_trip
from t2x.world.flow import load_drawer
from t2x.world.packing import KINDS, PATCHES, Packed, answer_states, look, pack
from t2x.world.questions import Turn, sample_turns
from t2x.world.render import Placed
from t2x.world.reward_auc import auc
from t2x.world.scene import CLASSES, COLORS, Group, Scene
from t2x.world.shown import NAMELESS, draw_shown, patch_labels
from t2x.world.training import (
    Budget,
    Ema,
    autocast,
    build_optimizer,
    descend,
    learning_rate,
    run_training,
)

BATCH = 16
PEAK_LR = 1e-3
WIDTH = 192
VOCABULARY = 2048
DEFAULT_MINUTES = 102.0
LOOK_FIRST, LOOK_BATCH = 0.3, 64  # share of the budget in which the vision tower learns alone
HARD_FROM = 0.8  # share of the budget from which on the later of these two holds
EASY = (0.5, 0.08)  # share of false texts about another scene altogether
PLAIN = (1.0, 0.4)  # share of texts to verify in plain kinds
WEIGHTS = {"verify": 1.0, "fault": 0.7, "atomic": 0.7, "caption": 1.0, "text": 0.3}
PATCH_WEIGHT, NAMING_WEIGHT = 0.3, 1.0
THROUGH_VAE, REDRAWN = 0.1, 0.1  # shares of the pictures
MEASURED = 512  # pictures
FRESH = 10**9  # number of the first picture that no training draws
SPECIAL = ("<|pad|>", "<|end|>", "<|user|>", "<|assistant|>", "<|system|>", "<image>")
CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}<image>"
    "{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}"
    "{% if message['role'] != 'user' %}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def corpus(count: int) -> Iterator[str]:
    """Questions and answers for the tokenizer to learn its pieces from."""
    for number in range(count):
        rng = random.Random(f"words {number}")
        for turn in sample_turns(draw_shown(rng), rng):
            yield turn.question
            yield turn.answer


def build_processor(texts: Iterable[str], *, vocabulary: int = VOCABULARY) -> LlavaProcessor:
    """Byte-level BPE without capitals, learnt from ``texts``, and 64x64 pictures in [-1, 1]."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    learner = Tokenizer(models.BPE())
    learner.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    learner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    learner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=list(SPECIAL),
        show_progress=False,
    )
    learner.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=learner,
        pad_token="<|pad|>",
        eos_token="<|end|>",
        additional_special_tokens=list(SPECIAL[2:]),
        model_max_length=512,
        padding_side="right",
    )
    images = LlavaImageProcessor(
        size={"shortest_edge": 64},
        crop_size={"height": 64, "width": 64},
        image_mean=[0.5] * 3,
        image_std=[0.5] * 3,
    )
    return LlavaProcessor(
        image_processor=images,
        tokenizer=tokenizer,
        patch_size=8,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=CHAT_TEMPLATE,
    )


def build_model(tokenizer: PreTrainedTokenizerFast, *, width: int = WIDTH, layers: int = 4) -> Any:
    """Vision tower and decoder of ``layers`` each: 3.9 M parameters by default."""
    vision = CLIPVisionConfig(
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=layers,
        num_attention_heads=width // 32,
        image_size=64,
        patch_size=8,
        hidden_act="gelu",
    )
    text = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=width * 8 // 3,
        num_hidden_layers=layers,
        num_attention_heads=width // 32,
        num_key_value_heads=width // 96,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    config = LlavaConfig(
        vision_config=vision,
        text_config=text,
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        vision_feature_layer=-1,
        vision_feature_select_strategy="default",
        image_seq_length=PATCHES,
        tie_word_embeddings=True,
    )
    return LlavaForConditionalGeneration(config)


class PatchHeads(nn.Module):
    """Reads class and colour off each patch in training; thrown away afterwards."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.kind = nn.Linear(width, len(CLASSES) + 2)
        self.color = nn.Linear(width, len(COLORS) + 1)

    def forward(self, seen: Tensor, kinds: Tensor, colors: Tensor) -> Tensor:
        """Cross-entropy of ``seen`` (N, 64, D) against labels (N, 64)."""
        x = self.norm(seen)
        values = F.cross_entropy(
            self.kind(x).flatten(0, 1).float(), kinds.flatten(), reduction="none"
        )
        filled = kinds.flatten() > 0
        kind = values[filled].mean() + 0.3 * values[~filled].mean()
        color = F.cross_entropy(self.color(x).flatten(0, 1).float(), colors.flatten())
        return kind + color


def patch_words(tokenizer: PreTrainedTokenizerFast) -> tuple[Tensor, Tensor]:
    """What a patch should be called: (47, V) for classes, (11, V) for colours, rows sum to 1 (0 for
    the background).
    """
    tables = []
    for words in (["", *CLASSES, NAMELESS], ["natural", *COLORS]):
        table = torch.zeros(len(words), len(tokenizer))
        for row, word in enumerate(words):
            ids = tokenizer(f" {word}", add_special_tokens=False)["input_ids"] if word else []
            for i in ids:
                table[row, i] += 1 / len(ids)
        tables.append(table)
    return tables[0], tables[1]


def naming_loss(model: Any, seen: Tensor, batch: Batch, words: tuple[Tensor, Tensor]) -> Tensor:
    """Cross-entropy of the words nearest to each object's patches, as the decoder receives them.

    Pictures enter the decoder near the embeddings of the words for what they show, so that it has
    them to match with the words of a question from the start.
    """
    filled = batch.kinds > 0
    inputs = model.model.multi_modal_projector(seen[filled])
    table = model.model.language_model.embed_tokens.weight
    scores = 20 * F.linear(F.normalize(inputs, dim=-1), F.normalize(table, dim=-1)).float()
    kinds, colors = words[0][batch.kinds[filled]], words[1][batch.colors[filled].clamp(min=0)]
    return -((kinds + colors) / 2 * scores.log_softmax(-1)).sum(-1).mean()


@dataclass(frozen=True)
class Batch:
    """Spoilt pictures (N, 3, 64, 64) in [0, 1], their patch labels (N, 64) and turns."""

    pixels: Tensor
    kinds: Tensor
    colors: Tensor
    turns: list[list[Turn]]


def own_caption(objects: Sequence[Placed]) -> str:
    """What the generator is told when it redraws a picture of these objects; "" if one of them has
    no name.
    """
    if any(p.cls == NAMELESS for p in objects):
        return ""
    counts = Counter((p.cls, p.color) for p in objects)
    return caption(
        Scene(tuple(Group(c, color, n) for (c, color), n in counts.items())), "sentence", 0
    )


@torch.no_grad()
def spoil(clean: Tensor, objects: Sequence[Sequence[Placed]], number: int, drawer: Any) -> Tensor:
    """Pictures (N, 3, 64, 64) in [0, 1] as the model will meet them: corrupted, through the
    autoencoder, or their noise of 0.3 to 0.7 taken off by the generator.
    """
    generator = torch.Generator().manual_seed(number)
    pixels, _ = corrupt(clean, generator, clean=0.25)
    if drawer is None:
        return pixels
    chance = torch.rand(len(clean), generator=generator)
    captions = [own_caption(o) for o in objects]
    named = torch.tensor([bool(c) for c in captions])
    again = ((chance < REDRAWN) & named).nonzero().flatten()
    through = (chance >= REDRAWN) & (chance < REDRAWN + THROUGH_VAE)
    with autocast():
        if through.any():
            pixels[through] = vae_round_trip(pixels[through], drawer.vae)
        if len(again):
            sigma = 0.3 + 0.4 * torch.rand(len(again), generator=generator)
            texts = [captions[i] for i in again.tolist()]
            pixels[again] = partly_denoised(drawer, clean[again], texts, generator, sigma=sigma)
    return pixels


def make_batch(
    first: int,
    count: int,
    *,
    drawer: Any = None,
    easy: float = 0.1,
    plain: float = 0.4,
    ask: bool = True,
) -> Batch:
    """Pictures number ``first`` and on, spoilt, with questions if ``ask``.

    With ``drawer``, an emoji-flow pipeline, some go through its autoencoder, and the last part of
    some is its own drawing.
    """
    pictures, objects, kinds, colors, turns = [], [], [], [], []
    for number in range(first, first + count):
        rng = random.Random(f"vlm {number}")
        shown = draw_shown(rng)
        kind, color = patch_labels(shown.objects)
        pictures.append(shown.picture)
        objects.append(shown.objects)
        kinds.append(torch.from_numpy(kind))
        colors.append(torch.from_numpy(color))
        turns.append(sample_turns(shown, rng, easy=easy, plain=plain) if ask else [])
    pixels = spoil(to_pictures(pictures), objects, first, drawer)
    return Batch(pixels, torch.stack(kinds), torch.stack(colors), turns)


def answer_losses(model: Any, seen: Tensor, packed: Packed, user: int) -> dict[str, Tensor]:
    """Mean cross-entropy of the answers' tokens, by kind of question."""
    wanted = packed.labels >= 0
    states = answer_states(model, seen, packed, user)[wanted]
    values = F.cross_entropy(model.lm_head(states).float(), packed.labels[wanted], reduction="none")
    kinds = packed.kinds[wanted]
    masks = {kind: kinds == index for index, kind in enumerate(KINDS)}
    return {kind: values[mask].mean() for kind, mask in masks.items() if bool(mask.any())}


@torch.no_grad()
def measure(
    model: Any, tokenizer: PreTrainedTokenizerFast, *, count: int | None = None, drawer: Any = None
) -> dict[str, float]:
    """On fresh spoilt pictures: AUC of yes against no, and by kind the share of answers that are
    right to the last token.
    """
    count = MEASURED if count is None else count
    user = tokenizer.convert_tokens_to_ids("<|user|>")
    yes, no = (tokenizer(w, add_special_tokens=False)["input_ids"][0] for w in ("yes", "no"))
    odds: list[Tensor] = []
    truth: list[Tensor] = []
    right: dict[str, list[bool]] = {}
    for first in range(0, count, BATCH):
        batch = make_batch(FRESH + first, min(BATCH, count - first), drawer=drawer)
        packed = pack(tokenizer, batch.turns)
        with autocast():
            states = answer_states(model, look(model, batch.pixels), packed, user)
            logits = model.lm_head(states).float()
        asked = (packed.labels >= 0) & (packed.kinds == KINDS.index("verify"))
        odds.append((logits[..., yes] - logits[..., no])[asked])
        truth.append(packed.labels[asked] == yes)
        hit = (logits.argmax(-1) == packed.labels) | (packed.labels < 0)
        hit |= packed.kinds == KINDS.index("fault")
        for i, row in enumerate(batch.turns):
            own = hit[packed.owner == i], packed.segment[packed.owner == i]
            for j, turn in enumerate(row):
                right.setdefault(turn.kind, []).append(bool(own[0][own[1] == j].all()))
    score, label = torch.cat(odds), torch.cat(truth)
    shares = {f"{kind}_right": sum(v) / len(v) for kind, v in sorted(right.items())}
    return {"verify_auc": auc(score, label), **shares}


def save_model(folder: Path, model: Any, processor: LlavaProcessor) -> None:
    """Write a stock folder in half precision."""
    model.to(torch.float16).save_pretrained(folder, safe_serialization=True)
    model.to(torch.float32)
    processor.save_pretrained(folder)


def main(
    *,
    out: Path,
    minutes: float | None = None,
    steps: int | None = None,
    seed: int = 0,
    resume: bool = True,
    threads: int | None = None,
    drawer: Path | None = None,
) -> dict[str, float]:
    """Train and save to ``out/model`` at every checkpoint; return what ``measure`` finds, steps
    and seconds. ``drawer``: folder of the emoji-flow pipeline; the embedded one by default.
    """
    set_threads(threads)
    budget = Budget.given(steps, minutes, Budget(minutes=DEFAULT_MINUTES))
    torch.manual_seed(seed)
    pipeline = load_drawer(drawer)
    folder = out / "model"
    if resume and (folder / "processor_config.json").exists():
        processor = LlavaProcessor.from_pretrained(folder)  # the embeddings are of its tokens
    else:
        processor = build_processor(corpus(1_000))
    tokenizer = processor.tokenizer
    user = tokenizer.convert_tokens_to_ids("<|user|>")
    words = patch_words(tokenizer)
    model, heads = build_model(tokenizer), PatchHeads()
    model.set_attn_implementation("eager")  # CPU flash attention has a slow backward pass
    trained = nn.ModuleDict({"model": model, "heads": heads})
    optimizer = build_optimizer(trained.parameters(), PEAK_LR)
    ema = Ema(model, 0.998)

    def step_fn(step: int, fraction: float) -> Mapping[str, float | Tensor]:
        ask = fraction >= LOOK_FIRST
        hard = min(1.0, max(0.0, fraction - LOOK_FIRST) / (HARD_FROM - LOOK_FIRST))
        easy, plain = (a + (b - a) * hard for a, b in (EASY, PLAIN))
        first = (seed << 40) + step * LOOK_BATCH
        if ask:
            batch = make_batch(first, BATCH, drawer=pipeline, easy=easy, plain=plain)
        else:
            batch = make_batch(first, LOOK_BATCH, ask=False)
        with autocast():
            seen = look(model, batch.pixels)
            patch = heads(seen, batch.kinds, batch.colors)
            packed = pack(tokenizer, batch.turns) if ask else None
            losses = answer_losses(model, seen, packed, user) if packed else {}
            if packed:
                losses["naming"] = naming_loss(model, seen, batch, words)
        total = patch * (PATCH_WEIGHT if ask else 1.0)
        for kind, value in losses.items():
            total = total + WEIGHTS.get(kind, NAMING_WEIGHT) * value
        descend(total, optimizer, learning_rate(fraction, PEAK_LR))
        ema.update(model)
        return {"patch": patch.detach(), **{k: v.detach() for k, v in losses.items()}}

    averaged = build_model(tokenizer).eval()

    def save(_: int) -> None:
        ema.copy_to(averaged)
        save_model(folder, averaged, processor)

    state: dict[str, Any] = {"trained": trained, "ema": ema, "optimizer": optimizer}
    done, seconds = run_training(
        "emoji-vlm",
        step_fn,
        state,
        folder=out,
        budget=budget,
        settings={"seed": seed},
        resume=resume,
        on_checkpoint=save,
    )
    metrics = {**measure(averaged, tokenizer, drawer=pipeline), "steps": done, "seconds": seconds}
    return write_metrics(out, metrics)
