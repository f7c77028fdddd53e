"""``taer report``: write a page, tables and figures from results on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from taer.cli.app import COMPARE, app


@app.command(rich_help_panel=COMPARE)
def report(
    directories: Annotated[list[Path], typer.Argument(help="A folder of results, or two folders to compare.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder of the report. [default: 'report' in the folder of results]")
    ] = None,
) -> None:
    """Write a report of results: one HTML page, tables, figures.

    The page works offline. Tables are also written as Markdown, CSV and LaTeX, figures as SVG and PDF. To compare two
    folders: taer report A B --out DIR.
    """
    if len(directories) > 2:
        raise ValueError(f"one folder of results, or two to compare; got {len(directories)}")
    if out is None and len(directories) == 2:
        raise ValueError("two folders of results need --out, the folder for the report")
    from taer.paper.sections import paper
    from taer.report import write_report

    try:
        page = write_report(directories, out or directories[0] / "report", paper())
    except ModuleNotFoundError as error:
        raise ValueError(f"'taer report' needs {error.name}: pip install 'taer[report]'") from None
    print(page)
