"""The learning process: one task at a time, separate from predictions.

The process is started once and kept warm. It reads one line of JSON per task from its standard input and answers with
one line. It ends as soon as its input is closed, so it never outlives its server.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from taer.serve import traces
from taer.serve.database import StorageFailed, storage_failures
from taer.serve.label_tasks import learn_labels
from taer.serve.store import Store, Version, only_one
from taer.serve.tasks import TASKS, Refused

_TASKS = {**TASKS, learn_labels.__name__: learn_labels}


class Busy(Exception):
    """Another task is being learned."""


class Ended(Exception):
    """The process ended before it answered; whether the task was done is in the database."""


class Learner:
    """The server's side: a warm process that does one task at a time."""

    def __init__(self, folder: Path | None) -> None:
        """Without a folder every order names its own."""
        self._folder = folder
        self._turn = threading.Lock()
        self._starting = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    @property
    def busy(self) -> bool:
        return self._turn.locked()

    def start(self) -> None:
        """Start the process if there is none, so that it is warm when a task comes."""
        with self._starting:
            if self._process is None or self._process.poll() is not None:
                # -P removes the working directory from the path, so that no file there is imported as a module
                own = [] if self._folder is None else [str(self._folder)]
                command = [sys.executable, "-P", "-m", "taer.serve.learner", *own]
                self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def stop(self) -> None:
        """End the process; the store is consistent at every moment."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def exclusively(self) -> _Turn:
        """Inside, no task is learned."""
        return _Turn(self._turn)

    def do(self, task: str, **options: Any) -> Version:
        """Run one of ``_TASKS``; returns the new version. Call it inside ``exclusively()``.

        Raises Refused, StorageFailed, or Ended if the process ended before it answered, whatever it had done by then.
        """
        order = {"task": task, **options}
        if (carrier := traces.carry()) is not None:
            order["trace"] = carrier
        answer = self.ask(order)
        if "refused" in answer:
            raise Refused(answer["refused"])
        if "failed" in answer:
            raise StorageFailed(answer["failed"])
        return Version(**answer)

    def ask(self, order: dict[str, Any]) -> dict[str, Any]:
        """Send an order to the process, and wait for its answer."""
        with storage_failures("nothing was changed", self._folder or Path(order["folder"])):
            self.start()
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            print(json.dumps(order), file=process.stdin, flush=True)
            answer: dict[str, Any] = json.loads(process.stdout.readline())
        except (OSError, ValueError):
            self.stop()  # it may be anywhere; a new one starts from what is on disk
            raise Ended from None
        return answer


class _Turn:
    """A lock that raises instead of waiting."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise Busy

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def main(folder: Path | None) -> None:
    """The process's side: a line in, a task done, a line out."""
    os.nice(10)  # predictions go first
    orders: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_listen, args=(orders,), daemon=True).start()
    opened = cache(Store)
    if folder is not None:
        with suppress(OSError, ValueError):  # then the next order tries again, and can say why
            opened(folder)
    while True:
        order = json.loads(orders.get())
        answer = _answer_for_many(order) if folder is None else _answer(folder, opened, order)
        print(json.dumps(answer), flush=True)
        traces.flush()  # the server may end this process at any moment


def _answer_for_many(order: dict[str, Any]) -> dict[str, Any]:
    """One of many heads: its store is closed again, because the head may be deleted, and another get its name."""
    with ExitStack() as stack:
        return _answer(Path(order.pop("folder")), lambda folder: stack.enter_context(closing(Store(folder))), order)


def _answer(folder: Path, opened: Callable[[Path], Store], order: dict[str, Any]) -> dict[str, Any]:
    if (carrier := order.pop("trace", None)) is not None:
        traces.start()
    try:
        with (
            traces.under(carrier),
            traces.span("task", head=folder.name, task=order["task"]),
            storage_failures("nothing was changed", folder),
            only_one(folder, "learner", wait=True),
        ):
            return asdict(_TASKS[order.pop("task")](opened(folder), **order))
    except Refused as error:
        return {"refused": str(error)}
    except StorageFailed as error:
        return {"failed": str(error)}


def _listen(orders: queue.Queue[str]) -> None:
    for line in sys.stdin:
        orders.put(line)
    os._exit(0)  # the server is gone; the store is whole at every moment


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
