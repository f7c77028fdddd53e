"""The base class of quadratic heads: one Gaussian per class, shrunk towards a shared covariance.

In the space whitened by the shared covariance ``B``, the covariance of a class, shrunk towards ``B`` with the weight of
``nu`` samples, is ``(scatter + nu·I) / (n + nu)``. Its eigenvectors are those of the scatter. Directions in which the
scatter agrees with ``B`` (eigenvalue n) need not be stored, so a few informative directions are enough.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np

from taer.heads import exact
from taer.heads.base import Task
from taer.heads.closed_form.base import ClosedFormHead
from taer.heads.closed_form.calibration import best_temperature, log_losses
from taer.heads.closed_form.directions import products_along
from taer.heads.closed_form.linalg import (
    class_moments,
    discriminants,
    eigen,
    shrunk,
    thin_eigen,
    whitened,
    whitener,
)
from taer.heads.closed_form.selection import FOLDS, stratified_folds, trial_samples
from taer.heads.embedding import NORMALIZATIONS, Normalize, normalized
from taer.heads.fitted import Fitted, array, number
from taer.heads.numerics import grown
from taer.heads.params import param
from taer.statistics import ClassStatistics
from taer.zoo.shared import shortlist

PRIORS = (0.25, 0.5, 1.0, 2.0, 4.0)  # nu0 / width: weight of the identity in the shared covariance
STRENGTHS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)  # nu / width: weight of the shared covariance in that of a class
FEWEST_CLASSES = 5  # with fewer, cross-validation in the first task is not reliable for later ones
_READ_TOGETHER = 8192  # samples of a class that are read together
_AT_ONCE = 1 << 20  # values of directions that are processed together, and stay in the cache


class Settings(NamedTuple):
    """Settings that are chosen on the first task."""

    normalize: str
    prior: float
    strength: float
    temperature: float


class GaussianHead(ClosedFormHead):
    """Scores ``w_c·x + b_c + beta · log[N(x; μ_c, S_c) / N(x; μ_c, B)]``, with ``B`` and ``beta`` per block of tasks.

    A block is one task, or several tasks with the same shared covariance ``B`` (stored as the inverse of its Cholesky
    factor) and scale ``beta`` of the scores. A known class with new samples moves to the block of the current task; all
    other scores stay bit-identical.
    """

    normalize: str = param(
        "auto",
        "normalization of each sample: none, unit length, signed square root and unit length, or 'auto': one of the "
        "last two, by cross-validation in the first task",
        options=(*NORMALIZATIONS, "auto"),
    )
    rank: int = param(64, "stored directions of each class's covariance, in float16", at_least=0)

    fitted: ClassVar[dict[str, Fitted]] = {
        "prior_": number(above=0, help="weight of the identity in the shared covariance, in samples per feature"),
        "strength_": number(
            above=0, help="weight of the shared covariance in that of a class, in samples per feature"
        ),
        "first_temperature_": number(above=0, help="temperature chosen in the first task"),
        "directions_": array(
            "classes", "rank", "width", types=("float16",), help="stored directions of the covariance of each class"
        ),
        "along_": array("classes", "rank", help="mean of each class along its directions"),
        "spectra_": array("classes", "rank", at_least=0, help="scatter of each class along its directions"),
        "sizes_": array("classes", above=0, help="number of samples of each class"),
        "block_": array(
            "classes",
            types=("int64",),
            at_least=0,
            help="block of each class: its row in ``whiteners_`` and ``betas_``",
        ),
        "whiteners_": array(
            "blocks", "width", "width", triangular=True, help="inverse Cholesky factors of the shared covariances"
        ),
        "betas_": array("blocks", help="scales of the scores"),
    }

    def _check_fitted(self) -> None:
        super()._check_fitted()
        if self.block_.max() >= len(self.betas_):
            raise ValueError(f"block_: expected numbers below {len(self.betas_)}")
        if (np.diagonal(self.whiteners_, axis1=1, axis2=2) <= 0).any():
            raise ValueError("whiteners_: expected inverse Cholesky factors, with a positive diagonal")

    def _embedding(self, task: Task) -> Normalize:
        samples, y = trial_samples(task.X, task.y)
        settings = choose(samples, y, self.normalize)
        how, self.prior_, self.strength_, self.first_temperature_ = settings
        return Normalize.fit(task.X, how)

    def _choose(self, task: Task) -> None:
        width, rank = task.X.shape[1], min(self.rank, task.X.shape[1])
        self.temperature_ = self.first_temperature_
        self.directions_ = np.zeros((0, rank, width), np.float16)  # of each class, in the whitened space
        self.along_ = np.zeros((0, rank), np.float32)  # its mean along them
        self.spectra_, self.sizes_ = np.zeros((0, rank), np.float32), np.zeros(0)
        self.block_ = np.zeros(0, np.int64)
        self.whiteners_, self.betas_ = np.zeros((0, width, width), np.float32), np.zeros(0)

    def _shared(self, task: Task) -> np.ndarray:
        """The shared covariance of the classes of this task."""
        raise NotImplementedError

    def _linear(self, covariance: np.ndarray, task: Task) -> tuple[np.ndarray, np.ndarray, float]:
        """Columns and offsets of the classes of this task, and the scale of their scores."""
        raise NotImplementedError

    def _solve(self, task: Task) -> None:
        covariance = self._shared(task)
        columns, offsets, beta = self._linear(covariance, task)
        self._set(task.current, columns, offsets)
        for name in ("directions_", "along_", "spectra_", "sizes_", "block_"):
            setattr(self, name, grown(getattr(self, name), task.n_classes))
        factor = np.linalg.cholesky(covariance)
        for label, members in task.members():
            self._set_shape(label, *self._centered(task.picked(members)), factor)
        stored = exact.rounded(whitener(covariance), np.float32)
        if not len(self.betas_) or beta != self.betas_[-1] or not np.array_equal(stored, self.whiteners_[-1]):
            self.whiteners_ = np.concatenate([self.whiteners_, stored[None]])
            self.betas_ = np.append(self.betas_, beta)
        self.block_[task.current] = len(self.betas_) - 1

    def _centered(self, task: Task) -> tuple[float, np.ndarray, np.ndarray]:
        """The number of samples of one class, rows with their scatter, and their mean."""
        if len(task.y) <= _READ_TOGETHER and task.weight is None:
            rows = self.embedding_(task.X[:])
            return len(rows), rows - rows.mean(axis=0), rows.mean(axis=0)
        statistics = ClassStatistics(task.X.shape[1])
        for part in range(0, len(task.y), _READ_TOGETHER):
            at = slice(part, part + _READ_TOGETHER)
            weight = None if task.weight is None else task.weight[at]
            statistics.update(self.embedding_(task.X[at]), task.y[at], weight)
        directions, spectrum = eigen(statistics.scatter)
        return statistics.n_samples, np.sqrt(spectrum)[:, None] * directions, statistics.means[0]

    def _set_shape(
        self, label: int, n: float, centered: np.ndarray, center: np.ndarray, factor: np.ndarray
    ) -> None:
        """Update the covariance of a class with ``n`` new samples around ``center``."""
        space, known, mean = whitened(centered, factor), self.sizes_[label], self.statistics_.means[label]
        if known:  # a known class: add the scatter of its stored directions, and the distance of the two means
            count = known + n
            back = np.linalg.inv(self.whiteners_[self.block_[label]].astype(np.float64))
            root = whitened((back @ self._root_of_scatter(label)).T, factor)
            apart = whitened((center - mean)[None] * np.sqrt(count * n / known), factor)
            space = np.concatenate([space, root, apart])
        self.sizes_[label] = count = known + n
        directions, spectrum = thin_eigen(space)
        nu = self.strength_ * len(mean)
        order = np.argsort(-np.abs(np.log((spectrum + nu) / (count + nu))))[: self.directions_.shape[1]]
        stored = exact.rounded(directions[order].astype(np.float16), np.float32).astype(np.float16)
        self.directions_[label], self.spectra_[label], self.along_[label] = 0, count, 0
        self.directions_[label, : len(order)] = stored
        self.spectra_[label, : len(order)] = spectrum[order]
        self.along_[label, : len(order)] = stored.astype(np.float64) @ whitened(mean[None], factor)[0]

    def _root_of_scatter(self, label: int) -> np.ndarray:
        """A square root of the whitened scatter: n along every direction except the stored ones."""
        V, count = self.directions_[label].astype(np.float64), self.sizes_[label]
        scales = np.sqrt(np.maximum(self.spectra_[label], 0)) - np.sqrt(count)
        root: np.ndarray = np.sqrt(count) * np.eye(V.shape[1]) + (V.T * scales) @ V
        return root

    def _scores(self, X: np.ndarray, classes: np.ndarray | None = None) -> np.ndarray:
        wanted = np.arange(len(self.block_)) if classes is None else classes
        rows, rank = self.embedding_(X), self.directions_.shape[1]
        scores = exact.products(rows, self.weights_[wanted]) + self.offsets_[wanted]
        at_once = max(1, _AT_ONCE // max(1, rank * max(len(rows), rows.shape[1])))
        for block in np.unique(self.block_[wanted]) if rank else ():
            space, members = (
                exact.triangular_products(rows, self.whiteners_[block]),
                np.flatnonzero(self.block_[wanted] == block),
            )
            for start in range(0, len(members), at_once):
                part = members[start : start + at_once]
                along = products_along(space, self.directions_, wanted[part], len(wanted), self._derived)
                weights, level = self._curvature(wanted[part])
                ratio = (np.square(along - self.along_[wanted[part]]) * weights).sum(axis=2) - level
                scores[:, part] += self.betas_[block] * ratio
        return scores.astype(self.dtype_)

    def _best(self, X: np.ndarray) -> np.ndarray:
        if not 0 < self.directions_.size <= shortlist.MOST:
            return super()._best(X)

        def make() -> shortlist.Shortlist:
            weights, levels = self._curvature(np.arange(len(self.block_)))
            return shortlist.Shortlist(
                self.directions_,
                self.along_,
                weights,
                levels,
                self.betas_[self.block_],
                self.block_,
                self.whiteners_,
            )

        rows = self.embedding_(X)
        linear = exact.products(rows, self.weights_) + self.offsets_
        return self._best_among(X, self._derived.of(self.directions_, shortlist.Shortlist, make)(rows, linear))

    def _curvature(self, classes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The factor of a squared distance along each direction in the log-ratio of densities, and the constant."""
        nu = self.strength_ * self.n_features_in_
        variances = (self.spectra_[classes].astype(np.float64) + nu) / (self.sizes_[classes] + nu)[:, None]
        return 0.5 - 0.5 / variances, 0.5 * np.log(variances).sum(axis=1)

    def _graph(self, graph: Any) -> str:
        """A linear part for all classes, and a quadratic part for each block."""
        rows, rank = self.embedding_.graph(graph, "features"), self.directions_.shape[1]
        columns, offsets = (values[self.arrival_].astype(np.float64) for values in (self.weights_, self.offsets_))
        linear = str(graph.add("Gemm", rows, columns, offsets, transB=1))
        if not rank:
            return linear
        order, parts, short = [], [], graph.cast(rows, np.float32)
        for block in np.unique(self.block_):
            members = np.flatnonzero(self.block_[self.arrival_] == block)
            numbers = self.arrival_[members]
            space = graph.add("MatMul", short, self.whiteners_[block].T)
            directions = self.directions_[numbers].astype(np.float32).reshape(-1, self.n_features_in_)
            along = graph.add("Gemm", space, directions, -self.along_[numbers].ravel(), transB=1)
            weights, level = self._curvature(numbers)
            weighted = graph.add("Mul", graph.add("Mul", along, along), weights.astype(np.float32).ravel())
            by_class = graph.add("Reshape", weighted, np.array([-1, len(members), rank]))
            summed = graph.cast(graph.add("ReduceSum", by_class, np.array([2]), keepdims=0), np.float64)
            parts.append(graph.add("Mul", graph.add("Sub", summed, level), np.array(self.betas_[block])))
            order.append(members)
        quadratic = graph.add("Concat", *parts, axis=1)
        quadratic = graph.add("Gather", quadratic, np.argsort(np.concatenate(order)), axis=1)
        return str(graph.add("Add", linear, quadratic))


def defaults(X: np.ndarray) -> Settings:
    return Settings("sqrt-l2" if X.min() >= 0 else "l2", prior=1.0, strength=4.0, temperature=5.0)


def shared_covariance(covariance: np.ndarray, n: float, prior: float) -> tuple[np.ndarray, float]:
    """The covariance shrunk with the weight of ``prior·width`` samples, and the resulting shrinkage."""
    shrinkage = prior * len(covariance) / (prior * len(covariance) + max(n, 1))
    return shrunk(covariance, shrinkage), shrinkage


def choose(X: np.ndarray, y: np.ndarray, normalize: str) -> Settings:
    """Choose transform, shrinkages and temperature by cross-validation on the first task.

    The criterion is the log loss at its best temperature. A default is replaced only if something is better by a
    standard error. With fewer than five classes only the temperature is chosen, and nothing without five samples of
    at least two classes.
    """
    base = defaults(X) if normalize == "auto" else defaults(X)._replace(normalize=normalize)
    folds = stratified_folds(y)
    if folds is None:
        return base
    few = len(np.unique(y)) < FEWEST_CLASSES
    names = ("l2", "sqrt-l2") if normalize == "auto" and not few else (base.normalize,)
    name, prior = base.normalize, base.prior
    if not few:
        linear: dict[Any, np.ndarray] = {}
        for candidate in names:
            linear |= _linear_losses(_embedded(X, candidate), y, folds, candidate)
        name, prior = _pick(linear, (base.normalize, base.prior))
    scores = _quadratic_scores(_embedded(X, name), y, folds, prior)
    temperatures = {strength: best_temperature(found, y) for strength, found in scores.items()}
    losses = {strength: log_losses(found, y, temperatures[strength]) for strength, found in scores.items()}
    strength = base.strength if few else _pick(losses, base.strength)
    return Settings(name, prior, strength, float(np.clip(temperatures[strength], 1, 20)))


def _embedded(X: np.ndarray, how: str) -> np.ndarray:
    rows = normalized(X, how)
    return rows - rows.mean(axis=0)


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
        space, centers = whitened(rows, factor), whitened(means, factor)
        for label in range(len(means)):
            members = space[seen & (y == label)] - centers[label]
            directions, spectrum = thin_eigen(members)
            distances = space[held] - centers[label]
            along, norms = np.square(distances @ directions.T), np.square(distances).sum(axis=1)
            for strength in STRENGTHS:
                nu = strength * width
                scores[strength][held, label] = _log_density(norms, along, spectrum, len(members), nu, width)
    return scores


def _log_density(
    norms: np.ndarray, along: np.ndarray, spectrum: np.ndarray, n: int, nu: float, d: int
) -> np.ndarray:
    """The log-density for ``(scatter + nu·I) / (n + nu)`` up to a constant, with a scatter known on a few directions."""
    rest, variances = nu / (n + nu), (spectrum + nu) / (n + nu)
    quadratic = (norms - along.sum(axis=1)) / rest + along @ (1 / variances)
    density: np.ndarray = -0.5 * (quadratic + np.log(variances).sum() + (d - len(spectrum)) * np.log(rest))
    return density
