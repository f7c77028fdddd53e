"""``taer serve`` and ``taer backup``."""

from __future__ import annotations

import secrets
import sys
from pathlib import Path
from typing import Annotated

import typer

from taer.cli.app import app


@app.command()
def serve(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of examples and versions.")],
    model: Annotated[Path | None, typer.Option(help="Saved head to start a new DIR with.")] = None,
    backbone: Annotated[
        str | None, typer.Option(help="Backbone for images or texts; see 'taer backbones'.")
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(help="Name of the head for a new DIR; see 'taer methods'. [default: bayes]"),
    ] = None,
    relearn: Annotated[
        bool,
        typer.Option(
            "--relearn", help="Learn all stored examples again as one version, with another --backbone or --method."
        ),
    ] = False,
    demo: Annotated[
        bool,
        typer.Option("--demo", help="Start with ten animals learned from sketches, and a backbone for drawings."),
    ] = False,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 for any free port.", min=0, max=65535)] = 8000,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="TAER_TOKEN",
            help="Token for requests that change something or read samples; for every request with --public-name or "
            "on a public address. [default: a new random token, printed at the start]",
        ),
    ] = None,
    public_name: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Host name of a proxy in front of the service. Can be given several times."
        ),
    ] = None,
    drawings: Annotated[
        bool, typer.Option("--drawings", help="Offer a sheet to draw on, if the backbone is for images.")
    ] = False,
) -> None:
    """Serve a head over HTTP, with a web page to teach it.

    Every change is a version that can be rolled back.
    """
    if demo and (model or method or relearn):
        raise ValueError("--demo brings a head of its own; leave out --model, --method and --relearn")
    if model and relearn:
        raise ValueError("--relearn goes on from the examples in DIR; leave out --model")
    try:
        from taer.serve.access import Access
        from taer.serve.run import run
    except ImportError as error:
        raise ValueError(f"the service needs {error.name}: pip install 'taer[serve]'") from None

    access = Access(host, port, token or secrets.token_urlsafe(16), public_name or [])
    run(folder, model, backbone, demo, access, method, relearn, drawings)


@app.command()
def backup(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a service, which may be running.")],
    out: Annotated[Path, typer.Argument(metavar="OUT.tar", help="File to write; it must not exist.")],
) -> None:
    """Back up a service, which may be running, to a tar file."""
    from taer.serve.backup import back_up

    count, missing = back_up(folder, out)
    for version in missing:
        print(f"taer: {folder}: the file of version {version} is missing; it is not in the backup", file=sys.stderr)
    print(f"{out}: the database and {count} versions; to restore: mkdir NEW && tar -xf {out} -C NEW")
