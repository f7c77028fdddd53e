"""The SQLite database of a service: its tables, how it is opened and checked, and transactions."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_SCHEMA = 2
_TABLES = """
CREATE TABLE examples (
    id INTEGER PRIMARY KEY AUTOINCREMENT,  -- the number of a deleted example is never given to another
    label TEXT NOT NULL,
    x BLOB NOT NULL,            -- float32
    version INTEGER,            -- the one that learned it, NULL while it waits
    held_back INTEGER NOT NULL DEFAULT 0,
    source                      -- the text, or the image as a JPEG file; NULL if it came as a vector
);
CREATE INDEX examples_by_version ON examples (version);
CREATE TABLE edits (            -- what a version changed in examples that an earlier one had learned
    example INTEGER NOT NULL,
    version INTEGER NOT NULL,
    label TEXT,                 -- NULL if it was taken out
    x BLOB,                     -- NULL if it stayed as it was
    PRIMARY KEY (example, version)
);
CREATE TABLE purged (           -- their files are deleted, and their numbers not used again
    version INTEGER PRIMARY KEY
);
CREATE TABLE answers (hour INTEGER PRIMARY KEY, answered INTEGER NOT NULL, unknown INTEGER NOT NULL);
CREATE TABLE versions (
    version INTEGER PRIMARY KEY,
    parent INTEGER NOT NULL,
    created TEXT NOT NULL,
    report TEXT NOT NULL        -- JSON
);
CREATE TABLE current (version INTEGER NOT NULL);
INSERT INTO current VALUES (0);
"""

# A version and its ancestors; then their examples as of that version, without those that were taken out.
LINEAGE = """WITH RECURSIVE lineage(version) AS (
    VALUES (?) UNION SELECT parent FROM versions JOIN lineage USING (version)
)"""
TAUGHT = f"""{LINEAGE}, last AS (
    SELECT example, max(version) AS version FROM edits WHERE version IN lineage GROUP BY example
), taught AS (
    SELECT id, iif(last.version IS NULL, examples.label, edits.label) AS label,
        coalesce(
            (SELECT moved.x FROM edits AS moved WHERE moved.example = id AND moved.x IS NOT NULL
                AND moved.version IN lineage ORDER BY moved.version DESC LIMIT 1),
            examples.x
        ) AS x,
        examples.version AS version, held_back, source
    FROM examples LEFT JOIN last ON last.example = id
        LEFT JOIN edits ON edits.example = id AND edits.version = last.version
    WHERE examples.version IN lineage AND (last.version IS NULL OR edits.label IS NOT NULL)
)"""


class Database:
    """``taer.db`` in a folder. Safe to use from several threads, and beside a second process that learns."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "versions").mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._db = sqlite3.connect(
            folder / "taer.db", timeout=30, isolation_level=None, check_same_thread=False, cached_statements=64
        )
        try:
            self._open()
        except (sqlite3.DatabaseError, json.JSONDecodeError) as error:
            self._db.close()
            raise ValueError(
                f"{folder}: taer.db is damaged, or not a database of this service ({str(error)[:100]}). Restore a "
                "copy made by taer backup; or move taer.db, taer.db-wal and taer.db-shm away, and the history is "
                "rebuilt from versions/"
            ) from None
        except ValueError:
            self._db.close()
            raise

    def _open(self) -> None:
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute(
            "PRAGMA wal_autocheckpoint = 100"
        )  # pages; by default the data of a small service stay in the log
        self._db.execute("PRAGMA secure_delete = ON")  # what is deleted is overwritten
        with self.transaction() as db:
            (schema,) = db.execute("PRAGMA user_version").fetchone()
            if schema not in (0, _SCHEMA):
                raise ValueError(
                    f"{self.folder}: made by another version of taer (its database has schema {schema}, this version "
                    f"reads {_SCHEMA}); serve it with the version that made it"
                )
            for statement in _TABLES.split(";\n") if schema == 0 else ():
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {_SCHEMA}")
        self._check()
        self.to_file()

    def _check(self) -> None:
        db = self._db
        ((found,), *_) = db.execute("PRAGMA quick_check(1)")
        if found != "ok":
            raise sqlite3.DatabaseError(" ".join(str(found).split()))
        db.execute("SELECT id, x, version, held_back, source FROM examples LIMIT 1").fetchall()
        db.execute("SELECT DISTINCT label FROM examples").fetchall()  # whether all of it is text
        db.execute("SELECT DISTINCT label FROM edits").fetchall()
        for (report,) in db.execute("SELECT report FROM versions"):
            json.loads(report)
        if [type(number) for (number,) in db.execute("SELECT version FROM current")] != [int]:
            raise sqlite3.DatabaseError("it does not say which version is the current one")

    def to_file(self, all_of_it: bool = False) -> None:
        """Move the write-ahead log to ``taer.db``: as far as possible without waiting, or all of it."""
        with self._lock:
            self._db.execute(f"PRAGMA wal_checkpoint({'TRUNCATE' if all_of_it else 'PASSIVE'})").fetchall()

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def rows(self, query: str, *values: Any) -> list[Any]:
        with self._lock:
            return self._db.execute(query, values).fetchall()
