"""Audits of two versions of a head."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import taer
from taer.inspection.audit import audit
from tests.conftest import blobs, small_head

X, Y = blobs(8, 30, width=6)


def learned(head, *classes):
    known = np.isin(Y, classes)
    return head.partial_fit(X[known], Y[known])


def versions(name):
    """A head of four classes, and the same with two more."""
    old = learned(small_head(name, random_state=0), 0, 1, 2, 3)
    return old, learned(copy.deepcopy(old), 4, 5)


@pytest.mark.parametrize("name", [name for name, head in taer.HEADS.items() if head.card.frozen])
def test_old_scores_that_never_move(name):
    old, new = versions(name)
    found = audit(old, new, X)
    assert (found.old_classes, found.new_classes, found.forgotten) == ([0, 1, 2, 3], [4, 5], [])
    assert (found.moved, found.compared, found.changed) == ([], len(X), 0)


@pytest.mark.parametrize("name", ["ncm", "fecam", "lda-frozen", "gauss-frozen", "gauss-chain"])
def test_a_class_that_returns_moves_alone(name):
    old, new = versions(name)
    # with other samples: with the same ones its mean would move by rounding alone, or not at all
    new.partial_fit(X[Y == 0] + 0.25, Y[Y == 0])
    assert audit(old, new, X).moved == [0]


@pytest.mark.parametrize("name", ["finetune", "slda"])
def test_old_scores_that_move(name):
    assert audit(*versions(name)).moved == [0, 1, 2, 3]


def test_changed_decisions_are_those_of_predict():
    """Of the head without its new classes, where the others do not depend on them."""
    old, new = versions("finetune")
    before, found = old.predict(X), audit(old, new, X)
    after = new.forget(4).forget(5).predict(X)
    assert found.changed == (before != after).sum() > 0


def test_a_common_scale_changes_the_scores_and_no_decision():
    found = audit(*versions("ucir"), X)
    assert (found.moved, found.changed) == ([0, 1, 2, 3], 0)


def test_a_head_that_forgot():
    old = versions("taer")[0]
    found = audit(old, copy.deepcopy(old).forget(2), X)
    assert (found.old_classes, found.forgotten, found.moved, found.changed) == ([0, 1, 3], [2], [], 0)
    assert found.sentence().startswith(
        "0 new classes, 1 forgotten; nothing changed for the 3 other classes it knew; 0 of "
    )


def test_only_versions_of_one_head_are_compared():
    old = versions("taer")[0]
    with pytest.raises(ValueError, match="TaER and NCM are not two versions of one head"):
        audit(old, taer.NCM().fit(X, Y))
    with pytest.raises(ValueError, match="width 6 and 5"):
        audit(old, taer.TaER().fit(X[:, :5], Y))
