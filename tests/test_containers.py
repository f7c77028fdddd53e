"""Rows, labels and items are read by their position, whatever they are held in."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest

import taer
from taer import metrics
from taer.inspection.audit import audit
from taer.memory import Reservoir
from tests.conftest import blobs

ORDER = np.random.default_rng(0).permutation(60)  # of the labels of an index that was shuffled


def shuffled(values):
    """A column or a table whose index labels are those of other rows."""
    return (pd.Series if np.ndim(values) == 1 else pd.DataFrame)(values, index=ORDER[: len(values)])


def polars(values):
    library = pytest.importorskip("polars")
    return library.Series(values) if np.ndim(values) == 1 else library.DataFrame(values)


def tensor(values):
    torch = pytest.importorskip("torch")
    return torch.tensor(values) if np.asarray(values).dtype.kind != "U" else list(values)


HOLDERS = {
    "pandas": shuffled,
    "polars": polars,
    "torch": tensor,
    "lists": lambda values: np.asarray(values).tolist(),
    "tuples": lambda values: tuple(map(tuple, values)) if np.ndim(values) == 2 else tuple(values),
}


@pytest.fixture
def samples():
    X, y = blobs(3, 20)
    return X, np.array(["ant", "bee", "cat"])[y]


@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.filterwarnings("ignore:.*feature names")  # polars names its columns, arrays have none
def test_heads_learn_and_answer_by_position(holder, samples):
    X, y = samples
    hold, weight = HOLDERS[holder], np.linspace(0.5, 2, len(y))
    head = taer.SLDA().partial_fit(hold(X), hold(y), sample_weight=hold(weight))
    plain = taer.SLDA().partial_fit(X, y, sample_weight=weight)
    for answer in ("scores", "predict", "predict_proba", "novelty"):
        np.testing.assert_array_equal(getattr(head, answer)(hold(X)), getattr(plain, answer)(X))
    head.unlearn(hold(X[:5]), hold(y[:5]), sample_weight=hold(weight[:5]))
    plain.unlearn(X[:5], y[:5], sample_weight=weight[:5])
    np.testing.assert_array_equal(head.calibrate(hold(X), hold(y)).misfits_, plain.calibrate(X, y).misfits_)


@pytest.mark.parametrize("holder", HOLDERS)
def test_feature_sets_are_made_by_position(holder, samples):
    (X, y), hold = samples, HOLDERS[holder]
    plain = taer.features_from_arrays(X[:40], y[:40], X[40:], y[40:])
    held = taer.features_from_arrays(hold(X[:40]), hold(y[:40]), hold(X[40:]), hold(y[40:]))
    assert held.fingerprint == plain.fingerprint


def test_a_feature_set_of_tables_is_cut_by_position(samples):
    X, names = samples
    classes, y = np.unique(names, return_inverse=True)
    held = taer.FeatureSet(shuffled(X), shuffled(y), shuffled(X), shuffled(y), classes=tuple(classes))
    for task in taer.class_stream(held, tasks=3):
        np.testing.assert_array_equal(task.X_train, X[np.isin(y, task.classes)])
        assert set(task.y_train.tolist()) == set(task.classes)


@pytest.mark.parametrize("folds", [None, 3])
def test_errors_are_found_by_position(folds, samples):
    X, y = samples
    y[[3, 7]] = y[[7, 3]]
    head = taer.NCM().fit(X, y)
    held, plain = (taer.diagnose(head, *given, folds=folds) for given in ((shuffled(X), shuffled(y)), (X, y)))
    assert held.suspects == plain.suspects


def test_versions_are_compared_by_position(samples):
    X, y = samples
    old, new = taer.NCM().fit(X, y), taer.NCM().fit(X[::-1], np.roll(y, 9))
    assert audit(old, new, shuffled(X)) == audit(old, new, X)


def test_memories_keep_rows_by_position(samples):
    X, y = samples[0], np.arange(60)
    memories = [Reservoir(10) for _ in range(2)]
    for memory, rows in zip(memories, (X, shuffled(X)), strict=True):
        memory.add(rows, y, np.random.default_rng(0))
    np.testing.assert_array_equal(memories[1].X, memories[0].X)


def test_metrics_compare_by_position():
    rng = np.random.default_rng(0)
    y_true, y_pred, scores = rng.integers(0, 4, 60), rng.integers(0, 4, 60), rng.random((60, 4))
    task_of, right = np.array([0, 0, 1, 1]), y_true == y_pred
    for metric, given in (
        (metrics.task_accuracies, (y_true, y_pred, task_of)),
        (metrics.accuracy_among, (y_true, y_pred, right)),
        (metrics.preserved_accuracy, (scores, y_true, task_of)),
        (metrics.decompose, (scores, y_true, task_of)),
        (metrics.confusion_matrix, (y_true, y_pred, np.arange(4))),
        (metrics.expected_calibration_error, (scores, y_true)),
        (metrics.rejection, (scores[:, 0], right, 0.5)),
        (metrics.novelty_auroc, (scores[:, 0], scores[:30, 1])),
    ):
        held = [shuffled(each) if np.size(each) > 10 else each for each in given]
        held[0] = held[0].set_axis(ORDER[::-1][: len(held[0])])  # another index than that of the second
        np.testing.assert_array_equal(metric(*held), metric(*given))


@pytest.mark.parametrize("name", ["X", "y", "sample_weight"])
def test_what_has_no_positions_is_refused_with_words(name, samples):
    given = dict(zip(("X", "y", "sample_weight"), (*samples, np.ones(60)), strict=True))
    for wrong, words in (
        (iter(given[name]), "can be read only once"),
        ((each for each in given[name]), f"{name}: expected a list or an array, got a generator"),
        ({1, 2}, "got a set, whose rows have no positions"),
        ({"a": 1}, "got a dict"),
    ):
        with pytest.raises(ValueError, match=words):
            taer.NCM().partial_fit(**given | {name: wrong})


@pytest.mark.skipif(not find_spec("torch"), reason="needs torch")
def test_tensors_of_any_kind_are_taken(samples):
    import torch

    X, y = samples
    whole = np.round(X)  # which bfloat16 has, too
    plain = taer.NCM().fit(whole.astype(np.float32), y).scores(whole.astype(np.float32))
    for rows in (
        torch.tensor(whole, dtype=torch.bfloat16),
        torch.tensor(whole, dtype=torch.float32, requires_grad=True),
        [torch.tensor(row, dtype=torch.bfloat16) for row in whole],
    ):
        np.testing.assert_array_equal(taer.NCM().fit(rows, y).scores(rows), plain)
    layer = torch.nn.Linear(12, 3)
    head = taer.from_linear(layer.weight, layer.bias, ["ant", "bee", "cat"])
    expected = layer(torch.tensor(X, dtype=torch.float32)).detach().numpy()
    np.testing.assert_allclose(head.scores(X.astype(np.float32)), expected, rtol=1e-4, atol=1e-4)
    assert taer.features_from_arrays(torch.ones(2, 3).bfloat16(), [0, 1], np.ones((1, 3)), [0]).n_features == 3


def test_numbers_of_bfloat16_in_an_array_are_taken(samples):
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    X, y = np.round(samples[0]), samples[1]
    plain = taer.NCM().fit(X.astype(np.float32), y).scores(X.astype(np.float32))
    np.testing.assert_array_equal(taer.NCM().fit(X.astype(bfloat16), y).scores(X.astype(bfloat16)), plain)
