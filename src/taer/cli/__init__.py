"""The command line. It parses, calls the library and prints. Nothing heavy is imported before a command runs."""

from __future__ import annotations

import sys

import typer

from taer.cli import (  # noqa: F401  (each registers its commands)
    audit,
    compare,
    corrections,
    describe,
    diagnose,
    discover,
    extract,
    hub,
    info,
    label_studio,
    models,
    next_,
    paper,
    predict,
    report,
    run,
    serve,
    teach,
    token,
    trust,
    tune,
)
from taer.cli.app import app


def main(arguments: list[str] | None = None) -> None:
    """Run a command. A user's mistake is reported as one line on stderr with exit code 2, never as a traceback."""
    try:
        code = app(arguments, prog_name="taer", standalone_mode=False)
    except typer.TyperException as error:  # from the argument parser
        _fail(error.format_message())
    except (ValueError, OSError) as error:
        _fail(str(error))
    except (KeyboardInterrupt, typer.Abort):
        print("taer: stopped", file=sys.stderr)
        sys.exit(130)
    sys.exit(code or 0)


def _fail(message: str) -> None:
    if message.endswith("import the module that defines it first"):  # the library does not mention the option
        message += ": taer --import MODULE …"
    print(f"taer: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(2)
