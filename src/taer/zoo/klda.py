"""KLDA: linear discriminant analysis of random Fourier features, the mean of several draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from taer.heads import exact
from taer.heads.base import Head, Task
from taer.heads.card import Card
from taer.heads.closed_form.calibration import best_temperature, held_out
from taer.heads.closed_form.collect import collect
from taer.heads.closed_form.linalg import discriminants
from taer.heads.embedding import RandomFeatures, Standardize
from taer.heads.fitted import Fitted, array, number
from taer.heads.params import param
from taer.statistics import ClassStatistics

_PAIRS = 1000  # of samples, for their median distance
_TRIED = (1.0, 0.1, 0.01, 0.001)  # widths of the kernel, times the inverse of the median squared distance


@dataclass(frozen=True)
class Waves:
    """Random features of rows from which a mean is subtracted: the kernel is the same, and large means do no harm."""

    mean: np.ndarray
    waves: RandomFeatures

    def __call__(self, X: np.ndarray) -> np.ndarray:
        return self.waves(np.asarray(X, np.float64) - self.mean)


class KLDA(
    Head,
    name="klda",
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
    """KLDA: discriminant analysis of random features of a Gaussian kernel, ``draws`` times; old scores move.

    Each draw has the features ``z = √(2/m) cos(x Ω + u)`` of the kernel ``exp(-gamma |x - x'|²)``, and the logits
    ``-(z - μ_c)ᵀ (S + ridge·I)⁻¹ (z - μ_c)``, where ``S`` is the scatter within the classes, as a sum. The score is the
    logarithm of the mean over the draws of the softmax of the logits, times the number of classes. This is KLDA-E of the
    paper, its ensemble; ``draws=1`` is its single model.

    Departures: 1,000 features per draw in place of 5,000. ``S`` has a ridge, as in the authors' later code; the first
    one takes a pseudo-inverse in float32. Means and scatter are exact if a class returns. The authors choose ``gamma``
    per backbone (1e-4 for BART); "auto" chooses it on held-out samples of the first task. A temperature, fitted on
    held-out samples, divides the scores in ``predict_proba``.

    References
    ----------
    S. Momeni, S. Mazumder, B. Liu, "Continual Learning Using a Kernel-Based Method Over Foundation Models", AAAI 2025.

    Examples
    --------
    >>> import taer
    >>> sketches = taer.load_features()
    >>> head = taer.zoo.KLDA(width=300, draws=2, random_state=0).fit(sketches.train_x, sketches.train_y)
    >>> head.score(sketches.test_x, sketches.test_y) > 0.4
    True
    """

    gamma: Any = param(
        "auto", "inverse width of the kernel; 'auto' is chosen in the first task", above=0, options=("auto",)
    )
    ridge: float = param(1e-3, "added to the diagonal of the scatter", above=0)
    width: int = param(1000, "number of random features of a draw", at_least=1)
    draws: int = param(5, "number of draws of random features", at_least=1)

    fitted: ClassVar[dict[str, Fitted]] = {
        "gamma_": number(above=0, help="the inverse width of the kernel in use"),
        "mean_": array(
            "width", types=("float64",), help="mean of the first task, which is subtracted from all rows"
        ),
        "frequencies_": array(
            "draws", "width", "random", types=("float32",), help="random frequencies, fixed by the first task"
        ),
        "phases_": array("draws", "random", types=("float32",), help="random phases"),
        "centers_": array("draws", "random", types=("float64",), help="means of the random features, first task"),
        "counts_": array("classes", types=("float64",), above=0, help="number of samples of each class"),
        "means_": array("classes", "draws", "random", types=("float64",), help="means of the random features"),
        "scatters_": array("draws", "random", "random", types=("float64",), help="their scatter within classes"),
        "weights_": array("classes", "draws", "random", help="weight vectors"),
        "offsets_": array("classes", "draws", types=("float64",), help="intercepts of the logits"),
        "temperature_": number(above=0, help="divisor of the scores in the softmax of ``predict_proba``"),
    }

    def _learn(self, task: Task) -> None:
        held = held_out(task)
        rest, left_out = task.picked(np.flatnonzero(~held)), task.picked(np.flatnonzero(held))
        if task.number == 1:
            self.temperature_ = 1.0
            self._begin(task, rest, left_out)
        self._count(rest)
        trial = self._snapshot()
        if len(left_out.y):
            self._count(left_out)
        self._solve()
        if len(left_out.y):
            trial._solve()
            scores = trial._finite_scores(left_out.X[:]).astype(np.float64)
            self.temperature_ = best_temperature(scores, left_out.y, left_out.weight)

    def _begin(self, task: Task, rest: Task, left_out: Task) -> None:
        """Choose the width of the kernel, then draw the random features."""
        if self.gamma != "auto":
            self._draw(task, float(self.gamma), self.draws)
            return
        one, other = (
            np.asarray(task.X[rows], np.float64) for rows in self.rng_.integers(0, len(task.y), (2, _PAIRS))
        )
        squared = float(np.median(np.square(one - other).sum(axis=1)))
        tried = [relative / squared if squared > 0 else relative for relative in _TRIED]
        right = [self._tried(gamma, rest, left_out) for gamma in tried] if len(left_out.y) else [0.0]
        self._draw(task, tried[int(np.argmax(right))], self.draws)

    def _tried(self, gamma: float, rest: Task, left_out: Task) -> float:
        """The accuracy of one draw on held-out samples."""
        trial: Self = self._snapshot()
        trial._draw(rest, gamma, 1)
        trial._count(rest)
        trial._solve()
        return float(np.mean(trial._finite_scores(left_out.X[:]).argmax(axis=1) == left_out.y))

    def _draw(self, task: Task, gamma: float, draws: int) -> None:
        self.gamma_, shape = gamma, (draws, task.X.shape[1], self.width)
        self.frequencies_: np.ndarray = (np.sqrt(2 * gamma) * self.rng_.normal(size=shape)).astype(np.float32)
        self.phases_ = self.rng_.uniform(0, 2 * np.pi, (draws, self.width)).astype(np.float32)
        self.mean_ = Standardize.fit(task.X, "center").mean
        self.centers_ = np.zeros((draws, self.width))
        firsts = [collect(map_, task) for map_ in self._features()]
        self.centers_ = np.stack([one.cross_moments.sum(axis=0) / one.n_samples for one in firsts])

    def _features(self) -> list[Waves]:
        parts = zip(self.frequencies_, self.phases_, self.centers_, strict=True)
        return [Waves(self.mean_, RandomFeatures("none", *part)) for part in parts]

    def _count(self, task: Task) -> None:
        """Add samples to the statistics of every draw."""
        found = [collect(map_, task, self._statistics(draw)) for draw, map_ in enumerate(self._features())]
        self.counts_ = found[0].counts
        self.means_ = np.stack([one.means for one in found], axis=1)
        self.scatters_: np.ndarray = np.stack([one.scatter for one in found])

    def _statistics(self, draw: int) -> ClassStatistics | None:
        if not hasattr(self, "counts_"):
            return None
        statistics = ClassStatistics(self.width)
        statistics.labels, statistics.counts = np.arange(len(self.counts_)), self.counts_
        statistics.means, statistics.scatter = self.means_[:, draw], self.scatters_[draw]
        return statistics

    def _solve(self) -> None:
        ridge, weights, offsets = self.ridge * np.eye(self.width), [], []
        for draw, scatter in enumerate(self.scatters_):
            columns, halves = discriminants(self.means_[:, draw], scatter + ridge)
            weights.append(exact.rounded(2 * columns, self.dtype_))
            offsets.append(2 * halves)
        self.weights_, self.offsets_ = np.stack(weights, axis=1), np.stack(offsets, axis=1)

    def _scores(self, X: np.ndarray, classes: np.ndarray | None = None) -> np.ndarray:
        shares = np.zeros((len(X), len(self.weights_)))
        for draw, map_ in enumerate(self._features()):
            weights = np.ascontiguousarray(self.weights_[:, draw])
            shares += super()._probabilities(exact.products(map_(X), weights) + self.offsets_[:, draw])
        with np.errstate(divide="ignore"):
            scores = np.maximum(np.log(shares * (len(self.weights_) / len(self.frequencies_))), -1e4)
        return (scores if classes is None else scores[:, classes]).astype(self.dtype_)

    def _probabilities(self, scores: np.ndarray) -> np.ndarray:
        return super()._probabilities((scores - scores.max(axis=-1, keepdims=True)) / self.temperature_)

    def _class_counts(self) -> np.ndarray:
        return self.counts_
