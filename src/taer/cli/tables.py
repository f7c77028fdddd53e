"""Tables that are read and written some rows at a time, with all their columns: CSV and Parquet."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

ROWS = 256  # in one batch
_MARK = b"\xef\xbb\xbf"  # with which a spreadsheet begins a CSV file in UTF-8, and recognizes one


class Rows(Protocol):
    """Some rows of a table: as lists of cells, or as a record batch of pyarrow."""

    def cells(self) -> list[list[Any]]: ...

    def batch(self) -> Any: ...


@dataclass(frozen=True)
class PlainRows:
    """Rows of texts."""

    names: Sequence[str]
    rows: list[list[str]]

    def cells(self) -> list[list[Any]]:
        return self.rows

    def batch(self) -> Any:
        from taer.extras import require

        arrow = require("pyarrow", "text")
        columns = zip(*self.rows, strict=True)
        return arrow.record_batch(
            [arrow.array(column, arrow.string()) for column in columns], names=list(self.names)
        )


@dataclass(frozen=True)
class ArrowRows:
    """Rows of a Parquet file, with the types of its columns."""

    arrow: Any

    def cells(self) -> list[list[Any]]:
        columns = [column.to_pylist() for column in self.arrow.columns]
        return [["" if cell is None else cell for cell in row] for row in zip(*columns, strict=True)]

    def batch(self) -> Any:
        return self.arrow


@dataclass(frozen=True)
class Table:
    """A CSV or Parquet file with a column of texts."""

    path: Path
    column: str

    @property
    def names(self) -> list[str]:
        from taer.features.sources.texts import column_names

        return column_names(self.path)

    def __len__(self) -> int:
        """Number of rows. A row without a text, or with more cells than the header, raises ValueError."""
        from taer.features.parquet import check_parquet

        if self.path.suffix == ".parquet":
            check_parquet(self.path, self.names)
        count = sum(len(texts) for _, texts in self.batches())
        if not count:
            raise ValueError(f"{self.path}: no rows, only a header")
        return count

    def batches(self, start: int = 0) -> Iterator[tuple[Rows, list[str]]]:
        """Rows and their texts, from row ``start`` on."""
        number = start
        for rows in self._parquet(start) if self.path.suffix == ".parquet" else self._csv(start):
            texts = self._texts(rows)
            for at, text in enumerate(texts, number + 1):
                if text is None or text == "":
                    raise ValueError(f"{self.path}: row {at} has no {self.column}")
            yield rows, [str(text) for text in texts]
            number += len(texts)

    def _texts(self, rows: Rows) -> list[Any]:
        if isinstance(rows, ArrowRows):
            found: list[Any] = rows.arrow.column(self.column).to_pylist()
            return found
        place = self.names.index(self.column)
        return [row[place] for row in rows.cells()]

    def _parquet(self, start: int) -> Iterator[Rows]:
        from taer.features.parquet import open_parquet

        skip = start
        for batch in open_parquet(self.path).iter_batches(batch_size=ROWS):
            if skip < len(batch):
                yield ArrowRows(batch.slice(skip))
            skip = max(0, skip - len(batch))

    def _csv(self, start: int) -> Iterator[Rows]:
        from taer.features.sources.texts import open_csv, separator

        mark = separator(self.path)
        with open_csv(self.path) as lines:
            reader = csv.reader(lines, delimiter=mark)
            names = next(reader)
            everything = (self._fitted(row, reader.line_num, len(names)) for row in reader if row)
            rows = islice(everything, start, None)
            while batch := list(islice(rows, ROWS)):
                yield PlainRows(names, batch)

    def _fitted(self, row: list[str], line: int, width: int) -> list[str]:
        if len(row) > width:
            raise ValueError(
                f"{self.path}: line {line} has {len(row)} cells, and the header {width}; is one not quoted?"
            )
        return row + [""] * (width - len(row))


@dataclass(frozen=True)
class Column:
    """A new column: its name, and the type in a Parquet file."""

    name: str
    kind: str


Write = Callable[[Rows, list[list[Any]]], None]


@contextmanager
def writer(path: Path, like: Path, new: Sequence[Column], cell: Callable[[Any], Any]) -> Iterator[Write]:
    """Inside, a function that writes rows with the values of the new columns. ``cell`` is applied to cells of CSV."""
    from taer.files import written_whole

    with written_whole(path, sync=True) as partial:
        yield from (_to_parquet(partial, new) if path.suffix == ".parquet" else _to_csv(partial, like, new, cell))


def _to_csv(path: Path, like: Path, new: Sequence[Column], cell: Callable[[Any], Any]) -> Iterator[Write]:
    from taer.features.sources.texts import separator

    mark = separator(like) if like.suffix == ".csv" and like.is_file() else ","
    with path.open("w", newline="", encoding="utf-8-sig" if _is_marked(like) else "utf-8") as file:
        table = csv.writer(file, delimiter=mark, lineterminator="\n")
        is_first = True

        def write(rows: Rows, values: list[list[Any]]) -> None:
            nonlocal is_first
            if is_first:
                names = rows.names if isinstance(rows, PlainRows) else rows.batch().schema.names
                table.writerow([cell(name) for name in (*names, *(column.name for column in new))])
                is_first = False
            for row, added in zip(rows.cells(), values, strict=True):
                table.writerow([cell(_shown(it)) for it in (*row, *added)])

        yield write


def _is_marked(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(3) == _MARK


def _shown(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else value


def _to_parquet(path: Path, new: Sequence[Column]) -> Iterator[Write]:
    from taer.extras import require

    arrow, parquet = require("pyarrow", "text"), require("pyarrow.parquet", "text")
    out: Any = None

    def write(rows: Rows, values: list[list[Any]]) -> None:
        nonlocal out
        batch = rows.batch()
        fields = [*batch.schema, *(arrow.field(column.name, arrow.type_for_alias(column.kind)) for column in new)]
        added = [
            arrow.array(column, field.type)
            for column, field in zip(zip(*values, strict=True), fields[-len(new) :], strict=True)
        ]
        schema = arrow.schema(fields, metadata=_without_pandas(batch.schema.metadata))
        out = out or parquet.ParquetWriter(path, schema)
        out.write_batch(arrow.record_batch([*batch.columns, *added], schema=schema))

    try:
        yield write
    finally:
        if out is not None:
            out.close()


def _without_pandas(metadata: Any) -> Any:
    """The metadata without what pandas noted of the columns, which are more now."""
    return {key: value for key, value in (metadata or {}).items() if key != b"pandas"}
