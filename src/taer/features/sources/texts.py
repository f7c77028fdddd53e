"""A table of texts and labels: CSV or Parquet."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import numpy as np

from taer.features.parquet import open_parquet, read_table
from taer.features.sources.base import NOTHING, UNLABELED, Part, Source, digest, split_by_name

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}  # of the cells of a CSV file
_SPLIT = "split"  # the column of the split, if no other is named
_ASKED = {"label", "guess", "row"}  # columns of a table of 'taer next', in which a user may skip rows


def open_texts(
    path: Path, text_column: str, label_column: str | None, split_column: str | None, test_fraction: float | None
) -> Source:
    """One item per row. Test samples are those with ``test`` in the split column, or a fraction, or none.

    A table without a column ``label`` has no labels, unless another column, a split or a fraction is given.
    """
    names = column_names(path)
    if label_column is None and split_column is None and test_fraction is None and "label" not in names:
        texts = read_columns(path, [text_column])[text_column]
        everything = texts_part(path, texts, np.full(len(texts), UNLABELED, np.int64), np.arange(len(texts)))
        return Source(path.stem, "text", (), NOTHING, everything, digest(text.encode() for text in texts))
    label_column = label_column or "label"
    if split_column is None and test_fraction is None and _SPLIT in names:
        split_column = _SPLIT
    wanted = [text_column, label_column, *([split_column] if split_column else [])]
    columns = read_columns(path, wanted, label_column)
    texts, labels = columns[text_column], columns[label_column]
    skipped = np.array([not name for name in labels])
    classes = sorted(set(labels) - {""})
    label_of = {name: label for label, name in enumerate(classes)} | {"": UNLABELED}
    ids = np.array([label_of[name] for name in labels], np.int64)
    if split_column:
        for_test = _for_test(path, split_column, columns[split_column])
    else:
        for_test = split_by_name(texts, list(ids), test_fraction or 0)
    content = digest([for_test.tobytes(), *(value.encode() for name in wanted for value in columns[name])])
    train, test = (texts_part(path, texts, ids, np.flatnonzero(rows & ~skipped)) for rows in (~for_test, for_test))
    return Source(path.stem, "text", tuple(classes), train, test, content, skipped=int(skipped.sum()))


def _for_test(path: Path, column: str, splits: Sequence[str]) -> np.ndarray:
    """A mask of the test rows, from a column with ``train`` and ``test``."""
    if strange := sorted(set(splits) - {"train", "test"}):
        raise ValueError(
            f"{path}: {column} must say train or test, got {', '.join(strange[:5])}; another column may say it "
            "(split_column=NAME), and with test_fraction=0 all rows are for training"
        )
    return np.array([split == "test" for split in splits])


def texts_part(path: Path | str, texts: Sequence[str], labels: np.ndarray, rows: np.ndarray) -> Part:
    return Part(
        labels[rows],
        lambda row: texts[rows[row]],
        lambda row: f"{path} row {rows[row] + 1}",
        lambda row: hashlib.sha256(texts[rows[row]].encode()).digest(),
    )


def column_names(path: Path) -> list[str]:
    if path.suffix == ".parquet":
        return list(open_parquet(path).schema_arrow.names)
    with _csv(path) as reader:
        return list(reader.fieldnames or ())


def read_columns(path: Path, wanted: Sequence[str], labels: str | None = None) -> dict[str, list[str]]:
    """Columns as text. A missing column or an empty cell raises an error that gives its place.

    In a table of 'taer next', cells of the column ``labels`` may be empty, but not all.
    """
    names = column_names(path)
    if path.suffix == ".parquet":
        check_columns(path, names, wanted)
        columns = read_table(path, wanted)
        table = {name: columns[name].to_pylist() for name in wanted}
    else:
        table = _read_csv(path, wanted)
    if not table[wanted[0]]:
        raise ValueError(f"{path}: no rows, only a header")
    for name, values in table.items():
        if name == labels and set(names) >= _ASKED:
            table[name] = values = [(value or "").strip() for value in values]
            if not any(values):
                raise ValueError(f"{path}: no row has a label yet; fill in the column {name}")
            continue
        for number, value in enumerate(values, 1):
            if value is None or value == "":
                raise ValueError(f"{path}: row {number} has no {name}")
    return {name: [str(value) for value in values] for name, values in table.items()}


def _read_csv(path: Path, wanted: Sequence[str]) -> dict[str, list[str]]:
    with _csv(path) as reader:
        check_columns(path, reader.fieldnames or (), wanted)
        rows = list(reader)
    return {name: [row[name] for row in rows] for name in wanted}


@contextmanager
def open_csv(path: Path) -> Iterator[TextIO]:
    """The lines of a CSV file. Inside, a cell or a character that cannot be read raises ValueError with its place."""
    with path.open(newline="", encoding="utf-8-sig") as lines:
        try:
            yield lines
        except csv.Error as error:
            raise ValueError(
                f"{path}: {error}. A cell may have {csv.field_size_limit():,} characters; is a quote not closed?"
            ) from None
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: not UTF-8 ({error}); save the table in that encoding") from None


def separator(path: Path) -> str:
    """What separates the cells of a CSV file, by its first line: a comma, unless only ``;`` or a tab divides it."""
    with open_csv(path) as lines:
        head = lines.readline()
        cells = {mark: len(next(csv.reader([head], delimiter=mark), [])) for mark in SEPARATORS}
    return "," if cells[","] > 1 else max(SEPARATORS, key=lambda mark: cells[mark])


@contextmanager
def _csv(path: Path) -> Iterator[csv.DictReader[str]]:
    mark = separator(path)
    with open_csv(path) as lines:
        reader = csv.DictReader(lines, delimiter=mark)
        try:
            yield reader
        except csv.Error as error:
            raise csv.Error(f"line {reader.line_num + 1}: {error}") from None


def check_columns(path: Path, names: Sequence[str], wanted: Sequence[str]) -> None:
    """Raise ValueError for a column that is missing, with those that are there."""
    if missing := [name for name in wanted if name not in names]:
        columns = ", ".join(names) or "none"
        if path.suffix == ".csv" and len(names) == 1:
            columns += " (cells are separated by commas, semicolons or tabs)"
        elif path.suffix == ".csv" and (mark := separator(path)) != ",":
            columns += f" (cells separated by {SEPARATORS[mark]})"
        raise ValueError(f"{path}: no column {', '.join(missing)}; it has {columns}")
