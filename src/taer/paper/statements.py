"""The paper's statements, each tested on the published numbers and on the measured ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from taer.experiment import Result
from taer.paper import Cell, experiment
from taer.paper.measured import Library, number

NEAR_ONE = 0.9  # of a probability
LITTLE = 1.0  # of a gain, in points
NEAR_BOUND = 10.0  # below joint training, in points; the published distance is 7
CLOSE = (
    2.0  # points between accuracies; the published ones that are called close differ by 1.6, the next is 4.5 away
)
ADAPTERS = "On an adapter"  # columns of table 2 that are not the quoted systems
VITS = ("ViT", "DeiT")  # what groups of columns of a ViT begin with


class Check(NamedTuple):
    """One test of a statement: on a column of a table, for a method, …"""

    where: str
    holds: bool
    evidence: str


class Evidence:
    """Numbers of the tables, and the runs behind the figures."""

    def __init__(self, variant: str, library: Library | None) -> None:
        self._variant, self._library = variant, library

    def columns(self, name: str) -> Iterator[tuple[str, dict[str, float]]]:
        """Each column of a table that has numbers: its place, and its numbers by row."""
        table = experiment(name, self._variant)
        for column in zip(*table.cells, strict=True):
            found = {cell.row: value for cell in column if (value := self._value(cell)) is not None}
            if found:
                yield _where(column[0]), found

    def groups(self, name: str) -> Iterator[tuple[str, dict[str, dict[str, float]]]]:
        """The same, by group of columns, then by column, then by row."""
        table = experiment(name, self._variant)
        found: dict[str, dict[str, dict[str, float]]] = {}
        for cell in (cell for row in table.cells for cell in row):
            if (value := self._value(cell)) is not None:
                found.setdefault(cell.group, {}).setdefault(cell.column, {})[cell.row] = value
        yield from found.items()

    def runs(self, name: str) -> Iterator[tuple[str, dict[str, list[Result]]]]:
        """Each column of a figure that was measured: its place, and its runs by row."""
        if self._library is None:
            return
        for column in zip(*experiment(name, self._variant).cells, strict=True):
            found = {cell.row: runs for cell in column if cell.trial and (runs := self._library[cell.trial])}
            if found:
                yield column[0].column, found

    def _value(self, cell: Cell) -> float | None:
        if self._library is None or cell.trial is None:
            return cell.published
        return number(cell, self._library).mean


def verdict(checks: list[Check]) -> str:
    """Whether a statement holds everywhere, in some places, nowhere, or was not tested."""
    if not checks:
        return "not tested"
    good = [check.where for check in checks if check.holds]
    if len(good) == len(checks):
        return "holds"
    return f"holds only for {', '.join(good)}" if good else "does not hold"


def _where(cell: Cell) -> str:
    return f"{cell.column} {cell.group}".strip()


def _beats(name: str, winner: str, losers: tuple[str, ...]) -> Callable[[Evidence], Iterator[Check]]:
    """In every column of a table, one row is above others."""

    def test(evidence: Evidence) -> Iterator[Check]:
        for where, rows in evidence.columns(name):
            others = {row: rows[row] for row in losers if row in rows}
            if winner in rows and others:
                best = max(others, key=lambda row: others[row])
                shown = f"{winner} {rows[winner]:.2f}, {best} {others[best]:.2f}"
                yield Check(where, rows[winner] > others[best], shown)

    return test


def _without_replay_is_worst(evidence: Evidence) -> Iterator[Check]:
    for where, rows in evidence.columns("table1"):
        if {"Finetune", "oEWC", "ER"} <= rows.keys():
            least = min((row for row in rows if row not in ("Finetune", "oEWC")), key=lambda row: rows[row])
            shown = f"Finetune {rows['Finetune']:.2f}, oEWC {rows['oEWC']:.2f}, least of the others {least}"
            worst = max(rows["Finetune"], rows["oEWC"])
            yield Check(where, worst < rows[least], f"{shown} {rows[least]:.2f}")


def _er_is_near_its_bound(evidence: Evidence) -> Iterator[Check]:
    for where, rows in evidence.columns("table1"):
        if where.startswith(("CUB200 ViT", "CUB200 DeiT")) and {"ER", "Joint"} <= rows.keys():
            shown = f"ER {rows['ER']:.2f}, Joint {rows['Joint']:.2f}"
            yield Check(where, rows["Joint"] - rows["ER"] < NEAR_BOUND, shown)


def _fixing_alone_is_little(evidence: Evidence) -> Iterator[Check]:
    for where, rows in evidence.columns("table3"):
        if not where.startswith("CIFAR100") and {"ER", "ER-fixed"} <= rows.keys():
            gain = rows["ER-fixed"] - rows["ER"]
            yield Check(where, gain < LITTLE, f"ER-fixed {gain:+.2f} points over ER")


def _vit_is_better(evidence: Evidence) -> Iterator[Check]:
    """Every method, on each data set."""
    found = dict(evidence.groups("table1"))
    for group in (group for group in found if group.startswith(VITS)):
        for column, rows in found[group].items():
            others = found.get("ResNet18", {}).get(column, {})
            gains = {row: value - others[row] for row, value in rows.items() if row in others}
            if gains:
                least = min(gains, key=lambda row: gains[row])
                shown = f"least gain: {least} {others[least]:.2f} to {rows[least]:.2f}"
                yield Check(f"{column} {group}", gains[least] > 0, shown)


def _best_baselines_differ(evidence: Evidence) -> Iterator[Check]:
    for group, columns in evidence.groups("table1"):
        best = {}
        for column, rows in columns.items():
            known = [row for row in BASELINES if row in rows]
            if len(known) == len(BASELINES):
                best[column] = max(known, key=lambda row, rows=rows: rows[row])  # type: ignore[misc]
        if group.startswith(VITS) and len(best) > 1:
            shown = ", ".join(f"{column} {row}" for column, row in best.items())
            yield Check(group, len(set(best.values())) == len(best), shown)


def _vit_beats_the_quoted(evidence: Evidence) -> Iterator[Check]:
    quoted: dict[str, dict[str, float]] = {}
    vits: dict[str, dict[str, float]] = {}
    for column, rows in evidence.columns("table2"):
        name, _, backbone = column.partition(", ")
        for row, value in rows.items():
            if name != "TaER" and ADAPTERS not in column:
                quoted.setdefault(row, {})[name] = value
            elif name == "TaER" and backbone.startswith(VITS):
                vits.setdefault(row, {})[backbone] = value
    for row, values in vits.items():
        for backbone, ours in values.items():
            shown = ", ".join(f"{name} {value:.2f}" for name, value in quoted[row].items())
            yield Check(f"N = {row}, {backbone}", ours > max(quoted[row].values()), f"TaER {ours:.2f}; {shown}")


def _each_alone_helps(evidence: Evidence) -> Iterator[Check]:
    for where, rows in evidence.columns("table3"):
        if where.startswith("CIFAR100") and {"ER", "ER-fixed", "ER-balanced"} <= rows.keys():
            shown = ", ".join(f"{row} {rows[row]:.2f}" for row in ("ER", "ER-fixed", "ER-balanced"))
            yield Check(where, min(rows["ER-fixed"], rows["ER-balanced"]) > rows["ER"], shown)


def _between_quoted(evidence: Evidence) -> Iterator[Check]:
    by_row: dict[str, dict[str, float]] = {}
    for column, rows in evidence.columns("table2"):
        for row, value in rows.items() if ADAPTERS not in column else ():
            by_row.setdefault(row, {})[column] = value
    for row, values in by_row.items():
        ours = values.get("TaER, ResNet18")
        if ours is not None:
            others = {name.split(",")[0]: value for name, value in values.items() if not name.startswith("TaER")}
            shown = ", ".join(f"{name} {value:.2f}" for name, value in others.items())
            between = max(others["AANets"], others["FAS"]) < ours < others["DER"]
            yield Check(f"N = {row}", between, f"TaER {ours:.2f}; {shown}")


def _old_mass(part: str) -> Callable[[Evidence], Iterator[Check]]:
    def test(evidence: Evidence) -> Iterator[Check]:
        for where, rows in evidence.runs("figure2"):
            masses = {row: float(np.mean([run["old_mass"][part] for run in runs])) for row, runs in rows.items()}
            near = [row for row, mass in masses.items() if mass >= NEAR_ONE]
            shown = ", ".join(f"{row} {mass:.2f}" for row, mass in masses.items())
            yield Check(where, near == (["TaER"] if part == "test" else list(masses)), shown)

    return test


def _nothing_is_lost(evidence: Evidence) -> Iterator[Check]:
    for where, rows in evidence.runs("figure4"):
        if "TaER" not in rows:
            continue
        largest = max(
            abs(preserved - row[-1])
            for run in rows["TaER"]
            for preserved, row in zip(run["preserved_accuracy"], run["accuracy_matrix"], strict=True)
        )
        yield Check(where, largest == 0, f"largest difference {largest:.1e}")


def _preserves_best(evidence: Evidence) -> Iterator[Check]:
    for where, rows in evidence.runs("figure4"):
        means = {
            row: 100 * float(np.mean([run["preserved_accuracy"] for run in runs])) for row, runs in rows.items()
        }
        shown = ", ".join(f"{row} {mean:.1f}" for row, mean in means.items())
        yield Check(where, max(means, key=lambda row: means[row]) == "TaER", f"mean over tasks: {shown}")


def _falls_then_rises(evidence: Evidence) -> Iterator[Check]:
    for where, rows in evidence.runs("figure4"):
        for row, runs in rows.items():
            curve = 100 * np.mean([run["preserved_accuracy"] for run in runs], axis=0)
            low = int(curve.argmin())
            shown = f"{curve[0]:.1f} at first, least {curve[low]:.1f} at task {low + 1}, {curve[-1]:.1f} at last"
            yield Check(f"{row} {where}", 0 < low < len(curve) - 1, shown)


def _bias(evidence: Evidence) -> Iterator[tuple[str, dict[str, tuple[float, float]]]]:
    """Per method, in percent: old samples predicted as the last task, and samples of the last task predicted as old."""
    for where, rows in evidence.runs("figure3"):
        found = {}
        for row, runs in rows.items():
            forward, backward = [], []
            for run in runs:
                counts, last = np.array(run["confusion"]), len(run["tasks"][-1])
                forward.append(counts[:-last, -last:].sum() / counts[:-last].sum())
                backward.append(counts[-last:, :-last].sum() / counts[-last:].sum())
            found[row] = 100 * float(np.mean(forward)), 100 * float(np.mean(backward))
        yield where, found


def _biased_to_the_last(evidence: Evidence) -> Iterator[Check]:
    for where, bias in _bias(evidence):
        for row in ("ER", "UCIR", "DER++"):
            if row in bias and "TaER" in bias:
                shown = f"old as last: {row} {bias[row][0]:.1f} %, TaER {bias['TaER'][0]:.1f} %"
                yield Check(f"{row} {where}", bias[row][0] > 2 * bias["TaER"][0], shown)


def _biased_to_the_old(evidence: Evidence) -> Iterator[Check]:
    for where, bias in _bias(evidence):
        if "SS-IL" in bias:
            forward, backward = bias["SS-IL"]
            shown = f"last task as old {backward:.1f} %, old as last task {forward:.1f} %"
            yield Check(where, backward > forward, shown)


def _memory_gains(evidence: Evidence) -> Iterator[tuple[str, dict[str, float]]]:
    """Per method, the gain from the smallest to the largest memory."""
    for group, columns in evidence.groups("figure5"):
        sizes = list(columns.values())
        if len(sizes) > 1:
            yield group, {row: sizes[-1][row] - sizes[0][row] for row in sizes[-1] if row in sizes[0]}


def _memory_helps(evidence: Evidence) -> Iterator[Check]:
    for where, gains in _memory_gains(evidence):
        for row, gain in gains.items():
            yield Check(f"{row} {where}", gain > 0, f"{gain:+.1f} points from memory 100 to 2,000")


def _er_gains_most(evidence: Evidence) -> Iterator[Check]:
    for where, gains in _memory_gains(evidence):
        yield Check(where, max(gains, key=lambda row: gains[row]) == "ER", _points(gains))


def _ssil_gains_little(evidence: Evidence) -> Iterator[Check]:
    for where, gains in _memory_gains(evidence):
        if {"SS-IL", "ER"} <= gains.keys():
            yield Check(where, gains["SS-IL"] < gains["ER"] / 2, _points(gains))


def _points(gains: dict[str, float]) -> str:
    return ", ".join(f"{row} {gain:+.1f}" for row, gain in gains.items())


def _backbone_helps(evidence: Evidence) -> Iterator[Check]:
    for _, columns in evidence.groups("figure6"):
        sizes = [name for name in columns if name.startswith("ViT")]
        for row in columns[sizes[0]] if len(sizes) > 1 else ():
            values = [columns[name][row] for name in sizes]
            shown = ", ".join(f"{name} {value:.2f}" for name, value in zip(sizes, values, strict=True))
            yield Check(row, values == sorted(values), shown)


def _falls_slowly(evidence: Evidence) -> Iterator[Check]:
    """Compares the lost fraction: a method with a low accuracy cannot lose many points."""
    for where, columns in evidence.groups("table4"):
        ends = {name: (rows["5"], rows["50"]) for name, rows in columns.items() if {"5", "50"} <= rows.keys()}
        lost = {name: 1 - last / first for name, (first, last) in ends.items()}
        if {"TaER", "ER", "SS-IL"} <= lost.keys():
            shown = ", ".join(f"{name} {a:.1f} to {b:.1f} ({lost[name]:.0%} lost)" for name, (a, b) in ends.items())
            yield Check(where, lost["TaER"] < min(lost["ER"], lost["SS-IL"]), f"N = 5 to 50: {shown}")


def _only_many_tasks_cost(evidence: Evidence) -> Iterator[Check]:
    for where, columns in evidence.groups("table4"):
        rows = columns.get("TaER", {})
        if {"5", "10", "20", "50"} <= rows.keys():
            few = [rows[name] for name in ("5", "10", "20")]
            close = max(few) - min(few) < CLOSE < min(few) - rows["50"]
            shown = ", ".join(f"{rows[name]:.2f}" for name in ("5", "10", "20", "50"))
            yield Check(where, close, f"TaER with 5, 10, 20, 50 tasks: {shown}")


def _a_class_adds_its_width(evidence: Evidence) -> Iterator[Check]:
    for where, rows in evidence.runs("figure4"):
        if "TaER" not in rows:
            continue
        added = {
            (after - before) / len(task)
            for run in rows["TaER"]
            for before, after, task in zip([0, *run["head_bytes"]], run["head_bytes"], run["tasks"], strict=False)
        }
        shown = f"{', '.join(f'{size / 4:,.0f}' for size in added)} numbers of 4 bytes per class, at every task"
        yield Check(where, len(added) == 1, shown)


BASELINES = ("Finetune", "oEWC", "ER", "iCaRL", "GSS", "DER++", "UCIR", "SS-IL")
STATEMENTS: Mapping[str, Callable[[Evidence], Iterator[Check]]] = {
    "TaER beats all its baselines (table 1)": _beats("table1", "TaER", BASELINES),
    "Methods without replay are the worst (table 1)": _without_replay_is_worst,
    "ER beats GSS (table 1)": _beats("table1", "ER", ("GSS",)),
    "DER++ always beats ER (table 1)": _beats("table1", "DER++", ("ER",)),
    f"With a ViT, ER on CUB200 is near its upper bound: within {NEAR_BOUND:g} points of Joint (table 1)": (
        _er_is_near_its_bound
    ),
    "All methods do better with the ViT than with ResNet18 (table 1)": _vit_is_better,
    "With a ViT, the best baseline is another one on every data set (table 1)": _best_baselines_differ,
    "With a ViT, TaER beats DER, AANets and FAS (table 2)": _vit_beats_the_quoted,
    "With ResNet18, TaER beats AANets and FAS and falls behind DER (table 2)": _between_quoted,
    "λ and fixed columns together beat each alone (table 3)": _beats(
        "table3", "TaER", ("ER-fixed", "ER-balanced", "ER")
    ),
    "On CIFAR100 λ and fixed columns help each alone, too (table 3)": _each_alone_helps,
    f"Fixed columns alone bring nothing on CUB200 and CORe50: below {LITTLE:g} point (table 3)": (
        _fixing_alone_is_little
    ),
    "λ matters more than fixed columns (table 3)": _beats("table3", "ER-balanced", ("ER-fixed",)),
    "TaER loses a smaller fraction of its A_T with more tasks than ER and SS-IL (table 4)": _falls_slowly,
    f"TaER is as good with 5, 10 and 20 tasks, within {CLOSE:g} points, and only with 50 worse (table 4)": (
        _only_many_tasks_cost
    ),
    f"Old mass on memory is near one for all three: {NEAR_ONE} in mean (figure 2)": _old_mass("memory"),
    f"Old mass on test is near one for TaER only: {NEAR_ONE} in mean (figure 2)": _old_mass("test"),
    "ER, UCIR and DER++ take old classes for the last task, over twice as often as TaER (figure 3)": (
        _biased_to_the_last
    ),
    "SS-IL has a reversed bias, towards old classes (figure 3)": _biased_to_the_old,
    "TaER's preserved accuracy equals a[t, t] (figure 4)": _nothing_is_lost,
    "TaER preserves knowledge best (figure 4)": _preserves_best,
    "Preserved accuracy falls, then rises (figure 4)": _falls_then_rises,
    "A_T grows with memory (figure 5)": _memory_helps,
    "ER gains most from memory (figure 5)": _er_gains_most,
    "SS-IL gains little from memory: less than half of what ER gains (figure 5)": _ssil_gains_little,
    "A_T grows with the backbone (figure 6)": _backbone_helps,
    "What a class adds to the head is its width, and an intercept": _a_class_adds_its_width,
}
