"""``t2x app``: the studio in a browser."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from t2x.commands.console import note, split_names
from t2x.commands.memory_options import (
    MemoryLimit,
    Offload,
    Quantize,
    VaeTiling,
    placement_options,
)
from t2x.errors import T2XError
from t2x.listening import Address, bound

if TYPE_CHECKING:
    from t2x.studio import Studio

__all__ = ["app_command"]

_NAME = re.compile(r"[\w.@+-]{1,64}")


def app_command(  # noqa: PLR0913 - a command has a parameter for each of its options
    generator: Annotated[
        str, typer.Option("--generator", "-g", help="What draws: a name, folder or hub id.")
    ] = "emoji-flow",
    rewriter: Annotated[
        str, typer.Option("--rewriter", help="What rewrites; none for nothing.")
    ] = "emoji-rewriter",
    rewards: Annotated[
        str | None,
        typer.Option("--rewards", "-r", help="What scores, with commas; without, as in the demo."),
    ] = None,
    device: Annotated[str | None, typer.Option(help="Like cuda or cpu; the best one.")] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 7860,
    auth: Annotated[
        list[str] | None,
        typer.Option(
            help="USER:PASSWORD, more than once for more users, or a file with one on each line."
        ),
    ] = None,
    home: Annotated[
        Path | None, typer.Option(help="Folder of history and tastes; that of the user without.")
    ] = None,
    mcp: Annotated[
        bool, typer.Option("--mcp", help="Let language models use it as tools (MCP).")
    ] = False,
    queue: Annotated[int, typer.Option(min=1, help="Jobs that may wait or run.")] = 32,
    per_user: Annotated[int, typer.Option(min=1, help="Of them, of one user.")] = 8,
    max_size: Annotated[
        int, typer.Option(min=8, help="Longest side of a picture, in pixels.")
    ] = 2048,
    max_num: Annotated[int, typer.Option(min=1, help="Pictures in each arm of a job.")] = 32,
    max_upload: Annotated[int, typer.Option(min=1, help="Megabytes of one uploaded file.")] = 32,
    offload: Offload = None,
    quantize: Quantize = None,
    vae_tiling: VaeTiling = False,
    memory_limit: MemoryLimit = None,
    share: Annotated[
        bool, typer.Option("--share", help="Also make a public link, by gradio's servers.")
    ] = False,
    open_page: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    screenshots: Annotated[
        Path | None,
        typer.Option(help="Only take pictures of every tab in use, into this folder; Chromium."),
    ] = None,
) -> None:
    """Open the studio: a page in the browser on which prompts are rewritten, drawn, compared,
    steered and asked about.

    It listens on this computer alone; --host 0.0.0.0 lets others in, who need a password where
    --auth is given. It loads no font, script or picture from elsewhere. Ctrl-C ends it at once;
    what was made is kept in --home.
    """
    users = read_users(auth or ())
    _check_installed(mcp)
    if screenshots is not None:
        from t2x.registry import load_app

        load_app("studio-screenshots")(
            screenshots, options=("--generator", generator, "--rewriter", rewriter), say=note
        )
        return
    with bound(host, port) as address, _environment():
        from t2x.studio import Limits

        limits = Limits(
            queue=queue, per_user=per_user, side=max_size, pictures=max_num, memory=memory_limit
        )
        studio = _studio(
            generator, rewriter, rewards, home=home, device=device, limits=limits,
            options=placement_options(offload, quantize, vae_tiling),
        )  # fmt: skip
        served = {"users": users, "mcp": mcp, "max_upload": max_upload << 20}
        _tell_who_comes_in(address, users, share)
        _serve(studio, address, served, share=share, open_page=open_page)
    # All is on the disk. To free models and join the threads of libraries takes seconds, and for
    # ever where a job can't be stopped.
    sys.stderr.flush()
    os._exit(0)


def read_users(given: Sequence[str]) -> dict[str, str]:
    """Read passwords by name from ``USER:PASSWORD``, or from files of such lines.

    Raises T2XError for what is neither, and for a name that stands twice.
    """
    users: dict[str, str] = {}
    for entry in given:
        for line in _lines(entry):
            name, colon, password = line.partition(":")
            if not (colon and password and _NAME.fullmatch(name)):
                raise T2XError(
                    f"--auth takes USER:PASSWORD or a file with one on each line, names of letters,"
                    f" digits and .@+-_; got {name[:40]!r} and {'a' if password else 'no'} password"
                )
            if name in users:
                raise T2XError(f"--auth names the user {name!r} twice; give each once")
            users[name] = password
    return users


def _lines(entry: str) -> list[str]:
    path = Path(entry)
    if ":" in entry and not path.is_file():
        return [entry]
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise T2XError(
            f"--auth {entry!r} is no USER:PASSWORD and no file that can be read: "
            f"{getattr(error, 'strerror', None) or error}"
        ) from error
    users = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if not users:
        raise T2XError(f"--auth {entry!r} is a file without users; it holds a USER:PASSWORD a line")
    return users


def _check_installed(mcp: bool) -> None:
    """Tell what is missing before anything is loaded."""
    from t2x.registry import missing_dependency

    for module in ("gradio", *(("mcp",) if mcp else ())):
        if find_spec(module) is None:
            raise missing_dependency(ModuleNotFoundError(name=module))


@contextmanager
def _environment() -> Iterator[None]:
    """Give gradio a folder of this process for uploads, and let it make no call. It reads this when
    it is imported, and would serve what other programs left in the folder that all share.

    Matplotlib would look for a screen, and load all of pyplot to do so, when gradio answers the
    page for the first time; there is none to draw on.

    torch's threads sleep while they wait for one another, unless the user says otherwise: those
    that turn in circles take the cores that the browser draws the page on, or another program
    works on, and then a small picture takes twenty times as long.
    """
    from t2x.studio.temporary import temporary_folder

    with temporary_folder() as folder:
        gradios = folder / "gradio"  # of our own files it gives out copies
        own = {"GRADIO_TEMP_DIR": str(gradios), "GRADIO_EXAMPLES_CACHE": f"{gradios}/examples"}
        own |= {"GRADIO_ANALYTICS_ENABLED": "False", "HF_HUB_DISABLE_TELEMETRY": "1"}
        own |= {"MPLBACKEND": os.environ.get("MPLBACKEND", "agg")}
        own |= {"OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "PASSIVE")}
        before = {name: os.environ.get(name) for name in own}
        os.environ.update(own)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


def _studio(generator: str, rewriter: str, rewards: str | None, **options: Any) -> Studio:
    """A studio of models that are named; a name that is none is told now."""
    from t2x.registry import check_names
    from t2x.studio import Studio

    if rewards is not None:
        options["rewards"] = split_names(rewards, "reward", "--rewards clip,vqa")
    check_names("generators", [generator])
    check_names("rewriters", [rewriter])
    check_names("rewards", options.get("rewards", ()))
    return Studio(generator=generator, rewriter=rewriter, **options)


def _tell_who_comes_in(address: Address, users: dict[str, str], share: bool) -> None:
    if users:
        return
    if share:
        note("anyone who has the public link can use this studio; --auth asks for a password")
    elif not address.local:
        note(f"anyone who reaches {address.host} can use this studio; --auth asks for a password")


def _serve(
    studio: Studio, address: Address, served: dict[str, Any], *, share: bool, open_page: bool
) -> None:
    """Serve until Ctrl-C."""
    from t2x.registry import load_app
    from t2x.studio.hurry import hurry

    with hurry():  # it imports gradio
        open_studio = load_app("studio")
    open_studio(
        studio, address, served=served, share=share, open_page=open_page,
        say=lambda what, url: note(f"{what}: {url}"),
    )  # fmt: skip
