"""Makes ``clip_goldens.json`` and ``clip_goldens_full.json`` with the official code:
jmhessel/clipscore and openai/CLIP, LAION-AI/aesthetic-predictor,
christophschuhmann/improved-aesthetic-predictor, yuvalkirstain/PickScore and tgxs002/HPSv2.

    python make_clip_goldens.py --sources FOLDER     FOLDER: checkouts of those six, by their names
    python make_clip_goldens.py --sources FOLDER --size full --only hpsv2.1

Run in an environment of its own with transformers 4.27.3, tokenizers 0.13, Pillow 10.4, numpy 1.26,
ftfy, regex, clint and t2x on the path; no weights are fetched. Towers are those that are published,
or of reduced depth and width (``clip_cases.py``); classes, tokenizers and preprocessing are the
official ones. Nothing of them is in the tests. Modules that official files import and scoring does
not use are left empty. A full ViT-H/14 needs 9 GiB: ``--only`` scores one model and leaves the
others' goldens as they are.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.serialization import config as serialization

sys.path.insert(0, str(Path(__file__).parent))
import clip_cases as cases
from remembering import remember

from t2x.media import from_pil, to_pil

CHECKOUTS = (
    "CLIP",
    "clipscore",
    "aesthetic-predictor",
    "improved-aesthetic-predictor",
    "PickScore",
    "HPSv2",
)
PHOTO = "lovely-cat-as-domestic-animal-view-pictures-182393057.jpg"
Scorer = Callable[[Path, str], float]
Make = Callable[[Path, Path], Scorer]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sources", type=Path, required=True)
    parser.add_argument("--size", choices=SCORERS, default="reduced")
    parser.add_argument("--only", nargs="+")
    options = parser.parse_args()
    sources = options.sources.resolve()
    sys.path[:0] = [str(sources / name) for name in ("CLIP", "clipscore", "HPSv2")]
    torch.set_grad_enabled(False)
    serialization.load.mmap = True  # hpsv2 loads its file for every score
    file = "clip_goldens.json" if options.size == "reduced" else f"clip_goldens_{options.size}.json"
    path = Path(__file__).with_name(file)
    goldens: dict[str, Any] = {"made with": versions(sources)}
    scorers = SCORERS[options.size]
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        opened, plain = write_pictures(work)
        for name in options.only or scorers:
            scorer = scorers[name](sources, work)
            goldens[name] = score_all(scorer, opened, plain, full=options.size == "full")
            print(name, "done", flush=True)
    goldens["checksum"] = checksum()
    if options.only and path.is_file():
        goldens = {**json.loads(path.read_text("utf-8")), **goldens}
    path.write_text(json.dumps(goldens, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def checksum() -> float:
    """Of the first blocks of both towers of HPSv2."""
    from hpsv2.src.open_clip.model import CLIP

    shapes = {k: v.shape for k, v in CLIP(**cases.VIT_H14).state_dict().items()}
    return cases.checksum(
        cases.weights("hpsv2", {k: v for k, v in shapes.items() if "resblocks.0" in k})
    )


def versions(sources: Path) -> dict[str, str]:
    """Of packages, and commits of the checkouts (from a file COMMIT if they have no history)."""
    packages = ("transformers", "tokenizers", "torch", "torchvision", "Pillow", "numpy", "ftfy")
    found = {name: version(name) for name in packages}
    for name in CHECKOUTS:
        noted = sources / name / "COMMIT"
        command = ["git", "-C", str(sources / name), "rev-parse", "HEAD"]
        text = noted.read_text() if noted.is_file() else subprocess.check_output(command, text=True)
        found[name] = text.strip()
    return found


def write_pictures(work: Path) -> tuple[dict[str, Path], dict[str, Path]]:
    """Files in their own mode, and the RGB pictures that t2x reads from them."""
    opened, plain = {}, {}
    for name, picture in cases.pictures().items():
        opened[name], plain[name] = work / f"{name}.png", work / f"{name}.plain.png"
        picture.save(opened[name], compress_level=1)
        to_pil(from_pil([picture]))[0].save(plain[name], compress_level=1)
    return opened, plain


def score_all(
    score: Scorer, opened: dict[str, Path], plain: dict[str, Path], *, full: bool
) -> dict[str, dict[str, Any]]:
    """Scores of the RGB pictures for every prompt, and of the odd files as they are; at full size
    those of plain files and prompts alone.
    """
    if full:
        return {
            "rgb": {
                name: {key: attempt(score, plain[name], cases.PROMPTS[key]) for key in cases.PLAIN}
                for name in plain
                if name not in cases.UNLIKE
            }
        }
    rgb = {
        name: {key: attempt(score, path, prompt) for key, prompt in cases.PROMPTS.items()}
        for name, path in plain.items()
    }
    raw = {name: attempt(score, opened[name], cases.PROMPTS["short"]) for name in cases.UNLIKE}
    for name in set(opened) - set(cases.UNLIKE):
        assert attempt(score, opened[name], cases.PROMPTS["short"]) == rgb[name]["short"], name
    return {"rgb": rgb, "as opened": raw}


def attempt(score: Scorer, path: Path, prompt: str) -> float | str:
    """The score, or the first line of the error."""
    try:
        return float(score(path, prompt))
    except (OSError, RuntimeError, ValueError) as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"


def openai_clip(name: str, config: dict[str, Any]) -> tuple[torch.nn.Module, Any]:
    """(model, preprocess) as ``clip.load`` gives, with weights of ours."""
    from clip.clip import _transform
    from clip.model import CLIP, build_model

    vision, text = config["vision_cfg"], config["text_cfg"]
    with torch.device("meta"):
        empty = CLIP(
            config["embed_dim"],
            vision["image_size"],
            vision["layers"],
            vision["width"],
            vision["patch_size"],
            text["context_length"],
            text["vocab_size"],
            text["width"],
            text["heads"],
            text["layers"],
        )
    model = build_model(filled(name, empty)).float()
    remember(model.visual)
    return model, _transform(model.visual.input_resolution)


def filled(name: str, model: torch.nn.Module, *, half: bool = False) -> dict[str, torch.Tensor]:
    """A state dict of the model's shapes; ``half`` loses nothing but for the temperature, which
    stays as it is.
    """
    state = {}
    for key, value in model.state_dict().items():
        tensor = torch.from_numpy(np.array(cases.weight(name, key, value.shape)))
        state[key] = tensor.half() if half and key != "logit_scale" else tensor
    return state


def stand_in(name: str, **members: Any) -> None:
    """Put a module in place of one that is absent or not to be used."""
    module = ModuleType(name)
    module.__spec__ = ModuleSpec(name, None)  # importers may look for it
    for key, value in members.items():
        setattr(module, key, value)
    sys.modules[name] = module
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, module)


def clipscore(tag: str, tower: dict[str, Any]) -> Make:
    """``clipscore.get_clip_score``, which takes the caption's prefix by itself."""

    def make(sources: Path, work: Path) -> Scorer:
        stand_in("sklearn")
        stand_in("sklearn.preprocessing", normalize=None)
        stand_in("generation_eval_utils")
        import clipscore as official

        official.extract_all_images.__defaults__ = (64, 0)  # no worker processes
        official.extract_all_captions.__defaults__ = (256, 0)
        model, _ = openai_clip(tag, tower)

        def score(path: Path, prompt: str) -> float:
            _, per_pair, _ = official.get_clip_score(model, [str(path)], [prompt], "cpu")
            return per_pair[0]

        return score

    return make


def laion_v1(tag: str, tower: dict[str, Any], *, head: str, clip_model: str = "vit_l_14") -> Make:
    """The cells of the notebook. Its open_clip of 2022 loaded OpenAI's own model for the tag
    "openai" (with QuickGELU), so that is what it gets.
    """

    def make(sources: Path, work: Path) -> Scorer:
        model, preprocess = openai_clip(tag, tower)
        stand_in("open_clip", create_model_and_transforms=lambda *a, **k: (model, None, preprocess))
        os.environ["HOME"] = str(work)
        file = work / ".cache" / "emb_reader" / f"sa_0_4_{clip_model}_linear.pth"
        file.parent.mkdir(parents=True, exist_ok=True)
        torch.save(tensors(head), file)
        prepare, run = notebook_cells(sources)
        names: dict[str, Any] = {}
        default = 'amodel= get_aesthetic_model(clip_model="vit_l_14")'
        assert default in prepare
        exec(prepare.replace(default, default.replace("vit_l_14", clip_model)), names)

        def score(path: Path, prompt: str) -> float:
            exec(run.replace(PHOTO, str(path)).replace("print(prediction)", ""), names)
            return names["prediction"].item()

        return score

    return make


def notebook_cells(sources: Path) -> tuple[str, str]:
    """The cell that loads the head and the one that scores ``PHOTO``."""
    notebook = json.loads((sources / "aesthetic-predictor/asthetics_predictor.ipynb").read_text())
    cells = ["".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "code"]
    (prepare,) = (c for c in cells if "def get_aesthetic_model" in c)
    (run,) = (c for c in cells if "amodel(image_features)" in c)
    assert PHOTO in run
    return prepare, run


def laion_v2(tag: str, tower: dict[str, Any]) -> Make:
    """``simple_inference.py`` from the first line to the last, on the CPU."""

    def make(sources: Path, work: Path) -> Scorer:
        model, preprocess = openai_clip(tag, tower)
        unused = ("webdataset", "matplotlib", "matplotlib.pyplot", "pytorch_lightning", "datasets")
        for name in (*unused, "pandas"):
            stand_in(name, LightningModule=torch.nn.Module, load_dataset=None)
        stand_in("clip", load=lambda *a, **k: (model, preprocess))
        file = work / "sac+logos+ava1-l14-linearMSE.pth"
        torch.save(tensors("laion-v2"), file)
        script = (sources / "improved-aesthetic-predictor/simple_inference.py").read_text()
        for old, new in {
            'model.to("cuda")': "",
            "torch.cuda.FloatTensor": "torch.FloatTensor",
            '"sac+logos+ava1-l14-linearMSE.pth"': repr(str(file)),
            "print( prediction )": "",
            'print( "Aesthetic score predicted by the model:")': "",
        }.items():
            assert old in script, old
            script = script.replace(old, new)

        def score(path: Path, prompt: str) -> float:
            names: dict[str, Any] = {"__name__": "simple_inference"}
            exec(script.replace('"test.jpg"', repr(str(path))), names)
            return names["prediction"].item()

        return score

    return make


def tensors(head: str) -> dict[str, torch.Tensor]:
    found = cases.weights(head, cases.HEADS[head])
    return {name: torch.from_numpy(np.array(value)) for name, value in found.items()}


def pickscore(config: dict[str, Any]) -> Make:
    """The inference code of PickScore's README on classes of transformers 4.27.3; it gives its
    ``scores`` back in place of their softmax.
    """

    def make(sources: Path, work: Path) -> Scorer:
        folder = work / "pickscore"
        write_pickscore(config, sources, folder)
        readme = (sources / "PickScore/README.md").read_text()
        (code,) = (b.split("```")[0] for b in readme.split("```python\n") if "def calc_probs" in b)
        code = code[: code.index("pil_images =")]
        for old, new in {
            '"cuda"': '"cpu"',
            '"laion/CLIP-ViT-H-14-laion2B-s32B-b79K"': repr(str(folder)),
            '"yuvalkirstain/PickScore_v1"': repr(str(folder)),
            "return probs.cpu().tolist()": "return scores.tolist()",
        }.items():
            assert old in code, old
            code = code.replace(old, new)
        names: dict[str, Any] = {}
        exec(code, names)
        remember(names["model"].vision_model)

        def score(path: Path, prompt: str) -> float:
            return names["calc_probs"](prompt, [Image.open(path)])[0]

        return score

    return make


def write_pickscore(config: dict[str, Any], sources: Path, folder: Path) -> None:
    """Weights, tokenizer and picture processor, which the README's code loads again."""
    from transformers import CLIPConfig, CLIPModel

    settings = CLIPConfig(**config)
    settings.save_pretrained(folder)
    with torch.device("meta"):
        empty = CLIPModel(settings)
    torch.save(filled("pickscore", empty), folder / "pytorch_model.bin")
    write_tokenizer(sources, folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(cases.CLIP_PROCESSOR))


def write_tokenizer(sources: Path, folder: Path) -> None:
    """The vocabulary of OpenAI's tokenizer in the two files of transformers."""
    from clip.simple_tokenizer import SimpleTokenizer

    bpe = SimpleTokenizer()
    (folder / "vocab.json").write_text(json.dumps(bpe.encoder), encoding="utf-8")
    merges = sorted(bpe.bpe_ranks, key=bpe.bpe_ranks.__getitem__)
    lines = ["#version: 0.2", *(" ".join(m) for m in merges)]
    (folder / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    settings = {
        "tokenizer_class": "CLIPTokenizer",
        "model_max_length": 77,
        "bos_token": "<|startoftext|>",
        "eos_token": "<|endoftext|>",
        "unk_token": "<|endoftext|>",
        "pad_token": "<|endoftext|>",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def hps(version_name: str, tower: dict[str, Any] | None = None) -> Make:
    """``hpsv2.score`` on its own ViT-H-14, tokenizer and preprocessing, built as it builds them but
    without LAION's weights, which it overwrites anyway; ``tower``: in place of its ViT-H-14.
    """

    def make(sources: Path, work: Path) -> Scorer:
        stand_in("clint")
        stand_in("clint.textui", progress=None)
        from hpsv2 import img_score
        from hpsv2.src.open_clip import factory

        if tower is not None:
            factory._MODEL_CONFIGS["ViT-H-14"] = tower
        options = builder_options(img_score.__file__)
        model, _, preprocess = img_score.create_model_and_transforms("ViT-H-14", None, **options)
        img_score.model_dict.update(model=model, preprocess_val=preprocess)
        remember(model.visual)
        file = work / f"{version_name}.pt"
        torch.save({"state_dict": filled(version_name, model, half=True)}, file)

        def score(path: Path, prompt: str) -> float:
            return img_score.score(str(path), prompt, cp=str(file))[0]

        return score

    return make


def builder_options(file: str) -> dict[str, Any]:
    """Keywords that ``initialize_model`` gives to ``create_model_and_transforms``."""
    calls = [n for n in ast.walk(ast.parse(Path(file).read_text())) if isinstance(n, ast.Call)]
    (call,) = (c for c in calls if getattr(c.func, "id", "") == "create_model_and_transforms")
    return {k.arg: "cpu" if k.arg == "device" else ast.literal_eval(k.value) for k in call.keywords}


SCORERS: dict[str, dict[str, Make]] = {
    "reduced": {
        "hpsv2": hps("hpsv2", cases.VIT_H14),
        "hpsv2.1": hps("hpsv2.1", cases.VIT_H14),
        "pickscore": pickscore(cases.PICKSCORE),
        "clipscore": clipscore("clipscore", cases.OPENAI_B32),
        "laion-v1": laion_v1("laion", cases.OPENAI_L14, head="laion-v1"),
        "laion-v2": laion_v2("laion", cases.OPENAI_L14),
    },
    "full": {
        "hpsv2.1": hps("hpsv2.1"),
        "pickscore": pickscore(cases.FULL_PICKSCORE),
        "clipscore-b32": clipscore("openai-b32", cases.FULL_B32),
        "clipscore-l14": clipscore("openai-l14", cases.FULL_L14),
        "laion-v1-b32": laion_v1(
            "openai-b32", cases.FULL_B32, head="laion-v1-b32", clip_model="vit_b_32"
        ),
        "laion-v1-l14": laion_v1("openai-l14", cases.FULL_L14, head="laion-v1"),
        "laion-v2-l14": laion_v2("openai-l14", cases.FULL_L14),
    },
}

if __name__ == "__main__":
    main()
