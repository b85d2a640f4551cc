"""GGUF files through llama.cpp's own converter; there is none here.

``convert_hf_to_gguf.py`` of https://github.com/ggml-org/llama.cpp follows every new architecture,
and what it writes is what its engines read. It is looked for in the folder that the environment
variable LLAMA_CPP names (a clone of that repository), then among the commands of this computer.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from t2x.errors import MissingDependencyError, T2XError

TYPES = ("f32", "f16", "bf16", "q8_0")
SCRIPT = "convert_hf_to_gguf.py"
VARIABLE = "LLAMA_CPP"
_LINES = 3  # of what the converter said last

__all__ = ["SCRIPT", "TYPES", "VARIABLE", "find_converter", "write_gguf"]


def find_converter(kind: str, given: Path | None = None) -> Path:
    """Give the converter, before anything is exported.

    Raises T2XError for a type that it does not write, MissingDependencyError where there is none.
    """
    if kind not in TYPES:
        raise T2XError(f"GGUF of type {kind!r}: allowed are {', '.join(TYPES)}")
    folder = os.environ.get(VARIABLE)
    for place in (given, Path(folder) / SCRIPT if folder else None):
        if place is not None:
            if place.is_file():
                return place
            raise T2XError(f"there is no converter {str(place)!r}; give the path of {SCRIPT}")
    for name in (SCRIPT, "convert-hf-to-gguf"):
        if command := shutil.which(name):
            return Path(command)
    raise MissingDependencyError(
        f"GGUF needs llama.cpp's {SCRIPT}: git clone https://github.com/ggml-org/llama.cpp, pip "
        f"install -r llama.cpp/requirements/requirements-convert_hf_to_gguf.txt, then set "
        f"{VARIABLE}=llama.cpp or give --converter"
    )


def write_gguf(folder: Path, kind: str, converter: Path) -> Path:
    """Convert a folder of whole weights to ``FOLDER-KIND.gguf`` inside it."""
    out = folder / f"{folder.resolve().name}-{kind}.gguf"
    python = [sys.executable] if converter.suffix == ".py" else []
    command = [*python, str(converter), str(folder), "--outfile", str(out), "--outtype", kind]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or not out.is_file():
        out.unlink(missing_ok=True)
        said = " / ".join((done.stderr or done.stdout).strip().splitlines()[-_LINES:])
        raise T2XError(
            f"{converter.name} could not convert {str(folder)!r}: {said or 'it said nothing'}; the "
            "exported folder is whole without it"
        )
    return out
