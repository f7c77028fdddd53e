"""scikit-learn's own checks, on every head.

One of them cannot hold for some heads, as it does not for scikit-learn's own: that weights are repetitions in every
output. These heads hold samples out, or make choices by cross-validation, and there a sample is one sample.
``test_weights.py`` checks that their scores count weights exactly. ``bayes-replay`` passes: it learns the check's three
classes as ``bayes`` does, which repeats samples.
"""

import numpy as np
import pandas as pd
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import taer
from taer.heads import validation
from tests.conftest import small_head

DRAWS = {"gss", "mer"}  # whose memory is drawn while it learns, from samples in their order
HOLD_OUT = {"anacp", "gacl", "klda", "loranpac"}  # for their temperature, although they repeat samples by weight


def cannot_hold(head):
    """Checks by name, with the reason."""
    if head.weighs or head.name in DRAWS | HOLD_OUT:
        return {
            "check_sample_weight_equivalence_on_dense_data": "samples are held out or drawn, whatever their weight"
        }
    return {}


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([small_head(name) for name in taer.HEADS], expected_failed_checks=cannot_hold)
def test_check_estimator(estimator, check):
    check(estimator)


def test_plain_rows_are_not_looked_at_by_scikit_learn(monkeypatch):
    """Which would take longer than their scores. Everything else still is: wrong widths, no rows, integers, names."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20, 3)).astype(np.float32), np.arange(20) % 2
    named = taer.NCM().fit(pd.DataFrame(X, columns=["a", "b", "c"]), y)
    head = taer.NCM().fit(X, y)
    asked = []
    looked = validation.validate_data
    monkeypatch.setattr(validation, "validate_data", lambda *args, **kw: asked.append(args) or looked(*args, **kw))
    expected = head.predict(X.tolist())
    assert len(asked) == 1
    for rows in (X, X.astype(np.float64), np.asfortranarray(X)):
        assert (head.predict(rows) == expected).all()
    assert len(asked) == 1
    for wrong in (X[:, :2], X[:0], X[0]):
        with pytest.raises(ValueError, match=r"features|sample|2D"):
            head.predict(wrong)
    with pytest.raises(ValueError, match="NaN"):
        head.predict(np.full((1, 3), np.nan))
    head.predict(X.astype(int))
    with pytest.warns(UserWarning, match="feature names"):
        named.predict(X)
    assert len(asked) == 6


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_one_value_that_is_not_finite_is_found_and_the_largest_one_is_not(dtype):
    X = np.ones((300, 50), dtype)
    head = taer.NCM().fit(X[:2], [0, 1])
    for value in (np.nan, np.inf, -np.inf):
        X[217, 31] = value
        with pytest.raises(ValueError, match="NaN or infinity"):
            head.predict(X)
    X[:] = np.finfo(dtype).max  # their sum is infinite
    X[0] = np.finfo(dtype).tiny
    with np.errstate(over="ignore"):
        assert len(head.predict(X)) == 300
