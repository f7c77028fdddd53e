"""Streams without clear tasks: classes that return, batches without boundaries, few samples of most classes.

Each gives the training samples of every session. A class belongs to the session in which it is first seen, and every
session brings at least one new class, so that metrics per task are defined as on any other stream.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from taer.features import FeatureSet
from taer.stream import Stream, class_order, sample_stream

BATCH = 10  # samples that arrive at once, on streams without boundaries
BLURRED = (50, 10)  # percent: classes that stay in one session, and samples of the others that do not
RATIO = 100  # of the most and the least frequent class of a long-tailed stream


def make_stream(
    features: FeatureSet, kind: str, sessions: int = 10, order: int | str | Sequence[int] = 0, seed: int = 0
) -> Stream:
    """A stream of one of these kinds.

    Parameters
    ----------
    features : FeatureSet
    kind : {'online', 'blurry', 'si-blurry', 'recurring', 'long-tailed', 'long-tailed-ordered'}
        ``online``: sessions of disjoint classes. ``blurry`` (i-Blurry, Koh et al., 2022): half of the classes stay in one
        session; of the samples of the others, a tenth is spread over all sessions. Other percentages are part of the name:
        ``blurry-30-20``. ``si-blurry`` (Moon et al., 2023): the same, but sessions have random numbers of new classes and
        of spread samples. On these three, samples come once, in batches of 10, and the boundaries between sessions are not
        marked. ``recurring``: half of the samples of a class come in its own session, the others in equal parts in all
        later ones. ``long-tailed``: the number of samples of a class decreases exponentially to a hundredth (to one, of
        fewer than 100), in random order; ``long-tailed-ordered``: the frequent classes come first (Liu et al., 2022).
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
    name, sessions_of = _named(kind)
    if sessions < 1:
        raise ValueError(f"a stream needs at least one session, got {sessions}")
    arriving, labels = class_order(order, len(features.classes)), np.asarray(features.train_y)
    if sessions > len(arriving):
        raise ValueError(f"{len(arriving)} classes are too few for {sessions} sessions, each with a new class")
    rng = np.random.default_rng([seed, 32])
    rows = [rng.permutation(session).tolist() for session in sessions_of(arriving, labels, sessions, rng)]
    unmarked = name == "online" or "blurry" in name
    return sample_stream(features, rows, kind=name, batch=BATCH if unmarked else None, order=arriving)


def _named(kind: str) -> tuple[str, Callable[..., list[np.ndarray]]]:
    """The whole name of a kind, with its percentages, and what makes its sessions."""
    if match := re.fullmatch(r"(blurry|si-blurry)(?:-([0-9]{1,3})-([0-9]{1,3}))?", kind):
        name, *given = match.groups()
        disjoint, blurred = BLURRED if given[0] is None else (int(given[0]), int(given[1]))
        if not 1 <= disjoint <= 100 or blurred > 100:
            raise ValueError(
                f"{kind}: expected {name}-N-M with 1 … 100 percent of classes that stay in one session (N) and 0 … 100 "
                "percent of the samples of the others that do not (M)"
            )
        return f"{name}-{disjoint}-{blurred}", partial(KINDS[name], disjoint, blurred)
    if kind not in KINDS:
        raise ValueError(f"unknown stream {kind!r}; there are {', '.join(KINDS)}, blurry-N-M and si-blurry-N-M")
    return kind, KINDS[kind]


def _groups(arriving: Sequence[int], sessions: int) -> list[list[int]]:
    return [part.tolist() for part in np.array_split(np.array(arriving), sessions)]


def _samples(labels: np.ndarray, classes: Sequence[int] | np.ndarray) -> np.ndarray:
    return np.flatnonzero(np.isin(labels, classes))


def _online(arriving: list[int], labels: np.ndarray, sessions: int, rng: np.random.Generator) -> list[np.ndarray]:
    return [_samples(labels, group) for group in _groups(arriving, sessions)]


def _blurry(
    disjoint: int, blurred: int, arriving: list[int], labels: np.ndarray, sessions: int, rng: np.random.Generator
) -> list[np.ndarray]:
    still, others = _divided(disjoint, arriving, sessions)
    own, home = _rows_of(labels, _groups(still, sessions)), _rows_of(labels, _groups(others, sessions))
    leaving = [len(rows) * blurred // 100 for rows in home]
    coming = [len(part) for part in np.array_split(np.arange(sum(leaving)), sessions)]
    return _exchanged(own, home, leaving, coming, rng)


def _si_blurry(
    disjoint: int, blurred: int, arriving: list[int], labels: np.ndarray, sessions: int, rng: np.random.Generator
) -> list[np.ndarray]:
    """As the authors' sampler: classes of both sorts are cut at random, and as many samples leave a session as come."""
    still, others = _divided(disjoint, arriving, sessions)
    cuts = np.sort(rng.choice(np.arange(1, len(still)), sessions - 1, replace=False))  # at least one class each
    own = _rows_of(labels, np.split(np.array(still), cuts))
    cuts = np.sort(rng.integers(0, len(others) + 1, sessions - 1))
    home = _rows_of(labels, np.split(np.array(others, np.int64), cuts))
    spread = sum(map(len, home)) * blurred // 100
    ends = np.concatenate([[0], np.sort(rng.integers(0, spread + 1, sessions - 1)), [spread]])
    coming = np.diff(ends).tolist()
    leaving = [min(number, len(rows)) for number, rows in zip(coming, home, strict=True)]
    return _exchanged(own, home, leaving, coming, rng)


def _divided(disjoint: int, arriving: list[int], sessions: int) -> tuple[list[int], list[int]]:
    """Classes that stay in one session, a multiple of the number of sessions, and the others."""
    number = len(arriving) * disjoint // 100
    if number < sessions:
        raise ValueError(
            f"{disjoint} % of the {len(arriving)} classes are too few for {sessions} sessions of a blurry stream, each "
            f"with a class of its own; take at most {number} sessions"
        )
    number = number // sessions * sessions
    return arriving[:number], arriving[number:]


def _rows_of(labels: np.ndarray, groups: Sequence[Sequence[int] | np.ndarray]) -> list[np.ndarray]:
    return [_samples(labels, group) for group in groups]


def _exchanged(
    own: list[np.ndarray],
    home: list[np.ndarray],
    leaving: list[int],
    coming: list[int],
    rng: np.random.Generator,
) -> list[np.ndarray]:
    """Sessions of which some samples ``leave`` their home; these are mixed, and some of them ``come`` to each session."""
    mixed = [rng.permutation(rows) for rows in home]
    pool = rng.permutation(np.concatenate([rows[:number] for rows, number in zip(mixed, leaving, strict=True)]))
    parts = np.split(pool, np.cumsum(coming)[:-1])
    return [
        np.concatenate([still, rows[number:], part])
        for still, rows, number, part in zip(own, mixed, leaving, parts, strict=True)
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


KINDS: dict[str, Callable[..., list[np.ndarray]]] = {
    "online": _online,
    "blurry": _blurry,
    "si-blurry": _si_blurry,
    "recurring": _recurring,
    "long-tailed": _long_tailed,
    "long-tailed-ordered": _long_tailed_ordered,
}
