"""Progress on stderr while a command works, if stderr is a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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


@contextmanager
def counting(doing: str, suffix: Callable[[], str] = str) -> Iterator[Callable[[int, int], None]]:
    """Inside, the function that is yielded shows how many items are done: ``show(done, total)``."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda done, total: None
        return
    rate = TextColumn("{task.fields[rate]}")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), rate, TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("reading the data", total=None, rate="")
        started = False

        def show(done: int, total: int) -> None:
            nonlocal started
            if not started:  # the speed of an earlier run is not known
                bar.reset(task, total=total, completed=done)
                started = True
            speed = bar.tasks[0].speed
            bar.update(task, completed=done, rate=f"{speed:.1f}/s" if speed else "", description=doing + suffix())

        yield show
