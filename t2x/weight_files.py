"""One file of weights as people pass it on: by path, folder, hub id or address on the hub.

lora.safetensors                         a file
~/loras/neon                             a folder that holds one
owner/model                              the one that a repository of the hub holds
owner/model/sub/lora.safetensors         a file of a repository
https://HUB/owner/model/resolve/main/lora.safetensors
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from t2x.errors import T2XError
from t2x.failures import reading

SAFE = (".safetensors",)
PICKLES = (".bin", ".ckpt", ".pt", ".pth")  # read under torch.load(weights_only=True) alone
GGUF = (".gguf",)

_HUB_FILE = re.compile(r"([\w][\w.-]*/[\w][\w.-]*)(?:/(.+))?")
_ADDRESS = re.compile(r"([\w][\w.-]*/[\w][\w.-]*)/(?:resolve|blob|raw)/([^/]+)/([^?#]+)")

__all__ = ["GGUF", "PICKLES", "SAFE", "find_weights", "names_file"]


def names_file(source: object) -> bool:
    """Whether a source reads as one file of weights rather than a folder or a hub id."""
    text = str(source).partition("?")[0].lower()
    return isinstance(source, (str, Path)) and text.endswith((*SAFE, *PICKLES, *GGUF))


def find_weights(
    source: str | Path,
    *,
    what: str,
    suffixes: Sequence[str] = (*SAFE, *PICKLES),
    preferred: Sequence[str] = (),
    revision: str | None = None,
) -> Path:
    """Give the local path of one file of weights, fetched from the hub if that is where it is.

    ``what`` names it in messages ("LoRA"); ``suffixes`` with "" among them allow any file that is
    named itself; of several files in a folder or repository the first of
    ``preferred`` names is taken, else the only one with the first of ``suffixes`` that there is.
    Raises T2XError for a file that is not there, of another kind, or one of several.
    """
    text = str(source)
    if not text.strip():
        raise T2XError(f"no file of a {what} is named; give one, as FOLDER/FILE.safetensors")
    path = Path(source).expanduser()
    if path.is_file():
        return _of_kind(path, what, suffixes)
    if path.is_dir():
        inside = {p.relative_to(path).as_posix(): p for p in path.iterdir() if p.is_file()}
        return inside[_choose(list(inside), text, what, suffixes, preferred)]
    if "://" in text:
        repository, commit, name = _address(text, what)
        return _fetched(repository, name, what, suffixes, revision or commit)
    found = _HUB_FILE.fullmatch(text)
    if found is None or text.startswith(("./", "../")) or path.parent.is_dir():
        raise T2XError(
            f"there is no file {text!r}; give the {what} as a file, a folder that holds one, a hub "
            "id owner/model, or owner/model/FILE"
        )
    repository, name = found[1], found[2]
    if name is None:
        for usual in preferred:
            if (path_of := _if_there(repository, usual, revision)) is not None:
                return path_of
        name = _choose(_listed(repository, what, revision), text, what, suffixes, ())
    return _fetched(repository, name, what, suffixes, revision)


def _of_kind(path: Path, what: str, suffixes: Sequence[str]) -> Path:
    if "" not in suffixes and path.suffix.lower() not in suffixes:
        raise T2XError(
            f"{str(path)!r} is no {what}: its name ends in {path.suffix or 'nothing'}, allowed are "
            f"{', '.join(suffixes)}"
        )
    return path


def _choose(
    names: Sequence[str], source: str, what: str, suffixes: Sequence[str], preferred: Iterable[str]
) -> str:
    for name in preferred:
        if name in names:
            return name
    for suffix in filter(None, suffixes):
        fitting = sorted(name for name in names if name.lower().endswith(suffix))
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            shown = ", ".join(fitting[:6]) + (", ..." if len(fitting) > 6 else "")
            raise T2XError(
                f"{source!r} holds {len(fitting)} files that may be the {what}: {shown}; name one, "
                f"as {source.rstrip('/')}/{fitting[0]}"
            )
    raise T2XError(f"{source!r} holds no {what} ({', '.join(suffixes)})")


def _address(text: str, what: str) -> tuple[str, str, str]:
    """Repository, revision and file of an address on the hub."""
    from urllib.parse import unquote

    from huggingface_hub.constants import ENDPOINT

    hosts = (ENDPOINT, "https://huggingface.co", "https://hf.co", "https://www.huggingface.co")
    rest = next((text[len(h) + 1 :] for h in hosts if text.startswith(f"{h}/")), "")
    found = _ADDRESS.fullmatch(rest.partition("?")[0])
    if found is None:
        raise T2XError(
            f"{text!r} is no file on {ENDPOINT}; download the {what} yourself and give its path"
        )
    return found[1], unquote(found[2]), unquote(found[3])


def _fetched(
    repository: str, name: str, what: str, suffixes: Sequence[str], revision: str | None
) -> Path:
    from t2x.scoring.state_files import hub_file

    _of_kind(Path(name), what, suffixes)
    return hub_file(repository, name, revision=revision)


def _if_there(repository: str, name: str, revision: str | None) -> Path | None:
    """A file of a repository, None if it has none of this name."""
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    from t2x.scoring.state_files import hub_file

    try:
        return hub_file(repository, name, revision=revision)
    except T2XError as error:
        cause = error.__cause__
        if isinstance(cause, EntryNotFoundError) and not isinstance(cause, LocalEntryNotFoundError):
            return None
        raise


def _listed(repository: str, what: str, revision: str | None) -> list[str]:
    """Files at the top of a repository: of the hub, or of the local cache without one."""
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.constants import HF_HUB_OFFLINE

    with reading(repository, f"a {what} of", advice="give a local file"):
        if not HF_HUB_OFFLINE:
            names = HfApi().list_repo_files(repository, revision=revision)
            return [name for name in names if "/" not in name]
        folder = snapshot_download(repository, revision=revision, local_files_only=True)
    return [path.name for path in Path(folder).iterdir() if path.is_file()]
