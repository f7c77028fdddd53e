"""Nearest class mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from taer.heads._fitted import Fitted, array
from taer.heads._params import param
from taer.heads.base import Task
from taer.heads.softmax import unit_rows
from taer.heads.statistical import StatisticsHead


@dataclass(kw_only=True, eq=False, repr=False)
class NCM(StatisticsHead):
    """NCM: the class whose mean is nearest, by angle or by distance; old means never move.

    Keeps one vector a class. The prototype classifier that strong pretrained features need least beyond.
    """

    metric: str = param("cosine", "nearest by angle or by distance", options=("cosine", "euclidean"))

    class_arrays: ClassVar[tuple[str, ...]] = ("means_",)
    fitted: ClassVar[dict[str, Fitted]] = {"means_": array("classes", "width")}

    def _solve(self, X: Any, task: Task) -> None:
        means = self.statistics_.means[np.argsort(self._arrival)]
        self.means_ = unit_rows(means) if self.metric == "cosine" else means

    def _scores(self, X: np.ndarray) -> np.ndarray:
        rows = self._embed(X)
        if self.metric == "cosine":
            return (unit_rows(rows) @ self.means_.T).astype(self.dtype_)
        return (rows @ self.means_.T - 0.5 * np.square(self.means_).sum(axis=1)).astype(self.dtype_)
