"""A table of texts and labels: CSV or Parquet."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from taer.extras import require
from taer.features.sources.base import NOTHING, UNLABELED, Part, Source, digest, split_by_name


def open_texts(
    path: Path, text_column: str, label_column: str | None, split_column: str | None, test_fraction: float | None
) -> Source:
    """One item per row. The split column has ``train`` or ``test``; without it a fraction is held out for test.

    A table has no labels if it has no column ``label`` and neither another column nor a split is asked for.
    """
    if (
        label_column is None
        and split_column is None
        and test_fraction is None
        and "label" not in column_names(path)
    ):
        texts = read_columns(path, [text_column])[text_column]
        everything = texts_part(path, texts, np.full(len(texts), UNLABELED, np.int64), np.arange(len(texts)))
        return Source(path.stem, "text", (), NOTHING, everything, digest(text.encode() for text in texts))
    label_column = label_column or "label"
    wanted = [text_column, label_column, *([split_column] if split_column else [])]
    columns = read_columns(path, wanted)
    texts, labels = columns[text_column], columns[label_column]
    classes = sorted(set(labels))
    label_of = {name: label for label, name in enumerate(classes)}
    ids = np.array([label_of[name] for name in labels], np.int64)
    if split_column:
        splits = columns[split_column]
        if strange := sorted(set(splits) - {"train", "test"}):
            raise ValueError(f"{path}: {split_column} must say train or test, got {', '.join(strange[:5])}")
        for_test = np.array([split == "test" for split in splits])
    elif test_fraction is not None:
        for_test = split_by_name(texts, list(ids), test_fraction)
    else:
        raise ValueError(
            f"{path}: which rows are for test? Name the column that says train or test with split_column=NAME, "
            "or set a fraction aside with test_fraction=0.2"
        )
    content = digest(value.encode() for name in wanted for value in columns[name])
    train, test = (texts_part(path, texts, ids, np.flatnonzero(rows)) for rows in (~for_test, for_test))
    return Source(path.stem, "text", tuple(classes), train, test, content)


def texts_part(path: Path | str, texts: Sequence[str], labels: np.ndarray, rows: np.ndarray) -> Part:
    return Part(labels[rows], lambda row: texts[rows[row]], lambda row: f"{path} row {rows[row] + 1}")


def column_names(path: Path) -> list[str]:
    if path.suffix == ".parquet":
        return list(_parquet(path).schema_arrow.names)
    with _csv(path) as reader:
        return list(reader.fieldnames or ())


def read_columns(path: Path, wanted: Sequence[str]) -> dict[str, list[str]]:
    """Columns as text. A missing column or an empty cell raises an error that gives its place."""
    if path.suffix == ".parquet":
        file = _parquet(path)
        _check_columns(path, file.schema_arrow.names, wanted)
        table = {name: file.read([name]).column(0).to_pylist() for name in wanted}
    else:
        table = _read_csv(path, wanted)
    if not table[wanted[0]]:
        raise ValueError(f"{path}: no rows, only a header")
    for name, values in table.items():
        for number, value in enumerate(values, 1):
            if value is None or value == "":
                raise ValueError(f"{path}: row {number} has no {name}")
    return {name: [str(value) for value in values] for name, values in table.items()}


def _parquet(path: Path) -> Any:
    parquet = require("pyarrow.parquet", "text")
    try:
        return parquet.ParquetFile(path)
    except Exception as error:  # pyarrow has many error types
        raise ValueError(f"{path}: not a readable Parquet file ({error})") from None


def _read_csv(path: Path, wanted: Sequence[str]) -> dict[str, list[str]]:
    with _csv(path) as reader:
        _check_columns(path, reader.fieldnames or (), wanted)
        rows = list(reader)
    return {name: [row[name] for row in rows] for name in wanted}


@contextmanager
def _csv(path: Path) -> Iterator[csv.DictReader[str]]:
    with path.open(newline="", encoding="utf-8-sig") as lines:
        reader = csv.DictReader(lines)
        try:
            yield reader
        except csv.Error as error:
            raise ValueError(
                f"{path}: line {reader.line_num + 1}: {error}. A cell may have {csv.field_size_limit():,} characters; "
                "is a quote not closed?"
            ) from None
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: not UTF-8 ({error}); save the table in that encoding") from None


def _check_columns(path: Path, names: Sequence[str], wanted: Sequence[str]) -> None:
    if missing := [name for name in wanted if name not in names]:
        raise ValueError(f"{path}: no column {', '.join(missing)}; it has {', '.join(names) or 'none'}")
