"""What a person reads when loading fails: real classes, real files, the hub's real client."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import gettempdir

import pytest

from t2x import load_generator, load_rewriter
from t2x.checkpoint_files import faults, missing_parts, pickled_weights
from t2x.errors import MissingDependencyError, T2XError
from t2x.failures import explain, reading, without_secrets
from t2x.loading_reports import Report, quiet_imports, watch_reports

UNET = "unet/diffusion_pytorch_model.safetensors"
TEXT = "text_encoder/model.safetensors"
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 12345\n"
TOKEN = "hf_thisIsASecretOfSomebody"


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    from t2x.generators.loading import quiet
    from t2x.testing.models import tiny_causal_lm
    from t2x.testing.pipelines import tiny_stable_diffusion

    root = tmp_path_factory.mktemp("checkpoints")
    with quiet():
        tiny_stable_diffusion().save_pretrained(root / "sd")
        model, tokenizer = tiny_causal_lm(0)
        model.save_pretrained(root / "lm")
    tokenizer.save_pretrained(root / "lm")
    return root


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def change(path: Path, **settings: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))


def drop(path: Path, *names: str) -> None:
    from safetensors.torch import load_file, save_file

    kept = {name: value for name, value in load_file(path).items() if name not in names}
    save_file(kept, path, metadata={"format": "pt"})


def pickle(path: Path) -> None:
    import torch
    from safetensors.torch import load_file

    torch.save(load_file(path), path.with_suffix(".bin"))
    path.unlink()


PIPELINES = {
    "cut off": (lambda d: cut(d / UNET), [f"damaged ({UNET} has ", "again"]),
    "empty text encoder": (lambda d: (d / TEXT).write_bytes(b""), [f"{TEXT} is empty"]),
    "no safetensors": (lambda d: (d / TEXT).write_bytes(b"\xff" * 5000), ["no safetensors file"]),
    "pointer": (lambda d: (d / UNET).write_text(POINTER), [f"{UNET} is a git-LFS", "git lfs pull"]),
    "pointer of transformers": (lambda d: (d / TEXT).write_text(POINTER), [f"{TEXT} is a git-LFS"]),
    "other widths": (
        lambda d: change(d / "unet/config.json", block_out_channels=[32, 64]),
        ["another architecture", "conv_in.bias is [16] in the file, [32] in the configuration"],
    ),
    "other text encoder": (
        lambda d: change(d / "text_encoder/config.json", hidden_size=64),
        ["another architecture", "[77, 32] in the file, [77, 64] in the configuration"],
    ),
    # The next four load without an error in diffusers and transformers, with random weights.
    "deeper text encoder": (
        lambda d: change(d / "text_encoder/config.json", num_hidden_layers=3),
        ["encoder.layers.2.layer_norm1.bias of CLIPTextModel", "and 14 more", "would be random"],
    ),
    "other class": (
        lambda d: change(d / "model_index.json", text_encoder=["transformers", "T5EncoderModel"]),
        ["of T5EncoderModel", "would be random"],
    ),
    "lacks weights": (
        lambda d: drop(d / UNET, "conv_in.bias"),
        ["conv_in.bias of UNet2DConditionModel is not in its weights", "load it yourself"],
    ),
    "no tokenizer": (lambda d: shutil.rmtree(d / "tokenizer"), ["not in the folder: tokenizer/"]),
    "no folder": (lambda d: shutil.rmtree(d / "vae"), ["not in the folder: vae/"]),
    "no vocabulary": (
        lambda d: [path.unlink() for path in (d / "tokenizer").iterdir()],
        ["tokenizer (CLIPTokenizer) has no vocabulary"],
    ),
    "no weights": (lambda d: (d / UNET).unlink(), ["no diffusion_pytorch_model.safetensors in"]),
    "pickled": (
        lambda d: pickle(d / UNET),
        ["pickled (unet/diffusion_pytorch_model.bin)", "use_safetensors=False"],
    ),
    "new pipeline": (
        lambda d: change(d / "model_index.json", _class_name="FancyPipeline"),
        ["needs the class FancyPipeline", "pip install -U diffusers"],
    ),
    "new part": (
        lambda d: change(d / "model_index.json", unet=["diffusers", "FancyUNet"]),
        ["needs the class FancyUNet", "pip install -U diffusers"],
    ),
    "no JSON": (lambda d: (d / "unet/config.json").write_text('{"a":'), ["no valid JSON"]),
}
LANGUAGE_MODELS = {
    "cut off": (lambda d: cut(d / "model.safetensors"), ["damaged (model.safetensors has "]),
    "pointer": (lambda d: (d / "model.safetensors").write_text(POINTER), ["git-LFS pointer"]),
    "other width": (lambda d: change(d / "config.json", hidden_size=64), ["other architecture"]),
    "lacks weights": (
        lambda d: drop(d / "model.safetensors", "model.norm.weight"),
        ["model.norm.weight of Qwen3ForCausalLM is not in its weights"],
    ),
    "new type": (
        lambda d: change(d / "config.json", model_type="fancy"),
        ["model type fancy", "pip install -U transformers"],
    ),
    "no configuration": (lambda d: (d / "config.json").unlink(), ["no checkpoint of transformers"]),
    "misfit": (lambda d: change(d / "config.json", num_hidden_layers=5), ["does not fit together"]),
    "no tokenizer": (
        lambda d: [path.unlink() for path in d.glob("*token*")],
        ["has no vocabulary", "add the tokenizer's files"],
    ),
    "no weights": (lambda d: (d / "model.safetensors").unlink(), ["there is no model.safetensors"]),
}


def said(load, source) -> str:
    with pytest.raises(T2XError) as caught:
        load(str(source))
    text = str(caught.value)
    assert "\n" not in text and str(source) in text
    return text


@pytest.mark.parametrize("case", PIPELINES)
def test_broken_pipelines(checkpoints, tmp_path, case):
    spoil, expected = PIPELINES[case]
    shutil.copytree(checkpoints / "sd", tmp_path / "broken")
    spoil(tmp_path / "broken")
    text = said(load_generator, tmp_path / "broken")
    assert [part for part in expected if part not in text] == [], text


@pytest.mark.parametrize("case", LANGUAGE_MODELS)
def test_broken_language_models(checkpoints, tmp_path, case):
    spoil, expected = LANGUAGE_MODELS[case]
    shutil.copytree(checkpoints / "lm", tmp_path / "broken")
    spoil(tmp_path / "broken")
    text = said(load_rewriter, tmp_path / "broken")
    assert [part for part in expected if part not in text] == [], text


def test_one_kind_of_model_in_place_of_another(checkpoints):
    assert "give it as a generator" in said(load_rewriter, checkpoints / "sd")
    assert "is a clip_text_model, which writes no text" in said(
        load_rewriter, checkpoints / "sd/text_encoder"
    )


def test_what_is_whole_loads_in_silence(checkpoints, capsys, caplog):
    load_generator(str(checkpoints / "sd"))
    load_rewriter(str(checkpoints / "lm"))
    assert capsys.readouterr().err == "" and caplog.text == ""


def test_weights_without_a_place_are_a_warning(checkpoints, tmp_path, caplog):
    shutil.copytree(checkpoints / "sd", tmp_path / "less")
    change(tmp_path / "less/unet/config.json", mid_block_type=None)
    load_generator(str(tmp_path / "less"))
    assert "mid_block.attentions.0.norm.bias of UNet2DConditionModel" in caplog.text
    assert "has no place for" in caplog.text


def test_rewards_use_the_same_reader(checkpoints, tmp_path):
    from t2x.scoring.state_files import read_state
    from t2x.scoring.vlm import load_vlm

    assert "cannot load the vision-language model" in said(load_vlm, checkpoints / "lm")
    cut_file = tmp_path / "head.safetensors"
    shutil.copy(checkpoints / "lm/model.safetensors", cut_file)
    cut(cut_file)
    assert "damaged" in said(read_state, cut_file)


def test_files_are_read_without_loading(checkpoints, tmp_path):
    assert faults(checkpoints / "sd") == [] and pickled_weights(checkpoints / "sd") == []
    assert missing_parts(checkpoints / "sd") == []
    (tmp_path / "model_index.json").write_text(
        '{"_class_name": "X", "vae": ["a", "b"], "c": [null, null]}'
    )
    assert missing_parts(tmp_path) == ["vae"] and missing_parts(tmp_path, {"vae"}) == []
    (tmp_path / "config.json").write_text("{}")  # files of parts may lie at the top
    assert missing_parts(tmp_path) == []


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device", f"{gettempdir()}/x"),
            f"no disk space is left in {gettempdir()}",
        ),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "no disk space is left"),
        (RuntimeError("I/O error: No space left on device (os error 28)"), "no disk space"),
        (PermissionError(errno.EACCES, "Permission denied", "/a/b"), "no right to use /a/b"),
        (OSError(errno.EROFS, "Read-only file system", "/a"), "no right to use /a"),
        (MemoryError(), "not enough memory"),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: not enough memory"),
            "t2x doctor --plan",
        ),
    ],
)
def test_machine(error, expected):
    assert expected in str(explain(error, "folder"))


def test_adapters_of_a_rewriter_that_do_not_fit_or_are_cut_off(checkpoints, tmp_path):
    peft = pytest.importorskip("peft")
    from t2x.testing.models import tiny_causal_lm

    model, tokenizer = tiny_causal_lm(0)
    layers = peft.LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM")
    peft.get_peft_model(model, layers).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    change(tmp_path / "adapter_config.json", base_model_name_or_path=str(checkpoints / "lm"))
    assert load_rewriter(str(tmp_path)).model is not None
    change(tmp_path / "adapter_config.json", r=4)
    with pytest.raises(T2XError, match=r"cannot load the adapters .*another architecture"):
        load_rewriter(str(tmp_path))
    cut(tmp_path / "adapter_model.safetensors")
    with pytest.raises(T2XError, match=r"cannot load the adapters .*its weights are damaged"):
        load_rewriter(str(tmp_path))


def test_packages():
    said = explain(ModuleNotFoundError("No module named 'rapidocr'", name="rapidocr"), "x")
    assert isinstance(said, MissingDependencyError) and "t2x[ocr]" in str(said)
    asked = (
        "T5Tokenizer requires the SentencePiece library but it was not found in your environment"
    )
    said = explain(ImportError(asked), "x")
    assert isinstance(said, MissingDependencyError) and "pip install sentencepiece" in str(said)


def test_what_has_no_name_passes_unchanged():
    assert explain(KeyError("odd"), "x") is None
    with pytest.raises(KeyError, match="odd"), reading("x", "the CLIP"):
        raise KeyError("odd")
    said = pytest.raises(T2XError, match="cannot load the CLIP 'x': odd; give")
    with said, reading("x", "the CLIP"):
        raise ValueError("odd.\nmore")
    own = T2XError("own words")
    with pytest.raises(T2XError, match="own words") as caught, reading("x"):
        raise own
    assert caught.value is own


def test_secrets_stay_out(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "plainword")
    text = f"plainword {TOKEN} https://me:word@host/a?token=abc Bearer xyz hf_hub_download"
    assert (
        without_secrets("key sk-proj-abcDEF_1234567890-x is wrong") == "key *** is wrong"
        and without_secrets("task-force risk-averse sk-8") == "task-force risk-averse sk-8"
        and without_secrets(text)
        == "*** *** https://***@host/a?token=*** Bearer *** hf_hub_download"
    )
    with pytest.raises(T2XError) as caught, reading(f"https://me:{TOKEN}@host/x"):
        raise ValueError(f"no login with {TOKEN}")
    assert TOKEN not in str(caught.value)


def test_what_libraries_say_to_each_other_is_not_for_users(caplog):
    """torchao makes torch and diffusers warn at import, of nothing that anybody here can change."""
    import logging

    logger = logging.getLogger("torch.utils._pytree")
    before = logger.level
    with quiet_imports():
        logger.warning("KernelPreference is deprecated")
        logging.getLogger("diffusers.quantizers.torchao.torchao_quantizer").warning("no import")
    assert caplog.text == "" and logger.level == before


def test_loggers_are_left_as_they_were():
    import logging

    logger = logging.getLogger("transformers.modeling_utils")
    before = logger.level, logger.propagate, list(logger.handlers)
    with watch_reports() as report:
        logger.warning("\x1b[1mT5 LOAD REPORT\x1b[0m from: x\na.b | MISSING | \nc | UNEXPECTED | ")
    assert report == Report(missing=["a.b of T5"], unexpected=["c of T5"])
    assert (logger.level, logger.propagate, list(logger.handlers)) == before


CHILD = """
import json, os, resource, sys
from pathlib import Path
from t2x.testing.hub import GATED, NOT_ACCEPTED, Refusal, TinyHub, serve_hub

root = Path(sys.argv[1])
hub = TinyHub(
    {f"{p.name}/{q.name}": q for p in root.iterdir() for q in p.iterdir() if q.is_dir()},
    {
        "gated/sd": GATED,
        "waiting/sd": NOT_ACCEPTED,
        "down/sd": Refusal(503),
        "busy/sd": Refusal(429),
        "closed/sd": Refusal(401, "", "Invalid credentials in Authorization header"),
    },
)
found = {}
with serve_hub(hub):
    os.environ["HF_ENDPOINT"] = hub.endpoint
    from t2x import load_generator, load_rewriter
    from t2x.doctor.downloads import find_download
    from t2x.errors import T2XError
    from t2x.scoring.state_files import hub_file

    def say(label, load, *given, **options):
        try:
            load(*given, **options)
            found[label] = "loaded"
        except T2XError as error:
            found[label] = str(error)

    before = find_download("ok/sd").__dict__
    say("whole", load_generator, "ok/sd")
    say("whole language model", load_rewriter, "ok/lm")
    found["download"] = [before, find_download("ok/sd").__dict__]
    found["refused download"] = [find_download(n).__dict__ for n in ("gated/sd", "nobody/sd")]
    say("gated", load_generator, "gated/sd")
    say("gated language model", load_rewriter, "gated/sd")
    say("gated file", hub_file, "gated/sd", "head.safetensors")
    say("missing", load_generator, "nobody/sd")
    say("missing language model", load_rewriter, "nobody/lm")
    say("revision", load_generator, "ok/sd", revision="v9")
    say("revision of a language model", load_rewriter, "ok/lm", revision="v9")
    say("no pipeline", load_generator, "ok/lm")
    say("no file", hub_file, "ok/lm", "head.safetensors")
    say("fault", load_generator, "down/sd")
    say("limit", load_generator, "busy/sd")
    say("pickled", load_generator, "pickled/sd")
    say("damaged", load_rewriter, "cut/lm")
    if len(sys.argv) > 2:
        say("disk", load_generator, "big/sd", cache_dir=sys.argv[2])
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, resource.RLIM_INFINITY))
    say("limit of files", load_generator, "big/sd")
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    os.environ["HF_TOKEN"] = "TOKEN"
    say("not accepted", load_generator, "waiting/sd")
    say("bad token", load_generator, "closed/sd")
    del os.environ["HF_TOKEN"]
say("no hub", load_generator, "other/sd")
say("no hub, cached", load_generator, "ok/sd")
found["no download"] = find_download("other/sd").__dict__
print(json.dumps({"endpoint": hub.endpoint, **found}, default=dict))
"""


@pytest.fixture(scope="module")
def hub_answers(checkpoints, tmp_path_factory):
    """What a process is told that meets the hub in each of its moods, a full disk and no hub."""
    root = tmp_path_factory.mktemp("hub")
    for owner in ("ok", "gated", "waiting", "down", "busy", "closed", "pickled", "big"):
        shutil.copytree(checkpoints / "sd", root / owner / "sd")
    for owner in ("ok", "cut"):
        shutil.copytree(checkpoints / "lm", root / owner / "lm")
    pickle(root / "pickled/sd" / UNET)
    cut(root / "cut/lm/model.safetensors")
    home, full = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("full")
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(full)]
    mounted = os.geteuid() == 0 and subprocess.run(mount, capture_output=True).returncode == 0
    switches = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_TOKEN", "HF_HUB_CACHE", "HF_ENDPOINT")
    kept = {name: value for name, value in os.environ.items() if name not in switches}
    settings = {"HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1", "NO_PROXY": "127.0.0.1"}
    command = [sys.executable, "-c", CHILD.replace('"TOKEN"', f'"{TOKEN}"')]
    try:
        done = subprocess.run(
            [*command, str(root), *[str(full)] * mounted],
            env={**kept, **settings},
            capture_output=True,
            text=True,
        )
    finally:
        if mounted:
            subprocess.run(["umount", str(full)], check=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert TOKEN not in done.stdout
    return json.loads(done.stdout.splitlines()[-1])


HUB = {
    "whole": ["loaded"],
    "whole language model": ["loaded"],
    "gated": ["gated/sd is gated", "PAGE/gated/sd", "hf auth login", "HF_TOKEN"],
    "gated language model": [
        "cannot load the language model 'gated/sd'",
        "accept",
        "hf auth login",
    ],
    "gated file": ["head.safetensors of 'gated/sd'", "is gated"],
    "not accepted": ["the account of your token has no access", "PAGE/waiting/sd"],
    "bad token": ["refuses your token", "hf auth whoami"],
    "missing": ["no model 'nobody/sd' on the hub, or it is private", "PAGE/nobody/sd"],
    "missing language model": ["no model 'nobody/lm' on the hub, or it is private"],
    "revision": ["no revision 'v9'", "PAGE/ok/sd/commits/main"],
    "revision of a language model": ["no revision 'v9'"],
    "no pipeline": ["holds no model_index.json", "no pipeline in diffusers' format"],
    "no file": ["holds no head.safetensors", "PAGE/ok/lm/tree/main"],
    "fault": ["fault of its own (503)", "HF_HUB_OFFLINE=1"],
    "limit": ["limits how often", "(429)", "hf auth login"],
    "pickled": ["pickled (unet/diffusion_pytorch_model.bin)"],
    "damaged": ["model.safetensors has ", "hf cache rm model/cut/lm"],
    "limit of files": ["a file is larger than", "HF_HOME", "ulimit -f"],
    "no hub": [
        "the hub (PAGE) can't be reached (Connection refused)",
        "HTTPS_PROXY",
        "HF_ENDPOINT",
    ],
    "no hub, cached": ["loaded"],
}


@pytest.mark.parametrize("case", HUB)
def test_the_hub_and_the_disk(hub_answers, case):
    text = hub_answers[case].replace(hub_answers["endpoint"], "PAGE")
    assert "\n" not in text
    assert [part for part in HUB[case] if part not in text] == [], text


def test_a_full_disk(hub_answers):
    """On a file system of its own where this process may mount one; elsewhere the limit above."""
    text = hub_answers.get("disk")
    if text is None:
        assert os.geteuid() != 0 or "a file is larger" in hub_answers["limit of files"]
        return
    assert "no disk space is left where it is written to" in text and "hf cache prune" in text
    assert "big/sd needs 1.29 MB more" in text and "HF_HOME" in text


def test_what_will_be_downloaded_is_known_before(hub_answers, checkpoints):
    before, after = hub_answers["download"]
    sizes = {
        p.relative_to(checkpoints / "sd"): p.stat().st_size
        for p in (checkpoints / "sd").rglob("*.*")
    }
    assert before["missing"] == sum(sizes.values()) == sum(before["parts"].values())
    assert before["parts"]["unet"] == sum(s for p, s in sizes.items() if p.parts[0] == "unet")
    assert after["missing"] == 0 and after["parts"] == before["parts"]
    gated, nobody = hub_answers["refused download"]
    assert gated["gated"] is True and gated["missing"] > 1e6
    assert nobody["missing"] is None and "no model 'nobody/sd'" in nobody["problem"]
    assert "can't be reached" in hub_answers["no download"]["problem"]
