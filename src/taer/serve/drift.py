"""The number of unknown answers per hour. A rise means that the data have changed."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime

from taer.serve.database import Database
from taer.serve.failures import StorageFailed

_HOUR = 3600
_log = logging.getLogger("taer.serve")


@dataclass(frozen=True)
class Hour:
    """The answers of one hour, and how many were unknown."""

    start: str
    answered: int
    unknown: int


class Drift:
    """Counts in memory; :meth:`save` adds them to those on disk."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._saving = threading.Lock()
        self._answered: Counter[int] = Counter()  # by hour since 1970
        self._unknown: Counter[int] = Counter()

    def count(self, answered: int, unknown: int) -> None:
        hour = int(time.time()) // _HOUR
        with self._lock:
            self._answered[hour] += answered
            self._unknown[hour] += unknown

    def save(self) -> None:
        """Add the counts to those on disk. If that fails they stay in memory, for the next time."""
        with self._saving:
            rows = self._unsaved()
            try:
                self._write(rows)
            except StorageFailed as error:
                _log.warning("the counts of answers were not saved, and will be later: %s", error)
                return
            with self._lock:
                self._answered -= Counter({hour: answered for hour, answered, _ in rows})
                self._unknown -= Counter({hour: unknown for hour, _, unknown in rows})

    def _unsaved(self) -> list[tuple[int, int, int]]:
        with self._lock:
            return [(hour, answered, self._unknown[hour]) for hour, answered in self._answered.items()]

    def _write(self, rows: list[tuple[int, int, int]]) -> None:
        if rows:
            with self._database.transaction() as db:
                db.executemany(
                    "INSERT INTO answers VALUES (?, ?, ?) ON CONFLICT (hour) DO UPDATE SET "
                    "answered = answered + excluded.answered, unknown = unknown + excluded.unknown",
                    rows,
                )

    def hours(self, last: int) -> list[Hour]:
        """The recent hours that have answers, the oldest first."""
        self.save()
        first = int(time.time()) // _HOUR - last
        answered, unknown = Counter[int](), Counter[int]()
        with self._saving:  # so that nothing is counted twice
            stored = self._database.rows("SELECT hour, answered, unknown FROM answers WHERE hour > ?", first)
            for hour, count, strange in [*stored, *self._unsaved()]:
                answered[hour] += count
                unknown[hour] += strange
        return [
            Hour(
                datetime.fromtimestamp(hour * _HOUR, UTC).isoformat(timespec="minutes"),
                answered[hour],
                unknown[hour],
            )
            for hour in sorted(answered)
        ]
