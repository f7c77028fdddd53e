"""The application that the commands of the other modules are registered with."""

from __future__ import annotations

from typing import Annotated

import typer

from taer import __version__
from taer.cli.own import import_own

app = typer.Typer(
    help="Classifiers that keep learning new classes, on top of any frozen pretrained model.",
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def _options(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
    import_: Annotated[
        list[str] | None,
        typer.Option(
            "--import",
            metavar="MODULE",
            help="Import a module that defines heads of your own, before the command runs. The current folder is "
            "searched, too. May be repeated.",
        ),
    ] = None,
) -> None:
    for module in import_ or []:
        import_own(module)
    if version:
        print(f"taer {__version__}")
    elif context.invoked_subcommand is None:
        print(context.get_help())
