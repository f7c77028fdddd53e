"""Metrics against counting by hand."""

from __future__ import annotations

import numpy as np
import pytest

from taer import metrics

TASK_OF = np.array([0, 0, 1, 1])
Y = np.array([0, 0, 1, 2, 3, 3])
SCORES = np.array(
    [
        [3.0, 1, 0, 0],  # right
        [2.0, 1, 3, 0],  # taken for the current task, right within its own
        [2.0, 1, 0, 0],  # wrong within its own task
        [0.0, 0, 2, 1],  # right
        [0.0, 0, 2, 1],  # wrong within its own task
        [5.0, 0, 1, 2],  # taken for the old task, right within its own
    ]
)


def test_forward_transfer_counts_what_was_known_before():
    full = np.array([[0.9, 0.4, 0.0], [0.8, 0.9, 0.5], [0.7, 0.8, 0.9]])
    assert metrics.forward_transfer(full, np.array([0.1, 0.1, 0.2])) == pytest.approx((0.3 + 0.3) / 2)
    seen_only = metrics.accuracy_matrix([full[0, :1], full[1, :2], full[2]])
    assert metrics.forward_transfer(seen_only, np.zeros(3)) == 0
    assert metrics.forward_transfer(full[:1, :1], np.zeros(1)) == 0


def test_the_area_under_the_accuracy_weighs_by_samples():
    assert metrics.anytime_accuracy([100, 150, 200], [1.0, 0.5, 0.0]) == pytest.approx((100 + 25) / 200)


def test_accuracy_of_each_task_and_their_means():
    row = metrics.task_accuracies(Y, SCORES.argmax(axis=1), TASK_OF)
    np.testing.assert_allclose(row, [1 / 3, 1 / 3])
    matrix = metrics.accuracy_matrix([np.array([0.9]), row])
    assert np.isnan(matrix[0, 1])
    assert metrics.average_accuracy(matrix) == pytest.approx(1 / 3)
    assert metrics.average_incremental_accuracy(np.array([0.9, 1 / 3])) == pytest.approx((0.9 + 1 / 3) / 2)


def test_forgetting_and_backward_transfer():
    matrix = metrics.accuracy_matrix([np.array([0.8]), np.array([0.9, 0.7]), np.array([0.5, 0.6, 1.0])])
    assert metrics.forgetting(matrix) == pytest.approx(((0.9 - 0.5) + (0.7 - 0.6)) / 2)
    assert metrics.backward_transfer(matrix) == pytest.approx(((0.5 - 0.8) + (0.6 - 0.7)) / 2)
    single = metrics.accuracy_matrix([np.array([0.8])])
    assert metrics.forgetting(single) == metrics.backward_transfer(single) == 0


def test_preserved_accuracy_ignores_later_classes():
    np.testing.assert_allclose(metrics.preserved_accuracy(SCORES, Y, TASK_OF), [2 / 3, 1 / 3])


def test_decomposition_into_knowledge_and_bias():
    parts = metrics.decompose(SCORES, Y, TASK_OF)
    assert parts.within_task == pytest.approx(4 / 6)
    assert parts.task_identification == pytest.approx(4 / 6)
    assert parts.old_as_current == pytest.approx(1 / 3)
    only = metrics.decompose(SCORES[:3, :2], Y[:3], TASK_OF[:2])
    assert (only.task_identification, only.old_as_current) == (1, 0)


def test_old_mass():
    probabilities = np.array([[0.5, 0.2, 0.3], [0.1, 0.1, 0.8]])
    assert metrics.old_mass(probabilities, np.array([True, True, False])) == pytest.approx((0.7 + 0.2) / 2)


def test_confusion_matrix_in_learning_order():
    matrix = metrics.confusion_matrix(Y, SCORES.argmax(axis=1), np.array([3, 2, 0, 1]))
    assert matrix.sum() == len(Y)
    assert matrix[0].tolist() == [0, 1, 1, 0]  # class 3: once taken for 2, once for 0
    assert np.trace(matrix) == np.sum(SCORES.argmax(axis=1) == Y)


def test_calibration_error_by_hand():
    confidence = np.array([0.95, 0.95, 0.95, 0.55, 0.55])
    probabilities = np.stack([confidence, 1 - confidence], axis=1)
    y = np.array([0, 0, 1, 0, 0])  # two of three right at 0.95, two of two at 0.55
    expected = 3 / 5 * (0.95 - 2 / 3) + 2 / 5 * (1 - 0.55)
    assert metrics.expected_calibration_error(probabilities, y) == pytest.approx(expected)
    sure = np.array([[1.0, 0.0], [0.0, 1.0]])
    assert metrics.expected_calibration_error(sure, np.array([0, 1])) == 0
    assert metrics.expected_calibration_error(sure, np.array([1, 0])) == 1


def test_detection_of_unknown_classes_by_counting():
    known, unknown = np.array([0.1, 0.5, 0.5]), np.array([0.5, 0.7])
    pairs = [(k < u) + 0.5 * (k == u) for k in known for u in unknown]
    assert metrics.novelty_auroc(known, unknown) == pytest.approx(np.mean(pairs))
    assert metrics.novelty_auroc(known, unknown[:0]) is None


def test_rejection():
    novelty, right = np.array([0.3, 0.1, 0.9]), np.array([False, True, True])
    assert metrics.rejection(novelty, right, 0.9) == (1, pytest.approx(2 / 3))
    assert metrics.rejection(novelty, right, 0.2) == (pytest.approx(1 / 3), 1)
    assert metrics.rejection(novelty, right, 0.05) == (0, 1)


def test_accuracy_among_some_samples_and_the_harmonic_mean():
    y_true, y_pred = np.array([0, 0, 1, 2]), np.array([0, 2, 1, 0])
    assert metrics.accuracy_among(y_true, y_pred, y_true < 1) == 0.5
    assert metrics.accuracy_among(y_true, y_pred, y_true > 5) is None
    assert metrics.harmonic_mean(0.8, 0.2) == pytest.approx(0.32)
    assert metrics.harmonic_mean(0.0, 0.0) == 0.0
