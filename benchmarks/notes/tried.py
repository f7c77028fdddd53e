"""Ideas for heads whose old scores never move, each with its number: the table of docs/evidence/beyond.md.

    python -m benchmarks.notes.tried --features DIR --out results --jobs 2 >> beyond.out.md

(after ``pages/beyond.py`` has begun that file, and before ``tools/fill_docs.py`` puts it into the page).
An idea that did better than what it starts from became a head or a default; the others are kept here, as small as they
can be written. Measured ones are kept in --out.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from joblib import Parallel, delayed
from scipy.optimize import minimize
from scipy.special import softmax

import taer
from benchmarks.pages.beyond import TITLES, shown, table
from benchmarks.pages.fidelity import EPOCHS
from taer.features import FeatureSet, load_features
from taer.heads import Head, Task
from taer.heads.closed_form.linalg import discriminants, shrunk, squared_distances, whitener
from taer.heads.embedding import normalized, unit_rows
from taer.heads.numerics import log_sum_exp
from taer.statistics import ClassStatistics
from taer.stream import Stream, class_stream
from taer.threads import one_blas_thread
from taer.zoo import gauss_chain, taer_gauss
from taer.zoo.shared import gaussians

TASKS = (10, 50)
ORDERS = 3


class Unchained(taer.zoo.GaussChain):
    """New classes under the covariance of everything seen, as they are."""

    def _linear(self, covariance: np.ndarray, task: Task) -> tuple[np.ndarray, np.ndarray, float]:
        origin = self._origin(task)
        columns, offsets = discriminants(self.statistics_.means[task.current] - origin, covariance)
        return columns, offsets - columns @ origin, 1.0

    def _origin(self, task: Task) -> np.ndarray:
        """Zero before the embedding took the mean of the first task off."""
        origin: np.ndarray = -self.embedding_.center
        return origin


class UnchainedCentered(Unchained):
    """The same about the mean of the first task: a log-ratio against one background."""

    def _origin(self, task: Task) -> np.ndarray:
        if task.number == 1:
            self.background_: np.ndarray = self.statistics_.means.mean(axis=0)
        return self.background_


class Calibrated(UnchainedCentered):
    """The same with an offset and a scale of the new block, of least log loss on samples drawn from Gaussians."""

    def _linear(self, covariance: np.ndarray, task: Task) -> tuple[np.ndarray, np.ndarray, float]:
        columns, offsets, beta = super()._linear(covariance, task)
        if not len(task.old):
            return columns, offsets, beta
        return *self._fitted(columns, offsets, covariance, task), beta

    def _fitted(
        self, columns: np.ndarray, offsets: np.ndarray, covariance: np.ndarray, task: Task
    ) -> tuple[np.ndarray, np.ndarray]:
        means, per_class = self.statistics_.means, max(1, 600 // task.n_classes)
        labels = np.repeat(np.arange(task.n_classes), per_class)
        noise = np.random.default_rng(0).normal(size=(len(labels), len(covariance)))
        rows = means[labels] + noise @ np.linalg.cholesky(covariance).T
        old = (rows @ self.weights_[task.old].T + self.offsets_[task.old]) / self.first_temperature_
        new = (rows @ columns.T + offsets) / self.first_temperature_
        order = np.argsort(np.concatenate([task.old, task.current]))

        def loss(found: np.ndarray) -> float:
            scores = np.concatenate([old, np.exp(found[0]) * new + found[1]], axis=1)[:, order]
            return float((log_sum_exp(scores) - scores[np.arange(len(labels)), labels]).mean())

        scale, offset = minimize(loss, np.zeros(2), method="Nelder-Mead").x
        return np.exp(scale) * columns, np.exp(scale) * offsets + self.first_temperature_ * offset


class ChainCalibrated(Calibrated):
    """The chain, and after it an offset and a scale of the new block."""

    def _linear(self, covariance: np.ndarray, task: Task) -> tuple[np.ndarray, np.ndarray, float]:
        columns, offsets, beta = taer.zoo.GaussChain._linear(self, covariance, task)
        if not len(task.old):
            return columns, offsets, beta
        return *self._fitted(columns, offsets, covariance, task), beta


class FirstShapes(taer.zoo.GaussChain):
    """Linear part from the covariance of everything seen, quadratic part against that of the first task."""

    def _shared(self, task: Task) -> np.ndarray:
        if task.number == 1:
            self.first_ = super()._shared(task)
        return self.first_

    def _linear(self, covariance: np.ndarray, task: Task) -> tuple[np.ndarray, np.ndarray, float]:
        return super()._linear(shrunk(self.statistics_.covariance(), self.shrinkage_), task)


class WithoutVolume(taer.zoo.GaussChain):
    """Without the determinants of the covariances."""

    def _scores(self, X: np.ndarray, classes: np.ndarray | None = None) -> np.ndarray:
        volumes = self.betas_[self.block_] * _log_volumes(self)
        return super()._scores(X, classes) + 0.5 * (volumes if classes is None else volumes[classes])


class Student(taer.zoo.GaussFrozen):
    """gauss-frozen with the density of Student's t, 100 degrees of freedom."""

    def _scores(self, X: np.ndarray, classes: np.ndarray | None = None) -> np.ndarray:
        scores, volumes, rows = super()._scores(X, classes), _log_volumes(self), self.embedding_(X)
        volumes = volumes if classes is None else volumes[classes]
        squared = squared_distances(rows, np.zeros(rows.shape[1]), whitener(self.covariance_))[:, None]
        distances = squared - 2 * scores - volumes
        return -0.5 * ((100 + rows.shape[1]) * np.log1p(distances / 100) + volumes)


def _log_volumes(head: Any) -> np.ndarray:
    """Log-determinants of the covariances of the classes, relative to the shared one."""
    nu = head.strength_ * head.n_features_in_
    volumes: np.ndarray = np.log((head.spectra_ + nu) / (head.sizes_ + nu)[:, None]).sum(axis=1)
    return volumes


class TowardsLDA(taer.zoo.TaERGauss):
    """taer-gauss with a prior around the column of LDA under the covariance of the first task instead of zero."""

    def _learn(self, task: Task) -> None:
        def fit(objective: Callable[..., Any], start: np.ndarray, **options: Any) -> Any:
            statistics = self.statistics_
            if task.number == 1:  # the statistics have a one at the end of each row
                self.first_ = shrunk(statistics.covariance()[:-1, :-1], 0.3)
            means = statistics.means[task.current, :-1]
            prior = np.column_stack(discriminants(means, self.first_)).ravel()

            def towards(flat: np.ndarray) -> tuple[float, np.ndarray]:
                loss, gradient = objective(flat)
                return loss + self.l2 * (0.5 * prior @ prior - flat @ prior), gradient - self.l2 * prior

            return minimize(towards, prior, **options)

        with mock.patch.object(taer_gauss, "minimize", fit):
            super()._learn(task)


class TaERFromLDA(taer.TaER):
    """TaER that starts from columns of LDA under the covariance of the first task, at unit length."""

    def _new_columns(self, task: Task) -> np.ndarray:
        if task.number == 1:
            statistics = ClassStatistics(task.X.shape[1]).update(self.embedding_(task.X[:]), task.y)
            self.first_ = shrunk(statistics.covariance(), 0.3)
        return unit_rows(discriminants(self._means_of_new(task), self.first_)[0])


def plain_mean(scores: np.ndarray, axis: int) -> np.ndarray:
    return np.full_like(scores, 1 / scores.shape[axis])


def patched(module: Any, name: str, value: Any, make: Callable[[], Head]) -> Callable[[Stream], float]:
    def measure(stream: Stream) -> float:
        with mock.patch.object(module, name, value):
            return learned(make)(stream)

    return measure


def learned(make: Callable[[], Head], first: Callable[..., Any] | None = None) -> Callable[[Stream], float]:
    """A_T of a head, on features seen through a map that ``first`` makes of the first task."""

    def measure(stream: Stream) -> float:
        head, tasks = make().set_params(random_state=0), list(stream)
        if "epochs" in head.get_params():
            head.set_params(epochs=EPOCHS.get(stream.features.name, 10))
        seen = np.asarray if first is None else first(tasks[0])
        for task in tasks:
            head.partial_fit(seen(task.X_train), task.y_train)
        return float(np.mean([head.score(seen(task.X_test), task.y_test) for task in tasks]))

    return measure


def principal(width: int) -> Callable[..., Any]:
    """The leading directions within the classes of the first task, after a square root and at unit length."""

    def first(task: Any) -> Callable[[Any], np.ndarray]:
        rows = normalized(np.asarray(task.X_train), "sqrt-l2")
        directions = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)[2][:width]
        return lambda X: (normalized(np.asarray(X), "sqrt-l2") @ directions.T).astype(np.float32)

    return first


def chained_densities(stream: Stream) -> float:
    """The chain of the quadratic scores themselves; it needs the covariances of old classes at every task.

    Test samples and the means of all classes are scored task by task, since each task's scores stand on the last one's.
    """
    data, tasks = stream.features, list(stream)
    chosen = taer.zoo.GaussChain().partial_fit(tasks[0].X_train, tasks[0].y_train)
    statistics = ClassStatistics(data.train_x.shape[1], per_class=True)
    for start in range(0, len(data.train_y), 8192):
        rows = chosen.embedding_(data.train_x[start : start + 8192])
        statistics.update(rows, np.asarray(data.train_y[start : start + 8192]))
    points = np.concatenate([chosen.embedding_(data.test_x[:]), statistics.means])
    at_means, nu = points.shape[0] - len(data.classes), chosen.strength_ * points.shape[1]
    frozen, known, scatter = np.zeros((len(points), len(data.classes))), np.zeros(0, int), np.zeros(1)
    for task in tasks:
        new = np.unique(task.y_train)
        scatter = scatter + sum(statistics.scatters[label] for label in new)
        seen = np.concatenate([known, new])
        n = statistics.counts[seen].sum()
        if not len(known):
            shrinkage = gaussians.shared_covariance(np.eye(points.shape[1]), int(n), chosen.prior_)[1]
        shared = shrunk(scatter / (n - len(seen)), shrinkage)
        present = np.zeros_like(frozen)
        for label in seen:
            count = statistics.counts[label]
            inverse = whitener((statistics.scatters[label] + nu * shared) / (count + nu))
            distances = squared_distances(points, statistics.means[label], inverse.astype(np.float32))
            present[:, label] = np.log(np.diag(inverse)).sum() - 0.5 * distances
        if len(known):
            at_known = at_means + known
            present *= gauss_chain._slope(frozen[at_known][:, known], present[at_known][:, known])
            odds = present[at_means + new][:, known] - present[at_means + new, new][:, None]
            neighbors = softmax(odds / chosen.temperature_, axis=1)
            frozen[:, new] = present[:, new] + (frozen[:, known] - present[:, known]) @ neighbors.T
        else:
            frozen[:, new] = present[:, new]
        known = seen
    predicted, y = frozen[:at_means].argmax(axis=1), np.asarray(data.test_y)
    return float(np.mean([np.mean(predicted[y == label] == label) for label in range(len(data.classes))]))


IDEAS: dict[str, Callable[[Stream], float]] = {
    "**`gauss-chain`**": learned(taer.zoo.GaussChain),
    "its linear part alone (`rank=0`)": learned(lambda: taer.zoo.GaussChain(rank=0)),
    "linear, new classes under the present covariance, not chained": learned(lambda: Unchained(rank=0)),
    "linear, the same about the mean of the first task": learned(lambda: UnchainedCentered(rank=0)),
    "linear, the same with a fitted offset and scale for each task": learned(lambda: Calibrated(rank=0)),
    "chain, then a fitted offset and scale for each task": learned(ChainCalibrated),
    "chain without its slope": patched(gauss_chain, "_slope", lambda *_: 1.0, taer.zoo.GaussChain),
    "chain to all old classes alike instead of neighbors": patched(
        gauss_chain, "softmax", plain_mean, taer.zoo.GaussChain
    ),
    "quadratic part against the covariance of the first task": learned(FirstShapes),
    "without the log-determinants": learned(WithoutVolume),
    "the quadratic scores themselves chained (every scatter kept)": chained_densities,
    "cross-validation also with fewer than five classes": patched(
        gaussians, "FEWEST_CLASSES", 2, taer.zoo.GaussChain
    ),
    "projected to 256 principal directions of the first task": learned(
        lambda: taer.zoo.GaussChain(normalize="none"), principal(256)
    ),
    "projected to 128": learned(lambda: taer.zoo.GaussChain(normalize="none"), principal(128)),
    "**`gauss-frozen`**": learned(taer.zoo.GaussFrozen),
    "with Student's t, 100 degrees of freedom": learned(Student),
    "**`taer-gauss`**": learned(taer.zoo.TaERGauss),
    "MAP towards the column of `lda-frozen`, l2 = 0.001": learned(TowardsLDA),
    "the same, l2 = 0.01": learned(lambda: TowardsLDA(l2=0.01)),
    "the same, l2 = 0.1": learned(lambda: TowardsLDA(l2=0.1)),
    "**`taer`**": learned(taer.TaER),
    "started from the columns of LDA at unit length": learned(TaERFromLDA),
    "started from zero": learned(lambda: taer.TaER(init="zero")),
}


def measured(idea: str, data: FeatureSet, tasks: int, out: Path) -> list[float]:
    """A_T of each order."""
    name = "".join(letter if letter.isalnum() else "-" for letter in idea).strip("-")
    path = out / f"tried-{name}-{tasks}-{data.fingerprint[:20]}.json"
    if not path.is_file():
        with one_blas_thread():
            found = [IDEAS[idea](class_stream(data, tasks, order=order)) for order in range(ORDERS)]
        path.write_text(json.dumps(found))
    kept: list[float] = json.loads(path.read_text())
    return [100 * value for value in kept]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    sets = {title: load_features(options.features / f"{name}.safetensors") for name, title in TITLES.items()}
    cells = [(idea, data, tasks) for idea in IDEAS for data in sets.values() for tasks in TASKS]
    found = Parallel(n_jobs=options.jobs)(delayed(measured)(*cell, options.out) for cell in cells)
    per_row = len(sets) * len(TASKS)
    rows = [
        [idea, *map(shown, found[at : at + per_row])]
        for idea, at in zip(IDEAS, range(0, len(found), per_row), strict=True)
    ]
    header = ["idea", *(f"{title}, N = {tasks}" for title in sets for tasks in TASKS)]
    print(f"### ideas\n\n{table(header, rows)}")


if __name__ == "__main__":
    main()
