"""Episodic memories: capacity, balance, exactness, restoring."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import taer.memory
from taer.memory import (
    Everything,
    GradientBased,
    GreedyBalanced,
    Herding,
    Reservoir,
    draw,
    gradient_similarity,
    herd,
)
from tests.conftest import everyday

POLICIES = [GreedyBalanced, Reservoir, Herding]


def offer(memory, labels, rng):
    """Rows that contain their label and number, so that a mix-up is detected."""
    labels = np.asarray(labels)
    X = np.column_stack([labels, memory.seen + np.arange(len(labels))]).astype(float)
    memory.add(X, labels, rng)
    return memory


def by_the_book(capacity, stream, rng):
    """GDumb's sampler, sample by sample, as its paper has it."""
    held: dict[int, list[int]] = {}
    for number, label in enumerate(stream):
        quota = capacity / len(held.keys() | {label})
        if label not in held or len(held[label]) < quota:
            if sum(map(len, held.values())) >= capacity:
                most = max(map(len, held.values()))
                largest = rng.choice([c for c in held if len(held[c]) == most])
                held[largest].pop(rng.integers(most))
            held.setdefault(label, []).append(number)
    return {label: len(members) for label, members in held.items()}


@pytest.mark.parametrize("capacity", [1, 7, 10, 37, 200])
@pytest.mark.parametrize("n_classes", [1, 3, 10, 50])
def test_greedy_counts_are_those_of_the_published_sampler(capacity, n_classes):
    rng = np.random.default_rng(capacity)
    labels = rng.integers(0, n_classes, 400)
    memory = offer(GreedyBalanced(capacity), labels, np.random.default_rng(0))
    book = by_the_book(capacity, labels, np.random.default_rng(1))
    counts = np.bincount(memory.y, minlength=n_classes)
    assert len(memory) == min(capacity, len(labels)) == sum(book.values())
    assert sorted(counts[counts > 0]) == sorted(count for count in book.values() if count)
    if np.bincount(labels).min() >= capacity / n_classes:
        assert counts.max() - (counts.min() if capacity >= n_classes else 0) <= 1
    np.testing.assert_array_equal(memory.X[:, 0], memory.y)  # rows and labels belong together


def test_greedy_over_ten_tasks_of_ten_classes():
    """100 classes in 10 tasks and 200 slots: 20 per class after the first task, 2 after the last."""
    memory, rng = GreedyBalanced(200), np.random.default_rng(0)
    for task in range(10):
        offer(memory, np.repeat(np.arange(10 * task, 10 * task + 10), 500), rng)
        counts = np.bincount(memory.y)
        assert len(memory) == 200
        assert len(counts) == 10 * (task + 1)
        assert counts.min() == 200 // len(counts)
        assert counts.max() == -(-200 // len(counts))


def test_greedy_with_a_class_smaller_than_its_quota():
    memory = offer(GreedyBalanced(30), [0] * 2 + [1] * 100 + [2] * 100, np.random.default_rng(0))
    assert np.bincount(memory.y)[0] == 2
    assert np.bincount(memory.y)[1:].min() >= 10
    offer(memory, [0] * 100, np.random.default_rng(1))
    assert np.bincount(memory.y).tolist() == [10, 10, 10]


def test_greedy_with_more_classes_than_slots():
    memory = offer(GreedyBalanced(5), np.repeat(np.arange(20), 10), np.random.default_rng(0))
    assert len(memory) == 5
    assert np.bincount(memory.y).max() == 1


def test_greedy_choice_is_uniform_inside_a_class():
    """Samples are offered in random order, so each is as likely as any other to be kept."""
    hits = np.zeros(20)
    for seed in range(2000):
        memory = offer(GreedyBalanced(5), np.zeros(20, int), np.random.default_rng(seed))
        hits[memory.X[:, 1].astype(int)] += 1
    assert np.abs(hits / 2000 - 5 / 20).max() < 0.05


def test_reservoir_is_uniform_over_everything_offered():
    hits = np.zeros(60)
    for seed in range(3000):
        rng = np.random.default_rng(seed)
        memory = offer(offer(offer(Reservoir(6), [0] * 20, rng), [1] * 30, rng), [2] * 10, rng)
        assert len(memory) == 6
        hits[memory.X[:, 1].astype(int)] += 1
    assert np.abs(hits / 3000 - 6 / 60).max() < 0.03


def test_draws_are_without_replacement_and_uniform():
    draws = draw(50, 10, 4000, np.random.default_rng(1))
    assert draws.shape == (4000, 10)
    assert all(len(set(row)) == 10 for row in draws.tolist())
    assert np.abs(np.bincount(draws.ravel(), minlength=50) / 4000 - 0.2).max() < 0.04
    assert draw(50, 80, 3, np.random.default_rng(1)).shape == (3, 50)


def residuals(rows, labels):
    """Gradients of an imaginary head of ten classes whose scores are pseudorandom functions of the rows."""
    scores = np.abs(np.sin(rows[:, :1] * np.arange(1, 11)))
    scores[np.arange(len(rows)), labels] -= 1
    return scores


@pytest.mark.parametrize("policy", [*POLICIES, GradientBased, Everything])
def test_restored_memory_goes_on_like_the_original(policy):
    memory, rows = policy(20), np.random.default_rng(0).normal(size=(90, 3))
    how = {"residuals": residuals, "logits": lambda rows: rows.sum(axis=1)}
    memory.add(rows, np.repeat([4, 2, 9], 30), np.random.default_rng(0), **how)
    restored = policy.from_arrays({name: array.copy() for name, array in memory.to_arrays().items()})
    for each in (memory, restored):
        each.add(np.ones((40, 3)), np.repeat([7, 2], 20), np.random.default_rng(5), **how)
    np.testing.assert_array_equal(memory.X, restored.X)
    np.testing.assert_array_equal(memory.y, restored.y)
    np.testing.assert_allclose(memory.extra["logits"], memory.X.sum(axis=1))
    np.testing.assert_array_equal(memory.extra["logits"], restored.extra["logits"])


def test_adding_leaves_a_shallow_copy_alone():
    memory = offer(GreedyBalanced(10), [0] * 20, np.random.default_rng(0))
    before = copy.copy(memory)
    rows, labels = before.X.copy(), before.y.copy()
    offer(memory, [1] * 20, np.random.default_rng(0))
    np.testing.assert_array_equal(before.X, rows)
    np.testing.assert_array_equal(before.y, labels)


def test_float16_stays_float16_and_bytes_are_counted():
    memory = GreedyBalanced(10)
    memory.add(np.zeros((30, 8), np.float16), np.zeros(30, int), np.random.default_rng(0))
    assert memory.X.dtype == np.float16
    assert memory.nbytes == 10 * 8 * 2 + 10 * 8


def test_numbers_of_another_type_are_stored_as_they_are():
    memory, rng = GreedyBalanced(10), np.random.default_rng(0)
    memory.add(np.full((5, 2), 200, np.uint8), np.zeros(5, int), rng)
    memory.add(np.full((5, 2), -0.5), np.ones(5, int), rng)
    assert set(np.unique(memory.X)) == {200, -0.5}


@pytest.mark.parametrize("policy", POLICIES)
def test_capacity_zero_and_negative(policy):
    memory = offer(policy(0), [0, 1, 2], np.random.default_rng(0))
    assert len(memory) == 0
    with pytest.raises(ValueError, match="cannot hold -1"):
        policy(-1)


def test_herding_follows_the_running_mean():
    """Each choice is the one that brings the mean of the chosen nearest to the mean of all."""
    rows = np.random.default_rng(0).normal(size=(30, 4)) + 1
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    chosen: list[int] = []
    for size in range(1, 11):
        rest = [i for i in range(30) if i not in chosen]
        distance = [np.linalg.norm(unit.mean(0) - unit[[*chosen, i]].mean(0)) for i in rest]
        chosen.append(rest[int(np.argmin(distance))])
        assert herd(rows, size).tolist() == chosen


def test_herding_keeps_the_first_choices_when_it_shrinks():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 5))
    memory = Herding(10)
    memory.add(X, np.zeros(60, int), rng)
    before = memory.X.copy()
    memory.add(X[:30] + 1, np.ones(30, int), rng)
    np.testing.assert_array_equal(memory.X[memory.y == 0], before[:5])
    assert np.bincount(memory.y).tolist() == [5, 5]
    memory.add(X[:30] + 2, np.full(30, 2), rng)
    assert np.bincount(memory.y).tolist() == [4, 3, 3]


def test_herding_compares_as_the_head_sees():
    X = np.array([[100.0, 0], [101, 1], [102, 0]])
    plain, centered = Herding(1), Herding(1)
    plain.add(X, np.zeros(3, int), np.random.default_rng(0))
    centered.add(X, np.zeros(3, int), np.random.default_rng(0), embed=lambda rows: rows - [101, 0])
    assert centered.X.tolist() == [[101.0, 1.0]]


def test_gradient_similarities_equal_those_of_formed_gradients():
    rng = np.random.default_rng(0)
    h, delta = rng.normal(size=(12, 5)), rng.normal(size=(12, 4))
    gradients = np.einsum("ni,nj->nij", h, delta).reshape(12, -1)

    def cosine(a, b):
        return a @ b / np.linalg.norm(a) / np.linalg.norm(b)

    whole, single = gradient_similarity(h, delta, 7)
    others = gradients[7:]
    assert whole == pytest.approx(1 + max(cosine(gradients[:7].mean(0), g) for g in others))
    np.testing.assert_allclose(single, [1 + max(cosine(own, g) for g in others) for own in gradients[:7]])


def test_gradient_based_memory_refuses_what_it_has_and_takes_what_is_new():
    rng, memory = np.random.default_rng(0), GradientBased(32)
    X = np.tile([1.0, 0, 0], (32, 1)) + 0.01 * rng.normal(size=(32, 3))
    same = lambda rows, labels: np.tile([-1.0, 1], (len(rows), 1))  # noqa: E731
    memory.add(X, np.zeros(32, int), rng, residuals=same)
    memory.add(X, np.ones(32, int), rng, residuals=same)
    assert set(memory.y) == {0}  # the same gradients again: passed over
    opposite = lambda rows, labels: np.where(labels[:, None] == 2, [1.0, -1], [-1.0, 1])  # noqa: E731
    memory.add(X, np.full(32, 2), rng, residuals=opposite)
    assert 2 in memory.y
    with pytest.raises(ValueError, match="needs the residuals"):
        memory.add(X, np.ones(32, int), rng)


@st.composite
def streams(draw):
    """A policy, a number of slots, and what is done to the memory: labels that are offered, or another capacity."""
    name, capacity = draw(st.sampled_from(sorted(taer.memory.POLICIES))), draw(st.integers(0, 12))
    steps = st.lists(
        st.one_of(st.lists(st.integers(0, 9), min_size=1, max_size=30), st.integers(0, 12)), min_size=1, max_size=6
    )
    return name, capacity, draw(steps), draw(st.integers(0, 1000))


@everyday
@given(streams())
def test_quotas_whatever_is_offered(stream):
    name, capacity, steps, seed = stream
    memory, rng, offered = taer.memory.POLICIES[name](capacity), np.random.default_rng(seed), []
    for step in steps:
        if isinstance(step, int):  # heads set it before they offer samples
            memory.capacity = capacity = step
            continue
        before, arrived = set(map(tuple, memory.X.tolist())) if len(memory) else set(), len(offered)
        X = np.column_stack([step, memory.seen + np.arange(len(step))]).astype(float)
        memory.add(X, np.array(step), rng, residuals=residuals)
        offered += step
        assert memory.seen == len(offered)
        assert len(memory) <= capacity
        assert len(memory.y) == (0 if memory.X is None else len(memory.X))
        kept = set(map(tuple, memory.X.tolist())) if len(memory) else set()
        assert len(kept) == len(memory)  # no sample twice
        assert all(row in before or row[1] >= arrived for row in kept)  # none that had been dropped comes back
        assert all(offered[int(number)] == label for label, number in kept)
        if len(memory):
            np.testing.assert_array_equal(memory.X[:, 0], memory.y)
            memory.check(2, 10)
        if name != "herding":  # which leaves a slot empty where a class has fewer samples than its quota
            assert len(memory) >= min(capacity, len(before), len(step))
    restored = type(memory).from_arrays(memory.to_arrays())
    np.testing.assert_array_equal(restored.y, memory.y)


@everyday
@given(st.integers(0, 20), st.lists(st.integers(1, 12), min_size=1, max_size=8), st.integers(0, 1000))
def test_quotas_of_balanced_memories(capacity, sizes, seed):
    """Classes of these sizes, one after the other: each fills its quota, or gives all it has."""
    rng, classes = np.random.default_rng(seed), len(sizes)
    greedy, herding = GreedyBalanced(capacity), Herding(capacity)
    for label, size in enumerate(sizes):
        offer(greedy, [label] * size, rng)
        offer(herding, [label] * size, rng)
    counts = np.bincount(greedy.y, minlength=classes)
    assert (counts <= sizes).all()
    if min(sizes) * classes >= capacity:
        assert len(greedy) == capacity
    if min(sizes) >= capacity:
        assert counts.max() <= counts.min() + 1
    quotas = np.array([capacity // classes + (place < capacity % classes) for place in range(classes)])
    if capacity >= classes:  # else a class whose last slot went is not counted any more
        np.testing.assert_array_equal(np.bincount(herding.y, minlength=classes), np.minimum(quotas, sizes))
    assert len(herding) <= capacity
