"""Reading the inputs of a command: feature files, images, tables of texts, texts, stdin."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taer.cli.parameters import with_options

if TYPE_CHECKING:
    import numpy as np

    from taer.features.extractor import Extractor
    from taer.heads import Head
    from taer.origin import Origin
    from taer.rows import Rows

DEFAULTS = {"text": "minilm", "image": "efficientnet-lite0"}  # backbones of a new head; both come with their extra
_ITEMS = 256  # images or texts per call of the extractor
_ROWS = 1024  # samples per call of predict
_SUFFIX = re.compile(r"\.[A-Za-z]\w{0,9}", re.ASCII)
_FEATURES = (".safetensors", ".npz", ".npy", ".parquet")


@dataclass(frozen=True)
class Samples:
    """Features of some samples, the names to print for them, their true classes if known, and the texts of a table."""

    names: Sequence[str]
    X: np.ndarray | Rows
    truth: Sequence[str] | None = None
    texts: Mapping[str, str] = field(default_factory=dict)  # by name

    def parts(self) -> Iterator[Samples]:
        """The same samples in batches small enough to fit into memory with their predictions."""
        for at in range(0, len(self.names), _ROWS):
            rows = slice(at, at + _ROWS)
            truth = None if self.truth is None else self.truth[rows]
            yield Samples(self.names[rows], self.X[rows], truth, self.texts)


def backbone_of(head: Head) -> str:
    """The backbone that a head remembers."""
    remembered: Origin | None = getattr(head, "feature_origin_", None)
    if remembered is None:
        raise ValueError(
            "the head does not know its backbone: the features it learned did not name one; say it with --backbone"
        )
    return remembered.backbone


@contextmanager
def where_it_is(*, remembered: bool) -> Iterator[None]:
    """Inside, an error about a backbone names the options, and says if it is one that the head remembers."""
    try:
        yield
    except ValueError as error:
        message = with_options(str(error))
        if remembered:
            message = f"the head's backbone is not here ({message}); say where it is with --backbone or --weights"
        raise ValueError(message) from None


@dataclass(frozen=True)
class Reader:
    """Turns inputs into features for a head. The backbone is loaded when the first input needs it."""

    head: Head
    backbone: str | None = None
    weights: Path | None = None
    text_column: str | None = None  # "text", unless given

    @cached_property
    def extractor(self) -> Extractor:
        from taer.features.extractor import Extractor

        extractor = Extractor(self.backbone or backbone_of(self.head), weights=self.weights)
        with where_it_is(remembered=self.backbone is None):
            found = extractor.origin_
        self.head._check_origin(found)
        return extractor

    def samples(self, inputs: Sequence[str]) -> Iterator[Samples]:
        """The samples of all inputs, in batches. A missing input raises before any input is read."""
        for read in [self._reading(argument) for argument in inputs]:
            for samples in read():
                yield from samples.parts()

    def _reading(self, argument: str) -> Callable[[], Iterator[Samples]]:
        path = Path(argument)
        if argument == "-":
            return self._stdin
        if path.is_dir():
            return partial(self._folder, path)
        if path.is_file():
            return partial(self._file, path)
        if "/" in argument or _SUFFIX.fullmatch(path.suffix):
            raise ValueError(f"{argument}: no such file; a text that looks like a path can come from stdin (-)")
        return partial(self._extracted, "text", [(argument, argument)])

    def _stdin(self) -> Iterator[Samples]:
        """One text per line or one image, depending on the backbone; rows of numbers if the head has no backbone."""
        if self.backbone is None and not hasattr(self.head, "feature_origin_"):
            yield _matrix("-", sys.stdin)
        elif self.extractor.kind == "image":
            yield from self._extracted("image", [("-", sys.stdin.buffer.read())])
        else:
            lines = (line.rstrip("\r\n") for line in sys.stdin)
            yield from self._extracted("text", ((line, line) for line in lines if line.strip()))

    def _folder(self, folder: Path) -> Iterator[Samples]:
        from taer.features.sources.folder import images_below

        if images := images_below(folder):
            yield from self._extracted("image", [(str(path), path) for path in images])
        else:
            yield read_features(folder, self.head)

    def _file(self, path: Path) -> Iterator[Samples]:
        from taer.features.sources.folder import is_image
        from taer.features.sources.texts import read_columns

        if is_image(path):
            yield from self._extracted("image", [(str(path), path)])
        elif column := self.column_of_texts(path):
            texts = read_columns(path, [column])[column]
            rows = [(f"{path} row {number}", text) for number, text in enumerate(texts, 1)]
            yield from self._extracted("text", rows)
        else:
            yield read_features(path, self.head)

    def column_of_texts(self, path: Path) -> str | None:
        """The column of a table with the texts; None if the file is not a table of texts."""
        from taer.features.sources.texts import check_columns, column_names

        if path.suffix not in (".csv", ".parquet"):
            return None
        names = column_names(path)
        if self.text_column is not None:
            check_columns(path, names, [self.text_column])
        return self.text_column or ("text" if "text" in names else None)

    def check_kind(self, kind: str, name: str) -> None:
        """Raise if the backbone of the head reads something else."""
        if kind != self.extractor.kind:
            raise ValueError(f"{name}: the head reads {self.extractor.kind}s, and this is of {kind}s")

    def _extracted(self, kind: str, items: Iterable[tuple[str, Any]]) -> Iterator[Samples]:
        """Features of named images or texts."""
        items = iter(items)
        while batch := list(islice(items, _ITEMS)):
            if kind == "text" and kind != self.extractor.kind and batch[0][0] == batch[0][1]:
                raise ValueError(
                    f"{batch[0][0]!r}: neither a file nor a folder, and the head reads {self.extractor.kind}s"
                )
            self.check_kind(kind, batch[0][0])
            names, X = [name for name, _ in batch], self.extractor.transform([item for _, item in batch])
            yield Samples(names, X, texts=dict(batch) if kind == "text" else {})


def read_features(path: Path, head: Head) -> Samples:
    """The test samples of a feature file, or the rows of a matrix. Features of another backbone raise an error."""
    from taer.features import load_features
    from taer.features.arrays import open_npy
    from taer.features.files import read_inputs
    from taer.features.sources.texts import separator

    if not path.exists():
        raise ValueError(f"{path}: no such file")
    if path.suffix == ".csv":
        mark = separator(path)
        with path.open(newline="", encoding="utf-8-sig") as lines:
            return _matrix(str(path), lines, mark)
    if path.suffix == ".npy":
        X = open_npy(path)
        return Samples([f"{path} row {row + 1}" for row in range(len(X))], X)
    if not path.is_dir() and path.suffix not in _FEATURES:
        raise ValueError(
            f"{path}: expected an image, a table (.csv, .parquet) or features ({', '.join(_FEATURES)}), by its suffix"
        )
    data = load_features(path, labeled=False)
    head._check_origin(data.origin)
    if not len(data.test_y):
        raise ValueError(f"{path}: has no test samples to predict, only training samples")
    truth = [data.classes[label] for label in data.test_y] if data.classes else None
    return Samples(read_inputs(path, "test", len(data.test_y)), data.test_x, truth)


def _matrix(name: str, lines: Iterable[str], separator: str = ",") -> Samples:
    """Rows of numbers; the first line may be a header."""
    import numpy as np

    rows = [row for row in csv.reader(lines, delimiter=separator) if row]
    header = rows.pop(0) if rows and not _is_number(rows[0][0]) else []
    try:
        X = np.array(rows, np.float32)
    except ValueError as error:
        raise ValueError(
            f"{name}: no column text, and not rows of numbers ({error}); name the column of the texts with --text-column "
            f"(it has {', '.join(header) or 'no header'})"
        ) from None
    if X.ndim != 2:
        raise ValueError(f"{name}: not rows of numbers: there are none")
    return Samples([f"{name} row {row + 1}" for row in range(len(X))], X)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
