"""Failures of storage: what the system reported, told in words."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

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
