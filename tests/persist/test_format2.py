"""Heads in the previous format: one small file per head, with its scores on X.npy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

import taer
from taer.persist.save import EARLIER, FORMAT

FOLDER = Path(__file__).parent / "format2"
X = np.load(FOLDER / "X.npy")
pytestmark = pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.safetensors")))


def format_of(path):
    with safe_open(path, framework="numpy") as file:
        return file.metadata()["format"]


@pytest.fixture
def head(name):
    return taer.load(FOLDER / f"{name}.safetensors")


def test_it_predicts_what_it_did(name, head):
    assert format_of(FOLDER / f"{name}.safetensors") == EARLIER
    assert (head.name, head.classes_.tolist()) == (name, list("abcdef"))
    expected = np.load(FOLDER / f"{name}.npy")
    found = head.decision_function(X)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * np.abs(expected).max())
    np.testing.assert_array_equal(found.argmax(axis=1), expected.argmax(axis=1))


def test_what_it_keeps_goes_by_the_right_names(name, head):
    labels = np.array([label for label, _ in head.learning_order_])
    assert labels.tolist() != sorted(labels)
    if hasattr(head, "memory_"):
        assert np.mean(head.predict(head.memory_.X) == labels[head.memory_.y]) > 0.6
    if hasattr(head, "statistics_") and hasattr(head.embedding_, "how") and not hasattr(head.embedding_, "phases"):
        answers = head.predict(head.statistics_.means)
        np.testing.assert_array_equal(answers, labels)


def test_it_is_saved_in_the_present_format_and_goes_on_learning(name, head, tmp_path):
    head.save(tmp_path / "head.safetensors")
    assert format_of(tmp_path / "head.safetensors") == FORMAT
    again = taer.load(tmp_path / "head.safetensors")
    np.testing.assert_array_equal(again.decision_function(X), head.decision_function(X))
    before = head.scores(X)
    rng = np.random.default_rng(0)
    rows = (rng.normal(size=(40, X.shape[1])) + np.repeat([[20.0], [-20.0]], 20, axis=0)).astype(np.float32)
    for each in (head, again):
        each.partial_fit(rows, np.repeat(["g", "0"], 20))
    np.testing.assert_array_equal(again.decision_function(X), head.decision_function(X))
    assert head.classes_.tolist() == list("0abcdefg")
    assert head.score(rows, np.repeat(["g", "0"], 20)) > 0.8
    if head.card.frozen:
        np.testing.assert_array_equal(head.scores(X, classes=list("abcdef")), before)
    again.forget("c").rename("d", "z")
    assert again.classes_.tolist() == list("0abefgz")
