"""The command line. Thin: parses, calls, prints. Nothing heavy is imported before a command runs."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from taer import __version__

app = typer.Typer(
    help="Classifiers that learn new classes for ever, on top of any frozen pretrained model.",
    add_completion=False,
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
            help="Import a module with heads of your own before the command, also one in the present folder. "
            "May be repeated.",
        ),
    ] = None,
) -> None:
    for module in import_ or []:
        import_own(module)
    if version:
        print(f"taer {__version__}")
    elif context.invoked_subcommand is None:
        print(context.get_help())


def import_own(module: str) -> None:
    """Import a module that the user named, from the present folder too: an installed program does not look there."""
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)  # last, so that no file there takes the place of a package
    try:
        import_module(module)
    except ImportError as error:
        raise ValueError(f"the module {module} cannot be imported: {error}") from None


def main(arguments: list[str] | None = None) -> None:
    """Run a command; a user's mistake is one line on stderr and exit code 2, never a traceback."""
    try:
        code = app(arguments, prog_name="taer", standalone_mode=False)
    except typer.TyperException as error:  # what the argument parser does not understand
        _fail(error.format_message())
    except (ValueError, OSError) as error:
        _fail(str(error))
    except (KeyboardInterrupt, typer.Abort):
        print("taer: stopped", file=sys.stderr)
        sys.exit(130)
    sys.exit(code or 0)


def _fail(message: str) -> None:
    print(f"taer: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(2)


from taer.cli import extract, models, paper, report, run, serve  # noqa: E402, F401  (each registers its commands)
