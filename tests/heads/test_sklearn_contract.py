"""scikit-learn's own checks, on every head.

One of them cannot hold for some heads, as it does not for scikit-learn's own: that weights are repetitions in every
output. These heads hold samples out, or make choices by cross-validation, and there a sample is one sample.
``test_weights.py`` checks that their scores count weights exactly.
"""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import taer
from tests.conftest import small_head

DRAWS = {"gss", "mer"}  # whose memory is drawn while it learns, from samples in their order


def cannot_hold(head):
    """Checks by name, with the reason."""
    if head.weighs or head.name in DRAWS:
        return {
            "check_sample_weight_equivalence_on_dense_data": "samples are held out or drawn, whatever their weight"
        }
    return {}


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([small_head(name) for name in taer.HEADS], expected_failed_checks=cannot_hold)
def test_check_estimator(estimator, check):
    check(estimator)
