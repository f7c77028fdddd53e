"""A pool of samples without labels: a table of texts, a folder of images, or features."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from taer.cli.inputs import DEFAULTS, Reader, read_features
from taer.cli.progress import counting

if TYPE_CHECKING:
    import numpy as np

    from taer.rows import Rows

LoopModel = Annotated[Path, typer.Argument(help="A saved head: bayes or bayes-replay.")]
PoolArgument = Annotated[
    str,
    typer.Argument(
        metavar="POOL",
        help="Samples without labels: a table of texts (.csv, .parquet), a folder of images, or features.",
    ),
]

_BATCH = 256  # images or texts per call of the extractor


@dataclass(frozen=True)
class Pool:
    """Samples by number: what to show of each, and its features."""

    kind: str  # "text", "image" or "features"
    shown: Sequence[str]  # the text, the path of the image, or the name of the row
    extract: Callable[[Sequence[int]], Any]
    stored: np.ndarray | Rows | None = None  # features that are there already, maybe on disk

    def __len__(self) -> int:
        return len(self.shown)

    def features(self, rows: Sequence[int] | None = None) -> np.ndarray | Rows:
        """The features of some samples, or of all. Those in a file are read in pieces by whoever asks for all."""
        import numpy as np

        if rows is None and self.stored is not None:
            return self.stored
        rows = range(len(self)) if rows is None else rows
        with counting("extracting") as show:
            return np.concatenate(list(self._parts(rows, show)))

    def _parts(self, rows: Sequence[int], show: Callable[[int, int], None]) -> Iterator[np.ndarray]:
        for start in range(0, len(rows), _BATCH):
            show(start, len(rows))
            yield self.extract(rows[start : start + _BATCH])


def read_pool(reader: Reader, place: str) -> Pool:
    """The samples of a table, a folder or a feature file; an input that cannot be read raises before any work."""
    import numpy as np

    from taer.features.sources.folder import images_below, is_image
    from taer.features.sources.texts import read_columns

    path = Path(place)
    if not path.exists():
        raise ValueError(f"{place}: no such file; a pool is a table of texts, a folder of images or features")
    if path.is_file() and (column := reader.column_of_texts(path)):
        return _extracted(reader, "text", place, read_columns(path, [column])[column])
    if images := images_below(path) if path.is_dir() else [path] if is_image(path) else []:
        return _extracted(reader, "image", place, images)
    found = read_features(path, reader.head)
    return Pool("features", found.names, lambda rows: np.asarray(found.X[np.asarray(rows)]), found.X)


def _extracted(reader: Reader, kind: str, place: str, items: Sequence[Any]) -> Pool:
    if not items:
        raise ValueError(f"{place}: no rows, only a header")
    if reader.backbone is None and not hasattr(reader.head, "classes_"):
        reader = replace(reader, backbone=DEFAULTS[kind])
    reader.check_kind(kind, place)
    return Pool(
        kind, [str(item) for item in items], lambda rows: reader.extractor.transform([items[row] for row in rows])
    )
