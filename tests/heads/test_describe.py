"""Classes by a description: zero examples work, each example moves them, old scores never move."""

from __future__ import annotations

import copy
import csv

import numpy as np
import pytest

import taer
from taer.heads.bayes.names import measured

WIDTH, KNOWN, NEW = 16, 12, 4


@pytest.fixture(scope="module")
def data():
    """Samples of classes, and descriptions: the means, an offset, and noise."""
    rng = np.random.default_rng(0)
    means = 3 * rng.normal(size=(KNOWN + NEW, WIDTH))
    y = np.repeat(np.arange(KNOWN + NEW), 20)
    X = means[y] + rng.normal(size=(len(y), WIDTH))
    described = means + 5 + 0.5 * rng.normal(size=means.shape)
    return X, y, dict(enumerate(described))


@pytest.fixture(scope="module", params=["bayes", "bayes-replay"])
def _first(request, data):
    X, y, _ = data
    return taer.make_head(request.param, normalize="none").partial_fit(X[y < KNOWN], y[y < KNOWN])


@pytest.fixture
def head(_first):
    return copy.deepcopy(_first)


def test_described_classes_are_predicted_without_an_example(head, data):
    X, y, described = data
    head.describe(described)
    assert head.classes_.tolist() == list(range(KNOWN + NEW))
    assert head.score(X[y >= KNOWN], y[y >= KNOWN]) > 0.9
    assert head.score(X[y < KNOWN], y[y < KNOWN]) > 0.9
    assert head.description_examples_ > 1


def test_known_descriptions_show_the_offset(head, data):
    X, y, described = data
    blind = copy.deepcopy(head).describe({label: described[label] for label in range(KNOWN, KNOWN + NEW)})
    head.describe(described)
    own = y >= KNOWN
    assert head.scores(X[own], range(KNOWN, KNOWN + NEW)).max(axis=1).mean() > (
        blind.scores(X[own], range(KNOWN, KNOWN + NEW)).max(axis=1).mean()
    )


def test_no_other_score_moves(head, data):
    X, _, described = data
    before = head.scores(X)
    head.describe({label: described[label] for label in range(KNOWN)})
    np.testing.assert_array_equal(head.scores(X), before)
    head.describe({KNOWN: described[KNOWN]})
    np.testing.assert_array_equal(head.scores(X, range(KNOWN)), before)
    described_one = head.scores(X, [KNOWN])
    head.describe({KNOWN + 1: described[KNOWN + 1]})
    np.testing.assert_array_equal(head.scores(X, [KNOWN]), described_one)


def test_examples_correct_a_wrong_description(head, data):
    X, y, described = data
    head.describe({**described, KNOWN: described[KNOWN] + 3})
    own, right = X[y == KNOWN], []
    for rows in (own[:0], own[:1], own[1:10]):
        if len(rows):
            head.partial_fit(rows, np.full(len(rows), KNOWN))
        right.append(head.scores(own[10:], [KNOWN]).mean())
    assert right[0] < right[1] < right[2]


def test_a_described_head_is_saved_and_can_be_described_on(head, data, tmp_path):
    X, _, described = data
    head.describe({label: described[label] for label in range(KNOWN + 1)})
    head.save(tmp_path / "head.safetensors")
    loaded = taer.load(tmp_path / "head.safetensors")
    for each in (head, loaded):
        each.describe({KNOWN + 1: described[KNOWN + 1]})
    np.testing.assert_array_equal(loaded.scores(X), head.scores(X))


@pytest.mark.parametrize(
    ("descriptions", "words"),
    [
        ({}, "a dictionary with a vector"),
        ([1, 2], "a dictionary with a vector"),
        ({20: "a text"}, "texts are for a pipeline"),
        ({20: np.zeros(3)}, "a vector of 16 numbers"),
        ({20: np.full(WIDTH, np.nan)}, "NaN or infinity"),
        ({"a": np.zeros(WIDTH)}, "labels were integers so far"),
    ],
)
def test_bad_descriptions_change_nothing(head, data, descriptions, words):
    before = head.scores(data[0])
    with pytest.raises(ValueError, match=words):
        head.describe(descriptions)
    np.testing.assert_array_equal(head.scores(data[0]), before)
    assert not hasattr(head, "description_examples_")


def test_exact_descriptions_count_more_than_vague_ones(head):
    means = head.densities_.means.astype(np.float64)
    rng = np.random.default_rng(1)
    worth = [
        measured(means + noise * rng.normal(size=means.shape), means, head.densities_.counts, head.prior_)[1]
        for noise in (0.1, 1.0, 3.0)
    ]
    assert worth[0] > worth[1] > worth[2] > 0


def test_texts_in_a_pipeline_and_on_the_command_line(cli, backbones, tmp_path):
    rng = np.random.default_rng(0)
    texts = [letter * rng.integers(8, 12) + "h" * 4 for letter in "abcd" * 10]
    pipe = taer.make_pipeline(taer.Extractor("letters"), taer.Bayes()).partial_fit(texts, list("abcd" * 10))
    pipe[-1].save(tmp_path / "head.safetensors")
    names = {letter: letter * 9 + "h" * 4 for letter in "abcde"}
    assert pipe.describe(names).predict(["eeeeeeeehhhh"]).tolist() == ["e"]
    with (tmp_path / "names.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["label", "text"], *names.items()])
    code, out, err = cli("describe", "head.safetensors", "names.csv")
    assert code == 0, err
    assert out.startswith("head.safetensors: 1 class added, 5 in all; a description counts as ")
    same = taer.load(tmp_path / "head.safetensors")
    X = pipe[0].transform(texts)
    np.testing.assert_array_equal(same.scores(X), pipe[-1].scores(X))
    cli("fit", "names.csv", "--backbone", "letters", "--method", "ncm", "--out", "other.safetensors")
    assert "describe is for bayes" in cli("describe", "other.safetensors", "names.csv")[2]
