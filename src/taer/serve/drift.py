"""The number of unknown answers per hour. A rise means that the data have changed."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime

from taer.serve.database import Database

_HOUR = 3600


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
        self._answered: Counter[int] = Counter()  # by hour since 1970
        self._unknown: Counter[int] = Counter()

    def count(self, answered: int, unknown: int) -> None:
        hour = int(time.time()) // _HOUR
        with self._lock:
            self._answered[hour] += answered
            self._unknown[hour] += unknown

    def save(self) -> None:
        with self._lock:
            rows = [(hour, answered, self._unknown[hour]) for hour, answered in self._answered.items()]
            self._answered.clear()
            self._unknown.clear()
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
        now = int(time.time()) // _HOUR
        found = self._database.rows("SELECT * FROM answers WHERE hour > ? ORDER BY hour", now - last)
        return [
            Hour(datetime.fromtimestamp(hour * _HOUR, UTC).isoformat(timespec="minutes"), answered, unknown)
            for hour, answered, unknown in found
        ]
