"""The command line. Thin: parses, calls, prints. Nothing heavy is imported before a command runs."""

from __future__ import annotations

import sys

import typer

from taer.cli import audit, diagnose, extract, info, models, paper, predict, report, run, serve, teach  # noqa: F401  (each registers its commands)
from taer.cli.app import app


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
    if message.endswith("import the module that defines it first"):  # the library does not know how, from a shell
        message += ": taer --import MODULE …"
    print(f"taer: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(2)
