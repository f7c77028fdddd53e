"""The base classes of closed-form heads: class statistics of a fixed embedding, and a temperature."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from taer.heads import exact
from taer.heads.base import Head, Task
from taer.heads.closed_form.calibration import PooledLosses, best_temperature, held_out
from taer.heads.closed_form.collect import collect
from taer.heads.closed_form.derived import Derived
from taer.heads.closed_form.linalg import RelativeDistances
from taer.heads.embedding import NORMALIZATIONS, Normalize
from taer.heads.fitted import Fitted, Sizes, array, number, value_of
from taer.heads.numerics import grown
from taer.heads.params import param
from taer.statistics import ClassStatistics

NORMALIZE = (
    "what is done to each sample: nothing, unit length, signed square root and unit length, or 'auto': the square root "
    "if the first task has no negative value, else unit length"
)


class ClosedFormHead(Head):
    """Collects :class:`~taer.statistics.ClassStatistics` of a fixed embedding and solves for the scores.

    A method implements ``_update`` or, if a task affects more than its own classes, ``_solve``. The temperature of
    ``predict_proba`` is fitted at each task, over all classes so far, on a held-out fifth of the task, which is added to
    the statistics afterwards. Heads whose old scores never move use the held-out samples of all tasks.
    """

    weighs: ClassVar[bool] = True
    diagonal: ClassVar[bool] = False  # whether the variances of the features are enough
    fixes: ClassVar[tuple[str, ...]] = ()  # fitted attributes that the first task determines, besides the embedding
    normalize: str = param("none", NORMALIZE, options=(*NORMALIZATIONS, "auto"))

    fitted: ClassVar[dict[str, Fitted]] = {
        "embedding_": value_of(Normalize, width="width", help="map of the features, fixed by the first task"),
        "weights_": array(
            "classes", "embedding", help="weight vectors after that map, one per class in order of arrival"
        ),
        "offsets_": array("classes", help="intercepts of the scores, one per class in order of arrival"),
        "statistics_": value_of(
            ClassStatistics, width="embedding", help="counts, means and scatter of the classes after that map"
        ),
        "temperature_": number(above=0, help="divisor of the scores in the softmax of ``predict_proba``"),
        "held_out_": value_of(
            PooledLosses,
            width="width",
            optional=True,
            help="log losses of held-out samples, from which the temperature is chosen; if old scores never move",
        ),
    }

    @property
    def per_class(self) -> bool:
        """Whether each class has its own scatter."""
        return False

    def _restore(self, state: dict[str, Any]) -> Self:
        self._derived = Derived()
        return super()._restore(state)

    def _embedding(self, task: Task) -> Any:
        """The embedding, fitted on the first task."""
        return Normalize.fit(task.X, self.normalize)

    def _choose(self, task: Task) -> None:
        """Choose strengths and shrinkages on the first task."""

    def _solve(self, task: Task) -> None:
        """Compute the scores from the statistics."""
        self._update(task.current)

    def _learn(self, task: Task) -> None:
        self._derived = Derived()
        if task.number == 1:
            self._begin(task)
        held = held_out(task)
        rest = task.picked(np.flatnonzero(~held))
        self._count(rest)
        trial, left_out = self._snapshot(), task.picked(np.flatnonzero(held))
        if len(left_out.y):
            self._count(left_out)
        self._solve(task)
        if len(left_out.y):
            self._calibrate(trial, rest, left_out)

    def _begin(self, task: Task) -> None:
        self.embedding_ = self._embedding(task)
        self.temperature_ = 1.0
        self.weights_, self.offsets_ = np.zeros((0, len(self.embedding_.center)), self.dtype_), np.zeros(0)
        self._choose(task)

    def _count(self, task: Task) -> None:
        before = getattr(self, "statistics_", None)
        self.statistics_: ClassStatistics = collect(
            self.embedding_, task, before, per_class=self.per_class, diagonal=self.diagonal
        )

    def _calibrate(self, trial: Self, rest: Task, held: Task) -> None:
        """Fit the temperature, with scores of a head that has not counted the held-out samples."""
        trial._solve(rest)
        scores = trial._finite_scores(held.X[:]).astype(np.float64)
        if self.card.frozen:
            pooled = getattr(self, "held_out_", None) or PooledLosses.start(scores)
            self.held_out_ = pooled.plus(scores, held.y, held.weight)
            self.temperature_ = self.held_out_.best_temperature()
        else:
            self.temperature_ = best_temperature(scores, held.y, held.weight)

    def _sums_of(self, task: Task) -> ClassStatistics:
        return collect(self.embedding_, task, per_class=self.per_class, diagonal=self.diagonal)

    def _set_sums(self, sums: ClassStatistics, changed: np.ndarray) -> None:
        self.statistics_ = sums
        self._update(changed)

    def _fixed(self) -> dict[str, Any]:
        embedding = {f"embedding_.{name}": value for name, value in self.embedding_.to_arrays().items()}
        del embedding["embedding_.center"]  # sums around another center can be converted
        return embedding | {name: getattr(self, name) for name in self.fixes}

    def _sums_from(self, other: Self) -> tuple[ClassStatistics, bool]:
        shift = other.embedding_.center - self.embedding_.center
        return other.statistics_.moved(shift), not shift.any()

    def _absorb(self, other: Self) -> None:
        if hasattr(self, "held_out_") and hasattr(other, "held_out_"):
            self.held_out_ = self.held_out_ + other.held_out_
            self.temperature_ = self.held_out_.best_temperature()
        else:
            weights = [other.statistics_.n_samples, self.statistics_.n_samples]
            temperatures = np.log([other.temperature_, self.temperature_])
            self.temperature_ = float(np.exp(np.average(temperatures, weights=weights)))

    def _sizes(self) -> Sizes:
        # that of a file may be anything; its own check comes later, and refuses it
        center = getattr(vars(self).get("embedding_"), "center", None)
        return super()._sizes() | ({} if center is None else {"embedding": len(center)})

    def _set(self, classes: np.ndarray, columns: np.ndarray, offsets: np.ndarray) -> None:
        """Set the columns and offsets of some classes."""
        n_classes = len(self.classes_)
        self.weights_, self.offsets_ = grown(self.weights_, n_classes), grown(self.offsets_, n_classes)
        self.weights_[classes], self.offsets_[classes] = exact.rounded(columns, self.dtype_), offsets

    def _best_among(self, X: np.ndarray, possible: np.ndarray) -> np.ndarray:
        """The best class of each row by its exact score, given which classes can be the best."""
        if possible.shape[1] == 1:  # nothing to choose, but its score must be a number
            return super()._best(X)
        best: np.ndarray = possible.argmax(axis=1)
        for row in np.flatnonzero(possible.sum(axis=1) > 1):
            classes = self.arrival_[possible[row][self.arrival_]]  # the first of classes_ among equals
            best[row] = classes[self._finite_scores(X[[row]], classes).argmax()]
        return best

    def _probabilities(self, scores: np.ndarray) -> np.ndarray:
        # Divide differences, which are never above 0: quotients of large scores could all be infinite.
        return super()._probabilities((scores - scores.max(axis=-1, keepdims=True)) / self.temperature_)

    def _novelty(self, X: np.ndarray, scores: np.ndarray) -> np.ndarray:
        """Entropy, plus the distance to the nearest class relative to the distance to the mean of all classes."""
        return super()._novelty(X, scores) + self._distances()(self.embedding_(X)) / self.temperature_

    def _distances(self) -> RelativeDistances:
        make = partial(RelativeDistances, self.statistics_)
        return self._derived.of(self.statistics_.means, RelativeDistances, make)

    def _novelty_graph(self, graph: Any, probabilities: str) -> str:
        apart = self._distances().graph(graph, self.embedding_.graph(graph, "features"))
        apart = graph.add("Div", apart, np.array(self.temperature_))
        return str(graph.add("Add", super()._novelty_graph(graph, probabilities), apart))


class SolvedHead(ClosedFormHead):
    """Solves for all columns again whenever the statistics change."""

    forgettable: bool = param(False, "store one scatter per class, so that a class can be forgotten exactly")

    @property
    def per_class(self) -> bool:
        return self.forgettable

    def _solution(self) -> tuple[np.ndarray, np.ndarray]:
        """Columns and offsets of all classes, from the statistics."""
        raise NotImplementedError

    def _update(self, classes: np.ndarray) -> None:
        self._set(np.arange(len(self.classes_)), *self._solution())
