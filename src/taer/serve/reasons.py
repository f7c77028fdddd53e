"""Why a version answered as it did: the runner-up, how usual the sample is, and stored examples of both classes."""

from __future__ import annotations

from typing import Any

import numpy as np

from taer.answers import ConsideredClass, Why
from taer.serve.serving import Conflict, Serving
from taer.serve.store import Store
from taer.serve.tasks import matrix, names

_EXAMPLES = 3  # that are named per class
_COMPARED = 1000  # examples per class in which the nearest are looked for, the latest ones


def reasons(store: Store, serving: Serving, X: np.ndarray, scores: np.ndarray) -> list[Why]:
    """The reasons for the answers of a version, without samples: examples are named by their numbers."""
    head: Any = serving.head
    if not hasattr(head, "explain"):
        raise Conflict(f"why: the head {head.name} gives no reasons; the heads bayes and bayes-replay do")
    order = np.argsort(-scores, axis=1, kind="stable")[:, :2]
    stored = store.latest(serving.version, np.unique(head.classes_[order]).astype(str).tolist(), _COMPARED)
    given = (matrix(stored), names(stored, head)) if stored else None
    ids = [example.id for example in stored]
    limits = [None] * len(X) if serving.limits is None else serving.limits[order[:, 0]].tolist()
    found: list[Why] = []
    for one, limit in zip(head.explain(X, given, _EXAMPLES), limits, strict=True):
        found.append(
            {
                "answer": _considered(one.answer, ids),
                "runner_up": None if one.runner_up is None else _considered(one.runner_up, ids),
                "ahead": one.ahead,
                "limit": limit,
                "as_novel": one.as_novel,
            }
        )
    return found


def _considered(one: Any, ids: list[int]) -> ConsideredClass:
    return {
        "label": str(one.label),
        "probability": one.probability,
        "score": one.score,
        "distance": one.distance,
        # without stored ones, a head may name samples that it keeps itself, which nobody can look at
        "examples": [{"id": ids[near.row], "distance": near.distance} for near in one.examples] if ids else [],
    }
