"""What is exported writes the texts of what was trained, and its card says where it comes from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import t2x
from t2x.cli import run
from t2x.errors import MissingDependencyError, T2XError
from t2x.training import card, gguf
from t2x.training.config import LoraSection, PolicyConfig
from t2x.training.export import export_model, find_trained
from t2x.training.policy import load_policy, save_policy

PROMPTS = ["two kittens", "a crimson dog to the left of a bus", "the animal with a trunk"]
needs_peft = pytest.mark.extra("train")


def texts(source: Any) -> list[str]:
    return [group[0].text for group in t2x.load_rewriter(source).rewrite(PROMPTS)]


def logits(source: Any) -> torch.Tensor:
    """What a model thinks of the prompts, in its own template: (tokens, vocabulary). Texts would
    differ wherever two tokens are all but equally likely, by how a machine rounds."""
    rewriter: Any = t2x.load_rewriter(source)
    rows = [rewriter.encoder.encode(prompt) for prompt in PROMPTS]
    with torch.no_grad():
        return torch.cat([rewriter.model(torch.tensor([row])).logits[0] for row in rows])


def same(trained: Any, *exported: Any) -> None:
    """Within a hundredth of what the training changed: merged weights are rounded to the number
    format of the base."""
    expected = logits(trained)
    change = (expected - logits("emoji-rewriter")).abs().mean()
    assert change > 0.1  # the training did something
    for source in exported:
        assert (logits(source) - expected).abs().mean() < 0.01 * change


def make_run(folder: Path, *, lora: bool) -> Path:
    """A run whose training changed the policy for good."""
    policy = load_policy(PolicyConfig(lora=LoraSection(rank=2) if lora else None))
    noise = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in policy.model.named_parameters():
            if not lora or "lora_" in name:
                parameter.add_(
                    torch.randn(parameter.shape, generator=noise), alpha=0.1 if lora else 0.03
                )
    save_policy(policy, folder / "model")
    if lora:
        policy.model.save_pretrained(folder / "adapter", save_embedding_layers=False)
    policy.model.save_pretrained(folder / "checkpoint-2", save_embedding_layers=False)
    policy.tokenizer.save_pretrained(folder / "checkpoint-2")
    config = {
        "policy": {"model": "emoji-rewriter", "template_of": None},
        "data": {"train": str(folder / "rows.jsonl")},
        "run": {"out": str(folder)},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    (folder / "metrics.json").write_text(json.dumps({"reward": 0.125, "steps": 2}))
    (folder / "rows.json").write_text(json.dumps({"rows": 12345, "command": "t2x data sft"}))
    return folder


@pytest.fixture(scope="module")
def lora_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("lora"), lora=True)


@needs_peft
def test_adapters_and_whole_weights_write_what_the_run_writes(lora_run: Path) -> None:
    export_model(lora_run, "whole")
    export_model(lora_run, "small", adapter=True)
    same(lora_run / "model", "whole", "small")
    assert Path("small/adapter_model.safetensors").stat().st_size < 2e5
    assert not list(Path("small").glob("model*"))
    base = json.loads(Path("small/adapter_config.json").read_text())["base_model_name_or_path"]
    assert base == "emoji-rewriter"  # no path of this computer


@needs_peft
def test_a_checkpoint_is_exported_like_the_run(lora_run: Path) -> None:
    """A trainer's checkpoint holds adapters without template; here it is the run's last state."""
    export_model(lora_run / "checkpoint-2", "whole")
    export_model(lora_run / "checkpoint-2", "small", adapter=True)
    same(lora_run / "model", "whole", "small")


def test_full_weights_checkpoints_and_names(tmp_path: Path) -> None:
    trained = make_run(tmp_path / "full", lora=False)
    for i, source in enumerate((trained, trained / "model", trained / "checkpoint-2")):
        export_model(source, f"o{i}")
        same(trained / "model", f"o{i}")
    with pytest.raises(T2XError, match="holds no adapters"):
        export_model(trained, "small", adapter=True)
    export_model("emoji-rewriter", "named")
    assert texts("named") == texts("emoji-rewriter")


@needs_peft
def test_the_card_tells_data_metrics_settings_and_licence(lora_run: Path) -> None:
    export_model(lora_run, "o")
    text = Path("o/README.md").read_text()
    head = yaml.safe_load(text.split("---")[1])
    assert head["license"] == "apache-2.0" and "prompt-rewriting" in head["tags"]
    for said in ("| reward | 0.125 |", "12345", "t2x data sft", "template_of", "emoji-rewriter"):
        assert said in text
    assert card.code_version() in text and t2x.__version__ in card.code_version()
    assert Path("o/config.yaml").is_file() and Path("o/metrics.json").is_file()
    export_model(lora_run, "p", licence="CC BY-NC 4.0")
    assert yaml.safe_load(Path("p/README.md").read_text().split("---")[1])["license"] == "other"


def test_licence_of_the_first_of_several_runs(tmp_path: Path) -> None:
    for name, base in (("sft", "emoji-lm"), ("grpo", str(tmp_path / "sft" / "model"))):
        (tmp_path / name / "model").mkdir(parents=True)
        (tmp_path / name / "config.yaml").write_text(yaml.safe_dump({"policy": {"model": base}}))
    assert card.root_base(str(tmp_path / "grpo" / "model")) == "emoji-lm"
    assert card.base_licence("emoji-lm") == "apache-2.0"
    assert card.base_licence("reprompt").startswith("MIT")
    assert card.base_licence(str(tmp_path)) is None


def test_what_can_not_be_exported(tmp_path: Path) -> None:
    unfinished = tmp_path / "run"
    (unfinished / "checkpoint-10").mkdir(parents=True)
    (unfinished / "checkpoint-9").mkdir()
    (unfinished / "config.yaml").write_text("policy: {model: emoji-rewriter}\n")
    with pytest.raises(T2XError, match="checkpoints: checkpoint-9, checkpoint-10"):
        find_trained(unfinished)
    with pytest.raises(T2XError, match="not empty"):
        export_model("emoji-rewriter", unfinished)
    with pytest.raises(T2XError, match="leave --adapter out"):
        export_model("emoji-rewriter", tmp_path / "o", adapter=True, gguf="q8_0")
    assert not (tmp_path / "o").exists()


def converter(folder: Path, code: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / gguf.SCRIPT
    path.write_text(code)
    return path


def test_gguf_is_written_by_the_converter_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in that writes down how it was called."""
    monkeypatch.delenv(gguf.VARIABLE, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingDependencyError, match="git clone"):
        export_model("emoji-rewriter", tmp_path / "o", gguf="q8_0")
    with pytest.raises(T2XError, match="allowed are f32, f16"):
        export_model("emoji-rewriter", tmp_path / "o", gguf="q3")
    assert not (tmp_path / "o").exists()  # told before anything is written
    code = "import sys; open(sys.argv[3], 'w').write(' '.join(sys.argv[1:]))"
    monkeypatch.setenv(gguf.VARIABLE, str(converter(tmp_path / "llama", code).parent))
    files = export_model("emoji-rewriter", tmp_path / "o", gguf="q8_0")
    assert files[-1].name == "o-q8_0.gguf"
    assert files[-1].read_text().endswith("--outtype q8_0")


def test_a_converter_that_fails_says_why_and_leaves_the_export(tmp_path: Path) -> None:
    tool = converter(tmp_path, "import sys; sys.exit('Model Foo is not supported')")
    with pytest.raises(T2XError, match="Model Foo is not supported"):
        export_model("emoji-rewriter", "o", gguf="f16", converter=tool)
    assert texts("o") == texts("emoji-rewriter")
    with pytest.raises(T2XError, match="no converter"):
        export_model("emoji-rewriter", "p", gguf="f16", converter=tmp_path / "none.py")


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["export", "emoji-rewriter", "--out", "o", "--json"]) == 0
    files = json.loads(capsys.readouterr().out)["files"]
    assert {"README.md", "model.safetensors", "t2x.json", "tokenizer.json"} <= set(files)
    assert run(["export", "rules", "--out", "p"]) == 1
    assert "no language model" in capsys.readouterr().err


def test_a_path_where_nothing_is_is_no_hub_id() -> None:
    for path in ("runs/nowhere", "./nowhere", "/nowhere/at/all"):
        with pytest.raises(T2XError, match="there is no folder"):
            find_trained(path)
    assert find_trained("owner/model").source == "owner/model"
