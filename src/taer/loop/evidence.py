"""How likely it is that some samples share a class, from the prior of a ``bayes`` head.

In the space of the prior, samples scatter around their class mean by one in every direction, and class means by ``psi``.
So the log-likelihood of a group of n samples with sum s is, up to what all partitions share,
``Σ -½·log(1 + n·psi) + ½·psi·s² / (1 + n·psi)``. Every sample counts as ``power`` of one, because log-densities of
correlated features are too sure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.extmath import randomized_svd

from taer.rows import row_chunks

SEARCHED = 3000  # samples among which all pairs are compared
_OTHERS = 48  # directions beside those of class means: the leading ones of the pool
_POWER = 0.18  # of a sample, in units of the head's temperature per root of a feature
_BLOCK = 512


@dataclass(frozen=True)
class Evidence:
    """Log-likelihoods of groups, from their counts and sums."""

    psi: np.ndarray
    power: float

    def tables(self, most: int) -> tuple[np.ndarray, np.ndarray]:
        """For groups of 0 … ``most`` samples: the weights of squared sums, and the constant."""
        spread = 1 + self.power * np.arange(most + 1)[:, None] * self.psi
        weights = 0.5 * self.power**2 * self.psi / spread
        return weights.astype(np.float32), (-0.5 * np.log(spread).sum(axis=1)).astype(np.float32)

    def of(self, counts: np.ndarray, sums: np.ndarray) -> np.ndarray:
        """The log-likelihood of each group."""
        weights, constants = self.tables(int(counts.max(initial=0)))
        found: np.ndarray = np.einsum("ij,ij,ij->i", sums, sums, weights[counts]) + constants[counts]
        return found

    def joining(self, rows: np.ndarray, counts: np.ndarray, sums: np.ndarray) -> np.ndarray:
        """What each row adds to the log-likelihood of each group that it is not in."""
        weights, constants = self.tables(int(counts.max(initial=0)) + 1)
        more = weights[counts + 1]
        fixed = np.einsum("ij,ij,ij->i", sums, sums, more) + constants[counts + 1] - self.of(counts, sums)
        found: np.ndarray = np.square(rows) @ more.T + 2 * rows @ (more * sums).T + fixed
        return found

    def staying(self, rows: np.ndarray, counts: np.ndarray, sums: np.ndarray) -> np.ndarray:
        """What each row adds to the log-likelihood of its own group, whose count and sum are given."""
        return self.of(counts, sums) - self.of(counts - 1, sums - rows)

    def alone(self, rows: np.ndarray) -> np.ndarray:
        """The log-likelihood of each row as a group of its own."""
        return self.of(np.ones(len(rows), np.int64), rows)


def in_order(head: Any, X: Any) -> tuple[np.ndarray, np.ndarray]:
    """Distinct rows in the space of the prior, sorted, and for each row of ``X`` the number of its distinct row.

    Everything after this depends on the set of samples alone, not on their order.
    """
    rows = head._in_prior(X)
    order = np.lexsort(rows[:, : min(3, rows.shape[1])].T)
    ranked = rows[order]
    new = np.ones(len(rows), bool)
    new[1:] = (ranked[1:] != ranked[:-1]).any(axis=1)
    place = np.empty(len(rows), np.int64)
    place[order] = np.cumsum(new) - 1
    return ranked[new], place


def coordinates(head: Any, rows: np.ndarray) -> tuple[np.ndarray, Evidence]:
    """Rows along the directions of class means and the leading other directions of the rows."""
    directions, psi, others, _ = head.prior_.spread
    some = rows[evenly(len(rows), SEARCHED)]
    rest = some - (some @ directions.T) @ directions
    count = min(_OTHERS, rows.shape[1] - len(directions), len(rows))
    if count > 0:
        more = randomized_svd(rest, count, random_state=0)[2]
        directions, psi = np.concatenate([directions, more]), np.append(psi, np.full(count, others))
    directions = directions.astype(np.float32)
    found = np.concatenate([rows[part] @ directions.T for part in row_chunks(rows)])
    power = _POWER * np.sqrt(rows.shape[1]) / head.prior_.temperature
    return found, Evidence(psi.astype(np.float32), float(power))


def evenly(count: int, most: int) -> np.ndarray:
    """At most this many of ``count`` numbers, evenly."""
    return np.arange(count) if count <= most else np.linspace(0, count - 1, most).round().astype(np.int64)


def sums_of(rows: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Counts and sums of groups 0 … k-1, all of which have rows."""
    order, counts = np.argsort(labels, kind="stable"), np.bincount(labels)
    return counts, np.add.reduceat(rows[order], np.cumsum(counts) - counts, axis=0)


def merged(evidence: Evidence, counts: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """The number of the merged group of each group: the best two are merged for as long as that is more likely."""
    counts, sums = counts.copy(), sums.copy()
    weights, constants = evidence.tables(int(counts.sum() + counts.max()))
    own = evidence.of(counts, sums)
    gains = _gains(weights, constants, counts, sums)
    gains -= own[:, None]
    gains -= own
    np.fill_diagonal(gains, -np.inf)
    partner = gains.argmax(axis=1)
    best = gains[np.arange(len(gains)), partner]
    parent, alive = np.arange(len(gains)), np.ones(len(gains), bool)
    while best.max() > 0:
        kept = int(best.argmax())
        gone = int(partner[kept])
        counts[kept] += counts[gone]
        sums[kept] += sums[gone]
        own[kept] = np.square(sums[kept]) @ weights[counts[kept]] + constants[counts[kept]]
        parent[gone], alive[gone] = kept, False
        gains[gone] = gains[:, gone] = best[gone] = -np.inf
        there = np.flatnonzero(alive)
        there = there[there != kept]
        both, count = sums[there] + sums[kept], counts[there] + counts[kept]
        found = np.einsum("ij,ij,ij->i", both, both, weights[count]) + constants[count] - own[there] - own[kept]
        gains[kept, there] = gains[there, kept] = found
        # The groups whose best partner has changed: all whose partner was one of the two, and those that gain more now.
        stale = np.append(there[(partner[there] == kept) | (partner[there] == gone)], kept)
        nearer = there[found > best[there]]
        partner[nearer], best[nearer] = kept, gains[nearer, kept]
        partner[stale] = gains[stale].argmax(axis=1)
        best[stale] = gains[stale, partner[stale]]
    while (parent[parent] != parent).any():
        parent = parent[parent]
    return np.unique(parent, return_inverse=True)[1]


def _gains(weights: np.ndarray, constants: np.ndarray, counts: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """The log-likelihood of each pair of groups as one; groups of equal size are one matrix product."""
    found = np.empty((len(counts), len(counts)), np.float32)
    sizes = [(size, np.flatnonzero(counts == size)) for size in np.unique(counts).tolist()]
    for size, mine in sizes:
        for other, theirs in sizes:
            weight = weights[size + other]
            one, two = sums[mine], sums[theirs]
            pairs = 2 * (one * weight) @ two.T + constants[size + other]
            found[np.ix_(mine, theirs)] = pairs + (np.square(one) @ weight)[:, None] + np.square(two) @ weight
    return found


def moved(evidence: Evidence, rows: np.ndarray, labels: np.ndarray, steps: int) -> np.ndarray:
    """Labels after each row moved, some times, to the group that it makes most likely, or to one of its own."""
    for _ in range(steps):
        counts, sums = sums_of(rows, labels)
        new = np.empty_like(labels)
        for start in range(0, len(rows), _BLOCK):
            part = slice(start, start + _BLOCK)
            new[part] = _best(evidence, rows[part], labels[part], counts, sums, start + len(counts))
        if (new == labels).all():
            break
        labels = np.unique(new, return_inverse=True)[1]
    return labels


def _best(
    evidence: Evidence, rows: np.ndarray, labels: np.ndarray, counts: np.ndarray, sums: np.ndarray, free: int
) -> np.ndarray:
    """The best group of each row; numbers from ``free`` on are groups of their own."""
    odds = odds_of(evidence, rows, labels, counts, sums)
    best = odds.argmax(axis=1)
    stays = (odds.max(axis=1) >= 0) | (counts[labels] == 1)
    return np.where(stays, best, free + np.arange(len(rows)))


def odds_of(
    evidence: Evidence, rows: np.ndarray, labels: np.ndarray, counts: np.ndarray, sums: np.ndarray
) -> np.ndarray:
    """Log-odds that rows belong to each group against a group of their own, without what they add to their own."""
    odds = evidence.joining(rows, counts, sums)
    odds[np.arange(len(rows)), labels] = evidence.staying(rows, counts[labels], sums[labels])
    odds -= evidence.alone(rows)[:, None]
    return odds
