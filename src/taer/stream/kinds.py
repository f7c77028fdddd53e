"""Streams without clear tasks: classes that return, batches without boundaries, few samples of most classes.

Each gives the training samples of every session. A class belongs to the session in which it is first seen, and every
session brings at least one new class, so that metrics per task are defined as on any other stream.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from taer.features import FeatureSet
from taer.stream import Stream, class_order, sample_stream

BATCH = 10  # samples of an online stream that arrive at once
DISJOINT, BLURRED = 50, 10  # percent: classes that stay in one session, and samples of the others that do not
RATIO = 100  # of the most and the least frequent class of a long-tailed stream


def make_stream(
    features: FeatureSet, kind: str, sessions: int = 10, order: int | str | Sequence[int] = 0, seed: int = 0
) -> Stream:
    """A stream of one of these kinds.

    Parameters
    ----------
    features : FeatureSet
    kind : {'online', 'blurry', 'si-blurry', 'recurring', 'long-tailed', 'long-tailed-ordered'}
        ``online``: sessions of disjoint classes, in batches of 10 samples that are seen once; the boundaries between
        sessions are not marked. ``blurry`` (i-Blurry-50-10, Koh et al., 2022): half of the classes stay in one session;
        of the samples of the others, a tenth is spread over all sessions. ``si-blurry`` (Moon et al., 2023): the same, but
        sessions have random numbers of new classes and of spread samples. ``recurring``: half of the samples of a class
        come in its own session, the others in equal parts in all later ones. ``long-tailed``: the number of samples of
        a class decreases exponentially to a hundredth, in random order; ``long-tailed-ordered``: the frequent classes
        come first (Liu et al., 2022).
    sessions : int
        Number of sessions.
    order : int, str or sequence of int
        As in :func:`taer.class_stream`.
    seed : int
        Random seed for the samples of each session.

    Examples
    --------
    >>> import taer
    >>> stream = taer.make_stream(taer.load_features(), "recurring", sessions=5)
    >>> [len(new) for new in stream.tasks], [len(stream.classes_of(t)) for t in range(5)]
    ([20, 20, 20, 20, 20], [20, 40, 60, 80, 100])
    """
    if kind not in KINDS:
        raise ValueError(f"unknown stream {kind!r}; there are {', '.join(KINDS)}")
    if sessions < 1:
        raise ValueError(f"a stream needs at least one session, got {sessions}")
    arriving, labels = class_order(order, len(features.classes)), np.asarray(features.train_y)
    if sessions > len(arriving):
        raise ValueError(f"{len(arriving)} classes are too few for {sessions} sessions, each with a new class")
    rng = np.random.default_rng([seed, 32])
    rows = [rng.permutation(session).tolist() for session in KINDS[kind](arriving, labels, sessions, rng)]
    return sample_stream(features, rows, kind=kind, batch=BATCH if kind == "online" else None, order=arriving)


def _groups(arriving: Sequence[int], sessions: int) -> list[list[int]]:
    return [part.tolist() for part in np.array_split(np.array(arriving), sessions)]


def _samples(labels: np.ndarray, classes: Sequence[int]) -> np.ndarray:
    return np.flatnonzero(np.isin(labels, classes))


def _online(arriving: list[int], labels: np.ndarray, sessions: int, rng: np.random.Generator) -> list[np.ndarray]:
    return [_samples(labels, group) for group in _groups(arriving, sessions)]


def _blurry(arriving: list[int], labels: np.ndarray, sessions: int, rng: np.random.Generator) -> list[np.ndarray]:
    disjoint, blurry = _divided(arriving, sessions)
    return _blurred(labels, _groups(disjoint, sessions), _groups(blurry, sessions), [1 / sessions] * sessions, rng)


def _si_blurry(
    arriving: list[int], labels: np.ndarray, sessions: int, rng: np.random.Generator
) -> list[np.ndarray]:
    disjoint, blurry = _divided(arriving, sessions)
    cuts = np.sort(rng.choice(np.arange(1, len(disjoint)), sessions - 1, replace=False))  # at least one class each
    slices = [part.tolist() for part in np.split(np.array(disjoint), cuts)]
    shares = np.diff(np.concatenate([[0.0], np.sort(rng.random(sessions - 1)), [1.0]]))
    return _blurred(labels, slices, _groups(blurry, sessions), shares.tolist(), rng)


def _divided(arriving: list[int], sessions: int) -> tuple[list[int], list[int]]:
    """Classes that stay in one session, the same number in each, and the others."""
    number = len(arriving) * DISJOINT // 100 // sessions * sessions
    if not number:
        raise ValueError(
            f"half of the {len(arriving)} classes are too few for {sessions} sessions of a blurry stream, each with a "
            f"class of its own; take at most {len(arriving) * DISJOINT // 100} sessions"
        )
    return arriving[:number], arriving[number:]


def _blurred(
    labels: np.ndarray,
    disjoint: list[list[int]],
    blurry: list[list[int]],
    shares: list[float],
    rng: np.random.Generator,
) -> list[np.ndarray]:
    """Samples of disjoint classes where these are, and of blurry ones too, except for those that are spread by share."""
    own, spread = [], []
    for group in blurry:
        for label in group:
            rows = rng.permutation(_samples(labels, [label]))
            leaving = len(rows) * BLURRED // 100
            spread.append(rows[:leaving])
        own.append(_samples(labels, group))
    leaving_rows = rng.permutation(np.concatenate([*spread, np.empty(0, np.int64)]).astype(np.int64))
    ends = np.round(np.cumsum(shares) * len(leaving_rows)).astype(int)[:-1]
    parts = np.split(leaving_rows, ends)
    return [
        np.concatenate([_samples(labels, still), np.setdiff1d(home, leaving_rows), part])
        for still, home, part in zip(disjoint, own, parts, strict=True)
    ]


def _recurring(
    arriving: list[int], labels: np.ndarray, sessions: int, rng: np.random.Generator
) -> list[np.ndarray]:
    found: list[list[np.ndarray]] = [[] for _ in range(sessions)]
    for t, group in enumerate(_groups(arriving, sessions)):
        for label in group:
            rows = rng.permutation(_samples(labels, [label]))
            first = len(rows) if t + 1 == sessions else -(-len(rows) // 2)
            found[t].append(rows[:first])
            later = np.array_split(rows[first:], sessions - t - 1) if t + 1 < sessions else []
            for s, part in enumerate(later, t + 1):
                found[s].append(part)
    return [np.concatenate(session) for session in found]


def _long_tailed(
    arriving: list[int], labels: np.ndarray, sessions: int, rng: np.random.Generator
) -> list[np.ndarray]:
    return _tail(rng.permutation(arriving).tolist(), arriving, labels, sessions, rng)


def _long_tailed_ordered(
    arriving: list[int], labels: np.ndarray, sessions: int, rng: np.random.Generator
) -> list[np.ndarray]:
    return _tail(arriving, arriving, labels, sessions, rng)


def _tail(
    by_frequency: list[int], arriving: list[int], labels: np.ndarray, sessions: int, rng: np.random.Generator
) -> list[np.ndarray]:
    counts = np.bincount(labels, minlength=len(arriving))
    most = counts[counts > 0].min()  # so that the ratio is that of the samples, whatever each class has
    kept = {}
    for place, label in enumerate(by_frequency):
        number = max(1, round(most * RATIO ** (-place / max(1, len(by_frequency) - 1))))
        kept[label] = rng.permutation(_samples(labels, [label]))[:number]
    return [np.concatenate([kept[label] for label in group]) for group in _groups(arriving, sessions)]


KINDS: dict[str, Callable[[list[int], np.ndarray, int, np.random.Generator], list[np.ndarray]]] = {
    "online": _online,
    "blurry": _blurry,
    "si-blurry": _si_blurry,
    "recurring": _recurring,
    "long-tailed": _long_tailed,
    "long-tailed-ordered": _long_tailed_ordered,
}
