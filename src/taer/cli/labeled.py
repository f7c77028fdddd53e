"""``taer predict --out``: a table with the columns of the user, and the answers of a head after them.

Answers are kept in ``OUT.parts``, one line per row, until the table is complete. So an interrupted command goes on
where it stopped, and a table may be larger than memory.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taer.cli.answers import Answer, answers, pair_names
from taer.cli.inputs import Reader, read_features
from taer.cli.progress import counting
from taer.cli.tables import ROWS, Column, PlainRows, Rows, Table, writer

if TYPE_CHECKING:
    import numpy as np

_SUFFIXES = (".csv", ".parquet")


@dataclass(frozen=True)
class Labeling:
    """What is to be written, and how."""

    model: Path
    reader: Reader
    out: Path
    prefix: str
    unknown: str | None
    top: int | None
    cell: Callable[[Any], Any]  # applied to every cell of CSV
    automate: bool = False  # whether there is a column for what needs no person

    @property
    def new(self) -> list[Column]:
        """The new columns, in this order."""
        is_number = self.unknown is None and self.reader.head.classes_.dtype.kind == "i"
        label = "int64" if is_number else "string"
        kinds = {"label": label, "probability": "double", "novelty": "double", "unknown": "bool"}
        kinds |= {"automatic": "bool"} if self.automate else {}
        kinds |= {name: label if name.startswith("label") else "double" for name in pair_names(self.top or 0)}
        return [Column(f"{self.prefix}{name}", kind) for name, kind in kinds.items()]

    def rows(self, X: np.ndarray) -> list[list[Any]]:
        """The values of the new columns for some samples."""
        found = answers(self.reader.head, [""] * len(X), X, self.top or 1, self.unknown, self.automate)
        return [self._values(each) for each in found]

    def is_unknown(self, values: list[Any]) -> bool | None:
        """Whether a sample is unknown; None if the head has no threshold."""
        return bool(values[3]) if hasattr(self.reader.head, "threshold_") else None

    def _values(self, answer: Answer) -> list[Any]:
        is_number = self.new[0].kind == "int64"
        pairs = [(label, short(value)) for label, value in answer.probabilities.items()] if self.top else []
        found = [answer.label, short(answer.probability), short(answer.novelty), answer.unknown]
        found += [answer.automatic] if self.automate else []
        texts = {0, *range(len(found), len(found) + 2 * len(pairs), 2)}
        found += [value for pair in pairs for value in pair]
        return [str(value) if at in texts and not is_number else value for at, value in enumerate(found)]


def short(value: float) -> float:
    """Six digits: those after them differ between machines."""
    return float(f"{value:.6g}")


@dataclass(frozen=True)
class Samples:
    """The rows of the one input, and the features of each batch of them."""

    names: Sequence[str]
    count: int
    content: str  # a hash
    like: Path
    batches: Callable[[int], Iterator[tuple[Rows, Callable[[], np.ndarray]]]]  # from a row on


def label_table(job: Labeling, inputs: Sequence[str]) -> str:
    """Write the table, and return a sentence about it."""
    if job.out.suffix not in _SUFFIXES:
        raise ValueError(f"--out {job.out}: expected a name that ends in {' or '.join(_SUFFIXES)}")
    if len(inputs) != 1:
        raise ValueError(f"--out takes one table, folder of images or feature file, got {len(inputs)} inputs")
    samples = _samples(job.reader, inputs[0])
    _check_names(job, inputs[0], samples.names)
    parts = Path(f"{job.out}.parts")
    with counting("predicting") as show:
        _predict(job, samples, parts, show)
    novel, asked = _assemble(job, samples, parts)
    parts.unlink()
    unknown = "" if novel is None else f", {novel:,} of them unknown"
    person = "" if asked is None else f", {asked:,} for a person"
    return f"{job.out}: {samples.count:,} rows labeled{unknown}{person}"


def _samples(reader: Reader, argument: str) -> Samples:
    from taer.features.sources.folder import images_below, is_image

    path = Path(argument)
    if not path.exists():
        raise ValueError(f"{argument}: no such file; --out takes a table of texts, a folder of images or features")
    if path.is_file() and (column := reader.column_of_texts(path)):
        return _of_table(reader, Table(path, column))
    images = images_below(path) if path.is_dir() else [path] if is_image(path) else []
    return _of_images(reader, path, images) if images else _of_features(reader, path)


def _of_table(reader: Reader, table: Table) -> Samples:
    reader.check_kind("text", str(table.path))

    def batches(start: int) -> Iterator[tuple[Rows, Callable[[], np.ndarray]]]:
        for rows, texts in table.batches(start):
            yield rows, lambda texts=texts: reader.extractor.transform(texts)  # type: ignore[misc]

    with table.path.open("rb") as file:
        content = hashlib.file_digest(file, "sha256").hexdigest()
    return Samples(table.names, len(table), f"{content} {table.column}", table.path, batches)


def _of_images(reader: Reader, path: Path, images: list[Path]) -> Samples:
    reader.check_kind("image", str(path))

    def batches(start: int) -> Iterator[tuple[Rows, Callable[[], np.ndarray]]]:
        for at in range(start, len(images), ROWS):
            some = images[at : at + ROWS]
            yield _named(map(str, some)), lambda some=some: reader.extractor.transform(some)  # type: ignore[misc]

    content = json.dumps([[str(image), image.stat().st_size, image.stat().st_mtime_ns] for image in images])
    return Samples(["input"], len(images), content, path, batches)


def _of_features(reader: Reader, path: Path) -> Samples:
    found = read_features(path, reader.head)

    def batches(start: int) -> Iterator[tuple[Rows, Callable[[], np.ndarray]]]:
        for at in range(start, len(found.names), ROWS):
            yield _named(found.names[at : at + ROWS]), lambda at=at: found.X[at : at + ROWS]  # type: ignore[misc]

    state = path.stat()
    return Samples(["input"], len(found.names), f"{path} {state.st_size} {state.st_mtime_ns}", path, batches)


def _named(names: Any) -> PlainRows:
    return PlainRows(["input"], [[name] for name in names])


def _check_names(job: Labeling, argument: str, names: Sequence[str]) -> None:
    """Raise if a new column has the name of another, or if a file that is no earlier answer would be lost."""
    from taer.features.sources.texts import column_names

    new = [column.name for column in job.new]
    if taken := [name for name in new if name in names]:
        raise ValueError(
            f"{argument}: already has a column {', '.join(taken)}; choose other names with --prefix, "
            f"such as --prefix new_ for new_{taken[0].removeprefix(job.prefix)}"
        )
    if job.out.exists() and (
        job.out.samefile(argument) or not set(new[:4]) <= set(column_names(job.out) if job.out.is_file() else ())
    ):
        raise ValueError(f"{job.out}: exists and is not a table of earlier answers; name another file")


def _predict(job: Labeling, samples: Samples, parts: Path, show: Callable[[int, int], None]) -> None:
    """Write the answers of all rows to ``parts``, after those that are there."""
    key = json.dumps(_key(job, samples))
    done = _finished(parts, key)
    show(done, samples.count)
    with parts.open("a" if done else "w", encoding="utf-8") as file:
        if not done:
            file.write(f"{key}\n")
        for _, features in samples.batches(done) if done < samples.count else ():
            found = job.rows(features())
            file.writelines(f"{json.dumps(values)}\n" for values in found)
            file.flush()
            done += len(found)
            show(done, samples.count)


def _key(job: Labeling, samples: Samples) -> str:
    """A hash of everything that the answers depend on."""
    head = hashlib.sha256(job.model.read_bytes()).hexdigest()
    options = [job.reader.backbone, str(job.reader.weights), job.unknown, job.top, job.automate]
    return hashlib.sha256(json.dumps([head, samples.content, *options]).encode()).hexdigest()


def _finished(parts: Path, key: str) -> int:
    """Number of rows with an answer. A line that was cut short by a kill is removed; other answers are not used."""
    if not parts.is_file():
        return 0
    with parts.open("rb+") as file:
        if file.readline() != f"{key}\n".encode():
            return 0
        count = 0
        while (line := file.readline()).endswith(b"\n"):
            count += 1
        file.truncate(file.tell() - len(line))
    return count


def _assemble(job: Labeling, samples: Samples, parts: Path) -> tuple[int | None, int | None]:
    """Write the table; returns how many samples are unknown, and how many are for a person, if there is a threshold."""
    novel: list[bool | None] = []
    asked = 0
    with parts.open(encoding="utf-8") as lines, writer(job.out, samples.like, job.new, job.cell) as write:
        next(lines)
        for rows, _ in samples.batches(0):
            values = [json.loads(line) for line in islice(lines, len(rows.cells()))]
            novel += map(job.is_unknown, values)
            asked += sum(not value[4] for value in values) if job.automate else 0
            write(rows, values)
    return None if None in novel else sum(map(bool, novel)), asked if job.automate else None
