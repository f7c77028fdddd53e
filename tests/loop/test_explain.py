"""Explanations of answers."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import taer
from tests.conftest import blobs


@pytest.fixture(scope="module")
def samples():
    X, y = blobs(5, 80, width=6, spread=1.0)
    return X[::2], np.array(list("abcde"))[y[::2]], X[1::2]


@pytest.fixture(scope="module", params=[taer.Bayes, taer.BayesReplay])
def head(request, samples):
    X, y, _ = samples
    head = request.param().fit(X[y != "e"], y[y != "e"])
    head.partial_fit(X[y == "e"], y[y == "e"])
    head.novelty_threshold()
    return head


def test_answer_and_runner_up_are_the_two_best(head, samples):
    asked = samples[2]
    probabilities, scores = head.predict_proba(asked), head.scores(asked)
    order = np.argsort(-scores, axis=1)
    for row, found in enumerate(head.explain(asked)):
        for place, one in enumerate((found.answer, found.runner_up)):
            column = order[row, place]
            assert one.label == head.classes_[column]
            assert (one.probability, one.score) == (probabilities[row, column], scores[row, column])
        assert found.ahead == scores[row, order[row, 0]] - scores[row, order[row, 1]] >= 0


def test_an_unknown_sample_is_said_to_be_unusual(head, samples):
    X, y, asked = samples
    far = X[y == "a"].mean(axis=0) + np.array([[0.0], [30.0]])
    near, strange = head.explain(far)
    assert (near.unknown, strange.unknown) == (False, True)
    assert near.novelty <= near.limit == strange.limit == head.threshold_ < strange.novelty
    assert strange.as_novel < 0.1 < 0.5 < near.as_novel
    assert near.answer.label == "a"
    assert near.answer.distance < near.runner_up.distance
    assert near.answer.distance < 1 < strange.answer.distance
    assert np.median([found.answer.distance for found in head.explain(asked)]) < 1.2
    text = str(strange)
    assert text.startswith(f"{strange.answer.label} (")
    assert "unknown: the novelty" in text
    assert f"% of the samples of {strange.answer.label} looked at least as novel" in text


def test_examples_are_the_nearest_of_both_classes(head, samples):
    X, y, asked = samples
    rows = head.prior_(head.embedding_(X)).rows
    for row, found in zip(
        head.prior_(head.embedding_(asked[:5])).rows, head.explain(asked[:5], (X, y)), strict=True
    ):
        distances = np.sqrt(np.square(rows - row).sum(axis=1) / 12)
        for one in (found.answer, found.runner_up):
            own = np.flatnonzero(y == one.label)
            expected = own[np.argsort(distances[own])[:3]]
            assert [example.row for example in one.examples] == expected.tolist()
            np.testing.assert_allclose([example.distance for example in one.examples], distances[expected])
    assert len(head.explain(asked[:1], (X, y), count=1)[0].answer.examples) == 1
    assert head.explain(asked[:1], (X[:1], y[:1]))[0].runner_up.examples == ()


def test_a_head_that_keeps_samples_needs_no_examples(samples):
    X, y, asked = samples
    head = taer.BayesReplay().fit(X, y)
    given, kept = head.explain(asked[:20], (X, y), 1), head.explain(asked[:20], count=1)
    same = 0
    for one, other in zip(given, kept, strict=True):
        number = head.arrival_[head.classes_.tolist().index(one.answer.label)]
        at = other.answer.examples[0].row
        assert head.kept_.y[at] == number
        same += bool(
            np.allclose(
                head.kept_.space()[at],
                head.prior_(head.embedding_(X[[one.answer.examples[0].row]])).rows[0],
                atol=0.1,
            )
        )
    assert same >= 19  # kept samples are rounded
    assert taer.Bayes().fit(X, y).explain(asked[:1])[0].answer.examples == ()


def test_one_class_and_no_threshold():
    X = np.random.default_rng(0).normal(size=(20, 4))
    found = taer.Bayes().fit(X, np.zeros(20, int)).explain(X[:2])[1]
    assert (found.runner_up, found.ahead, found.limit, found.unknown) == (None, None, None, None)
    assert str(found).startswith("0 (100.0 %)")


def test_one_row_needs_no_second_dimension(head, samples):
    asked = samples[2]
    assert head.explain(asked[3]) == head.explain(asked[3].tolist()) == head.explain(asked[3:4])


def test_the_number_of_examples_may_be_one_of_numpy(head, samples):
    X, y, asked = samples
    (found,) = head.explain(asked[3], (X, y), np.int64(2))
    assert len(found.answer.examples) == 2


def test_bad_input_is_refused(head, samples):
    X, y, asked = samples
    for arguments, message in (
        ((asked[:, 1:],), "features"),
        ((asked, None, 0), "count must be a whole number from 1 on, got 0"),
        ((asked, None, True), "count must be a whole number from 1 on, got True"),
        ((asked, (X, y[:-1])), "inconsistent numbers of samples"),
        ((asked, (X, np.zeros(len(X)))), "labels were strings so far"),
    ):
        with pytest.raises(ValueError, match=message):
            head.explain(*arguments)


def test_the_loop_is_not_loaded_by_those_who_do_not_ask():
    code = (
        "import sys, numpy as np, taer; X = np.eye(4); head = taer.Bayes().fit(X, [0, 0, 1, 1]); head.predict(X);"
        "assert not any(name.startswith('taer.loop') for name in sys.modules); head.explain(X);"
        "assert 'taer.loop.explain' in sys.modules and 'taer.loop.automate' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
