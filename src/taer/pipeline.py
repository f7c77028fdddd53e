"""Pipelines that keep learning: scikit-learn's, with a ``partial_fit``."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import sklearn.pipeline
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from taer.containers import items_of
from taer.features.extractor import Extractor

if TYPE_CHECKING:
    from taer.loop.automate import Automation
    from taer.loop.discover import Discovery
    from taer.loop.explain import Explanation


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
        head = self._head_with("describe")
        head.describe(dict(zip(descriptions, self._features(list(descriptions.values())), strict=True)))
        return self

    # The loop around the head. What these take as X is what ``predict`` takes.

    def novelty(self, X: Any) -> np.ndarray:
        """How little each sample looks like any known class; only the order of the values has a meaning."""
        found: np.ndarray = self._head_with("novelty").novelty(self._features(X))
        return found

    def discover(self, X: Any) -> Discovery:
        """Groups of samples that belong to no known class; groups of texts have words. See ``Bayes.discover``."""
        head, features = self._head_with("discover"), self._features(X)
        found: Discovery = head.discover(features, self._texts(X))
        return found

    def suggest(self, X: Any, n: int) -> np.ndarray:
        """The ``n`` samples whose labels would help most, the best first. See ``Bayes.suggest``.

        Before the first task, steps that are not fitted are fitted on ``X`` for this call alone.
        """
        found: np.ndarray = self._head_with("suggest").suggest(self._features(X), n)
        return found

    def automate(
        self, X: Any, y: ArrayLike, errors: float = 0.02, confidence: float = 0.95, *, unknown: Any = None
    ) -> Automation:
        """The largest share of answers that need no person. See ``Bayes.automate``."""
        head = self._head_with("automate")
        found: Automation = head.automate(self._features(X), y, errors, confidence, unknown=unknown)
        return found

    def automatic(self, X: Any) -> np.ndarray:
        """Which answers need no person, by the threshold of :meth:`automate`."""
        found: np.ndarray = self._head_with("automatic").automatic(self._features(X))
        return found

    def explain(self, X: Any, examples: tuple[Any, ArrayLike] | None = None, count: int = 3) -> list[Explanation]:
        """Why each sample got its answer; ``examples`` are samples like ``X`` and labels. See ``Bayes.explain``."""
        head, features = self._head_with("explain"), self._features(X)
        if examples is not None:
            samples, labels = examples
            examples = self._features(samples), labels
        found: list[Explanation] = head.explain(features, examples, count)
        return found

    def _head_with(self, verb: str) -> Any:
        head = self.steps[-1][1]
        if not hasattr(head, verb):
            raise ValueError(f"{type(head).__name__} has no {verb}; bayes and bayes-replay have it")
        return head

    def _features(self, X: Any) -> Any:
        """What the head is given for these samples."""
        *before, (_, head) = self.steps
        for _, step in before:
            if step not in (None, "passthrough"):
                for_now = not _is_fitted(head) and not _is_fitted(step)
                X = clone(step).fit_transform(X) if for_now else step.transform(X)
        return X

    def _texts(self, X: Any) -> list[str] | None:
        """The samples, if they are texts for an extractor."""
        first = self.steps[0][1]
        if not isinstance(first, Extractor) or first.kind == "image":
            return None
        items = list(items_of(X, "items"))
        return items if all(isinstance(item, str) for item in items) else None

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
