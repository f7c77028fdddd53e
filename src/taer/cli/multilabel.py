"""Several labels per sample on the command line: cells such as ``billing;urgent``."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from taer.cli.answers import Format
from taer.cli.inputs import Reader
from taer.cli.labeled import Labeling, label_table, short
from taer.cli.progress import stage
from taer.cli.tables import Column
from taer.cli.wording import counted

if TYPE_CHECKING:
    import numpy as np

    from taer.features import FeatureSet
    from taer.multilabel.model import MultiLabel

LABELS = "Several labels per sample"
Separator = Annotated[str, typer.Option(help="What stands between the labels of a sample.", rich_help_panel=LABELS)]


def split(cells: Sequence[str], separator: str, like: Sequence[Any] = ()) -> list[list[Any]]:
    """The labels in each cell, in the type of known labels. A cell with the separator alone has none."""
    if not separator.strip():
        raise ValueError("--separator: expected a character that is not a space, such as ';' or '|'")
    rows = [[name.strip() for name in cell.split(separator) if name.strip()] for cell in cells]
    if not like or isinstance(like[0], str):
        return rows
    try:
        return [[type(like[0])(name) for name in row] for row in rows]
    except ValueError:
        raise ValueError(f"the head's labels are {type(like[0]).__name__} and the file's are names") from None


def learn_labels(model: MultiLabel, data: FeatureSet, judged: str | None, separator: str, out: Path) -> None:
    """Learn one task, save the head and print a summary. ``judged`` are labels, separated by commas."""
    from taer.metrics import f1_macro, f1_micro
    from taer.multilabel.forms import taught

    known = getattr(model, "classes_", [])
    cells = split(data.classes, separator, known)
    classes = None
    if judged is not None:
        classes = [label for row in split([judged], ",", known) for label in row]
    if not len(data.train_y):
        raise ValueError(f"{data.name}: no training samples")
    with stage(f"learning {counted(len(data.train_y), 'sample')}"):
        Y = [_judged(cells[label], classes) for label in data.train_y]
        model.partial_fit(data.train_x, Y, classes)
    if not known and data.origin is not None:
        model.feature_origin_ = data.origin
    model.save(out)
    learned = f"{out}: {counted(len(data.train_y), 'sample')} learned; {counted(len(model.classes_), 'label')}"
    if len(data.test_y):
        asked = [_judged(cells[label], model.classes_) for label in data.test_y]
        inside, found = (
            taught(asked, len(asked), None, model.classes_).inside,
            model.decision_function(data.test_x) >= 0,
        )
        learned += f"; F1 on the {len(asked)} test samples {100 * f1_micro(inside, found):.2f} % micro"
        learned += f", {100 * f1_macro(inside, found):.2f} % macro"
    print(learned)


def _judged(labels: list[Any], classes: list[Any] | None) -> list[Any]:
    return labels if classes is None else [label for label in labels if label in classes]


def refuse_options(what: Path | str, options: dict[str, Any]) -> None:
    """Raise if an option was given that only heads of one label have."""
    if given := [name for name, value in options.items() if value is not None]:
        verb = "is" if len(given) == 1 else "are"
        raise ValueError(f"{what}: has several labels per sample; {', '.join(given)} {verb} for heads of one label")


def predict_labels(
    file: Path,
    reader: Reader,
    inputs: list[str],
    out: Path | None,
    prefix: str,
    separator: str,
    format: Format,
    cell: Callable[[Any], Any],
) -> None:
    """Print the labels of each input, or write them into a table."""
    if out is None:
        print_labels(reader, inputs, separator, format, cell)
        return
    job = LabelsLabeling(file, reader, out, prefix, None, None, cell, separator=separator)
    print(label_table(job, inputs))


def print_labels(
    reader: Reader, inputs: list[str], separator: str, format: Format, cell: Callable[[Any], Any]
) -> None:
    """Print the labels of each input."""
    model: Any = reader.head
    table, header = csv.writer(sys.stdout, lineterminator="\n"), True
    for samples in reader.samples(inputs):
        probabilities = model.predict_proba(samples.X)
        for name, row, chances in zip(
            samples.names, labels_of(model, samples.X), probabilities.tolist(), strict=True
        ):
            joined = separator.join(map(str, row))
            if format is Format.json:
                named = {str(label): chance for label, chance in zip(model.classes_, chances, strict=True)}
                print(json.dumps({"input": name, "labels": row, "probabilities": named}, ensure_ascii=False))
            elif format is Format.csv:
                if header:
                    table.writerow(map(cell, ["input", "labels", *model.classes_]))
                    header = False
                table.writerow(map(cell, [name, joined, *chances]))
            else:
                print(joined)


def labels_of(model: MultiLabel, X: Any) -> list[list[Any]]:
    """The labels of each sample, whatever the form in which they were taught."""
    from taer.multilabel.forms import answered

    found: list[list[Any]] = answered(model.decision_function(X) >= 0, model.classes_, "lists")
    return found


@dataclass(frozen=True)
class LabelsLabeling(Labeling):
    """Tables with the columns ``labels`` and ``probabilities``, whose entries are in the same order."""

    separator: str = ";"

    @property
    def new(self) -> list[Column]:
        return [Column(f"{self.prefix}{name}", "string") for name in ("labels", "probabilities")]

    def rows(self, X: np.ndarray) -> list[list[Any]]:
        model: Any = self.reader.head
        place = {label: at for at, label in enumerate(model.classes_)}
        probabilities = model.predict_proba(X)
        found = []
        for row, labels in enumerate(labels_of(model, X)):
            chances = [str(short(float(probabilities[row, place[label]]))) for label in labels]
            found.append([self.separator.join(map(str, labels)), self.separator.join(chances)])
        return found

    def is_unknown(self, values: list[Any]) -> bool | None:
        return None
