"""Syntax in prompts of tiny pipelines of the real classes: what acts, what is reported, and that
nothing else changes. CPU, float32."""

from __future__ import annotations

import json
import logging
import os
import random

import pytest
import torch

from t2x.errors import T2XError
from t2x.generators import DiffusionGenerator, GuidedGenerator, attention_weights
from t2x.generators.attention_weights import WeightedEncoder
from t2x.generators.diffusion import own_noise
from t2x.guidance.recipe import make_recipe
from t2x.guidance.three_way import original_prompt_guidance
from t2x.media import quantize
from t2x.prompts.reading import read_prompt
from t2x.testing import CALLS, FAMILIES, FakeReward

pytestmark = [pytest.mark.extra("weights"), pytest.mark.extra("lora")]

WORDS = "a long red cat on the green bus, "
LONG = WORDS * 4  # a token per letter: two windows of 77
WEIGHTED = ("sd15", "sdxl")
PROSE = ("flux", "qwen", "z")


def built(family: str, **options: object) -> DiffusionGenerator:
    return DiffusionGenerator.from_pretrained(
        FAMILIES[family](),
        num_inference_steps=2,
        sampling=CALLS[family],
        **options,
    )


@pytest.fixture(scope="module")
def generators():
    return {family: built(family) for family in (*WEIGHTED, *PROSE)}


@pytest.fixture(scope="module")
def lora_folder(tmp_path_factory):
    """Two LoRAs of the tiny Stable Diffusion."""
    from diffusers.utils import convert_state_dict_to_diffusers
    from peft import LoraConfig
    from peft.utils import get_peft_model_state_dict

    folder = tmp_path_factory.mktemp("loras")
    for seed, name in enumerate(("neon", "ink")):
        pipe = FAMILIES["sd15"]()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            config = LoraConfig(r=2, target_modules=["to_q", "to_v"], init_lora_weights=False)
            pipe.unet.add_adapter(config)
        layers = convert_state_dict_to_diffusers(get_peft_model_state_dict(pipe.unet))
        pipe.save_lora_weights(folder, unet_lora_layers=layers, weight_name=f"{name}.safetensors")
    return folder


@pytest.fixture(scope="module")
def with_loras(lora_folder):
    return built("sd15", lora_folder=lora_folder)


# ---- nothing changes without syntax -------------------------------------------------------------


@pytest.mark.parametrize("family", ["sd15", "sdxl", "flux", "z"])
def test_prompts_without_syntax_reach_the_pipeline_as_ever(generators, family):
    generator = generators[family]
    texts, seen = ["a cat (sitting)", 'a sign "[x]", --', "", "a <dog>"], []

    def draw(rows, arguments, seeds):
        given = {**arguments, "prompt": list(arguments["prompt"])}  # Z-Image writes into the list
        seen.append((given, "encode_prompt" in vars(generator.pipeline)))
        return generator.pipeline(**arguments, generator=own_noise(seeds))

    media = generator.generate(texts, seeds=[1, 2, 3, 4], draw=draw)
    call = {**generator.sampling, "prompt": texts, "output_type": "pt"}
    assert seen == [(call, False)]
    output = generator.pipeline(
        **{**call, "prompt": list(texts)}, generator=own_noise([1, 2, 3, 4])
    ).images
    assert torch.equal(media, quantize(output.float()))
    assert not any(prepared.acts for prepared in generator.prepare(texts))


def test_plain_sends_every_byte(generators):
    text = "a (red:1.4) cat <lora:x:1> BREAK [a|b]"
    generator = generators["sd15"]
    (prepared,) = generator.prepare([text], syntax="plain")
    assert prepared.text == text and not prepared.acts
    own = generator.pipeline(
        prompt=[text], output_type="pt", generator=own_noise([1]), **generator.sampling
    )
    media = generator.generate([text], seeds=[1], syntax="plain")
    assert torch.equal(media, quantize(own.images.float()))
    assert not torch.equal(media, generator.generate([text], seeds=[1]))
    made = built("sd15", syntax="plain")
    assert made.syntax == "plain" and torch.equal(made.generate([text], seeds=[1]), media)
    with pytest.raises(T2XError, match=r"syntax is 'all'; give 'auto' or 'plain'"):
        built("sd15", syntax="all")


# ---- weights ------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", WEIGHTED)
def test_a_weight_above_1_moves_a_token_away_from_the_empty_text(generators, family):
    """z' = e + w (z - e) at the weighted tokens, z elsewhere; z and e are what the pipeline's own
    encoder gives for the words and for the empty text."""
    pipe = generators[family].pipeline
    given = {"device": torch.device("cpu"), "num_images_per_prompt": 1}
    given["do_classifier_free_guidance"] = False
    own = pipe.encode_prompt(prompt="a red cat", **given)
    empty = pipe.encode_prompt(prompt="", **given)[0]
    found = WeightedEncoder(pipe).encode([read_prompt("a (red:1.5) cat").segments])
    expected = own[0].clone()
    expected[:, 2:5] = empty[:, 2:5] + 1.5 * (own[0] - empty)[:, 2:5]  # start, a, then r, e, d
    torch.testing.assert_close(found["prompt_embeds"], expected, atol=1e-5, rtol=1e-4)
    if family == "sdxl":
        torch.testing.assert_close(found["pooled_prompt_embeds"], own[2], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("family", WEIGHTED)
def test_weights_act_and_are_told(generators, family):
    generator = generators[family]
    texts = ["a (red:3) cat", "a [[[red]]] cat", "a (red:1.0) cat", r"a red cat \(x\)", "a red cat"]
    media = generator.generate(texts, seeds=[1] * 5)
    assert not torch.equal(media[0], media[4]) and not torch.equal(media[1], media[4])
    assert torch.equal(media[2], media[4])  # 1 is no weight
    prepared = generator.prepare(texts)
    assert [p.text for p in prepared] == ["a red cat"] * 3 + ["a red cat (x)", "a red cat"]
    assert prepared[0].segments == ((("a ", 1.0), ("red", 3.0), (" cat", 1.0)),)
    assert set(prepared[0].chunks.values()) == {("a red cat",)}
    (note,) = prepared[0].notes
    assert note.became == "applied" and note.syntax == "red: 3" and "compel" in note.why
    assert "encode_prompt" not in vars(generator.pipeline)


@pytest.mark.parametrize("family", PROSE)
def test_models_that_read_prose_get_the_words(generators, family, caplog):
    generator = generators[family]
    text = "a (red:1.4) cat BREAK a [dog|bus]"
    with caplog.at_level(logging.WARNING, "t2x.generators.diffusion"):
        media = generator.generate([text], seeds=[1])
    assert torch.equal(media, generator.generate(["a red cat, a dog"], seeds=[1]))
    (prepared,) = generator.prepare([text])
    became = {note.syntax: note.became for note in prepared.notes}
    assert became == {"red: 1.4": "removed", "BREAK": "replaced", "[dog|bus]": "replaced"}
    assert all(f"'{part}'" in caplog.text for part in became)


def test_without_the_library_words_stay_and_what_to_install_is_said(generators, monkeypatch):
    monkeypatch.setattr(attention_weights, "find_spec", lambda name: None)
    weighted, long = generators["sd15"].prepare(["a (red:1.4) cat", LONG])
    assert weighted.text == "a red cat" and not weighted.segments
    for prepared, became in ((weighted, "removed"), (long, "cut")):
        (note,) = prepared.notes
        assert note.became == became and "pip install 't2x[weights]'" in note.why
    assert generators["sd15"].fingerprint()["syntax"]["weights"] is None


def test_settings_that_leave_no_place_for_weights_are_named():
    generator = DiffusionGenerator.from_pretrained(
        FAMILIES["sd15"](), sampling={"clip_skip": 1}, num_inference_steps=1
    )
    (note,) = generator.prepare(["a (red:1.4) cat"])[0].notes
    assert note.became == "removed" and "clip_skip is set" in note.why


def test_learned_tokens_of_several_vectors_keep_them():
    pipe = FAMILIES["sd15"]()
    with torch.random.fork_rng():
        pipe.load_textual_inversion(torch.randn(3, 32), token="<toy>")
    generator = DiffusionGenerator.from_pretrained(pipe, num_inference_steps=1)
    given = {"device": torch.device("cpu"), "num_images_per_prompt": 1}
    own = pipe.encode_prompt(prompt="a <toy> cat", do_classifier_free_guidance=False, **given)[0]
    found = WeightedEncoder(pipe).encode([((("a <toy> cat", 1.0),),)])["prompt_embeds"]
    torch.testing.assert_close(found, own)
    (prepared,) = generator.prepare(["a (cat:1.5) with embedding:toy"])
    assert prepared.text == "a cat with <toy>"


def test_signs_that_the_library_would_read_are_text(generators):
    encoder = WeightedEncoder(generators["sd15"].pipeline)
    text = 'a ++ (b)1.5 "c"-- .and() \\( withLora(x)'
    found = encoder.encode([(((text, 1.0),),)])["prompt_embeds"]
    given = {"device": torch.device("cpu"), "num_images_per_prompt": 1}
    given["do_classifier_free_guidance"] = False
    own = encoder.pipe.encode_prompt(prompt=text, **given)[0]
    torch.testing.assert_close(found, own)


# ---- long texts ---------------------------------------------------------------------------------


@pytest.mark.parametrize("family", WEIGHTED)
def test_a_long_text_is_read_to_its_end(generators, family, caplog):
    generator = generators[family]
    other = LONG.replace("bus", "dog")  # differs within the first window too
    late = LONG[: LONG.rindex("bus")] + "dog, "
    with caplog.at_level(logging.WARNING):
        media = generator.generate([LONG, late, other], seeds=[1] * 3)
        assert not torch.equal(media[0], media[1]) and not torch.equal(media[0], media[2])
        assert not caplog.records
    (prepared,) = generator.prepare([LONG])
    assert prepared.text == LONG and prepared.windows == 2
    assert [note.became for note in prepared.notes] == ["applied"]
    guided = generator.generate([LONG], seeds=[1], negative=["blue"])
    assert not torch.equal(guided[0], media[0])
    longer = generator.generate([LONG], seeds=[1], negative=[LONG + LONG])
    assert not torch.equal(longer, guided)


def test_windows_end_between_words_and_hold_the_whole_text(generators):
    encoder = WeightedEncoder(generators["sd15"].pipeline)
    rng = random.Random(0)
    for _ in range(20):
        words = ["".join(rng.choices("abcdefgh", k=rng.randrange(1, 12))) for _ in range(40)]
        text = " ".join(
            f"({w}:1.{rng.randrange(1, 9)})" if rng.random() < 0.3 else w for w in words
        )
        (windows,) = encoder.windows(read_prompt(text).segments).values()
        assert len(windows) > 1 and " ".join(windows).split() == words


def test_break_begins_a_window(generators):
    generator = generators["sd15"]
    (prepared,) = generator.prepare(["a cat BREAK a (dog:1.2)"])
    assert prepared.chunks == {"tokenizer": ("a cat", "a dog")} and prepared.text == "a cat, a dog"
    found = WeightedEncoder(generator.pipeline).encode([prepared.segments])
    halves = [WeightedEncoder(generator.pipeline).encode([(s,)]) for s in prepared.segments]
    whole = torch.cat([half["prompt_embeds"] for half in halves], dim=1)
    torch.testing.assert_close(found["prompt_embeds"], whole)


def test_a_text_without_end_is_cut_and_told(generators):
    (prepared,) = generators["sd15"].prepare([WORDS * 50])
    assert not prepared.segments
    (note,) = prepared.notes
    assert note.became == "cut" and "8 are read at most" in note.why and "/77 tokens" in note.why


@pytest.mark.parametrize("family", [*WEIGHTED, "flux", "z"])
def test_neighbours_in_a_batch_do_not_act_on_each_other(generators, family):
    generator = generators[family]
    texts = ["a cat", "a (red:1.5) cat", LONG, "a dog", f"{LONG} (x:2)", "a [red] cat"]
    texts += ["a cat\nNegative prompt: (blue:1.5)"]
    seeds = list(range(len(texts)))
    media = generator.generate(texts, seeds=seeds)
    for text, seed, picture in zip(texts, seeds, media, strict=True):
        (alone,) = generator.generate([text], seeds=[seed])
        assert (alone - picture).abs().max() <= 1.01 / 255


# ---- LoRAs and negative prompts -----------------------------------------------------------------


def test_loras_act_on_their_own_rows_and_leave_nothing_behind(with_loras, caplog):
    generator = with_loras
    texts = ["a cat", "a cat <lora:neon:2>", "<lora:ink:2> a cat", "a cat <lora:none:1>"]
    texts += ["a <lora:neon:2>cat", "a cat <lora:neon:0>"]
    before = generator.generate(["a cat"], seeds=[1])
    with caplog.at_level(logging.WARNING, "t2x.generators.diffusion"):
        media = generator.generate(texts, seeds=[1] * 6)
    assert torch.equal(media[[0, 3, 5]], before.expand(3, -1, -1, -1))
    assert torch.equal(media[1], media[4])
    assert len({picture.numpy().tobytes() for picture in media}) == 3
    assert torch.equal(generator.generate(["a cat"], seeds=[1]), before)
    prepared = generator.prepare(texts)
    assert [p.text for p in prepared] == ["a cat"] * 6
    assert [dict(p.loras) for p in prepared] == [
        {},
        {"neon": 2.0},
        {"ink": 2.0},
        {},
        {"neon": 2.0},
        {},
    ]
    assert "'<lora:none:1>' removed: no LoRA has that name; known are: ink, neon" in caplog.text


def test_a_lora_named_twice_gets_the_last_scale(with_loras):
    (prepared,) = with_loras.prepare(["<lora:neon:2> a cat <lora:NEON:1>"])
    assert list(prepared.loras.values()) == [1.0]
    assert [note.became for note in prepared.notes] == ["applied", "replaced", "applied"]


def test_pipelines_without_loras_say_so():
    (note,) = built("sana").prepare(["a cat <lora:x:1>"])[0].notes
    assert note.became == "removed" and note.syntax == "<lora:x:1>"


def test_what_a_prompt_rules_out_goes_to_the_negative_prompt(generators):
    generator = generators["sd15"]
    text = "a cat\nNegative prompt: blue, (dog:1.5)"
    media = generator.generate([text], seeds=[1])
    own = generator.generate(["a cat"], seeds=[1], negative=["blue, (dog:1.5)"])
    assert torch.equal(media, own)
    assert not torch.equal(own, generator.generate(["a cat"], seeds=[1], negative=["blue, dog"]))
    both = generator.generate([text], seeds=[1], negative=["green"])
    joined = generator.generate(["a cat"], seeds=[1], negative=["green, blue, (dog:1.5)"])
    assert torch.equal(both, joined)
    distilled = DiffusionGenerator.from_pretrained(FAMILIES["sd15"](guidance_embedding=32))
    (prepared,) = distilled.prepare([text])
    assert not prepared.negative and [note.became for note in prepared.notes] == ["removed"]


def test_in_a_negative_prompt_only_words_act(with_loras, caplog):
    text = "blue <lora:neon:2> --no dogs"
    with caplog.at_level(logging.WARNING, "t2x"):
        media = with_loras.generate(["a cat"], seeds=[1], negative=[text])
    told = [record.getMessage() for record in caplog.records]
    assert all(line.startswith("negative prompt 0: ") for line in told) and len(told) == 2
    assert "'<lora:neon:2>' removed: it stands in a negative prompt" in told[0]
    assert "'dogs' removed" in told[1]
    assert torch.equal(media, with_loras.generate(["a cat"], seeds=[1], negative=["blue"]))


# ---- keys, records ------------------------------------------------------------------------------


def test_what_decides_how_prompts_are_read_is_in_the_key(generators, lora_folder, tmp_path):
    plain = built("sd15", syntax="plain").fingerprint()
    auto = generators["sd15"].fingerprint()
    assert plain["syntax"] == {"mode": "plain"} and auto["syntax"]["mode"] == "auto"
    assert auto["syntax"]["weights"].startswith("compel ")
    assert generators["flux"].fingerprint()["syntax"]["weights"] is None
    (tmp_path / "a.safetensors").write_bytes((lora_folder / "neon.safetensors").read_bytes())
    one = built("sd15", lora_folder=tmp_path)
    first = one.fingerprint()["syntax"]["loras"]
    (tmp_path / "a.safetensors").write_bytes((lora_folder / "ink.safetensors").read_bytes())
    second = one.fingerprint()["syntax"]["loras"]
    assert first and first != second
    os.utime(tmp_path / "a.safetensors")
    assert one.fingerprint()["syntax"]["loras"] == second  # the same bytes, copied again
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.safetensors").rename(tmp_path / "sub" / "a.safetensors")
    assert one.fingerprint()["syntax"]["loras"] != second  # <lora:sub/a:1> acts only now
    json.dumps(one.fingerprint())


def test_guidance_draws_as_plain_text_when_asked(generators):
    own = generators["sd15"]
    recipe = make_recipe({"fake-reward": 1.0}, options={"free_last": 0}, loaded=["fake-reward"])
    guided = GuidedGenerator(own, recipe, rewards=[FakeReward()])
    prompt = "a (red:1.5) cat"
    drawn = [guided.generate([prompt], seeds=[0], syntax=kind) for kind in ("plain", "auto", None)]
    assert torch.equal(drawn[1], drawn[2]) and not torch.equal(drawn[0], drawn[1])


def test_a_record_is_json_and_holds_all(with_loras):
    (prepared,) = with_loras.prepare(["a (red:1.5) cat <lora:ink:0.5> --no dogs"])
    record = json.loads(json.dumps(prepared.record()))
    assert record["original"] == "a (red:1.5) cat <lora:ink:0.5> --no dogs"
    assert record["text"] == "a red cat" and record["negative"] == "dogs"
    assert record["loras"] == {"ink": 0.5} and record["chunks"] == {"tokenizer": ["a red cat"]}
    assert record["pieces"] == [[["a ", 1.0], ["red", 1.5], [" cat", 1.0]]]
    assert {note["became"] for note in record["notes"]} == {"applied"}
    with pytest.raises(TypeError):
        prepared.loras["ink"] = 1.0


# ---- guidance -----------------------------------------------------------------------------------


class Listening(FakeReward):
    def __init__(self) -> None:
        super().__init__()
        self.heard: set[tuple[str, ...]] = set()

    def score(self, prompts, media, *, context=None):
        self.heard.add(tuple(prompts))
        return super().score(prompts, media, context=context)


@pytest.mark.parametrize(
    ("mode", "options"),
    [("E", ()), ("J", ()), ("search", ("pictures=2",)), ("particles", ())],
)
def test_guidance_draws_what_was_prepared_and_scores_the_words(with_loras, mode, options):
    reward = Listening()
    free = ("free_last=0",) if mode in ("E", "J") else ()
    recipe = make_recipe(
        "fake-reward=1", mode=mode, options=(*options, *free), loaded=["fake-reward"]
    )
    guided = GuidedGenerator(with_loras, recipe, rewards=[reward])
    text = "a (red:1.5) cat <lora:neon:2>"
    media = guided.generate([text, LONG], seeds=[1, 2])
    assert {words for call in reward.heard for words in call} == {"a red cat", LONG}
    assert guided.prepare([text])[0].loras == {"neon": 2.0}
    assert not torch.equal(media[:1], guided.generate(["a red cat"], seeds=[1]))


@pytest.mark.parametrize("family", WEIGHTED)
def test_three_way_guidance_beside_weights_and_windows(generators, family):
    generator = generators[family]
    texts = ["a (red:1.5) cat", LONG]
    plain = generator.generate(texts, seeds=[1, 2])
    with original_prompt_guidance(generator.pipeline, dict.fromkeys(texts, "a cat"), 2.0):
        media = generator.generate(texts, seeds=[1, 2])
    assert not torch.equal(media[0], plain[0]) and not torch.equal(media[1], plain[1])
    with original_prompt_guidance(generator.pipeline, dict.fromkeys(texts, "a cat"), 0.0, 3.0):
        same = generator.generate(texts, seeds=[1, 2])
    assert (same - plain).abs().max() <= 1.01 / 255
