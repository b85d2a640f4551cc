"""Makes ``blip_goldens.json`` with the official code: image-reward 1.5 and salesforce/BLIP.

    python make_blip_goldens.py --blip FOLDER     FOLDER: a checkout of salesforce/BLIP

Run in an environment of its own with image-reward 1.5, timm 0.6.13, fairscale 0.4.13, transformers
4.49 and t2x on the path; no weights are fetched. Sizes are reduced (two layers, a narrow picture
tower), classes and preprocessing are the official ones. Nothing of either package is in the tests.
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

from t2x.media import from_pil, to_pil

WIDTH, DEPTH, HEADS = 128, 2, 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blip", type=Path, required=True)
    folder = parser.parse_args().blip
    torch.set_grad_enabled(False)
    with tempfile.TemporaryDirectory() as work:
        vocabulary = cases.write_vocabulary(Path(work))
        use_vocabulary(vocabulary)
        goldens = {
            "imagereward": image_reward(Path(work)),
            "blip-itm": blip_itm(Path(work), folder),
        }
    packages = ("image-reward", "timm", "fairscale", "transformers", "torch", "torchvision")
    goldens["made with"] = {p: version(p) for p in (*packages, "Pillow", "numpy")}
    path = Path(__file__).with_name("blip_goldens.json")
    path.write_text(json.dumps(goldens, indent=1) + "\n")


def use_vocabulary(path: Path) -> None:
    """Give the official code, which asks a hub for bert-base-uncased, a vocabulary of ours."""
    from transformers import BertTokenizer

    BertTokenizer.from_pretrained = classmethod(lambda cls, name: cls(str(path)))


def image_reward(work: Path) -> dict[str, Any]:
    """Scores of ``ImageReward.score``; imports that scoring does not use are left empty."""
    for name in ("clip", "ImageReward.ReFL"):
        sys.modules[name] = ModuleType(name)
    from ImageReward.ImageReward import ImageReward
    from ImageReward.models.BLIP import blip_pretrain
    from ImageReward.models.BLIP.vit import VisionTransformer

    def small(vit: str, size: int, *rest: Any) -> tuple[Any, int]:
        return VisionTransformer(size, 16, embed_dim=WIDTH, depth=DEPTH, num_heads=HEADS), WIDTH

    blip_pretrain.create_vit = small
    config = work / "image_reward.json"
    config.write_text(json.dumps(bert(hidden_size=768, num_attention_heads=12)))
    model = filled(ImageReward(med_config=str(config), device="cpu"))
    return golden(model, lambda picture, prompt: {"score": model.score(prompt, picture)})


def blip_itm(work: Path, folder: Path) -> dict[str, Any]:
    """Logits and cosine of ``BLIP_ITM`` on pictures prepared as its demo does."""
    sys.path.insert(0, str(folder))
    sys.modules["cog"] = cog = ModuleType("cog")
    cog.Predictor, cog.input = object, lambda *args, **options: lambda function: function
    import predict
    from models import blip_itm as official
    from models.vit import VisionTransformer

    def small(vit: str, size: int, *rest: Any) -> tuple[Any, int]:
        return VisionTransformer(size, 16, embed_dim=WIDTH, depth=DEPTH, num_heads=HEADS), WIDTH

    official.create_vit = small
    config = work / "blip_itm.json"
    config.write_text(json.dumps(bert(hidden_size=128, num_attention_heads=2)))
    model = filled(official.BLIP_ITM(med_config=str(config), image_size=384))

    def score(picture: Any, prompt: str) -> dict[str, Any]:
        picture.save(work / "picture.png")
        pixels = predict.load_image(work / "picture.png", 384, "cpu")
        logits = model(pixels, prompt, match_head="itm")
        cosine = model(pixels, prompt, match_head="itc")
        return {"logits": logits[0].tolist(), "itc": cosine.item()}

    return golden(model, score)


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
    weights = cases.tensors({n: t.shape for n, t in model.state_dict().items()})
    model.load_state_dict(
        {n: torch.from_numpy(np.ascontiguousarray(w)) for n, w in weights.items()}
    )
    return model.eval()


def golden(model: torch.nn.Module, score: Callable[[Any, str], dict[str, Any]]) -> dict[str, Any]:
    """What the tests need: names and shapes of the tensors, scores by picture and prompt. Of modes
    that we turn into RGB by another rule, also those of the picture as it is (``as is``).
    """
    shapes = {n: list(t.shape) for n, t in model.state_dict().items()}
    found: dict[str, Any] = {
        "module": f"{type(model).__module__}.{type(model).__qualname__}",
        "tensors": shapes,
        "checksum": cases.checksum(cases.tensors(shapes)),
        "scores": {},
        "as is": {},
    }
    for name, picture in cases.pictures().items():
        (rgb,) = to_pil(from_pil([picture]))
        scores = {key: score(rgb, prompt) for key, prompt in cases.PROMPTS.items()}
        found["scores"][name] = scores
        if name in cases.UNLIKE:
            found["as is"][name] = score(picture, cases.PROMPTS["short"])
    return found


if __name__ == "__main__":
    main()
