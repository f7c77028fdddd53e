"""The folder of many heads: their names, and how one is made, copied and deleted.

Each head is a folder as ``taer serve`` has it, directly below. A head is made beside its place and renamed, and deleted
the other way round, so that a crash leaves a whole head or none; the next start removes the rest.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from taer.answers import HeadEntry
from taer.files import make_folder, to_disk, written_whole
from taer.serve.backup import copy_database
from taer.serve.database import storage_failures
from taer.serve.inputs import BadInput
from taer.serve.published import publish
from taer.serve.serving import Conflict, Serving
from taer.serve.store import Store, version_file

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_EMPTY = Serving.of(0, None, None)
_REST = re.compile(r"\.[A-Za-z0-9][\w-]*\.\w+\.(partial|gone)")


class Folder:
    """A folder of heads."""

    def __init__(self, path: Path) -> None:
        make_folder(path)
        self.path = path
        if (path / "taer.db").exists():
            raise ValueError(
                f"{path}: is the folder of one head; serve it without --many, or serve the one above it"
            )

    def tidy(self) -> None:
        """Remove heads that a crash left unfinished or half deleted."""
        for name in os.listdir(self.path):
            if _REST.fullmatch(name):
                shutil.rmtree(self.path / name, ignore_errors=True)

    def names(self) -> list[str]:
        return sorted(name for name in os.listdir(self.path) if name in self)

    def __contains__(self, name: str) -> bool:
        """Whether there is such a head. What is no name is no head, wherever it would lead."""
        if not NAME.fullmatch(name):
            return False
        place = self.path / name
        return not place.is_symlink() and (place / "taer.db").is_file()

    def __getitem__(self, name: str) -> Path:
        assert NAME.fullmatch(name)
        return self.path / name

    def check_free(self, name: str) -> None:
        """Raise unless a head can have this name."""
        if not NAME.fullmatch(name):
            raise BadInput(
                "name: expected 1 to 64 letters of a to z, digits, - and _, with a letter or digit first"
            )
        if name in self:
            raise Conflict(f"there is a head {name} already")
        if os.path.lexists(self.path / name):
            raise Conflict(f"{name}: there is a file or folder of this name that is not a head; take another name")

    def make(self, name: str, source: Path | None = None, serving: Serving = _EMPTY) -> None:
        """Make a head: an empty one, or a copy of another that is not changing. Tokens and the inbox are not copied.

        ``serving`` is the version that answers, which replicas can follow at once. Raises StorageFailed, and then nothing
        was changed.
        """
        with (
            storage_failures("nothing was changed", self.path),
            written_whole(self.path / name, sync=True) as made,
        ):
            shutil.rmtree(made, ignore_errors=True)
            if source is not None:
                _copy(source, made)
            with closing(Store(made)) as store:
                publish(store, serving, name)

    def remove(self, name: str) -> None:
        """Delete a head for good. Raises StorageFailed, and then nothing was changed."""
        place, gone = self.path / name, self.path / f".{name}.{secrets.token_hex(8)}.gone"
        with storage_failures("nothing was changed", self.path):
            os.rename(place, gone)
            try:
                to_disk(self.path)
            except OSError:
                with suppress(OSError):
                    os.rename(gone, place)
                raise
        shutil.rmtree(gone, ignore_errors=True)

    def entry(self, name: str) -> HeadEntry:
        """What can be told of a head without loading it."""
        classes, version, waiting = 0, 0, 0
        try:
            address = f"{(self.path / name / 'taer.db').absolute().as_uri()}?mode=rw"
            with closing(sqlite3.connect(address, uri=True, timeout=5)) as db:
                ((version,),) = db.execute("SELECT version FROM current")
                ((waiting,),) = db.execute("SELECT count(*) FROM examples WHERE version IS NULL")
                for (report,) in db.execute("SELECT report FROM versions WHERE version = ?", (version,)):
                    classes = json.loads(report)["classes"]
        except (sqlite3.Error, ValueError, KeyError):  # asking the head itself tells why
            return {"name": name, "version": None, "classes": None, "waiting": None, "loaded": False}
        return {"name": name, "version": version, "classes": classes, "waiting": waiting, "loaded": False}


def _copy(source: Path, target: Path) -> None:
    (target / "versions").mkdir(parents=True)
    for version in copy_database(source / "taer.db", target / "taer.db"):
        shutil.copyfile(version_file(source, version), version_file(target, version))
    with closing(sqlite3.connect(target / "taer.db")) as db:
        db.execute("PRAGMA secure_delete = ON")
        for table in ("inbox", "answers"):  # what others sent to the head that was copied
            db.execute(f"DELETE FROM {table}")
        db.commit()
    for path in target.rglob("*"):
        to_disk(path)
