"""The inbox: inputs that were unknown or uncertain, kept for a person to name. Off by default, and bounded."""

from __future__ import annotations

import base64
import json
import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np

from taer.answers import InboxEntry, InboxList, OneInput
from taer.serve.database import StorageFailed
from taer.serve.serving import Answers, Missing
from taer.serve.store import KINDS, Store

UNCERTAIN = 0.5  # the probability of the likeliest class below which an answer is uncertain
_UNSAVED = 256  # inputs in memory; they are written once a minute, and with each look at the list
_DAY = 24 * 3600
_LISTED = 20  # numbers in a message
_COLUMNS = """id, arrived, typeof(source), iif(typeof(source) = 'text', source, NULL), label, probability, novelty,
    unknown"""
_log = logging.getLogger("taer.serve")


@dataclass(frozen=True)
class Bounds:
    """At most so many inputs, for at most so many days."""

    rows: int
    days: int = 30


class Inbox:
    """The inputs in the database, and those that arrived since the last write."""

    def __init__(self, store: Store, bounds: Bounds) -> None:
        self.bounds = bounds
        self._store = store
        self._lock = threading.Lock()
        self._unsaved: deque[tuple[Any, ...]] = deque(maxlen=_UNSAVED)

    def offer(self, X: np.ndarray, sources: Sequence[str | bytes] | None, answers: Answers) -> None:
        """Keep what is unknown or uncertain. Nothing is written yet: an answer does not wait for the disk."""
        best = answers.probabilities.max(axis=1)
        now = int(time.time())
        for row in np.flatnonzero(answers.unknown | (best < UNCERTAIN)).tolist():
            source = sources[row] if sources is not None else None
            label = str(answers.classes[answers.best[row]])
            novelty = float(answers.novelty[row])
            values = (X[row].tobytes(), source, label, float(best[row]), novelty, bool(answers.unknown[row]), now)
            with self._lock:
                self._unsaved.append(values)

    def save(self) -> None:
        """Write what arrived, and delete what is too old or too much. If that fails it stays in memory."""
        with self._lock:
            rows = list(self._unsaved)
        try:
            with self._store.transaction() as db:
                db.executemany(  # the same input again is one row
                    "INSERT OR REPLACE INTO inbox (x, source, label, probability, novelty, unknown, arrived) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?)",
                    rows,
                )
                db.execute("DELETE FROM inbox WHERE arrived < ?", (int(time.time()) - self.bounds.days * _DAY,))
                db.execute(
                    "DELETE FROM inbox WHERE id NOT IN (SELECT id FROM inbox ORDER BY id DESC LIMIT ?)",
                    (self.bounds.rows,),
                )
        except StorageFailed as error:
            _log.warning("the inbox was not saved, and will be later: %s", error)
            return
        with self._lock:
            for _ in range(min(len(rows), len(self._unsaved))):
                self._unsaved.popleft()

    def __len__(self) -> int:
        return int(self._store.rows("SELECT count(*) FROM inbox")[0][0])

    def listed(self, limit: int) -> InboxList:
        """The inputs that look least like any class first."""
        self.save()
        found = self._store.rows(f"SELECT {_COLUMNS} FROM inbox ORDER BY novelty DESC, id DESC LIMIT ?", limit)
        return {
            "inputs": [_entry(row) for row in found],
            "kept": len(self),
            "rows": self.bounds.rows,
            "days": self.bounds.days,
        }

    def one(self, number: int) -> OneInput | None:
        found = self._store.rows(f"SELECT {_COLUMNS}, x, source FROM inbox WHERE id = ?", number)
        if not found:
            return None
        *row, x, source = found[0]
        image = base64.b64encode(source).decode() if isinstance(source, bytes) else None
        return {**_entry(row), "vector": np.frombuffer(x, np.float32).tolist(), "image": image}

    def widths(self, numbers: Sequence[int]) -> dict[int, int]:
        """How many features each of some inputs has; those that are gone are left out."""
        query = "SELECT id, length(x) / 4 FROM inbox WHERE id IN (SELECT value FROM json_each(?))"
        return dict(self._store.rows(query, json.dumps(list(numbers))))

    def latest(self, width: int, most: int) -> tuple[list[InboxEntry], np.ndarray]:
        """The latest inputs with so many features, and their vectors."""
        self.save()
        query = f"SELECT {_COLUMNS}, x FROM inbox WHERE length(x) = ? ORDER BY id DESC LIMIT ?"
        found = self._store.rows(query, 4 * width, most)
        X = np.array([np.frombuffer(x, np.float32) for *_, x in found]).reshape(len(found), width)
        return [_entry(row) for *row, _ in found], X

    def dismiss(self, numbers: Sequence[int]) -> int:
        """Delete some inputs for good, all or none; returns how many. Raises Missing if one is not there."""
        chosen = json.dumps(sorted(set(numbers)))
        with self._store.transaction() as db:
            missing = db.execute(
                "SELECT value FROM json_each(?) WHERE value NOT IN (SELECT id FROM inbox) ORDER BY value", (chosen,)
            ).fetchall()
            if missing:
                raise Missing(_missing([number for (number,) in missing]))
            count = db.execute("DELETE FROM inbox WHERE id IN (SELECT value FROM json_each(?))", (chosen,)).rowcount
        self._store.to_file(all_of_it=True)
        return count

    def dismiss_all(self) -> int:
        """Delete all inputs for good; returns how many there were."""
        found = clear(self._store)
        with self._lock:
            self._unsaved.clear()
        return found


def clear(store: Store) -> int:
    """Delete all inputs of the inbox, and overwrite them in the database and its log."""
    if not store.rows("SELECT 1 FROM inbox LIMIT 1"):
        return 0  # SQLite writes to delete nothing, too, and a full disk need not keep a service from starting
    with store.transaction() as db:
        count = db.execute("DELETE FROM inbox").rowcount
    if count:
        store.to_file(all_of_it=True)
    return count


def _missing(numbers: list[int]) -> str:
    if len(numbers) == 1:
        return f"there is no input {numbers[0]} in the inbox; nothing was deleted"
    listed = ", ".join(map(str, numbers[:_LISTED])) + (", …" if len(numbers) > _LISTED else "")
    return f"there are no inputs {listed} in the inbox; nothing was deleted"


def _entry(row: Sequence[Any]) -> InboxEntry:
    number, arrived, form, text, label, probability, novelty, unknown = row
    return {
        "id": number,
        "arrived": datetime.fromtimestamp(arrived, UTC).isoformat(timespec="seconds"),
        "kind": KINDS[form],
        "text": text,
        "label": label,
        "probability": probability,
        "novelty": novelty,
        "unknown": bool(unknown),
    }
