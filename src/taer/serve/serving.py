"""The current version and its predictions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from taer.heads import Head
from taer.heads.unknowns import above
from taer.serve.inputs import BadInput
from taer.serve.store import Store
from taer.serve.tasks import matrix

FALSE_ALARMS = 0.05  # fraction of samples of known classes that are marked unknown
_ENOUGH = 20  # held-out examples from which a threshold is computed


class Conflict(ValueError):
    """The request does not fit the state of the service."""


@dataclass(frozen=True)
class Answers:
    """The predictions of a version for some samples."""

    version: int
    threshold: float | None
    classes: np.ndarray
    best: np.ndarray  # of each sample the place of its class in classes
    probabilities: np.ndarray
    novelty: np.ndarray
    unknown: np.ndarray


@dataclass(frozen=True)
class Serving:
    """A version and its head. It is replaced as a whole and never changed, so a request sees one version."""

    version: int
    head: Head | None
    threshold: float | None  # the novelty above which an answer is unknown
    limits: np.ndarray | None  # the same for each class of classes_, some of which may have one of their own

    @classmethod
    def load(cls, store: Store, version: int) -> Serving:
        head = store.load(version)
        threshold = None if head is None else _threshold(head, store, version)
        if head is None or threshold is None:
            return cls(version, head, None, None)
        own = getattr(head, "class_thresholds_", {})
        return cls(
            version, head, threshold, np.array([own.get(label, threshold) for label in head.classes_.tolist()])
        )

    @property
    def classes(self) -> list[tuple[str, int]]:
        """Classes and their tasks, in order of learning."""
        return [] if self.head is None else [(str(label), task) for label, task in self.head.learning_order_]

    def answer(self, X: np.ndarray) -> Answers:
        head = self.head
        if head is None:
            raise Conflict("nothing was learned yet: add examples, then learn")
        if X.shape[1] != head.n_features_in_:
            raise BadInput(f"vectors: expected {head.n_features_in_} numbers in each, got {X.shape[1]}")
        scores, novelty = head.scores_with_novelty(X)
        best = scores.argmax(axis=1)
        unknown = above(novelty, np.inf if self.limits is None else self.limits[best])
        return Answers(
            self.version, self.threshold, head.classes_, best, head.probabilities(scores), novelty, unknown
        )


def _threshold(head: Head, store: Store, version: int) -> float | None:
    """The head's own threshold, else one from its stored novelties, else one from enough held-out examples."""
    if hasattr(head, "threshold_"):
        return head.threshold_
    try:
        return head.novelty_threshold(false_alarms=FALSE_ALARMS)
    except ValueError:
        known = {str(label) for label in head.classes_.tolist()}
        held_back = [example for example in store.held_back(version) if example.label in known]
        return head.novelty_threshold(matrix(held_back), FALSE_ALARMS) if len(held_back) >= _ENOUGH else None
