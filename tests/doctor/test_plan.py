"""``t2x doctor --plan``: what a run downloads and takes, and what to do, before a download."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace

import huggingface_hub.constants as constants
import pytest

from t2x import cli
from t2x.doctor.downloads import Download
from t2x.doctor.plan import Need, RunReport, plan_report
from t2x.errors import UnknownNameError
from t2x.testing.hub import GATED, TinyHub, serve_hub

LIMIT = 10**9  # bytes
RUN = ("emoji-rewriter", "emoji-flow", ("clip",))


@pytest.fixture(scope="module")
def report():
    return plan_report(*RUN, limit=LIMIT, device="cpu", size=(64, 64))


def test_embedded_models_need_no_download(report):
    assert [need.kind for need in report.needs] == ["rewriter", "generator", "reward"]
    assert {need.place for need in report.needs} == {"embedded"}
    assert report.missing == 0 and report.problems() == []


def test_phases_under_a_limit(report):
    from t2x.memory.weights import weight_bytes
    from t2x.world.weights import require_model

    phases = {phase.kind: phase for phase in report.memory.phases}
    stored = weight_bytes(require_model("emoji-flow"), dtype="float32")
    assert phases["generate"].weight == pytest.approx(stored, rel=0.05)
    assert all(phase.peak > phase.weight for phase in phases.values())
    most, all_of_it = report.memory.phase_bytes, report.memory.together_bytes
    assert most < all_of_it
    limited = replace(report, memory=replace(report.memory, limit=(most + all_of_it) // 2))
    assert limited.memory.together is False and limited.memory.in_phases is True
    assert limited.problems() == [] and any("phases" in line for line in limited.advice())


def test_record_is_json(report):
    record = json.loads(json.dumps(report.record()))
    assert record["memory"]["limit"] == LIMIT and record["needs"][0]["name"] == "emoji-rewriter"


def test_what_does_not_fit_is_a_problem(capsys):
    code = cli.run(
        ["doctor", "--plan", "--model", "emoji-flow", "--memory-limit", "1MB", "--device", "cpu"]
    )
    printed = capsys.readouterr()
    assert code == 1 and "does not fit" in printed.err and "emoji-flow" in printed.out


def test_unknown_names(capsys):
    with pytest.raises(UnknownNameError, match="did you mean 'clip'"):
        plan_report(rewards=["clipp"])


def test_gates_and_disks():
    gated = Download("a/b", {"unet": 9}, missing=9, gated=True)
    need = Need("generator", "a/b", "hub", (gated,), gated=True)
    (said,) = RunReport((need,), None, "", free_disk=10, has_token=False).problems()
    assert "a/b is gated: accept its licence at" in said and "hf auth login" in said
    known = RunReport((need,), None, "", free_disk=10, has_token=True)
    assert known.problems() == [] and "your account has accepted" in known.advice()[0]
    (said,) = RunReport((need,), None, "", free_disk=8, has_token=True).problems()
    assert "9 B are to be downloaded and 8 B are free" in said and "HF_HOME" in said
    unknown = Need("generator", "c/d", "hub", (Download("c/d", problem="no answer"),))
    both = RunReport((need, unknown), None, "", free_disk=10, has_token=True)
    assert both.missing is None and unknown.out_of_reach and not need.out_of_reach


GATE = "black-forest-labs/FLUX.1-dev"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    from t2x.generators.loading import quiet
    from t2x.testing.models import tiny_causal_lm
    from t2x.testing.pipelines import tiny_stable_diffusion

    root = tmp_path_factory.mktemp("hub")
    with quiet():
        tiny_stable_diffusion().save_pretrained(root / "sd")
        model, tokenizer = tiny_causal_lm(0)
        model.save_pretrained(root / "lm")
    tokenizer.save_pretrained(root / "lm")
    return {"ok/sd": root / "sd", GATE: root / "sd", "ok/lm": root / "lm"}


@pytest.fixture
def at_hub(folders, monkeypatch, tmp_path):
    """A hub and an empty cache, as HF_ENDPOINT and HF_HOME name them before the first import."""
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serve_hub(TinyHub(folders, {GATE: GATED})) as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.endpoint)
        template = f"{hub.endpoint}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield hub


def test_a_hub_id_is_planned_without_its_weights(at_hub, folders, tmp_path):
    sizes = {p.name: p.stat().st_size for p in folders["ok/sd"].rglob("*.safetensors")}
    report = plan_report("ok/lm", "ok/sd", device="cpu", size=(64, 64))
    rewriter, generator = report.needs
    assert generator.downloads[0].parts["unet"] > sizes["diffusion_pytorch_model.safetensors"]
    assert generator.missing > sum(sizes.values()) and rewriter.missing > 80_000
    assert report.problems() == [] and report.reason == ""
    drawn = {phase.kind: phase for phase in report.memory.phases}["generate"]
    assert drawn.peak > drawn.weight > 1e6
    assert at_hub.sent < sum(sizes.values()) / 2  # configurations, vocabularies and headers
    assert not list(tmp_path.rglob("*.safetensors"))


def test_a_gated_preset_says_so_before_any_download(at_hub):
    report = plan_report(None, "flux.1-dev", device="cpu")
    assert report.needs[0].gated is True and "FLUX.1" in report.needs[0].licence
    page = f"{at_hub.endpoint}/{GATE}"
    assert any(page in said and "hf auth login" in said for said in report.problems())


def broken(folders, tmp_path, kind):
    folder = tmp_path / kind
    shutil.copytree(folders["ok/sd"], folder)
    weights = folder / "unet" / "diffusion_pytorch_model.safetensors"
    if kind == "cut":
        os.truncate(weights, weights.stat().st_size - 1)
    elif kind == "pointer":
        weights.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    elif kind == "less":
        shutil.rmtree(folder / "vae")
    else:
        (folder / "model_index.json").unlink()
    return str(folder)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("cut", "diffusion_pytorch_model.safetensors has "),
        ("pointer", "is a git-LFS pointer"),
        ("less", "names parts that are not there: vae"),
        ("bare", "the folder has no model_index.json, so that it is no generator"),
    ],
)
def test_a_local_folder_that_will_not_load_is_a_problem(kind, said, folders, tmp_path, capsys):
    assert cli.run(["doctor", "--plan", "--model", broken(folders, tmp_path, kind)]) == 1
    (line,) = [x for x in capsys.readouterr().err.splitlines() if x.startswith("problem: ")]
    assert said in line and line.endswith("copy or download it again")


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (("--memory-limit", "lots"), "'lots' is no size of memory"),
        (("--memory-limit", "0"), "'0' is no size of memory"),
        (("--dtype", "float7"), "unknown dtype 'float7'; allowed: auto"),
        (("--device", "toaster"), "there is no device 'toaster'; give cpu, cuda or mps"),
        (
            ("--device", "cuda:99"),
            "cuda:99 is not on this machine",
        ),
    ],
)
def test_a_setting_that_is_none_ends_the_plan(option, said, capsys):
    assert cli.run(["doctor", "--plan", "--rewards", "clip", *option]) == 1
    printed = capsys.readouterr()
    assert not printed.out and said in printed.err and printed.err.count("\n") == 1


def test_why_a_phase_is_unknown_is_said(folders, tmp_path, capsys):
    shutil.copytree(folders["ok/sd"], tmp_path / "sd")
    (tmp_path / "sd" / "unet" / "config.json").write_text('{"_class_name": 3}')
    cli.run(["doctor", "--plan", "--model", str(tmp_path / "sd")])
    err = capsys.readouterr().err
    assert "fit unknown" in err and "sd: unknown: " in err


def test_what_is_not_there_is_a_problem_and_no_hub_is_none(at_hub, monkeypatch):
    (said,) = plan_report(None, "nobody/sd", device="cpu").problems()
    assert "there is no model 'nobody/sd' on the hub" in said
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    report = plan_report(None, "other/sd", ["clip"], device="cpu")
    assert report.missing is None and report.problems() == []
    assert report.reason.startswith("nothing is known of other/sd: HF_HUB_OFFLINE is set; unset it")
    assert [phase.kind for phase in report.memory.phases] == ["score"]
