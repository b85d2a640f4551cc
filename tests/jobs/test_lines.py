"""Prompts out of lines: whatever one holds, the next is read."""

from __future__ import annotations

import io
import json
import tracemalloc
from contextlib import nullcontext
from pathlib import Path

import pytest

from t2x.errors import T2XError
from t2x.jobs.lines import MAX_LINE, Line, Source, file_source, prompt_source, read_lines

BOM = b"\xef\xbb\xbf"


def lines(data: bytes, form: str = "jsonl") -> list[Line]:
    return list(read_lines(Source(lambda: nullcontext(io.BytesIO(data)), form)))


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"{broken", "not valid JSON"),
        (b"\xff\xfe", "not UTF-8"),
        (b"7" * 5000, "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b'{"a":' * 50_000, "not valid JSON"),
        (b'{"text": "a cat"}', "neither a text nor"),
        (b'["a cat"]', "neither a text nor"),
        (b"null", "neither a text nor"),
        (b"NaN", "neither a text nor"),
        (b'{"prompt": 3}', "neither a text nor"),
        (b'" "', "the prompt is empty"),
        (b'"\\ud83d"', "no valid Unicode"),
        (b"\0", "not valid JSON"),
        (b'"' + b"x" * MAX_LINE + b'"', "longer than"),
    ],
)
def test_a_bad_line_has_a_reason_and_the_next_is_read(raw, reason):
    first, bad, blank, last = lines(b'"a cat"\n' + raw + b'\n\n{"prompt": "a dog"}')
    assert first == Line(0, "a cat") and last == Line(3, "a dog") and blank == Line(2)
    assert bad.index == 1 and not bad.prompt and reason in bad.error and len(bad.error) < 300


def test_plain_lines_are_taken_as_they_are():
    data = BOM + 'a cat\r\n\n {a|b} "dog" \n猫\n\xa0\n'.encode() + b"\xff\n"
    found = lines(data, "text")
    assert [line.prompt for line in found] == ["a cat", "", ' {a|b} "dog" ', "猫", "", ""]
    assert [bool(line.error) for line in found] == [False, False, False, False, True, True]


def test_a_mark_of_windows_is_no_part_of_json():
    assert lines(BOM + b'"a cat"\r\n') == [Line(0, "a cat")]


@pytest.mark.parametrize(
    ("name", "data", "prompts"),
    [
        ("a.txt", b'"a"\n', ['"a"']),
        ("a.jsonl", b"a\n", [""]),
        ("a.TXT", b'"a"\n', ['"a"']),
        ("a", b'\n"a"\nb\n', ["", "a", ""]),
        ("a", b'{"prompt": "a"}\n', ["a"]),
        ("a", b"\na cat\n7\n", ["", "a cat", "7"]),
        ("a", b'{a|b} cat\n"c"\n', ["{a|b} cat", '"c"']),
    ],
)
def test_auto_goes_by_the_name_and_else_by_the_first_line(name, data, prompts):
    Path(name).write_bytes(data)
    assert [line.prompt for line in read_lines(file_source(Path(name)))] == prompts


@pytest.mark.parametrize(
    ("data", "total"), [(b"", 0), (b"a", 1), (b"a\n", 1), (b"a\n\nb", 3), (b"\n", 1)]
)
def test_a_file_is_counted_as_it_is_read(data, total):
    Path("a.txt").write_bytes(data)
    source = file_source(Path("a.txt"))
    assert source.total == total == len(list(read_lines(source)))


def test_a_file_is_known_by_its_bytes():
    for name, text in {"a.txt": "a", "b.txt": "a", "c.txt": "b"}.items():
        Path(name).write_text(text)
    a, b, c = (file_source(Path(name)).digest for name in ("a.txt", "b.txt", "c.txt"))
    assert a == b != c
    with pytest.raises(T2XError, match="there is no file 'd"):
        file_source(Path("d.txt"))


def test_prompts_of_a_command_line_come_back():
    prompts = ["a cat", 'a "dog"\nin two lines', "猫", "😀"]
    assert [line.prompt for line in read_lines(prompt_source(prompts))] == prompts


def test_a_line_without_end_takes_no_memory():
    """The stream makes 64 MB up as they are read: what is held of them is what counts."""

    class Endless(io.RawIOBase):
        left = 64 << 20

        def readable(self) -> bool:
            return True

        def readinto(self, buffer) -> int:
            size = min(len(buffer), self.left)
            self.left -= size
            buffer[:size] = b"x" * size
            return size

    source = Source(lambda: nullcontext(io.BufferedReader(Endless())), "text")
    tracemalloc.start()
    try:
        (line,) = read_lines(source)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "longer than" in line.error and peak < 8 << 20


def test_json_is_read_as_json_is_written():
    rows = [{"prompt": 'a "cat"', "more": [1, 2]}, {"prompt": "a\nb"}]
    found = lines("".join(json.dumps(row) + "\n" for row in rows).encode())
    assert [line.prompt for line in found] == ['a "cat"', "a\nb"]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", "a cat\na dog\n".encode("utf-16"), "UTF-16"),
        ("a.txt", b"a cat\ra dog\r", "CR alone"),
        ("a.csv", b"prompt\ra cat\r", "CR alone"),
    ],
)
def test_files_that_would_be_misread_are_refused(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(T2XError, match=said):
        file_source(path)
