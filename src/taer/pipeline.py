"""Pipelines that keep learning: scikit-learn's, with a ``partial_fit``."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any, Self

import sklearn.pipeline
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from taer.features.extractor import Extractor


def make_pipeline(*steps: Any) -> Pipeline:
    """A :class:`Pipeline` of these steps, named after their classes; the last one is the head.

    Examples
    --------
    >>> import taer
    >>> from sklearn.preprocessing import StandardScaler
    >>> sketches = taer.load_features()
    >>> pipe = taer.make_pipeline(StandardScaler(), taer.Bayes(random_state=0))
    >>> for first in (0, 5):
    ...     task = (sketches.train_y >= first) & (sketches.train_y < first + 5)
    ...     pipe = pipe.partial_fit(sketches.train_x[task], sketches.train_y[task])
    >>> pipe.classes_
    array([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    """
    return Pipeline(sklearn.pipeline.make_pipeline(*steps).steps)


class Pipeline(sklearn.pipeline.Pipeline):
    """A scikit-learn pipeline whose ``partial_fit`` goes through to its head.

    A step that is fitted, or has nothing to fit, stays as it is. Any other step is fitted once, on the first task: if it
    changed later, the features that the head has learned would no longer be valid.
    """

    steps: list[tuple[str, Any]]

    def fit(self, X: Any, y: Any = None, **params: Any) -> Self:
        """Fit all steps again, including those before the head. The head forgets everything it has learned."""
        super().fit(X, y, **params)
        self._remember_origin()
        return self

    def partial_fit(self, X: Any, y: ArrayLike, **params: Any) -> Self:
        """Learn one more task; ``params`` go to the head. A call that fails changes nothing."""
        *before, (last, head) = self.steps
        first, steps = not _is_fitted(head), []
        if hasattr(head, "_check_origin") and (origin := self._origin()) is not None:
            head._check_origin(origin)
        for name, step in before:
            if step in (None, "passthrough"):
                steps.append((name, step))
                continue
            if _is_fitted(step):
                X = step.transform(X)
            elif first:
                step = clone(step)  # a copy, in case the head refuses the task
                X = step.fit_transform(X, y)
            else:
                raise ValueError(
                    f"the head has learned tasks already, and the step {name!r} before it is not fitted"
                )
            steps.append((name, step))
        head.partial_fit(X, y, **params)
        self.steps = [*steps, (last, head)]
        if first:
            self._remember_origin()
        return self

    def describe(self, descriptions: Mapping[Any, Any]) -> Self:
        """Add classes by descriptions: by label, what the first step reads, such as texts. See ``Bayes.describe``."""
        *before, (_, head) = self.steps
        if not hasattr(head, "describe"):
            raise ValueError(f"describe is for bayes and bayes-replay, got {type(head).__name__}")
        rows: Any = list(descriptions.values())
        for _, step in before:
            if step not in (None, "passthrough"):
                rows = step.transform(rows)
        head.describe(dict(zip(descriptions, rows, strict=True)))
        return self

    def _origin(self) -> Any:
        """The origin of the head's features, if an extractor comes directly before the head."""
        steps = [step for _, step in self.steps[:-1] if step not in (None, "passthrough")]
        return steps[0].origin_ if len(steps) == 1 and isinstance(steps[0], Extractor) else None

    def _remember_origin(self) -> None:
        head = self.steps[-1][1]
        if hasattr(head, "_check_origin") and (origin := self._origin()) is not None:
            head.feature_origin_ = origin

    def save(self, path: str | PathLike[str]) -> None:
        """Write all steps and the head to one ``.safetensors`` file; ``taer.load`` reads it."""
        from taer.persist.pipelines import save_pipeline  # imports all steps and heads

        save_pipeline(self, path)


def _is_fitted(step: Any) -> bool:
    try:
        check_is_fitted(step)
    except NotFittedError:
        return False
    return True
