"""Per-class Gaussians around a shared covariance: the pieces of the quadratic heads.

In the space whitened by the shared covariance ``B`` a class's covariance, shrunk towards ``B`` by ``nu`` imagined
samples, is ``(scatter + nu·I) / (n + nu)``. Its eigenvectors are those of the scatter; where the scatter says
nothing new (eigenvalue n) a direction costs nothing, so the most informative few directions stand for all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from taer.heads._fitted import FLOATS, Fitted, array, number
from taer.heads._params import param
from taer.heads.base import Task
from taer.heads.lda_frozen import class_moments, stratified_folds
from taer.heads.statistical import (
    StatisticsHead,
    best_temperature,
    discriminants,
    eigen,
    log_losses,
    normalised,
    shrunk,
    thin_eigen,
    trial_samples,
    whitened,
)
from taer.statistics import ClassStatistics

PRIORS = (0.25, 0.5, 1.0, 2.0, 4.0)  # nu0 / width: how much the identity weighs in the shared covariance
STRENGTHS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)  # nu / width: how much the shared covariance weighs in that of a class
FEWEST_CLASSES = 5  # with fewer, what is best in the first task says little about later ones
FOLDS = 5
_MANY = 8192  # samples of a class read in one go


class Settings(NamedTuple):
    """What the first task decides."""

    normalize: str
    prior: float
    strength: float
    temperature: float


@dataclass(kw_only=True, eq=False, repr=False)
class GaussianHead(StatisticsHead):
    """Scores ``w_c·x + b_c + beta · log[N(x; μ_c, S_c) / N(x; μ_c, B)]``, each class in the block of its task.

    A block is a task, or several that have these in common: its shared covariance ``B`` (by a Cholesky factor) and the
    scale ``beta`` of its scores. A class that returns moves to the block of the present task; all other scores stay
    bit-identical.
    """

    normalize: str = param(
        "auto",
        "what is done to each sample, or chosen in the first task",
        options=("none", "l2", "sqrt-l2", "auto"),
    )
    rank: int = param(64, "directions kept of the covariance of a class, in float16", at_least=0)

    class_arrays: ClassVar[tuple[str, ...]] = (
        "coef_", "intercept_", "centres_", "directions_", "spectra_", "sizes_", "block_",
    )  # fmt: skip
    fitted: ClassVar[dict[str, Fitted]] = {
        "prior_": number(above=0),
        "strength_": number(above=0),
        "first_temperature_": number(above=0),
        "coef_": array("classes", "width"),
        "intercept_": array("classes"),
        "centres_": array("classes", "width"),
        "directions_": array("classes", "rank", "width", types=("float16", *FLOATS)),
        "spectra_": array("classes", "rank", at_least=0),
        "sizes_": array("classes", above=0),
        "block_": array("classes", types=("int64",), at_least=0),
        "factors_": array("blocks", "width", "width"),
        "betas_": array("blocks"),
    }
    frozen_scores: ClassVar[bool] = True

    def _check_fitted(self) -> None:
        super()._check_fitted()
        if self.block_.max() >= len(self.betas_):
            raise ValueError(f"block_: expected numbers below {len(self.betas_)}")
        if (np.diagonal(self.factors_, axis1=1, axis2=2) <= 0).any():
            raise ValueError("factors_: expected Cholesky factors, with a positive diagonal")

    def _choose(self, X: Any, task: Task) -> None:
        width, rank = X.shape[1], min(self.rank, X.shape[1])
        samples, labels = trial_samples(X, task.y)
        chosen = choose(samples, np.unique(labels, return_inverse=True)[1], self.normalize)
        self.normalize_, self.prior_, self.strength_, self.temperature_ = chosen
        self.first_temperature_ = self.temperature_
        self.coef_, self.intercept_ = np.zeros((0, width)), np.zeros(0)
        self.centres_ = np.zeros((0, width), np.float32)
        self.directions_ = np.zeros((0, rank, width), np.float16)
        self.spectra_, self.sizes_ = np.zeros((0, rank), np.float32), np.zeros(0)
        self.block_ = np.zeros(0, np.int64)
        self.factors_, self.betas_ = np.zeros((0, width, width), np.float32), np.zeros(0)

    def _shared(self, task: Task) -> np.ndarray:
        """The covariance that the classes of this task share."""
        raise NotImplementedError

    def _linear(self, covariance: np.ndarray, task: Task) -> tuple[np.ndarray, np.ndarray, float]:
        """Columns and offsets of the classes of this task, and the scale of their scores."""
        raise NotImplementedError

    def _solve(self, X: Any, task: Task) -> None:
        for name in self.class_arrays:
            setattr(self, name, task.reseat(getattr(self, name)))
        covariance = self._shared(task)
        columns, offsets, beta = self._linear(covariance, task)
        self.coef_[task.current], self.intercept_[task.current] = columns, offsets
        factor = np.linalg.cholesky(covariance)
        means = self.statistics_.means[np.argsort(self._arrival)]
        for position, members in task.members():
            self._set_shape(position, len(members), *self._centred(X, members), means[position], factor)
        stored = factor.astype(np.float32)
        if not len(self.betas_) or beta != self.betas_[-1] or not np.array_equal(stored, self.factors_[-1]):
            self.factors_ = np.concatenate([self.factors_, stored[None]])
            self.betas_ = np.append(self.betas_, beta)
        self.block_[task.current] = len(self.betas_) - 1

    def _centred(self, X: Any, members: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Samples of a class about their mean, or as few rows with the same scatter; and the mean."""
        if len(members) <= _MANY:
            rows = self._embed(X[members])
            return rows - rows.mean(axis=0), rows.mean(axis=0)
        statistics = ClassStatistics(X.shape[1])
        for start in range(0, len(members), _MANY):
            rows = self._embed(X[members[start : start + _MANY]])
            statistics.update(rows, np.zeros(len(rows), np.int64))
        directions, spectrum = eigen(statistics.scatter)
        return np.sqrt(spectrum)[:, None] * directions, statistics.means[0]

    def _set_shape(
        self, position: int, n: int, centred: np.ndarray, centre: np.ndarray, mean: np.ndarray, factor: np.ndarray
    ) -> None:
        """The covariance of a class, of which ``n`` samples around ``centre`` are new; ``mean`` is that of all."""
        space = whitened(centred, factor)
        known = self.sizes_[position]
        if known:  # a class that returns: what its few directions stand for, and the distance of the two means
            count = known + n
            back = self.factors_[self.block_[position]].astype(np.float64)
            root = whitened((back @ self._root_of_scatter(position)).T, factor)
            apart = whitened((centre - mean)[None] * np.sqrt(count * n / known), factor)
            space = np.concatenate([space, root, apart])
        self.sizes_[position] = known + n
        self.centres_[position] = whitened(mean[None], factor)[0]
        directions, spectrum = thin_eigen(space)
        nu, count = self.strength_ * len(mean), self.sizes_[position]
        order = np.argsort(-np.abs(np.log((spectrum + nu) / (count + nu))))[: self.directions_.shape[1]]
        self.directions_[position], self.spectra_[position] = 0, count
        self.directions_[position, : len(order)] = directions[order]
        self.spectra_[position, : len(order)] = spectrum[order]

    def _root_of_scatter(self, position: int) -> np.ndarray:
        """A square root of the whitened scatter: n along every direction but the few kept ones."""
        V, count = self.directions_[position].astype(np.float64), self.sizes_[position]
        scales = np.sqrt(np.maximum(self.spectra_[position], 0)) - np.sqrt(count)
        root: np.ndarray = np.sqrt(count) * np.eye(V.shape[1]) + (V.T * scales) @ V
        return root

    def _scores(self, X: np.ndarray, classes: np.ndarray | None = None) -> np.ndarray:
        """Scores for some classes, by position, or for all."""
        classes = np.arange(len(self.block_)) if classes is None else classes
        rows = self._embed(X)
        scores, nu = np.empty((len(rows), len(classes)), np.float64), self.strength_ * rows.shape[1]
        for block in np.unique(self.block_[classes]):
            space = whitened(rows.astype(np.float32), self.factors_[block])
            for column in np.flatnonzero(self.block_[classes] == block):
                # One class at a time: its score must not depend on how many there are.
                position = classes[column]
                directions = self.directions_[position].astype(np.float32)
                along = np.square(space @ directions.T - directions @ self.centres_[position])
                variances = (self.spectra_[position] + nu) / (self.sizes_[position] + nu)
                ratio = along @ (0.5 - 0.5 / variances).astype(np.float32) - 0.5 * np.log(variances).sum()
                linear = rows @ self.coef_[position] + self.intercept_[position]
                scores[:, column] = linear + self.betas_[block] * ratio
        return scores.astype(self.dtype_)


def defaults(X: np.ndarray) -> Settings:
    return Settings("sqrt-l2" if X.min() >= 0 else "l2", prior=1.0, strength=4.0, temperature=5.0)


def shared_covariance(covariance: np.ndarray, n: int, prior: float) -> tuple[np.ndarray, float]:
    """The covariance shrunk by ``prior·width`` imagined samples, and the shrinkage that is."""
    shrinkage = prior * len(covariance) / (prior * len(covariance) + max(n, 1))
    return shrunk(covariance, shrinkage), shrinkage


def choose(X: np.ndarray, y: np.ndarray, normalize: str) -> Settings:
    """Transform, shrinkages and temperature by cross-validation in the first task.

    By the log loss at its best temperature; the default stands unless something beats it by a standard error. A
    first task of fewer than five classes keeps all defaults but the temperature, and one without five samples of
    each of two classes keeps that too.
    """
    base = defaults(X) if normalize == "auto" else defaults(X)._replace(normalize=normalize)
    folds = stratified_folds(y, FOLDS)
    if folds is None:
        return base
    few = len(np.unique(y)) < FEWEST_CLASSES
    names = ("l2", "sqrt-l2") if normalize == "auto" and not few else (base.normalize,)
    name, prior = base.normalize, base.prior
    if not few:
        linear: dict[Any, np.ndarray] = {}
        for candidate in names:
            linear |= _linear_losses(normalised(X, candidate), y, folds, candidate)
        name, prior = _pick(linear, (base.normalize, base.prior))
    scores = _quadratic_scores(normalised(X, name), y, folds, prior)
    temperatures = {strength: best_temperature(found, y) for strength, found in scores.items()}
    losses = {strength: log_losses(found, y, temperatures[strength]) for strength, found in scores.items()}
    strength = base.strength if few else _pick(losses, base.strength)
    return Settings(name, prior, strength, float(np.clip(temperatures[strength], 1, 20)))


def _pick(losses: dict[Any, np.ndarray], default: Any) -> Any:
    best = min(losses, key=lambda key: losses[key].mean())
    gain = losses[default] - losses[best]
    return best if gain.mean() > gain.std() / np.sqrt(len(gain)) else default


def _linear_losses(rows: np.ndarray, y: np.ndarray, folds: np.ndarray, name: str) -> dict[Any, np.ndarray]:
    scores = {prior: np.zeros((len(y), y.max() + 1)) for prior in PRIORS}
    for fold in range(FOLDS):
        seen, held = folds != fold, folds == fold
        means, covariance = class_moments(rows[seen], y[seen])
        for prior in PRIORS:
            columns, offsets = discriminants(means, shared_covariance(covariance, int(seen.sum()), prior)[0])
            scores[prior][held] = rows[held] @ columns.T + offsets
    return {(name, prior): log_losses(found, y, best_temperature(found, y)) for prior, found in scores.items()}


def _quadratic_scores(rows: np.ndarray, y: np.ndarray, folds: np.ndarray, prior: float) -> dict[float, np.ndarray]:
    width = rows.shape[1]
    scores = {strength: np.zeros((len(y), y.max() + 1)) for strength in STRENGTHS}
    for fold in range(FOLDS):
        seen, held = folds != fold, folds == fold
        means, covariance = class_moments(rows[seen], y[seen])
        factor = np.linalg.cholesky(shared_covariance(covariance, int(seen.sum()), prior)[0])
        space, centres = whitened(rows, factor), whitened(means, factor)
        for label in range(len(means)):
            members = space[seen & (y == label)] - centres[label]
            directions, spectrum = thin_eigen(members)
            distances = space[held] - centres[label]
            along, norms = np.square(distances @ directions.T), np.square(distances).sum(axis=1)
            for strength in STRENGTHS:
                nu = strength * width
                scores[strength][held, label] = _log_density(norms, along, spectrum, len(members), nu, width)
    return scores


def _log_density(
    norms: np.ndarray, along: np.ndarray, spectrum: np.ndarray, n: int, nu: float, d: int
) -> np.ndarray:
    """Up to a constant, the log-density under ``(scatter + nu·I) / (n + nu)``, its scatter known on a few directions."""
    rest, variances = nu / (n + nu), (spectrum + nu) / (n + nu)
    quadratic = (norms - along.sum(axis=1)) / rest + along @ (1 / variances)
    density: np.ndarray = -0.5 * (quadratic + np.log(variances).sum() + (d - len(spectrum)) * np.log(rest))
    return density
