"""Bad uploads: each is refused in one line, without a traceback and without eating the memory."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from t2x.errors import T2XError
from t2x.studio import uploads
from t2x.studio.batches import Batches
from t2x.studio.uploads import check_prompts_file, open_upload, read_dropped, shown_name


def png(size: tuple[int, int] = (64, 64)) -> bytes:
    buffer = io.BytesIO()
    Image.effect_noise(size, 80).save(buffer, format="PNG")
    return buffer.getvalue()


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_of(width: int, height: int, *more: bytes) -> bytes:
    """A file that says how large it is, and holds next to nothing."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    body = chunk(b"IDAT", zlib.compress(bytes(1000)))
    return b"\x89PNG\r\n\x1a\n" + head + b"".join(more) + body + chunk(b"IEND", b"")


def text_bomb() -> bytes:
    packed = zlib.compress(bytes(200 << 20), 9)
    return png_of(4, 4, chunk(b"zTXt", b"parameters\0\0" + packed))


def zip_bomb() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("bomb.png", bytes(50 << 20))
    return buffer.getvalue()


BAD_PICTURES: dict[str, tuple[Callable[[], bytes], str]] = {
    "bomb.png": (lambda: png_of(100_000, 100_000), "at most 64 megapixels"),
    "wide.png": (lambda: png_of(65_000_000, 1), "at most 64 megapixels"),
    "cut.png": (lambda: png()[:2000], "damaged or cut off"),
    "text.png": (text_bomb, "damaged or cut off"),
    "photo.jpg": (lambda: b"%PDF-1.7 " + bytes(99), "is a PDF file"),
    "drawing.png": (lambda: b"<?xml version='1.0'?><svg xmlns='x'/>", "is an SVG drawing"),
    "page.png": (lambda: b" <!DOCTYPE html><script>alert(1)</script>", "is a web page"),
    "zip.png": (zip_bomb, "is a zip file"),
    "empty.png": (bytes, "is empty"),
    "noise.png": (lambda: bytes(range(256)) * 9, "is no picture"),
}


@pytest.mark.parametrize("name", BAD_PICTURES)
def test_bad_pictures(tmp_path: Path, name: str) -> None:
    make, words = BAD_PICTURES[name]
    path = tmp_path / "upload"
    path.write_bytes(make())
    for read in (open_upload, read_dropped):
        with pytest.raises(T2XError) as caught:
            read(path, name=name)
        assert words in str(caught.value) and name in str(caught.value)
        assert "\n" not in str(caught.value) and len(str(caught.value)) < 200


def test_a_huge_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.png"
    with path.open("wb") as file:
        file.write(png())
        file.truncate(3 << 30)  # sparse
    with pytest.raises(T2XError, match="3072 MB; a picture may have at most 64 MB"):
        open_upload(path)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("../../etc/passwd", "passwd"),
        ("C:\\windows\\a.png", "a.png"),
        ("a\0b\n.png", "a?b?.png"),
        ("x" * 5000 + ".png", "x" * 48 + "...xxxxx.png"),
        ("/", "the file"),
        ("\u202egnp.exe", "?gnp.exe"),
    ],
)
def test_names_are_shown_and_nothing_else(tmp_path: Path, name: str, shown: str) -> None:
    assert shown_name(name) == shown
    path = tmp_path / "prompts"
    path.write_text("a cat\n")
    batches = Batches(tmp_path / "home")
    batch = batches.add("../ada", path, name=name)
    assert batch.name == shown
    assert {p.relative_to(tmp_path).parts[0] for p in tmp_path.rglob("*")} == {"home", "prompts"}
    folder = batches.folder(batch)
    assert sorted(p.name for p in folder.iterdir()) == ["batch.json", "input"]


def test_a_script_in_the_metadata_stays_text(tmp_path: Path) -> None:
    info = PngInfo()
    script = "<script>alert(1)</script><img src=x onerror=alert(1)>"
    info.add_text("parameters", f"{script}\nNegative prompt: {script}\nSteps: 9, {script}: 1")
    path = tmp_path / "a.png"
    Image.new("RGB", (8, 8)).save(path, pnginfo=info)
    dropped = read_dropped(path, name=f"{script}.png")
    assert dropped.recipe is not None and dropped.recipe.prompt == script
    from t2x.evaluation.html import escaped

    assert "<" not in escaped(dropped.recipe.prompt) and "<" not in escaped(dropped.said)


BAD_PROMPTS: dict[str, tuple[bytes, str]] = {
    "wide.csv": (b",".join([b"a"] * 600_000) + b"\n1\n", "longer than 1048576 bytes"),
    "binary.csv": (b"prompt\n\0\x01\x02" * 99, "is binary"),
    "zip.csv": (b"PK\x03\x04" + bytes(99), "is a zip file"),
    "utf16.txt": ("a cat\n".encode("utf-16"), "is UTF-16"),
    "empty.jsonl": (b"", "is empty"),
    "other.csv": (b"id,text\n1,a cat\n", "names no column 'prompt'"),
    "blank.txt": (b"\n\n \n", "holds no prompt"),
}


@pytest.mark.parametrize("name", BAD_PROMPTS)
def test_bad_files_of_prompts(tmp_path: Path, name: str) -> None:
    data, words = BAD_PROMPTS[name]
    path = tmp_path / "upload"
    path.write_bytes(data)
    batches = Batches(tmp_path / "home")
    with pytest.raises(T2XError) as caught:
        batches.add("ada", path, name=name)
    assert words in str(caught.value) and "\n" not in str(caught.value)
    assert batches.all("ada") == [] and not list((tmp_path / "home").rglob("input*"))


def test_a_line_of_100_megabytes_and_lines_in_another_encoding_are_single_bad_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "prompts.jsonl"
    with path.open("wb") as file:
        file.write(b'{"prompt": "a cat"}\n{"prompt": "')
        for _ in range(100):
            file.write(b"x" * (1 << 20))
        file.write(b'"}\n{"prompt": "caf\xe9"}\n"a dog"\n')
    check_prompts_file(path)
    from t2x.jobs.lines import file_source, read_lines

    lines = list(read_lines(file_source(path)))
    assert [line.prompt for line in lines] == ["a cat", "", "", "a dog"]
    assert "longer than" in lines[1].error and "not UTF-8" in lines[2].error
    monkeypatch.setattr(uploads, "MOST_PROMPT_BYTES", 1 << 20)
    with pytest.raises(T2XError, match="may have at most 1 MB"):
        check_prompts_file(path)
