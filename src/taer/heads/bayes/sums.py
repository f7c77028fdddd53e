"""The summaries of all classes, as sums that can be added and subtracted: for ``unlearn`` and ``merge``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from taer.heads.bayes.density import Summary, merged

_LEFT = 1e-9  # fraction of a count that may be rounding error
_ROUNDED = 1e-5  # fraction of squares that may be rounding error: means are stored in float32
_NOISE = 1e-5  # fraction of the largest eigenvalue that may be rounding error: directions are stored in integers


@dataclass(frozen=True)
class Summaries:
    """Counts, means and leading scatters of classes, by number. A summary is made when it is asked for."""

    labels: np.ndarray
    counts: np.ndarray
    means: np.ndarray
    each: tuple[Callable[[], Summary], ...]
    rank: int

    @classmethod
    def of(cls, labels: np.ndarray, known: list[Summary], rank: int) -> Summaries:
        counts = np.array([each.n for each in known], np.float64)
        return cls(
            labels, counts, np.array([each.mean for each in known]), tuple(_given(each) for each in known), rank
        )

    def __getitem__(self, label: int) -> Summary:
        return self.each[int(np.searchsorted(self.labels, label))]()

    def __add__(self, other: Summaries) -> Summaries:
        both = np.intersect1d(self.labels, other.labels).tolist()
        return self._with({label: merged(self[label], other[label], self.rank) for label in both}, other)

    def __sub__(self, other: Summaries) -> Summaries:
        left = {label: parted(self[label], other[label], self.rank) for label in other.labels.tolist()}
        kept = self.forget(*(label for label, summary in left.items() if summary is None))
        return kept._with({label: summary for label, summary in left.items() if summary is not None})

    def forget(self, *labels: int) -> Summaries:
        return self._at(np.flatnonzero(~np.isin(self.labels, labels)))

    def relabeled(self, labels: np.ndarray) -> Summaries:
        """The same classes under other labels, one for each of ``self.labels``."""
        return replace(self, labels=labels)._at(np.argsort(labels))

    def _at(self, places: np.ndarray) -> Summaries:
        each = tuple(self.each[place] for place in places.tolist())
        return replace(
            self, labels=self.labels[places], counts=self.counts[places], means=self.means[places], each=each
        )

    def _with(self, changed: dict[int, Summary], other: Summaries | None = None) -> Summaries:
        """With some summaries changed, and those of labels that only another one has."""
        both = [self] if other is None else [self, other.forget(*self.labels.tolist())]
        labels = np.concatenate([each.labels for each in both])
        counts, means = (np.concatenate([getattr(each, name) for each in both]) for name in ("counts", "means"))
        makers = [make for each in both for make in each.each]
        for label, summary in changed.items():
            place = int(np.flatnonzero(labels == label)[0])
            counts[place], means[place], makers[place] = summary.n, summary.mean, _given(summary)
        return replace(self, labels=labels, counts=counts, means=means, each=tuple(makers))._at(np.argsort(labels))


def _given(summary: Summary) -> Callable[[], Summary]:
    return lambda: summary


def parted(whole: Summary, part: Summary, rank: int) -> Summary | None:
    """The summary of the samples that are not in ``part``; None if there are none."""
    n = whole.n - part.n
    if n < -_LEFT * whole.n:
        raise ValueError("more samples are taken away than there are")
    if n <= _LEFT * whole.n:
        return None
    mean = whole.mean + part.n / n * (whole.mean - part.mean)
    between = np.sqrt(n * part.n / whole.n) * (mean - part.mean)
    trace = whole.trace - part.trace - float(between @ between)
    if trace < -_ROUNDED * (whole.trace + whole.n * float(whole.mean @ whole.mean)):
        raise ValueError("what is taken away is not part of what there is: a variance would be negative")
    rows = np.concatenate([whole.root, part.root, between[None]])
    signs = np.repeat([1.0, -1.0], [len(whole.root), len(part.root) + 1])
    basis, small = np.linalg.qr(rows.T)
    spectrum, vectors = np.linalg.eigh((small * signs) @ small.T)
    left = np.flatnonzero(spectrum > _NOISE * max(float(np.square(whole.root).sum(axis=1).max(initial=0)), 1e-30))
    left = left[-min(rank, max(int(np.ceil(n)) - 1, 0)) :] if n > 1 else left[:0]
    root = np.sqrt(spectrum[left])[:, None] * (basis @ vectors[:, left]).T
    return Summary(n, mean, root, max(trace, float(np.square(root).sum())))
