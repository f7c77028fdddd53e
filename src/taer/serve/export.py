"""All examples of a service as a table: CSV or Parquet, from its folder or over HTTP, row by row."""

from __future__ import annotations

import csv
import io
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from taer.extras import require
from taer.files import written_whole
from taer.serve.database import LINEAGE, SCHEMA, TAUGHT, StorageFailed, in_words

_BATCH = 256  # rows in memory at a time


@dataclass(frozen=True)
class Row:
    """One example. ``image`` is where its image is, relative to the table."""

    id: int
    label: str
    state: str  # waiting, learned or held out
    version: int | None  # the one that learned it, None while it waits
    added: str
    kind: str  # vector, text or image
    text: str | None
    image: str | None


class Snapshot:
    """The examples that wait or belong to the current version, as of one moment; others may go on writing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        database = folder / "taer.db"
        if not database.is_file():
            raise ValueError(f"{folder}: not the folder of a service: it has no taer.db")
        with self._failures():
            address = f"{database.absolute().as_uri()}?mode=rw"  # never makes one; a reader of the log may write
            self._db = sqlite3.connect(address, uri=True, timeout=30, isolation_level=None, check_same_thread=False)
            self._begin()

    def _begin(self) -> None:
        ((schema,),) = self._db.execute("PRAGMA user_version")
        if schema != SCHEMA:
            self._db.close()
            raise ValueError(
                f"{self._folder}: made by another version of taer (its database has schema {schema}, this version "
                f"reads {SCHEMA}); export it with the version that made it"
            )
        self._db.execute("BEGIN")
        ((self._current,),) = self._db.execute("SELECT version FROM current")
        lineage = self._db.execute(f"{LINEAGE} SELECT version FROM lineage", (self._current,))
        self._lineage = ", ".join(str(version) for (version,) in lineage)

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StorageFailed(f"{self._folder}: cannot be exported: {in_words(error, self._folder)}") from error

    def rows(self, images: str) -> Iterator[Row]:
        """All rows, in order of arrival; ``images`` is where images are, such as ``examples/{}``."""
        columns = "id, label, version, held_back, added, typeof(source)"
        query = f"""{TAUGHT} SELECT {columns} FROM taught
            UNION ALL SELECT {columns} FROM examples WHERE version IS NULL ORDER BY id"""
        with self._failures():
            for number, label, version, held_back, added, form in self._db.execute(
                query, (self._current,)
            ).fetchall():
                kind = {"null": "vector", "text": "text", "blob": "image"}[form]
                yield Row(
                    number,
                    label,
                    "waiting" if version is None else "held out" if held_back else "learned",
                    version,
                    added,
                    kind,
                    self.source(number) if kind == "text" else None,
                    images.format(number) if kind == "image" else None,
                )

    def source(self, number: int) -> Any:
        """The text or the image of an example."""
        with self._failures():
            ((found,),) = self._db.execute("SELECT source FROM examples WHERE id = ?", (number,))
        return found

    def vector(self, number: int) -> np.ndarray:
        """The features of an example, as the current version sees it."""
        moved = f"""SELECT x FROM edits WHERE example = ? AND x IS NOT NULL AND version IN ({self._lineage})
            ORDER BY version DESC LIMIT 1"""
        with self._failures():
            query = f"SELECT coalesce(({moved}), x) FROM examples WHERE id = ?"
            ((found,),) = self._db.execute(query, (number, number))
        return np.frombuffer(found, np.float32)


def as_csv(rows: Iterable[Row]) -> Iterator[str]:
    """The table as CSV, in pieces of some rows."""
    yield _lines([Row.__dataclass_fields__])
    for some in _batches(rows):
        yield _lines(asdict(row).values() for row in some)


def _lines(rows: Iterable[Iterable[Any]]) -> str:
    file = io.StringIO(newline="")
    csv.writer(file).writerows(rows)
    return file.getvalue()


def _batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    rest = iter(rows)
    while some := list(islice(rest, _BATCH)):
        yield some


@dataclass(frozen=True)
class Exported:
    """How many examples were written, how many came as vectors, and the folder of the images, if there are any."""

    examples: int
    vectors: int
    images: Path | None


def export(folder: Path, out: Path) -> Exported:
    """Write all examples of a service, which may be running, to ``out.csv`` or ``out.parquet``, atomically.

    Images become files in a folder beside the table. Only Parquet has the vectors.
    """
    if out.suffix not in (".csv", ".parquet"):
        raise ValueError(f"{out}: expected a name that ends in .csv or .parquet")
    pictures = out.with_name(f"{out.stem}-images")
    for path in (out, pictures):
        if path.exists():
            raise ValueError(f"{path}: is there already; an export is never written over")
    counts = Counter[str]()
    with closing(Snapshot(folder)) as snapshot, ExitStack() as files:
        partial = files.enter_context(written_whole(out, sync=True))

        def rows() -> Iterator[Row]:
            for row in snapshot.rows(f"{pictures.name}/{{}}.jpg"):
                if row.image:
                    if not counts["image"]:
                        place = files.enter_context(written_whole(pictures))
                        place.mkdir()
                    (place / f"{row.id}.jpg").write_bytes(snapshot.source(row.id))
                counts[row.kind] += 1
                yield row

        if out.suffix == ".csv":
            with partial.open("w", encoding="utf-8", newline="") as file:
                file.writelines(as_csv(rows()))
        else:
            _write_parquet(snapshot, rows(), partial)
    return Exported(counts.total(), counts["vector"], pictures if counts["image"] else None)


def _write_parquet(snapshot: Snapshot, rows: Iterable[Row], path: Path) -> None:
    arrow, parquet = require("pyarrow", "text"), require("pyarrow.parquet", "text")
    texts = {name: arrow.string() for name in ("label", "state", "added", "kind", "text", "image")}
    types = {name: texts.get(name, arrow.int64()) for name in Row.__dataclass_fields__}
    schema = arrow.schema([*types.items(), ("vector", arrow.list_(arrow.float32()))])
    with parquet.ParquetWriter(path, schema) as writer:
        for some in _batches(rows):
            table = [asdict(row) | {"vector": snapshot.vector(row.id)} for row in some]
            writer.write_table(arrow.Table.from_pylist(table, schema))
