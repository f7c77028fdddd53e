"""Which samples to label next: typical ones of what the head does not know yet, and unlike each other."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_array

from taer.containers import by_position
from taer.heads.embedding import Normalize
from taer.loop.evidence import coordinates, evenly
from taer.rows import row_chunks

_CANDIDATES = 2000  # samples that are clustered
_LEAST = 0.5  # share of the pool that may be suggested, however much the head knows
_MORE = 1.25  # clusters per suggestion; the smallest, which may be outliers, are left out


def suggest(head: Any, X: Any, n: int) -> np.ndarray:
    """The rows to label next, the most useful first, for a ``bayes`` head; one that has learned nothing picks by spread.

    With m labels per class, the 1 / m of the pool that the head is least sure of may be suggested: all at first,
    half from two labels on. These samples are clustered together with the class means of the head. The suggestions
    are the samples in the middle of the largest clusters without a class mean. So what is typical comes first, and
    what is uncertain later. Typical samples of clusters without labels are the idea of TypiClust (G. Hacohen et al.,
    "Active Learning on a Budget: Opposite Strategies Suit High and Low Budgets", ICML 2022).
    """
    X = by_position(X, "X")
    if not isinstance(n, int | np.integer) or isinstance(n, bool) or n < 1:
        raise ValueError(f"n must be a whole number above 0, got {n!r}")
    if hasattr(head, "classes_"):
        rows, points, means = _by_prior(head, X, int(n))
        weights = np.append(np.ones(len(points)), head.densities_.counts)
    else:
        rows, points = _by_spread(X, int(n))
        means, weights = points[:0], np.ones(len(points))
    found: np.ndarray = rows[_middles(points, means, weights, min(int(n), len(rows)))]
    return found


def _by_prior(head: Any, X: Any, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Candidates, the least sure first, where they are, and where the class means are."""
    parts = [_sureness(head, X[part]) for part in row_chunks(X, max(X.shape[1], len(head.classes_)))]
    sure = np.concatenate(parts) if parts else head.novelty(X)  # which refuses an empty pool
    share = min(1.0, max(_LEAST, 1 / head.densities_.counts.mean()))
    unsure = np.argsort(sure, kind="stable")[: max(3 * n, math.ceil(share * len(sure)))]
    rows = unsure[evenly(len(unsure), max(n, _CANDIDATES))]
    both, evidence = coordinates(head, np.concatenate([head._in_prior(X[rows]), head.densities_.means]))
    # Squared distances as in the log-odds that two samples share a class, but for what is the same for all samples.
    both = both * np.sqrt(evidence.psi / (1 + evidence.psi))
    return rows, both[: len(rows)], both[len(rows) :]


def _sureness(head: Any, X: np.ndarray) -> np.ndarray:
    """The lead of the best class over the second in probability, times the probability of a known class."""
    scores, novelty = head._scores_with_novelty(X)
    best = np.sort(head._probabilities(scores), axis=1)
    lead = best[:, -1] - best[:, -2] if best.shape[1] > 1 else best[:, -1]
    sure: np.ndarray = lead * expit(-novelty / head.prior_.temperature)
    return sure


def _by_spread(X: Any, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The same without a head: some samples, and where they are."""
    rows = evenly(len(X), max(n, _CANDIDATES))
    points = check_array(X[rows], dtype=np.float64)
    return rows, Normalize(Normalize.fit(points, "auto").how, np.zeros(points.shape[1]))(points)


def _middles(points: np.ndarray, means: np.ndarray, weights: np.ndarray, n: int) -> np.ndarray:
    """Places of the points in the middle of clusters: of the largest without a class mean, then of the others.

    If these are fewer than n, the first points follow.
    """
    both = np.concatenate([points, means])
    clusters = KMeans(min(math.ceil(_MORE * n) + len(means), len(both)), n_init=1, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # copies: there are fewer clusters then
        labels = clusters.fit(both, sample_weight=weights).labels_
    own, known = labels[: len(points)], np.unique(labels[len(points) :])
    apart = np.square(points - clusters.cluster_centers_[own]).sum(axis=1)
    order = np.lexsort((apart, own))  # the first of each cluster is in its middle
    first = order[np.unique(own[order], return_index=True)[1]]
    best = first[np.lexsort((-np.bincount(own)[own[first]], np.isin(own[first], known)))]
    others = np.setdiff1d(np.arange(len(points)), best)
    return np.append(best, others)[:n]
