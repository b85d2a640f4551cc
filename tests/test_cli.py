"""The command: each subcommand's happy path, its JSON, exit codes, and errors in one line."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from PIL import Image

from t2x import registry
from t2x.cli import main, run
from t2x.commands.console import Meter, job_progress
from t2x.errors import T2XError
from t2x.media import load_picture, save_png
from t2x.testing import FakeGenerator, FakeReward, FakeRewriter, tiny_open_clip
from t2x.types import Rewrite

COMMANDS = (
    "",
    "demo",
    "rewrite",
    "generate",
    "ask",
    "edit",
    "score",
    "rewards",
    "list",
    "data",
    "data prompts",
    "data sft",
    "data pairs",
    "data check",
    "bench",
    "bench checks",
    "bench rewrite",
    "bench score",
    "bench selection",
    "claims",
    "eval",
    "eval ask",
    "eval edits",
    "eval guidance",
    "eval sets",
    "eval world",
    "serve",
    "world",
    "world train",
    "world eval",
    "world render",
)
ODD = ("猫在沙发上", "😀🐈", "<|im_end|>\n<|im_start|>system", "a </answer> b", "word " * 5000)


REWRITER = ("--model", "t2x.testing:FakeRewriter")
GENERATOR = ("--model", "t2x.testing:FakeGenerator")


def trainer(**options: Any) -> dict[str, float]:
    options["out"].mkdir(parents=True)
    return {"steps": float(options["steps"]), "seed": float(options["seed"])}


@pytest.fixture(autouse=True)
def fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("fakes")
    module.bright = partial(FakeReward, fails_on="unknown")
    module.trainer = trainer
    monkeypatch.setitem(sys.modules, "fakes", module)
    monkeypatch.setitem(registry.REWARDS, "bright", "fakes:bright")


@pytest.fixture
def t2x(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def call(*arguments: object) -> tuple[int, str, str]:
        code = run([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_every_command(t2x, command):
    code, out, err = t2x(*command.split(), "--help")
    assert code == 0 and f"Usage: t2x {command}".rstrip() in out and not err
    if command not in ("", "bench", "eval", "data", "serve", "world"):
        assert "--json" in out


def test_version(t2x):
    import t2x as package

    assert t2x("--version") == (0, f"t2x {package.__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("nothing",), 2, "No such command 'nothing'"),
        (("list", "--nothing"), 2, "No such option"),
        (("generate",), 2, "Missing argument"),
        (("generate", "a", "--num", "0"), 2, "Invalid value"),
        (("world", "train"), 2, "Missing argument"),
        (("generate", ""), 1, "the prompt is empty"),
        (("generate", "cat", " \n"), 1, "prompt 2 is empty"),
        (("generate", "caf\udce9"), 1, "the prompt is no valid Unicode text"),
        (("generate", "cat", "--lora", ":0.8"), 1, "no file of a LoRA is named"),
        (("demo", "  "), 1, "the prompt is empty"),
        (("rewrite", ""), 1, "the prompt is empty"),
        (("rewrite",), 1, "one of both"),
        (("rewrite", "cat", "--in", "x.jsonl"), 1, "one of both"),
        (("rewrite", "--in", "missing.jsonl"), 1, "no file 'missing.jsonl'"),
        (("rewrite", "cat", "--model", "nope"), 1, "unknown rewriter 'nope'"),
        (("rewrite", "cat", "--target", "emoji-flo"), 1, "unknown generator 'emoji-flo'"),
        (("rewrite", "--in", "a.png", "--format", "xml"), 2, "Invalid value"),
        (("rewrite", "cat", "--engine", "dask"), 2, "Invalid value"),
        (("rewrite", "cat", "--workers", 2), 1, "they are for engine 'ray'"),
        (("rewrite", "cat", "--out", "x.csv"), 1, "give a name like x.jsonl"),
        (("bench", "rewrite", "--models", ","), 1, "no model was named"),
        (("bench", "rewrite", "--sizes", "10,x"), 1, "whole numbers from 1"),
        (("serve", "--port", "99999"), 2, "Invalid value"),
        (("generate", "cat", "--model", "emoji-flo"), 1, "did you mean 'emoji-flow'"),
        (("generate", "cat", "--size", "64"), 1, "HEIGHTxWIDTH"),
        (("generate", "cat", "--size", "0x64"), 1, "HEIGHTxWIDTH"),
        (("score", "missing.png", "-p", "cat", "-r", "bright"), 1, "no file 'missing.png'"),
        (("score", "text.png", "-p", "cat", "-r", "bright"), 1, "is no picture"),
        (("score", "a.png", "b.png", "c.png", "-p", "x", "-p", "y"), 1, "got 2 prompts for 3"),
        (("score", "a.png", "-p", "", "-r", "bright"), 1, "the prompt is empty"),
        (("score", "text.png", "-r", "bright"), 1, "no prompt was given and the file holds none"),
        (("score", "a.png", "-p", "x", "--prompts", "text.png"), 1, "one of both"),
        (("score", "a.png", "--prompts", "gone.txt"), 1, "cannot read the prompts in 'gone.txt'"),
        (("score", "a.png", "-p", "x", "--json", "--csv"), 1, "give one of them"),
        (("score", "a.png", "-p", "x", "-r", "bright", "--sort", "clip"), 1, "none of the rewards"),
        (("bench", "selection", "--methods", "mops"), 1, "no method of selection 'mops'"),
        (("bench", "score", "--architecture", "ViT-0"), 1, "no architecture 'ViT-0'"),
        (("score", "a.png", "-p", "x", "-r", ","), 1, "no reward was named"),
        (("score", "a.png", "-p", "x", "-r", "clipp"), 1, "did you mean 'clip'"),
        (("list", "rewads"), 1, "did you mean 'rewards'"),
        (("world", "train", "emoji-clop"), 1, "did you mean 'emoji-clip'"),
        (("world", "eval", "--arm", ","), 1, "no arm was named"),
        (("eval", "world", "--arms", "raw,grpo"), 1, "make it with `t2x train grpo"),
        (("eval", "world", "--arms", "raw,x=nothing"), 1, "unknown arm 'nothing'"),
        (("eval", "sets", "--group", "1"), 2, "Invalid value"),
        (("claims", "nothing"), 1, "unknown claim 'nothing'"),
        (("claims", "--run"), 1, "name a claim"),
        (("world", "eval", "--n", "29"), 2, "Invalid value"),
        (("world", "eval", "--workers", "1"), 1, "--workers: for arms at equal cost"),
        (("world", "eval", "--reward", "clip=1", "--split", "held-out"), 1, "--reward, --split:"),
        (("world", "render", "--task", "dance"), 1, "unknown task 'dance'"),
    ],
)
def test_an_error_is_one_line_on_standard_error(t2x, arguments, code, message):
    Path("text.png").write_text("no picture")
    save_png(torch.zeros(3, 4, 4), "a.png")
    got, out, err = t2x(*arguments)
    assert got == code and message in err and not out
    (said,) = [line for line in err.splitlines() if not line.startswith("loading ")]
    assert said.startswith("error: ")


def test_list_as_table_and_json(t2x):
    code, out, _ = t2x("list", "--json")
    kinds = {"rewriters", "generators", "rewards", "commands"}
    assert code == 0 and set(json.loads(out)) == {*kinds, "presets"}
    assert "clip" in json.loads(out)["rewards"]
    code, out, _ = t2x("list", "rewards")
    assert code == 0 and "bright" in out and "emoji-flow" not in out


def test_rewrite_prints_one_json_line_per_prompt(t2x):
    code, out, _ = t2x("rewrite", *ODD, *REWRITER, "-n", 2, "--json")
    records = [json.loads(line) for line in out.splitlines()]
    assert code == 0 and [record["prompt"] for record in records] == list(ODD)
    for record in records:
        assert len(record["rewrites"]) == 2
        for item in record["rewrites"]:
            changed = item["text"] != record["prompt"]
            assert changed == (item["status"] == "accepted")
            assert changed or item["checks"], "words given back need a reason"
    assert records[0]["rewrites"][0]["text"].startswith(f"{ODD[0]}, ")


@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "utf-8"])
@pytest.mark.parametrize("form", [(), ("--json",)])
def test_an_encoding_without_the_character_costs_no_result(monkeypatch, encoding, form):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding))
    prompt = "é 猫 😀"
    with pytest.raises(SystemExit) as ended:
        main(["rewrite", "--model", "none", prompt, *form])
    sys.stdout.flush()
    text = written.getvalue().decode(encoding)
    assert ended.value.code == 0
    if form:
        assert json.loads(text)["prompt"] == prompt
    else:
        shown = prompt.encode(encoding, "backslashreplace").decode(encoding)
        assert "".join(shown.split())[:8] in "".join(text.split())


def test_rewrite_shows_text_and_reason_without_reading_markup(t2x, monkeypatch):
    def drop(self: FakeRewriter, prompts: Sequence[str], **_: Any) -> list[list[Rewrite]]:
        return [[Rewrite(p, "a nice picture of a table")] for p in prompts]

    monkeypatch.setattr(FakeRewriter, "rewrite", drop)
    code, out, _ = t2x("rewrite", "[bold]three cats[/] [/x]", *REWRITER)
    text = " ".join(out.split())
    assert code == 0 and "[bold]three cats[/]" in text and "reverted: " in text


def test_a_bad_line_is_reported_and_never_stops_the_rest(t2x):
    lines = [b'{"prompt": "a cat"}', b"{broken", b"", b'"a dog"', b'{"text": 1}', b'" "', b"\xff"]
    Path("in.jsonl").write_bytes(b"\n".join([*lines, b'"a cow"']))
    code, out, err = t2x("rewrite", "--in", "in.jsonl", "--out", "o.jsonl", *REWRITER)
    assert code == 1 and not out and "4 of 7 lines were not rewritten; see o.jsonl.errors" in err
    records, bad = (
        [json.loads(line) for line in Path(name).read_text("utf-8").splitlines()]
        for name in ("o.jsonl", "o.jsonl.errors")
    )
    assert {row["index"]: row["prompt"] for row in records} == {0: "a cat", 3: "a dog", 7: "a cow"}
    assert [row["line"] for row in bad] == [2, 5, 6, 7] and all(row["error"] for row in bad)
    code, out, err = t2x("rewrite", "--in", "in.jsonl", *REWRITER)
    assert code == 1 and [json.loads(line) for line in out.splitlines()] == records
    assert "line 2: not valid JSON" in err and "4 of 7 lines" in err
    _, alone, _ = t2x("rewrite", "a dog", *REWRITER, "--json")
    assert json.loads(alone)["rewrites"] == records[1]["rewrites"]


def test_rewrite_reads_standard_input_and_refuses_to_overwrite_its_input(t2x, monkeypatch):
    stdin = io.TextIOWrapper(io.BytesIO('{"prompt": "猫"}\n'.encode()))
    monkeypatch.setattr(sys, "stdin", stdin)
    code, out, _ = t2x("rewrite", "--in", "-", *REWRITER)
    assert code == 0 and json.loads(out)["prompt"] == "猫"
    Path("in.jsonl").write_text('"a"\n')
    code, _, err = t2x("rewrite", "--in", "in.jsonl", "--out", "./in.jsonl")
    assert code == 1 and "over the input" in err and Path("in.jsonl").read_text() == '"a"\n'


def test_rewrite_goes_on_with_its_own_output_and_refuses_any_other(t2x):
    Path("in.txt").write_text('a cat\n"a dog"\n')
    arguments = ("rewrite", "--in", "in.txt", "--out", "o.jsonl", *REWRITER)
    code, _, err = t2x(*arguments)
    assert code == 0 and "2 lines written to o.jsonl" in err
    whole = Path("o.jsonl").read_bytes()
    assert json.loads(whole.splitlines()[1])["prompt"] == '"a dog"'
    Path("o.jsonl").write_bytes(whole[:-20])
    code, _, err = t2x(*arguments)
    assert code == 0 and "1 of the 2 are from an earlier run" in err
    assert Path("o.jsonl").read_bytes() == whole
    code, _, err = t2x(*arguments, "--seed", 4)
    assert code == 1 and "seed was 0, is 4" in err and err.count("\n") == 1
    assert Path("o.jsonl").read_bytes() == whole
    assert t2x(*arguments, "--seed", 4, "--overwrite")[0] == 0
    assert json.loads(Path("o.jsonl").read_bytes().splitlines()[0])["rewrites"][0]["seed"] == 4


def test_a_stream_is_written_once_and_not_gone_on_with(t2x, monkeypatch):
    for code, said in ((0, "1 lines written"), (1, "can't be read again")):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a cat\n")))
        got, _, err = t2x("rewrite", "--in", "-", "--out", "o.jsonl", *REWRITER)
        assert got == code and said in err
    assert len(Path("o.jsonl").read_bytes().splitlines()) == 1


def test_a_target_is_asked_for_its_token_limits_and_not_loaded(t2x, monkeypatch):
    def load(*arguments: Any, **options: Any) -> None:
        raise AssertionError("the generator was loaded")

    monkeypatch.setattr("t2x.registry.load_generator", load)
    monkeypatch.setattr("t2x.generators.loading.load_pipeline", load)
    code, out, _ = t2x("rewrite", "a cat", "--target", "emoji-flow", *REWRITER, "--json")
    scores = json.loads(out)["rewrites"][0]["scores"]
    assert code == 0 and 0 < scores["tokens/tokenizer"] < scores["limit/tokenizer"]


def test_a_long_job_says_how_fast_it_goes_and_how_long_it_takes():
    """The 600 lines of an earlier run are no speed of this one: 100 lines in 4 seconds are 25 a
    second, and 300 more take 12."""
    now = iter([10.0, 14.0, 14.0, 14.0, 15.0])
    meter = Meter("lines", clock=lambda: next(now))
    assert meter.text(600, 1000) == "600 of 1,000 lines"
    assert meter.text(700, 1000) == "700 of 1,000 lines, 25 a second, 0:00:12 left"
    assert meter.text(700, None) == "700 lines, 25 a second"
    assert meter.left(700, 1000) == ", 0:00:12 left" and meter.left(1000, 1000) == ""


def test_a_long_job_says_where_it_is_now_and_then(monkeypatch, capsys):
    for spoken, count in ((0.0, 3), (3600.0, 0)):
        monkeypatch.setattr("t2x.commands.console.SPOKEN", spoken)
        with job_progress("lines") as show:
            for done in range(3):
                show(done, 3)
        err = capsys.readouterr().err
        assert err.count("\n") == count and ("2 of 3 lines" in err) == bool(count)


def test_generate_writes_pictures_with_their_prompt_inside(t2x):
    arguments = ("-n", 2, "--seed", 7, "--size", "4x6", "--out", "o", "--json")
    code, out, _ = t2x("generate", *ODD, *GENERATOR, *arguments)
    rows = json.loads(out)
    assert code == 0 and [row["seed"] for row in rows] == [7, 8] * len(ODD)
    assert [row["prompt"] for row in rows[::2]] == list(ODD)
    fresh = FakeGenerator().generate(ODD, seeds=[8] * len(ODD), size=(4, 6))
    for row, picture in zip(rows[1::2], fresh, strict=True):
        assert torch.equal(load_picture(row["file"])[0], picture)
    assert Image.open(rows[2]["file"]).text["prompt"] == ODD[1]


def test_a_picture_holds_what_its_generator_sampled_with(t2x):
    code, out, _ = t2x("generate", "cat", "--model", "emoji-flow-turbo", "--steps", 2, "--json")
    (row,) = json.loads(out)
    sampling = json.loads(Image.open(row["file"]).text["sampling"])
    assert code == 0 and sampling == row["sampling"]
    assert sampling["num_inference_steps"] == 2 and "guidance_scale" in sampling


def test_generate_passes_sampling_on_and_rewrites_first(t2x, monkeypatch):
    given: list[dict[str, Any]] = []
    monkeypatch.setattr(
        sys.modules["fakes"], "make", lambda **o: given.append(o) or FakeGenerator(), raising=False
    )
    arguments = ("--model", "fakes:make", "--steps", 3, "--guidance", 2.5, "--json")
    code, out, _ = t2x("generate", "cat", *arguments, "--rewriter", "t2x.testing:FakeRewriter")
    (row,) = json.loads(out)
    assert code == 0 and given == [{"num_inference_steps": 3, "guidance_scale": 2.5}]
    assert row["prompt"] == "cat" and row["text"].startswith("cat, ")
    drawn = FakeGenerator().generate([row["text"]], seeds=[0])
    assert torch.equal(load_picture(row["file"]), drawn)


def test_generate_rewrites_within_the_limits_of_what_draws(t2x, monkeypatch):
    asked: list[Any] = []

    def guarded(rewriter: str, *, generator: Any = None) -> FakeRewriter:
        asked.append((rewriter, generator))
        return FakeRewriter()

    monkeypatch.setattr("t2x.rewriters.loading.load_guarded", guarded)
    assert t2x("generate", "cat", *GENERATOR, "--rewriter", "rules")[0] == 0
    assert asked == [("rules", GENERATOR[1])]


def test_generate_never_writes_over_a_picture(t2x):
    first = json.loads(t2x("generate", "cat", *GENERATOR, "-n", 2, "--json")[1])
    before = [Path(row["file"]).read_bytes() for row in first]
    second = json.loads(t2x("generate", "dog", *GENERATOR, "-n", 2, "--json")[1])
    assert [Path(row["file"]).read_bytes() for row in first] == before
    names = [Path(row["file"]).name for row in (*first, *second)]
    assert names == [f"{i:04d}-seed{i % 2}.png" for i in range(4)]


def test_two_that_generate_at_once_keep_their_pictures_apart(t2x, monkeypatch):
    """The second begins and ends while the first draws, with the same seed."""
    other: list[dict[str, str]] = []

    class Slow(FakeGenerator):
        def generate(self, prompts, **options):
            if not other:
                other.append({})
                other[0] = json.loads(t2x("generate", "dog", *GENERATOR, "--json")[1])[0]
            return super().generate(prompts, **options)

    monkeypatch.setattr(sys.modules["fakes"], "make", Slow, raising=False)
    code, out, _ = t2x("generate", "cat", "--model", "fakes:make", "--json")
    rows = [*json.loads(out), other[0]]
    assert code == 0 and [Path(row["file"]).name[:4] for row in rows] == ["0001", "0000"]
    assert [Image.open(row["file"]).text["prompt"] for row in rows] == ["cat", "dog"]


def test_generate_leaves_no_empty_file_for_what_can_not_be_saved(t2x, monkeypatch):
    def full(*arguments: Any, **options: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("t2x.media.save_png", full)
    code, _, err = t2x("generate", "cat", *GENERATOR, "--out", "o")
    assert code == 1 and "cannot write a picture into 'o': no space left" in err
    assert not list(Path("o").iterdir())


def test_generate_saves_what_is_drawn_before_something_fails(t2x, monkeypatch):
    class Failing(FakeGenerator):
        batch_size = 2

        def generate(self, prompts, *, seeds, **options):
            if 5 in seeds:
                raise T2XError("memory ran out")
            return super().generate(prompts, seeds=seeds, **options)

    monkeypatch.setattr(sys.modules["fakes"], "make", Failing, raising=False)
    code, out, err = t2x("generate", "cat", "--model", "fakes:make", "-n", 8, "--out", "o")
    assert code == 1 and not out and "error: memory ran out" in err
    assert sorted(path.name for path in Path("o").iterdir()) == [
        f"{i:04d}-seed{i}.png" for i in range(4)
    ]


def test_a_folder_that_can_not_be_written_is_one_line_before_anything_is_drawn(t2x, monkeypatch):
    def load(*arguments: Any, **options: Any) -> None:
        raise AssertionError("a model was loaded for nothing")

    monkeypatch.setattr("t2x.registry.load_generator", load)
    Path("file").touch()
    code, _, err = t2x("generate", "cat", *GENERATOR, "--out", "file")
    assert code == 1 and err.startswith("error: cannot write") and err.count("\n") == 1


def test_score_pairs_pictures_with_prompts_and_nan_is_null(t2x):
    for name, level in {"a.png": 0.2, "b.png": 0.6}.items():
        save_png(torch.full((3, 4, 4), level), name)
    prompts = ("-p", "cat", "-p", "unknown")
    code, out, _ = t2x("score", "a.png", "b.png", *prompts, "-r", "bright", "--json")
    scores = [row["scores"]["bright"] for row in json.loads(out)]
    assert code == 0 and scores == [pytest.approx(0.2), None]
    code, out, _ = t2x("score", "a.png", "b.png", *prompts, "-r", "bright")
    assert code == 0 and "0.2000" in out and "not measured" in out


def levels(**pictures: float) -> None:
    for name, level in pictures.items():
        save_png(torch.full((3, 4, 4), level), f"d/{name}.png")


def test_score_keeps_what_can_be_scored_and_leaves_with_1(t2x):
    levels(a=0.2, b=0.6)
    Path("d/c.png").write_text("no picture")
    code, out, err = t2x("score", "d", "-p", "cat", "-r", "bright", "--json")
    rows = json.loads(out)
    assert code == 1 and "1 of 3 files have no score" in err.splitlines()[-1]
    assert [row.get("scores", {}).get("bright") for row in rows[:2]] == pytest.approx([0.2, 0.6])
    assert rows[2] == {"picture": "d/c.png", "prompt": "cat", "error": rows[2]["error"]}
    assert "is no picture" in rows[2]["error"]
    code, out, _ = t2x("score", "d", "-p", "cat", "-r", "bright")
    assert code == 1 and "0.6000" in out and "no picture" in " ".join(out.split())


def test_score_as_csv_reads_prompts_from_a_file(t2x):
    levels(a=0.2, b=0.6, c=0.4)
    Path("d/c.png").write_text("no picture")
    Path("p.txt").write_text('one, "two"\nunknown\n猫\n', encoding="utf-8")
    code, out, _ = t2x("score", "d", "--prompts", "p.txt", "--rewards", "bright", "--csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert code == 1 and [row["prompt"] for row in rows] == ['one, "two"', "unknown", "猫"]
    assert float(rows[0]["bright"]) == pytest.approx(0.2) and not rows[0]["error"]
    assert rows[1]["bright"] == rows[2]["bright"] == "" and "no picture" in rows[2]["error"]


def test_score_of_pairs_needs_no_prompt(t2x):
    levels(a=0.2, b=0.6)
    pairs = [{"picture": "d/b.png", "prompt": "x"}, {"picture": "d/a.png", "prompt": "unknown"}]
    Path("p.jsonl").write_text("\n".join(map(json.dumps, pairs)))
    code, out, _ = t2x("score", "p.jsonl", "-r", "bright", "--json")
    rows = json.loads(out)
    assert code == 0 and [row["prompt"] for row in rows] == ["x", "unknown"]
    assert [row["scores"]["bright"] for row in rows] == [pytest.approx(0.6), None]


def test_score_takes_the_prompt_that_a_picture_of_ours_holds(t2x):
    _, _, err = t2x("generate", "a dog", *GENERATOR, "--out", "g")
    assert "loading t2x.testing:FakeGenerator ..." in err.splitlines()
    png = next(Path("g").glob("*.png"))
    code, out, err = t2x("score", png, "-r", "bright", "--json")
    assert code == 0 and json.loads(out)[0]["prompt"] == "a dog"
    assert "loading bright ..." in err.splitlines()
    code, out, _ = t2x("score", png, "-p", "a cat", "-r", "bright", "--json")
    assert code == 0 and json.loads(out)[0]["prompt"] == "a cat"


def test_score_without_any_prompt(t2x):
    """The stored "prompt" of other programs is none; what reads no prompt needs none."""
    workflow = {"prompt": '{"3": {"class_type": "KSampler"}}'}
    for name in "ab":
        save_png(torch.rand(3, 32, 32), f"d/{name}.png", text=workflow)
    code, out, _ = t2x("score", "d", "-r", "bright", "--json")
    rows = json.loads(out)
    assert code == 1 and all("no prompt was given" in row["error"] for row in rows)
    code, out, _ = t2x("score", "d", "-r", "quality", "--json")
    rows = json.loads(out)
    assert code == 0 and all(row["scores"]["quality"] is not None for row in rows)


def test_score_draws_a_sheet_and_prints_a_page_sorted_by_a_reward(t2x):
    levels(a=0.2, b=0.6)
    arguments = ("-p", "cat", "-r", "bright,bright", "--sort", "bright", "--sheet", "o/s.png")
    code, out, err = t2x("score", "d", *arguments, "--html")
    assert code == 0 and out.startswith("<!doctype html>") and "written: o/s.png" in err
    assert out.index("d/b.png") < out.index("d/a.png")
    assert load_picture("o/s.png").shape[1] == 3
    Path("file").touch()
    code, _, err = t2x("score", "d", *arguments[:-1], "file/s.png")
    assert code == 1 and "cannot write" in err.splitlines()[-1]


def test_score_takes_videos(t2x):
    frames = [Image.new("RGB", (8, 8), (v, v, v)) for v in (51, 153)]
    frames[0].save("v.gif", save_all=True, append_images=frames[1:], duration=100)
    code, out, _ = t2x("score", "v.gif", "-p", "cat", "-r", "bright,motion", "--json")
    (row,) = json.loads(out)
    assert code == 0 and row["scores"]["bright"] == pytest.approx(0.4, abs=0.01)
    assert row["scores"]["motion"] == pytest.approx(0.4, abs=0.01)


def test_rewards_lists_every_name_with_its_facts(t2x):
    code, out, _ = t2x("rewards", "--json")
    rows = {row["name"]: row for row in json.loads(out)}
    assert code == 0 and list(rows) == registry.known_names("rewards")
    assert rows["clip"]["range"] == [-1, 1] and rows["clip"]["differentiable"] is True
    assert rows["ocr"]["extra"] == "ocr" and rows["motion"]["modality"] == "video"
    assert all(row["direction"] == "higher is better" for row in rows.values())
    assert rows["bright"]["measures"] is None  # a plugin
    code, out, _ = t2x("rewards")
    assert code == 0 and all(name[:4] in out for name in rows)


def test_bench_prints_the_ratio_and_every_reward(t2x, monkeypatch):
    from t2x.scoring import bench, random_towers

    tower = tiny_open_clip()
    tower[0].visual.output_dim = 16
    monkeypatch.setattr(random_towers, "open_clip_tower", lambda *a, **k: tower)
    monkeypatch.setattr(bench, "TOWERS", {name: lambda device: tower for name in bench.TOWERS})
    names = [*bench.SHARED, "bright", "nothing"]
    options = ("--reward", ",".join(names), "--repeats", 1)
    code, out, _ = t2x("bench", "score", *options, "--json")
    result = json.loads(out)
    assert code == 0 and result["shared_over_single"] > 0 and result["threads"] == 1
    assert set(result["together"]["alone"]) == set(bench.SHARED)
    assert list(result["embedded"]) == names and set(result["full_size"]) == set(names)
    assert result["embedded"]["bright"]["pictures_per_second"] > 0
    assert "unknown reward" in result["embedded"]["nothing"]["reason"]
    assert result["full_size"]["clip"]["pictures_per_second"] > 0
    assert result["full_size"]["bright"]["pictures_per_second"] is None
    code, out, _ = t2x("bench", "score", *options)
    assert code == 0 and "shared_over_single" in out and "laion-v2" in out
    code, out, _ = t2x("bench", "score", "--reward", "clip", "--no-full-size", "--json")
    assert code == 0 and "shared_over_single" not in out and "full_size" not in out


def test_bench_checks_prints_precision_and_recall(t2x, tmp_path):
    rows = [
        {"kind": "count", "original": "two cats", "rewrite": text, "kept": kept}
        for text, kept in (("2 cats", True), ("a cat", False), ("nine cats", False))
    ]
    path = tmp_path / "pairs.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    code, out, _ = t2x("bench", "checks", "--pairs", path, "--json")
    row = json.loads(out)["kinds"]["count"]
    assert (code, row["n"], row["precision"], row["recall"]) == (0, 3, 1.0, 1.0)
    code, out, _ = t2x("bench", "checks", "--pairs", path)
    assert code == 0 and "overall" in out and "1.000 0.34-1.00" in out
    code, _, err = t2x("bench", "checks", "--pairs", tmp_path / "nowhere")
    assert code == 1 and "cannot read pairs" in err


def test_generate_gives_a_negative_prompt_only_to_who_takes_one(t2x, monkeypatch, tmp_path):
    def rewrite(self, prompts, *, num_generations=1, seed=0):
        return [[Rewrite(p, f"{p} in the sun", negative="rain")] for p in prompts]

    monkeypatch.setattr(FakeRewriter, "rewrite", rewrite)
    options = ("--rewriter", REWRITER[1], *GENERATOR, "--json")
    _, out, _ = t2x("generate", "a cat", "--out", tmp_path, *options)
    assert json.loads(out)[0]["negative"] == "rain"
    monkeypatch.setattr(FakeGenerator, "supports_negative", False, raising=False)
    _, out, _ = t2x("generate", "a cat", "--out", tmp_path, *options)
    assert json.loads(out)[0]["negative"] == ""


def test_bench_rewrite_prints_speedup_and_equality(t2x):
    arguments = ("--models", "emoji-rewriter", "--prompts", 4, "--alone", 2, "--sizes", "2,4")
    code, out, _ = t2x("bench", "rewrite", *arguments, "--threads", 1, "--json")
    result = json.loads(out)
    assert code == 0 and result["identical"] == 1 and result["speedup"] > 0 and result["near_ties"]
    assert set(result["cost"]) == {"2", "4"} and result["flat"] >= 1
    found = result["models"]["emoji-rewriter"]
    assert (found["dtype"], found["compared"], result["clock"]) == ("float32", 2, "processor")
    code, out, _ = t2x("bench", "rewrite", *arguments, "--threads", 1)
    assert code == 0 and "speedup" in out and "seconds/prompt" in out


def test_world_train_passes_its_options_on(t2x, monkeypatch):
    monkeypatch.setitem(registry.COMMANDS, "emoji-test", "fakes:trainer")
    code, out, _ = t2x("world", "train", "emoji-test", "--steps", 5, "--seed", 3, "--json")
    assert code == 0 and json.loads(out)["metrics"] == {"steps": 5.0, "seed": 3.0}
    assert Path("runs/emoji-test").is_dir()


def test_world_train_refuses_a_start_for_a_recipe_without_one(t2x, monkeypatch):
    monkeypatch.setitem(registry.COMMANDS, "emoji-test", "fakes:trainer")
    code, _, err = t2x("world", "train", "emoji-test", "--start", "somewhere")
    assert code == 1 and "emoji-test is trained from nothing" in err
    assert not Path("runs").exists()


def test_world_eval_prints_every_arm_and_task(t2x):
    """Pictures of one colour hold no object, so every arm scores 0 and no distance is closed."""
    arguments = ("--arm", "raw,rules,dense", "--n", 30, "--seed", 7)
    code, out, err = t2x("world", "eval", *arguments, *GENERATOR, "--json")
    arms = json.loads(out)["arms"]
    assert code == 0 and list(arms) == ["raw", "rules", "dense"] and "pictures" in err
    for arm in arms.values():
        assert arm["overall"] == 0 and arm["ci95"] == [0, 0] and arm["gap_closed"] is None
        assert len(arm["tasks"]) == 6 and arm["seconds_per_picture"] > 0
    code, out, _ = t2x("world", "eval", *arguments, *GENERATOR)
    assert code == 0 and "rules" in out


def test_eval_world_draws_the_references_of_the_gap_too(t2x):
    arguments = ("--arms", "mine=rules", "--n", 30, *GENERATOR)
    code, out, _ = t2x("eval", "world", *arguments, "--json", "--rows")
    found = json.loads(out)
    assert code == 0 and list(found["arms"]) == ["mine", "raw", "dense"]
    assert found["arms"]["mine"]["gap_closed_ci95"] == [None, None]
    assert len(found["rows"]["arms"]["mine"]["similarity"]) == 30
    code, out, _ = t2x("eval", "world", *arguments, "--no-gap")
    assert code == 0 and "drift and cost" in out and "dense" not in out


def test_the_tables_of_eval_fit_eighty_columns(monkeypatch, capsys):
    from t2x.commands.evaluate import print_arms

    monkeypatch.setenv("COLUMNS", "80")
    keys = ("similarity", "violations", "exact", "words", "length_ratio")
    costs = {"seconds": 12.3456, "tokens_written": 1234.5678, "tokens_read": math.nan}
    arm = {
        "overall": 0.12345,
        "ci95": [0.11115, 0.13335],
        "tasks": {"colour attribution": 0.98765},
        "seconds_per_picture": 0.04321,
        "drift": dict.fromkeys(keys, 0.54321),
        "cost": costs,
        "gap_closed": 0.4567,
        "gap_closed_ci95": [0.4012, 0.5098],
    }
    print_arms(dict.fromkeys(("raw", "rules", "dense", "rewrite", "grpo", "none", "k"), arm))
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    for number in ("0.123", "0.111", "0.133", "0.988", "0.043", "0.543", "1234.568", "0.510"):
        assert out.count(number) % 7 == 0 and number in out, number
    assert "0.1234" not in out and "unknown" in out


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [("-r", "clp=1", "unknown reward 'clp'"), ("--model", "runs/nowhere", "there is no folder")],
)
def test_search_refuses_names_before_it_loads_anything(t2x, monkeypatch, option, value, words):
    def load(*args, **options):
        raise AssertionError("loaded a model")

    monkeypatch.setattr("t2x.registry._load", load)
    code, _, err = t2x("search", "a cat", "-m", "reflective", option, value)
    assert code == 1 and words in err


def test_eval_sets_measures_several_rewrites(t2x):
    arguments = ("--arms", "raw", "--n", 30, "--group", 2, *GENERATOR)
    code, out, _ = t2x("eval", "sets", *arguments, "--json")
    found = json.loads(out)["arms"]["raw"]
    assert code == 0 and found["distinct"] == 1 and 1.0 < found["diversity"] < 1.1
    code, out, _ = t2x("eval", "sets", *arguments)
    assert code == 0 and "diversity" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("guidance", "--budgets", "3,x"), "numbers with commas"),
        (("guidance", "--arms", "magic"), "unknown arm 'magic'"),
        (("guidance", "--rewards", "hps=1"), "optimised and held out"),
        (("edits", "--arms", "magic"), "unknown arm 'magic'"),
    ],
)
def test_eval_of_guidance_says_what_is_wrong_before_it_loads(t2x, tmp_path, arguments, words):
    code, _, err = t2x("eval", *arguments, "--store", tmp_path / "store")
    assert code == 1 and words in err


def test_world_render_draws_the_scenes_that_it_lists(t2x):
    code, out, _ = t2x("world", "render", "--n", 5, "--scale", 1, "--task", "counting", "--json")
    result = json.loads(out)
    assert code == 0 and {row["task"] for row in result["scenes"]} == {"counting"}
    sheet = load_picture(result["out"])
    assert sheet.shape == (1, 3, 130, 196)  # 2 rows and 3 columns of 64 pixels, 2 between
    again = t2x("world", "render", "--n", 5, "--scale", 1, "--task", "counting", "--out", "b.png")
    assert again[0] == 0 and torch.equal(load_picture("b.png"), sheet)
    other = t2x("world", "render", "--n", 5, "--scale", 1, "--seed", 1, "--out", "c.png")
    assert other[0] == 0 and not torch.equal(load_picture("c.png"), sheet)


def test_only_verbose_shows_where_an_error_came_from(t2x):
    code, _, err = t2x("--verbose", "list", "nope")
    assert code == 1 and "Traceback" in err and "error: unknown kind 'nope'" in err
    assert "Traceback" not in t2x("list", "nope")[2]


def test_a_mistake_of_ours_is_not_hidden(t2x, monkeypatch):
    def broken() -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(sys.modules["fakes"], "bright", broken)
    save_png(torch.zeros(3, 4, 4), "a.png")
    with pytest.raises(KeyError):
        t2x("score", "a.png", "-p", "cat", "-r", "bright")
