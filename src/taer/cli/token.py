"""``taer token``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from taer.cli.app import SERVE, app


class Action(StrEnum):
    add = "add"
    list = "list"
    revoke = "revoke"


class Role(StrEnum):
    read = "read"
    teach = "teach"
    admin = "admin"


@app.command(rich_help_panel=SERVE)
def token(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a service, which may be running.")],
    action: Annotated[Action, typer.Argument(help="What to do.")],
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Whose token it is; not for list.")] = None,
    role: Annotated[
        Role | None,
        typer.Option(help="What it is for: predictions, also examples and tasks, or everything. [default: read]"),
    ] = None,
    requests: Annotated[int | None, typer.Option(min=1, help="Requests that it may send per minute.")] = None,
    examples: Annotated[int | None, typer.Option(min=1, help="Examples that it may add per day.")] = None,
    bytes_: Annotated[int | None, typer.Option("--bytes", min=1, help="Bytes that it may send per day.")] = None,
) -> None:
    """Make, list and revoke tokens of a service.

    A token is shown once, when it is made; the folder has its hash. A running service follows at once.
    """
    from taer.serve import tokens

    limits = {"requests": requests, "examples": examples, "bytes": bytes_}
    given = [f"--{option}" for option, value in {"role": role, **limits}.items() if value is not None]
    if given and action is not Action.add:
        raise ValueError(f"taer token DIR {action} takes no {given[0]}: a token is made with it, by add")
    if action is Action.list:
        for known in tokens.stored(folder):
            bounds = [
                f"{most} {limit} per {tokens.NAMED[seconds]}"
                for limit, seconds in tokens.SECONDS.items()
                if (most := getattr(known, limit)) is not None
            ]
            print("\t".join([known.name, known.role, known.made, ", ".join(bounds)]).rstrip())
    elif name is None:
        raise ValueError(f"taer token DIR {action} needs a NAME")
    elif action is Action.revoke:
        tokens.revoke(folder, name)
        print(f"{name} is revoked")
    else:
        print(tokens.add(folder, name, (role or Role.read).value, limits))
