"""What Label Studio's annotations say now, and which examples they became.

A webhook only writes down what an annotation says; it answers within a second, and nothing is lost if the service
stops. :mod:`taer.serve.label_studio.teacher` then makes the examples agree. The table is in the database of the
service, so that an example and the note of which annotation it is from are written together.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from taer.serve.serving import Conflict
from taer.serve.store import Store

_TABLE = """CREATE TABLE IF NOT EXISTS label_studio (
    annotation INTEGER PRIMARY KEY,
    project INTEGER NOT NULL,
    task INTEGER NOT NULL,
    updated REAL NOT NULL,      -- seconds since 1970, by Label Studio's clock; a deleted annotation is never updated
    label TEXT,                 -- NULL if it is deleted, skipped or empty
    item TEXT,                  -- the text, or the address of the image; NULL once it is an example
    kind TEXT NOT NULL,
    example INTEGER,            -- NULL if it never was one
    changed INTEGER NOT NULL    -- whether the examples do not agree with this yet
)"""
_COLUMNS = "annotation, project, task, updated, label, item, kind, example"
_NEVER = 1e12  # seconds since 1970


@dataclass(frozen=True)
class Annotation:
    """What an annotation says, and the example that it became."""

    id: int
    project: int
    task: int
    updated: float
    label: str | None
    item: str | None
    kind: str
    example: int | None = None


class Annotations:
    """The annotations of one project."""

    def __init__(self, store: Store) -> None:
        self._store = store
        with store.transaction() as db:
            db.execute(_TABLE)

    def check_project(self, project: int) -> None:
        """Raise Conflict if the head learns from another project."""
        found = self._store.rows("SELECT project FROM label_studio LIMIT 1")
        if found and found[0][0] != project:
            raise Conflict(
                f"{self._store.folder.name} learns from project {found[0][0]}, and this is project {project}; start "
                "taer label-studio with another folder for it"
            )

    def put(self, said: Sequence[Annotation]) -> None:
        """Write down what annotations say.

        Older messages are ignored, and the same message once more, unless it could not be taught the first time.
        """
        rows = [(a.id, a.project, a.task, a.updated, a.label, a.item, a.kind) for a in said]
        with self._store.transaction() as db:
            db.executemany(
                """INSERT INTO label_studio VALUES (?, ?, ?, ?, ?, ?, ?, NULL, 1)
                ON CONFLICT (annotation) DO UPDATE SET updated = excluded.updated, label = excluded.label,
                    item = excluded.item, kind = excluded.kind, changed = 1
                WHERE excluded.updated > updated
                    OR (excluded.updated = updated AND example IS NULL AND excluded.label IS NOT NULL)""",
                rows,
            )

    def delete(self, ids: Collection[int] = (), tasks: Collection[int] = ()) -> None:
        """Write down that annotations are gone, some by themselves and some with their tasks."""
        for column, gone in (("annotation", ids), ("task", tasks)):
            with self._store.transaction() as db:
                db.executemany(
                    f"UPDATE label_studio SET label = NULL, item = NULL, updated = ?, changed = 1 WHERE {column} = ?",
                    [(_NEVER, number) for number in gone],
                )

    def known(self) -> set[int]:
        """Numbers of all annotations that are not deleted."""
        found = self._store.rows("SELECT annotation FROM label_studio WHERE updated < ?", _NEVER)
        return {number for (number,) in found}

    def changed(self) -> list[Annotation]:
        """Those that the examples do not agree with, in order of change."""
        found = self._store.rows(f"SELECT {_COLUMNS} FROM label_studio WHERE changed ORDER BY updated, annotation")
        return [Annotation(*row) for row in found]

    def done(self, annotation: Annotation) -> None:
        """The examples agree with an annotation, unless it was changed meanwhile."""
        with self._store.transaction() as db:
            _done(db, annotation, annotation.example)

    def became(self, annotation: Annotation, db: sqlite3.Connection, example: int) -> None:
        """The same for one that became an example in this transaction."""
        _done(db, annotation, example)


def _done(db: sqlite3.Connection, annotation: Annotation, example: int | None) -> None:
    db.execute("UPDATE label_studio SET example = ? WHERE annotation = ?", (example, annotation.id))
    db.execute(
        "UPDATE label_studio SET item = NULL, changed = 0 WHERE annotation = ? AND updated = ?",
        (annotation.id, annotation.updated),
    )
