"""The class summaries of ``bayes``, as sums that can be added and subtracted."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from taer.heads.closed_form.predictive import Summary, merged

_LEFT = 1e-9  # fraction of a count or a trace that may be rounding error
_NOISE = 1e-6  # fraction of the largest eigenvalue that may be rounding error: roots are stored in float32


@dataclass(frozen=True)
class Summaries:
    """Counts, means and leading scatters of classes, by number; exact for scatters of at most ``rank``."""

    labels: np.ndarray
    each: tuple[Summary, ...]
    rank: int

    @property
    def counts(self) -> np.ndarray:
        return np.array([known.n for known in self.each], np.float64)

    @property
    def means(self) -> np.ndarray:
        return np.array([known.mean for known in self.each])

    def __add__(self, other: Summaries) -> Summaries:
        found = dict(zip(self.labels.tolist(), self.each, strict=True))
        for label, added in zip(other.labels.tolist(), other.each, strict=True):
            found[label] = merged(found[label], added, self.rank) if label in found else added
        return self._of(found)

    def __sub__(self, other: Summaries) -> Summaries:
        found = dict(zip(self.labels.tolist(), self.each, strict=True))
        for label, taken in zip(other.labels.tolist(), other.each, strict=True):
            left = parted(found.pop(label), taken, self.rank)
            if left is not None:
                found[label] = left
        return self._of(found)

    def forget(self, label: int) -> Summaries:
        found = dict(zip(self.labels.tolist(), self.each, strict=True))
        del found[label]
        return self._of(found)

    def relabeled(self, labels: np.ndarray) -> Summaries:
        """The same classes under other labels, one for each of ``self.labels``."""
        return self._of(dict(zip(labels.tolist(), self.each, strict=True)))

    def _of(self, found: dict[int, Summary]) -> Summaries:
        order = sorted(found)
        return replace(self, labels=np.array(order, np.int64), each=tuple(found[label] for label in order))


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
    if trace < -_LEFT * (whole.trace + whole.n * float(whole.mean @ whole.mean)):
        raise ValueError("what is taken away is not part of what there is: a variance would be negative")
    rows = np.concatenate([whole.root, part.root, between[None]])
    signs = np.repeat([1.0, -1.0], [len(whole.root), len(part.root) + 1])
    basis, small = np.linalg.qr(rows.T)
    spectrum, vectors = np.linalg.eigh((small * signs) @ small.T)
    kept = np.flatnonzero(spectrum > _NOISE * max(float(spectrum[-1]), 1e-30))[-rank:]
    root = np.sqrt(spectrum[kept])[:, None] * (basis @ vectors[:, kept]).T
    return Summary(n, mean, root, max(trace, 0.0))
