"""Heads that cannot use few samples warn."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import taer
from taer.experiment import Run, execute
from taer.heads.few import FewSamplesWarning
from taer.stream import class_stream
from tests.conftest import blobs, small_head

COLLAPSING = [name for name, head in taer.HEADS.items() if not head.card.few_shot]


def some(X, y, **counts):
    """The first samples of classes: c3=5 gives five of class 3."""
    rows = np.concatenate([np.flatnonzero(y == int(name[1:]))[:n] for name, n in counts.items()])
    return X[rows], y[rows]


@pytest.fixture
def X_y():
    return blobs(8, 100)


@pytest.mark.parametrize("name", COLLAPSING)
def test_a_class_of_few_samples_beside_classes_of_many_is_warned_of(name, X_y):
    head = small_head(name, random_state=0).partial_fit(*some(*X_y, c0=60, c1=60, c2=60))
    with pytest.warns(FewSamplesWarning, match=rf"^{name}: new classes have fewer than 20 samples") as seen:
        head.partial_fit(*some(*X_y, c3=5, c4=1, c5=40))
    details = f"{name}: 2 new classes have fewer than 20 samples (3: 5, 4: 1) beside known classes of 60; "
    assert seen[0].message.details.startswith(details)
    assert seen[0].filename == __file__  # where the user called
    assert head.classes_.tolist() == [0, 1, 2, 3, 4, 5]  # it is learned all the same


def test_a_loop_is_warned_once(X_y):
    X, y = some(*X_y, c0=60, c1=60, c2=1, c3=2, c4=3, c5=4)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        head = taer.make_head("slda").partial_fit(X[:120], y[:120])
        for start in range(120, 130):
            head.partial_fit(X[start : start + 1], y[start : start + 1])
    assert len(seen) == 1
    assert "Give more samples" in str(seen[0].message)


@pytest.mark.parametrize(
    ("first", "later"),
    [
        ({"c0": 60, "c1": 60}, {"c2": 20}),  # enough
        ({"c0": 12, "c1": 12}, {"c2": 6}),  # known classes have few, too
        ({"c0": 60, "c1": 5}, {"c1": 5}),  # a class that returns
        ({"c0": 60, "c1": 5}, {}),  # the first task
    ],
)
def test_nothing_is_said_otherwise(first, later, X_y):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        head = taer.zoo.GaussFrozen().partial_fit(*some(*X_y, **first))
        if later:
            head.partial_fit(*some(*X_y, **later))


@pytest.mark.parametrize("name", [name for name in taer.HEADS if name not in COLLAPSING])
def test_heads_for_few_samples_say_nothing(name, X_y):
    head = small_head(name, random_state=0).partial_fit(*some(*X_y, c0=60, c1=60))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        head.partial_fit(*some(*X_y, c2=5))


def test_an_experiment_that_asks_for_few_samples_is_not_warned(features):
    stream = class_stream(features, first=4, tasks=3, order="natural", shots=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        execute(Run(stream, "gauss-frozen"))
