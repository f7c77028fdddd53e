"""Linear discriminant analysis whose old columns never change."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from taer.heads.base import Task
from taer.heads.card import Card
from taer.heads.closed_form.base import NORMALIZE, ClosedFormHead
from taer.heads.closed_form.calibration import log_losses
from taer.heads.closed_form.linalg import class_moments, discriminants, shrunk
from taer.heads.closed_form.selection import FOLDS, stratified_folds, trial_samples
from taer.heads.embedding import NORMALIZATIONS, Normalize
from taer.heads.fitted import Fitted, array, number
from taer.heads.params import check_params, param
from taer.heads.validation import check_features
from taer.rows import row_chunks
from taer.statistics import ClassStatistics

_SHRINKAGES = (0.03, 0.1, 0.2, 0.3, 0.5, 0.7)
_DEFAULT = 0.5


class LDAFrozen(
    ClosedFormHead,
    name="lda-frozen",
    card=Card(
        "frozen",
        old_scores="never",
        keeps="statistics",
        boundaries=True,
        forgets="except its part in the first covariance",
        sums=True,
        few_shot=False,
    ),
):
    """LDA with the covariance of the first task: no exemplars, no training, and old columns never move.

    ``w_c = Σ₁⁻¹ μ_c``. The shrinkage of ``Σ₁`` is chosen in the first task by the cross-validated log loss. It is 0.5 if
    the first task has one class, or fewer than five samples of a class. :meth:`fit_covariance` estimates ``Σ₁`` from
    unlabeled samples instead.

    References
    ----------
    R. A. Fisher, "The Use of Multiple Measurements in Taxonomic Problems", 1936, with a fixed covariance.

    Examples
    --------
    >>> import taer
    >>> sketches = taer.load_features()
    >>> head = taer.LDAFrozen().fit(sketches.train_x, sketches.train_y)
    >>> head.score(sketches.test_x, sketches.test_y) > 0.55
    True
    """

    normalize: str = param("auto", NORMALIZE, options=(*NORMALIZATIONS, "auto"))
    shrinkage: Any = param(
        "auto",
        "fraction of the mean variance mixed into the covariance; 'auto' is chosen in the first task",
        at_least=0,
        at_most=1,
        options=("auto",),
    )

    fitted: ClassVar[dict[str, Fitted]] = {
        "shrinkage_": number(at_least=0, help="the shrinkage in use"),
        "covariance_": array("width", "width", help="the shrunk covariance of the first task"),
        "unlabeled_": array("width", "width", optional=True, help="covariance of the unlabeled samples, if given"),
    }

    fixes: ClassVar[tuple[str, ...]] = ("covariance_",)

    def fit_covariance(self, X: ArrayLike) -> Self:
        """Estimate the covariance from unlabeled samples. Then use ``partial_fit``, because ``fit`` resets the head.

        Without labels this is the total covariance, including the covariance between classes.
        """
        if hasattr(self, "classes_"):
            raise ValueError("the covariance is frozen since the first task; fit_covariance must come before it")

        def measure(head: Self) -> None:
            check_params(head)
            rows = check_features(head, X, reset=True)
            head.embedding_ = Normalize.fit(rows, head.normalize)
            statistics = ClassStatistics(rows.shape[1])
            for part in row_chunks(rows):
                statistics.update(head.embedding_(rows[part]), np.zeros(part.stop - part.start, np.int64))
            head.unlabeled_ = statistics.covariance()

        return self._change(measure)

    def _embedding(self, task: Task) -> Any:
        if not hasattr(self, "unlabeled_"):
            return super()._embedding(task)
        if task.X.shape[1] != len(self.unlabeled_):
            raise ValueError(
                f"the covariance was taken from samples of {len(self.unlabeled_)} features, X has {task.X.shape[1]}"
            )
        return self.embedding_

    def _choose(self, task: Task) -> None:
        self.shrinkage_ = self._chosen(task) if isinstance(self.shrinkage, str) else float(self.shrinkage)

    def _update(self, classes: np.ndarray) -> None:
        if not hasattr(self, "covariance_"):  # in the first task
            self.covariance_ = shrunk(getattr(self, "unlabeled_", self.statistics_.covariance()), self.shrinkage_)
        self._set(classes, *discriminants(self.statistics_.means[classes], self.covariance_))

    def _chosen(self, task: Task) -> float:
        samples, y = trial_samples(task.X, task.y)
        rows, folds = self.embedding_(samples), stratified_folds(y)
        if folds is None:
            return _DEFAULT
        losses = dict.fromkeys(_SHRINKAGES, 0.0)
        for fold in range(FOLDS):
            seen, held = folds != fold, folds == fold
            means, covariance = class_moments(rows[seen], y[seen])
            covariance = getattr(self, "unlabeled_", covariance)
            for shrinkage in _SHRINKAGES:
                columns, offsets = discriminants(means, shrunk(covariance, shrinkage))
                losses[shrinkage] += log_losses(rows[held] @ columns.T + offsets, y[held], 1.0).sum()
        return min(losses, key=lambda shrinkage: losses[shrinkage])
