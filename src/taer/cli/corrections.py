"""Correcting a saved head: ``taer unlearn``, ``relabel``, ``forget``, ``rename``, and ``taer merge``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from taer.cli.app import HEADS, app
from taer.cli.examples import ExamplesArgument, Reading, RowsOption, read_examples, reads_examples
from taer.cli.models import Classes, Model, Out, as_known, check_replaceable, training_part
from taer.cli.wording import counted

if TYPE_CHECKING:
    from taer.heads import Head


@app.command(rich_help_panel=HEADS)
def forget(model: Model, label: Annotated[str, typer.Argument(help="Class to remove.")], out: Out = None) -> None:
    """Remove a class, with its weights, statistics and samples."""
    from taer.persist.save import load

    head = load(model)
    head.forget(_label(label, head))
    _save(head, out or model, f"{label} is forgotten")


@app.command(rich_help_panel=HEADS)
@reads_examples
def unlearn(
    model: Model,
    examples: ExamplesArgument,
    classes: Classes = None,
    rows: RowsOption = None,
    out: Out = None,
    *,
    how: Reading,
) -> None:
    """Remove samples from a saved head, as if never learned.

    They are the training samples of a file, table or folder, or those of --rows.
    """
    from taer.persist.save import load

    head = load(model)
    X, labels = training_part(read_examples(examples, head, how, rows).data, classes, head)
    known = len(head.classes_)
    head.unlearn(X, labels)
    gone = f", {known - len(head.classes_)} without samples forgotten" if known > len(head.classes_) else ""
    _save(head, out or model, f"{counted(len(labels), 'sample')} taken back{gone}")


@app.command(rich_help_panel=HEADS)
@reads_examples
def relabel(
    model: Model,
    examples: ExamplesArgument,
    rows: Annotated[
        str,
        typer.Option(
            help="The training samples, separated by commas: row numbers of a table, or names, as 'taer diagnose' "
            "prints them."
        ),
    ],
    to: Annotated[str, typer.Option(help="The right label. It may be a new class.")],
    out: Out = None,
    *,
    how: Reading,
) -> None:
    """Correct the label of samples that a head has learned.

    They are taken back with the label that the file still has, then learned with the right one.
    """
    from taer.heads.few import collected
    from taer.persist.save import load

    head = load(model)
    X, labels = training_part(read_examples(examples, head, how, rows).data, None, head)
    new = _label(to, head)
    if new in labels.tolist():
        raise ValueError(f"--to {to}: {examples} has that label already for one of these samples")
    with collected() as warned:
        head.unlearn(X, labels).partial_fit(X, [new] * len(labels))
    for warning in warned:
        print(f"taer: warning: {warning}", file=sys.stderr)
    were = ", ".join(sorted({str(label) for label in labels.tolist()}))
    _save(
        head,
        out or model,
        f"{counted(len(labels), 'sample')} of {were} relabeled as {to} ({examples} still has the old label)",
    )


@app.command(rich_help_panel=HEADS)
def merge(
    model: Model,
    other: Annotated[Path, typer.Argument(help="Another saved head of the same method.")],
    out: Annotated[Path, typer.Option(help="Where to save the merged head. An existing head is replaced.")],
    base: Annotated[
        Path | None,
        typer.Option(help="The head that both are copies of. Its samples are then counted once, not twice."),
    ] = None,
) -> None:
    """Merge two heads into one that has learned all samples."""
    from taer.persist.save import load

    head = load(model).merge(load(other), None if base is None else load(base))
    _save(head, out, f"{model} and {other} are merged")


@app.command(rich_help_panel=HEADS)
def rename(
    model: Model,
    old: Annotated[str, typer.Argument(help="Current name of the class.")],
    new: Annotated[str, typer.Argument(help="New name of the class.")],
    out: Out = None,
) -> None:
    """Rename a class of a saved head."""
    from taer.persist.save import load

    head = load(model)
    head.rename(_label(old, head), _label(new, head))
    _save(head, out or model, f"{old} is called {new}")


def _save(head: Head, out: Path, done: str) -> None:
    check_replaceable(out, by_head=True)
    head.save(out)
    print(f"{out}: {done}; {counted(len(head.classes_), 'class', 'es')}")


def _label(name: str, head: Head) -> Any:
    """The label in the type of the head's labels."""
    import numpy as np

    return as_known(np.array([name]), head)[0].item()
