"""Runs in Weights & Biases and in TensorBoard; each package is imported when its logger is made."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from taer.experiment.callback import Callback
from taer.experiment.results import CONTINUAL, FEW_SHOT, Result
from taer.experiment.run import Run
from taer.extras import require


def _final(result: Result) -> dict[str, float]:
    """The numbers of a whole run, in percent."""
    found = {name: result[name] for name in ("A_T", "AIA", *FEW_SHOT, *CONTINUAL)}  # type: ignore[literal-required]
    return {name: 100 * value for name, value in found.items() if value is not None}


def _of_task(measured: Mapping[str, float]) -> dict[str, float]:
    return {f"task/{name}": value for name, value in measured.items()}


class TensorBoard(Callback):
    """One folder of event files per run, named like its result."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._summary = require("tensorboard.summary", "tensorboard")
        self._folder = Path(folder)
        self._writer: Any = None
        self._epochs = 0

    def on_start(self, run: Run) -> None:
        self._writer = self._summary.Writer(str(self._folder / Path(run.file_name).stem))
        self._epochs = 0

    def on_epoch(self, run: Run, task: int, epoch: int, gradient: float | None) -> None:
        self._epochs += 1
        self._writer.add_scalar("epoch/task", float(task), self._epochs)
        if gradient is not None:
            self._writer.add_scalar("epoch/gradient", gradient, self._epochs)

    def on_task(self, run: Run, task: int, measured: Mapping[str, float]) -> None:
        for name, value in _of_task(measured).items():
            self._writer.add_scalar(name, value, task)

    def on_end(self, run: Run, result: Result) -> None:
        for name, value in _final(result).items():
            self._writer.add_scalar(f"run/{name}", value, len(result["tasks"]) - 1)
        self._writer.close()


class WandB(Callback):
    """One run there per run here. ``WANDB_MODE`` and its other settings decide where they go."""

    def __init__(self, folder: str | os.PathLike[str], project: str = "taer") -> None:
        self._wandb = require("wandb", "wandb")
        self._folder, self._project = Path(folder), project
        self._run: Any = None

    def on_start(self, run: Run) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        identity = run.identity
        self._run = self._wandb.init(
            project=self._project,
            name=f"{run.method} {run.stream.features.name}, run {run.seed + 1}",
            group=run.method,
            dir=str(self._folder),
            config={name: identity[name] for name in ("method", "params", "seed", "stream", "features")},
            reinit="create_new",
        )

    def on_epoch(self, run: Run, task: int, epoch: int, gradient: float | None) -> None:
        more = {} if gradient is None else {"epoch/gradient": gradient}
        self._run.log({"epoch/task": task, "epoch/epoch": epoch, **more})

    def on_task(self, run: Run, task: int, measured: Mapping[str, float]) -> None:
        self._run.log({"task/task": task, **_of_task(measured)})

    def on_end(self, run: Run, result: Result) -> None:
        self._run.summary.update({f"run/{name}": value for name, value in _final(result).items()})
        self._run.finish()


LOGGERS: dict[str, type[TensorBoard] | type[WandB]] = {"tensorboard": TensorBoard, "wandb": WandB}
