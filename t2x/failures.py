"""One reader of what loaders raise: what was given, what is wrong with it, what to do.

    with reading(source, "the CLIP"):
        model = AutoModel.from_pretrained(source)

What goes wrong inside becomes one line of ``T2XError``: the hub's refusals
(``t2x.hub_failures``), damaged, incomplete or pickled files (``t2x.checkpoint_files``), another
architecture, classes that the installed libraries lack, a full disk, missing rights, too little
memory. Weights that a checkpoint lacks, which libraries leave random and only warn of, are refused
too (``t2x.loading_reports``). Tokens never get into a message.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import shorten
from typing import Any

from t2x.checkpoint_files import (
    POINTER,
    faults,
    is_hub_id,
    local_folder,
    missing_parts,
    pickled_weights,
)
from t2x.errors import MissingDependencyError, T2XError
from t2x.hub_failures import Said, explain_hub
from t2x.loading_reports import Report, watch_reports
from t2x.settings import INDEX_FILE

_SECRETS = re.compile(
    r"\bhf_[A-Za-z0-9]{16,}|\bsk-[\w-]{16,}|(?<=Bearer )\S+|(?<=://)[^/\s:@]+:[^/\s@]+(?=@)|(?<=token=)[^&\s'\"]+"
)
_ROOM = 10**8  # bytes free on a disk that is not full
_FULL = {errno.ENOSPC, errno.EDQUOT}
_FULL_WORDS = ("no space left on device", "disk quota exceeded", "(os error 28)", "(os error 122)")
_SHAPES = (
    re.compile(
        r"because (?P<key>\S+) expected shape (?P<model>.*?), but got (?P<file>.*?)\.(?:\s|$)"
    ),
    re.compile(
        r"size mismatch for (?P<key>\S+): copying a param with shape (?P<file>.*?) from checkpoint,"
        r" the shape in current model is (?P<model>.*?)\.(?:\s|$)"
    ),
)

log = logging.getLogger(__name__)

_INCOMPLETE = (
    "it is incomplete, or of another architecture than its configuration says: give all files of "
    "one model, or load it yourself and give the object if it is meant so"
)
UNUSED = ("pooler",)  # often left out of checkpoints, and not used by what asks for hidden states

__all__ = [
    "UNUSED",
    "check_parts",
    "check_vocabulary",
    "explain",
    "first_line",
    "reading",
    "without_secrets",
]


@contextmanager
def reading(
    source: Any,
    what: str = "",
    *,
    advice: str = "give a folder that holds a checkpoint, or a hub id owner/model",
    unused: Sequence[str] = (),
    strict: bool = False,
    otherwise: tuple[type[Exception], ...] = (OSError, ValueError),
) -> Iterator[Report]:
    """Load ``source`` inside: what fails is said in one line of T2XError, which ``what`` begins.

    Of errors without a name here those of the kinds ``otherwise`` become "cannot load" with their
    own first line and ``advice``; others pass unchanged. Weights that the checkpoint lacks are an
    error, but for names with a part in ``unused``. Weights that no part of a pipeline takes are a
    warning, with ``strict`` those of a transformers model, too.
    """
    with watch_reports() as report:
        try:
            yield report
        except T2XError:
            raise
        except Exception as error:
            if said := explain(error, source, what, report=report):
                raise said from error
            if not isinstance(error, otherwise):
                raise
            raise T2XError(_line(source, what, first_line(error), advice)) from error
    if extra := report.unused + (report.unexpected if strict else []):
        log.warning(
            "%s: %s in its files, which the model has no place for; it may be of another "
            "architecture than its configuration says",
            source,
            _some(extra),
        )
    lacks = [name for name in report.missing if not set(re.split(r"[. ]", name)) & set(unused)]
    if lacks:
        verb = "is" if len(lacks) == 1 else "are"
        wrong = f"{_some(lacks, 2)} {verb} not in its weights and would be random"
        raise T2XError(_line(source, what, wrong, _INCOMPLETE))


def explain(
    error: BaseException, source: Any, what: str = "", *, report: Report | None = None
) -> T2XError | None:
    """Turn what loading ``source`` raised into one line; None for what has no name here."""
    chain = _chain(error)
    text = str(source) if isinstance(source, (str, Path)) else type(source).__name__
    for one in chain:
        if isinstance(one, ModuleNotFoundError) or _package(one):
            return _missing_package(one, source, what)
    said = _space(chain, text) or explain_hub(chain, text)
    for reader in _READERS:
        said = said or reader(chain, text)
    if report is not None and report.mismatched and (said is None or said is _OTHER):
        said = _other_architecture(_some(report.mismatched, 1))
    return None if said is None else T2XError(_line(source, what, *said))


def without_secrets(text: str) -> str:
    """Leave out tokens and passwords: those of the environment, and what reads like one."""
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_HUB_TOKEN", "OPENAI_API_KEY"):
        secret = os.environ.get(name, "").strip()
        if len(secret) >= 6:
            text = text.replace(secret, "***")
    return _SECRETS.sub("***", text)


def first_line(error: BaseException, most: int = 300) -> str:
    """The first line of an error's own words, without secrets."""
    lines = (line.strip() for line in str(error).splitlines())
    said = next(filter(None, lines), type(error).__name__)
    return shorten(without_secrets(said), most, placeholder=" ...").rstrip(" .;")


def check_vocabulary(tokenizer: Any, source: Any, what: str = "") -> None:
    """Refuse a tokenizer without words: transformers makes one, and says nothing, where the files
    of the vocabulary are missing. Raises T2XError."""
    if not hasattr(tokenizer, "get_vocab"):
        return
    special = {*tokenizer.all_special_tokens, *getattr(tokenizer, "get_added_vocab", dict)()}
    if not set(tokenizer.get_vocab()) - special:
        raise T2XError(
            _line(
                source,
                what,
                f"its tokenizer ({type(tokenizer).__name__}) has no vocabulary",
                "add the tokenizer's files (tokenizer.json, or vocab.json and merges.txt) of the "
                "same model",
            )
        )


def check_parts(folder: str | Path, given: Collection[str] = ()) -> None:
    """Refuse a local pipeline that lacks a part which its index names and the caller did not give.

    Raises T2XError; a hub id passes, as its parts are not here yet.
    """
    if lacks := missing_parts(Path(folder), given):
        names = ", ".join(f"{name}/" for name in lacks)
        raise T2XError(
            _line(
                folder,
                "the pipeline",
                f"{INDEX_FILE} names parts that are not in the folder: {names}",
                "copy or download the whole folder",
            )
        )


def _line(source: Any, what: str, wrong: str, advice: str) -> str:
    given = str(source) if isinstance(source, (str, Path)) else type(source).__name__
    named = f"cannot load {what} {given!r}" if what else f"cannot load {given!r}"
    return " ".join(without_secrets(f"{named}: {wrong}; {advice}").split())


def _some(names: Iterable[str], most: int = 3) -> str:
    ordered = list(dict.fromkeys(names))
    more = f" and {len(ordered) - most} more" if len(ordered) > most else ""
    return ", ".join(ordered[:most]) + more


def _chain(error: BaseException) -> list[BaseException]:
    """The error and what it came from, outermost first."""
    found: list[BaseException] = []
    one: BaseException | None = error
    while one is not None and one not in found:
        found.append(one)
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
    return found


def _kinds(chain: Iterable[BaseException]) -> set[str]:
    return {kind.__name__ for error in chain for kind in type(error).__mro__}


def _package(error: BaseException) -> str:
    """What an import error of transformers or diffusers asks to be installed."""
    if not isinstance(error, ImportError):
        return ""
    text = str(error)
    found = re.search(r"pip install (?:-U |--upgrade )?['\"`]?([A-Za-z][\w.-]*)", text)
    needed = re.search(r"requires the (?:🤗 )?([\w-]+) library", text, re.IGNORECASE)
    names = [match[1] for match in (found, needed) if match]
    return names[0].rstrip(".").lower() if names else ""


def _missing_package(error: BaseException, source: Any, what: str) -> MissingDependencyError:
    from t2x.registry import missing_dependency

    if isinstance(error, ModuleNotFoundError):
        return missing_dependency(error)
    package = _package(error)
    return MissingDependencyError(
        _line(source, what, f"{package} is needed and not installed", f"pip install {package}")
    )


def _space(chain: Sequence[BaseException], source: str) -> Said | None:
    """A full disk or quota, a file system's limit, no right to write or read."""
    for error in chain:
        number = getattr(error, "errno", None)
        words = str(error).lower()
        if number in _FULL or any(part in words for part in _FULL_WORDS):
            return _disk_full(error, source)
        if number == errno.EFBIG:
            return (
                "a file is larger than this file system or the limit of this process allows",
                "set HF_HOME to a folder on another disk, or raise the limit (ulimit -f)",
            )
        if isinstance(error, PermissionError) or number == errno.EROFS:
            place = error.filename if isinstance(error, OSError) and error.filename else None
            return (
                f"no right to use {place or 'one of its files'}",
                "give yourself the right, or set HF_HOME to a folder that you may write to",
            )
    return None


def _disk_full(error: BaseException, source: str) -> Said:
    from t2x.memory.machine import readable_bytes

    named, needed = getattr(error, "filename", None), _download(source)
    place = Path(str(named or _cache()))
    there = next((p for p in (place, *place.parents) if p.exists()), Path("/"))
    free = shutil.disk_usage(there).free
    where = f"in {there} ({readable_bytes(free)} free)"
    if not named and free > max(needed or 0, _ROOM):
        where = "where it is written to (the cache of the hub has space: see cache_dir, TMPDIR)"
    need = f"; {source} needs {readable_bytes(needed)} more" if needed else ""
    return (
        f"no disk space is left {where}{need}",
        "free some (hf cache ls, hf cache prune), or set HF_HOME to a folder on another disk",
    )


def _cache() -> str:
    from huggingface_hub.constants import HF_HUB_CACHE

    return str(HF_HUB_CACHE)


def _download(source: str) -> int | None:
    if not is_hub_id(source):
        return None
    from t2x.doctor.downloads import find_download

    return find_download(source).missing


def _memory(chain: Sequence[BaseException], source: str) -> Said | None:
    from t2x.memory.machine import is_out_of_memory

    if not any(is_out_of_memory(error) for error in chain):
        return None
    return (
        "there is not enough memory for it",
        'give dtype="bfloat16", offload="model" or a smaller model; what fits: t2x doctor --plan',
    )


def _damaged(chain: Sequence[BaseException], source: str) -> Said | None:
    words = " ".join(str(error) for error in chain)
    if "SafetensorError" not in _kinds(chain) and "git-lfs" not in words:
        return None
    place = Path(source) if Path(source).is_file() else local_folder(source)
    found = faults(place) if place is not None else []
    if any(fault == POINTER for _, fault in found) or "git-lfs" in words:
        names = [name for name, fault in found if fault == POINTER]
        return (
            f"{_some(names) or 'a file'} {POINTER}",
            "fetch the weights: git lfs install, then git lfs pull in that folder, or "
            "hf download owner/model --local-dir FOLDER",
        )
    which = "; ".join(f"{name} {fault}" for name, fault in found[:3]) or first_line(chain[-1])
    again = (
        f"fetch it again: hf cache rm model/{source}, then the same command"
        if is_hub_id(source)
        else "copy or download it again"
    )
    return f"its weights are damaged ({which})", again


def _no_weights(chain: Sequence[BaseException], source: str) -> Said | None:
    words = " ".join(str(error) for error in chain)
    asked = re.search(
        r"no file named ([\w.-]+)|have a file named ([\w./-]+)|necessary `?safetensors`? weights",
        words,
    )
    if asked is None:
        return None
    name = asked[1] or asked[2] or "safetensors file"
    folder = local_folder(source)
    pickles = pickled_weights(folder) if folder is not None else []
    if not pickles and "necessary" in words:  # of a repository, whose files are not here
        pickles = re.findall(r"[\w./-]+\.(?:bin|ckpt|pt)\b", words)
    if pickles and "json" not in name:
        return (
            f"its weights are pickled ({_some(sorted(pickles), 2)}), which can run any code when "
            "it is read",
            "if you trust who made them, convert them once in Python: from_pretrained(..., "
            "use_safetensors=False).save_pretrained(FOLDER), and give that folder",
        )
    place = re.search(r"in directory (\S+?)\.?(?:\s|$)", words)
    return (
        f"there is no {name}" + (f" in {place[1]}" if place else ""),
        "give all files of the model: a folder written by save_pretrained, or a hub id",
    )


_OTHER = (
    "its weights are of another architecture than its configuration says",
    "give configuration and weights of one model, and leave mixed folders out",
)


def _other_architecture(detail: str) -> Said:
    return f"{_OTHER[0]} ({detail})", _OTHER[1]


def _architecture(chain: Sequence[BaseException], source: str) -> Said | None:
    for error in chain:
        text = " ".join(str(error).split())
        for pattern in _SHAPES:
            if found := pattern.search(text):
                stored, built = (found[p].removeprefix("torch.Size") for p in ("file", "model"))
                return _other_architecture(
                    f"{found['key']} is {stored.strip('()')} in the file, {built.strip('()')} in "
                    "the configuration"
                )
        if "ignore_mismatched_sizes" in text or "Cannot copy out of meta tensor" in text:
            return _OTHER
        if found := re.search(
            r"(Missing|Unexpected) key\(s\) in state_dict: (.{3,120}?)[,.]", text
        ):
            return _other_architecture(f"{found[1].lower()}: {found[2]}")
    return None


def _class(chain: Sequence[BaseException], source: str) -> Said | None:
    """A class that the installed libraries lack, or a checkpoint of another kind."""
    text = " ".join(" ".join(str(error).split()) for error in chain)
    if found := re.search(r"`?diffusers`? has no (?:attribute|class) [`'\"]?(\w+)", text):
        return _upgrade("diffusers", f"the class {found[1]}")
    if found := re.search(r"has model type [`'\"]?([\w-]+)[`'\"]? but Transformers does not", text):
        return _upgrade("transformers", f"the model type {found[1]}")
    folder = local_folder(source)
    if "Unrecognized model in" in text:
        kind = "it is no checkpoint of transformers (config.json names no model_type)"
        if folder is not None and (folder / INDEX_FILE).is_file():
            return "it is a picture or video generator of diffusers", "give it as a generator"
        return kind, "give a folder or hub id that holds a checkpoint of transformers"
    if found := re.search(
        r"Unrecognized configuration class .*?(\w+)Config\b.*?AutoModel(\w*)", text
    ):
        return (
            f"it is a {found[1]}, which does not load as {_AUTO.get(found[2], 'such a model')}",
            "give a model of that kind",
        )
    return None


_AUTO = {
    "ForCausalLM": "a language model",
    "ForImageTextToText": "a vision-language model",
    "ForZeroShotObjectDetection": "a detector of phrases",
}


def _upgrade(library: str, what: str) -> Said:
    from importlib.metadata import version

    return (
        f"it needs {what}, which the installed {library} {version(library)} does not have",
        f"install a newer one: pip install -U {library}; a model that brings its own code needs "
        "trust_remote_code=True, if you trust it",
    )


def _configuration(chain: Sequence[BaseException], source: str) -> Said | None:
    kinds, text = _kinds(chain), " ".join(" ".join(str(error).split()) for error in chain)
    if "JSONDecodeError" in kinds or "not a valid JSON" in text:
        found = re.search(r"config file at '([^']+)'", text)
        return (
            f"{found[1] if found else 'one of its files'} is no valid JSON",
            "copy or download that file again",
        )
    if any(name.startswith("StrictDataclass") for name in kinds):
        said = str(chain[0]).strip().splitlines()[-1].strip()
        return (
            f"its config.json does not fit together: {shorten(said, 200)}",
            "give the configuration as its authors published it",
        )
    return None


_READERS: tuple[Callable[[Sequence[BaseException], str], Said | None], ...] = (
    _memory,
    _damaged,
    _configuration,
    _architecture,
    _class,
    _no_weights,
)
