"""The summary of ``taer run``, in five formats."""

from __future__ import annotations

import csv
import json
import sys
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from taer.features import FeatureSet


UNABLE = "needs task boundaries"
_FEWEST = 1 + len(UNABLE.split())  # columns of a table; see _print_table


class Format(StrEnum):
    table = "table"
    json = "json"
    csv = "csv"
    markdown = "markdown"
    latex = "latex"


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
    elif format is Format.latex:
        _print_latex(_Summary.of(data, stream, rows, unable), rows)
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
    more: str  # a sentence about the stream
    names: list[str]  # of the columns, as in the rows
    least: int  # columns that a narrow terminal shows too
    cells: list[list[str]]
    unable: list[str]  # heads that cannot learn the stream

    @classmethod
    def of(
        cls, data: FeatureSet, stream: dict[str, Any], rows: list[dict[str, Any]], unable: list[str]
    ) -> _Summary:
        from taer.heads import find_head

        runs = "1 run" if stream["seeds"] == 1 else f"{stream['seeds']} runs"
        metrics, more, least = _layout(stream)
        metrics = [*metrics, *["task_given"] * any(find_head(row["method"]).card.guesses_task for row in rows)]
        names = ["method", *metrics, *_PLAIN, *more]
        tail = "ratio" in stream
        return cls(
            f"{data.name}: {stream['classes']} classes in {_arriving(stream)}, {data.n_features} features, "
            f"{_range(stream['training_samples'])} training and {_range(stream['test_samples'])} test samples, {runs}",
            f"The most frequent class has {stream['ratio']:g} times the samples of the least frequent. "
            if tail
            else "",
            names,
            1 + min(len(metrics), least),
            [[_cell(row, name) for name in names] for row in rows],
            unable,
        )

    def header(self, columns: int) -> list[str]:
        return [_SHORT.get(name, name) + " (%)" * (name in _TOLD) for name in self.names[:columns]]

    def note(self, columns: int) -> str:
        """What the first columns are."""
        told = dict.fromkeys(_TOLD[name] for name in self.names[:columns] if name in _TOLD)
        kept = "Samples, bytes: what a head keeps besides its weights (exemplars, statistics, penalties)."
        shown = [*told, "±: standard deviation over runs.", *[kept] * ("samples" in self.names[:columns])]
        return self.more + " ".join(shown)


_PLAIN = {"seconds": ("seconds", ".2f"), "samples": ("memory_samples", ",.0f"), "bytes": ("memory_bytes", ",.0f")}
_SHORT = {"task_given": "task given", "backward_transfer": "backward", "forward_transfer": "forward"}
_PARTS = "base and new: on those of classes of the first and of later tasks."
_TRANSFER = (
    "Backward: mean over tasks of what changed since they were learned; forward: of the accuracy before they were."
)
_TOLD = {
    "A_T": "A_T: mean over tasks of the accuracy after the last task.",
    "last": "last: accuracy on all test samples at the end.",
    "base": _PARTS,
    "new": _PARTS,
    "A_AUC": "A_AUC: area under the accuracy on the classes seen, over the training samples.",
    "harmonic": "Harmonic: mean of the accuracies on the first task's classes and on later ones.",
    "AIA": "AIA: mean over phases of the accuracy on all classes so far.",
    "task_given": "Task given: accuracy after the last task if the task of each sample is known.",
    "forgetting": "Forgetting: mean over tasks of what was lost since their best.",
    "backward_transfer": _TRANSFER,
    "forward_transfer": _TRANSFER,
}


def _range(counts: tuple[int, ...]) -> str:
    """One number if the runs have the same."""
    least, most = min(counts), max(counts)
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def _arriving(stream: dict[str, Any]) -> str:
    """How the classes arrive."""
    several = "" if stream["tasks"] == 1 else "s"
    if stream["kind"] == "tasks":
        return f"{stream['tasks']} task{several}"
    return f"{stream['tasks']} session{several} ({stream['kind']})"


def _layout(stream: dict[str, Any]) -> tuple[list[str], list[str], int]:
    """The metrics of a stream, those that come last, and how many of the first a narrow terminal shows too."""
    change = ["forgetting", "backward_transfer", "forward_transfer"]
    if stream["kind"] != "tasks" or stream["returning"]:
        return ["last", "A_AUC", "forgetting", "harmonic", "AIA", *change[1:]], [], 4
    later = change if stream["tasks"] > 1 else []
    if stream["shots"] is not None or "samples" in stream:
        return ["last", "base", "new", "AIA"], ["harmonic", *later], 5
    return ["A_T", "AIA"], later, 5


def _cell(row: dict[str, Any], name: str) -> str:
    from taer.experiment import Spread

    if name == "method":
        return str(row["label"])
    if name in _PLAIN:
        of, form = _PLAIN[name]
        return format(row[of], form)
    return str(Spread(**row[name]))


def _print_markdown(summary: _Summary) -> None:
    print(f"{summary.heading}\n")
    width = len(summary.names)
    unable = [[name, UNABLE] for name in summary.unable]
    for line in (summary.header(width), ["---"] + ["---:"] * (width - 1), *summary.cells, *unable):
        print(f"| {' | '.join(line + [''] * (width - len(line)))} |")


def _print_latex(summary: _Summary, rows: list[dict[str, Any]]) -> None:
    """With the columns of the widest terminal."""
    from taer.experiment import Spread
    from taer.report.tables import Number, Table, Value

    def value(row: dict[str, Any], name: str) -> Value:
        if name == "method":
            return str(row["label"])
        if name in _PLAIN:
            return row[name] if name == "seconds" else round(row[_PLAIN[name][0]])
        return Number(Spread(**row[name]), quoted=True)

    width = len(summary.names)
    body: list[list[Value]] = [[value(row, name) for name in summary.names] for row in rows]
    body += [[name, UNABLE, *[""] * (width - 2)] for name in summary.unable]
    columns = [("", name) for name in summary.header(width)]
    print(Table("", summary.heading, "", columns, body).latex(), end="")


def _print_table(summary: _Summary, source: str) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    console, fits = Console(), len(summary.names)
    # One word of what a head needs in each of its first cells, so that no column becomes wider.
    unable = [[name, *UNABLE.split()] for name in summary.unable]
    lines = [summary.header(fits), *summary.cells, *(line + [""] * (fits - len(line)) for line in unable)]
    widths = [max(map(len, column)) + 3 for column in zip(*lines, strict=True)]
    while sum(widths[:fits]) >= console.width and fits > summary.least:
        fits -= 1  # drop columns, which the other formats have, rather than cut the names of heads
    if folded := sum(widths[:fits]) >= console.width:  # names with the values of a sweep
        widths[0] = 3 + max(len(word) for line in lines for word in line[0].split())
    while sum(widths[:fits]) >= console.width and fits > _FEWEST:
        fits -= 1
    table = Table(box=SIMPLE_HEAD, title=summary.heading, title_justify="left", caption_justify="left")
    table.caption = f"{summary.note(fits)} {source}."
    for i, name in enumerate(lines[0][:fits]):
        table.add_column(
            name,
            justify="right" if i else "left",
            no_wrap=bool(i) or not folded,
            overflow="ellipsis" if i else "fold",
        )
    for line in lines[1:]:
        table.add_row(*line[:fits])
    console.print(table)
