"""Episodic memories: capacity, balance, exactness, restoring."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from taer.memory import Everything, GreedyBalanced, Reservoir

POLICIES = [GreedyBalanced, Reservoir]


def offer(memory, labels, rng):
    """Rows that name their label and number, so that a mix-up would show."""
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
    """100 classes in 10 tasks and 200 slots: 20 a class after the first task, 2 after the last."""
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


@pytest.mark.parametrize("policy", POLICIES)
def test_draws_are_without_replacement_and_uniform(policy):
    memory = offer(policy(50), np.repeat([0, 1], 50), np.random.default_rng(0))
    draws = memory.draw(10, 4000, np.random.default_rng(1))
    assert draws.shape == (4000, 10)
    assert all(len(set(draw)) == 10 for draw in draws.tolist())
    assert np.abs(np.bincount(draws.ravel(), minlength=50) / 4000 - 0.2).max() < 0.04
    among = np.flatnonzero(memory.y == 1)
    assert set(memory.y[memory.draw(10, 50, np.random.default_rng(1), among).ravel()]) == {1}
    assert memory.draw(80, 3, np.random.default_rng(1)).shape == (3, 50)


@pytest.mark.parametrize("policy", [*POLICIES, Everything])
def test_restored_memory_goes_on_like_the_original(policy):
    memory = policy(20)
    memory.add(np.random.default_rng(0).normal(size=(90, 3)), np.repeat([4, 2, 9], 30), np.random.default_rng(0),
               logits=np.arange(90.0))  # fmt: skip
    restored = policy.from_arrays({name: array.copy() for name, array in memory.to_arrays().items()})
    for each in (memory, restored):
        each.add(np.ones((40, 3)), np.repeat([7, 2], 20), np.random.default_rng(5), logits=-np.arange(40.0))
    np.testing.assert_array_equal(memory.X, restored.X)
    np.testing.assert_array_equal(memory.y, restored.y)
    np.testing.assert_array_equal(memory.extra["logits"], restored.extra["logits"])
    assert len(memory.extra["logits"]) == len(memory)


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


@pytest.mark.parametrize("policy", POLICIES)
def test_capacity_zero_and_negative(policy):
    memory = offer(policy(0), [0, 1, 2], np.random.default_rng(0))
    assert len(memory) == 0
    with pytest.raises(ValueError, match="cannot hold -1"):
        policy(-1)
