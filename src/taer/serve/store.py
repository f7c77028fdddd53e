"""The examples and versions of a service, in one folder.

``taer.db`` is an SQLite database in WAL mode; an example is on disk when ``add_examples`` returns. Each version is
an immutable file in ``versions/`` and a row of the database. It is valid from the moment the row is committed,
together with the pointer to the current version, the marks on its examples, and its changes to older examples. A file
is never overwritten, not even one without a row. Version 0 is the empty head.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import numpy as np

from taer.answers import ExampleEntry, Kind
from taer.heads import Head
from taer.multilabel.model import MultiLabel
from taer.persist.multilabel import load_head
from taer.serve.database import LINEAGE, TAUGHT, CommitFailed, Database, storage_failures

_VERSION = re.compile(r"([0-9]{6,9})\.safetensors")
_UNFINISHED = re.compile(r"\..+\.safetensors\.[0-9]+\.partial|\.tmp\w{6}")  # ours, and those of safetensors
_COLUMNS = "id, label, x, version, held_back, source, added"
Record = Callable[[sqlite3.Connection, list[int]], None]
KINDS: dict[str, Kind] = {"null": "vector", "text": "text", "blob": "image"}


@dataclass(frozen=True)
class Example:
    """One labeled vector, and the text or image from which it was extracted, if any."""

    id: int
    label: str
    x: np.ndarray
    version: int | None = None  # the one that learned it, None while it waits
    held_back: bool = False
    source: str | bytes | None = None
    added: str = ""  # when it arrived, in UTC


@dataclass(frozen=True)
class Edit:
    """A change to an example from a version on: its label (None if it is removed), and its vector if that changed."""

    label: str | None
    x: np.ndarray | None = None


@dataclass(frozen=True)
class Version:
    """One learned task or one edit: its parent, and what was measured when it was made."""

    version: int
    parent: int
    created: str
    report: dict[str, Any]


class Store(Database):
    """The folder of a service."""

    # Examples

    def add_examples(
        self,
        label: str,
        vectors: np.ndarray,
        sources: Sequence[str | bytes | None] | None = None,
        record: Record | None = None,
    ) -> list[int]:
        """Store examples, which are on disk when this returns; returns their numbers.

        ``record`` writes what else must be known of them, in the same transaction.
        """
        rows = zip(np.ascontiguousarray(vectors, np.float32), sources or [None] * len(vectors), strict=True)
        insert = "INSERT INTO examples (label, x, source) VALUES (?, ?, ?)"
        with self.transaction() as db:
            made = [int(db.execute(insert, (label, x.tobytes(), source)).lastrowid or 0) for x, source in rows]
            if record is not None:
                record(db, made)
            return made

    def take_from_inbox(self, numbers: Sequence[int], label: str) -> list[int]:
        """Make inputs of the inbox waiting examples, in one transaction; returns the numbers of the examples."""
        insert = "INSERT INTO examples (label, x, source) SELECT ?, x, source FROM inbox WHERE id = ?"
        with self.transaction() as db:
            made = [int(db.execute(insert, (label, number)).lastrowid or 0) for number in numbers]
            db.executemany("DELETE FROM inbox WHERE id = ?", [(number,) for number in numbers])
            return made

    def discard_pending(self) -> int:
        """Delete the waiting examples."""
        with self.transaction() as db:
            return db.execute("DELETE FROM examples WHERE version IS NULL").rowcount

    def change_pending(self, number: int, label: str | None) -> None:
        """Change the label of a waiting example; None deletes it."""
        with self.transaction() as db:
            if label is None:
                db.execute("DELETE FROM examples WHERE id = ? AND version IS NULL", (number,))
            else:
                db.execute("UPDATE examples SET label = ? WHERE id = ? AND version IS NULL", (label, number))

    def pending(self) -> list[Example]:
        """The waiting examples, in order of arrival."""
        return _examples(self.rows(f"SELECT {_COLUMNS} FROM examples WHERE version IS NULL ORDER BY id"))

    def count_pending(self) -> dict[str, int]:
        """The number of waiting examples per class."""
        return dict(
            self.rows("SELECT label, count(*) FROM examples WHERE version IS NULL GROUP BY label ORDER BY min(id)")
        )

    def taught(self, version: int, label: str | None = None) -> list[Example]:
        """Examples of a version and its ancestors, with its edits: learned ones, and held-out ones."""
        query = f"{TAUGHT} SELECT {_COLUMNS} FROM taught WHERE ? IS NULL OR label = ? ORDER BY id"
        return _examples(self.rows(query, version, label, label))

    def latest(self, version: int, labels: Sequence[str], most: int) -> list[Example]:
        """The latest examples of some classes of a version, at most so many per class, without their sources."""
        found = self.rows(
            f"""{TAUGHT} SELECT id, label, x, version, held_back, NULL, added FROM (
                SELECT *, row_number() OVER (PARTITION BY label ORDER BY id DESC) AS place FROM taught
                WHERE label IN (SELECT value FROM json_each(?))
            ) WHERE place <= ? ORDER BY id""",
            version,
            json.dumps(labels),
            most,
        )
        return _examples(found)

    def held_back(self, version: int) -> list[Example]:
        """Held-out examples of a version and its ancestors."""
        return _examples(self.rows(f"{TAUGHT} SELECT {_COLUMNS} FROM taught WHERE held_back ORDER BY id", version))

    def learned(self, version: int) -> dict[str, tuple[int, int]]:
        """Numbers of learned and of held-out examples per class in a version and its ancestors."""
        query = f"{TAUGHT} SELECT label, sum(1 - held_back), sum(held_back) FROM taught GROUP BY label"
        return {label: (used, kept) for label, used, kept in self.rows(query, version)}

    def example(self, number: int, version: int) -> Example | None:
        """One example, if it waits or belongs to a version or its ancestors."""
        query = f"{TAUGHT} SELECT {_COLUMNS} FROM taught WHERE id = ?"
        waiting = f"SELECT {_COLUMNS} FROM examples WHERE version IS NULL AND id = ?"
        found = _examples(self.rows(waiting, number) or self.rows(query, version, number))
        return found[0] if found else None

    def listed(self, version: int, label: str | None, after: int, limit: int) -> list[ExampleEntry]:
        """Examples that wait or belong to a version or its ancestors, in order of arrival.

        Without their vectors and images, which may be large.
        """
        columns = "id, label, version, held_back, added, typeof(source), iif(typeof(source) = 'text', source, NULL)"
        query = f"""{TAUGHT} SELECT {columns} FROM taught WHERE id > ? AND (? IS NULL OR label = ?)
            UNION ALL SELECT {columns} FROM examples
            WHERE version IS NULL AND id > ? AND (? IS NULL OR label = ?) ORDER BY id LIMIT ?"""
        found = self.rows(query, version, *(after, label, label) * 2, limit)
        return [
            ExampleEntry(
                id=n, label=name, version=v, held_back=bool(held_back), added=added, kind=KINDS[kind], text=text
            )
            for n, name, v, held_back, added, kind, text in found
        ]

    def width(self) -> int | None:
        """The width of the vectors that wait, if there are any."""
        found = self.rows("SELECT length(x) FROM examples WHERE version IS NULL LIMIT 1")
        return found[0][0] // 4 if found else None

    # Versions

    def current(self) -> int:
        return int(self.rows("SELECT version FROM current")[0][0])

    def versions(self) -> list[Version]:
        """All versions, the oldest first."""
        found = self.rows("SELECT version, parent, created, report FROM versions ORDER BY version")
        return [Version(number, parent, created, json.loads(report)) for number, parent, created, report in found]

    def backbone(self, version: int) -> str | None:
        """The backbone of the examples of a version, if it is recorded."""
        found = self.rows("SELECT report ->> 'backbone' FROM versions WHERE version = ?", version)
        return found[0][0] if found else None

    def lineage(self, version: int) -> list[int]:
        """A version and its ancestors, the youngest first; 0 is the last."""
        return [
            number for (number,) in self.rows(f"{LINEAGE} SELECT version FROM lineage ORDER BY 1 DESC", version)
        ]

    def load(self, version: int) -> Any:
        """The head of a version, of one label or of several per sample; None for the empty version 0.

        Raises ValueError if the file is missing or damaged, StorageFailed if it cannot be read.
        """
        if not version:
            return None
        with storage_failures(f"version {version} cannot be read", self.folder):
            try:
                self._file(version).open("rb").close()  # the reader below does not say why it cannot read
                return load_head(self._file(version))
            except (FileNotFoundError, IsADirectoryError):
                raise ValueError(f"{self._file(version)}: no such file") from None

    def add_version(
        self,
        head: Head | MultiLabel,
        parent: int,
        report: dict[str, Any],
        learned: Sequence[int] = (),
        held_back: Sequence[int] = (),
        brought: Sequence[Example] = (),
        edits: Mapping[int, Edit] | None = None,
        moved: Mapping[int, np.ndarray] | None = None,
        staged: bool = False,
    ) -> Version:
        """Store a head as the next version; nothing is valid before the commit.

        It becomes the current one or, if ``staged``, the candidate, with the marks on its examples.

        ``brought`` are held-out examples that come with a head from outside, ``edits`` changes to examples of the
        ancestors, ``moved`` new vectors of waiting ones. Raises StorageFailed, and then nothing was changed.
        """
        made = Version(self._next(), parent, _as_text(datetime.now(UTC)), report)
        marks = [(made.version, mark, i) for mark, ids in ((0, learned), (1, held_back)) for i in ids]
        with self._written(made.version, head), self.transaction() as db:
            _insert(db, made, staged)
            db.executemany("UPDATE examples SET version = ?, held_back = ? WHERE id = ?", marks)
            db.executemany(
                "INSERT INTO examples (label, x, version, held_back) VALUES (?, ?, ?, 1)",
                [(example.label, example.x.tobytes(), made.version) for example in brought],
            )
            db.executemany(
                "INSERT INTO edits VALUES (?, ?, ?, ?)",
                [
                    (number, made.version, edit.label, None if edit.x is None else edit.x.tobytes())
                    for number, edit in (edits or {}).items()
                ],
            )
            db.executemany(
                "UPDATE examples SET x = ? WHERE id = ? AND version IS NULL",
                [(np.ascontiguousarray(x, np.float32).tobytes(), number) for number, x in (moved or {}).items()],
            )
        self.to_file()
        return made

    def _next(self) -> int:
        """A number that no version, no purged version and no file has."""
        with storage_failures("nothing was changed", self.folder):
            taken = [
                number for (number,) in self.rows("SELECT version FROM purged UNION SELECT version FROM versions")
            ]
            return 1 + max([0, *taken, *self.files()])

    @contextmanager
    def _written(self, version: int, head: Head | MultiLabel) -> Iterator[None]:
        """Inside, the file of a version is on disk. After an error it is removed, unless its row may come back.

        That is after a commit that failed: a crash right then may leave it whole in the log of the database.
        """
        file = self._file(version)
        try:
            with storage_failures("nothing was changed", self.folder):
                head.save(file)
            yield
        except BaseException as error:
            if not isinstance(error, CommitFailed):
                with suppress(OSError):
                    file.unlink(missing_ok=True)
            raise

    def go_to(self, version: int) -> None:
        """Make another version the current one; it is no longer a candidate."""
        with self.transaction() as db:
            db.execute("UPDATE current SET version = ?", (version,))
            db.execute("DELETE FROM candidate WHERE version = ?", (version,))

    def become(self, version: Version) -> None:
        """Make this the only version, and delete the files of all others; its own file is there already."""
        with self.transaction() as db:
            db.execute("DELETE FROM versions")
            if version.version:
                _insert(db, version)
            else:
                db.execute("UPDATE current SET version = 0")
        for number in self.files():
            if number != version.version:
                with suppress(OSError):  # a stray file does not count
                    self._file(number).unlink(missing_ok=True)

    def candidate(self) -> int | None:
        """The version that waits to be promoted."""
        found = self.rows("SELECT version FROM candidate")
        return found[0][0] if found else None

    def reject(self, version: int) -> None:
        """Delete a candidate. Its examples wait again, and its number is not used again."""
        with self.transaction() as db:
            db.execute("UPDATE examples SET version = NULL, held_back = 0 WHERE version = ?", (version,))
            db.execute("INSERT INTO purged VALUES (?)", (version,))
            for table in ("candidate", "versions"):
                db.execute(f"DELETE FROM {table} WHERE version = ?", (version,))
        self.tidy()

    # Files

    def files(self) -> list[int]:
        """Numbers of all files in ``versions/``, with or without a row."""
        found = map(_VERSION.fullmatch, os.listdir(self.folder / "versions"))
        return sorted(int(match[1]) for match in found if match)

    def tidy(self) -> list[str]:
        """Remove incomplete files of a killed process, and purged versions. Call it only while nothing is learned.

        Nothing depends on it, so it never raises; it returns what could not be removed, and why.
        """
        try:
            files = self._to_remove()
        except OSError as error:
            return [f"versions/ could not be searched for files to delete ({error.strerror or error})"]
        left = []
        for file in files:
            try:
                file.unlink(missing_ok=True)
            except OSError as error:
                left.append(
                    f"versions/{file.name} could not be deleted ({error.strerror}); the next start tries again"
                )
        return left

    def _to_remove(self) -> list[Path]:
        versions = self.folder / "versions"
        unfinished = [name for name in os.listdir(versions) if _UNFINISHED.fullmatch(name)]
        purged = {version for (version,) in self.rows("SELECT version FROM purged")} & set(self.files())
        return [
            *(versions / name for name in unfinished if not (versions / name).is_dir()),
            *map(self._file, sorted(purged)),
        ]

    def is_empty(self) -> bool:
        return not self.rows("SELECT 1 FROM versions UNION ALL SELECT 1 FROM examples LIMIT 1")

    def rebuild(self, versions: Sequence[Version]) -> None:
        """Fill an empty database from these versions; the last one becomes the current one."""
        with self.transaction() as db:
            for known in versions:
                _insert(db, known)

    def made(self, version: int) -> str:
        """When the file of a version was written."""
        return _as_text(datetime.fromtimestamp(self._file(version).stat().st_mtime, UTC))

    def _file(self, version: int) -> Path:
        return version_file(self.folder, version)


def version_file(folder: Path, version: int) -> Path:
    """Where a version is in the folder of a service."""
    return folder / "versions" / f"{version:06d}.safetensors"


def _insert(db: sqlite3.Connection, version: Version, staged: bool = False) -> None:
    """Add the row of a version and make it the current one, or the candidate."""
    row = (version.version, version.parent, version.created, json.dumps(version.report))
    db.execute("INSERT INTO versions VALUES (?, ?, ?, ?)", row)
    db.execute(
        "INSERT INTO candidate VALUES (?)" if staged else "UPDATE current SET version = ?", (version.version,)
    )


def _as_text(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")


def _examples(rows: list[Any]) -> list[Example]:
    return [
        Example(number, label, np.frombuffer(x, np.float32), version, bool(held_back), source, added)
        for number, label, x, version, held_back, source, added in rows
    ]


def only_one(folder: Path, purpose: str, wait: bool = False) -> IO[bytes]:
    """A lock on a folder that lasts until it is closed or its process dies."""
    file = (folder / f"{purpose}.lock").open("wb")
    try:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise ValueError(f"{folder}: another taer {purpose} is at work in this folder") from None
    except OSError:
        file.close()
        raise
    return file
