"""Features of any size: a score that cannot be computed is an error, and such a novelty is unknown; neither is a class."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

import taer
from taer.heads.embedding import unit_rows
from tests.conftest import blobs, small_head

X, Y = blobs(4, 12, width=6, seed=1)
SCALES = {
    np.float16: (1e-7, 1e3),
    np.float32: (1e-30, 1e-10, 1e10, 1e19, 1e37, 3e38 / np.abs(X).max()),
    np.float64: (1e-300, 1e-30, 1e19, 1e38, 1e300),
}
HEADS = [
    pytest.param(name, params, id=f"{name}-{'-'.join(params.values()) or 'default'}")
    for name, kind in taer.HEADS.items()
    for params in ({}, {"normalize": "none"})
    if not params or "normalize" in [item.name for item in fields(kind)]
]
every_head = pytest.mark.parametrize(("name", "params"), HEADS)
every_type = pytest.mark.parametrize("dtype", list(SCALES), ids=lambda dtype: dtype.__name__)


def learned(name, params, rows):
    head = small_head(name, random_state=0, **params)
    for task in (Y < 2, Y >= 2):
        head.partial_fit(rows[task], Y[task])
    return head


def answer_of(ask):
    """An answer, or None for a clear error."""
    try:
        return ask()
    except ValueError as error:
        if "scale the features" not in str(error):
            raise
        return None


def check(head, rows):
    scores, predicted = answer_of(lambda: head.scores(rows)), answer_of(lambda: head.predict(rows))
    assert (scores is None) == (predicted is None)
    if scores is not None:
        assert np.isfinite(scores).all()
        np.testing.assert_array_equal(predicted, head.classes_[scores.argmax(axis=1)])
        probabilities = head.predict_proba(rows)
        assert np.isfinite(probabilities).all()
        assert np.isfinite(head.novelty(rows)).all()


@every_type
@every_head
def test_predict_is_the_highest_score_or_an_error(name, params, dtype):
    head = learned(name, params, X.astype(dtype))
    rows = np.concatenate([X, -X, X[:, ::-1]])
    for scale in SCALES[dtype]:
        check(head, (rows * scale).astype(dtype))


@every_type
@every_head
def test_what_is_learned_from_features_of_any_size_is_as_right_as_at_size_one(name, params, dtype):
    ordinary = learned(name, params, X.astype(dtype)).score(X.astype(dtype), Y)
    for scale in [scale for scale in SCALES[dtype] if 1e-40 < scale < 1e40]:
        rows = (X * scale).astype(dtype)
        head = answer_of(lambda rows=rows: learned(name, params, rows))
        if head is not None:
            check(head, rows)
            predicted = answer_of(lambda head=head, rows=rows: head.predict(rows))
            assert predicted is None or (predicted == Y).mean() >= ordinary - 0.05, scale


@every_type
@pytest.mark.parametrize("name", list(taer.HEADS))
def test_the_layout_of_the_rows_changes_nothing(name, dtype):
    rows = X.astype(dtype)
    head = learned(name, {}, rows)
    wide = np.repeat(rows, 2, axis=1)
    layouts = {"Fortran": np.asfortranarray(rows), "strided": wide[:, ::2], "backwards": rows[::-1].copy()[::-1]}
    for layout, same in layouts.items():
        for asked in ("scores", "predict", "predict_proba", "novelty"):
            np.testing.assert_array_equal(getattr(head, asked)(same), getattr(head, asked)(rows), err_msg=layout)
    taught = learned(name, {}, wide[:, ::2])
    np.testing.assert_allclose(taught.scores(rows), head.scores(rows), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["ncm", "slda", "ridge", "lda-frozen", "gauss-frozen", "gauss-chain", "rgda"])
def test_the_size_of_the_features_does_not_change_what_is_right(name):
    for scale in (1e-30, 1e30):
        rows = (X * scale).astype(np.float32)
        head = learned(name, {"normalize": "none"}, rows)
        assert head.score(rows, Y) > 0.95
        assert head.novelty(rows[:1] * 1000) > head.novelty(rows).max()


@every_head
def test_a_sample_far_away_is_unknown_or_an_error(name, params):
    """A novelty that is no number is not below any threshold."""
    head = learned(name, params, X.astype(np.float32))
    head._novelty = lambda rows, scores: np.where(np.arange(len(rows)) % 2, np.nan, np.inf)
    for threshold in (1.0, np.inf):
        assert (head.predict(X[:4], unknown=-1, threshold=threshold) == -1).all()
    with pytest.raises(ValueError, match="novelty of too many"):
        head.novelty_threshold(X)


@pytest.mark.parametrize(
    "name", ["rgda", "gauss-frozen", "factor-analyzer", "fecam", "slda", "lda-frozen", "ncm", "ridge"]
)
def test_a_row_of_1e19_is_never_known(name):
    head = learned(name, {"normalize": "none"}, X.astype(np.float32))
    head.novelty_threshold(X.astype(np.float32))
    far = answer_of(lambda: head.predict(X.astype(np.float32) * np.float32(1e19), unknown=-1))
    assert far is None or (far == -1).all()


@pytest.mark.parametrize(("dtype", "scales"), [(np.float32, (1e-37, 1e37)), (np.float64, (1e-300, 1e300))])
def test_rows_of_any_size_have_unit_length(dtype, scales):
    rows = np.random.default_rng(0).normal(size=(5, 8)).astype(dtype)
    for scale in scales:
        np.testing.assert_allclose(unit_rows(rows * dtype(scale)), unit_rows(rows), rtol=1e-5)
    np.testing.assert_array_equal(unit_rows(np.zeros((2, 8), dtype)), 0)


@pytest.mark.parametrize(
    "change",
    [
        lambda rows, noise: np.ones_like(rows),
        lambda rows, noise: 1 + 1e-8 * noise,
        lambda rows, noise: rows + 1e8,
        lambda rows, noise: rows + 1e10,
        *(lambda rows, noise, scale=scale: rows * scale for scale in (1e-140, 1e-60, 1e60, 1e140)),
    ],
    ids=["equal", "nearly equal", "far off", "farther off", "1e-140", "1e-60", "1e60", "1e140"],
)
@pytest.mark.parametrize("normalize", ["auto", "none"])
@pytest.mark.parametrize("name", ["bayes", "bayes-replay"])
def test_what_many_classes_of_any_rows_are_learned_from_can_be_saved(name, normalize, change, tmp_path):
    """Eight classes or more have a trial, whose units must be finite, or learning is refused."""
    rows, y = blobs(10, 12, width=8)
    rows = change(rows, np.random.default_rng(0).normal(size=rows.shape))
    head = answer_of(lambda: small_head(name, normalize=normalize).partial_fit(rows, y))
    if head is not None:
        head.save(tmp_path / "head.safetensors")
        assert np.abs(head.novelty(rows)).max() < 1e6
        assert np.isfinite(head.novelty_threshold())
