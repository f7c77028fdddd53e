"""Which answers of a version need no person, so that at most a given share of them is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from taer.answers import Automation, Cut
from taer.heads import Head
from taer.loop.automate import Automation as Found
from taer.loop.automate import confidences, is_automatic
from taer.serve.store import Example, Store
from taer.serve.tasks import matrix, names

_SHOWN = 40  # cuts of the curve


@dataclass(frozen=True)
class Promise:
    """What was found about answers without a person, on held-out examples; or why nothing is promised."""

    errors: float
    found: Found | None = None  # None if it came with the head, or nothing is promised
    problem: str | None = None

    def described(self, version: int, head: Head) -> Automation:
        kept: dict[str, float] | None = getattr(head, "automation_", None)
        return {
            "version": version,
            "errors": self.errors if kept is None else kept["errors"],
            "confidence": None if kept is None else kept["confidence"],
            "coverage": 0.0 if kept is None else kept["coverage"],
            "probability": None if self.found is None or not self.found.coverage else self.found.probability,
            "held_out": None if self.found is None else self.found.samples,
            "unknown": None if self.found is None else self.found.unknown,
            "curve": [] if self.found is None else _curve(self.found),
            "problem": self.problem,
        }


def _curve(found: Found) -> list[Cut]:
    places = np.unique(np.linspace(0, len(found.curve) - 1, min(_SHOWN, len(found.curve))).round().astype(int))
    return [
        {"coverage": cut.coverage, "wrong": cut.wrong, "at_most": cut.at_most}
        for cut in (found.curve[place] for place in places.tolist())
    ]


def known_examples(store: Store, version: int, head: Head) -> list[Example]:
    """The held-out examples of a version whose classes it knows."""
    known = {str(label) for label in head.classes_.tolist()}
    return [example for example in store.held_back(version) if example.label in known]


def promised(head: Any, held_out: list[Example], errors: float | None) -> Promise | None:
    """Find which answers need no person, so that at most ``errors`` of them are wrong; the head keeps the threshold.

    A head that came with a threshold that promises as much keeps it until it learns.
    """
    own = getattr(head, "automation_", None)
    if own is not None and (errors is None or own["errors"] <= errors):
        return Promise(own["errors"])
    if errors is None:
        return None
    if not hasattr(head, "automate"):
        return Promise(errors, None, f"the head {head.name} cannot promise anything; bayes and bayes-replay can")
    if not held_out:
        return Promise(errors, None, "there are no held-out examples yet: a class has some from eight examples on")
    try:
        found = head.automate(matrix(held_out), names(held_out, head), errors)
    except ValueError as error:  # too few examples
        return Promise(errors, None, str(error))
    best = found.best
    least = "" if best is None else f"; the least that can be is {100 * best.at_most:.2g} %"
    problem = None if found.coverage else f"at most {100 * errors:g} % of errors cannot be promised for any answers"
    return Promise(errors, found, problem and problem + least)


def without_a_person(head: Head, scores: np.ndarray, novelty: np.ndarray, unknown: np.ndarray) -> np.ndarray | None:
    """Which answers need no person; None if the head promises nothing."""
    if not hasattr(head, "automation_"):
        return None
    found: np.ndarray = is_automatic(head, confidences(head, scores, novelty)) & ~unknown
    return found
