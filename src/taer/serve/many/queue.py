"""One learning process for many heads, and the queue in front of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from taer.serve.learner import Ended, Learner
from taer.serve.serving import Unavailable

MAX_WAITING = 64  # heads; each waits in a thread


class Queue:
    """First come, first served. A head has one task at a time, so one that always learns gets every other turn at most."""

    def __init__(self) -> None:
        self._process = Learner(None)
        self._lock = threading.Lock()
        self._tickets: list[_Ticket] = []  # the first one learns

    def __len__(self) -> int:
        return len(self._tickets)

    def start(self) -> None:
        self._process.start()

    def ask(self, folder: Path, order: dict[str, Any]) -> dict[str, Any]:
        with self._turn(folder):
            return self._process.ask({"folder": str(folder), **order})

    def cancel(self, folder: Path) -> None:
        """End the task of a head, whether it waits or runs; what is on disk is consistent at every moment."""
        with self._lock:  # so that the next one does not begin yet
            for ticket in self._tickets:
                if ticket.folder == folder:
                    if ticket is self._tickets[0]:
                        self._process.stop()
                    ticket.canceled = True
                    ticket.called.set()

    def close(self) -> None:
        for folder in [ticket.folder for ticket in reversed(self._tickets)]:
            self.cancel(folder)
        self._process.stop()

    @contextmanager
    def _turn(self, folder: Path) -> Iterator[None]:
        ticket = _Ticket(folder)
        with self._lock:
            if len(self._tickets) > MAX_WAITING:
                raise Unavailable(f"{MAX_WAITING} other heads wait to learn; try again in a minute")
            self._tickets.append(ticket)
            self._tickets[0].called.set()
        try:
            ticket.called.wait()
            if ticket.canceled:
                raise Ended
            yield
        finally:
            with self._lock:
                self._tickets.remove(ticket)
                if self._tickets:
                    self._tickets[0].called.set()


class _Ticket:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.called = threading.Event()
        self.canceled = False


class Member(Learner):
    """The learner of one head among many."""

    def __init__(self, folder: Path, queue: Queue) -> None:
        super().__init__(folder)
        self._own, self._queue = folder, queue

    def start(self) -> None:
        self._queue.start()

    def stop(self) -> None:
        self._queue.cancel(self._own)

    def ask(self, order: dict[str, Any]) -> dict[str, Any]:
        return self._queue.ask(self._own, order)
