"""Train emoji-lm: a small stock Qwen3 language model, the start for SFT and for RL without SFT.

    t2x world train emoji-lm --out runs/emoji-lm

Pretraining text is drawn on the fly (``t2x.world.corpus``): captions, user prompts, paraphrases,
facts, general English and an echo instruction. Tokenizer: byte-level BPE with every byte, a chat
template with roles, and the reasoning and answer tags as tokens.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from t2x.devices import set_threads
from t2x.files import write_metrics
from t2x.world.corpus import Turn, corpus_text, corpus_turns
from t2x.world.training import (
    Budget,
    autocast,
    build_optimizer,
    descend,
    learning_rate,
    run_training,
)

VOCABULARY = 1536
WIDTH = 160
INNER = 416
LAYERS = 5
TOKENIZER_TEXTS = 30_000
BATCH = 32
POOL = 8  # batches that are drawn together and cut by length
PEAK_LR = 3e-3
BETAS = (0.9, 0.97)
DEFAULT_STEPS = 4000
IGNORED = -100
# On a CPU, at these lengths, the backward of fused attention takes as long as all matrix products.
ATTENTION = "eager"
ROLES = ("user\n", "assistant\n", "system\n")
MEASURED_TEXTS = 256
MEASURED_ECHOES = 64
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TAGS = ("<think>", "</think>", "<answer>", "</answer>")
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def build_tokenizer(texts: Sequence[str], *, size: int = VOCABULARY) -> Any:
    """Byte-level BPE of ``size`` entries learnt from ``texts``; no text is unknown to it."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size - len(TAGS),
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    core.train_from_iterator([*texts, *ROLES * 100], trainer)
    core.add_tokens([AddedToken(tag, normalized=False) for tag in TAGS])
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="<|endoftext|>",
        eos_token="<|im_end|>",
        additional_special_tokens=["<|im_start|>"],
        padding_side="left",
        model_max_length=512,
        clean_up_tokenization_spaces=False,
        chat_template=CHAT_TEMPLATE,
    )


def build_model(tokenizer: Any, seed: int) -> Any:
    """Qwen3 of five layers and width 160: 1.8 M parameters, embeddings tied.

    Not Qwen2: transformers 5.24 reads a tokenizer beside a Qwen2 config with Qwen2's own rules for
    cutting words, whatever the tokenizer's files say.
    """
    from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=WIDTH,
        intermediate_size=INNER,
        num_hidden_layers=LAYERS,
        num_attention_heads=WIDTH // 32,
        num_key_value_heads=WIDTH // 32,
        head_dim=32,
        initializer_range=WIDTH**-0.5,
        max_position_embeddings=512,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    torch.manual_seed(seed)
    model = Qwen3ForCausalLM(config)
    model.set_attn_implementation(ATTENTION)
    model.generation_config = GenerationConfig(
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    return model


def encode_turns(tokenizer: Any, turns: Sequence[Turn]) -> tuple[list[int], list[int]]:
    """Token ids of a chat as ``(context, completion)``: the completion is the last turn and its
    end.

    One turn alone is plain text, all of it learnt.
    """
    if len(turns) == 1:
        return [], [*_ids(tokenizer, turns[0].text), tokenizer.eos_token_id]
    messages = [{"role": t.role, "content": t.text} for t in turns[:-1]]
    head = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return _ids(tokenizer, head), [*_ids(tokenizer, turns[-1].text), tokenizer.eos_token_id]


def _ids(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


def collate(rows: Sequence[tuple[list[int], list[int]]], pad: int) -> tuple[Tensor, Tensor]:
    """Pad on the right: ids and labels (B, T); context and padding are not learnt."""
    longest = max(len(c) + len(a) for c, a in rows)
    ids = torch.full((len(rows), longest), pad)
    labels = torch.full((len(rows), longest), IGNORED)
    for i, (context, answer) in enumerate(rows):
        ids[i, : len(context) + len(answer)] = torch.tensor(context + answer)
        labels[i, len(context) : len(context) + len(answer)] = torch.tensor(answer)
    return ids, labels


def language_loss(model: Any, ids: Tensor, labels: Tensor) -> Tensor:
    """Mean cross entropy over learnt tokens, scalar.

    Padding is on the right and attention causal, so no mask is needed; logits are computed for
    learnt positions alone.
    """
    with autocast():
        hidden = model.model(input_ids=ids[:, :-1], use_cache=False).last_hidden_state
        target = labels[:, 1:]
        learnt = target != IGNORED
        logits = model.lm_head(hidden[learnt])
    return nn.functional.cross_entropy(logits.float(), target[learnt])


class Batches:
    """Batches by step number: rows of a pool of batches are sorted by length and cut, so padding is
    small.
    """

    def __init__(self, draw: Any, pad: int, *, batch: int = BATCH) -> None:
        self._draw, self._pad, self._batch = draw, pad, batch
        self._pool: tuple[int, list[Any]] = (-1, [])

    def __getitem__(self, step: int) -> tuple[Tensor, Tensor]:
        number, index = divmod(step, POOL)
        if self._pool[0] != number:
            first = number * POOL * self._batch
            rows = [self._draw(first + i) for i in range(POOL * self._batch)]
            rows.sort(key=lambda row: len(row[0]) + len(row[1]))
            cuts = [rows[i * self._batch : (i + 1) * self._batch] for i in range(POOL)]
            order = torch.randperm(POOL, generator=torch.Generator().manual_seed(number))
            self._pool = (number, [cuts[i] for i in order.tolist()])
        return collate(self._pool[1][index], self._pad)


@torch.no_grad()
def bits_per_byte(model: Any, tokenizer: Any, rows: Sequence[tuple[list[int], list[int]]]) -> float:
    """Cross entropy of the learnt tokens of ``encode_turns``, in bits per byte of their text; the
    end of a text counts as one byte.

    The first token of a text without context is not predicted, so its bytes do not count.
    """
    nats, letters = 0.0, 0
    for at in range(0, len(rows), BATCH):
        ids, labels = collate(rows[at : at + BATCH], tokenizer.pad_token_id)
        nats += float(language_loss(model, ids, labels)) * int((labels[:, 1:] != IGNORED).sum())
    for context, answer in rows:
        predicted = answer[:-1] if context else answer[1:-1]
        # Byte-level: a token is written with one letter per byte, whole characters or not.
        letters += sum(map(len, tokenizer.convert_ids_to_tokens(predicted))) + 1
    return nats / letters / math.log(2)


@torch.no_grad()
def measure(model: Any, tokenizer: Any) -> dict[str, float]:
    """Bits per byte of fresh corpus text, and share of fresh echo requests answered exactly."""
    model.eval()
    rows = [encode_turns(tokenizer, corpus_turns(-1 - i)) for i in range(MEASURED_TEXTS)]
    numbers = (-1 - i for i in range(40 * MEASURED_ECHOES))
    echoes = [turns for n in numbers if (turns := corpus_turns(n))[0].is_echo][:MEASURED_ECHOES]
    exact = [_answer(model, tokenizer, turns) == turns[-1].text for turns in echoes]
    return {
        "bits_per_byte": bits_per_byte(model, tokenizer, rows),
        "echo_exact": sum(exact) / len(exact),
    }


def _answer(model: Any, tokenizer: Any, turns: Sequence[Turn]) -> str:
    context, answer = encode_turns(tokenizer, turns)
    ids = torch.tensor([context])
    out = model.generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        max_new_tokens=len(answer) + 4,
    )
    return str(tokenizer.decode(out[0, len(context) :], skip_special_tokens=True))


def save_half(model: Any, tokenizer: Any, folder: Path) -> None:
    """Save model and tokenizer in their stock formats, weights in half precision."""
    folder.mkdir(parents=True, exist_ok=True)
    half = type(model)(model.config).to(torch.float16)
    half.load_state_dict(model.state_dict())
    half.generation_config = model.generation_config
    half.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def main(
    *,
    out: Path,
    minutes: float | None = None,
    steps: int | None = None,
    seed: int = 0,
    resume: bool = True,
    threads: int | None = None,
) -> dict[str, float]:
    """Train and save to ``out``; return bits per byte and the share of exact echoes."""
    set_threads(threads)
    budget = Budget.given(steps, minutes, Budget(steps=DEFAULT_STEPS))
    tokenizer = build_tokenizer([corpus_text(i) for i in range(TOKENIZER_TEXTS)], size=VOCABULARY)
    model = build_model(tokenizer, seed)
    optimizer = build_optimizer(model.parameters(), PEAK_LR, betas=BETAS)
    offset = seed << 40
    pad = tokenizer.pad_token_id
    batches = Batches(lambda i: encode_turns(tokenizer, corpus_turns(offset + i)), pad, batch=BATCH)

    def step_fn(step: int, fraction: float) -> Mapping[str, float | Tensor]:
        model.train()
        loss = language_loss(model, *batches[step])
        descend(loss, optimizer, learning_rate(fraction, PEAK_LR))
        return {"loss": loss.detach()}

    state = {"model": model, "optimizer": optimizer}
    done, seconds = run_training(
        "emoji-lm",
        step_fn,
        state,
        folder=out,
        budget=budget,
        settings={"seed": seed},
        resume=resume,
    )
    save_half(model, tokenizer, out / "model")
    metrics = measure(model, tokenizer) | {"steps": done, "seconds": seconds}
    return write_metrics(out, metrics)
