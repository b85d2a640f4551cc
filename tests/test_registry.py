"""Names: lookup order, literals, hub ids, plugins, and errors that say what to do."""

from __future__ import annotations

import ast
import logging
import sys
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from types import ModuleType

import pytest
import torch

import t2x
from t2x import registry
from t2x.errors import MissingDependencyError, T2XError, UnknownNameError
from t2x.testing import (
    FakeGenerator,
    FakeReward,
    FakeRewriter,
    tiny_causal_lm,
    tiny_stable_diffusion,
)
from t2x.world import weights

FOLDERS = {"t2x.rewards": "rewards", "t2x.train": "train", "t2x.apps": "apps"}
FOLDERS["t2x.apps.studio"] = "apps/studio"
ROOT = Path(__file__).parents[1]


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module ``plugin`` with factories that remember what they were given."""
    module = ModuleType("plugin")
    module.load = lambda *args, **options: (args, options)
    module.Class = type("Class", (), {"make": staticmethod(lambda **options: options)})
    monkeypatch.setitem(sys.modules, "plugin", module)
    return module


def install(monkeypatch: pytest.MonkeyPatch, **points: str) -> None:
    found = EntryPoints(EntryPoint(name, value, "t2x.rewards") for name, value in points.items())
    monkeypatch.setattr(
        registry, "entry_points", lambda group: found if group == "t2x.rewards" else EntryPoints()
    )


def test_a_literal_is_imported_and_options_are_passed_on(plugin):
    assert registry.load_reward("plugin:load", scale=2) == ((), {"scale": 2})
    assert registry.load_rewriter("plugin:Class.make", a=1) == {"a": 1}


def test_an_entry_point_is_found_and_listed(plugin, monkeypatch):
    install(monkeypatch, mine="plugin:load")
    assert registry.load_reward("mine", x=1) == ((), {"x": 1})
    assert "mine" in registry.known_names("rewards")


def test_a_built_in_name_wins_over_a_plugin(plugin, monkeypatch):
    install(monkeypatch, clip="plugin:load")
    monkeypatch.setitem(registry.REWARDS, "clip", "plugin:Class.make")
    assert registry.load_reward("clip", x=1) == {"x": 1}


def test_an_unknown_name_gets_the_closest_match_and_the_full_list():
    with pytest.raises(UnknownNameError) as error:
        registry.load_reward("clp")
    text = str(error.value)
    assert "'clp'" in text and "did you mean 'clip'" in text
    assert all(name in text for name in registry.REWARDS)


@pytest.mark.parametrize(
    "name", ["", " ", "../nowhere", "a b/c", "no_such", "x" * 5000, "a/b/c", "😀"]
)
def test_a_name_that_is_nothing_is_unknown(name):
    with pytest.raises(UnknownNameError) as error:
        registry.load_generator(name)
    assert len(str(error.value)) < 500


def test_a_missing_module_of_a_literal_is_unknown():
    with pytest.raises(UnknownNameError, match="no_such_module"):
        registry.load_reward("no_such_module.part:load")
    with pytest.raises(UnknownNameError, match="no_attr"):
        registry.load_reward("json:no_attr")


def test_a_missing_dependency_names_the_extra(monkeypatch, tmp_path):
    (tmp_path / "needs_trl.py").write_text("import trl\n")
    (tmp_path / "needs_lazily.py").write_text("def load():\n    import trl.core\n")
    (tmp_path / "needs_other.py").write_text("import a_package_of_nobody\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "trl", None)  # as if it were not installed
    for target in ("needs_trl:load", "needs_lazily:load"):
        with pytest.raises(MissingDependencyError, match=r"pip install 't2x\[train\]'"):
            registry.load_reward(target)
    with pytest.raises(MissingDependencyError, match="a_package_of_nobody"):
        registry.load_reward("needs_other:load")


def test_folders_hub_ids_and_embedded_names_go_to_the_ordinary_loader(
    plugin, monkeypatch, tmp_path
):
    monkeypatch.setattr(registry, "_ANY_GENERATOR", "plugin:load")
    monkeypatch.setitem(registry.GENERATORS, "emoji-flow", "plugin:load")
    monkeypatch.setattr(weights, "MODELS", tmp_path)
    (tmp_path / "emoji-flow" / "unet").mkdir(parents=True)
    with pytest.raises(T2XError, match="t2x world train emoji-flow"):
        registry.load_generator("emoji-flow")
    (tmp_path / "emoji-flow" / "unet" / "model.safetensors").touch()
    (tmp_path / "emoji-flow" / "model_index.json").touch()
    expected = ((str(tmp_path / "emoji-flow"),), {"dtype": "float32"})
    assert registry.load_generator("emoji-flow", dtype="float32") == expected
    assert registry.load_generator(str(tmp_path)) == ((str(tmp_path),), {})
    assert registry.load_generator("owner/model-1.5") == (("owner/model-1.5",), {})
    with pytest.raises(UnknownNameError, match=r"load_reward\('clip', source='owner/model'\)"):
        registry.load_reward("owner/model")  # rewards have no ordinary loader


def test_what_is_loaded_is_given_back_and_takes_no_options():
    for load, made in (
        (registry.load_rewriter, FakeRewriter()),
        (registry.load_generator, FakeGenerator()),
        (registry.load_reward, FakeReward()),
    ):
        assert load(made) is made
        with pytest.raises(T2XError, match="is loaded already and takes no seed"):
            load(made, seed=1)


def test_objects_and_paths_go_to_the_ordinary_loader(plugin, monkeypatch, tmp_path):
    monkeypatch.setattr(registry, "_ANY_GENERATOR", "plugin:load")
    monkeypatch.setattr(registry, "_ANY_REWRITER", "plugin:load")
    monkeypatch.setitem(registry.GENERATORS, "none", "plugin:Class.make")
    pipeline, pair, folder = object(), (object(), object()), tmp_path / "none"
    folder.mkdir()
    assert registry.load_generator(pipeline, dtype="float32") == ((pipeline,), {"dtype": "float32"})
    assert registry.load_rewriter(pair) == ((pair,), {})
    assert registry.load_generator(folder) == ((folder,), {})
    monkeypatch.chdir(tmp_path)
    assert registry.load_generator(Path("none")) == ((Path("none"),), {})  # no name but a folder
    with pytest.raises(T2XError, match="there is no folder 'nowhere'"):
        registry.load_rewriter(Path("nowhere"))
    for junk in (object(), folder, None):
        with pytest.raises(T2XError, match=r"is no reward; give a name .* source="):
            registry.load_reward(junk)
    with pytest.raises(UnknownNameError, match="weights are given to a reward as source="):
        registry.load_reward(str(folder))


def test_real_objects_are_wrapped():
    pipeline = tiny_stable_diffusion()
    assert registry.load_generator(pipeline, num_inference_steps=3).pipeline is pipeline
    assert registry.load_rewriter(tiny_causal_lm(), model_id="tiny").model_id == "tiny"
    with pytest.raises(T2XError, match="is no generator"):
        registry.load_generator(3)


def test_where_a_generators_weights_lie(monkeypatch, tmp_path):
    assert registry.generator_source("owner/model") == "owner/model"
    assert registry.generator_source(str(tmp_path)) == str(tmp_path)
    assert registry.generator_source(tmp_path) == str(tmp_path)
    assert registry.generator_source("my_package.module:load") is None
    with pytest.raises(UnknownNameError):
        registry.generator_source("emoji-flaw")


@pytest.mark.parametrize("kind", [OSError, ValueError])
def test_a_checkpoint_that_does_not_load_is_one_line(monkeypatch, plugin, kind):
    def fail(source: str) -> None:
        raise kind("cannot reach the hub\n" + "many\nlines" * 500)

    plugin.load = fail
    monkeypatch.setattr(registry, "_ANY_REWRITER", "plugin:load")
    with pytest.raises(T2XError, match="cannot load 'owner/model': cannot reach the hub") as error:
        registry.load_rewriter("owner/model")
    assert "\n" not in str(error.value) and len(str(error.value)) < 500


def test_a_name_that_the_ordinary_loader_knows_is_passed_on(plugin, monkeypatch):
    monkeypatch.setattr(registry, "_ANY_REWRITER", "plugin:load")
    monkeypatch.setitem(registry.REWRITERS, "smollm2", "plugin:load")
    assert registry.load_rewriter("smollm2", seed=1) == (("smollm2",), {"seed": 1})


def targets() -> list[str]:
    return sorted({target for table in registry.TABLES.values() for target in table.values()})


@pytest.mark.parametrize("target", targets())
def test_every_entry_names_something_that_exists(target):
    """Read from the source, so that nothing heavy is imported."""
    module, attr = target.split(":")
    package, _, name = module.rpartition(".")
    folder = ROOT / FOLDERS.get(package, package.replace(".", "/"))
    tree = ast.parse((folder / f"{name}.py").read_text("utf-8"))
    for part in attr.split("."):
        (found,) = (node for node in tree.body if getattr(node, "name", None) == part)
        tree = found


@pytest.mark.parametrize("name", weights.EMBEDDED)
def test_every_embedded_model_has_a_recipe(name):
    assert name in registry.COMMANDS


def test_an_embedded_name_has_a_folder_and_no_other_has():
    assert weights.model_dir("emoji-clip").name == "emoji-clip"
    with pytest.raises(UnknownNameError):
        weights.model_dir("emoji-clop")


def test_attempts_at_a_hub_that_can_not_be_reached_are_not_told(monkeypatch, caplog):
    """The hub's client warns before each new attempt; the one error at the end is enough."""
    client = logging.getLogger("huggingface_hub.utils._http")

    def load(source: str) -> None:
        client.warning("Retrying in 1s [Retry 1/5].")
        raise OSError("we could not connect")

    monkeypatch.setattr(registry, "import_attr", lambda target: load)
    with pytest.raises(T2XError, match="cannot load 'owner/model': we could not connect"):
        registry.load_rewriter("owner/model")
    assert not [r for r in caplog.records if r.name == client.name]
    client.warning("said again")
    said = [r.getMessage() for r in caplog.records if r.name == client.name]
    assert said == ["said again"]


def test_an_application_is_found_by_its_name():
    assert {"serve", "studio"} <= set(registry.APPS)
    for target in registry.APPS.values():
        package, _, module = target.partition(":")[0].rpartition(".")
        assert (ROOT / FOLDERS[package] / f"{module}.py").is_file()


def test_a_number_format_by_name_as_configurations_write_it() -> None:
    media = torch.rand(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    exact = t2x.load_reward("clip").score(["a cat"], media)
    rounded = t2x.load_reward("clip", dtype="bfloat16").score(["a cat"], media)
    assert 0 < abs(float(exact - rounded)) < 0.05
    with pytest.raises(T2XError, match="unknown dtype 'float17'"):
        t2x.load_reward("clip", dtype="float17")
