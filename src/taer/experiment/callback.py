"""What is called while a run learns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from taer.experiment.results import Result
    from taer.experiment.run import Run


class Callback:
    """Override what you need, and give it to ``execute`` or ``run_grid``. Tasks count from 0, epochs from 1.

    Examples
    --------
    >>> import taer
    >>> from taer.experiment import Callback, Run, execute
    >>> class Shown(Callback):
    ...     def on_task(self, run, task, measured):
    ...         print(f"task {task}: {measured['accuracy']:.0%}")
    >>> stream = taer.class_stream(taer.load_features(), tasks=2)
    >>> result = execute(Run(stream, "ncm"), Shown())
    task 0: 60%
    task 1: 49%
    """

    def on_start(self, run: Run) -> None:
        """Called before the first task."""

    def on_epoch(self, run: Run, task: int, epoch: int, gradient: float | None) -> None:
        """Called after each epoch of a head that is trained by SGD; ``each_epoch`` says what ``gradient`` is."""

    def on_task(self, run: Run, task: int, measured: Mapping[str, float]) -> None:
        """Called after each task with what was measured then, on the test samples of all classes so far."""

    def on_end(self, run: Run, result: Result) -> None:
        """Called with the result."""


class Callbacks(Callback):
    """Several callbacks as one."""

    def __init__(self, *each: Callback) -> None:
        self.each = each

    def on_start(self, run: Run) -> None:
        for one in self.each:
            one.on_start(run)

    def on_epoch(self, run: Run, task: int, epoch: int, gradient: float | None) -> None:
        for one in self.each:
            one.on_epoch(run, task, epoch, gradient)

    def on_task(self, run: Run, task: int, measured: Mapping[str, float]) -> None:
        for one in self.each:
            one.on_task(run, task, measured)

    def on_end(self, run: Run, result: Result) -> None:
        for one in self.each:
            one.on_end(run, result)
