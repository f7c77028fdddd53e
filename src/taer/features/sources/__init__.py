"""Sources of images and texts: named data sets, folders, tables, the Hugging Face hub."""

from __future__ import annotations

import os
from pathlib import Path

from taer.features.sources.base import Part, Source
from taer.features.sources.cifar100 import open_cifar100
from taer.features.sources.core50 import open_core50
from taer.features.sources.cub200 import open_cub200
from taer.features.sources.folder import open_folder
from taer.features.sources.hub import open_hub
from taer.features.sources.texts import open_texts

__all__ = ["Part", "Source", "open_source"]

_NAMED = {"cifar100": open_cifar100, "cub200": open_cub200, "core50": open_core50}


def open_source(
    source: str | os.PathLike[str],
    *,
    root: str | os.PathLike[str] | None = None,
    test_fraction: float | None = None,
    text_column: str | None = None,
    label_column: str | None = None,
    split_column: str | None = None,
) -> Source:
    """Open a data set; see :func:`taer.extract` for the names."""
    name = os.fspath(source)
    if name in _NAMED:
        where = None if root is None else Path(root)
        if where is not None and not where.exists():
            raise ValueError(f"{where}: no such file or folder")
        return _NAMED[name](where)
    if root is not None:
        raise ValueError(f"a root is where a named data set is ({', '.join(_NAMED)}); {name} is not one")
    if name.startswith("hf:"):
        return open_hub(name.removeprefix("hf:"), text_column, label_column)
    path = Path(name)
    if path.is_dir():
        return open_folder(path, test_fraction)
    if path.is_file() and path.suffix in (".csv", ".parquet"):
        return open_texts(path, text_column or "text", label_column, split_column, test_fraction)
    raise ValueError(
        f"{name}: not a data set. Expected {', '.join(_NAMED)}, a folder of images, "
        "a .csv or .parquet table of texts, or hf:owner/name"
    )
