"""Ridge regression on class indicators, and the same after a random projection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from taer.heads._fitted import Fitted, Sizes, array, number
from taer.heads._params import param
from taer.heads.base import Head, Task
from taer.heads.statistical import SolvedHead, thin_eigen

_STRENGTHS = 10.0 ** np.arange(-6, 2.1, 0.5)  # shares of the mean variance
_ROWS = 5000


@dataclass(kw_only=True, eq=False, repr=False)
class Ridge(SolvedHead):
    """Ridge: least squares on one-hot labels, equal to fitting all data at once; old columns move.

    ``(Xᵀ X + γ I)⁻¹ Xᵀ Y`` of centred data, from the Gram matrix and the class sums. With ``gamma="auto"`` the
    strength is a share of the total variance, chosen in the first task by its leave-one-out error.
    """

    gamma: Any = param(
        "auto", "strength of the penalty, a number or chosen in the first task", at_least=0, options=("auto",)
    )

    fitted: ClassVar[dict[str, Fitted]] = {"share_": number(at_least=0)}

    def _choose(self, X: Any, task: Task) -> None:
        if self.gamma == "auto":
            self.share_ = self._chosen_share(X, task)

    def _set_from_statistics(self) -> None:
        total, mean, centred_sums = self._moments()
        strength = self.share_ * np.trace(total) / len(total) if self.gamma == "auto" else float(self.gamma)
        least = 1e-12 * np.trace(total) / len(total) or 1.0
        columns = cho_solve(cho_factor(total + max(strength, least) * np.eye(len(total))), centred_sums.T).T
        shares = self.statistics_.counts / self.statistics_.n_samples
        self._set_columns(columns, shares - columns @ mean)

    def _moments(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Total scatter, total mean, and the sums of the classes about it."""
        statistics = self.statistics_
        mean = statistics.cross_moments.sum(axis=0) / statistics.n_samples
        distances = statistics.means - mean
        total = statistics.scatter + (distances * statistics.counts[:, None]).T @ distances
        return total, mean, distances * statistics.counts[:, None]

    def _chosen_share(self, X: Any, task: Task) -> float:
        """The share with the least leave-one-out error on (a sample of) the first task, in closed form."""
        picks = self._rng_.permutation(len(X))[:_ROWS]
        rows = self._embed(X[picks])
        rows -= rows.mean(axis=0)
        target = (task.y[picks][:, None] == task.current).astype(np.float64)
        target -= target.mean(axis=0)
        directions, spectrum = thin_eigen(rows)
        left = rows @ (directions.T / np.sqrt(np.maximum(spectrum, 1e-300)))
        projected, errors = left.T @ target, []
        for share in _STRENGTHS:
            level = share * max(spectrum.sum() / rows.shape[1], 1e-300)
            kept = spectrum / (spectrum + level)
            leverage = np.square(left) @ kept + 1 / len(rows)
            residuals = target - left @ (kept[:, None] * projected)
            errors.append(np.square(residuals / np.maximum(1 - leverage, 1e-6)[:, None]).mean())
        return float(_STRENGTHS[int(np.argmin(errors))])


@dataclass(kw_only=True, eq=False, repr=False)
class RanPAC(Ridge):
    """RanPAC: ridge regression on ``relu(x R)`` with a fixed random matrix R; old columns move.

    The second phase of McDonnell et al., NeurIPS 2023, on features as they are. Keeps a square matrix of
    ``width``: 32 MB at 2,000, and 800 MB at the 10,000 of its paper.
    """

    width: int = param(2000, "number of random features", at_least=1)

    fitted: ClassVar[dict[str, Fitted]] = {"projection_": array("width", "embedding")}

    def _sizes(self) -> Sizes:
        return super()._sizes() | {"embedding": self.projection_.shape[-1]}

    def _fix_embedding(self, X: Any) -> None:
        super()._fix_embedding(X)
        self.projection_ = self._rng_.normal(size=(X.shape[1], self.width)).astype(np.float32)

    def _embed(self, X: np.ndarray) -> np.ndarray:
        rows = super()._embed(X).astype(self.dtype_) @ self.projection_.astype(self.dtype_)
        return np.maximum(rows, 0).astype(np.float64)

    _novelty = Head._novelty  # distances among thousands of random features would cost more than the answer
