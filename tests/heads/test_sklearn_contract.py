"""scikit-learn's own checks, on every head. None is excluded."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import taer
from tests.conftest import small_head


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([small_head(name) for name in taer.HEADS])
def test_check_estimator(estimator, check):
    check(estimator)
