"""Protocols and class orders."""

from __future__ import annotations

import json

import numpy as np
import pytest

from taer.experiment import Run, execute
from taer.stream import class_order, class_stream


@pytest.mark.parametrize(
    ("order", "n", "start"),
    [
        (0, 10, "4 1 7 5 3 9 0 8 6 2"),
        (0, 100, "44 19 93 90 71 69 37 95 53 91"),
        (1, 100, "45 15 90 32 35 63 17 72 79 96"),
        (2, 100, "48 97 1 81 90 49 10 8 7 20"),
        ("1993", 100, "68 56 78 8 23 84 90 65 74 76"),
        ("icarl", 100, "87 0 52 58 44 91 68 97 51 15"),
    ],
)
def test_published_orders(order, n, start):
    found = class_order(order, n)
    assert found[:10] == [int(word) for word in start.split()]
    assert sorted(found) == list(range(n))


@pytest.mark.parametrize("seed", [0, 1, 7, 12345])
@pytest.mark.parametrize("n", [2, 10, 100, 200])
def test_torch_orders_are_torchs(seed, n):
    torch = pytest.importorskip("torch")
    torch.manual_seed(seed)
    assert class_order(seed, n) == torch.randperm(n).tolist()


def test_equal_tasks_cover_everything_once(features):
    stream = class_stream(features, tasks=5)
    assert [len(task) for task in stream.tasks] == [2] * 5
    assert sorted(stream.order) == list(range(10))
    tasks = list(stream)
    assert sum(len(task.X_train) for task in tasks) == len(features.train_y)
    assert sum(len(task.X_test) for task in tasks) == len(features.test_y)
    for task in tasks:
        assert set(task.y_train) == set(task.y_test) == set(task.classes)
        rows = np.flatnonzero(np.isin(features.train_y, task.classes))
        np.testing.assert_array_equal(task.X_train, features.train_x[rows])


def test_orders_of_numpy(features):
    order = np.random.default_rng(0).permutation(10)
    stream = class_stream(features, tasks=5, order=order)
    assert stream == class_stream(features, tasks=5, order=order.tolist())
    result = execute(Run(stream, "ncm", {"normalize": np.str_("none")}, seed=np.int64(1)))
    assert json.loads(json.dumps(result))["seed"] == 1


def test_half_of_the_classes_first(features):
    stream = class_stream(features, first=4, tasks=3, order=list(range(10)))
    assert stream.tasks == ((0, 1, 2, 3), (4, 5), (6, 7), (8, 9))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tasks": 3}, "10 classes do not divide into 3 equal tasks"),
        ({"tasks": 0}, "at least one task"),
        ({"tasks": 4, "first": 5}, "the 5 remaining classes do not divide into 4"),
        ({"first": 10, "tasks": 1}, "first task must have 1 … 9"),
        ({"first": 0, "tasks": 1}, "first task must have 1 … 9"),
        ({"order": "icarl"}, "each of 0 … 9 once"),
        ({"order": "alphabetical"}, "unknown class order"),
        ({"order": [0, 1, 2]}, "each of 0 … 9 once"),
        ({"order": [0] * 10}, "each of 0 … 9 once"),
    ],
)
def test_impossible_streams_are_refused(features, arguments, message):
    with pytest.raises(ValueError, match=message):
        class_stream(features, **arguments)
