r"""Makes ``hpsv3_goldens.json`` with the official package.

    pip install --no-deps hpsv3==1.0.0 transformers==4.45.2 tokenizers==0.20.3 \
        huggingface_hub==0.26.5
    python make_hpsv3_goldens.py

Run in an environment of its own with torch, torchvision and this project, of which it takes the
pictures as :func:`t2x.media.from_pil` reads them. Depth and width are reduced
(``hpsv3_cases.py``), the model class, the head, the picture's way and the messages are official; no
weights are fetched. The instruction is one of our own, put in the place of the package's. Modules
that official files import and scoring does not use are left empty.
"""

from __future__ import annotations

import json
import sys
import tempfile
from importlib.machinery import ModuleSpec
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

sys.path.insert(0, str(Path(__file__).parent))
import hpsv3_cases as cases

UNUSED = (
    "fire",
    "trl",
    "peft",
    "datasets",
    "pandas",
    "matplotlib",
    "matplotlib.pyplot",
    "matplotlib.patches",
    "torch.utils.tensorboard",
    "hpsv3.train",
    "hpsv3.utils.parser",
    "hpsv3.utils.training_utils",
    "deepspeed",
)


class Empty(ModuleType):
    """A module of which every name is a class without content."""

    __path__: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def main() -> None:
    for name in UNUSED:
        module = Empty(name)
        module.__spec__ = ModuleSpec(name, None)
        sys.modules[name] = module
    import numpy as np
    import torch
    import transformers
    from hpsv3 import inference
    from hpsv3.model.qwen2vl_trainer import Qwen2VLRewardModelBT

    from t2x.media import from_pil, to_pil

    inference.INSTRUCTION = cases.INSTRUCTION
    inference.prompt_with_special_token = cases.ENDING
    torch.set_grad_enabled(False)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "tokenizer.json")
        cases.tokenizer_json(path)
        words = transformers.Qwen2TokenizerFast(
            tokenizer_file=path, pad_token="<|endoftext|>", eos_token="<|im_end|>", unk_token=None
        )
    words.padding_side = "right"
    words.add_special_tokens({"additional_special_tokens": [cases.REWARD]})
    token = words.convert_tokens_to_ids(cases.REWARD)
    assert (token, len(words)) == (cases.VOCABULARY - 1, cases.VOCABULARY)
    config = transformers.Qwen2VLConfig(
        vision_config=cases.VISION,
        **cases.TEXT,
        **cases.IDS,
        rope_theta=cases.THETA,
        rope_scaling={"type": "mrope", "mrope_section": cases.ROPE["mrope_section"]},
    )
    model = Qwen2VLRewardModelBT(
        config, output_dim=2, special_token_ids=[token], rm_head_type="ranknet"
    ).eval()
    made = cases.weights({k: v.shape for k, v in model.state_dict().items()})
    model.load_state_dict({k: torch.from_numpy(v) for k, v in made.items()})
    scorer = object.__new__(inference.HPSv3RewardInferencer)
    scorer.model, scorer.device, scorer.use_special_tokens = model, "cpu", True
    scorer.processor = transformers.Qwen2VLProcessor(
        transformers.Qwen2VLImageProcessor(), words, chat_template=cases.TEMPLATE
    )

    def score(picture: Any, prompt: str) -> list[float]:
        return [round(float(v), 7) for v in scorer.reward([picture], [cases.PROMPTS[prompt]])[0]]

    pictures = cases.pictures()
    plain = {name: to_pil(from_pil([picture]))[0] for name, picture in pictures.items()}
    scores = {
        name: {prompt: score(picture, prompt) for prompt in cases.PROMPTS}
        for name, picture in plain.items()
    }
    packages = ("hpsv3", "transformers", "tokenizers", "torch", "pillow", "numpy")
    goldens = {
        "made with": {p: version(p) for p in packages},
        "modules": ["hpsv3.inference", "hpsv3.model.qwen2vl_trainer", "hpsv3.dataset.utils"],
        "checksum": cases.checksum(made),
        "names": sorted(made),
        "scores": scores,
        "as opened": {name: score(pictures[name], "short") for name in cases.UNLIKE},
    }
    out = Path(__file__).with_name("hpsv3_goldens.json")
    out.write_text(json.dumps(goldens, indent=1) + "\n", "utf-8")
    mu = np.array([[row[k][0] for k in cases.PROMPTS] for row in scores.values()])
    print("spread over pictures", mu.std(0), "over prompts", mu.std(1))


if __name__ == "__main__":
    main()
