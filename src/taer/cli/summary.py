"""The summary of ``taer run``, in four formats."""

from __future__ import annotations

import csv
import json
import sys
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from taer.features import FeatureSet


UNABLE = "needs task boundaries"


class Format(StrEnum):
    table = "table"
    json = "json"
    csv = "csv"
    markdown = "markdown"


def print_summary(
    format: Format,
    data: FeatureSet,
    stream: dict[str, Any],
    rows: list[dict[str, Any]],
    source: str,
    unable: list[str],
) -> None:
    """Print one row per head, also of those ``unable`` to learn the stream.

    ``source`` is a sentence about the runs, for readers of a table.
    """
    if format is Format.json:
        _print_json(data, stream, rows, unable)
    elif format is Format.csv:
        _print_csv(rows, unable)
    elif format is Format.markdown:
        _print_markdown(_Summary.of(data, stream, rows, unable))
    else:
        _print_table(_Summary.of(data, stream, rows, unable), source)


def _print_json(data: FeatureSet, stream: dict[str, Any], rows: list[dict[str, Any]], unable: list[str]) -> None:
    features = {
        "name": data.name,
        "fingerprint": data.fingerprint,
        "classes": len(data.classes),
        "width": data.n_features,
        **data.meta,
    }
    skipped = [{"method": name, "label": name, "skipped": UNABLE} for name in unable]
    json.dump({"features": features, "stream": stream, "rows": [*rows, *skipped]}, sys.stdout, indent=2)
    print()


def _print_csv(rows: list[dict[str, Any]], unable: list[str]) -> None:
    from taer.experiment import CONTINUAL, FEW_SHOT

    measured = {"A_T": "A_T", "AIA": "AIA", "ECE": "ECE", "novelty_AUROC": "novelty AUROC"}
    measured["task_given"] = "task given"
    measured |= {name: name.replace("_", " ") for name in FEW_SHOT}
    measured |= {name: name if name == "A_AUC" else name.replace("_", " ") for name in CONTINUAL}
    writer = csv.writer(sys.stdout, lineterminator="\n")
    names = [f"{name}{part}" for name in measured.values() for part in ("", " std")]
    writer.writerow(["method", *names, "seconds", "memory samples", "memory bytes"])
    for row in rows:
        numbers = [row[name][key] for name in measured for key in ("mean", "std")]
        writer.writerow([row["label"], *numbers, row["seconds"], row["memory_samples"], row["memory_bytes"]])
    writer.writerows([name, UNABLE] for name in unable)


@dataclass(frozen=True)
class _Summary:
    """The text of a table, for a terminal or for Markdown."""

    heading: str
    note: str
    header: list[str]
    least: int  # columns that a narrow terminal shows too
    cells: list[list[str]]
    unable: list[list[str]]  # a short row per head that cannot learn the stream

    @classmethod
    def of(
        cls, data: FeatureSet, stream: dict[str, Any], rows: list[dict[str, Any]], unable: list[str]
    ) -> _Summary:
        from taer.heads import find_head

        runs = "1 run" if stream["seeds"] == 1 else f"{stream['seeds']} runs"
        layout = _layout(stream)
        guesses = any(find_head(row["method"]).card.guesses_task for row in rows)
        metrics = [*layout.metrics, *["task_given"] * guesses]
        names = [f"{_SHORT.get(name, name)} (%)" for name in metrics]
        return cls(
            f"{data.name}: {len(data.classes)} classes in {stream['tasks']} tasks, {data.n_features} features, "
            f"{len(data.train_y):,} training and {len(data.test_y):,} test samples, {runs}",
            _note(layout, guesses, bool(unable)),
            ["method", *names, "seconds", "samples", "bytes"],
            1 + min(len(metrics), layout.least),
            [_cells(row, metrics) for row in rows],
            [[name, UNABLE] for name in unable],
        )


class _Layout(NamedTuple):
    """Which metrics a table of a stream has, and what they are."""

    metrics: list[str]
    note: str
    least: int = 5  # metrics that a narrow terminal shows too


_SHORT = {"task_given": "task given", "backward_transfer": "backward"}


def _layout(stream: dict[str, Any]) -> _Layout:
    if stream["kind"] != "tasks":
        return _Layout(
            ["last", "AIA", "A_AUC", "forgetting", "backward_transfer", "harmonic"],
            "last: accuracy on all test samples at the end. A_AUC: area under the accuracy on the classes seen, over the "
            "training samples. Forgetting, backward: change of old tasks. Harmonic: mean of first and later classes.",
            least=4,
        )
    if stream["shots"] is not None or "samples" in stream:
        return _Layout(
            ["last", "base", "new", "AIA"],
            "last: accuracy on all test samples after the last task; base and new: on those of classes of the first "
            "and of later tasks.",
        )
    return _Layout(["A_T", "AIA"], "A_T: mean over tasks of the accuracy after the last task.")


def _cells(row: dict[str, Any], metrics: list[str]) -> list[str]:
    from taer.experiment import Spread

    return [
        row["label"],
        *(str(Spread(**row[name])) for name in metrics),
        f"{row['seconds']:.2f}",
        f"{row['memory_samples']:,.0f}",
        f"{row['memory_bytes']:,.0f}",
    ]


def _note(layout: _Layout, guesses: bool, unable: bool) -> str:
    return (
        f"{layout.note} AIA: mean over phases of the accuracy on all classes so far. ±: standard deviation over runs. "
        f"{'Task given: accuracy after the last task if the task of each sample is known. ' * guesses}"
        "Samples, bytes: what a head keeps besides its weights (exemplars, statistics, penalties)."
        f"{f' –: the head {UNABLE}.' * unable}"
    )


def _print_markdown(summary: _Summary) -> None:
    print(f"{summary.heading}\n")
    width = len(summary.header)
    for line in (summary.header, ["---"] + ["---:"] * (width - 1), *summary.cells, *summary.unable):
        print(f"| {' | '.join(line + [''] * (width - len(line)))} |")


def _print_table(summary: _Summary, source: str) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, title=summary.heading, title_justify="left", caption_justify="left")
    table.caption = f"{summary.note} {source}."
    console, fits = Console(), len(summary.header)
    widths = [max(map(len, column)) + 3 for column in zip(summary.header, *summary.cells, strict=True)]
    while sum(widths[:fits]) >= console.width and fits > summary.least:
        fits -= 1  # drop columns, which the other formats have, rather than cut the names of heads
    for i, name in enumerate(summary.header[:fits]):
        table.add_column(name, justify="right" if i else "left", no_wrap=True)
    for line in summary.cells:
        table.add_row(*line[:fits])
    for name, _ in summary.unable:
        table.add_row(name, "–")
    console.print(table)
