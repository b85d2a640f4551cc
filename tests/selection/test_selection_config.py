"""The selection section of a YAML."""

from __future__ import annotations

import pytest

from t2x.config import ConfigError, build_config
from t2x.errors import T2XError
from t2x.selection import METHODS, SelectionConfig


def test_uniform_is_the_default_and_every_method_is_one_word() -> None:
    assert build_config(SelectionConfig, {}).method == "uniform"
    for method in METHODS:
        assert build_config(SelectionConfig, {"method": method}).method == method


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            {"method": "mopps", "temperature_step": 0.1},
            "an option of erpo, and the method is mopps",
        ),
        ({"pool": 4}, "an option of mopps, pcl, p1, hive, and the method is uniform"),
        ({"method": "pcl", "decay": 1.5}, "decay is 1.5; give a number from 0 to 1"),
        ({"method": "pcl", "ridge": 0.0}, "ridge is 0.0; give a number 1e-09 or more"),
        ({"fair_share": -0.1}, "fair_share is -0.1"),
        ({"margin": "mean"}, "'margin' must be one of 'median'"),
        ({"margin": float("nan")}, "margin is nan; give a number, or median"),
    ],
)
def test_what_can_not_be_meant_is_an_error(given: dict[str, object], says: str) -> None:
    with pytest.raises(T2XError, match=says):
        build_config(SelectionConfig, given)


def test_an_unknown_method_or_key_is_named() -> None:
    with pytest.raises(ConfigError, match="'method' must be one of 'uniform', 'mopps'"):
        build_config(SelectionConfig, {"method": "mops"})
    with pytest.raises(T2XError, match="give one of uniform, mopps"):
        SelectionConfig("mops")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="did you mean 'target'"):
        build_config(SelectionConfig, {"method": "mopps", "targets": 0.5})


def test_defaults_are_those_of_the_method() -> None:
    assert SelectionConfig("mopps").option("decay") == 0.5
    assert SelectionConfig("pcl").option("decay") == 0.9
    assert SelectionConfig("mopps", decay=1.0).option("decay") == 1.0
    assert SelectionConfig("p1").option("fair_share") == 0.125
    assert SelectionConfig("mopps").candidates(8, 1000) == 64
    assert SelectionConfig("mopps").candidates(8, 20) == 20
    assert SelectionConfig("mopps", pool=0).candidates(8, 1000) == 1000
    assert SelectionConfig().candidates(8, 1000) == 8


def test_the_public_names_are_there_and_a_configuration_needs_no_torch() -> None:
    import subprocess
    import sys

    import t2x.selection

    assert all(getattr(t2x.selection, name) for name in t2x.selection.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        t2x.selection.nothing  # noqa: B018
    code = "import sys, t2x.selection.config as c; c.SelectionConfig('mopps'); "
    code += "sys.exit('torch' in sys.modules or 'trl' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
