"""Samples that belong to no known class, in groups: proposals of new classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.special import betainc, softmax

from taer.heads.bayes.constants import SHRINKAGES
from taer.loop.evidence import (
    SEARCHED,
    Evidence,
    coordinates,
    evenly,
    in_order,
    merged,
    moved,
    odds_of,
    sums_of,
)
from taer.loop.words import telling_words

LEAST = 4  # distinct samples of a proposal
_MISTAKEN = 0.05  # estimated share of known samples among those of new groups, at most
_LIMITS = (0.5, 0.4, 0.3, 0.2, 0.15, 0.1, 0.05, 0.02)  # candidates: up to which probability a group is new
_STEPS = 5  # in which samples move between groups
_TYPICAL = 3
_SCATTERED = 1.5  # scatter of a group in units of that of a class, from which on it is no class
_ASKED = 200  # classes whose scatter and novelty is looked at: for time
_FITTED = 0.35  # part of the squared length of a sample that the prior owes to it, at most; 0.31 was the most seen
_REFINED = 3  # steps of k-means after the groups are found
_COPY = 0.1  # squared distance of near-duplicates, as a fraction of that of two samples of a class


@dataclass(frozen=True)
class Group:
    """Samples that look like one new class."""

    rows: np.ndarray  # their row numbers, the most typical first
    typical: np.ndarray  # at most three of these rows, no two of them near-duplicates
    distinct: int  # samples without near-duplicates of others
    sure: float  # mean probability that a sample of the group belongs there, not to another group or to none
    words: tuple[str, ...] = ()  # that set it apart, if the texts were given

    @property
    def size(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class Discovery:
    """What is new in some samples."""

    labels: (
        np.ndarray
    )  # number of the group of each row; -1 for known classes, and for rows that belong to no group
    groups: list[Group]  # the largest first
    known: np.ndarray  # whether each row is taken as one of a known class
    too_few: int  # rows that look new, in groups of too few distinct samples
    scattered: int  # and in groups that are more scattered than a class


def discover(head: Any, X: Any, texts: Sequence[str] | None = None) -> Discovery:
    """Groups of samples that belong to no class of a ``bayes`` head. The number of groups is found.

    Groups are merged for as long as the prior of the head says that one class is more likely than two. A group is
    proposed if it has at least four distinct samples, scatters hardly more than unseen samples of a class, and is more
    novel than as many samples of a known class would be.
    """
    novelty = head.novelty(X)
    if texts is not None and len(texts) != len(novelty):
        raise ValueError(f"expected one text per sample, got {len(novelty)} samples and {len(texts)} texts")
    rows, place = in_order(head, X)
    first = np.unique(place, return_index=True)[1]  # a row of X for each distinct one
    points, evidence = coordinates(head, rows)
    labels = refined(evidence, points, partition(evidence, points))
    counts, sums = sums_of(points, labels)
    members = np.split(np.argsort(labels, kind="stable"), np.cumsum(counts)[:-1])
    is_new = _new(head, np.array([np.median(novelty[first[each]]) for each in members]), counts)
    weights, widest = _class_weights(head), _SCATTERED * class_scatter(head)
    wide, found = np.zeros(len(counts), bool), []
    for number in np.flatnonzero(is_new & (counts >= LEAST)).tolist():
        wide[number] = np.var(points[members[number], : len(weights)], axis=0, ddof=1) @ weights > widest
        if wide[number]:
            continue
        group = _group(evidence, rows, points, labels, members[number], (counts, sums))
        if group.distinct >= LEAST:
            found.append(group)
    discovery = _assembled(found, place, ~is_new[labels], wide[labels])
    return discovery if texts is None else _with_words(discovery, texts)


def _with_words(found: Discovery, texts: Sequence[str]) -> Discovery:
    members = [[texts[row] for row in group.rows.tolist()] for group in found.groups]
    words = telling_words(members, [texts[row] for row in np.flatnonzero(found.labels < 0).tolist()])
    groups = [replace(group, words=tuple(own)) for group, own in zip(found.groups, words, strict=True)]
    return replace(found, groups=groups)


def _new(head: Any, novelty: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Which groups are new, from the median novelty of each and the number of its samples.

    The limit is the highest probability below which few of the samples are of known classes. Half of the groups of known
    classes are above one half, so twice as many samples as are there are known (Storey's estimate of the share of true
    nulls).
    """
    if not (head.novelties_.tried > 0).any():  # every class has one sample, so no novelty was ever measured
        return np.asarray(novelty > 0)  # a class without samples is likelier than the best one
    chance, share = _if_known(head, novelty, counts), counts / counts.sum()
    known = min(1.0, 2 * float(share[chance > 0.5].sum()))
    limits = [each for each in _LIMITS if known * each <= _MISTAKEN * share[chance <= each].sum()]
    return np.asarray(chance <= (limits or _LIMITS[-1:])[0])


def _if_known(head: Any, novelty: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The probability that as many samples of a known class have at least this median novelty: the mean over classes.

    Of n numbers below each of which a sample is with the probability F, the median is below with the probability I(F) of
    the beta distribution with (n + 1) / 2 twice.
    """
    tried = np.flatnonzero(head.novelties_.tried > 0)
    quantiles = head.novelties_.novelties[tried[evenly(len(tried), _ASKED)]].astype(np.float64)
    at = (np.arange(quantiles.shape[1]) + 0.5) / quantiles.shape[1]
    half = (counts + 1) / 2
    below = [betainc(half, half, np.interp(novelty, each, at, left=0, right=1)) for each in quantiles]
    found: np.ndarray = 1 - np.mean(below, axis=0)
    return found


def partition(evidence: Evidence, points: np.ndarray) -> np.ndarray:
    """The group of each point. Of many points, some are grouped; the others join these groups, or are grouped next."""
    labels, left, n_groups = np.full(len(points), -1), np.arange(len(points)), 0
    while len(left):
        some = left[evenly(len(left), SEARCHED)]
        found = merged(evidence, np.ones(len(some), np.int64), points[some])
        labels[some] = n_groups + found
        n_groups += int(found.max()) + 1
        left = left[labels[left] < 0]
        if len(left):
            left = _join(evidence, points, labels, left)
    if len(points) > SEARCHED:
        labels = merged(evidence, *sums_of(points, labels))[labels]
    return moved(evidence, points, labels, _STEPS)


def _join(evidence: Evidence, points: np.ndarray, labels: np.ndarray, left: np.ndarray) -> np.ndarray:
    """Set the labels of points that fit a group of two or more; returns the others."""
    counts, sums = sums_of(points[labels >= 0], labels[labels >= 0])
    large = np.flatnonzero(counts > 1)
    if not len(large):
        return left
    for start in range(0, len(left), 512):
        part = left[start : start + 512]
        odds = evidence.joining(points[part], counts[large], sums[large]) - evidence.alone(points[part])[:, None]
        fits = odds.max(axis=1) > 0
        labels[part[fits]] = large[odds.argmax(axis=1)[fits]]
    return left[labels[left] < 0]


def refined(evidence: Evidence, points: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Labels after some steps of k-means among the points of groups that are large enough to be proposed.

    The search for groups moves a sample only if that is more likely; the nearest mean is right more often.
    """
    scaled = points * np.sqrt(evidence.psi / (1 + evidence.psi))
    for _ in range(_REFINED):
        labels = np.unique(labels, return_inverse=True)[1]
        counts, sums = sums_of(scaled, labels)
        large = np.flatnonzero(counts >= LEAST)
        if not len(large):
            break
        means = sums[large] / counts[large, None]
        inside = np.flatnonzero(counts[labels] >= LEAST)
        for start in range(0, len(inside), 512):
            part = inside[start : start + 512]
            labels[part] = large[(np.square(means).sum(axis=1) - 2 * scaled[part] @ means.T).argmin(axis=1)]
    return np.unique(labels, return_inverse=True)[1]


def _class_weights(head: Any) -> np.ndarray:
    """By direction of class means, how much the scatter along it counts: most where classes differ. The sum is one."""
    psi = head.prior_.spread.psi
    weights: np.ndarray = psi / (1 + psi)
    return weights / max(float(weights.sum()), 1e-300)


def class_scatter(head: Any) -> float:
    """The variance of a class along the directions of class means, as samples have it that the head has not seen.

    The prior follows the samples of the first task, which therefore scatter less than others. Without sample i, its squared
    length would be ``1 / (1 - h)²`` times as large, where h is the part of it that is due to the sample itself: as in
    generalized cross-validation. Samples of later tasks have no part in the prior.
    """
    directions, weights, width = head.prior_.spread.directions, _class_weights(head), head.n_features_in_
    counts, traces = head.densities_.counts, head.densities_.traces
    last = getattr(head, "prior_task_", 1)
    first = np.array([learned.task <= last for learned in head.learning_order_])
    pseudo = min(getattr(head, "n_unlabeled_", 0.0), width)
    free = float((counts - 1)[first].sum()) + pseudo  # degrees of freedom
    share = 1 - max(
        SHRINKAGES[0], 2 * width / (2 * width + counts[first].sum() + pseudo)
    )  # of samples, in the prior
    fitted = min(share * traces[first].sum() / max(free, 1) ** 2, _FITTED)
    total, freedom = 0.0, 0.0
    for number in np.flatnonzero(counts > 1)[evenly(int((counts > 1).sum()), _ASKED)].tolist():
        known = head.densities_.summary(number, head.prior_.nu, head.prior_.spread)
        left = max(known.trace - np.square(known.root).sum(), 0) / max(width - len(known.root), 1)
        found = (np.square(known.root @ directions.T).sum(axis=0) + left) @ weights
        total += float(found) / (1 - fitted * first[number]) ** 2
        freedom += known.n - 1
    return total / freedom if freedom else np.inf


def _group(
    evidence: Evidence,
    rows: np.ndarray,
    points: np.ndarray,
    labels: np.ndarray,
    members: np.ndarray,
    groups: tuple[np.ndarray, np.ndarray],
) -> Group:
    """A group by its distinct rows."""
    odds = odds_of(evidence, points[members], labels[members], *groups)
    sure = softmax(np.column_stack([odds, np.zeros(len(members))]), axis=1)[:, labels[members[0]]]
    center = rows[members].mean(axis=0)
    order = np.argsort(np.square(rows[members] - center).sum(axis=1), kind="stable")
    members, inner = members[order], rows[members[order]]
    kept: list[int] = []  # places of members that are no near-duplicates of an earlier one
    for at in range(len(members)):
        apart = np.square(inner[kept] - inner[at]).sum(axis=1)
        if not (apart < _COPY * 2 * rows.shape[1]).any():
            kept.append(at)
    return Group(members, members[kept[:_TYPICAL]], len(kept), float(sure.mean()))


def _assembled(found: list[Group], place: np.ndarray, known: np.ndarray, wide: np.ndarray) -> Discovery:
    """The discovery in rows of ``X``, from groups of distinct rows, and whether each is in one that is too scattered."""
    order = np.argsort(place, kind="stable")
    starts = np.searchsorted(place[order], np.arange(len(known) + 1))
    copies = [order[start:end] for start, end in pairwise(starts)]
    groups = [
        Group(
            np.concatenate([copies[row] for row in group.rows]),
            np.array([copies[row][0] for row in group.typical]),
            group.distinct,
            group.sure,
        )
        for group in found
    ]
    groups.sort(key=lambda group: -group.size)
    labels = np.full(len(place), -1)
    for number, group in enumerate(groups):
        labels[group.rows] = number
    scattered = int(wide[place].sum())
    too_few = int((labels < 0).sum() - known[place].sum()) - scattered
    return Discovery(labels, groups, known[place], too_few, scattered)
