"""Classes that come with a description, and with examples later.

In the space of the prior, a description is a noisy observation of the mean of its class: the mean plus an offset that all
descriptions share, plus noise. Both are estimated from described classes whose examples the head has learned. Samples
scatter around the mean by one, so a description with noise of variance ``v`` counts as ``1 / v`` examples.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from taer.heads.base import Learned
from taer.heads.bayes.constants import DESCRIBED, MOST_EXAMPLES
from taer.heads.bayes.density import Summary
from taer.heads.bayes.sums import Summaries
from taer.heads.validation import check_features, check_labels


def describe(head: Any, descriptions: Mapping[Any, Any]) -> None:
    """Add the classes that are new, and learn from those that are known how much a description counts."""
    if not isinstance(descriptions, Mapping) or not descriptions:
        raise ValueError("expected a dictionary with a vector for each class, such as {'card_lost': vector}")
    labels = check_labels(list(descriptions), len(descriptions), head.classes_)
    rows = _space(head, descriptions)
    known = np.isin(labels, head.classes_)
    if known.any():
        numbers = head._numbers_of(labels[known])
        head.description_offset_, head.description_examples_ = measured(
            rows[known],
            head.densities_.means[numbers].astype(np.float64),
            head.densities_.counts[numbers],
            head.prior_,
        )
    if not known.all():
        _add(head, labels[~known], rows[~known] - getattr(head, "description_offset_", 0.0))


def _space(head: Any, descriptions: Mapping[Any, Any]) -> np.ndarray:
    vectors = [np.asarray(each) for each in descriptions.values()]
    for label, vector in zip(descriptions, vectors, strict=True):
        if vector.dtype.kind not in "fiu" or vector.shape != (head.n_features_in_,):
            raise ValueError(
                f"the description of {label!r} must be a vector of {head.n_features_in_} numbers; texts are for a "
                "pipeline with an Extractor, or 'taer describe'"
            )
    found: np.ndarray = head.prior_(
        head.embedding_(check_features(head, np.stack(vectors).astype(head.dtype_), reset=False))
    ).rows
    return found


def measured(rows: np.ndarray, means: np.ndarray, counts: np.ndarray, prior: Any) -> tuple[np.ndarray, float]:
    """The offset of descriptions, and how many examples one counts as.

    The noise is that along the directions in which class means differ. Few described classes say little: the offset is
    shrunk by what noise alone would give, and the noise is mixed with that of an example.
    """
    apart, n = rows - means, len(rows)
    offset = apart.mean(axis=0)
    centered, directions = apart - offset, prior.spread.directions
    total = float(np.square(centered).sum()) / max(n - 1, 1) / n  # of the offset, if it is all noise
    square = float(offset @ offset)
    offset = offset * (max(square - total, 0.0) / square if n > 1 and square else 0.0)
    along = np.square(centered @ directions.T).sum() / max(len(directions), 1) - (n - 1) * float(
        (1 / counts).mean()
    )
    noise = (max(along, 0.0) + DESCRIBED) / (n - 1 + DESCRIBED)
    return offset, float(min(1 / noise, MOST_EXAMPLES))


def _add(head: Any, labels: np.ndarray, means: np.ndarray) -> None:
    """Add classes of which only the mean is known, as well as by some examples."""
    n_known, width = len(head.classes_), means.shape[1]
    head.n_tasks_ += 1
    arriving = [Learned(label, head.n_tasks_) for label in labels.tolist()]
    head.learning_order_ = [*head.learning_order_, *arriving]
    head._set_labels(np.concatenate([head.classes_[np.argsort(head.arrival_)], labels]))
    count = getattr(head, "description_examples_", 1.0)
    summaries = [Summary(count, mean, np.zeros((0, width)), 0.0) for mean in means]
    numbers = n_known + np.arange(len(labels))
    head._set_sums(Summaries.of(numbers, summaries, head._rank), numbers)
    head._check_learned(numbers)
    head._outdate()
