"""What the service must never lose: the examples and the versions, in one folder.

``taer.db`` is an SQLite database in WAL mode; an example is on disk when ``add_examples`` returns. Each version is
an immutable file in ``versions/`` and a row of the database; it counts from the moment the row is committed,
together with the pointer to the current version and the mark on the examples it learned. Version 0 is the empty
head.
"""

from __future__ import annotations

import fcntl
import json
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import numpy as np

from taer.heads import Head
from taer.persist.save import load

_SCHEMA = 1
_TABLES = """
CREATE TABLE examples (
    id INTEGER PRIMARY KEY,
    label TEXT NOT NULL,
    x BLOB NOT NULL,            -- float32
    version INTEGER,            -- the one that learned it, NULL while it waits
    held_back INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX examples_by_version ON examples (version);
CREATE TABLE versions (
    version INTEGER PRIMARY KEY,
    parent INTEGER NOT NULL,
    created TEXT NOT NULL,
    report TEXT NOT NULL        -- JSON
);
CREATE TABLE current (version INTEGER NOT NULL);
INSERT INTO current VALUES (0);
"""


@dataclass(frozen=True)
class Example:
    """One labelled vector."""

    id: int
    label: str
    x: np.ndarray


@dataclass(frozen=True)
class Version:
    """One learned task: where it came from and what was found about it when it was made."""

    version: int
    parent: int
    created: str
    report: dict[str, Any]


class Store:
    """The folder of a service. Safe to use from several threads, and from a second process that learns."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "versions").mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._db = sqlite3.connect(
            folder / "taer.db", timeout=30, isolation_level=None, check_same_thread=False, cached_statements=64
        )
        try:
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            with self._transaction() as db:
                (schema,) = db.execute("PRAGMA user_version").fetchone()
                if not schema:
                    for statement in _TABLES.split(";"):
                        db.execute(statement)
                    db.execute(f"PRAGMA user_version = {_SCHEMA}")
                elif schema != _SCHEMA:
                    raise ValueError(f"{folder}: made by another version of taer (schema {schema})")
        except sqlite3.DatabaseError as error:
            raise ValueError(f"{folder}: taer.db is not a database of this service ({error})") from None

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def _rows(self, query: str, *values: Any) -> list[Any]:
        with self._lock:
            return self._db.execute(query, values).fetchall()

    def add_examples(self, label: str, vectors: np.ndarray) -> list[int]:
        """Numbers of the examples, which are on disk when this returns."""
        with self._transaction() as db:
            return [
                int(
                    db.execute("INSERT INTO examples (label, x) VALUES (?, ?)", (label, x.tobytes())).lastrowid or 0
                )
                for x in np.ascontiguousarray(vectors, np.float32)
            ]

    def discard_pending(self) -> int:
        """Forget the examples that no version has learned."""
        with self._transaction() as db:
            return db.execute("DELETE FROM examples WHERE version IS NULL").rowcount

    def pending(self) -> list[Example]:
        """Examples that no version has learned, in order of arrival."""
        return _examples(self._rows("SELECT id, label, x FROM examples WHERE version IS NULL ORDER BY id"))

    def count_pending(self) -> dict[str, int]:
        """Waiting examples of each class."""
        return dict(
            self._rows("SELECT label, count(*) FROM examples WHERE version IS NULL GROUP BY label ORDER BY min(id)")
        )

    def learned(self, version: int) -> dict[str, tuple[int, int]]:
        """Examples of each class in a version and its ancestors: learned from, and held back."""
        found = self._rows(
            f"{_LINEAGE} SELECT label, sum(1 - held_back), sum(held_back) FROM examples "
            "WHERE version IN lineage GROUP BY label",
            version,
        )
        return {label: (used, kept) for label, used, kept in found}

    def held_back(self, version: int) -> list[Example]:
        """Examples held back in a version and its ancestors."""
        query = f"{_LINEAGE} SELECT id, label, x FROM examples WHERE held_back AND version IN lineage ORDER BY id"
        return _examples(self._rows(query, version))

    def width(self) -> int | None:
        """The width of the vectors, once there are any."""
        found = self._rows("SELECT length(x) FROM examples LIMIT 1")
        return found[0][0] // 4 if found else None

    def current(self) -> int:
        return int(self._rows("SELECT version FROM current")[0][0])

    def versions(self) -> list[Version]:
        """All versions, the oldest first."""
        found = self._rows("SELECT version, parent, created, report FROM versions ORDER BY version")
        return [Version(number, parent, created, json.loads(report)) for number, parent, created, report in found]

    def load(self, version: int) -> Head | None:
        """The head of a version; None for the empty version 0."""
        return load(self._file(version)) if version else None

    def add_version(
        self,
        head: Head,
        parent: int,
        report: dict[str, Any],
        learned: Sequence[int] = (),
        held_back: Sequence[int] = (),
        brought: Sequence[Example] = (),
    ) -> int:
        """Keep a head as the next version and make it the current one; nothing counts before the commit.

        ``brought`` are examples that come with a head from elsewhere, to be held back.
        """
        version = int(self._rows("SELECT coalesce(max(version), 0) + 1 FROM versions")[0][0])
        head.save(self._file(version))  # over what a crash may have left under this number
        created = datetime.now(UTC).isoformat(timespec="seconds")
        with self._transaction() as db:
            db.execute("INSERT INTO versions VALUES (?, ?, ?, ?)", (version, parent, created, json.dumps(report)))
            for mark, ids in ((0, learned), (1, held_back)):
                db.executemany(
                    "UPDATE examples SET version = ?, held_back = ? WHERE id = ?", [(version, mark, i) for i in ids]
                )
            db.executemany(
                "INSERT INTO examples (label, x, version, held_back) VALUES (?, ?, ?, 1)",
                [(example.label, example.x.tobytes(), version) for example in brought],
            )
            db.execute("UPDATE current SET version = ?", (version,))
        return version

    def go_to(self, version: int) -> None:
        """Make another version the current one."""
        with self._transaction() as db:
            if version and not db.execute("SELECT 1 FROM versions WHERE version = ?", (version,)).fetchone():
                raise KeyError(version)
            db.execute("UPDATE current SET version = ?", (version,))

    def _file(self, version: int) -> Path:
        return self.folder / "versions" / f"{version:06d}.safetensors"


_LINEAGE = """WITH RECURSIVE lineage(version) AS (
    VALUES (?) UNION SELECT parent FROM versions JOIN lineage USING (version)
)"""


def _examples(rows: list[Any]) -> list[Example]:
    return [Example(number, label, np.frombuffer(x, np.float32)) for number, label, x in rows]


def only_one(folder: Path, purpose: str, wait: bool = False) -> IO[bytes]:
    """A lock on a folder that lasts until it is closed or its process dies."""
    file = (folder / f"{purpose}.lock").open("wb")
    try:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise ValueError(f"{folder}: another taer {purpose} is at work in this folder") from None
    return file
