"""``taer serve`` and ``taer backup``."""

from __future__ import annotations

import ipaddress
import secrets
import sys
from pathlib import Path
from typing import Annotated

import typer

from taer.cli.app import app


@app.command()
def serve(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where examples and versions are kept.")],
    model: Annotated[Path | None, typer.Option(help="A saved head as the first version of a new DIR.")] = None,
    backbone: Annotated[
        str | None, typer.Option(help="What turns images or texts into features; see 'taer backbones'.")
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(help="The head that a new DIR is taught; see 'taer methods'. [default: the recommended one]"),
    ] = None,
    relearn: Annotated[
        bool,
        typer.Option(
            "--relearn", help="Teach all kept examples anew as one version: for another --backbone or --method."
        ),
    ] = False,
    demo: Annotated[
        bool, typer.Option("--demo", help="Start from ten animals in sketches, with a backbone to draw to.")
    ] = False,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen on; 0 for any free one.", min=0, max=65535)] = 8000,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="TAER_TOKEN",
            help="Token for requests that change something, and for every request when listening on a public "
            "address. [default: a new one, shown at the start]",
        ),
    ] = None,
) -> None:
    """Put a head behind HTTP: a page to teach it on, predictions, examples, tasks, versions to go back to."""
    if demo and (model or method or relearn):
        raise ValueError("--demo brings a head of its own; leave out --model, --method and --relearn")
    if model and relearn:
        raise ValueError("--relearn goes on from the examples in DIR; leave out --model")
    try:
        from taer.serve.run import run
    except ImportError as error:
        raise ValueError(f"the service needs {error.name}: pip install 'taer[serve]'") from None

    token = token or secrets.token_urlsafe(16)
    run(folder, model, backbone, demo, host, port, token, not _is_local(host), method, relearn)


@app.command()
def backup(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a service, which may be running.")],
    out: Annotated[Path, typer.Argument(metavar="OUT.tar", help="The file to write; it must not exist.")],
) -> None:
    """Copy the examples and versions of a service, as of one moment, to a tar file."""
    from taer.serve.backup import back_up

    count, missing = back_up(folder, out)
    for version in missing:
        print(f"taer: {folder}: the file of version {version} is missing; it is not in the backup", file=sys.stderr)
    print(f"{out}: the database and {count} versions; to restore: mkdir NEW && tar -xf {out} -C NEW")


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
