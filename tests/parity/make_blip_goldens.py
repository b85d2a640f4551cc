"""Makes ``blip_goldens.json`` and ``blip_goldens_full.json`` with the official code: image-reward
1.5 and salesforce/BLIP.

    python make_blip_goldens.py --blip FOLDER     FOLDER: a checkout of salesforce/BLIP
    python make_blip_goldens.py --blip FOLDER --size full --only blip-itm-large

Run in an environment of its own with image-reward 1.5, timm 0.6.13, fairscale 0.4.13, transformers
4.49 and t2x on the path; no weights are fetched. Sizes are those that are published, or reduced
(two layers, a narrow picture tower); classes and preprocessing are the official ones. Nothing of
either package is in the tests. ``--only`` scores one model and leaves the others' goldens.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))
import blip_cases as cases
from remembering import remember

from t2x.media import from_pil, to_pil

WIDTH, DEPTH, HEADS = 128, 2, 2
Scorer = Callable[[Any, str], dict[str, Any]]
Make = Callable[[Path, Path], tuple[torch.nn.Module, Scorer]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blip", type=Path, required=True)
    parser.add_argument("--size", choices=SCORERS, default="reduced")
    parser.add_argument("--only", nargs="+")
    options = parser.parse_args()
    torch.set_grad_enabled(False)
    full = options.size == "full"
    path = Path(__file__).with_name("blip_goldens_full.json" if full else "blip_goldens.json")
    goldens: dict[str, Any] = {}
    scorers = SCORERS[options.size]
    with tempfile.TemporaryDirectory() as work:
        use_vocabulary(cases.write_vocabulary(Path(work), full=full))
        for name in options.only or scorers:
            goldens[name] = golden(*scorers[name](Path(work), options.blip), full=full)
            print(name, "done", flush=True)
    packages = ("image-reward", "timm", "fairscale", "transformers", "torch", "torchvision")
    goldens["made with"] = {p: version(p) for p in (*packages, "Pillow", "numpy")}
    if options.only and path.is_file():
        goldens = {**json.loads(path.read_text()), **goldens}
    path.write_text(json.dumps(goldens, indent=1) + "\n")


def use_vocabulary(path: Path) -> None:
    """Give the official code, which asks a hub for bert-base-uncased, a vocabulary of ours."""
    from transformers import BertTokenizer

    BertTokenizer.from_pretrained = classmethod(lambda cls, name: cls(str(path)))


def image_reward(*, full: bool) -> Make:
    """``ImageReward.score``; imports that scoring does not use are left empty."""

    def make(work: Path, folder: Path) -> tuple[torch.nn.Module, Scorer]:
        for name in ("clip", "ImageReward.ReFL"):
            sys.modules[name] = ModuleType(name)
        from ImageReward.ImageReward import ImageReward
        from ImageReward.models.BLIP import blip_pretrain
        from ImageReward.models.BLIP.vit import VisionTransformer

        config = folder / "configs" / "med_config.json"  # equal to ImageReward's own
        if not full:
            blip_pretrain.create_vit = narrow(VisionTransformer)
            config = work / "image_reward.json"
            config.write_text(json.dumps(bert(hidden_size=768, num_attention_heads=12)))
        model = filled(ImageReward(med_config=str(config), device="cpu"))
        remember(model.blip.visual_encoder)
        return model, lambda picture, prompt: {"score": model.score(prompt, picture)}

    return make


def blip_itm(vit: str, *, full: bool) -> Make:
    """Logits and cosine of ``BLIP_ITM`` on pictures prepared as its demo does."""

    def make(work: Path, folder: Path) -> tuple[torch.nn.Module, Scorer]:
        sys.path.insert(0, str(folder))
        sys.modules["cog"] = cog = ModuleType("cog")
        cog.Predictor, cog.input = object, lambda *args, **options: lambda function: function
        import predict
        from models import blip_itm as official
        from models.vit import VisionTransformer

        config = folder / "configs" / "med_config.json"
        if not full:
            official.create_vit = narrow(VisionTransformer)
            config = work / "blip_itm.json"
            config.write_text(json.dumps(bert(hidden_size=128, num_attention_heads=2)))
        model = filled(official.BLIP_ITM(med_config=str(config), image_size=384, vit=vit))
        remember(model.visual_encoder)

        def score(picture: Any, prompt: str) -> dict[str, Any]:
            picture.save(work / "picture.png")
            pixels = predict.load_image(work / "picture.png", 384, "cpu")
            logits = model(pixels, prompt, match_head="itm")
            cosine = model(pixels, prompt, match_head="itc")
            return {"logits": logits[0].tolist(), "itc": cosine.item()}

        return model, score

    return make


def narrow(network: Any) -> Callable[..., tuple[Any, int]]:
    """In place of the official ``create_vit``."""

    def create_vit(vit: str, size: int, *rest: Any) -> tuple[Any, int]:
        return network(size, 16, embed_dim=WIDTH, depth=DEPTH, num_heads=HEADS), WIDTH

    return create_vit


def bert(**sizes: int) -> dict[str, Any]:
    return {
        "attention_probs_dropout_prob": 0.1,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "intermediate_size": 256,
        "layer_norm_eps": 1e-12,
        "max_position_embeddings": 512,
        "num_hidden_layers": DEPTH,
        "pad_token_id": 0,
        "vocab_size": cases.vocabulary_size(),
        "add_cross_attention": True,
        **sizes,
    }


def filled(model: torch.nn.Module) -> torch.nn.Module:
    for name, value in model.state_dict().items():
        value.copy_(torch.from_numpy(np.ascontiguousarray(cases.tensor(name, value.shape))))
    return model.eval()


def golden(model: torch.nn.Module, score: Scorer, *, full: bool) -> dict[str, Any]:
    """What the tests need: names and shapes of the tensors, scores by picture and prompt. Of modes
    that we turn into RGB by another rule, also those of the picture as it is (``as is``); at full
    size, plain pictures and prompts alone.
    """
    state = model.state_dict()
    found: dict[str, Any] = {
        "module": f"{type(model).__module__}.{type(model).__qualname__}",
        "tensors": cases.fold({n: list(t.shape) for n, t in state.items()}),
        "checksum": cases.checksum({n: t.numpy() for n, t in state.items()}),
        "scores": {},
        "as is": {},
    }
    prompts = {k: p for k, p in cases.PROMPTS.items() if not full or k in cases.PLAIN}
    for name, picture in cases.pictures().items():
        if full and name in cases.UNLIKE:
            continue
        (rgb,) = to_pil(from_pil([picture]))
        found["scores"][name] = {key: score(rgb, prompt) for key, prompt in prompts.items()}
        if name in cases.UNLIKE:
            found["as is"][name] = score(picture, cases.PROMPTS["short"])
    return found


SCORERS: dict[str, dict[str, Make]] = {
    "reduced": {
        "imagereward": image_reward(full=False),
        "blip-itm": blip_itm("base", full=False),
    },
    "full": {
        "imagereward": image_reward(full=True),
        "blip-itm-base": blip_itm("base", full=True),
        "blip-itm-large": blip_itm("large", full=True),
    },
}

if __name__ == "__main__":
    main()
