"""What ``source`` of a reward may be: files of every kind, pickles that could run, and objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from t2x.errors import T2XError
from t2x.registry import load_reward
from t2x.scoring.clip_encoder import load_clip
from t2x.scoring.loaded import loaded_layers, loaded_objects
from t2x.scoring.resize import Preprocess
from t2x.scoring.state_files import read_state
from t2x.testing import tiny_blip, tiny_open_clip, tiny_transformers_clip

from .blip_checkpoint import image_reward_state, save
from .cases import WORDS
from .hps_checkpoint import narrow_hps
from .tiny_networks import tiny_dino
from .tiny_vlms import fresh, pictures


class Trap:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self.path), "w")


PICKLES: dict[str, dict[str, Any]] = {
    "hpsv2": {"architecture": "ViT-B-32"},
    "hpsv2.1": {"architecture": "ViT-B-32"},
    "imagereward": {},
    "laion-v1": {"encoder": "emoji-clip"},
    "laion-v2": {"encoder": "emoji-clip"},
    "blip-itm": {},
    "hpsv3": {},
}


@pytest.mark.parametrize("name", PICKLES)
@pytest.mark.parametrize("key", ["state_dict", "callbacks"])
def test_a_pickle_that_could_run_is_refused_unread(name: str, key: str, tmp_path: Path) -> None:
    path, mark = tmp_path / "evil.pt", tmp_path / "ran"
    torch.save({"weight": torch.zeros(1, 4), key: Trap(mark)}, path)
    with pytest.raises(T2XError, match=r"is a pickle that names .*open.*was not read") as caught:
        load_reward(name, source=path, **PICKLES[name])
    assert "\n" not in str(caught.value)
    assert not mark.exists()


@pytest.mark.parametrize("name", PICKLES)
def test_a_damaged_file_says_so(name: str, tmp_path: Path) -> None:
    for suffix in (".pt", ".safetensors"):
        path = (tmp_path / "torn").with_suffix(suffix)
        path.write_bytes(b"<html>404: Not Found</html>")
        with pytest.raises(T2XError, match="torn") as caught:
            load_reward(name, source=path, **PICKLES[name])
        assert "\n" not in str(caught.value)


def test_hpsv2_from_a_pickle_a_safetensors_file_and_a_folder(tmp_path: Path) -> None:
    options, _ = narrow_hps(tmp_path)
    pickle = options.pop("source")
    media = pictures(len(WORDS))
    wanted = load_reward("hpsv2.1", source=pickle, **options).score(WORDS, media)
    assert wanted.std() > 0
    save_file(read_state(pickle), tmp_path / "hps.safetensors")
    (tmp_path / "hps").mkdir()
    torch.save({"state_dict": read_state(pickle)}, tmp_path / "hps" / "HPS_v2.1_compressed.pt")
    torch.save({"state_dict": {}}, tmp_path / "hps" / "HPS_v2_compressed.pt")
    for source in (tmp_path / "hps.safetensors", str(tmp_path / "hps")):
        found = load_reward("hpsv2.1", source=source, **options).score(WORDS, media)
        assert torch.equal(found, wanted)


def test_image_reward_from_safetensors_and_from_the_authors_own_model(tmp_path: Path) -> None:
    from t2x.testing import tiny_bert_tokenizer

    tokenizer = tmp_path / "words"
    tiny_bert_tokenizer().save_pretrained(tokenizer)
    state = image_reward_state()
    save(state, tmp_path / "ImageReward.pt")
    save_file({k: v.contiguous() for k, v in state.items()}, tmp_path / "one.safetensors")

    class Authors(torch.nn.Module):
        """As the package's: its state has the names of the file."""

        def state_dict(self, *args: Any, **options: Any) -> dict[str, torch.Tensor]:
            return dict(state)

    media = pictures(len(WORDS))
    scores = [
        load_reward("imagereward", source=source, tokenizer=tokenizer).score(WORDS, media)
        for source in (tmp_path / "ImageReward.pt", tmp_path / "one.safetensors", Authors())
    ]
    assert scores[0].std() > 0
    assert torch.equal(scores[0], scores[1]) and torch.equal(scores[0], scores[2])


def test_an_aesthetic_head_may_be_a_module_or_its_layers() -> None:
    clip = tiny_open_clip()
    width = load_clip(clip).encode_image(pictures(1)).shape[-1]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        head = torch.nn.Sequential(torch.nn.Linear(width, 8), torch.nn.Linear(8, 1))
    layers = [(layer.weight, layer.bias) for layer in head]
    media = pictures(len(WORDS))
    scores = [
        load_reward("aesthetic", source=source, encoder=clip).score(WORDS, media)
        for source in (head, layers, tuple(layers))
    ]
    embedded = load_clip(clip).encode_image(media)
    wanted = head(embedded / embedded.norm(dim=-1, keepdim=True)).squeeze(-1)
    for found in scores:
        torch.testing.assert_close(found, wanted.detach())
    assert all(p.requires_grad for p in head.parameters())  # it stays as it is
    with pytest.raises(T2XError, match="does not say which CLIP"):
        load_reward("aesthetic", source=head)


@pytest.mark.parametrize("mode", ["shortest", "longest", "squash"])
def test_open_clips_three_objects_as_it_gives_them(mode: str) -> None:
    import open_clip

    model, tokenizer = tiny_open_clip()
    size = model.visual.image_size
    numbers = {"mean": (0.2, 0.3, 0.4), "std": (0.5, 0.6, 0.7)}
    shown = {"resize_mode": mode, "interpolation": "bilinear", **numbers}
    transform = open_clip.image_transform(size, is_train=False, **shown)
    read = Preprocess.from_torchvision(transform)
    assert read == Preprocess.from_open_clip({"size": size, **shown})
    media = pictures(len(WORDS), 48, 96)
    triple = load_reward("clip", source=[model, transform, tokenizer])
    pair = load_reward("clip", source=(model, tokenizer))
    found = triple.encoders["clip"].preprocess(media)
    picture = (media[0].permute(1, 2, 0) * 255).round().byte().numpy()
    from PIL import Image

    torch.testing.assert_close(found[0], transform(Image.fromarray(picture)), atol=0.03, rtol=0)
    assert not torch.equal(triple.score(WORDS, media), pair.score(WORDS, media))
    random = open_clip.image_transform(size, is_train=True)
    with pytest.raises(T2XError, match=r"RandomResizedCrop.*give the one of validation"):
        load_reward("clip", source=(model, random, tokenizer))


def test_objects_in_another_order_or_alone_are_refused_with_the_right_one() -> None:
    clip, processor = tiny_transformers_clip()
    plain, _ = tiny_open_clip()
    blip, reads = tiny_blip()
    dino, _ = tiny_dino()
    vlm, both = fresh("qwen2_vl")
    wrong: list[tuple[str, Any, str]] = [
        ("clip", clip, r"^CLIPModel is no CLIP; .*: \(model, tokenizer\), \(model, prep"),
        ("clip", (processor, clip), r"^\(CLIPProcessor, CLIPModel\) is no CLIP"),
        ("clip", (clip, processor.tokenizer), r"no CLIP of transformers;.*: \(model, processor\)$"),
        ("clip", (plain, processor), r"no CLIP of open_clip;.*: \(model, tokenizer\), \(model,"),
        ("clip", (plain,), "is no CLIP"),
        ("clip", {"model": plain}, "dict is no CLIP"),
        ("blip-itm", (reads, blip), r"is no BLIP; .*: \(model, processor\)$"),
        ("blip-itm", blip, "BlipForImageTextRetrieval is no BLIP"),
        ("dino", (dino, both.tokenizer), r"is no DINO; .*: \(model, image processor\)$"),
        ("vqa", (vlm, both.tokenizer), r"is no vision-language model; .*: \(model, processor\)$"),
        ("vqa", vlm, "is no vision-language model"),
        ("hpsv3", (vlm, both), r"is no HPSv3; .*: \(model, processor, layers\)$"),
        ("imagereward", (blip, reads), r"is no ImageReward; .*\(vision model, text model, tok"),
        ("aesthetic", 3, "is no aesthetic head"),
    ]
    for name, source, message in wrong:
        with pytest.raises(T2XError, match=message):
            load_reward(name, source=source)


def test_forms_are_told_apart_by_what_they_hold() -> None:
    head = torch.nn.Linear(2, 1)
    assert loaded_objects("emoji-clip", what="x", forms=()) is None
    assert loaded_objects(Path("x"), what="x", forms=()) is None
    ((weight, bias),) = loaded_layers(head, what="head")
    assert torch.equal(weight, head.weight) and torch.equal(bias, head.bias)
    assert not weight.requires_grad


def test_rewriters_take_a_processor_in_place_of_a_tokenizer() -> None:
    from t2x.registry import load_rewriter
    from t2x.testing.models import QWEN_TEMPLATE

    model, processor = fresh("qwen2_vl")
    sees = load_rewriter("vision-edit", source=(model.bfloat16(), processor))
    assert sees.vlm.model is model
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}  # as it was given
    processor.tokenizer.chat_template, processor.chat_template = None, QWEN_TEMPLATE
    pair = load_rewriter([model.float(), processor], max_new_tokens=4)
    assert pair.tokenizer.chat_template == QWEN_TEMPLATE
    assert processor.tokenizer.chat_template is None
    assert len(pair.rewrite(["a red cat"], seed=0)) == 1
    with pytest.raises(T2XError, match=r"or \(model, processor\)$"):
        load_rewriter((processor, model))
