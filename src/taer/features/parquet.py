"""Parquet files, measured before they are unpacked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from taer.extras import reason, require
from taer.features.limits import check_unpacked


def open_parquet(path: Path, **options: Any) -> Any:
    """A ``pyarrow.parquet.ParquetFile``."""
    parquet = require("pyarrow.parquet", "text")
    with readable(path):
        return parquet.ParquetFile(path, **options)


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Inside, whatever pyarrow raises for a damaged file is told as ValueError. Pages are read late, so it may be late."""
    try:
        yield
    except Exception as error:  # pyarrow has many error types
        if str(path) in str(error):
            raise
        raise ValueError(f"{path}: not a readable Parquet file ({reason(error)})") from None


def read_table(path: Path, names: Sequence[str]) -> Any:
    """Some columns, or an error if they are far larger in memory than the file."""
    check_parquet(path, names)
    with readable(path):
        return open_parquet(path).read(list(names))


def check_parquet(path: Path, names: Sequence[str]) -> None:
    """Raise if columns are far larger in memory than the file, without unpacking equal cells."""
    with readable(path):
        file = open_parquet(path)
        groups = range(file.metadata.num_row_groups)
        check_unpacked(path, sum(file.metadata.row_group(group).total_byte_size for group in groups))
        for group in groups:  # pyarrow ends the process if asked about a column that a reader would refuse
            next(file.iter_batches(1, row_groups=[group], columns=list(names)), None)
        check_unpacked(path, _declared(file, names))
        texts = [name for name in names if _is_text(file.schema_arrow.field(name).type)]
        if texts:
            check_unpacked(path, _length_of_texts(open_parquet(path, read_dictionary=texts), texts))


def _declared(file: Any, names: Sequence[str]) -> int:
    """Bytes of the values that the file says it has, with equal ones counted once or as numbers of 8 bytes."""
    total = 0
    # pyarrow may end the process if asked about another, damaged column.
    wanted = [
        at for at in range(file.metadata.num_columns) if file.schema.column(at).path.partition(".")[0] in names
    ]
    for group in range(file.metadata.num_row_groups):
        for column in map(file.metadata.row_group(group).column, wanted):
            total += max(column.total_uncompressed_size, 8 * column.num_values)
    return total


def _length_of_texts(file: Any, names: Sequence[str]) -> int:
    """Bytes of all cells, where each different text is in memory only once."""
    import numpy as np

    compute = require("pyarrow.compute", "text")
    total = 0
    for batch in file.iter_batches(columns=list(names)):
        for column in batch.columns:
            if len(column.dictionary):
                lengths = compute.binary_length(column.dictionary).to_numpy(zero_copy_only=False)
                total += int(lengths[np.asarray(column.indices.drop_null())].sum(dtype=np.int64))
    return total


def _is_text(kind: Any) -> bool:
    types = require("pyarrow.types", "text")
    kind = kind.value_type if types.is_dictionary(kind) else kind
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind))
