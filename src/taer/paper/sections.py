"""The paper's part of a report: its tables and figures from results, its statements, and its numbers."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from taer.experiment import Result, order_of
from taer.paper import ELSEWHERE, NAMES, Cell, Experiment, experiment, variants
from taer.paper.features import extract_command
from taer.paper.measured import Library, number, result_key
from taer.paper.statements import STATEMENTS, Check, Evidence, verdict
from taer.report import Publications
from taer.report.blocks import Block, Listing, Section, confusion_block
from taer.report.collect import slug
from taer.report.figures import Curve, Picture, curves
from taer.report.tables import Table, Value

_METRICS = {
    "A_T": "A_T, the mean over tasks of the accuracy after the last task, in percent.",
    "AIA": "AIA, the mean over phases of the accuracy on all classes so far, in percent.",
    "first": "First: the accuracy after the first task, in percent.",
    "last": "Last: the accuracy on all classes after the last task.",
    "base": "Old: the same, on classes of the first task.",
    "new": "New: the same, on classes of later tasks.",
}


def paper() -> Publications:
    """What a report takes from the paper, and from other papers."""
    return Publications(_sections, _published)


def _sections(results: dict[str, list[Result]]) -> list[Section]:
    """Tables and figures of each directory, and the statements that they support."""
    return [
        *(section for directory, own in results.items() for section in _directory_sections(directory, own)),
        *_statements_section(results),
    ]


def _published(result: Result, metric: str) -> float | None:
    return _published_numbers().get((result_key(result), metric)) if order_of(result) == "torch" else None


@cache
def _published_numbers() -> dict[tuple[str, str], float]:
    """The paper's numbers by trial and metric, for all variants."""
    experiments = [experiment(name, variant) for name in NAMES for variant in variants()]
    return {
        (cell.trial.key, cell.metric): cell.published
        for one in experiments
        for row in one.cells
        for cell in row
        if cell.trial and cell.published is not None
    }


def _directory_sections(directory: str, results: list[Result]) -> list[Section]:
    """One section for each variant of the paper that has results."""
    library = Library(results)
    sections = []
    for variant, title in variants().items():
        if _was_run(variant, library):
            chosen = [one for one in (experiment(name, variant) for name in NAMES) if library.has(one)]
            anchor = slug(f"paper-{variant}-{directory}")
            blocks = [block for one in chosen for block in _blocks(one, library, anchor)]
            sections.append(
                Section(
                    anchor,
                    f"The paper, {title}" + (f" [{directory}]" if directory else ""),
                    "Beside each measured number: the published one and the difference. ± is the standard deviation over "
                    "runs. Cells marked missing need features that were not there; cells marked quoted are numbers "
                    "that the paper takes from others.",
                    [*blocks, *_missing(chosen, library)],
                )
            )
    return sections + [
        Section(
            slug(f"{name}-{directory}"),
            one.title + (f" [{directory}]" if directory else ""),
            "Methods marked quoted were published by their authors and not run here; the heads were not published.",
            _blocks(one, library, slug(f"elsewhere-{directory}")),
        )
        for name in ELSEWHERE
        if library.has(one := experiment(name))
    ]


def _statements_section(results: dict[str, list[Result]]) -> list[Section]:
    """The paper's statements, tested on the published numbers and on each measured variant."""
    sources = {"Published numbers": Evidence("raw", None)}
    for directory, own in results.items():
        library = Library(own)
        for variant in variants():
            if _was_run(variant, library):
                sources[f"{variant.capitalize()} features {directory}".strip()] = Evidence(variant, library)
    if len(sources) == 1:
        return []
    verdicts: list[list[Value]] = []
    proofs: list[list[Value]] = []
    for claim, test in STATEMENTS.items():
        checks = {source: list(test(evidence)) for source, evidence in sources.items()}
        verdicts.append([claim, *(verdict(found) for found in checks.values())])
        proofs += [[claim, source, _evidence(found)] for source, found in checks.items() if found]
    columns = [("", "Statement"), *(("", source) for source in sources)]
    note = "Each on the paper's own numbers, where it has some, and on what was measured."
    tables: list[Block] = [
        Table("paper-verdicts", "Verdicts", note, columns, verdicts),
        Table(
            "paper-evidence",
            "What the verdicts rest on",
            "Means over runs.",
            [("", "Statement"), ("", "Tested on"), ("", "Evidence")],
            proofs,
        ),
    ]
    return [Section("statements", "The paper's statements", "", tables)]


def _evidence(checks: list[Check]) -> str:
    return "; ".join(f"{check.where}: {check.evidence}" for check in checks)


def _was_run(variant: str, library: Library) -> bool:
    """Whether a variant was run, by TaER: methods without standardization have the same run in every variant."""
    trials = [trial for name in NAMES for trial in experiment(name, variant).trials]
    return any(library[trial] for trial in trials if trial.method == "taer")


def _blocks(one: Experiment, library: Library, prefix: str) -> list[Block]:
    name, title = f"{prefix}-{one.name}", f"{one.label}: {one.title}"
    if one.kind == "table":
        return [_table(one, library, name, title)]
    if one.kind == "lines":
        return [_lines(one, library, name, title), _table(one, library, name, f"{title}, the numbers")]
    panels = {
        column: [(row[place], library[row[place].trial]) for row in one.cells if library[row[place].trial]]  # type: ignore[index]
        for place, column in enumerate(cell.column for cell in one.cells[0])
    }
    return _drawn(one.kind, name, title, {column: members for column, members in panels.items() if members})


def _table(one: Experiment, library: Library, name: str, title: str) -> Table:
    columns = [("", one.corner), *((cell.group, cell.column) for cell in one.cells[0])]
    rows = [[row[0].row, *(number(cell, library) for cell in row)] for row in one.cells]
    metrics = dict.fromkeys(cell.metric for cell in one.cells[0])
    return Table(name, title, " ".join(_METRICS[metric] for metric in metrics), columns, rows)  # type: ignore[arg-type]


def _lines(one: Experiment, library: Library, name: str, title: str) -> Picture:
    """One panel per group of columns and one line per row, through the measured columns."""
    panels: dict[str, list[Curve]] = {}
    measured: dict[str, None] = {}
    for row in one.cells:
        for group in dict.fromkeys(cell.group for cell in row):
            cells = [cell for cell in row if cell.group == group and cell.trial and library[cell.trial]]
            if cells:
                values = [[100 * run[one.metric] for run in library[cell.trial]] for cell in cells]  # type: ignore[index,literal-required]
                runs = min(map(len, values))
                points = np.array([column[:runs] for column in values]).T
                panels.setdefault(group, []).append(Curve(row[0].row, cells[0].trial.method, points))  # type: ignore[union-attr]
                measured.update(dict.fromkeys(cell.column for cell in cells))
    return curves(name, title, _METRICS[one.metric], panels, list(measured), (one.axis, f"{one.metric} (%)"))


def _drawn(kind: str, name: str, title: str, panels: dict[str, list[tuple[Cell, list[Result]]]]) -> list[Block]:
    if kind == "confusion":
        return [
            confusion_block(
                f"{name}-{number}", f"{title}, {column}", [(cell.row, runs[0]) for cell, runs in members]
            )
            for number, (column, members) in enumerate(panels.items(), 1)
        ]
    if kind == "preserved accuracy":
        note = "Accuracy on each task when the final model may only answer with classes learned up to that task."
        drawn = {
            column: [_curve(cell, runs, lambda run: run["preserved_accuracy"]) for cell, runs in members]
            for column, members in panels.items()
        }
        return [curves(name, title, note, drawn, range(1, _tasks(panels) + 1), ("task", "preserved accuracy (%)"))]
    note = (
        "The mean probability that the model gives to old classes, for samples of old classes; all of it is ideal."
    )
    drawn = {
        column: [
            curve
            for cell, runs in members
            for curve in (
                _curve(cell, runs, lambda run: run["old_mass"]["test"], " test"),
                _curve(cell, runs, lambda run: run["old_mass"]["memory"], " memory", dashed=True),
            )
        ]
        for column, members in panels.items()
    }
    return [curves(name, title, note, drawn, range(2, _tasks(panels) + 1), ("task", "mass on old classes (%)"))]


def _curve(
    cell: Cell, runs: list[Result], values: Callable[[Result], Any], suffix: str = "", dashed: bool = False
) -> Curve:
    return Curve(cell.row + suffix, runs[0]["method"], 100 * np.array([values(run) for run in runs]), dashed)


def _tasks(panels: dict[str, list[tuple[Cell, list[Result]]]]) -> int:
    return max(len(runs[0]["tasks"]) for members in panels.values() for _, runs in members)


def _missing(chosen: list[Experiment], library: Library) -> list[Block]:
    have = {trial.source for one in chosen for trial in one.trials if library[trial]}
    wanted = dict.fromkeys(trial.source for one in chosen for trial in one.trials)
    lines = [extract_command(source) for source in wanted if source not in have]
    return [Listing("Features that were missing, and what makes them", lines)] if lines else []
