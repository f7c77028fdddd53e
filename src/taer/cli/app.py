"""The application that the commands of the other modules are registered with."""

from __future__ import annotations

from typing import Annotated

import typer

from taer import __version__

app = typer.Typer(
    help="Classifiers that keep learning new classes, on top of any frozen pretrained model.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def _options(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    if version:
        print(f"taer {__version__}")
    elif context.invoked_subcommand is None:
        print(context.get_help())
