"""The SQLite database of a service: its tables, how it is opened and checked, transactions, and failures in words."""

from __future__ import annotations

import errno
import json
import logging
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from taer.files import make_folder, make_private

_log = logging.getLogger("taer.serve")
SCHEMA = 4
_TABLES = """
CREATE TABLE examples (
    id INTEGER PRIMARY KEY AUTOINCREMENT,  -- the number of a deleted example is never given to another
    label TEXT NOT NULL,
    x BLOB NOT NULL,            -- float32
    version INTEGER,            -- the one that learned it, NULL while it waits
    held_back INTEGER NOT NULL DEFAULT 0,
    source,                     -- the text, or the image as a JPEG file; NULL if it came as a vector
    added TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%S+00:00'))
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
CREATE TABLE answers (
    hour INTEGER NOT NULL,      -- since 1970
    version INTEGER NOT NULL,   -- the one that answered
    answered INTEGER NOT NULL,
    unknown INTEGER NOT NULL,
    PRIMARY KEY (hour, version)
);
CREATE TABLE versions (
    version INTEGER PRIMARY KEY,
    parent INTEGER NOT NULL,
    created TEXT NOT NULL,
    report TEXT NOT NULL        -- JSON
);
CREATE TABLE inbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    x BLOB NOT NULL UNIQUE,
    source,                     -- as of examples
    label TEXT NOT NULL,        -- the answer, with its probability and novelty
    probability REAL NOT NULL,
    novelty REAL NOT NULL,
    unknown INTEGER NOT NULL,
    arrived INTEGER NOT NULL    -- seconds since 1970
);
CREATE TABLE candidate (version INTEGER PRIMARY KEY  -- which waits to be promoted; at most one
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
        examples.version AS version, held_back, source, added
    FROM examples LEFT JOIN last ON last.example = id
        LEFT JOIN edits ON edits.example = id AND edits.version = last.version
    WHERE examples.version IN lineage AND (last.version IS NULL OR edits.label IS NOT NULL)
)"""

_PAGE = 4096  # bytes; the least that the database writes
Cause = Literal["full", "io", "permission", "busy", "damaged", "other"]
_WORDS: dict[Cause, str] = {
    "full": "the disk is full",
    "io": "the disk failed to read or write",
    "permission": "a permission is missing",
    "busy": "another program keeps the database locked",
    "damaged": "the database is damaged",
    "other": "the system failed",
}
_AT_START: dict[Cause, str] = {
    "full": "Free some space, then start again",
    "io": "Look for the cause in the system's log, and at the disk; then start again",
    "permission": "Let the user that runs the service read and write the folder and all its files, then start again",
    "busy": "End that program, then start again",
    "other": "Remove the cause, then start again",
}
_OF_ERRNO: dict[int | None, Cause] = {
    errno.ENOSPC: "full",
    errno.EDQUOT: "full",
    errno.EIO: "io",
    errno.EACCES: "permission",
    errno.EPERM: "permission",
    errno.EROFS: "permission",
}
_OF_SQLITE: dict[int, Cause] = {
    sqlite3.SQLITE_FULL: "full",
    sqlite3.SQLITE_IOERR: "io",
    sqlite3.SQLITE_PERM: "permission",
    sqlite3.SQLITE_READONLY: "permission",
    sqlite3.SQLITE_CANTOPEN: "other",
    sqlite3.SQLITE_BUSY: "busy",
    sqlite3.SQLITE_LOCKED: "busy",
    sqlite3.SQLITE_PROTOCOL: "busy",
    sqlite3.SQLITE_CORRUPT: "damaged",
    sqlite3.SQLITE_NOTADB: "damaged",
}
UNLESS_KILLED = "nothing was changed, unless the service is killed before it can write again"


class Database:
    """``taer.db`` in a folder. Safe to use from several threads, and beside a second process that learns."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        try:
            make_folder(folder / "versions")
            make_private(folder / "taer.db")  # it has the examples; SQLite gives its log the same permissions
            self._db = sqlite3.connect(
                folder / "taer.db", timeout=30, isolation_level=None, check_same_thread=False, cached_statements=64
            )
        except (OSError, sqlite3.Error) as error:
            raise at_start(folder, error) from error
        try:
            self._open()
        except (OSError, sqlite3.Error) as error:
            self._db.close()
            raise at_start(folder, error) from error
        except ValueError:
            self._db.close()
            raise

    def _open(self) -> None:
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        # In pages; by default the data of a small service stay in the log
        self._db.execute("PRAGMA wal_autocheckpoint = 100")
        self._db.execute("PRAGMA secure_delete = ON")  # what is deleted is overwritten
        (schema,) = self._db.execute("PRAGMA user_version").fetchone()
        if schema not in (0, SCHEMA):
            raise ValueError(
                f"{self.folder}: made by another version of taer (its database has schema {schema}, this version "
                f"reads {SCHEMA}); serve it with the version that made it"
            )
        if schema == 0:  # otherwise nothing is written: a full disk need not keep the service from answering
            self._make_tables()
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute("UPDATE current SET version = version")  # whether it may be written; nothing is
        self._db.execute("ROLLBACK")
        self._check()
        self.to_file()

    def _make_tables(self) -> None:
        with self._begun() as db:
            for statement in _TABLES.split(";\n"):
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {SCHEMA}")

    def _check(self) -> None:
        db = self._db
        ((found,), *_) = db.execute("PRAGMA quick_check(1)")
        if found != "ok":
            raise sqlite3.DatabaseError(" ".join(str(found).split()))
        db.execute("SELECT id, x, version, held_back, source, added FROM examples LIMIT 1").fetchall()
        db.execute("SELECT DISTINCT label FROM examples").fetchall()  # whether all of it is text
        db.execute("SELECT DISTINCT label FROM edits").fetchall()
        for (report,) in db.execute("SELECT report FROM versions"):
            try:
                json.loads(report)
            except (ValueError, TypeError) as error:
                raise sqlite3.DatabaseError(f"a report that is not JSON: {error}") from None
        if [type(number) for (number,) in db.execute("SELECT version FROM current")] != [int]:
            raise sqlite3.DatabaseError("it does not say which version is the current one")

    def to_file(self, all_of_it: bool = False) -> str | None:
        """Move the write-ahead log to ``taer.db``: as far as possible without waiting, or all of it.

        What is committed is safe in the log, so this never raises; it returns why it could not be done.
        """
        with self._lock:
            return self._checkpoint("TRUNCATE" if all_of_it else "PASSIVE")

    def _checkpoint(self, mode: str) -> str | None:
        try:
            ((waits, *_),) = self._db.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
        except sqlite3.Error as error:
            _log.warning("the log of the database was not moved to its file, and will be later: %s", error)
            return str(error)
        return "it is being read" if waits and mode == "TRUNCATE" else None

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """What is done inside is committed as a whole. Raises StorageFailed, and then nothing was changed."""
        with self._lock, storage_failures("nothing was changed", self.folder), self._begun() as db:
            yield db

    @contextmanager
    def _begun(self) -> Iterator[sqlite3.Connection]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield self._db
        except BaseException:
            self._roll_back()
            raise
        try:
            self._db.execute("COMMIT")
        except sqlite3.Error:
            self._roll_back()
            # Its frames in the log may be whole, though not synced, and would be found after a crash.
            doubtful = self._checkpoint("TRUNCATE")
            then, kind = (UNLESS_KILLED, CommitFailed) if doubtful else ("nothing was changed", StorageFailed)
            with storage_failures(then, self.folder, kind):
                raise

    def _roll_back(self) -> None:
        if self._db.in_transaction:  # SQLite may have done it already
            with suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")

    def rows(self, query: str, *values: Any) -> list[Any]:
        with self._lock, storage_failures("the database cannot be read", self.folder):
            return self._db.execute(query, values).fetchall()


# Failures of storage: what the system reported, told in words


class StorageFailed(OSError):
    """Something could not be read or written; the message says why, and whether something was changed."""


class CommitFailed(StorageFailed):
    """A commit that failed and could not be erased from SQLite's log either: after a crash right now it may be found."""


class StartFailed(StorageFailed):
    """The service cannot start; the message says why, and what to do."""


def cause_of(error: OSError | sqlite3.Error, folder: Path) -> Cause | None:
    """Why storage failed in a folder; None for an error that is not one of storage, such as a file that is missing."""
    if isinstance(error, sqlite3.Error):
        return _of_sqlite(getattr(error, "sqlite_errorcode", 0) & 0xFF, folder)  # without the bits that say more
    if isinstance(error, FileNotFoundError):
        return None
    return "permission" if isinstance(error, PermissionError) else _OF_ERRNO.get(error.errno, "other")


def _of_sqlite(code: int, folder: Path) -> Cause | None:
    """SQLite does not always pass on what the system said: it reports a file that it could not open, read or write."""
    cause = _OF_SQLITE.get(code)
    if cause in ("io", "other", "permission"):
        if not _may_write(folder):
            return "permission"
        if _is_full(folder):
            return "full"
        return "other" if cause == "permission" else cause
    return cause


@contextmanager
def storage_failures(then: str, folder: Path, kind: type[StorageFailed] = StorageFailed) -> Iterator[None]:
    """Tell errors of storage in a folder as :class:`StorageFailed`; ``then`` says what follows from them."""
    try:
        yield
    except StartFailed as error:  # a running service opens it: this is no start, and nobody is told its path
        reported = error.__cause__
        if not isinstance(reported, OSError | sqlite3.Error):
            raise
        raise kind(f"{in_words(reported, folder)}; {then}") from reported
    except StorageFailed:
        raise
    except (OSError, sqlite3.Error) as error:
        if cause_of(error, folder) is None:
            raise
        raise kind(f"{in_words(error, folder)}; {then}") from error


def in_words(error: OSError | sqlite3.Error, folder: Path) -> str:
    """Why storage failed in a folder, and what the system or SQLite said."""
    cause = cause_of(error, folder)
    return f"{_WORDS[cause]} ({_reported(error)})" if cause else _reported(error)


def at_start(folder: Path, error: OSError | sqlite3.Error) -> Exception:
    """Why the folder of a service cannot be opened. Only a damaged database is called damaged."""
    told = isinstance(error, StorageFailed)
    reported = error.__cause__ if told else error
    if isinstance(error, StartFailed) or not isinstance(reported, OSError | sqlite3.Error):
        return error
    cause = cause_of(reported, folder) or ("damaged" if isinstance(reported, sqlite3.Error) else None)
    if cause is None:
        return error
    if cause == "damaged":
        return ValueError(
            f"{folder}: taer.db is damaged, or not a database of this service ({str(reported)[:100]}). Restore a copy "
            "made by taer backup; or move taer.db, taer.db-wal and taer.db-shm away, and the history is rebuilt from "
            "versions/"
        )
    why = str(error) if told else in_words(reported, folder)
    return StartFailed(
        f"{folder}: {why}. {_AT_START[cause]}. This does not mean that taer.db is damaged: leave it where it is"
    )


def _may_write(folder: Path) -> bool:
    paths = [folder, *folder.glob("taer.db*")]
    return all(os.access(path, os.R_OK | os.W_OK, effective_ids=True) for path in paths)


def _is_full(folder: Path) -> bool:
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < _PAGE or found.f_favail == 0 < found.f_files


def _reported(error: OSError | sqlite3.Error) -> str:
    """What the system said, without paths, which are nobody's business behind HTTP."""
    if not isinstance(error, OSError):
        return str(error)[:100]
    return os.strerror(error.errno) if error.errno else str(error)[:100]
