"""Linear discriminant analysis of random Fourier features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from taer.heads._fitted import Fitted, Sizes, array
from taer.heads._params import param
from taer.heads.base import Head
from taer.heads.slda import SLDA


@dataclass(kw_only=True, eq=False, repr=False)
class RFFLDA(SLDA):
    """RFF-LDA: SLDA on random features of a Gaussian kernel; old columns move.

    ``√(2/m) cos(x Ω + u)`` with the bandwidth of the kernel at the median squared distance in the first task, as
    in KLDA and RanDumb (Prabhu et al., 2024), which tune it per data set.
    """

    normalize: str = param("auto", "as for every closed-form head", options=("none", "l2", "sqrt-l2", "auto"))
    shrinkage: Any = param(
        0.01,
        "share of the mean variance mixed into the covariance",
        at_least=0,
        at_most=1,
        options=("ledoit-wolf", "oas"),
    )
    width: int = param(2000, "number of random features", at_least=1)

    fitted: ClassVar[dict[str, Fitted]] = {
        "frequencies_": array("width", "embedding"),
        "phases_": array("embedding"),
    }

    def _sizes(self) -> Sizes:
        return super()._sizes() | {"embedding": self.frequencies_.shape[-1]}

    def _fix_embedding(self, X: Any) -> None:
        super()._fix_embedding(X)
        pairs = self._rng_.integers(0, len(X), (2, 1000))
        one, other = (super(RFFLDA, self)._embed(X[numbers]) for numbers in pairs)
        squared = float(np.median(np.square(one - other).sum(axis=1)))
        scale = 1 / np.sqrt(squared) if squared > 0 else 1.0
        self.frequencies_ = (scale * self._rng_.normal(size=(X.shape[1], self.width))).astype(np.float32)
        self.phases_ = self._rng_.uniform(0, 2 * np.pi, self.width).astype(np.float32)

    def _embed(self, X: np.ndarray) -> np.ndarray:
        waves = super()._embed(X).astype(self.dtype_) @ self.frequencies_.astype(self.dtype_) + self.phases_
        return np.cos(waves).astype(np.float64) * np.sqrt(2 / self.width)

    _novelty = Head._novelty  # distances among thousands of random features would cost more than the answer
