"""A consistent snapshot of a service's folder, taken while the service runs."""

from __future__ import annotations

import sqlite3
import tarfile
import tempfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from taer.files import make_private, written_whole
from taer.serve.database import in_words
from taer.serve.store import version_file


@dataclass(frozen=True)
class Backup:
    """How many databases and versions were copied, and which files of versions are missing."""

    databases: int
    versions: int
    missing: list[str]


def back_up(folder: Path, out: Path) -> Backup:
    """Write the database and its versions to a tar file, atomically; those of all heads, if there are many.

    The copy of a database is a snapshot. The files of its versions were written before their rows, and never change,
    so they can be read afterwards.
    """
    parts = [folder] if (folder / "taer.db").is_file() else _heads(folder)
    if not parts:
        raise ValueError(f"{folder}: not the folder of a service: it has no taer.db, and no head with one")
    if out.exists():
        raise ValueError(f"{out}: is there already; a backup is never written over")
    count, missing = 0, list[str]()
    with (
        tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.", ignore_cleanup_errors=True) as work,
        written_whole(out, sync=True) as partial,
        tarfile.open(partial, "w") as archive,
    ):
        for part in parts:
            place, copy = part.relative_to(folder), Path(work) / "taer.db"
            try:
                versions = copy_database(part / "taer.db", copy)
            except sqlite3.DatabaseError as error:
                raise ValueError(f"{part / 'taer.db'}: cannot be copied: {in_words(error, part)}") from None
            archive.add(copy, str(place / "taer.db"))
            copy.unlink()
            for version in versions:
                if (source := version_file(part, version)).is_file():
                    archive.add(source, str(place / "versions" / source.name))
                    count += 1
                else:
                    missing.append(f"{part}: the file of version {version}")
    return Backup(len(parts), count, missing)


def _heads(folder: Path) -> list[Path]:
    """The heads of a folder of many. A name with a dot is that of a head which is being made or deleted."""
    found = sorted(path.parent for path in folder.glob("*/taer.db"))
    return [head for head in found if not head.name.startswith(".") and not head.is_symlink()]


def copy_database(database: Path, copy: Path) -> list[int]:
    """Copy a database that others may be writing to; returns the versions in the copy."""
    make_private(copy)
    address = f"{database.absolute().as_uri()}?mode=rw"  # never makes one
    with (
        closing(sqlite3.connect(address, uri=True, timeout=30)) as source,
        closing(sqlite3.connect(copy)) as target,
    ):
        source.backup(target)
        target.execute("PRAGMA journal_mode = DELETE")  # one file, without a log beside it
        ((found,), *_) = target.execute("PRAGMA quick_check(1)")
        if found != "ok":
            raise sqlite3.DatabaseError(" ".join(str(found).split()))
        return [version for (version,) in target.execute("SELECT version FROM versions ORDER BY version")]
