"""Linear algebra of covariances."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve, eigh, lapack, solve_triangular

from taer.heads import exact
from taer.statistics import ClassStatistics

_LARGE, _MANY_MORE = 500, 5  # rows, and rows per eigenvector, from which on some take less time than all
# The least noise of a feature, relative to the mean variance. EM of few samples would drive it below.
_LEAST_NOISE = 1e-3


def shrunk(covariance: np.ndarray, shrinkage: float) -> np.ndarray:
    """``(1 - s) Σ + s · tr(Σ)/d · I``; the identity if there is no variance at all. Variances alone stay such."""
    width = len(covariance)
    if covariance.ndim == 1:
        level = covariance.mean()
        return (1 - shrinkage) * covariance + shrinkage * level if level > 0 else np.ones(width)
    level = np.trace(covariance) / width
    if level <= 0:
        return np.eye(width)
    mixed: np.ndarray = (1 - shrinkage) * covariance
    mixed.flat[:: width + 1] += shrinkage * level
    return mixed


def discriminants(means: np.ndarray, covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Columns ``Σ⁻¹ μ_c`` and offsets ``-μ_cᵀ Σ⁻¹ μ_c / 2`` of linear discriminant analysis with equal priors."""
    if covariance.ndim == 1:
        columns = means / covariance
    else:
        columns = cho_solve(cho_factor(covariance, check_finite=False), means.T, check_finite=False).T
    return columns, -0.5 * (means * columns).sum(axis=1)


def class_moments(rows: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means of classes 0 … k-1 and the pooled covariance within them."""
    statistics = ClassStatistics(rows.shape[1]).update(rows, y)
    return statistics.means, statistics.covariance()


class RelativeDistances:
    """Half the squared Mahalanobis distance to the nearest class minus that to the overall mean (Ren et al., 2021).

    ``(½ x C + background - column_c) x + …`` for the nearest c, with x in a unit in which float32 can hold the inverse
    covariances of features of any size. ``C`` is a vector if the statistics are diagonal.
    """

    def __init__(self, statistics: ClassStatistics) -> None:
        mean = statistics.cross_moments.sum(axis=0, keepdims=True) / statistics.n_samples
        between = (statistics.means - mean) * np.sqrt(statistics.counts)[:, None]
        total = (statistics.scatter + statistics.scatter_of(between)) / statistics.n_samples
        near, far = (shrunk(matrix, 0.1) for matrix in (statistics.covariance(), total))
        level = far.mean() if statistics.diagonal else np.trace(far) / len(far)
        self.unit = float(np.ldexp(1.0, np.frexp(np.sqrt(level))[1]))
        near, far = near / self.unit**2, far / self.unit**2
        of_classes, of_all = discriminants(statistics.means / self.unit, near), discriminants(mean / self.unit, far)
        columns, self.offsets = (np.concatenate(pair) for pair in zip(of_classes, of_all, strict=True))
        self.columns = exact.rounded(columns, np.float32)
        if statistics.diagonal:
            self.curvature = 1 / near - 1 / far
        else:
            self.curvature = exact.rounded(np.linalg.inv(near) - np.linalg.inv(far), np.float32)

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        rows = rows / self.unit
        bent = rows * self.curvature if self.curvature.ndim == 1 else exact.products(rows, self.curvature)
        scores = exact.products(rows, self.columns) + self.offsets
        distances: np.ndarray = 0.5 * (bent * rows).sum(axis=1) - scores[:, :-1].max(axis=1) + scores[:, -1]
        return distances

    def graph(self, graph: Any, rows: str) -> str:
        """The same as ONNX operations, in float64."""
        rows = graph.add("Div", rows, np.array(self.unit))
        wide, one = self.curvature.astype(np.float64), np.array([1])
        bent = graph.add("Mul", rows, wide) if wide.ndim == 1 else graph.add("MatMul", rows, wide.T)
        curved = graph.add("ReduceSum", graph.add("Mul", bent, rows), one, keepdims=0)
        columns = self.columns.astype(np.float64)
        scores = graph.add("Gemm", rows, columns[:-1], self.offsets[:-1], transB=1)
        background = graph.add("Gemm", rows, columns[-1:], self.offsets[-1:], transB=1)
        # The largest by its place: ReduceMax is written differently before and after opset 18.
        nearest = graph.add("GatherElements", scores, graph.add("ArgMax", scores, axis=1, keepdims=1), axis=1)
        apart = graph.add("Squeeze", graph.add("Sub", background, nearest), one)
        return str(graph.add("Add", graph.add("Mul", curved, np.array(0.5)), apart))


def whitened(rows: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """``L⁻¹ x`` for each row."""
    solved: np.ndarray = solve_triangular(factor, rows.T, lower=True, check_finite=False).T
    return solved


def whitener(covariance: np.ndarray) -> np.ndarray:
    """``L⁻¹``, the inverse of the lower Cholesky factor."""
    inverse: np.ndarray = lapack.dtrtri(np.linalg.cholesky(covariance), lower=1)[0]
    return inverse


def squared_distances(rows: np.ndarray, mean: np.ndarray, inverse: np.ndarray) -> np.ndarray:
    """Squared Mahalanobis distances of rows to a mean; ``inverse`` is a :func:`whitener`, rounded for exact products."""
    multiply = exact.triangular_products if inverse.dtype == np.float32 else exact.products
    # one row after the other in memory, so that the sum over a row does not depend on the others
    return np.square(np.ascontiguousarray(multiply(rows - mean, inverse))).sum(axis=1)


def thin_eigen(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvectors (as rows) and eigenvalues of ``rowsᵀ rows``, from the smaller of the two Gram matrices."""
    if len(rows) >= rows.shape[1]:
        return eigen(rows.T @ rows)
    spectrum, vectors = np.linalg.eigh(rows @ rows.T)
    used = spectrum > 1e-9 * max(float(spectrum[-1]), np.finfo(float).tiny)
    return (rows.T @ (vectors[:, used] / np.sqrt(spectrum[used]))).T, spectrum[used]


def eigen(scatter: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvectors (as rows) and eigenvalues of a scatter."""
    spectrum, vectors = np.linalg.eigh(scatter)
    return vectors.T, np.maximum(spectrum, 0)


def leading_eigen(matrix: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The largest eigenvalues, ascending, and their eigenvectors (as columns).

    LAPACK's method for some of them is faster than the one for all if the matrix is large and they are few. If many are
    equal, it fails on some processors.
    """
    if len(matrix) > max(_LARGE, _MANY_MORE * count):
        try:
            found: tuple[np.ndarray, np.ndarray] = eigh(
                matrix, subset_by_index=(len(matrix) - count, len(matrix) - 1)
            )
            return found
        except np.linalg.LinAlgError:
            pass
    spectrum, vectors = np.linalg.eigh(matrix)
    return spectrum[max(0, len(matrix) - count) :], vectors[:, max(0, len(matrix) - count) :]


def factor_analysis(covariance: np.ndarray, rank: int, iterations: int) -> tuple[np.ndarray, np.ndarray]:
    """``L, d`` with ``L Lᵀ + diag(d)`` near a covariance: EM from its leading directions."""
    width, variances = len(covariance), np.diag(covariance)
    spectrum, vectors = leading_eigen(covariance, rank)
    rest = (variances.sum() - spectrum.sum()) / max(1, width - rank)
    loadings, least = vectors * np.sqrt(np.maximum(spectrum - rest, 0)), _LEAST_NOISE * variances.mean()
    noise = np.maximum(variances - np.square(loadings).sum(axis=1), least)
    for _ in range(iterations):
        scaled = (loadings / noise[:, None]).T
        posterior = np.linalg.solve(np.eye(rank) + scaled @ loadings, scaled)  # of the factors, given a sample
        cross = covariance @ posterior.T
        second = np.eye(rank) - posterior @ loadings + posterior @ cross
        loadings = np.linalg.solve(second, cross.T).T
        noise = np.maximum(variances - (loadings * cross).sum(axis=1), least)
    return loadings, noise
