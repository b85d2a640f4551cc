"""Says what a data set holds of the public benchmarks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any

from t2x.data.decontaminate import find_benchmark, sources
from t2x.data.sources import last_text, prompt_of, read_prompts, read_table
from t2x.rewriters.parsing import parse_completion

__all__ = ["check_source"]

_ANSWERS = ("completion", "chosen", "rejected")
_SHOWN = 20
_PLAIN = (".txt", ".csv", ".tsv")


@dataclass(frozen=True)
class _Text:
    row: int
    where: str
    text: str


def check_source(source: str, *, column: str | None = None, split: str = "train") -> dict[str, Any]:
    """Compare prompts, and answers where there are any, with the hashes of the benchmarks.

    ``source`` is a file or a hub id as ``read_prompts`` takes it. Gives how many ``prompts`` and
    ``answers`` there are, ``found`` by benchmark and kind of match in both, the first ``examples``,
    and the ``controls``: how often ordinary texts are matched.
    """
    texts = {"prompts": 0, "answers": 0}
    found: dict[str, dict[str, dict[str, int]]] = {"prompts": {}, "answers": {}}
    examples: list[dict[str, Any]] = []
    for item in _texts(source, column, split):
        part = "prompts" if item.where == "prompt" else "answers"
        texts[part] += 1
        match = find_benchmark(item.text)
        if match is None:
            continue
        kinds = found[part].setdefault(match.benchmark, {"exact": 0, "near": 0})
        kinds[match.kind] += 1
        if len(examples) < _SHOWN:
            said = shorten(item.text, 100, placeholder=" ...")
            examples.append(
                {"row": item.row, "where": item.where, "benchmark": match.benchmark,
                 "kind": match.kind, "text": said}
            )  # fmt: skip
    matched = sum(n for part in found.values() for kinds in part.values() for n in kinds.values())
    card = sources()
    return {
        "source": source, **texts, "matched": matched, "found": found, "examples": examples,
        "benchmarks": card["benchmarks"], "controls": card["controls"],
    }  # fmt: skip


def _texts(source: str, column: str | None, split: str) -> Iterator[_Text]:
    if Path(source).suffix.lower() in _PLAIN:
        for row, prompt in enumerate(read_prompts(source, column=column)):
            yield _Text(row, "prompt", prompt.text)
        return
    for row, values in enumerate(read_table(source, split=split)):
        yield _Text(row, "prompt", prompt_of(values, column, source).text)
        yield from _answers(row, values)


def _answers(row: int, values: Mapping[str, Any]) -> Iterator[_Text]:
    for name in _ANSWERS:
        text = last_text(values.get(name), "assistant")
        if text is not None:
            parsed = parse_completion(text)
            yield _Text(row, name, text if parsed.problem else parsed.text)
