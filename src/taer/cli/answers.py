"""What a head answers for a sample, and how it is printed."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from taer.heads import Head
    from taer.rows import Rows


class Format(StrEnum):
    labels = "labels"
    csv = "csv"
    json = "json"


@dataclass(frozen=True)
class Answer:
    """A head's prediction for one input."""

    input: str
    label: Any
    probability: float  # of the most likely class
    probabilities: dict[Any, float]  # of all classes in the head's order, or of the most likely ones, best first
    novelty: float
    above_limit: float | None  # the novelty minus the threshold; None if the head has no threshold
    unknown: bool | None  # likewise
    automatic: bool | None  # whether it needs no person; None if that is not asked for

    def novel(self) -> dict[str, Any]:
        """The novelty and, if the head has thresholds, on which side of them the sample is."""
        found: dict[str, Any] = {"novelty": self.novelty}
        if self.unknown is not None:
            found |= {"above_limit": self.above_limit, "unknown": self.unknown}
        return found if self.automatic is None else found | {"automatic": self.automatic}


def answers(
    head: Head,
    names: Sequence[str],
    X: np.ndarray | Rows,
    top: int | None,
    unknown: str | None,
    automate: bool = False,
) -> list[Answer]:
    """The answers for some samples; ``unknown`` is the label of those above the threshold.

    With ``automate``, they have whether they need no person.
    """
    from taer.heads.unknowns import above, thresholds_of

    scores, novelty = head._scores_with_novelty(X)
    probabilities, best = head._probabilities(scores), head.classes_[scores.argmax(axis=1)]
    limited = hasattr(head, "threshold_")
    limits = thresholds_of(head, best, None) if limited else float("inf")
    beyond, novel = novelty - limits, above(novelty, limits)
    everything = [range(len(head.classes_))] * len(scores)
    shown = everything if top is None else (-scores).argsort(axis=1, kind="stable")[:, :top]
    labels = head.classes_.tolist()
    alone = _alone(head, scores, novelty) if automate else None
    return [
        Answer(
            input=name,
            label=unknown if unknown is not None and novel[row] else best[row].item(),
            probability=probabilities[row].max().item(),
            probabilities={labels[column]: probabilities[row, column].item() for column in shown[row]},
            novelty=novelty[row].item(),
            above_limit=beyond[row].item() if limited else None,
            unknown=bool(novel[row]) if limited else None,
            automatic=None if alone is None else bool(alone[row]),
        )
        for row, name in enumerate(names)
    ]


def _alone(head: Head, scores: np.ndarray, novelty: np.ndarray) -> np.ndarray:
    from taer.loop.automate import confidences, is_automatic

    return is_automatic(head, confidences(head, scores, novelty))


def printer(format: Format, top: int | None, cell: Callable[[Any], Any]) -> Callable[[list[Answer]], None]:
    """A function that prints answers as they arrive. In CSV, ``cell`` is applied to texts."""
    table = csv.writer(sys.stdout, lineterminator="\n")
    is_first = True

    def labels(found: list[Answer]) -> None:
        for answer in found:
            who = [] if answer.automatic is None else ["automatic" if answer.automatic else "ask"]
            print(*([answer.label] if top is None else answer.probabilities), *who, sep="\t")

    def rows(found: list[Answer]) -> None:
        nonlocal is_first
        for answer in found:
            shown = answer.probabilities
            if is_first:
                table.writerow(map(cell, ["input", "label", *answer.novel(), *(pair_names(top) if top else shown)]))
                is_first = False
            cells = [it for pair in shown.items() for it in pair] if top else shown.values()
            table.writerow(map(cell, [answer.input, answer.label, *answer.novel().values(), *cells]))

    def objects(found: list[Answer]) -> None:
        for answer in found:
            named = {str(label): value for label, value in answer.probabilities.items()}
            shown = {"input": answer.input, "label": answer.label, "probabilities": named} | answer.novel()
            print(json.dumps(shown, ensure_ascii=False))

    return {Format.labels: labels, Format.csv: rows, Format.json: objects}[format]


def pair_names(top: int) -> list[str]:
    """The columns of the most likely classes."""
    return [name for place in range(1, top + 1) for name in (f"label {place}", f"probability {place}")]


def harmless(cell: Any) -> Any:
    """A cell that no spreadsheet runs: a text that begins like a formula gets an apostrophe before it.

    Examples
    --------
    >>> harmless("=1+2"), harmless("-3.5"), harmless("refund"), harmless(-3.5)
    ("'=1+2", '-3.5', 'refund', -3.5)
    """
    if not isinstance(cell, str) or not cell.startswith(("=", "+", "-", "@", "\t", "\r")):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell
