"""``taer diagnose``: which classes and samples a head gets wrong, and what would help."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from taer.cli.app import HEADS, app
from taer.cli.examples import ExamplesArgument, Reading, read_examples, reads_examples
from taer.cli.models import Model, as_known
from taer.cli.progress import stage

if TYPE_CHECKING:
    from taer.inspection.diagnosis import Diagnosis


_FOLDS = 3  # of the training samples; each fold is predicted by a copy of the head that was not trained on it


class Format(StrEnum):
    text = "text"
    json = "json"


@app.command(rich_help_panel=HEADS)
@reads_examples
def diagnose(
    model: Model,
    examples: ExamplesArgument,
    top: Annotated[int, typer.Option(help="Number of rows in each table.", min=1)] = 10,
    format: Annotated[Format, typer.Option(help="Output format.")] = Format.text,
    figure: Annotated[Path | None, typer.Option(help="Also draw a figure: .svg, .pdf or .png.")] = None,
    *,
    how: Reading,
) -> None:
    """Show confused classes, weak classes and likely label errors.

    Confusions and weak classes are found on the test samples or, if there are none, on the training samples; likely
    label errors in both. Training samples are predicted by copies of the head that were not trained on them.
    """
    import numpy as np

    from taer.inspection.diagnosis import diagnose as look
    from taer.persist.save import load

    head = load(model)
    read = read_examples(examples, head, how)
    data = read.data
    names = as_known(np.array(data.classes), head)
    per_class = np.bincount(data.train_y, minlength=len(names))
    tested = look(head, data.test_x, names[data.test_y]) if len(data.test_y) else None
    learned = None
    if (folds := min(_FOLDS, int(per_class.max()))) > 1:
        with stage(f"checking {len(data.train_y):,} training samples in {folds} folds"):
            learned = look(head, data.train_x, names[data.train_y], folds=folds)
    found = tested or learned
    if found is None:
        raise ValueError(f"{examples}: nothing to compare: no test part, and no class with two samples")
    suspects = _suspects(learned, "train", read.train, top) + _suspects(tested, "test", read.test, top)
    counts = dict(zip(names.tolist(), per_class.tolist(), strict=True))
    if figure is not None:
        from taer.report.diagnosis import draw_diagnosis

        draw_diagnosis(found, counts, figure)
    tables = {
        "confused": [asdict(pair) for pair in found.confused()[:top]],
        "need more examples": [asdict(each) | {"examples": counts[each.label]} for each in found.weak()[:top]],
        "likely mislabeled": suspects,
    }
    if format is Format.json:
        summary = {"samples": found.samples, "accuracy": found.accuracy, "unknown": found.unknown}
        print(json.dumps(summary | tables, ensure_ascii=False))
    else:
        _print_tables(found, "test" if tested else "training", tables)


def _suspects(found: Diagnosis | None, part: str, inputs: Sequence[str], top: int) -> list[dict[str, Any]]:
    if found is None:
        return []
    return [asdict(suspect) | {"part": part, "input": inputs[suspect.row]} for suspect in found.suspects[:top]]


def _print_tables(found: Diagnosis, part: str, tables: dict[str, list[dict[str, Any]]]) -> None:
    others = f"; {found.unknown} are of classes it does not know" if found.unknown else ""
    print(
        f"accuracy on {found.samples} {part} samples of {len(found.labels)} classes {100 * found.accuracy:.2f} %{others}"
    )
    titles = {
        "confused": f"Most confused, in the {part} part",
        "need more examples": "Below average, so more examples would help",
        "likely mislabeled": "Likely mislabeled: the lowest probabilities of their own label",
    }
    for name, rows in tables.items():
        print(f"\n{titles[name]}:" + ("" if rows else " none"))
        if rows:
            shown = [list(_columns(name)), *(_cells(name, row) for row in rows)]
            widths = [max(len(line[column]) for line in shown) for column in range(len(shown[0]))]
            for line in shown:
                print(
                    "  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
                )


def _columns(name: str) -> tuple[str, ...]:
    return {
        "confused": ("label", "taken for", "samples", "of the class"),
        "need more examples": ("label", "accuracy", "samples", "training examples"),
        "likely mislabeled": ("input", "part", "label", "looks like", "probability of its label"),
    }[name]


def _cells(name: str, row: dict[str, Any]) -> list[str]:
    label = str(row["label"])
    if name == "confused":
        return [label, str(row["taken_for"]), str(row["count"]), f"{100 * row['fraction']:.0f} %"]
    if name == "need more examples":
        return [label, f"{100 * row['accuracy']:.0f} %", str(row["samples"]), str(row["examples"])]
    return [row["input"], row["part"], label, str(row["taken_for"]), f"{row['probability']:.1g}"]
