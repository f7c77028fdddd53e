"""The paper's objective and its ablation: gradients, invariants, and the cached form against the naive one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import taer
from taer.heads.descent.loop import step_down
from taer.heads.descent.losses import cross_entropy_gradient
from taer.heads.numerics import log_sum_exp
from tests.conftest import blobs, heads_with

DETACHED = heads_with(frozen=True, keeps="exemplars")
ABLATION = [*heads_with(group="paper"), *heads_with(group="ablation")]


def learn(head, tasks):
    for X, y in tasks:
        head.partial_fit(X, y)
    return head


def numerical_gradient(loss, W, step=1e-6):
    gradient = np.zeros_like(W)
    for index in np.ndindex(*W.shape):
        for sign in (1, -1):
            moved = W.copy()
            moved[index] += sign * step
            gradient[index] += sign * loss(moved) / (2 * step)
    return gradient


def mean_cross_entropy(W, X, columns):
    scores = X @ W.T
    return np.mean(log_sum_exp(scores) - scores[np.arange(len(X)), columns])


@pytest.mark.parametrize("name", [*ABLATION, "finetune", "joint"])
def test_one_step_is_the_gradient_of_the_published_objective(name, tasks):
    """With whole-task batches an epoch is one step, whose direction finite differences confirm."""
    rates = {"lr": 0.3, "epochs": 1, "batch_size": 1000, "standardize": "none", "init": "zero", "random_state": 0}
    head = taer.make_head(name, **rates)
    if name in ABLATION:
        head.set_params(replay_batch_size=1000, memory_size=8)
    head.partial_fit(*tasks[0])
    start = np.zeros((4, 12))
    memory = head.memory_ if name in ABLATION else None
    (X, y), old = tasks[1], np.isin([0, 1, 4, 5], [1, 4])
    if name != "joint":
        start[old] = head.coef_
    head.partial_fit(X, y)
    columns = np.searchsorted(head.classes_, y)

    def loss(W):
        if name == "joint":
            everything = np.concatenate([tasks[0][0], X]), np.concatenate([tasks[0][1], y])
            return mean_cross_entropy(W, everything[0], np.searchsorted(head.classes_, everything[1]))
        if name == "finetune":
            return mean_cross_entropy(W, X, columns)
        replayed = np.array([1, 4])[memory.y]
        on_memory = mean_cross_entropy(W, memory.X, np.searchsorted(head.classes_, replayed))
        share = 2 / 4 if name in ("taer", "er-balanced") else None
        on_current = mean_cross_entropy(W, X, columns)
        return on_current + on_memory if share is None else (1 - share) * on_current + share * on_memory

    gradient = numerical_gradient(loss, start)
    if name in DETACHED:
        gradient[old] = 0
    np.testing.assert_allclose((start - head.coef_) / 0.3, gradient, atol=1e-7)


def test_cross_entropy_gradient_against_finite_differences():
    rng = np.random.default_rng(0)
    scores, target, weight = rng.normal(size=(5, 4)), rng.integers(0, 4, 5), rng.random(5)

    def loss(scores):
        return np.sum(weight * (log_sum_exp(scores) - scores[np.arange(5), target]))

    expected = numerical_gradient(loss, scores)
    np.testing.assert_allclose(cross_entropy_gradient(scores.copy(), target, weight), expected, atol=1e-8)


class NaiveTaER(taer.TaER):
    """The objective as it is written: all columns in every softmax, the gradient of old ones thrown away."""

    def _moving(self, task):
        return np.arange(task.n_classes)

    def _plan(self, task, columns):
        plan = super()._plan(task, columns)

        def gradient(scores, batch):
            found = cross_entropy_gradient(scores, batch.constants["target"], batch.weight)
            found[:, task.old] = 0
            return found

        current = replace(plan.current, constants={"target": task.y})
        replay = self._replay(task, lambda X, y: {"target": y})
        return replace(plan, current=current, replay=replay, resting=None, gradient=gradient)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 1e-5)])
@pytest.mark.parametrize("standardize", ["none", "center", "scale"])
def test_cached_form_equals_naive_form(tasks, dtype, tolerance, standardize):
    params = {"epochs": 3, "memory_size": 30, "standardize": standardize, "random_state": 0}
    typed = [(X.astype(dtype), y) for X, y in tasks]
    cached, naive = learn(taer.TaER(**params), typed), learn(NaiveTaER(**params), typed)
    np.testing.assert_allclose(cached.coef_, naive.coef_, atol=tolerance)
    np.testing.assert_array_equal(cached.predict(typed[0][0]), naive.predict(typed[0][0]))


@pytest.mark.parametrize("name", DETACHED)
@pytest.mark.parametrize("standardize", ["none", "center", "scale"])
def test_old_columns_are_bit_identical(name, tasks, standardize):
    head = taer.make_head(name, standardize=standardize, random_state=0)
    kept: dict[int, bytes] = {}
    for X, y in tasks:
        head.partial_fit(X, y)
        for label, row, offset in zip(head.classes_, head.coef_, head.intercept_, strict=True):
            bits = row.tobytes() + offset.tobytes()
            assert kept.setdefault(label, bits) == bits
    assert len(kept) == 6


@pytest.mark.parametrize("name", DETACHED)
def test_a_returning_class_moves_alone(name, tasks):
    head = learn(taer.make_head(name, random_state=0), tasks)
    before = head.coef_.copy()
    X, y = tasks[0]
    head.partial_fit(X[y == 1] + 0.5, y[y == 1])
    moved = (before != head.coef_).any(axis=1)
    assert head.classes_[moved].tolist() == [1]


def test_memory_of_a_returning_class_sits_out(tasks):
    """If its memory samples were replayed, they would be trained as "old" against its own column."""
    head, other = (learn(taer.TaER(random_state=0), tasks) for _ in range(2))
    X, y = tasks[0]
    code = [label for label, _ in other.learning_order_].index(1)
    other.memory_.X = np.where((other.memory_.y == code)[:, None], 1e3, other.memory_.X)
    for each in (head, other):
        each.partial_fit(X[y == 1], y[y == 1])
    np.testing.assert_array_equal(head.coef_, other.coef_)


def test_update_does_not_depend_on_memory_labels(tasks):
    head, other = (learn(taer.TaER(random_state=0), tasks[:2]) for _ in range(2))
    other.memory_.y = np.random.default_rng(5).permutation(other.memory_.y)
    for each in (head, other):
        each.partial_fit(*tasks[2])
    np.testing.assert_array_equal(head.coef_, other.coef_)


def test_weights_are_shares_of_classes(tasks):
    seen = []

    class Watching(taer.TaER):
        def _plan(self, task, columns):
            plan = super()._plan(task, columns)
            seen.append(plan.weights)
            return plan

    learn(Watching(), tasks)
    np.testing.assert_allclose(seen, [(1, 0), (1 / 2, 1 / 2), (1 / 3, 2 / 3)])


def test_preserved_accuracy_equals_accuracy_when_learned(features):
    from taer.experiment import Run, execute
    from taer.stream import class_stream

    for name in DETACHED:
        result = execute(Run(class_stream(features, tasks=5), name))
        diagonal = [row[-1] for row in result["accuracy_matrix"]]
        np.testing.assert_allclose(result["preserved_accuracy"], diagonal, atol=1 / 20)


def test_coefficients_refer_to_the_users_features(tasks):
    shifted = [(X * 5 + 100, y) for X, y in tasks]
    for standardize in ("none", "center", "scale"):
        head = learn(taer.TaER(standardize=standardize, random_state=0), shifted)
        X = shifted[0][0]
        np.testing.assert_allclose(head.decision_function(X), X @ head.coef_.T + head.intercept_, atol=1e-9)


def test_standardization_makes_scale_and_offset_irrelevant(tasks):
    plain = learn(taer.TaER(random_state=0), tasks)
    moved = learn(taer.TaER(random_state=0), [(X * 1000 - 7, y) for X, y in tasks])
    np.testing.assert_allclose(
        plain.decision_function(tasks[0][0]), moved.decision_function(tasks[0][0] * 1000 - 7), atol=1e-6
    )


def test_deviations_are_shrunk_as_by_one_sample_a_feature():
    X, y = blobs(2, 20)
    X[:, 0] = 3.0  # constant in the first task, but perhaps not in later ones
    n, width = X.shape
    head = taer.TaER(random_state=0).partial_fit(X, y)
    variances = (n * X.var(axis=0) + width * X.var(axis=0).mean()) / (n + width)
    np.testing.assert_allclose(head.embedding_.scale, np.sqrt(variances))
    assert head.embedding_.scale[0] > 0.4


def test_constant_features_do_no_harm():
    X, y = blobs(2, 20)
    X[:, 0] = 3.0
    head = taer.TaER(random_state=0).partial_fit(X, y)
    assert np.isfinite(head.coef_).all()
    assert head.score(X, y) > 0.9


@pytest.mark.parametrize("init", ["zero", "uniform", "mean", "normalized-mean"])
def test_new_columns_start_where_init_says(init, tasks):
    X, y = tasks[0]
    head = taer.TaER(init=init, lr=1e-12, random_state=0).partial_fit(X, y)
    columns = head.coef_ * head.embedding_.scale
    means = np.array([(X[y == c] - X.mean(0)).mean(0) / head.embedding_.scale for c in (1, 4)])
    if init == "zero":
        np.testing.assert_allclose(columns, 0, atol=1e-9)
    elif init == "uniform":
        assert 0.5 < np.abs(columns).max() * np.sqrt(12) <= 1
    else:
        expected = means if init == "mean" else means / np.linalg.norm(means, axis=1, keepdims=True)
        np.testing.assert_allclose(columns, expected, atol=1e-9)
    head.set_params(init_tasks="first").partial_fit(*tasks[1])
    later = head.coef_[np.isin(head.classes_, tasks[1][1])]
    np.testing.assert_allclose(later, 0, atol=1e-9)


def test_the_last_smaller_batch_is_kept():
    X, y = blobs(2, 17)  # 34 samples: a batch of 32 and one of 2
    steps = []

    class Counting(taer.Finetune):
        def _plan(self, task, columns):
            def gradient(scores, batch):
                steps.append((len(scores), batch.weight.sum()))
                return 0 * scores

            return replace(super()._plan(task, columns), gradient=gradient)

    Counting(epochs=2, random_state=0).partial_fit(X, y)
    assert [size for size, _ in steps] == [32, 2, 32, 2]
    np.testing.assert_allclose([weight for _, weight in steps], 1)


def test_without_memory_there_is_no_replay(tasks):
    head = learn(taer.TaER(memory_size=0, random_state=0), tasks)
    assert len(head.memory_) == 0
    assert head.memory_.nbytes == 0


def test_softmax_of_many_old_classes_is_stable():
    head = taer.TaER(standardize="none", init="zero", lr=100.0, random_state=0)
    X, y = blobs(40, 5, spread=5.0)
    for start in range(0, 40, 10):
        rows = (y >= start) & (y < start + 10)
        head.partial_fit((X[rows] * 100).astype(np.float32), y[rows])
    assert np.isfinite(head.coef_).all()
    assert np.isfinite(head.predict_proba((X * 100).astype(np.float32))).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_step_changes_columns_in_place(dtype, order):
    rng = np.random.default_rng(0)
    columns, gradient, rows = (rng.normal(size=size).astype(dtype) for size in ((3, 7), (5, 3), (5, 7)))
    expected = columns - 0.3 * gradient.T @ rows
    step_down(columns, np.asarray(gradient, order=order), rows, 0.3)
    np.testing.assert_allclose(columns, expected, rtol=1e-5, atol=1e-6)


def test_columns_that_blas_would_copy_are_refused():
    """Otherwise a head would learn nothing, without an error."""
    with pytest.raises(AssertionError):
        step_down(np.zeros((3, 7), order="F"), np.ones((5, 3)), np.ones((5, 7)), 0.3)
