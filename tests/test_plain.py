"""Plain values: strict for readers of JSON, exact for keys and configurations."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path

import torch

from t2x.plain import json_line, lines_of, plain


@dataclass(frozen=True)
class Pair:
    path: Path
    values: tuple[float, ...]
    size: int = field(init=False, default=2)


VALUE = {"b": (1, None), "a": torch.tensor([1.5]), "c": torch.float32, 3: True, "p": Path("x/y")}
PLAIN = {"b": [1, None], "a": [1.5], "c": "torch.float32", 3: True, "p": "x/y"}


def test_whatever_json_has_a_word_for_is_kept():
    assert plain(VALUE) == plain(VALUE, exact=True) == PLAIN
    assert list(plain(VALUE)) == list(VALUE)
    assert plain(Pair(Path("x"), (1.0,))) == {"path": "x", "values": [1.0]}


def test_strict_values_are_written_for_any_reader():
    value = {"nan": math.nan, "all": [math.inf, 0.1 + 0.2], "text": "a\udc80"}
    assert plain(value) == {"nan": None, "all": [None, 0.1 + 0.2], "text": "a?"}
    line = json_line({**value, "cat": "猫"})
    assert line.endswith("\n") and "猫" in line
    assert json.loads(line.encode("utf-8"))["text"] == "a?"


def test_a_text_may_hold_signs_that_end_lines_elsewhere():
    """Every sign at which ``str.splitlines`` cuts."""
    values = [f"a{sign}b" for sign in "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"]
    written = "".join(map(json_line, values))
    assert [json.loads(line) for line in lines_of(written)] == values
    assert len(written.splitlines()) > len(values)
    assert (
        lines_of("") == []
        and lines_of("1\n\n") == ["1", ""]
        and lines_of('1\n"cut') == ["1", '"cut']
    )


def test_exact_values_of_different_settings_differ():
    values = [math.inf, -math.inf, None, "a\udc80", "a?"]
    assert [plain(value, exact=True) for value in values] == values
    assert math.isnan(plain(math.nan, exact=True))
