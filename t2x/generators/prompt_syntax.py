"""What becomes of a prompt's syntax before a pipeline draws: prepared, told, and applied.

    for prepared in generator.prepare(["a (red hat:1.3) <lora:neon:0.8>"]):
        print(prepared.text, prepared.loras, *prepared.notes)

Nothing of a prompt is passed around but the user's own bytes: inside ``acting`` the pipeline's
``encode_prompt`` puts what was prepared in their place. So guidance, searches and other callers of
the pipeline go on naming prompts by their text.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, get_args

from t2x.errors import T2XError
from t2x.generators.adapters import Adapters
from t2x.generators.attention_weights import WeightedEncoder, library, takes_weights, why_not
from t2x.generators.identity import file_digest
from t2x.generators.loading import quiet
from t2x.prompts.budget import Count, TokenBudget
from t2x.prompts.reading import Note, Reading, Segment, read_prompt

__all__ = ["Note", "PreparedPrompt", "PromptSyntax", "Syntax", "checked_syntax"]

Syntax: TypeAlias = Literal["auto", "plain"]
"""``auto``: what is meant for a generator acts, or leaves the text and is reported; ``plain``: the
encoders get the prompt as it is."""
MAX_WINDOWS = 8  # each lengthens every cross-attention


@dataclass(frozen=True)
class PreparedPrompt:
    """A prompt as it will be drawn.

    ``text`` is what the encoders get, without weights; ``negative`` what the prompt itself rules
    out; ``loras`` are names with scales. Where weights or a text beyond one window act,
    ``segments`` are the pieces of text with their weights and ``chunks`` the text of each window,
    by tokenizer; else both are empty. ``counts`` are tokens of ``text`` by encoder, ``notes`` what
    was done, left out or replaced, and why.
    """

    original: str
    text: str
    negative: str = ""
    loras: Mapping[str, float] = field(default_factory=dict)
    segments: tuple[Segment, ...] = ()
    chunks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    counts: tuple[Count, ...] = ()
    notes: tuple[Note, ...] = ()

    def __post_init__(self) -> None:
        for name in ("loras", "chunks"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    @property
    def acts(self) -> bool:
        """Whether anything but the prompt's own bytes goes to the encoders, or is to be told."""
        return self.text != self.original or bool(self.segments or self.notes or self.loras)

    @property
    def windows(self) -> int:
        """How many windows of the encoders it fills; 0 where the pipeline encodes it itself."""
        return max((len(texts) for texts in self.chunks.values()), default=0)

    def record(self) -> dict[str, Any]:
        """All of it as JSON values, but token counts."""
        return {
            "original": self.original,
            "text": self.text,
            "negative": self.negative,
            "loras": dict(self.loras),
            "pieces": [[[text, weight] for text, weight in s] for s in self.segments],
            "chunks": {name: list(texts) for name, texts in self.chunks.items()},
            "notes": [asdict(note) for note in self.notes],
        }


def checked_syntax(syntax: str) -> Syntax:
    """Give ``syntax`` back; T2XError if it is none."""
    for known in get_args(Syntax):
        if syntax == known:
            return known  # type: ignore[no-any-return]
    raise T2XError(f"syntax is {syntax!r}; give {' or '.join(map(repr, get_args(Syntax)))}")


class PromptSyntax:
    """Prepares prompts for one pipeline with one set of sampling settings, and lets them act.

    Args:
        pipe: a loaded diffusers pipeline.
        sampling: arguments of its calls.
        adapters: its LoRAs.
        negative: whether it takes a negative prompt.
        syntax: "auto" or "plain".
    """

    def __init__(
        self,
        pipe: Any,
        *,
        sampling: Mapping[str, Any],
        adapters: Adapters,
        negative: bool,
        syntax: Syntax,
    ) -> None:
        self.pipe, self.sampling, self.adapters = pipe, sampling, adapters
        self.negative, self.syntax = negative, syntax
        self._budget = TokenBudget.from_pipeline(pipe, sampling)
        self._prepared: dict[tuple[str, bool], PreparedPrompt] = {}

    @property
    def _auto(self) -> bool:
        return self.syntax == "auto"

    @cached_property
    def _why_not(self) -> str | None:
        return why_not(self.pipe, self.sampling)

    @cached_property
    def _tokens(self) -> set[str]:
        """Names of learned embeddings, among other tokens that were added."""
        parts = self.pipe.components.values()
        vocabularies = [p.get_added_vocab() for p in parts if hasattr(p, "get_added_vocab")]
        return {token for vocabulary in vocabularies for token in vocabulary}

    # ---- preparing --------------------------------------------------------------------------

    def prepare(self, prompt: str, *, as_negative: bool = False) -> PreparedPrompt:
        """Read a prompt, or a negative one, and decide what of it acts; nothing is drawn."""
        key = prompt, as_negative
        if key not in self._prepared:
            plain = Reading((((prompt, 1.0),),))
            read = read_prompt(prompt, tokens=self._tokens) if self._auto else plain
            self._prepared[key] = self._decide(prompt, read, as_negative)
        return self._prepared[key]

    def _decide(self, prompt: str, read: Reading, as_negative: bool) -> PreparedPrompt:
        text, notes = read.text, list(read.notes)
        if as_negative:
            told = "it stands in a negative prompt, where only words act; write it in the prompt"
            beside = [tag for tag, _, _ in read.networks] + [read.negative] * bool(read.negative)
            notes += [Note(piece, "removed", told) for piece in beside]
            read = replace(read, networks=(), negative="")
        loras = self._loras(read, notes)
        if read.negative:
            notes.append(self._ruled_out(read.negative))
        with quiet():
            counts = self._budget.count(text) if self._budget is not None else ()
        segments, chunks, why = self._encoded(read, counts, notes)
        if not segments:
            more = f"; {why}" if why else ""
            notes += [Note(c.lost, "cut", f"{c}{more}") for c in counts if c.truncated]
        negative = read.negative if self.negative else ""
        return PreparedPrompt(prompt, text, negative, loras, segments, chunks, counts, tuple(notes))

    def _loras(self, read: Reading, notes: list[Note]) -> dict[str, float]:
        """Scales by name of the LoRAs that can be applied; the last of a name or file counts."""
        found: dict[str, tuple[str, float]] = {}
        for tag, name, scale in read.networks:
            place, why = self._place(name)
            if place is None:
                notes.append(Note(tag, "removed", why))
                continue
            if place in found:
                notes.append(Note(tag, "replaced", "the LoRA is named twice; this scale counts"))
            found[place] = (name, scale)
            notes.append(Note(tag, "applied", f"at scale {scale:g}"))
        return {name: scale for name, scale in found.values() if scale != 0}

    def _place(self, name: str) -> tuple[str | None, str]:
        """Where a LoRA lies, or why it can't be applied."""
        if not self.adapters.supported:
            kind = type(self.pipe).__name__
            if hasattr(self.pipe, "load_lora_weights"):
                return None, "LoRAs need peft: pip install 't2x[lora]'"
            return None, f"diffusers puts no LoRA into a {kind}"
        try:
            place = self.adapters.find(name)
        except T2XError as error:
            return None, str(error)
        known = ", ".join(self.adapters.names[:20]) or "none; give lora_folder="
        return None if place is None else str(place), f"no LoRA has that name; known are: {known}"

    def _ruled_out(self, words: str) -> Note:
        if self.negative:
            return Note(words, "applied", "it goes to the negative prompt")
        kind = type(self.pipe).__name__
        return Note(words, "removed", f"{kind} takes no negative prompt with these settings")

    def _encoded(
        self, read: Reading, counts: Sequence[Count], notes: list[Note]
    ) -> tuple[tuple[Segment, ...], dict[str, tuple[str, ...]], str | None]:
        """Segments and windows of a prompt that has weights, several parts or more text than fits,
        where the pipeline can be given such; else why not."""
        several = len(read.segments) > 1
        shown = ", ".join(f"{text}: {weight:g}" for text, weight in read.weights)
        long = takes_weights(self.pipe) and any(count.truncated for count in counts)
        if not self._auto or not (shown or several or long):
            return (), {}, None
        chunks, why = self._windows(read)
        if shown:
            what = f"the words stay; {why}" if why else f"{library()} weighs the words"
            notes.append(Note(shown, "removed" if why else "applied", what))
        if several:
            what = f"by a comma; {why}" if why else "what follows has a window of its own"
            notes.append(Note("BREAK", "replaced" if why else "applied", what))
        if why is not None:
            return (), {}, why
        if long:
            lost = next(count.lost for count in counts if count.truncated)
            windows = max(map(len, chunks.values()))
            notes.append(Note(lost, "applied", f"the text is encoded in {windows} windows"))
        return read.segments, chunks, None

    def _windows(self, read: Reading) -> tuple[dict[str, tuple[str, ...]], str | None]:
        """The text of each window by tokenizer, or why there are none."""
        if self._why_not is not None:
            return {}, self._why_not
        with quiet():
            chunks = WeightedEncoder(self.pipe).windows(read.segments)
        if (count := max(map(len, chunks.values()))) > MAX_WINDOWS:
            return {}, f"it would fill {count} windows, of which {MAX_WINDOWS} are read at most"
        return chunks, None

    def mark(self) -> dict[str, Any]:
        """What beside a prompt's own bytes decides how it is read, as JSON values for a key.

        LoRAs that prompts may name are known by the content of their files.
        """
        if self.syntax == "plain":
            return {"mode": "plain"}
        return {
            "mode": self.syntax,
            "weights": library() if takes_weights(self.pipe) else None,
            "loras": _listing(self.adapters),
        }

    def messages(
        self, prompts: Sequence[str], negatives: Sequence[str], *, model_id: str
    ) -> Iterator[str]:
        """Lines on texts that even the encoder that reads most will cut, and on syntax that does
        not act."""
        for kind, texts in (("prompt", prompts), ("negative prompt", negatives)):
            for index, text in enumerate(texts):
                prepared = self.prepare(text, as_negative=kind != "prompt")
                counts = () if prepared.segments else prepared.counts
                if counts and all(count.truncated for count in counts):
                    most = max(counts, key=lambda count: count.limit)
                    read = f"{model_id} reads the first {most.limit}"
                    yield f"{kind} {index} has {most.used} tokens, {read}"
                for note in prepared.notes:
                    if note.became in ("removed", "replaced"):
                        yield f"{kind} {index}: {note}"

    # ---- drawing ----------------------------------------------------------------------------

    def negatives(self, prompts: Sequence[str], given: Sequence[str]) -> list[str]:
        """What N prompts rule out themselves, behind the N negative prompts that are given."""
        pairs = zip(given, (self.prepare(text).negative for text in prompts), strict=True)
        return [", ".join(filter(None, pair)) for pair in pairs]

    def groups(self, prompts: Sequence[str], negatives: Sequence[str]) -> list[list[int]]:
        """Rows that one call can draw without their acting on each other: those with and without a
        negative prompt apart, and those of other LoRAs or another number of windows."""
        found: dict[Any, list[int]] = {}
        for row, (text, negative) in enumerate(zip(prompts, negatives, strict=True)):
            own, other = self.prepare(text), self.prepare(negative, as_negative=True)
            key = bool(negative), sorted(own.loras.items()), max(own.windows, other.windows)
            found.setdefault(repr(key), []).append(row)
        return sorted(found.values(), key=lambda rows: bool(negatives[rows[0]]))

    def sent(self, prompts: Sequence[str]) -> list[str]:
        """What a call gets as its prompts: their own bytes, or for a pipeline without an
        ``encode_prompt`` of texts what was prepared."""
        return list(prompts) if self._encodes else [self.prepare(text).text for text in prompts]

    @cached_property
    def _encodes(self) -> bool:
        function = getattr(type(self.pipe), "encode_prompt", None)
        return function is not None and "prompt" in inspect.signature(function).parameters

    @contextmanager
    def acting(self, prompts: Sequence[str], negatives: Sequence[str] = ()) -> Iterator[None]:
        """Let calls of the pipeline inside draw these prompts, all of one group, as prepared."""
        rows = [self.prepare(text) for text in prompts]
        rows += [self.prepare(text, as_negative=True) for text in negatives]
        with ExitStack() as stack:
            if rows[0].loras:
                stack.enter_context(self.adapters.scaled(rows[0].loras))
            if self._encodes and any(row.text != row.original or row.segments for row in rows):
                self._wrap(stack)
            yield

    def _wrap(self, stack: ExitStack) -> None:
        """Put our ``encode_prompt`` on the instance, before another's that is there, but in the
        place of ours from an outer call; the stack takes it off."""
        pipe = self.pipe
        before = vars(pipe).get("encode_prompt")
        function = getattr(before, "prepared_for", before) or pipe.encode_prompt

        @functools.wraps(function)
        def encode_prompt(*args: Any, **kwargs: Any) -> Any:
            bound = inspect.signature(function).bind(*args, **kwargs)
            bound.arguments.update(self._changes(bound.arguments))
            return function(*bound.args, **bound.kwargs)

        encode_prompt.prepared_for = function  # type: ignore[attr-defined]
        object.__setattr__(pipe, "encode_prompt", encode_prompt)
        if before is None:
            stack.callback(object.__delattr__, pipe, "encode_prompt")
        else:
            stack.callback(object.__setattr__, pipe, "encode_prompt", before)

    def _changes(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """What ``encode_prompt`` gets in the place of texts."""
        if given.get("prompt") is None or given.get("prompt_embeds") is not None:
            return {}
        names = [n for n in ("prompt", "negative_prompt") if given.get(n) is not None]
        texts = {name: _listed(given[name]) for name in names}
        rows = {
            name: [self.prepare(text, as_negative=name != "prompt") for text in own]
            for name, own in texts.items()
        }
        if not any(row.segments for own in rows.values() for row in own):
            said = {name: [row.text for row in own] for name, own in rows.items()}
            return {n: said[n][0] if isinstance(given[n], str) else said[n] for n in names}
        pieces = {
            name: [row.segments or (((row.text, 1.0),),) for row in own]
            for name, own in rows.items()
        }
        guided = bool(given.get("do_classifier_free_guidance", True))
        negatives = pieces.get("negative_prompt") if guided else None
        if negatives is not None and len(negatives) == 1:
            negatives = negatives * len(pieces["prompt"])
        found = WeightedEncoder(self.pipe).encode(pieces["prompt"], negatives, guided=guided)
        return {"prompt": None, **found}


def _listed(texts: Any) -> list[str]:
    return [texts] if isinstance(texts, str) else list(texts)


def _content(path: Path) -> str:
    """Digest of a file, read again only if its size or time is another."""
    stat = path.stat()
    return _digest(path, stat.st_size, stat.st_mtime_ns)


@functools.lru_cache(maxsize=4096)
def _digest(path: Path, size: int, changed: int) -> str:
    return file_digest(path)


def _listing(adapters: Adapters) -> str | None:
    """Digest of the LoRAs that can be called by name; None where there are none."""
    named = [(f"{name} {place}", Path(place)) for name, place in sorted(adapters.known.items())]
    if (root := adapters.folder) is not None:
        named += [(path.relative_to(root).as_posix(), path) for path in sorted(root.rglob("*"))]
    lines = []
    for name, path in named:
        lines.append(f"{name} {_content(path)}" if path.is_file() else name)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16] if lines else None
