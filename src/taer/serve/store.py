"""What the service must never lose: the examples and the versions, in one folder.

``taer.db`` is an SQLite database in WAL mode; an example is on disk when ``add_examples`` returns. Each version is
an immutable file in ``versions/`` and a row of the database; it counts from the moment the row is committed,
together with the pointer to the current version and the mark on the examples it learned. A file is never written
over, not even one that no row knows. Version 0 is the empty head.
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
        self._db.execute("PRAGMA wal_autocheckpoint = 100")  # pages; by default a small service is all log
        with self._transaction() as db:
            (schema,) = db.execute("PRAGMA user_version").fetchone()
            if not schema:
                for statement in _TABLES.split(";"):
                    db.execute(statement)
                db.execute(f"PRAGMA user_version = {_SCHEMA}")
            elif schema != _SCHEMA:
                raise ValueError(f"{self.folder}: made by another version of taer (schema {schema})")
        self._check()
        self._to_file()

    def _check(self) -> None:
        db = self._db
        ((found,), *_) = db.execute("PRAGMA quick_check(1)")
        if found != "ok":
            raise sqlite3.DatabaseError(" ".join(str(found).split()))
        db.execute("SELECT id, x, version, held_back FROM examples LIMIT 1").fetchall()
        db.execute("SELECT DISTINCT label FROM examples").fetchall()  # whether all of it is text
        self.versions()
        if [type(number) for (number,) in db.execute("SELECT version FROM current")] != [int]:
            raise sqlite3.DatabaseError("it does not say which version is the current one")

    def _to_file(self) -> None:
        """Bring what is in the write-ahead log to ``taer.db``, as far as nobody has to wait for it."""
        self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

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
        version = 1 + max([0, *self.files(), *(known.version for known in self.versions())])
        head.save(self._file(version))
        created = _as_text(datetime.now(UTC))
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
        with self._lock:
            self._to_file()
        return version

    def go_to(self, version: int) -> None:
        """Make another version the current one."""
        with self._transaction() as db:
            db.execute("UPDATE current SET version = ?", (version,))

    def files(self) -> list[int]:
        """Numbers of all files in ``versions/``, whether or not they count."""
        return sorted(
            int(file.stem) for file in (self.folder / "versions").glob("*.safetensors") if file.stem.isdigit()
        )

    def tidy(self) -> None:
        """Remove what a killed process left half written. Only while nobody learns."""
        for file in (self.folder / "versions").glob(".*"):  # ours end in .partial, those of safetensors do not
            file.unlink()

    def is_empty(self) -> bool:
        return not self._rows("SELECT 1 FROM versions UNION ALL SELECT 1 FROM examples LIMIT 1")

    def rebuild(self, versions: Sequence[Version]) -> None:
        """Fill an empty database with what is known of these versions; the last one becomes the current one."""
        with self._transaction() as db:
            for known in versions:
                row = (known.version, known.parent, known.created, json.dumps(known.report))
                db.execute("INSERT INTO versions VALUES (?, ?, ?, ?)", row)
                db.execute("UPDATE current SET version = ?", (known.version,))

    def made(self, version: int) -> str:
        """When the file of a version was written."""
        return _as_text(datetime.fromtimestamp(self._file(version).stat().st_mtime, UTC))

    def _file(self, version: int) -> Path:
        return version_file(self.folder, version)


def version_file(folder: Path, version: int) -> Path:
    """Where a version is in the folder of a service."""
    return folder / "versions" / f"{version:06d}.safetensors"


_LINEAGE = """WITH RECURSIVE lineage(version) AS (
    VALUES (?) UNION SELECT parent FROM versions JOIN lineage USING (version)
)"""


def _as_text(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")


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
