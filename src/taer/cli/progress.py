"""Progress on stderr while a command works, if stderr is a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stage(doing: str) -> Iterator[None]:
    """Inside, show a line with the current step and the seconds since it began."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if not console.is_terminal:  # older versions of rich end even a disabled progress with an empty line
        yield
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        progress.add_task(doing, total=None)
        yield
