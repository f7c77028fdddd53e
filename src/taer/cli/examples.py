"""Labeled examples for a command: a feature file, a table of texts, or a folder of images."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from taer.cli.app import READING
from taer.cli.inputs import DEFAULTS, backbone_of, where_it_is
from taer.cli.parameters import with_options
from taer.cli.progress import counting
from taer.cli.wording import counted

if TYPE_CHECKING:
    from taer.features import FeatureSet
    from taer.features.backbones import Backbone
    from taer.features.sources import Source
    from taer.heads import Head

ExamplesArgument = Annotated[
    str,
    typer.Argument(
        metavar="EXAMPLES",
        help="A table of texts (.csv, .parquet), a folder with one subfolder of images per class, a feature file, a "
        "folder of shards, or the URL of one (s3://…).",
    ),
]
BackboneOption = Annotated[
    str | None,
    typer.Option(
        help="Backbone for images or texts; see 'taer backbones'. [default: that of the head; of a new head minilm for "
        "texts, efficientnet-lite0 for images]",
        rich_help_panel=READING,
    ),
]
Weights = Annotated[
    Path | None,
    typer.Option(help="Weights of a named backbone, when they cannot be downloaded.", rich_help_panel=READING),
]
TextColumn = Annotated[
    str | None, typer.Option(help="Column of a table with the texts. [default: text]", rich_help_panel=READING)
]
LabelColumn = Annotated[
    str | None, typer.Option(help="Column of a table with the labels. [default: label]", rich_help_panel=READING)
]
SplitColumn = Annotated[
    str | None,
    typer.Option(
        help="Column of a table with the values 'train' and 'test'. [default: split, if there is such a column]",
        rich_help_panel=READING,
    ),
]
TestFraction = Annotated[
    float | None,
    typer.Option(
        help="Fraction of each class set aside for test, when there is no split. [default: nothing]",
        rich_help_panel=READING,
    ),
]
RowsOption = Annotated[
    str | None,
    typer.Option(
        "--rows",
        help="Only these training samples, separated by commas: row numbers of a table, or names, as 'taer diagnose' "
        "prints them.",
    ),
]


@dataclass(frozen=True)
class Reading:
    """How a table or a folder is read. A feature file needs none of this. The fields are options of a command."""

    backbone: BackboneOption = None
    weights: Weights = None
    text_column: TextColumn = None
    label_column: LabelColumn = None
    split_column: SplitColumn = None
    test_fraction: TestFraction = None


def reads_examples(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of ``Reading`` in place of its parameter ``how``."""
    own = inspect.signature(command, eval_str=True).parameters
    options = {
        name: inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in get_type_hints(Reading, include_extras=True).items()
    }
    parameters = [parameter for name, parameter in own.items() if name != "how"]

    @wraps(command)
    def with_options(**given: Any) -> None:
        how = Reading(**{name: given.pop(name) for name in options})
        command(**given, how=how)

    del with_options.__wrapped__  # whose signature would be read instead
    with_options.__signature__ = inspect.Signature([*parameters, *options.values()])  # type: ignore[attr-defined]
    with_options.__annotations__ = {each.name: each.annotation for each in (*parameters, *options.values())}
    return with_options


@dataclass(frozen=True)
class Examples:
    """Labeled samples, and the name of each: its image, or its row in a table; and the texts of a table by name."""

    data: FeatureSet
    train: Sequence[str]
    test: Sequence[str]
    texts: Mapping[str, str] = field(default_factory=dict)


def read_examples(place: str, head: Head, how: Reading, rows: str | None = None) -> Examples:
    """The samples of a feature file, or features of a table or folder by the backbone of the head."""
    from taer.features import load_features
    from taer.features.files import read_inputs

    if is_raw(place, how.text_column):
        return _extracted(place, head, how, rows)
    data = load_features(place)
    head._check_origin(data.origin)
    train, test = (read_inputs(place, part, len(y)) for part, y in (("train", data.train_y), ("test", data.test_y)))
    if rows is None:
        return Examples(data, train, test)
    chosen = rows_named(rows, train, test, place)
    some = replace(data, train_x=data.train_x[chosen], train_y=data.train_y[chosen])
    return Examples(some, [train[row] for row in chosen], test)


def is_raw(place: str, text_column: str | None) -> bool:
    """Whether a path is a table of texts or a folder of images, rather than features."""
    from taer.features.sources.folder import images_below
    from taer.features.sources.texts import column_names

    path = Path(place)
    if path.is_dir():
        return bool(images_below(path))
    if not path.is_file():
        return False
    is_table = path.suffix == ".parquet" and (text_column is not None or "text" in column_names(path))
    return path.suffix == ".csv" or is_table


def rows_named(rows: str, train: Sequence[str], test: Sequence[str], place: str) -> list[int]:
    """The training samples that ``--rows`` names: by a name, or by the number of a row."""
    return [_row_named(name.strip(), train, test, place) for name in rows.split(",") if name.strip()]


def _row_named(name: str, train: Sequence[str], test: Sequence[str], place: str) -> int:
    def is_it(other: str) -> bool:
        return other == name or (name.isdigit() and other.endswith(f" row {name}"))

    found = [row for row, other in enumerate(train) if is_it(other)]
    if not found:
        why = "is in the test part, which was not learned" if any(map(is_it, test)) else "is not there"
        raise ValueError(f"--rows: {name} {why}; the training part of {place} is {train[0]} to {train[-1]}")
    if len(found) > 1:
        both = " and ".join(train[row] for row in found[:2])
        raise ValueError(f"--rows: {name} may be {both}; give the whole name")
    return found[0]


def _extracted(place: str, head: Head, how: Reading, rows: str | None) -> Examples:
    from taer.features.direct import encoded, some_for_training

    source = _opened(place, how)
    if source.skipped:
        print(f"taer: {place}: {counted(source.skipped, 'row')} without a label left out", file=sys.stderr)
    model = _model(head, how, source)
    train, test = ([part.where(row) for row in range(len(part))] for part in (source.train, source.test))
    if rows is not None:
        chosen = rows_named(rows, train, test, place)
        source, train, test = some_for_training(source, chosen), [train[row] for row in chosen], []
    texts = {}
    if source.kind == "text":
        texts = {
            part.where(row): part.read(row) for part in (source.train, source.test) for row in range(len(part))
        }
    with counting(f"extracting with {model.name}") as show:
        try:
            return Examples(encoded(source, model, show), train, test, texts)
        except ValueError as error:
            message = str(error).partition(", or leave such items out")[0]  # which only 'taer extract' can
            raise ValueError(message) from None


def _opened(place: str, how: Reading) -> Source:
    from taer.features.sources import open_source

    try:
        source = open_source(
            place,
            test_fraction=how.test_fraction,
            text_column=how.text_column,
            label_column=how.label_column,
            split_column=how.split_column,
        )
    except ValueError as error:
        raise ValueError(with_options(str(error))) from None
    if not source.classes:
        what = (
            "name its column of labels with --label-column" if source.kind == "text" else "one subfolder per class"
        )
        raise ValueError(f"{place}: the {source.kind}s have no labels; expected a label for each: {what}")
    return source


def _model(head: Head, how: Reading, source: Source) -> Backbone:
    """The backbone of the head; for a new head that of ``--backbone``, or the default for texts or images."""
    from taer.features.backbones import find_backbone

    is_new = not hasattr(head, "classes_")
    name = how.backbone or (DEFAULTS[source.kind] if is_new else backbone_of(head))
    with where_it_is(remembered=how.backbone is None and not is_new):
        model = find_backbone(name, source.kind, how.weights)
    head._check_origin(model.origin)
    return model
