"""``t2x ask``: questions with pictures in a terminal, and a prompt at the end."""

from __future__ import annotations

import string
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from t2x.asking.records import DOESNT_MATTER, SOMETHING_ELSE
from t2x.commands.console import check_prompts, note, print_json, split_names
from t2x.errors import T2XError
from t2x.files import made_folder

if TYPE_CHECKING:
    from t2x.asking.elicitation import Elicitation
    from t2x.asking.records import Question

__all__ = ["ask"]

# Letters of what is no picture; options are a, b, c, d.
_KEYS = {"x": DOESNT_MATTER, "o": SOMETHING_ELSE}


def ask(
    prompt: Annotated[str, typer.Argument(help="What you want to see, in a word or two.")],
    out: Annotated[
        Path, typer.Option(help="Folder for the rows of pictures, the picture and the answers.")
    ] = Path("out"),
    model: Annotated[
        str, typer.Option("--model", help="What draws: a name, a folder, or a hub id.")
    ] = "emoji-flow-turbo",
    rewriter: Annotated[
        str,
        typer.Option(
            "--rewriter",
            help="Writes the final prompt; a chat model proposes the questions, too. The emoji "
            "world needs none.",
        ),
    ] = "none",
    questions: Annotated[int, typer.Option(min=1, help="The most that is asked.")] = 6,
    answers: Annotated[
        str | None,
        typer.Option(
            help="Answers with commas between, in place of the keyboard: letters or labels, as "
            "a,x,red. It ends when they do."
        ),
    ] = None,
    strategy: Annotated[
        str,
        typer.Option(
            help="What is asked next: fixed (kinds first), gain (information gain times measured "
            "influence), gain-alone or random."
        ),
    ] = "fixed",
    seed: Annotated[int, typer.Option(help="Seed of questions and pictures.")] = 0,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the answers in --out.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Ask short questions, each a row of pictures that differ in one thing, and make a prompt of
    the answers.

    Each row is saved as a PNG. Answer with its letter, x for "doesn't matter", o for "something
    else", back for the question before, q to end with what is known.
    """
    check_prompts([prompt])
    given = None if answers is None else split_names(answers, "answer", "--answers a,x,red")
    folder = made_folder(out)
    from t2x.asking.elicitation import Elicitation

    options: dict[str, Any] = {"generator": model}
    if rewriter != "none":
        options["rewriter"] = rewriter
    if resume:
        asking = _resumed(folder, prompt, options)
    else:
        asking = Elicitation(prompt, strategy=strategy, seed=seed, **options)
    sheets = _converse(asking, folder, questions, given)
    result = _finish(asking, folder)
    if as_json:
        print_json({**asking.to_dict(), **result, "sheets": sheets})
        return
    sys.stdout.write(f"prompt: {result['text']}\npicture: {result['picture']}\n")


def _converse(
    asking: Elicitation, folder: Path, questions: int, given: list[str] | None
) -> list[str]:
    """Ask until nothing is left, the number is reached, or the user ends it."""
    sheets: list[str] = []
    left = None if given is None else list(given)
    while len(asking.answers) < questions and left != []:
        question = asking.next_question()
        if question is None:
            break
        sheets.append(_save_row(question, folder))
        note(f"{question.number + 1}. {question.text}  {sheets[-1]}")
        note("   " + "  ".join(f"[{key}] {label}" for key, label in _keys(question).items()))
        if not _take(asking, question, left):
            break
        _save_answers(asking, folder)
    return sheets


def _keys(question: Question) -> dict[str, str]:
    """The letter of each answer."""
    letters = string.ascii_lowercase
    keys = dict(zip(letters, question.options, strict=False))  # at most four
    return keys | {key: label for key, label in _KEYS.items() if label in question.answers}


def _take(asking: Elicitation, question: Question, left: list[str] | None) -> bool:
    """Read one answer; False to end."""
    keys = _keys(question)
    while True:
        typed = left.pop(0) if left is not None else _read()
        if typed in (None, "q", "quit"):
            return False
        if typed == "back":
            asking.back()
            return True
        try:
            asking.answer(keys.get(typed.lower(), typed))
        except T2XError as error:
            if left is not None:
                raise
            note(str(error))
            continue
        return True


def _read() -> str | None:
    """A line of the terminal; None at its end."""
    sys.stderr.write("> ")
    sys.stderr.flush()
    line = sys.stdin.readline()
    return line.strip() if line else None


# ---- files --------------------------------------------------------------------------------------


def _save_row(question: Question, folder: Path) -> str:
    from t2x.evaluation.question_row import draw_question

    path = folder / f"question-{question.number + 1}.png"
    try:
        draw_question(question).save(path, format="PNG")
    except OSError as error:
        raise T2XError(f"cannot write {str(path)!r}: {error}") from error
    return str(path)


def _save_answers(asking: Elicitation, folder: Path) -> None:
    import json

    from t2x.files import write_whole
    from t2x.plain import plain

    text = json.dumps(plain(asking.to_dict()), ensure_ascii=False, indent=2)
    write_whole(folder / "asking.json", text + "\n")


def _resumed(folder: Path, prompt: str, options: dict[str, Any]) -> Elicitation:
    import json

    from t2x.asking.elicitation import Elicitation

    path = folder / "asking.json"
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
        same = known["prompt"] == prompt
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise T2XError(f"{str(path)!r} holds no answers to go on with; leave --resume out") from (
            error
        )
    if not same:
        raise T2XError(
            f"the answers in {str(path)!r} are to {known['prompt']!r}; give that prompt, or "
            "another --out"
        )
    return Elicitation.from_dict(known, **options)


def _finish(asking: Elicitation, folder: Path) -> dict[str, Any]:
    """Draw and save the final picture, with its recipe inside."""
    from t2x.commands.saved_pictures import next_number, save_picture

    rewrite, generator = asking.rewrite(), asking.generator
    assert generator is not None
    settings = getattr(generator, "settings", None)
    row: dict[str, Any] = {
        "prompt": asking.original,
        "text": rewrite.text,
        "negative": rewrite.negative,
        "seed": asking.seed,
        "model": generator.model_id,
    }
    if settings is not None:
        from t2x.plain import plain

        row["sampling"] = plain(settings(size=None))
    picture = asking.draw()[0]
    save_picture(picture, row, folder, next_number(folder))
    return {"text": rewrite.text, "status": rewrite.status, "picture": row["file"]}
