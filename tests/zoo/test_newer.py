"""Closed forms published since 2023, each checked by hand against its paper or its authors' code."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import sqrtm
from scipy.stats import norm

import taer
from taer.zoo.anacp import repelled
from tests.conftest import blobs


def unit(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


@pytest.fixture
def tasks():
    """Overlapping classes of different sizes, far from zero as features of a network are."""
    X, y = blobs(6, 40, width=5, spread=2.0)
    X, kept = X + 4, np.random.default_rng(0).random(len(y)) < np.linspace(1, 0.4, 6)[y]
    X, y = X[kept], y[kept]
    return [(X[np.isin(y, pair)], y[np.isin(y, pair)]) for pair in ([4, 1], [0, 5], [3, 2])]


def learned(head, tasks):
    for X, y in tasks:
        head.partial_fit(X, y)
    return head


def together(tasks):
    return np.concatenate([X for X, _ in tasks]), np.concatenate([y for _, y in tasks])


# TEEN


def test_teen_by_hand(tasks):
    """The soft calibration of the authors' code, class by class: 16 and 0.5 are its settings for CUB-200."""
    X, y = together(tasks)
    head = learned(taer.zoo.TEEN(), tasks)
    means = {label: unit(X[y == label].mean(axis=0)) for label in range(6)}
    base = np.stack([means[label] for label in (1, 4)])
    prototypes = []
    for label in range(6):
        prototype = means[label]
        if label not in (1, 4):
            weights = np.exp(16 * base @ prototype)
            prototype = unit(0.5 * prototype + 0.5 * unit(weights @ base / weights.sum()))
        prototypes.append(prototype)
    cosines = unit(X) @ np.stack(prototypes).T
    scores = head.scores(X)
    np.testing.assert_allclose(scores - scores[:, :1], cosines - cosines[:, :1], atol=1e-12)


def test_a_later_class_of_teen_is_pulled_only_to_the_first_task(tasks):
    """A class of the second task does not depend on what the third brings, nor on the other classes of its own."""
    whole, X = learned(taer.zoo.TEEN(), tasks), tasks[0][0]
    (X2, y2) = tasks[1]
    alone = learned(taer.zoo.TEEN(), [tasks[0], (X2[y2 == 5], y2[y2 == 5])])
    np.testing.assert_allclose(whole.scores(X, [5]), alone.scores(X, [5]), atol=1e-12)
    assert not np.allclose(whole.scores(X, [5]), taer.zoo.TEEN(alpha=0).fit(*together(tasks)).scores(X, [5]))


# GACL


def test_gacl_is_the_recursion_of_its_paper(tasks):
    """The inverse of the autocorrelation matrix updated by Woodbury in batches of 7, in which classes return."""
    X, y = together(tasks)
    shuffled = np.random.default_rng(1).permutation(len(y))
    head = learned(
        taer.zoo.GACL(width=30, gamma=2.0, random_state=0),
        [(X[part], y[part]) for part in np.array_split(shuffled, 3)],
    )
    z = np.maximum(X @ head.embedding_.projection.astype(np.float64), 0)
    R, W = np.eye(30) / 2.0, np.zeros((30, 6))
    for batch in np.array_split(shuffled, len(y) // 7):
        rows = z[batch]
        R -= R @ rows.T @ np.linalg.inv(np.eye(len(batch)) + rows @ R @ rows.T) @ rows @ R
        W += R @ rows.T @ (np.eye(6)[y[batch]] - rows @ W)
    np.testing.assert_allclose(head.scores(X), z @ W, atol=1e-5)


def test_gacl_draws_the_lift_of_a_linear_layer(tasks):
    projection = learned(taer.zoo.GACL(width=2000, random_state=0), tasks[:1]).embedding_.projection
    assert np.abs(projection).max() <= 1 / np.sqrt(5)
    assert projection.std() == pytest.approx(1 / np.sqrt(15), rel=0.02)


# KLDA


def test_klda_by_hand(tasks):
    """The mean of the softmax of the negative Mahalanobis distances of each draw, from all samples at once."""
    X, y = together(tasks)
    head = learned(taer.zoo.KLDA(width=20, draws=3, gamma=0.02, ridge=0.5, random_state=0), tasks)
    shares = np.zeros((len(X), 6))
    for frequencies, phases in zip(head.frequencies_.astype(np.float64), head.phases_, strict=True):
        z = np.sqrt(2 / 20) * np.cos((X - tasks[0][0].mean(axis=0)) @ frequencies + phases)
        means = np.stack([z[y == label].mean(axis=0) for label in range(6)])
        within = z - means[y]
        apart = z[:, None] - means
        logits = -np.einsum("ncd,de,nce->nc", apart, np.linalg.inv(within.T @ within + 0.5 * np.eye(20)), apart)
        shares += np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True) / 3
    np.testing.assert_allclose(head.scores(X), np.log(6 * shares), atol=1e-6)


def test_klda_draws_the_kernel_it_says():
    """Products of the random features estimate ``exp(-gamma |x - x'|²)``."""
    X = np.random.default_rng(0).normal(size=(20, 4))
    head = taer.zoo.KLDA(width=20000, draws=1, gamma=0.3, random_state=0)
    head.rng_ = np.random.default_rng(0)
    head._draw(taer.heads.base.Task(X, np.zeros(20, int), 0, 1), 0.3, 1)
    z = head._features()[0](X) + head.centers_[0]
    kernel = np.exp(-0.3 * np.square(X[:, None] - X).sum(axis=2))
    np.testing.assert_allclose(z @ z.T, kernel, atol=0.04)


def test_klda_chooses_the_width_of_its_kernel_by_the_data():
    """Rings need a narrow kernel; classes on a line among much noise need a wide one."""
    rng = np.random.default_rng(0)
    angle, y = rng.uniform(0, 2 * np.pi, 600), np.repeat([0, 1], 300)
    rings = np.stack([np.cos(angle), np.sin(angle)], axis=1) * (1 + 2 * y)[:, None] + 0.1 * rng.normal(
        size=(600, 2)
    )
    narrow = taer.zoo.KLDA(width=100, draws=1, random_state=0).fit(rings, y)
    assert narrow.score(rings, y) > 0.95
    line = rng.normal(size=(600, 40)) + np.outer(y, np.eye(40)[0]) * 3
    wide = taer.zoo.KLDA(width=100, draws=1, random_state=0).fit(line, y)

    def relative(head, X):
        return head.gamma_ * np.median(np.square(X[:300] - X[300:]).sum(axis=1))

    assert relative(narrow, rings) > 2 * relative(wide, line)


# HyCal


def hycal_by_hand(X, y, least, scale):
    """As the authors' code computes it for images alone, with the background that it subtracts."""
    X = unit(X)
    background = np.linalg.inv(np.cov(X.T) + 1e-3 * np.eye(X.shape[1]))
    of_all = np.einsum("nd,de,ne->n", X - X.mean(axis=0), background, X - X.mean(axis=0))
    prototypes, distances, counts = [], [], np.bincount(y)
    for label in range(len(counts)):
        own = X[y == label]
        prototype = unit(own.mean(axis=0))
        apart = own - prototype
        covariance = apart.T @ apart / (len(own) - 1) if len(own) > 1 else 1e-3 * np.eye(X.shape[1])
        precision = np.linalg.inv(covariance + 1e-3 * np.eye(X.shape[1]))
        prototypes.append(prototype)
        distances.append(of_all - np.einsum("nd,de,ne->n", X - prototype, precision, X - prototype))

    def mapped(raw):
        return norm.cdf((raw - raw.mean(axis=1, keepdims=True)) / raw.std(axis=1, ddof=1, keepdims=True))

    cosine, near = mapped(X @ np.stack(prototypes).T), mapped(np.stack(distances, axis=1))
    weight = np.where(counts >= least, 1 / (1 + np.exp(-(counts - least) / scale)), 0)
    return (1 - weight) * cosine + weight * near


def test_hycal_by_hand(tasks):
    X, y = together(tasks)
    counts = np.bincount(y)
    least = int(np.sort(counts)[2])
    assert (counts < least).sum() >= 2  # classes of both kinds
    head = learned(taer.zoo.HyCal(least=least, scale=3.0), tasks)
    np.testing.assert_allclose(head.scores(X), hycal_by_hand(X, y, least, 3.0), atol=1e-4)


def test_a_class_of_one_sample_has_a_cosine_in_hycal(tasks):
    head = learned(taer.zoo.HyCal(), [*tasks, (np.array([[9.0, -9, 9, -9, 9]]), [7])])
    assert head.predict([[18.0, -18, 18, -18, 18]])[0] == 7


# LoRanPAC


def test_loranpac_by_hand(tasks):
    """The incremental decomposition of the authors' code: residuals, QR, SVD of a small matrix, truncation."""
    head = learned(taer.zoo.LoRanPAC(width=60, random_state=0), tasks)
    R, U, S, seen, sums = head.embedding_.projection.astype(np.float64), None, None, 0, np.zeros((60, 6))
    for X, y in tasks:
        z = np.maximum(X @ R, 0).T
        seen, kept = seen + len(y), min(round(0.75 * (seen + len(y))), round(0.75 * 60))
        for column, label in zip(z.T, y, strict=True):
            sums[:, label] += column
        if U is None:
            U, S, _ = np.linalg.svd(z, full_matrices=False)
        else:
            along = U.T @ z
            Q, rest = np.linalg.qr(z - U @ along)
            small = np.block([[np.diag(S), along], [np.zeros((len(rest), len(S))), rest]])
            inner, S, _ = np.linalg.svd(small, full_matrices=False)
            U = np.concatenate([U, Q], axis=1) @ inner
        U, S = U[:, :kept], S[:kept]
    assert len(head.spectrum_) == len(S) == 45
    X = together(tasks)[0]
    expected = np.maximum(X @ R, 0) @ U @ ((U.T @ sums) / S[:, None] ** 2)
    np.testing.assert_allclose(head.scores(X), expected, atol=1e-6)


def test_loranpac_without_truncation_is_least_squares(tasks):
    X, y = together(tasks)
    head = learned(taer.zoo.LoRanPAC(width=20, truncated=0.0, random_state=0), tasks)
    z = np.maximum(X @ head.embedding_.projection.astype(np.float64), 0)
    expected = z @ np.linalg.lstsq(z, np.eye(6)[y], rcond=None)[0]
    np.testing.assert_allclose(head.scores(X), expected, atol=1e-6)


# AnaCP


def test_anacp_projects_onto_repelled_means(tasks):
    """The projection by hand from all samples; targets as in the authors' code."""
    X, y = together(tasks)
    head = learned(taer.zoo.AnaCP(width=30, gamma=2.0, random_state=0), tasks)
    x = unit(X)
    means = np.stack([x[y == label].mean(axis=0) for label in range(6)])
    within = x - means[y]
    covariance = within.T @ within / len(x) + 1e-4 * np.eye(5)
    root = np.real(np.linalg.inv(sqrtm(covariance)))
    left, sizes, right = np.linalg.svd((means - means.mean(axis=0)) @ root, full_matrices=False)
    targets = unit(left @ np.diag(sizes + 1) @ right @ root + means.mean(axis=0))
    found = []
    for R in head.projections_[:-1].astype(np.float64):
        z = x @ R.T * norm.cdf(x @ R.T)
        found.append(unit(z @ np.linalg.solve(z.T @ z + 2 * np.eye(30), z.T @ targets[y])))
    np.testing.assert_allclose(head._projected(head._rows(X)), np.mean(found, axis=0), atol=1e-5)


def test_the_classifier_of_anacp_is_a_ridge_regression_on_drawn_samples(tasks):
    """With the draws of its generator; the draws have the means and the covariance of the classes."""
    X, y = together(tasks)
    head = taer.zoo.AnaCP(width=30, gamma=2.0, drawn=50, random_state=0).fit(X, y)
    rng, drawn = np.random.default_rng(1), np.repeat(np.arange(6), 50)
    x = unit(X)
    means = np.stack([x[y == label].mean(axis=0) for label in range(6)])
    within = x - means[y]
    root = np.linalg.cholesky(within.T @ within / len(x) + 1e-4 * np.eye(5))
    z = head._projected(means[drawn] + rng.normal(size=(300, 5)) @ root.T) @ head.projections_[-1].T.astype(float)
    z = z * norm.cdf(z)
    expected = np.linalg.solve(z.T @ z + 2 * np.eye(30), z.T @ np.eye(6)[drawn])
    head.rng_ = np.random.default_rng(1)
    head._update(np.arange(0))
    np.testing.assert_allclose(head.weights_[head.arrival_], expected.T, atol=1e-5)


def test_repelled_means_are_further_apart():
    rng = np.random.default_rng(0)
    means = unit(rng.normal(size=(4, 9)) * 0.1 + 1)
    root = rng.normal(size=(9, 9)) * 0.05

    def cosines(rows):
        return (unit(rows) @ unit(rows).T)[np.triu_indices(4, 1)]

    assert (cosines(repelled(means, root @ root.T + 1e-4 * np.eye(9))) < cosines(means)).all()
