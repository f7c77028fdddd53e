"""``taer.diagnose`` and ``taer diagnose``."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import taer
from taer.features import save_features
from taer.inspection.diagnosis import ClassAccuracy, Confused, Diagnosis
from tests.conftest import blobs


def mislabeled(n_classes=4, per_class=30):
    """Well separated classes with three wrong labels."""
    X, y = blobs(n_classes, per_class)
    wrong = np.array([5, 40, 77])
    y = y.copy()
    y[wrong] = (y[wrong] + 1) % n_classes
    return X, y, wrong


def test_confused_and_weak_classes():
    confusion = np.array([[10, 0, 0], [4, 5, 1], [0, 0, 10]])
    found = Diagnosis(["a", "b", "c"], confusion, [], 0)
    assert (found.samples, found.accuracy) == (30, 25 / 30)
    assert found.confused() == [Confused("b", "a", 4, 0.4), Confused("b", "c", 1, 0.1)]
    assert found.weak() == [ClassAccuracy("b", 10, 0.5)]
    even = Diagnosis(["a", "b"], np.array([[9, 1], [2, 8]]), [], 0)
    assert even.weak() == []  # 80 % of ten samples is what chance makes of 85 %


@pytest.mark.parametrize("name", ["bayes", "taer", "ncm"])
def test_wrong_labels_are_found_among_learned_samples(name):
    X, y, wrong = mislabeled()
    head = taer.make_head(name, random_state=0).fit(X, y)
    found = taer.diagnose(head, X, y, folds=3)
    assert {suspect.row for suspect in found.suspects[:3]} == set(wrong)
    for suspect in found.suspects[:3]:
        assert (suspect.label, suspect.taken_for) == (y[suspect.row], (y[suspect.row] - 1) % 4)
        assert suspect.probability < 0.5
    assert [each.probability for each in found.suspects] == sorted(each.probability for each in found.suspects)


def test_what_the_head_answers_and_what_it_does_not_know():
    X, y = blobs(5, 20, spread=4)
    head = taer.NCM().fit(X[y < 4], y[y < 4])
    found = taer.diagnose(head, X, y)
    answers, known = head.predict(X), y < 4
    assert (found.unknown, found.samples, found.labels) == (20, 80, [0, 1, 2, 3])
    assert found.accuracy == np.mean(answers[known] == y[known])
    assert {suspect.row for suspect in found.suspects} == set(np.flatnonzero(known & (answers != y)))
    with pytest.raises(ValueError, match="none of the samples is of a class that the head knows"):
        taer.diagnose(head, X[~known], y[~known])
    with pytest.raises(ValueError, match="expected a label for each sample, got 3 for 100"):
        taer.diagnose(head, X, y[:3])


def test_a_class_with_one_sample_is_not_judged_in_folds():
    X, y = blobs(3, 20)
    y[np.flatnonzero(y == 2)[1:]] = 1
    head = taer.NCM().fit(X, y)
    assert 2 not in [suspect.label for suspect in taer.diagnose(head, X, y, folds=3).suspects]
    for folds in (1, 1000):
        with pytest.raises(ValueError, match="folds must be 2 or more"):
            taer.diagnose(head, X, y, folds=folds)


def test_in_a_shell(cli, features, tmp_path):
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    wrong = features.train_y.copy()
    wrong[17] = (wrong[17] + 1) % 10
    save_features(replace(features, train_y=wrong), tmp_path / "set.safetensors")
    cli("fit", "set.safetensors", "--method", "ncm", "--out", "head")
    code, out, err = cli("diagnose", "head", "set.safetensors", "--top", 1, "--figure", "figure.svg")
    assert (code, err) == (0, "")
    assert "accuracy on 100 test samples of 10 classes" in out
    assert f"set.safetensors row 18  train  class{wrong[17]}" in out
    assert (tmp_path / "figure.svg").read_text().count("Classes that need more examples") == 1
    found = json.loads(cli("diagnose", "head", "set.safetensors", "--format", "json")[1])
    assert found["samples"] == 100
    suspect = found["likely mislabeled"][0]
    assert (suspect["row"], suspect["part"], suspect["taken_for"]) == (17, "train", f"class{features.train_y[17]}")
    assert cli("diagnose", "head", "set.safetensors", "--figure", "x.txt")[2].endswith(
        "ends in .svg, .pdf or .png\n"
    )
