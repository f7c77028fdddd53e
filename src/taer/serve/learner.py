"""One task at a time, in a process of its own: predictions share neither its interpreter nor its fate.

The process is started once and kept warm. It reads one line per task from its standard input, answers with one line
of JSON, and ends at once when its input does: it never outlives its server.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from taer.heads import Head, make_head
from taer.heads.few import collected
from taer.persist.audit import audit
from taer.serve.store import Example, Store, only_one

HOLD_BACK_EVERY = 4  # of the examples of a class in one task, in order of arrival


class Busy(Exception):
    """Another task is being learned."""


class Refused(Exception):
    """The task cannot be learned, and the message says why."""


def learn_task(store: Store) -> int:
    """Learn all waiting examples as one task on top of the current version; returns the new version."""
    parent = store.current()
    try:
        head = store.load(parent)
    except (ValueError, OSError):
        raise Refused(f"the file of version {parent} is missing or damaged; go to another version first") from None
    examples = store.pending()
    if not examples:
        raise Refused("no examples were added since the last task; add some with POST /examples")
    learned, held_back = _split(examples)
    learner = store.load(parent) or make_head("bayes", random_state=0)
    start = time.perf_counter()
    try:
        with collected() as warned:
            learner.partial_fit(_matrix(learned), _labels(learned, head))
    except ValueError as error:
        raise Refused(f"the task cannot be learned: {error}") from None
    seconds = time.perf_counter() - start
    report = describe(head, learner, [*store.held_back(parent), *held_back])
    report |= {"seconds": round(seconds, 4), "examples": len(learned), "warnings": warned}
    return store.add_version(
        learner, parent, report, [example.id for example in learned], [example.id for example in held_back]
    )


def describe(before: Head | None, after: Head, held_back: list[Example]) -> dict[str, Any]:
    """What is told of a version: accuracy and confusion on examples held back, and what the task changed."""
    order = [str(label) for label, _ in after.learning_order_]
    known = [example for example in held_back if example.label in set(order)]
    report: dict[str, Any] = {
        "method": type(after).__name__,
        "classes": len(order),
        "new_classes": order,
        "held_back": len(known),
        "accuracy": None,
        "confusion": [],
        "changes": None,
    }
    if known:
        place = {label: i for i, label in enumerate(order)}
        truth = [place[example.label] for example in known]
        answers = [place[label] for label in after.predict(_matrix(known)).astype(str).tolist()]
        report["accuracy"] = float(np.mean(np.equal(truth, answers)))
        cells, counts = np.unique(np.column_stack([truth, answers]), axis=0, return_counts=True)
        report["confusion"] = np.column_stack([cells, counts]).tolist()  # only the cells that are not zero
    if before is not None:
        found = audit(before, after, _matrix(known) if known else None)
        report["changes"] = asdict(found) | {"sentence": found.sentence()}
        report["new_classes"] = [str(label) for label in found.new_classes]
        for key in ("old_classes", "new_classes"):
            del report["changes"][key]
    return report


def _split(examples: list[Example]) -> tuple[list[Example], list[Example]]:
    """To learn from, and to hold back: every fourth of a class."""
    seen: dict[str, int] = {}
    learned: list[Example] = []
    held_back: list[Example] = []
    for example in examples:
        seen[example.label] = number = seen.get(example.label, 0) + 1
        (learned if number % HOLD_BACK_EVERY else held_back).append(example)
    return learned, held_back


def _matrix(examples: list[Example]) -> np.ndarray:
    return np.stack([example.x for example in examples])


def _labels(examples: list[Example], head: Head | None) -> np.ndarray:
    names = np.array([example.label for example in examples])
    return names if head is None or head.classes_.dtype.kind == "U" else names.astype(head.classes_.dtype)


class Learner:
    """The server's side: a warm process that is asked for one task at a time."""

    def __init__(self, folder: Path) -> None:
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
                # -P keeps the working directory off the path: a file that lies there must not pass for a module
                command = [sys.executable, "-P", "-m", "taer.serve.learner", str(self._folder)]
                self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def stop(self) -> None:
        """End the process; the store is whole at every moment."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def exclusively(self) -> _Turn:
        """For what must not happen while a task is learned."""
        return _Turn(self._turn)

    def learn(self) -> int:
        """Learn what waits as one task; the new version. Raises Busy or Refused."""
        with self.exclusively():
            self.start()
            answer = self._ask()
        if "refused" in answer:
            raise Refused(answer["refused"])
        return int(answer["version"])

    def _ask(self) -> dict[str, Any]:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            print(file=process.stdin, flush=True)
            answer: dict[str, Any] = json.loads(process.stdout.readline())
        except (OSError, ValueError):
            self.stop()  # it may be anywhere; a new one starts from what is on disk
            raise Refused("the learning process failed before the task was done; nothing was changed") from None
        return answer


class _Turn:
    """A lock that is never waited for."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise Busy

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def main(folder: Path) -> None:
    """The process's side: a line in, a task learned, a line out."""
    os.nice(5)  # predictions go first
    orders: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_listen, args=(orders,), daemon=True).start()
    store = Store(folder)
    while orders.get():
        with only_one(folder, "learner", wait=True):
            try:
                answer: dict[str, Any] = {"version": learn_task(store)}
            except Refused as error:
                answer = {"refused": str(error)}
        print(json.dumps(answer), flush=True)


def _listen(orders: queue.Queue[str]) -> None:
    for line in sys.stdin:
        orders.put(line)
    os._exit(0)  # the server is gone; the store is whole at every moment


if __name__ == "__main__":
    main(Path(sys.argv[1]))
