"""Incremental classifier and representation learning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import expit

from taer.heads._fitted import Fitted, array
from taer.heads._params import param
from taer.heads.base import Task
from taer.heads.sgd import Batch, Plan
from taer.heads.softmax import SoftmaxHead, unit_rows
from taer.heads.union import UnionHead
from taer.memory import POLICIES


@dataclass(kw_only=True, eq=False, repr=False)
class ICaRL(UnionHead, SoftmaxHead):
    """iCaRL: the nearest mean of exemplars, with a sigmoid head beside it.

    Predicts the class whose mean of unit-length exemplars, at unit length, is nearest to the unit-length
    feature. The head minimises the binary cross-entropy over all seen classes on ``D_t ∪ M``, with the outputs
    at the start of the task as targets of old classes (Rebuffi et al., CVPR 2017). On frozen features these
    targets are met exactly: old columns do not move, and the nearest mean does not depend on the head at all.

    Departures: no flipped images; ``exemplars="greedy"`` is the memory that the paper's comparison describes.
    """

    lr: float = param(0.3, "learning rate", above=0)
    memory_size: int = param(200, "samples kept from all earlier tasks together", at_least=1)
    exemplars: str = param("herding", "which samples are kept; fixed by the first task", options=tuple(POLICIES))
    inference: str = param("nme", "answer by the nearest mean of exemplars or by the head", options=("nme", "head"))

    policy_parameter: ClassVar[str] = "exemplars"
    class_arrays: ClassVar[tuple[str, ...]] = ("means_",)
    fitted: ClassVar[dict[str, Fitted]] = {"means_": array("classes", "width")}

    def _moving(self, task: Task) -> np.ndarray:
        return task.current

    def _plan(self, X: Any, task: Task, columns: np.ndarray) -> Plan:
        def gradient(scores: np.ndarray, batch: Batch) -> np.ndarray:
            """Of the mean over samples and all seen classes; old classes are a constant."""
            is_class = batch.constants["target"][:, None] == task.current
            found: np.ndarray = (expit(scores) - is_class) / (len(scores) * task.n_classes)
            return found.astype(scores.dtype, copy=False)

        return Plan(self._union(X, task), gradient)

    def _finish(self, X: Any, task: Task) -> None:
        self._remember(X, task)
        exemplars = unit_rows(self._map(self.memory_.X))
        self.means_ = np.zeros((task.n_classes, X.shape[1]), self.dtype_)
        for number, position in enumerate(self._arrival):
            members = exemplars[self.memory_.y == number]
            if len(members):
                self.means_[position] = members.mean(axis=0)
        self.means_ = unit_rows(self.means_)

    def _scores(self, X: np.ndarray) -> np.ndarray:
        if self.inference == "head":
            return super()._scores(X)
        # -|h - m|² = 2 h·m - 2 at unit length; a class without exemplars has no mean and comes last
        scores = 2 * unit_rows(self._map(X)) @ self.means_.T - 2
        scores[:, ~self.means_.any(axis=1)] = -4
        return scores
