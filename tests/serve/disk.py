"""What is in the database of a service, as tests compare it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

TABLES = ("current", "versions", "candidate", "purged", "examples", "edits", "inbox")


def stored(folder: Path) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of all tables but that of statistics of answers, with vectors, sources and reports."""
    with closing(sqlite3.connect(folder / "taer.db")) as database:
        return {name: sorted(database.execute(f"SELECT * FROM {name}"), key=repr) for name in TABLES}


def whole(folder: Path) -> bool:
    """Whether SQLite finds nothing wrong in the database."""
    with closing(sqlite3.connect(folder / "taer.db")) as database:
        return bool(database.execute("PRAGMA integrity_check").fetchall() == [("ok",)])
