"""Official layouts: what is written for made-up prompts is what each official evaluator reads."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from t2x.benchmarks.catalogue import BENCHMARKS
from t2x.benchmarks.running import BenchmarkSetup, run_benchmark
from t2x.errors import T2XError
from t2x.media import load_media, png_text
from t2x.testing import FakeReward, FakeRewriter

from . import made_up
from .made_up import CountingGenerator, colour

ARMS = ("raw", "rewrite")


@pytest.fixture
def prompts(tmp_path: Path) -> dict[str, Path]:
    folder = tmp_path / "official"
    folder.mkdir()
    return made_up.write_all(folder)


def run(name: str, prompts: dict[str, Path], out: Path, **options: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "generator": CountingGenerator(size=(8, 8)),
        "rewriter": FakeRewriter(),
        "rewards": [FakeReward()],
    }
    setup = BenchmarkSetup(name, prompts[name], out, **{**given, **options})
    return run_benchmark(setup)


def texts(out: Path) -> dict[str, dict[str, str]]:
    """What each arm drew for a prompt, from the file of rewrites."""
    rows = [json.loads(line) for line in (out / "rewrites.jsonl").read_text("utf-8").splitlines()]
    rewritten = {row["prompt"]: row["rewrites"][0]["text"] for row in rows}
    assert any(text != prompt for prompt, text in rewritten.items())
    return {"raw": {p: p for p in rewritten}, "rewrite": rewritten}


def middle(path: Path) -> tuple[int, ...]:
    with Image.open(path) as image:
        return image.convert("RGB").getpixel((image.width // 2, image.height // 2))


def test_geneval(prompts: dict[str, Path], tmp_path: Path) -> None:
    result = run("geneval", prompts, tmp_path / "o")
    drawn = texts(tmp_path / "o")
    for arm in ARMS:
        found = made_up.read_geneval(tmp_path / "o" / arm)
        assert [row for row, _ in found] == [row for row in made_up.GENEVAL for _ in range(4)]
        for i, (row, path) in enumerate(found):
            assert path.parts[-3:] == (f"{i // 4:05d}", "samples", f"{i % 4:05d}.png")
            assert middle(path) == colour(drawn[arm][row["prompt"]], 42 + i % 4)
            assert png_text(path)["prompt"] == row["prompt"]
        lines = prompts["geneval"].read_text("utf-8").splitlines()
        assert (tmp_path / "o" / arm / "00001" / "metadata.jsonl").read_text("utf-8") == lines[1]
        with Image.open(tmp_path / "o" / arm / "00000" / "grid.png") as grid:
            assert grid.size == (16, 16)
    assert list(result["arms"]["raw"]["fake-reward"]["categories"]) == [
        "single_object", "counting", "position",
    ]  # fmt: skip
    arm = tmp_path / "o" / "rewrite"
    (evaluate, summary) = result["next"]["commands"]["rewrite"]
    assert evaluate.startswith(f"python evaluation/evaluate_images.py {arm} --outfile ")
    assert summary == f"python evaluation/summary_scores.py {arm}.jsonl"


def test_t2i_compbench(prompts: dict[str, Path], tmp_path: Path) -> None:
    result = run("t2i-compbench", prompts, tmp_path / "o", samples=3)
    drawn = texts(tmp_path / "o")
    for arm in ARMS:
        for category, own in made_up.COMPBENCH.items():
            found = made_up.read_compbench(tmp_path / "o" / arm / category)
            assert [prompt for prompt, _ in found] == [p for p in own for _ in range(3)]
            for i, (prompt, path) in enumerate(found):
                assert path.name == f"{prompt}_{i:06d}.png"
                assert middle(path) == colour(drawn[arm][prompt], 42 + i % 3)
    commands = result["next"]["commands"]["raw"]
    raw, data = tmp_path / "o" / "raw", prompts["t2i-compbench"]
    assert commands[0] == f"(cd BLIPvqa_eval && python BLIP_vqa.py --out_dir={raw}/color)"
    assert f"3_in_1.py --outpath={raw}/complex --data_path={data})" in commands[-2]
    assert commands[-1].startswith("# 3_in_1.py takes 10 pictures")
    assert all("--complex=True" in line for line in commands[2:4])


def test_dpg(prompts: dict[str, Path], tmp_path: Path) -> None:
    result = run("dpg", prompts, tmp_path / "o")
    drawn = texts(tmp_path / "o")
    for arm in ARMS:
        found = made_up.read_dpg(tmp_path / "o" / arm, resolution=8, pic_num=4)
        assert found.keys() == made_up.DPG.keys()
        for n, (key, prompt) in enumerate(sorted(made_up.DPG.items())):
            for i, crop in enumerate(found[key]):
                want = colour(drawn[arm][prompt], 42 + 100 * n + i)
                assert crop.size == (8, 8) and crop.getcolors() == [(64, want)]
    assert result["next"]["commands"]["raw"] == [
        f"PIC_NUM=4 bash dpg_bench/dist_eval.sh {tmp_path / 'o' / 'raw'} 8"
    ]
    assert set(result["arms"]["raw"]["fake-reward"]["categories"]) == {
        "numbered", "COCOval", "vrd",
    }  # fmt: skip


def test_dpg_refuses_what_its_evaluator_would_cut_wrongly(
    prompts: dict[str, Path], tmp_path: Path
) -> None:
    with pytest.raises(T2XError, match=r"pictures are 8x16; draw squares with --size"):
        run("dpg", prompts, tmp_path / "o", generator=CountingGenerator(size=(8, 16)))
    with pytest.raises(T2XError, match="room for 4 of each prompt, and 5 were asked for"):
        run("dpg", prompts, tmp_path / "p", samples=5)
    run("dpg", prompts, tmp_path / "q", samples=1, rewards=())
    (one, *_) = made_up.read_dpg(tmp_path / "q" / "raw", resolution=8, pic_num=1)["7"]
    assert one.getpixel((7, 7)) == colour(made_up.DPG["7"], 42)


def test_parti(prompts: dict[str, Path], tmp_path: Path) -> None:
    result = run("parti", prompts, tmp_path / "o", samples=2)
    for arm in ARMS:
        for n, row in enumerate(made_up.PARTI):
            folder = tmp_path / "o" / arm / f"{n:05d}"
            said = json.loads((folder / "prompt.json").read_text("utf-8"))
            assert tuple(said.values()) == row
            assert sorted(p.name for p in folder.glob("*.png")) == ["00.png", "01.png"]
            text = png_text(folder / "01.png")
            assert (text["prompt"], text["seed"]) == (row[0], str(42 + 100 * n + 1))
    assert result["next"]["commands"]["raw"][0].startswith(f"t2x score {tmp_path / 'o' / 'raw'} ")
    assert "Challenge: Quantity" in result["arms"]["raw"]["fake-reward"]["categories"]


def test_genai_bench(prompts: dict[str, Path], tmp_path: Path) -> None:
    result = run("genai-bench", prompts, tmp_path / "o")
    drawn = texts(tmp_path / "o")
    known = json.loads(prompts["genai-bench"].read_text("utf-8"))
    for arm in ARMS:
        for n, (key, row) in enumerate(known.items()):
            path = tmp_path / "o" / arm / f"{key}.jpeg"
            with Image.open(path) as image:
                assert image.format == "JPEG"
            want = colour(drawn[arm][row["prompt"]], 42 + 100 * n)
            assert middle(path) == pytest.approx(want, abs=4)
    scored = result["arms"]["raw"]["fake-reward"]["categories"]
    assert {name: part["n"] for name, part in scored.items()} == {
        "basic": 2, "scene": 1, "advanced": 1, "comparison": 1,
    }  # fmt: skip
    assert any("before they were compressed" in note for note in result["notes"])
    (warning, command) = result["next"]["commands"]["rewrite"]
    assert (
        warning.startswith("#") and f"--output_dir {tmp_path / 'o'} --gen_model rewrite" in command
    )
    with pytest.raises(T2XError, match="room for 1 of each prompt"):
        run("genai-bench", prompts, tmp_path / "p", samples=2)


@pytest.mark.extra("video")
def test_vbench(prompts: dict[str, Path], tmp_path: Path) -> None:
    result = run(
        "vbench",
        prompts,
        tmp_path / "o",
        generator=CountingGenerator(modality="video", size=(16, 16)),
        arms=["rewrite"],
    )
    drawn = texts(tmp_path / "o")
    names = [str(row["prompt_en"]) for row in made_up.VBENCH[:3]]
    folder = tmp_path / "o" / "rewrite"
    assert len(list(folder.iterdir())) == 25 + 5 + 5  # the prompt that is there twice once
    for dimension in ("appearance_style", "aesthetic_quality", "dynamic_degree"):
        found = made_up.read_vbench(folder, dimension)
        assert found and all(len(videos) == 5 for videos in found.values())
    for path in folder.iterdir():  # what static_filter.py reads of the name
        prompt = re.sub(r"-\d+$", "", path.stem)
        assert prompt in names and path.suffix == ".mp4"
    n, path = 1, folder / f"{names[1]}-4.mp4"
    video = load_media(path)
    assert video.shape == (1, 4, 3, 16, 16)
    want = [value / 255 for value in colour(drawn["rewrite"][names[n]], 42 + 100 * n + 4)]
    assert video[0, 3, :, 8, 8].tolist() == pytest.approx(want, abs=0.06)
    evaluate, filtering, static = result["next"]["commands"]["rewrite"]
    assert "temporal_flickering" not in evaluate and "appearance_style" in evaluate
    assert filtering.startswith("python static_filter.py --videos_path")
    assert static.endswith("rewrite-static/filtered_videos --dimension temporal_flickering")
    assert result["arms"]["rewrite"]["fake-reward"]["overall"]["n"] == 3


def test_vbench_without_the_writer_says_so_before_anything_is_drawn(
    prompts: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "av", None)
    generator = CountingGenerator(modality="video")
    with pytest.raises(T2XError, match=r"t2x\[video\]"):
        run("vbench", prompts, tmp_path / "o", generator=generator)
    assert not generator.drawn and not (tmp_path / "o").exists()


def test_vbench_reads_every_official_form(tmp_path: Path) -> None:
    read = BENCHMARKS["vbench"].read
    folder = tmp_path / "prompts_per_dimension"
    folder.mkdir()
    (folder / "scene.txt").write_text("a tin shed\n a quay \n", "utf-8")
    (folder / "temporal_flickering.txt").write_text("a still kite", "utf-8")
    items = read(tmp_path)
    assert [(item.prompt, item.categories, item.samples) for item in items] == [
        ("a tin shed", ("scene", "background_consistency"), None),
        ("a quay", ("scene", "background_consistency"), None),
        ("a still kite", ("temporal_flickering",), 25),
    ]
    (tmp_path / "all_dimension.txt").write_text("a tin shed\na quay\na tin shed\n", "utf-8")
    assert [item.prompt for item in read(tmp_path / "all_dimension.txt")] == [
        "a tin shed",
        "a quay",
    ]


@pytest.mark.parametrize(
    ("name", "file", "content", "words"),
    [
        (
            "geneval",
            "x.jsonl",
            '{"prompt": "a cup"}\n',
            r"x.jsonl:1 has no texts under 'prompt' and",
        ),
        ("geneval", "generation_prompts.txt", "a cup\n", "the evaluator needs evaluation_metadata"),
        ("geneval", "x.jsonl", "{broken\n", "x.jsonl:1 is no valid JSON"),
        ("t2i-compbench", "color_val.txt", "a cup_holder\n", "can't hold '_'"),
        ("t2i-compbench", "color_val.txt", "a cup " * 50, "more than 255 bytes"),
        ("dpg", "x.csv", "item_id\n", "there is no folder of .txt files"),
        ("parti", "x.tsv", "a\tb\n1\t2\n", "no rows under the columns Prompt"),
        ("geneval", "x.jsonl", "\n\n", "x.jsonl' holds no prompt"),
        ("parti", "x.tsv", "Prompt\n" + "a" * 200_000, "field larger than field limit"),
        ("genai-bench", "x.json", "[]", "no JSON object by prompt id"),
        ("genai-bench", "x.json", '{"a": {"prompt": "b"}}', "is no number with a text"),
        ("genai-bench", "x.json", '{"%s": {"prompt": "b"}}' % ("1" * 400), "is no number with"),
        ("vbench", "x.txt", "either/or\n", "can't hold '/'"),
        ("vbench", "x.json", '[{"prompt": "b"}]', "no list of objects with 'prompt_en'"),
        ("vbench", "x.txt", "\n", "there are no prompts at"),
    ],
)
def test_what_is_no_official_file_says_what_is_wrong(
    tmp_path: Path, name: str, file: str, content: str, words: str
) -> None:
    (tmp_path / file).write_text(content, "utf-8")
    with pytest.raises(T2XError, match=words):
        BENCHMARKS[name].read(tmp_path / file)


@pytest.mark.parametrize(
    ("name", "file", "content"),
    [
        ("geneval", "x.jsonl", '{"prompt": "%s", "tag": "a"}\n{"prompt": "b", "tag": "a"}\n'),
        ("t2i-compbench", "color_val.txt", "%s\nb\n"),
        ("parti", "x.tsv", "Prompt\tCategory\tChallenge\tNote\n%s\ta\tb\tc\nb\ta\tb\tc\n"),
        ("vbench", "x.txt", "%s\nb\n"),
    ],
)
def test_a_prompt_ends_where_its_line_does(
    tmp_path: Path, name: str, file: str, content: str
) -> None:
    """U+2028 and U+0085, which text from the web holds, end no line of a file."""
    prompt = "a cup\u2028 and\x85 a pear"
    (tmp_path / file).write_text(content % prompt, "utf-8")
    found = [item.prompt for item in BENCHMARKS[name].read(tmp_path / file)]
    assert found == [prompt, "b"]


@pytest.mark.parametrize("skills", ["[1]", '{"a": 3}', '{"a": ["x"]}', '{"a": [null]}', '"x"'])
def test_skills_of_another_form_are_one_line(tmp_path: Path, skills: str) -> None:
    (tmp_path / "genai_image.json").write_text('{"00000": {"prompt": "a tin cup"}}', "utf-8")
    (tmp_path / "genai_skills.json").write_text(skills, "utf-8")
    with pytest.raises(T2XError, match="is no object with a list of prompt numbers by skill"):
        BENCHMARKS["genai-bench"].read(tmp_path)


@pytest.mark.parametrize("name", list(BENCHMARKS))
def test_a_path_that_is_not_there_is_one_line(tmp_path: Path, name: str) -> None:
    with pytest.raises(T2XError, match="give") as error:
        BENCHMARKS[name].read(tmp_path / "nothing")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", list(BENCHMARKS))
def test_facts_say_where_they_were_read(name: str) -> None:
    facts = BENCHMARKS[name].facts
    assert re.fullmatch(r"[0-9a-f]{40}", facts.commit) and facts.repository.count("/") == 1
    assert facts.read_in and facts.layout and facts.seeds and facts.prompts > 0
