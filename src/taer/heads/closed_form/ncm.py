"""Nearest class mean."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from taer.heads import exact
from taer.heads.base import Task
from taer.heads.card import Card
from taer.heads.closed_form.base import ClosedFormHead
from taer.heads.embedding import add_unit_rows, unit_rows
from taer.heads.fitted import Fitted, array
from taer.heads.params import param


class NCM(
    ClosedFormHead,
    name="ncm",
    card=Card("closed form", old_scores="never", keeps="statistics", forgets="yes", linear=False, sums=True),
):
    """NCM: the class whose mean is nearest, by angle or by distance; old means never move.

    Keeps one vector per class and one of variances. With strong pretrained features, often all you need. A score is the
    cosine, or half the negative squared distance, up to a number that is the same for all classes of a sample.

    References
    ----------
    T. Mensink et al., "Distance-Based Image Classification", TPAMI 2013.

    Examples
    --------
    >>> import numpy as np, taer
    >>> head = taer.NCM().partial_fit(np.eye(3)[:2], ["a", "b"]).partial_fit(np.eye(3)[2:], ["c"])
    >>> head.predict([[0.1, 0.2, 5.0]])[0]
    np.str_('c')
    """

    diagonal: ClassVar[bool] = True  # variances, for the novelty; no square matrix
    metric: str = param("cosine", "nearest by angle or by distance", options=("cosine", "euclidean"))

    fitted: ClassVar[dict[str, Fitted]] = {
        "origin_": array("width", help="point from which rows and means are measured")
    }

    def _choose(self, task: Task) -> None:
        # Features with a large mean all have nearly the same direction, so the mean is subtracted first.
        center = self.embedding_.center[None]
        self.origin_ = unit_rows(center)[0] if self.metric == "cosine" else center[0] * 0

    def _update(self, classes: np.ndarray) -> None:
        means = self.statistics_.means[classes]
        if self.metric == "cosine":
            apart = unit_rows(means + self.embedding_.center) - self.origin_
            self._set(classes, apart, (apart * self.origin_).sum(axis=1))
        else:
            self._set(classes, means, -0.5 * np.square(means).sum(axis=1))

    def _scores(self, X: np.ndarray, classes: np.ndarray | None = None) -> np.ndarray:
        wanted, rows = slice(None) if classes is None else classes, self.embedding_(X)
        if self.metric == "cosine":
            rows = unit_rows(rows + self.embedding_.center) - self.origin_
        return (exact.products(rows, self.weights_[wanted]) + self.offsets_[wanted]).astype(self.dtype_)

    def _graph(self, graph: Any) -> str:
        rows = self.embedding_.graph(graph, "features")
        if self.metric == "cosine":
            rows = graph.add(
                "Sub", add_unit_rows(graph, graph.add("Add", rows, self.embedding_.center)), self.origin_
            )
        columns, offsets = (rows[self.arrival_].astype(np.float64) for rows in (self.weights_, self.offsets_))
        return str(graph.add("Gemm", rows, columns, offsets, transB=1))
