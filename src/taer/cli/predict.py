"""``taer predict``: from an image, a text or features to a label."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from taer.cli.answers import Answer, Format, answers, harmless, printer
from taer.cli.app import HEADS, READING, app
from taer.cli.examples import TextColumn, Weights
from taer.cli.inputs import Reader
from taer.cli.labeled import Labeling, label_table
from taer.cli.multilabel import Separator, predict_labels, refuse_options

if TYPE_CHECKING:
    from taer.heads import Head


@app.command(rich_help_panel=HEADS)
def predict(
    model: Annotated[Path, typer.Argument(help="A saved head.")],
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT",
            help="Images, folders of images, texts, tables of texts (.csv, .parquet), features (the test samples of a "
            "feature file, .npy, a .csv of numbers), or - for stdin. An argument that is not an existing file or folder "
            "is taken as a text, unless it has a suffix or a slash.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write a table, .csv or .parquet: the columns of the one input table, then label, probability, novelty "
            "and unknown. If the command is interrupted, run it again: it continues where it stopped."
        ),
    ] = None,
    prefix: Annotated[
        str, typer.Option(help="Prefix of the new columns of --out, for a table that has such columns already.")
    ] = "",
    unknown: Annotated[
        str | None,
        typer.Option(
            help="Answer for samples above the head's novelty threshold, such as '?'. A bayes head always has one; "
            "others get it with 'taer fit --unknown'."
        ),
    ] = None,
    errors_at_most: Annotated[
        float | None,
        typer.Option(
            help="Also say which answers need no person (automatic) and which do (ask), so that at most this share of the "
            "automatic ones is wrong, such as 0.02. 'taer automate' comes first."
        ),
    ] = None,
    top: Annotated[int | None, typer.Option(help="Only this many of the most likely classes.", min=1)] = None,
    format: Annotated[
        Format,
        typer.Option(
            help="Output format: labels only, or a CSV table or JSON lines with probabilities and novelty."
        ),
    ] = Format.labels,
    escape_formulas: Annotated[
        bool,
        typer.Option(
            "--escape-formulas",
            help="In CSV, put ' before texts that begin with =, +, - or @. A spreadsheet would run them as formulas.",
        ),
    ] = False,
    backbone: Annotated[
        str | None,
        typer.Option(help="Backbone for images or texts. [default: that of the head]", rich_help_panel=READING),
    ] = None,
    weights: Weights = None,
    text_column: TextColumn = None,
    separator: Separator = ";",
) -> None:
    """Print the predicted class of each input. If the file has labels, also print the accuracy, on stderr.

    A head of several labels ('taer fit --multi-label') prints them with a separator between them.
    """
    from taer.multilabel.model import MultiLabel
    from taer.persist.multilabel import load_head

    head = load_head(model)
    cell = harmless if escape_formulas else _unchanged
    if isinstance(head, MultiLabel):
        refuse_options(model, {"--unknown": unknown, "--top": top, "--errors-at-most": errors_at_most})
        reader = Reader(head, backbone, weights, text_column)
        predict_labels(model, reader, inputs, out, prefix, separator, format, cell)
        return
    _check_options(head, model, unknown, errors_at_most)
    automate = errors_at_most is not None
    top = None if top is None else min(top, len(head.classes_))
    reader = Reader(head, backbone, weights, text_column)
    if out is None:
        _print_answers(
            reader,
            inputs,
            unknown,
            top,
            printer(format, top, cell),
            short=format is Format.labels,
            automate=automate,
        )
    elif format is not Format.labels:
        raise ValueError("--format is for what is printed; the suffix of --out says how the table is written")
    else:
        print(label_table(Labeling(model, reader, out, prefix, unknown, top, cell, automate), inputs))


def _unchanged(cell: Any) -> Any:
    return cell


def _check_options(head: Head, model: Path, unknown: str | None, errors_at_most: float | None) -> None:
    """Raise unless the head can answer so."""
    if unknown is not None and unknown in head.classes_.astype(str):
        raise ValueError(f"--unknown {unknown}: that is one of the classes")
    _make_threshold(head, model, unknown)
    if errors_at_most is not None:
        _check_promise(head, model, errors_at_most)


def _make_threshold(head: Head, model: Path, unknown: str | None) -> None:
    """A head that stores novelties makes its threshold now, if it has none."""
    if not hasattr(head, "threshold_") and head._own_novelty and not hasattr(head, "automation_"):
        try:
            head.novelty_threshold()
        except ValueError:  # no class has two samples
            if unknown is not None:
                raise
    if unknown is not None and not hasattr(head, "threshold_"):
        raise ValueError(
            f"{model}: keeps no threshold of novelty, and {head.name} cannot make one without samples; "
            "'taer fit --unknown' makes a head that has one"
        )


def _check_promise(head: Head, model: Path, errors_at_most: float) -> None:
    """Raise unless the threshold of automation that the head keeps promises this."""
    from taer.loop.automate import check_share

    check_share("--errors-at-most", errors_at_most)
    promised = getattr(head, "automation_", None)
    if promised is not None and promised["errors"] <= errors_at_most:
        return
    has = "keeps no threshold; learning drops it" if promised is None else f"promises {promised['errors']:g}"
    raise ValueError(
        f"--errors-at-most {errors_at_most:g}: {model} {has}; 'taer automate {model} EXAMPLES --errors-at-most "
        f"{errors_at_most:g}' finds a threshold with held-out examples"
    )


def _print_answers(
    reader: Reader,
    inputs: list[str],
    unknown: str | None,
    top: int | None,
    write: Callable[[list[Answer]], None],
    *,
    short: bool,
    automate: bool,
) -> None:
    known = {str(label) for label in reader.head.classes_.tolist()}
    right: list[bool] = []  # for samples whose class the head knows
    others = 0
    for samples in reader.samples(inputs):
        found = answers(
            reader.head, samples.names, samples.X, 1 if short and top is None else top, unknown, automate
        )
        write(found)
        truth = samples.truth or []
        right += [str(answer.label) == label for answer, label in zip(found, truth, strict=False) if label in known]
        others += sum(label not in known for label in truth)
    if right or others:
        percent = f" ({100 * sum(right) / len(right):.2f} %)" if right else ""
        rest = f"; {others} are of classes it does not know" if others else ""
        print(f"{sum(right)} of {len(right)} right{percent}{rest}", file=sys.stderr)
