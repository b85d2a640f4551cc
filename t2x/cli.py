"""The command ``t2x``.

Exit codes: 0 done, 1 an error that is said in one line, 2 wrong usage, 130 interrupted. Results go
to standard output, as JSON with ``--json``; notes and errors go to standard error. ``--verbose``
shows where an error came from.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from t2x import __version__
from t2x.commands.app import app_command
from t2x.commands.ask import ask
from t2x.commands.bench import bench
from t2x.commands.benchmark import benchmark
from t2x.commands.claims import claims
from t2x.commands.console import note, write_any_text
from t2x.commands.data import data
from t2x.commands.demo import demo
from t2x.commands.doctor import doctor
from t2x.commands.edit import edit
from t2x.commands.evaluate import evaluate
from t2x.commands.export import export
from t2x.commands.generate import generate
from t2x.commands.listing import list_names
from t2x.commands.report import report
from t2x.commands.rewards import rewards
from t2x.commands.rewrite import rewrite
from t2x.commands.score import score
from t2x.commands.search import search
from t2x.commands.serve import serve
from t2x.commands.train import train
from t2x.commands.world import world
from t2x.errors import T2XError
from t2x.loading_reports import LIBRARY_LOGGERS

__all__ = ["app", "main"]

app = typer.Typer(
    name="t2x",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Make a text-to-image model do what you meant: rewrite, generate, score, compare.",
)
app.command()(demo)
app.command("app")(app_command)
app.command()(doctor)
app.command()(rewrite)
app.command()(generate)
app.command()(edit)
app.command()(score)
app.command()(search)
app.command()(ask)
app.command()(serve)
app.command()(benchmark)
app.command()(train)
app.command()(export)
app.command()(report)
app.command()(claims)
app.command()(rewards)
app.command("list")(list_names)
app.add_typer(bench, name="bench")
app.add_typer(data, name="data")
app.add_typer(evaluate, name="eval")
app.add_typer(world, name="world")


@app.callback(invoke_without_command=True)
def _common(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Say more.")] = False,
) -> None:
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING,
        format="%(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
        force=True,
    )
    _say_what_is_loaded()
    if version:
        sys.stdout.write(f"t2x {__version__}\n")
        raise typer.Exit


class _Notes(logging.Handler):
    """Writes the words alone, to where standard error is at that moment: above a progress bar."""

    def emit(self, record: logging.LogRecord) -> None:
        note(record.getMessage())


def _say_what_is_loaded() -> None:
    loading = logging.getLogger("t2x.loading")
    loading.setLevel(logging.INFO)
    loading.propagate = False
    loading.handlers = [_Notes()]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and leave with its exit code."""
    _quiet_libraries()
    write_any_text()
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> int:
    """Run the command and give its exit code."""
    try:
        code = app(list(arguments), standalone_mode=False, prog_name="t2x")
    except (T2XError, ValueError, OSError) as error:
        logging.getLogger("t2x").info("where it happened", exc_info=True)
        note(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        note("interrupted")
        return 130
    except Exception as error:
        if not hasattr(error, "exit_code"):
            raise
        return _usage_error(error)
    return int(code or 0)


def _quiet_libraries() -> None:
    """Let the libraries below say only errors, and draw bars only on a terminal."""
    for name in ("HF_HUB_VERBOSITY", "TRANSFORMERS_VERBOSITY", "DIFFUSERS_VERBOSITY"):
        os.environ.setdefault(name, "error")
    for name in LIBRARY_LOGGERS:
        logging.getLogger(name).setLevel(logging.ERROR)
    if not sys.stderr.isatty():
        os.environ.setdefault("TQDM_DISABLE", "1")


def _usage_error(error: Any) -> int:
    """Say in one line what is wrong with the arguments; a bare ``t2x`` has shown its help."""
    if message := error.format_message():
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "t2x"
        note(f"error: {message.rstrip('.')}; see: {command} --help")
    return int(error.exit_code)
