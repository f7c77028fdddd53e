"""AnaCP: features projected onto class means that repel each other, and a classifier on drawn samples."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from scipy.special import ndtr

from taer.heads import exact
from taer.heads.base import Head, Task
from taer.heads.card import Card
from taer.heads.closed_form.base import NORMALIZE, ClosedFormHead
from taer.heads.embedding import NORMALIZATIONS, unit_rows
from taer.heads.fitted import Fitted, array
from taer.heads.numerics import grown
from taer.heads.params import param
from taer.rows import row_chunks
from taer.zoo.shared.ridge import ridge_solved

_NOISE = 1e-4  # added to the variances, as in the authors' code
_DRAWN = 2048  # samples that are drawn and lifted at once
_LENGTHS = (1e-2, 1e2)  # of rows that are not scaled; the constants of the method are for rows of unit length
_RANK = 1e-8  # singular values below this fraction of the largest are rounding errors


class AnaCP(
    ClosedFormHead,
    name="anacp",
    card=Card(
        "closed form",
        old_scores="move",
        keeps="statistics",
        forgets="no",
        linear=False,
        exports=False,
        few_shot=False,
    ),
):
    """AnaCP: rows are projected by ridge regression onto repelled class means; then ridge on drawn samples; scores move.

    Rows have unit length. Each of ``layers`` lifts ``z = gelu(R x)`` has a ridge regression ``Θ`` from ``z`` onto the
    target ``t_c`` of the sample's class; ``h(x)`` is the mean over the lifts of ``Θᵀ z`` at unit length. Targets are the
    class means, repelled: with ``C`` the covariance within classes, the centered means times ``C^-½`` have singular values
    ``s``; each becomes ``s + 1``, the result times ``C^-½`` is added to the center, and rows are scaled to unit length. The
    classifier is a ridge regression from ``gelu(R' h(x))`` onto class indicators, on ``drawn`` samples per class from
    normal distributions with the class means and the covariance ``C``. It is solved again when the statistics change.

    The frozen half of the published method, which first trains the backbone with LoRA in the first task. Targets follow
    the authors' code. Departures: 2,000 random features per lift in place of 5,000; the covariance is that of all samples,
    plus 1e-4 (the authors' update counts the newest samples twice); singular values that are zero stay zero.

    References
    ----------
    S. Momeni, C. Xiao, B. Liu, "AnaCP: Toward Upper-Bound Continual Learning via Analytic Contrastive Projection",
    NeurIPS 2025.

    Examples
    --------
    >>> import taer
    >>> sketches = taer.load_features()
    >>> head = taer.zoo.AnaCP(width=300, drawn=20, random_state=0).fit(sketches.train_x, sketches.train_y)
    >>> head.score(sketches.test_x, sketches.test_y) > 0.4
    True
    """

    weighs: ClassVar[bool] = False  # the strength is in units of samples
    normalize: str = param("l2", NORMALIZE, options=(*NORMALIZATIONS, "auto"))
    gamma: float = param(100.0, "strength of the penalties", above=0)
    width: int = param(2000, "number of random features of a lift", at_least=1)
    layers: int = param(3, "number of lifts that are averaged", at_least=1)
    drawn: int = param(100, "samples per class that are drawn for the classifier", at_least=1)

    fitted: ClassVar[dict[str, Fitted]] = {
        "weights_": array("classes", "lift", help="weight vectors after the last lift, in order of arrival"),
        "projections_": array(
            "lifts", "lift", "width", types=("float32",), help="random matrices; the last one is the classifier's"
        ),
        "moments_": array(
            "layers", "lift", "lift", types=("float64",), help="sums of squares of the lifted samples"
        ),
        "lifted_": array(
            "classes", "layers", "lift", types=("float64",), help="sums of the lifted samples of a class"
        ),
        "maps_": array("layers", "width", "lift", types=("float32",), help="regressions onto the targets"),
    }

    def _choose(self, task: Task) -> None:
        drawn = self.rng_.normal(size=(self.layers + 1, self.width, task.X.shape[1]))
        self.projections_: np.ndarray = np.stack([exact.rounded(one, np.float32) for one in drawn])
        self.weights_ = np.zeros((0, self.width), self.dtype_)
        self.moments_ = np.zeros((self.layers, self.width, self.width))
        self.lifted_ = np.zeros((0, self.layers, self.width))

    def _count(self, task: Task) -> None:
        super()._count(task)
        self.lifted_, self.moments_ = grown(self.lifted_, len(self.classes_)), self.moments_.copy()
        for rows in row_chunks(task.X, width=max(task.X.shape[1], self.width)):
            x, y = self._rows(task.X[rows]), task.y[rows]
            for layer in range(self.layers):
                z = self._lift(x, layer)
                self.moments_[layer] += z.T @ z
                np.add.at(self.lifted_[:, layer], y, z)

    def _rows(self, X: np.ndarray) -> np.ndarray:
        rows: np.ndarray = self.embedding_(X) + self.embedding_.center
        return rows

    def _lift(self, rows: np.ndarray, layer: int) -> np.ndarray:
        return gelu(exact.products(rows, self.projections_[layer]))

    def _projected(self, rows: np.ndarray) -> np.ndarray:
        """``h(x)``: the mean over the lifts of the regressions onto the targets."""
        found = [unit_rows(exact.products(self._lift(rows, i), one)) for i, one in enumerate(self.maps_)]
        mean: np.ndarray = sum(found[1:], found[0]) / len(found)
        return mean

    def _update(self, classes: np.ndarray) -> None:
        means = self.statistics_.means + self.embedding_.center
        covariance = self.statistics_.scatter / self.statistics_.n_samples
        squares = np.trace(covariance) + np.average(np.square(means).sum(axis=1), weights=self.statistics_.counts)
        if squares > 0 and not _LENGTHS[0] < np.sqrt(squares) < _LENGTHS[1]:
            raise ValueError(
                "AnaCP cannot learn features of this size without normalization: it is made for rows of unit length; "
                "scale the features to about 1"
            )
        covariance += _NOISE * np.eye(means.shape[1])
        targets = repelled(means, covariance)
        maps = [self._ridge(self.moments_[i], self.lifted_[:, i].T @ targets) for i in range(self.layers)]
        self.maps_ = np.stack([exact.rounded(one.T, np.float32) for one in maps])
        moments, sums = np.zeros((self.width, self.width)), np.zeros((len(means), self.width))
        root, of = np.linalg.cholesky(covariance), np.repeat(np.arange(len(means)), self.drawn)
        for start in range(0, len(of), _DRAWN):
            y = of[start : start + _DRAWN]
            x = means[y] + self.rng_.normal(size=(len(y), means.shape[1])) @ root.T
            z = self._lift(self._projected(x), self.layers)
            moments += z.T @ z
            np.add.at(sums, y, z)
        self._set(np.arange(len(means)), self._ridge(moments, sums.T).T, np.zeros(len(means)))

    def _ridge(self, moments: np.ndarray, sums: np.ndarray) -> np.ndarray:
        return ridge_solved(self, moments + self.gamma * np.eye(len(moments)), sums)

    def _scores(self, X: np.ndarray, classes: np.ndarray | None = None) -> np.ndarray:
        lifted = self._lift(self._projected(self._rows(X)), self.layers)
        return exact.products(lifted, self.weights_[slice(None) if classes is None else classes]).astype(
            self.dtype_
        )

    # distances of the features say little about what is novel after the projection
    _novelty, _novelty_graph = Head._novelty, Head._novelty_graph


def gelu(x: np.ndarray) -> np.ndarray:
    """``x Φ(x)``."""
    found: np.ndarray = x * ndtr(x)
    return found


def repelled(means: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """Class means at unit length after each direction in which they differ has grown by 1, measured by the covariance."""
    spectrum, vectors = np.linalg.eigh(covariance)
    whitener = (vectors / np.sqrt(spectrum)) @ vectors.T
    center = means.mean(axis=0)
    left, sizes, right = np.linalg.svd((means - center) @ whitener, full_matrices=False)
    # Without a difference a direction is arbitrary, and so would be the side to which all means move.
    grown_sizes = np.where(sizes > _RANK * sizes.max(initial=0), sizes + 1, 0)
    return unit_rows((left * grown_sizes) @ right @ whitener + center)
