"""LoRanPAC: least squares on random features, with a truncated singular value decomposition."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from taer.heads.base import Head, Task
from taer.heads.card import Card
from taer.heads.closed_form.base import ClosedFormHead
from taer.heads.closed_form.calibration import held_out
from taer.heads.closed_form.linalg import thin_eigen
from taer.heads.embedding import Normalize, RandomFeatures
from taer.heads.fitted import Fitted, array, value_of
from taer.heads.params import param
from taer.rows import row_chunks

_ROWS = 10_000  # samples after which the decomposition is updated within a task, as in the authors' code
_RANK = 1e-12  # eigenvalues below this fraction of the largest are rounding errors


class LoRanPAC(
    ClosedFormHead,
    name="loranpac",
    card=Card("closed form", old_scores="move", keeps="statistics", forgets="no", few_shot=False),
):
    """LoRanPAC: least squares on ``relu(x R)`` along the leading singular vectors of all samples; old columns move.

    ``W = U Σ⁻² Uᵀ Σ z yᵀ`` with ``z = relu(x R)``, where ``U`` and ``Σ`` are singular vectors and values of the matrix of
    all ``z``. When a task ends, the decomposition is that of ``[U Σ, new samples]``, and the smallest quarter is dropped:
    ``round(0.75 · samples so far)`` are kept, at most ``round(0.75 · width)``. There is no penalty.

    Departures: the published method has 100,000 random features and keeps at most 10,000 directions; the default here is
    2,000 features. This is the method on frozen features; with "first-session adaptation" it trains an adapter in the
    first task. Directions whose squared singular value is below 1e-12 of the largest are dropped as well.

    References
    ----------
    L. Peng et al., "LoRanPAC: Low-rank Random Features and Pre-trained Models for Bridging Theory and Practice in
    Continual Learning", ICLR 2025.

    Examples
    --------
    >>> import taer
    >>> sketches = taer.load_features()
    >>> head = taer.zoo.LoRanPAC(width=500, random_state=0).fit(sketches.train_x, sketches.train_y)
    >>> head.score(sketches.test_x, sketches.test_y) > 0.5
    True
    """

    diagonal: ClassVar[bool] = True
    weighs: ClassVar[bool] = False  # the number of directions is that of samples
    width: int = param(2000, "number of random features", at_least=1)
    truncated: float = param(0.25, "fraction of the singular values that is dropped", at_least=0, below=1)

    fitted: ClassVar[dict[str, Fitted]] = {
        "embedding_": value_of(RandomFeatures, width="width", help="the random features, fixed by the first task"),
        "directions_": array("rank", "embedding", types=("float64",), help="singular vectors of all samples"),
        "spectrum_": array("rank", types=("float64",), above=0, help="squared singular values, ascending"),
    }

    def _embedding(self, task: Task) -> RandomFeatures:
        projection = self.rng_.normal(size=(task.X.shape[1], self.width)).astype(np.float32)
        how = Normalize.fit(task.X, self.normalize).how
        return RandomFeatures(how, projection, None, np.zeros(self.width))

    def _learn(self, task: Task) -> None:
        if task.number == 1:
            self._begin(task)
            self.directions_, self.spectrum_ = np.zeros((0, self.width)), np.zeros(0)
        trial, held = self._snapshot(), held_out(task)
        self._count(task)
        self._solve(task)
        if held.any():
            rest = task.picked(np.flatnonzero(~held))
            trial._count(rest)
            self._calibrate(trial, rest, task.picked(np.flatnonzero(held)))

    def _count(self, task: Task) -> None:
        seen = self.statistics_.n_samples if hasattr(self, "statistics_") else 0.0
        super()._count(task)
        for start in range(0, len(task.y), _ROWS):
            numbers = np.arange(start, min(start + _ROWS, len(task.y)))
            seen += len(numbers)
            self._decompose(task.picked(numbers).X, seen)

    def _decompose(self, X: Any, seen: float) -> None:
        """Add samples to the decomposition, then drop its smallest part."""
        parts = [self.embedding_(X[rows]) for rows in row_chunks(X)]
        before = np.sqrt(self.spectrum_)[:, None] * self.directions_
        directions, spectrum = thin_eigen(np.concatenate([before, *parts]))
        kept = round((1 - self.truncated) * min(seen, self.width))
        large = spectrum > _RANK * spectrum.max(initial=0)
        first = max(len(spectrum) - max(kept, 1), int((~large).sum()))  # they ascend
        self.directions_, self.spectrum_ = directions[first:], spectrum[first:]

    def _update(self, classes: np.ndarray) -> None:
        along = self.statistics_.cross_moments @ self.directions_.T / self.spectrum_
        self._set(np.arange(len(self.classes_)), along @ self.directions_, np.zeros(len(self.classes_)))

    # distances between thousands of random features would cost more than the prediction
    _novelty, _novelty_graph = Head._novelty, Head._novelty_graph
