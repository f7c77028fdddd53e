"""Answers by a shortlist are those of the exact scores, and what is kept for it belongs to one state of a head."""

import copy
import gc
import weakref
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import numpy as np
import pytest

import taer
from taer.heads import exact
from taer.heads.closed_form.derived import Derived
from taer.heads.closed_form.directions import products_along
from taer.zoo.shared import gaussians, low_rank
from tests.conftest import blobs

NAMES = ["gauss-chain", "gauss-frozen", "factor-analyzer", "fecam", "rgda"]


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """fecam and rgda make their bounds at the first answer, as the others do."""
    monkeypatch.setattr(low_rank, "AFTER", 0)


def samples(n_classes, seed):
    X, y = blobs(n_classes, per_class=12, width=20, seed=seed)
    return X.astype(np.float32), y


@pytest.fixture(params=NAMES)
def head(request):
    head = taer.make_head(request.param, random_state=0)
    for first in (0, 4, 8):  # three blocks of gauss-chain
        X, y = samples(4, seed=first)
        head.partial_fit(X, y + first)
    X, y = samples(2, seed=1)
    return head.partial_fit(X, y)  # two of the first block come back


def by_scores(head, X):
    return head.classes_[head.scores(X).argmax(axis=1)]


@pytest.mark.parametrize("scale", [1e-20, 1e-3, 1.0, 100.0, 1e30])
def test_answers_are_those_of_the_exact_scores(head, scale):
    X = np.random.default_rng(2).normal(size=(200, 20)).astype(np.float32) * np.float32(scale)
    assert (head.predict(X) == by_scores(head, X)).all()
    assert (np.concatenate([head.predict(X[[row]]) for row in range(20)]) == by_scores(head, X[:20])).all()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("normalize", ["none", "l2"])
def test_equal_classes_are_left_to_the_exact_scores(name, normalize):
    """The same samples under two labels: every score is a tie, and the first of classes_ is the answer."""
    X, y = samples(5, seed=0)
    twice = np.concatenate([X, X]), np.concatenate([y + 5, y])
    head = taer.make_head(name, random_state=0, normalize=normalize).partial_fit(*twice)
    scores = head.scores(X)
    assert (scores[:, :5] == scores[:, 5:]).all()
    assert (head.predict(X) == scores[:, :5].argmax(axis=1)).all()


@pytest.mark.parametrize("name", NAMES)
def test_near_ties_are_left_to_the_exact_scores(name):
    """Classes whose scores differ by less than float32 can tell, in a head of float64."""
    X, y = blobs(5, per_class=12, width=20)
    near = X + 1e-9 * np.random.default_rng(1).normal(size=X.shape)
    head = taer.make_head(name, random_state=0).partial_fit(np.concatenate([X, near]), np.concatenate([y + 5, y]))
    found = by_scores(head, X)
    assert 0 < np.mean(found < 5) < 1
    assert (head.predict(X) == found).all()


def test_only_few_classes_are_left(head, monkeypatch):
    """Of rows that are no near ties nothing is scored exactly."""
    X = samples(4, seed=4)[0]
    head.predict(X)
    monkeypatch.setattr(type(head), "_scores", None)
    head.predict(X)


def test_what_is_kept_is_that_of_the_state_that_answers(head):
    X = np.random.default_rng(3).normal(size=(200, 20)).astype(np.float32)
    head.predict(X)
    before, copied = by_scores(head, X), copy.copy(head)
    more = samples(4, seed=40)
    head.partial_fit(more[0], more[1] + 40)
    assert (head.predict(X) == by_scores(head, X)).all()
    assert (head.predict(X) != before).any()
    assert (copied.predict(X) == before).all()
    head.forget(41)
    assert (head.predict(X) == by_scores(head, X)).all()
    assert 41 not in head.predict(X)


@pytest.mark.parametrize("per_class", [4, 30])  # few directions of a class are used, or all
@pytest.mark.parametrize("name", [*NAMES, "slda"])
def test_what_is_derived_goes_with_the_head(name, per_class):
    X, y = blobs(4, per_class, width=20)
    head = taer.make_head(name, random_state=0).partial_fit(X, y)
    head.predict(X)
    head._scores_with_novelty(X[:1])
    state = [weakref.ref(value) for value in head._state().values() if isinstance(value, np.ndarray)]
    assert all(each() is not None for each in state)
    del head
    gc.collect()
    assert all(each() is None for each in state)


@pytest.mark.parametrize("name", ["fecam", "rgda"])
def test_bounds_are_made_after_many_answers(name, monkeypatch):
    """Making them takes as long as many answers, so whoever asks once does not wait for it."""
    monkeypatch.setattr(low_rank, "AFTER", 2)
    X, y = samples(4, seed=0)
    head, made = taer.make_head(name).partial_fit(X, y), []
    make = type(head)._low_rank
    monkeypatch.setattr(type(head), "_low_rank", lambda head: made.append(1) or make(head))
    for answers in range(5):
        assert len(made) == (answers > 2)
        assert (head.predict(X) == by_scores(head, X)).all()


@pytest.mark.parametrize("name", ["fecam", "rgda"])
def test_bounds_hold_whatever_the_parameters_are_now(name):
    """Parameters may be set between two tasks; the stored matrices are those of the old ones."""
    X, y = samples(6, seed=0)
    head = taer.make_head(name).partial_fit(X, y)
    new = {"fecam": {"gamma1": 5.0, "gamma2": 0.0}, "rgda": {"own": 0.9, "shrinkage": 0.01}}[name]
    rows = np.random.default_rng(1).normal(size=(200, 20)).astype(np.float32)
    assert (head.set_params(**new).predict(rows) == by_scores(head, rows)).all()


@pytest.mark.parametrize("params", [{"own": 1.0, "shrinkage": 0.0}, {"own": 0.0}, {"shrinkage": 1.0}])
def test_rgda_at_the_ends_of_its_parameters(params):
    X, y = blobs(4, per_class=40, width=20)
    head = taer.zoo.RGDA(**params).partial_fit(X, y)
    assert (head.predict(X) == by_scores(head, X)).all()


@pytest.mark.parametrize("name", ["fecam", "rgda"])
def test_classes_of_one_sample_or_of_copies_of_it(name):
    X, y = samples(5, seed=0)
    X, y = np.concatenate([X, X[:1] + 3, X[1:2] - 3, X[1:2] - 3]), np.concatenate([y, [5, 6, 6]])
    head = taer.make_head(name).partial_fit(X, y)
    rows = np.random.default_rng(1).normal(size=(200, 20)).astype(np.float32)
    assert (head.predict(rows) == by_scores(head, rows)).all()


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("full", [0, 2, 6])
def test_empty_directions_are_left_out_of_the_products(dtype, full, monkeypatch):
    """Classes of few samples have few directions; the rest of their array is zero, and need not be multiplied."""
    rng, multiplied, product = np.random.default_rng(0), [], exact.products
    directions, rows = np.zeros((6, 10, 20), dtype), rng.normal(size=(5, 20))
    for number in range(6):
        used = 10 if number < full else number % 3
        directions[number, :used] = exact.rounded(rng.normal(size=(used, 20)).astype(dtype), np.float32)
    monkeypatch.setattr(
        exact, "products", lambda rows, columns: multiplied.append(len(columns)) or product(rows, columns)
    )
    for classes in ([0, 1, 2, 3, 4, 5], [0, 2, 1, 3, 4, 5], [5, 1, 4], [3], []):
        found = products_along(rows, directions, np.array(classes, np.int64), 6, Derived())
        np.testing.assert_allclose(
            found, np.einsum("nw,ckw->nck", rows, directions[classes], dtype=np.float64), atol=1e-5
        )
    assert multiplied[0] == directions.any(axis=2).sum()


def test_many_classes_in_small_parts_are_many(monkeypatch):
    """Scores are computed for some classes at a time, whatever the number of classes that are asked for."""
    X, y = blobs(20, 4, width=20)
    head = taer.zoo.GaussChain().fit(X, y)
    expected = head.scores(X)
    monkeypatch.setattr(gaussians, "_AT_ONCE", 1)
    np.testing.assert_array_equal(head.scores(X), expected)
    np.testing.assert_array_equal(head.scores(X, [7, 3]), expected[:, [7, 3]])


def test_nobody_waits_for_what_is_made_for_another_head():
    """Two threads that ask for the same wait for each other, so that it is made once."""
    array, head, other, going, made = np.zeros(1), Derived(), Derived(), Event(), []

    def make():
        made.append(1)
        going.wait(60)
        return [1]

    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(head.of, array, list, make) for _ in range(2)]
        assert other.of(array, list, lambda: [2]) == [2]
        assert not any(each.done() for each in asked)
        going.set()
        assert [each.result() for each in asked] == [[1], [1]]
    assert made == [1]
