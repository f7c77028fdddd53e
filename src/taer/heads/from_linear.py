"""``from_linear``: turn an existing linear classifier into a head that learns new classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from taer.containers import by_position
from taer.heads import exact
from taer.heads.descent.taer import TaER
from taer.heads.embedding import Standardize
from taer.heads.params import check_params
from taer.heads.task import Learned, Task
from taer.heads.validation import check_features, check_labels, generator
from taer.memory import POLICIES


def from_linear(
    coef: ArrayLike,
    intercept: ArrayLike,
    classes: ArrayLike,
    X: ArrayLike | None = None,
    y: ArrayLike | None = None,
    **params: Any,
) -> TaER:
    """A head with the scores ``coef @ x + intercept``, which never change, and which learns new classes with TaER.

    Parameters
    ----------
    coef : array of shape (n_classes, n_features), or (1, n_features) for two classes, as in scikit-learn
        One weight vector per class: from a classifier of scikit-learn, the last layer of a network, or embeddings of
        the class names times the scale they were trained with.
    intercept : array of shape (n_classes,), or a number
    classes : array of shape (n_classes,)
        Labels, in the order of the rows of ``coef``.
    X, y : arrays, optional
        A few samples of these classes for the memory of TaER, from which new classes learn to stay below the old ones
        where these are right. Without them the head can predict, but classes learned later are either missed or
        predicted too often (``docs/guides/from-linear.md``).
    **params
        Parameters of :class:`~taer.TaER`. Without ``X``, ``standardize`` is "none".

    Examples
    --------
    >>> import taer
    >>> from sklearn.linear_model import LogisticRegression
    >>> data = taer.load_features()
    >>> old, new = data.train_y < 10, (data.train_y >= 10) & (data.train_y < 15)
    >>> known = LogisticRegression(max_iter=2000).fit(data.train_x[old], data.train_y[old])
    >>> head = taer.from_linear(known.coef_, known.intercept_, known.classes_, data.train_x[old], data.train_y[old])
    >>> bool((head.predict(data.test_x) == known.predict(data.test_x)).mean() > 0.999)
    True
    >>> before = head.scores(data.test_x, range(10))
    >>> head = head.partial_fit(data.train_x[new], data.train_y[new])
    >>> bool((head.scores(data.test_x, range(10)) == before).all()), len(head.classes_)
    (True, 15)
    """
    columns, offsets, labels = _checked(coef, intercept, classes)
    head = TaER(**({"standardize": "none"} if X is None else {}) | params)
    check_params(head)
    if X is None and head.standardize != "none":
        raise ValueError("standardize must be 'none' unless there are samples X from which to learn it")
    width, dtype, order = columns.shape[1], str(np.result_type(columns, np.float32)), np.argsort(labels)
    embedding = Standardize(np.zeros(width), np.ones(width), dtype)
    head._restore(
        {
            "n_features_in_": width,
            "classes_": labels[order],
            "arrival_": order,
            "learning_order_": [Learned(label, 1) for label in labels.tolist()],
            "n_tasks_": 1,
            "dtype_": dtype,
            "rng_": generator(head.random_state),
            "embedding_": embedding,
            "weights_": exact.rounded(columns, dtype),
            "offsets_": offsets,
            "memory_": POLICIES[head.memory](head.memory_size),
        }
    )
    if X is not None:
        rows = check_features(head, X, reset=False)
        numbers = head._numbers_of(check_labels(y, len(rows), head.classes_))
        head.embedding_ = embedding = Standardize.fit(rows, head.standardize)
        head.weights_ = exact.rounded(columns * embedding.scale, dtype)
        head.offsets_ = offsets + columns @ embedding.mean
        head._remember(Task(rows, numbers, len(labels), len(labels)))
    return head


def _checked(coef: Any, intercept: Any, classes: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Check that there are one weight vector, one intercept and one label per class."""
    columns = np.asarray(by_position(coef, "coef"))
    if columns.ndim != 2 or columns.dtype.kind not in "fiu" or not np.isfinite(columns).all():
        raise ValueError(f"coef must be finite numbers of shape (n_classes, n_features), got {columns.shape}")
    labels = check_labels(classes, len(np.asarray(classes)), None)
    offsets = np.asarray(by_position(intercept, "intercept"), np.float64)
    if offsets.shape not in ((), (len(columns),)) or not np.isfinite(offsets).all():
        raise ValueError(f"intercept must be finite numbers, one per class or one for all, got {offsets.shape}")
    offsets = np.broadcast_to(offsets, (len(columns),)).copy()
    if len(columns) == 1 and len(labels) == 2:  # the score of the second class against the first
        columns, offsets = np.concatenate([0 * columns, columns]), np.array([0.0, offsets[0]])
    if len(labels) != len(columns):
        raise ValueError(f"coef has {len(columns)} rows, but there are {len(labels)} classes")
    if len(np.unique(labels)) < len(labels):
        raise ValueError("classes must be different from one another")
    return columns, offsets, labels
