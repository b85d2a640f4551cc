"""Configuration: defaults, YAML, overrides, types, and errors that name the key."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from t2x.config import ConfigError, build_config, load_config, save_config, to_dict


@dataclass(frozen=True)
class Inner:
    steps: int = 10
    rate: float = 1e-3
    kind: Literal["sft", "dpo"] = "sft"


@dataclass(frozen=True)
class Outer:
    name: str
    train: Inner = field(default_factory=Inner)
    rewards: dict[str, float] = field(default_factory=dict)
    sizes: list[int] = field(default_factory=lambda: [1])
    pair: tuple[int, float] = (1, 2.0)
    stages: tuple[Inner, ...] = ()
    limit: int | None = None
    out: Path = Path("out")
    fast: bool = False

    def __post_init__(self) -> None:
        if self.limit == 0:
            raise ValueError("limit must be positive")


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_overrides_win_over_yaml_and_yaml_over_defaults(tmp_path):
    path = write(tmp_path, "name: a\ntrain:\n  steps: 20\n  rate: 1e-4\n")
    config = load_config(Outer, path, ["train.steps=30", "limit=5", "out=x/y", "fast=true"])
    assert config.train == Inner(steps=30, rate=1e-4)  # YAML reads 1e-4 as text
    assert (config.name, config.limit, config.out, config.fast) == ("a", 5, Path("x/y"), True)


def test_containers_are_converted_inside(tmp_path):
    path = write(
        tmp_path, "name: ü\nrewards: {clip: 1}\nsizes: [2, 3]\npair: [4, 5]\nstages: [{steps: 7}]\n"
    )
    config = load_config(Outer, path)
    assert config.rewards == {"clip": 1.0} and isinstance(config.rewards["clip"], float)
    assert config.sizes == [2, 3] and config.pair == (4, 5.0)
    assert config.stages == (Inner(steps=7),)


def test_what_is_saved_loads_as_the_same(tmp_path):
    config = load_config(Outer, None, ["name=猫", "rewards.clip=0.5", "stages=[{kind: dpo}]"])
    save_config(config, tmp_path / "new" / "resolved.yaml")
    assert load_config(Outer, tmp_path / "new" / "resolved.yaml") == config
    assert to_dict(config)["train"]["kind"] == "sft"


def test_what_the_constructor_does_not_take_is_not_saved(tmp_path):
    @dataclass(frozen=True)
    class Derived:
        steps: int = 3
        total: int = field(init=False, default=0)

        def __post_init__(self) -> None:
            object.__setattr__(self, "total", 2 * self.steps)

    save_config(Derived(4), tmp_path / "derived.yaml")
    assert to_dict(Derived(4)) == {"steps": 4}
    assert load_config(Derived, tmp_path / "derived.yaml") == Derived(4)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ([], "missing key 'name'"),
        (["name=a", "trian.steps=1"], "did you mean 'train'"),
        (["name=a", "train.stesp=1"], "'train.stesp': did you mean 'train.steps'"),
        (["name=a", "train=3"], "'train.* must hold keys"),
        (["name=a", "train.steps=1.5"], "'train.steps' must be int, got 1.5"),
        (["name=a", "train.steps=true"], "'train.steps' must be int"),
        (["name=a", "train.rate=fast"], "'train.rate' must be float"),
        (["name=a", "train.kind=ppo"], "one of 'sft', 'dpo', got 'ppo'"),
        (["name=a", "sizes=[1, x]"], r"'sizes\[1\]' must be int"),
        (["name=a", "pair=[1]"], "must have 2 entries"),
        (["name=a", "fast=1"], "'fast' must be bool"),
        (["name=3"], "'name' must be str"),
        (["name=a", "limit=0"], "limit must be positive"),
        (["name=a", "limit"], "written key=value"),
        (["name=a", "=1"], "written key=value"),
        (["name=a", "name.b=1"], "'name' is a value"),
        (["name=["], "not valid YAML"),
    ],
)
def test_an_error_names_the_key(overrides, message):
    with pytest.raises(ConfigError, match=message):
        load_config(Outer, None, overrides)


@pytest.mark.parametrize(
    ("text", "message"), [("[1, 2]", "keys and values"), ("a: [", "not valid YAML")]
)
def test_a_file_that_is_no_mapping_is_an_error(tmp_path, text, message):
    with pytest.raises(ConfigError, match=message):
        load_config(Outer, write(tmp_path, text))


def test_a_section_that_is_left_empty_has_its_defaults(tmp_path):
    path = write(tmp_path, "name: a\ntrain:\n")
    assert load_config(Outer, path).train == Inner()
    assert load_config(Outer, path, ["train.steps=20"]).train == Inner(steps=20)


@dataclass(frozen=True)
class Loose:
    mode: Literal[1, 2] = 1
    counts: dict[str, int] = field(default_factory=dict)
    table: dict = field(default_factory=dict)
    row: list = field(default_factory=list)
    pair: tuple = ()
    rate: float = 1.0
    steps: int = 1


def test_containers_without_a_type_hold_anything():
    config = build_config(Loose, {"table": {1: "a"}, "row": [1, "b"], "pair": [[], None]})
    assert config == Loose(table={1: "a"}, row=[1, "b"], pair=([], None))
    with pytest.raises(ConfigError, match="'row' must be list, got 3"):
        build_config(Loose, {"row": 3})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mode: true", "one of 1, 2, got True"),
        ("mode: 1.0", "one of 1, 2, got 1.0"),
        ("counts: {1: 2}", "'a key of counts' must be str, got 1"),
        (f"rate: 1{'0' * 400}", r"'rate' must be float, got 1000+\.\.\. \(int\)"),
        (f"steps: 1{'0' * 5000}", "not valid YAML"),
        (f"rate: 0x{'f' * 5000}", "'rate' must be float, got a number of thousands of digits"),
        ("[" * 5000, "not valid YAML"),
        ("when: 2001-13-45", "not valid YAML"),
    ],
)
def test_hostile_values_are_errors_of_the_configuration(tmp_path, text, message):
    with pytest.raises(ConfigError, match=message):
        load_config(Loose, write(tmp_path, text))


@pytest.mark.parametrize("value", ["[" * 5000, "1" * 5000])
def test_hostile_overrides_are_errors_of_the_configuration(value):
    with pytest.raises(ConfigError, match=r"the override 'rate=.*\.\.\. is not valid YAML"):
        load_config(Loose, None, [f"rate={value}"])


def test_a_missing_file_is_an_error_and_an_empty_one_is_not(tmp_path):
    with pytest.raises(ConfigError, match=r"no\.yaml"):
        load_config(Inner, tmp_path / "no.yaml")
    assert load_config(Inner, write(tmp_path, "")) == Inner()


def test_plain_values_build_a_config():
    assert build_config(Inner, {"steps": 3, "rate": 1}) == Inner(3, 1.0)
