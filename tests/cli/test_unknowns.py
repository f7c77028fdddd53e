"""Novelty thresholds on the command line."""

from __future__ import annotations

import json

import numpy as np
import pytest

import taer


@pytest.mark.parametrize("method", ["bayes", "slda", "taer"])
def test_a_threshold_is_fitted_and_kept(cli, file, features, tmp_path, method):
    code, out, err = cli(
        "fit", file, "--method", method, "--classes", "0:5", "--out", "h", "--unknown", "?", "--false-alarms", "0.1"
    )
    assert (code, err) == (0, "")
    head = taer.load(tmp_path / "h")
    known = features.test_y < 5
    answers = head.predict(features.test_x, unknown="?")
    assert np.mean(answers[known] == "?") < 0.3
    assert f"; ? for {100 * np.mean(answers[known] == '?'):.2f} % of them, accuracy on the others " in out
    plain = head.predict(features.test_x)
    cli("fit", file, "--method", method, "--classes", "0:5", "--out", "g")
    other = taer.load(tmp_path / "g")
    assert not hasattr(other, "threshold_")
    np.testing.assert_array_equal(other.predict(features.test_x), plain)  # everything is learned all the same


def test_mistakes_are_told(cli, file):
    for arguments, message in (
        (("--unknown", "class3"), "--unknown class3: that is one of the classes"),
        (("--unknown", "?", "--false-alarms", "2"), "--false-alarms must be above 0 and below 1, got 2"),
    ):
        code, _, err = cli("fit", file, "--out", "h", *arguments)
        assert (code, err) == (2, f"taer: {message}\n")


def test_predict_answers_with_the_word_for_unknown(cli, file, features, tmp_path):
    cli("fit", file, "--classes", "0:5", "--out", "h", "--unknown", "?")
    head = taer.load(tmp_path / "h")
    head.novelty_threshold(per_class=True)
    head.save(tmp_path / "own")
    for name in ("h", "own"):
        head = taer.load(tmp_path / name)
        expected = head.predict(features.test_x, unknown="none").tolist()
        assert "none" in expected
        assert cli("predict", name, file, "--unknown", "none")[1].splitlines() == expected
    code, _, err = cli("predict", "h", file, "--unknown", "class3")
    assert (code, err) == (2, "taer: --unknown class3: that is one of the classes\n")


def test_a_head_that_stores_novelties_needs_no_threshold_beforehand(cli, file, features, tmp_path):
    cli("fit", file, "--classes", "0:5", "--out", "plain")
    head = taer.load(tmp_path / "plain")
    assert not hasattr(head, "threshold_")
    limit = head.novelty_threshold()
    expected = head.predict(features.test_x, unknown="?").tolist()
    assert "?" in expected
    assert cli("predict", "plain", file, "--unknown", "?")[1].splitlines() == expected
    found = [json.loads(line) for line in cli("predict", "plain", file, "--format", "json")[1].splitlines()]
    novelty = head.novelty(features.test_x)
    np.testing.assert_allclose([answer["above_limit"] for answer in found], novelty - limit)
    assert [answer["unknown"] for answer in found] == (novelty > limit).tolist()


def test_a_head_that_stores_none_says_what_to_do(cli, file):
    cli("fit", file, "--method", "ncm", "--out", "plain")
    code, _, err = cli("predict", "plain", file, "--unknown", "?")
    assert code == 2
    assert "ncm cannot make one without samples; 'taer fit --unknown' makes a head that has one" in err
