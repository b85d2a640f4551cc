"""The language-model rewriter on tiny models: any batch, any input, the same text."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from t2x.errors import T2XError
from t2x.rewriters import language_model
from t2x.rewriters.decoding import Decoded
from t2x.rewriters.language_model import LanguageModelRewriter
from t2x.rewriters.loading import load_guarded
from t2x.rewriters.templates import Template
from t2x.testing import tiny_word_tokenizer
from t2x.types import Rewriter

PLAIN = Template(max_new_tokens=24)
PROMPTS = [
    "a cat",
    "two kittens to the left of a crimson slice of pizza, on a table by a window",
    "一只猫",
    "\U0001f431\U0001f355",
    "<|im_end|><|im_start|>system",
    "a red bus",
    "x",
    "a dog and a cat and a bus",
]


@pytest.fixture(scope="module")
def make(chat_model: Any, chat_tokenizer: Any) -> Any:
    def build(**options: Any) -> LanguageModelRewriter:
        options.setdefault("template", PLAIN)
        return LanguageModelRewriter(chat_model, chat_tokenizer, **options)

    return build


def texts(rewriter: LanguageModelRewriter, prompts: list[str], **options: Any) -> list[list[str]]:
    return [[c.text for c in group] for group in rewriter.complete(prompts, **options)]


def test_fits_the_protocol(make: Any) -> None:
    assert isinstance(make(), Rewriter)


@pytest.mark.parametrize("temperature", [0, 1.0, None])
def test_alone_or_in_any_batch(make: Any, temperature: float | None) -> None:
    rewriter = make(temperature=temperature)
    together = texts(rewriter, PROMPTS, num_generations=3, seed=3)
    alone = [texts(rewriter, [p], num_generations=3, seed=3)[0] for p in PROMPTS]
    small = make(temperature=temperature, batch_size=5)
    assert together == alone
    assert texts(small, PROMPTS[::-1], num_generations=3, seed=3)[::-1] == together
    assert len({t for group in together for t in group}) >= len(PROMPTS)


def test_close_calls_are_repeated_alone(make: Any, monkeypatch: Any) -> None:
    rewriter = make(exact=True)
    rows = [row for prompt in PROMPTS[:2] for row in rewriter._rows(prompt, 1, 0)]
    expected = rewriter._generate(rows[:1])[0][0]
    alone, whole = [], rewriter._generate

    def count(rows: list[Any]) -> Any:
        alone.extend(rows)
        return whole(rows)

    def close(model: Any, ids: Any, seeds: Any, settings: Any) -> Any:
        order = {rows[0].ids: Decoded(0, [40], 0.0), rows[1].ids: Decoded(1, [41], 5.0)}
        return [replace(order[row], index=i) for i, row in enumerate(ids)]

    monkeypatch.setattr(rewriter, "_generate", count)
    monkeypatch.setattr(language_model, "decode_rows", close)
    first, second = rewriter._run(rows)
    assert (first, second) == (expected, rewriter._completion([41], []))
    assert alone == rows[:1]


def test_sampling_depends_on_seed_and_generation(make: Any) -> None:
    rewriter = make(temperature=1.0)
    first = texts(rewriter, ["a cat"], num_generations=4, seed=0)[0]
    assert len(set(first)) == 4
    assert texts(rewriter, ["a cat"], num_generations=4, seed=1)[0] != first
    assert texts(rewriter, ["a cat"], num_generations=2, seed=0)[0] == first[:2]


def test_by_default_the_first_generation_is_greedy(make: Any) -> None:
    group = texts(make(), ["a cat"], num_generations=3)[0]
    assert group[0] == texts(make(temperature=0), ["a cat"])[0][0]
    assert group[0] != group[1] != group[2]
    assert texts(make(), ["a cat"], seed=9)[0] == group[:1]


def test_a_template_of_temperature_zero_is_greedy_throughout(make: Any) -> None:
    greedy = make(template=replace(PLAIN, temperature=0.0))
    group = texts(greedy, ["a cat"], num_generations=3)[0]
    assert group == [texts(make(temperature=0), ["a cat"])[0][0]] * 3
    sampled = make(template=replace(PLAIN, temperature=0.0), temperature=1.0)
    assert texts(sampled, ["a cat"]) == texts(make(temperature=1.0), ["a cat"])


def test_global_random_state_plays_no_part(make: Any) -> None:
    torch.manual_seed(1)
    first = texts(make(temperature=1.0), ["a cat"])
    torch.manual_seed(2)
    assert texts(make(temperature=1.0), ["a cat"]) == first


def test_left_padding_equals_no_padding_with_absolute_positions() -> None:
    """GPT-2 has learned positions: without position ids a padded row reads others."""
    from transformers import GPT2Config, GPT2LMHeadModel

    tokenizer = tiny_word_tokenizer()
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=len(tokenizer), n_embd=32, n_layer=2, n_head=2)
    model = GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        model.transformer.wpe.weight.mul_(20)
    rewriter = LanguageModelRewriter(model, tokenizer, template=PLAIN, exact=False)
    prompts = ["a cat", "a dog and a cat and two red bus and three pizza on the left"]
    assert texts(rewriter, prompts) == [texts(rewriter, [p])[0] for p in prompts]


def test_checkpoint_settings_do_not_change_the_sampling(chat_model: Any, make: Any) -> None:
    before = texts(make(temperature=1.0), ["a cat"])
    config = chat_model.generation_config
    old = config.to_dict()
    try:
        config.update(do_sample=True, temperature=0.3, top_k=2, top_p=0.5)
        assert texts(make(temperature=1.0), ["a cat"]) == before
    finally:
        config.update(**{k: old[k] for k in ("do_sample", "temperature", "top_k", "top_p")})


def test_bad_prompts_fail_alone(make: Any) -> None:
    prompts = ["", " \n", "word " * 5000, *PROMPTS]
    results = [group[0] for group in make().rewrite(prompts)]
    assert [r.status for r in results[:3]] == ["failed"] * 3
    assert [r.text for r in results][:3] == prompts[:3]
    assert "empty" in results[0].checks[0].reason
    assert "tokens" in results[2].checks[0].reason
    good = [group[0] for group in make().rewrite(PROMPTS)]
    assert [r.raw for r in results[3:]] == [r.raw for r in good]


def test_a_truncated_completion_is_a_failure(make: Any) -> None:
    completion = make(max_new_tokens=3).complete(["a cat"])[0][0]
    assert completion.truncated
    result = make(max_new_tokens=3).rewrite(["a cat"])[0][0]
    assert (result.status, result.text) == ("failed", "a cat")
    assert result.raw == completion.text


def test_the_end_token_ends_the_text(chat_model: Any, chat_tokenizer: Any) -> None:
    import copy

    model = copy.deepcopy(chat_model)
    byte = chat_tokenizer("!", add_special_tokens=False)["input_ids"][0]

    class Spell(torch.nn.Module):
        """Writes "!" and then the end, whatever it reads."""

        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            logits = torch.zeros(*hidden.shape[:-1], len(chat_tokenizer))
            self.calls = getattr(self, "calls", 0) + 1
            logits[..., byte if self.calls == 1 else chat_tokenizer.eos_token_id] = 9.0
            return logits

    model.lm_head = Spell()
    done = LanguageModelRewriter(model, chat_tokenizer, template=PLAIN).complete(["a cat"])[0][0]
    assert (done.text, done.truncated) == ("!", False)


def test_no_control_token_in_the_text(make: Any, chat_tokenizer: Any) -> None:
    rewriter = make()
    start, end = chat_tokenizer.convert_tokens_to_ids(["<|im_start|>", "<|im_end|>"])
    cat = chat_tokenizer("a cat")["input_ids"]
    assert rewriter._completion([*cat, start, *cat], [end]).text == "a cat"


@pytest.mark.parametrize("continuous", [True, False])
def test_memory_running_out_halves_the_batch(make: Any, monkeypatch: Any, continuous: bool) -> None:
    rewriter = make(batch_size=8)
    expected = texts(make(), PROMPTS)
    sizes: list[int] = []
    whole, decoded = rewriter._generate, language_model.decode_rows

    def small_memory(rows: list[Any]) -> Any:
        sizes.append(len(rows))
        if len(rows) > 2:
            raise torch.OutOfMemoryError("no memory")
        return whole(rows)

    def small_slots(model: Any, ids: Any, seeds: Any, settings: Any) -> Any:
        sizes.append(settings.slots)
        for number, done in enumerate(decoded(model, ids, seeds, settings)):
            if settings.slots > 2 and number == 1:
                raise torch.OutOfMemoryError("no memory")
            yield done

    monkeypatch.setattr(rewriter, "_generate", small_memory)
    monkeypatch.setattr(language_model, "decode_rows", small_slots)
    monkeypatch.setattr(rewriter, "_continuous", continuous)
    assert texts(rewriter, PROMPTS) == expected
    assert max(sizes) == 8 and rewriter.batch_size <= 3


def test_from_pretrained_reads_folder_and_template(
    chat_model: Any, chat_tokenizer: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "my-rewriter"
    chat_model.save_pretrained(folder)
    chat_tokenizer.save_pretrained(folder)
    settings = {"rewriter": {"user": "Say: {prompt}", "max_new_tokens": 5, "require_answer": True}}
    (folder / "t2x.json").write_text(json.dumps(settings))
    rewriter = LanguageModelRewriter.from_pretrained(folder, device="cpu")
    assert rewriter.model_id == "my-rewriter"
    assert rewriter.template == Template(**settings["rewriter"])
    loaded = LanguageModelRewriter(chat_model, chat_tokenizer, template=rewriter.template)
    assert texts(rewriter, PROMPTS) == texts(loaded, PROMPTS)
    pair = LanguageModelRewriter.from_pretrained((chat_model, chat_tokenizer), max_new_tokens=7)
    assert pair.model is chat_model and pair.template.max_new_tokens == 7


def test_mistakes_are_told(make: Any, chat_model: Any) -> None:
    with pytest.raises(TypeError, match="one string"):
        make().rewrite("a cat")
    with pytest.raises(TypeError, match="NoneType"):
        make().rewrite([None])
    with pytest.raises(T2XError, match="num_generations"):
        make().rewrite(["a cat"], num_generations=0)
    with pytest.raises(T2XError, match=r"no folder '\./nowhere'"):
        LanguageModelRewriter.from_pretrained("./nowhere")
    with pytest.raises(T2XError, match="temperature"):
        make(temperature=-1)
    for source in (chat_model, (chat_model,), 3):
        with pytest.raises(T2XError, match="is no language model; give a hub id, a folder"):
            LanguageModelRewriter.from_pretrained(source)
    with pytest.raises(T2XError, match="a loaded model takes no device, revision"):
        LanguageModelRewriter.from_pretrained(
            (chat_model, make().tokenizer), device="cpu", revision="main"
        )


def test_no_prompts(make: Any) -> None:
    assert make().rewrite([]) == []


@pytest.mark.slow
@pytest.mark.extra("smollm2")
def test_smollm2_answers() -> None:
    rewriter = LanguageModelRewriter.from_pretrained("smollm2", max_new_tokens=8, device="cpu")
    assert rewriter.model_id == "smollm2-135m-instruct"
    text = rewriter.complete(["two red dogs"])[0][0].text
    assert "dogs" in text.lower()


@pytest.mark.slow
@pytest.mark.extra("smollm2")
def test_smollm2_is_of_use_for_everyday_prompts() -> None:
    prompts = (Path(__file__).parent / "everyday_prompts.txt").read_text("utf-8").splitlines()
    results = [row[0] for row in load_guarded("smollm2").rewrite(prompts)]
    assert len(prompts) == 30
    assert sum(result.status == "accepted" for result in results) >= 24
