"""Closed-form heads: equal to reference implementations, in any order of tasks; and scores that never change."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge as SklearnRidge
from sklearn.metrics import log_loss

import taer
from taer.heads.closed_form import least_squares, linalg
from taer.heads.closed_form.calibration import best_temperature
from taer.zoo import gauss_chain
from taer.zoo.taer_gauss import Bound
from tests.conftest import blobs, heads_with, small_head
from tests.heads.test_objectives import learn, numerical_gradient

FROZEN = heads_with(frozen=True, keeps="statistics")
FORGETTABLE = "with `forgettable=True`"
ORDERLESS = {
    "ncm": {},
    "slda": {"shrinkage": 0.1},
    "ridge": {},
    "ranpac": {"width": 40},
    "rgda": {"normalize": "l2"},
    "fecam": {"normalize": "l2"},
}


@pytest.fixture
def harder_tasks():
    """Overlapping classes, so that wrong scores are detected; six tasks of two."""
    X, y = blobs(12, 60, width=10, spread=3.0)
    return [(X[np.isin(y, pair)], y[np.isin(y, pair)]) for pair in np.arange(12).reshape(6, 2)]


def relative(scores):
    """Scores without the constant that all classes of a sample share."""
    return scores - scores.mean(axis=1, keepdims=True)


def union(tasks):
    return np.concatenate([X for X, _ in tasks]), np.concatenate([y for _, y in tasks])


@pytest.mark.parametrize("name", list(ORDERLESS))
def test_order_of_tasks_does_not_matter(name, harder_tasks):
    X, _ = union(harder_tasks)
    first, second = (taer.make_head(name, random_state=0, **ORDERLESS[name]) for _ in range(2))
    forwards = learn(first, harder_tasks).decision_function(X)
    backwards = learn(second, harder_tasks[::-1]).decision_function(X)
    np.testing.assert_allclose(
        relative(forwards), relative(backwards), atol=2e-6 if name == "fecam" else 1e-8, rtol=1e-8
    )


def test_slda_is_linear_discriminant_analysis(harder_tasks):
    X, y = union(harder_tasks)
    ours = learn(taer.SLDA(shrinkage=0.2), harder_tasks)
    theirs = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.2, priors=np.full(12, 1 / 12)).fit(X, y)
    # scikit-learn averages the covariances of the classes, of equal size here, with the divisor n
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))
    scale = (len(X) - 12) / len(X)
    shared = theirs.coef_.mean(axis=0) * scale - ours.coef_.mean(axis=0)
    np.testing.assert_allclose(ours.coef_ + shared, theirs.coef_ * scale, rtol=1e-8, atol=1e-10)


def test_ridge_is_ridge_on_the_union(harder_tasks):
    X, y = union(harder_tasks)
    ours = learn(taer.Ridge(gamma=2.5), harder_tasks)
    theirs = SklearnRidge(alpha=2.5).fit(X, np.eye(12)[y])
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-8)
    np.testing.assert_allclose(ours.decision_function(X), theirs.predict(X), rtol=1e-8)


def cross_validation_error(X, Y, gamma):
    """By the definition, with the whole hat matrix."""
    centered, n = X - X.mean(0), len(X)
    hat = centered @ np.linalg.solve(centered.T @ centered + gamma * np.eye(X.shape[1]), centered.T) + 1 / n
    return np.sum((Y - hat @ Y) ** 2) / (1 - np.trace(hat) / n) ** 2


@pytest.mark.parametrize("class_weight", [None, "balanced"])
@pytest.mark.parametrize("scale", [1.0, 1000.0])
def test_the_strength_of_ridge_is_that_of_generalized_cross_validation(class_weight, scale, harder_tasks):
    """After every task, from all samples so far; the classes are of equal size, so their weights are one."""
    head = taer.Ridge(class_weight=class_weight)
    for seen in range(1, 7):
        head.partial_fit(scale * harder_tasks[seen - 1][0], harder_tasks[seen - 1][1])
        X, y = union(harder_tasks[:seen])
        trials = head.gamma_ * 10 ** np.linspace(-2, 2, 81)
        errors = [cross_validation_error(scale * X, np.eye(12)[y], gamma) for gamma in trials]
        assert min(errors) > 0.9999 * cross_validation_error(scale * X, np.eye(12)[y], head.gamma_)


@pytest.mark.parametrize("name", ["ridge", "ranpac"])
def test_fewer_samples_than_features_do_not_choose_the_weakest_strength(name):
    """Two equal samples let every residual vanish before the degrees of freedom do."""
    X, y = blobs(8, 100, width=100, spread=2.0)
    X = X / np.arange(1, 101)  # a few strong directions and many weak ones, as features of networks have them
    X += np.random.default_rng(1).normal(size=X.shape) / 20
    first = np.concatenate([np.flatnonzero(y == c)[:12] for c in range(8)])
    rest = np.setdiff1d(np.arange(len(y)), first)
    first = np.append(first, first[0])

    def learned(**params):
        width = {"width": 110} if name == "ranpac" else {}
        return taer.make_head(name, random_state=0, **width, **params).partial_fit(X[first], y[first])

    chosen = learned()
    weakest, *others = (
        learned(gamma=chosen.gamma_ * 10.0**power).score(X[rest], y[rest]) for power in range(-6, 4)
    )
    assert weakest + 0.1 < chosen.score(X[rest], y[rest])
    assert max(others) - 0.03 < chosen.score(X[rest], y[rest])


def test_weighted_classes_are_weighted_ridge_if_all_classes_have_one_covariance():
    rng, counts = np.random.default_rng(0), np.array([1, 2, 5])
    around = rng.normal(size=(20, 6))
    around -= around.mean(axis=0)
    means = rng.normal(size=(3, 6))
    X = np.concatenate([np.tile(mean + around, (count, 1)) for mean, count in zip(means, counts, strict=True)])
    y = np.repeat(np.arange(3), 20 * counts)
    for given, weights in (("balanced", 160 / (3 * 20 * counts)), ({0: 4.0, 2: 0.5}, np.array([4, 1, 0.5]))):
        ours = taer.Ridge(gamma=2.5, class_weight=given).partial_fit(X, y)
        theirs = SklearnRidge(alpha=2.5).fit(X, np.eye(3)[y], sample_weight=weights[y])
        np.testing.assert_allclose(ours.decision_function(X), theirs.predict(X), rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("given", ["equal", {0: -1.0}, 2])
def test_other_class_weights_are_refused(given, harder_tasks):
    with pytest.raises(ValueError, match="class_weight must be None, 'balanced' or a dictionary"):
        taer.Ridge(class_weight=given).partial_fit(*harder_tasks[0])


@pytest.mark.parametrize("name", ["ridge", "ranpac"])
def test_classes_of_a_few_samples_are_found_by_balanced_ridge(name):
    X, y = blobs(20, 60, width=20, spread=3.0)
    few = np.concatenate([np.flatnonzero(y == c)[: 60 if c < 10 else 5] for c in range(20)])
    rest = np.setdiff1d(np.arange(len(y)), few)
    rest = rest[y[rest] >= 10]
    plain, balanced = (
        small_head(name, class_weight=weight, random_state=0).partial_fit(X[few], y[few]).score(X[rest], y[rest])
        for weight in (None, "balanced")
    )
    assert balanced > plain + 0.1


def test_ncm_by_angle_and_by_distance(harder_tasks):
    X, y = union(harder_tasks)
    means = np.array([X[y == c].mean(0) for c in range(12)])
    nearest = np.linalg.norm(X[:, None] - means, axis=2).argmin(1)
    np.testing.assert_array_equal(learn(taer.NCM(metric="euclidean"), harder_tasks).predict(X), nearest)
    cosine = (X @ means.T) / np.linalg.norm(X, axis=1)[:, None] / np.linalg.norm(means, axis=1)
    ours = learn(taer.NCM(), harder_tasks).decision_function(X)
    np.testing.assert_allclose(relative(ours), relative(cosine), atol=1e-12)


@pytest.mark.parametrize("name", [*heads_with(forgets="yes"), *heads_with(forgets=FORGETTABLE)])
def test_forgetting_is_as_if_never_seen(name, harder_tasks):
    X, _ = union(harder_tasks)
    params = {"normalize": "l2"} | ({"forgettable": True} if taer.HEADS[name].card.forgets == FORGETTABLE else {})
    head = learn(small_head(name, random_state=0, **params), harder_tasks).forget(7)
    never = [(X[y != 7], y[y != 7]) for X, y in harder_tasks]
    other = learn(small_head(name, random_state=0, **params), never)
    ours, theirs = (relative(each.decision_function(X)) for each in (head, other))
    np.testing.assert_allclose(ours, theirs, atol=2e-6 if name == "fecam" else 1e-8, rtol=1e-7)


@pytest.mark.parametrize("shrinkage", ["ledoit-wolf", "oas"])
def test_estimated_shrinkage_is_scikit_learns(shrinkage, harder_tasks):
    from sklearn.covariance import OAS, LedoitWolf

    X, y = harder_tasks[0]
    centered = X - np.array([X[y == c].mean(0) for c in (0, 1)])[y]
    estimator = LedoitWolf if shrinkage == "ledoit-wolf" else OAS
    expected = estimator(assume_centered=True).fit(centered).shrinkage_
    assert taer.SLDA(shrinkage=shrinkage).partial_fit(X, y).shrinkage_ == pytest.approx(expected)


@pytest.mark.parametrize("name", FROZEN)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_old_scores_are_bit_identical(name, dtype, harder_tasks):
    X = union(harder_tasks)[0].astype(dtype)
    head, before = taer.make_head(name, random_state=0), {}
    for task_X, y in harder_tasks:
        head.partial_fit(task_X.astype(dtype), y)
        if len(head.classes_) == 2:
            continue
        scores = head.decision_function(X)
        found = {c: scores[:, i].tobytes() for i, c in enumerate(head.classes_)}
        for label, bits in before.items():
            assert found[label] == bits
        before = found


@pytest.mark.parametrize("name", FROZEN)
def test_a_returning_class_moves_alone(name, harder_tasks):
    head = learn(taer.make_head(name, random_state=0), harder_tasks)
    X, y = harder_tasks[1]
    everything = union(harder_tasks)[0]
    before = head.decision_function(everything)
    head.partial_fit(X[y == 2] + 0.5, y[y == 2])
    after = head.decision_function(everything)
    others = head.classes_ != 2
    np.testing.assert_allclose(before[:, others], after[:, others], rtol=1e-12)
    assert np.abs(before[:, ~others] - after[:, ~others]).max() > 1e-3


def test_a_returning_class_of_full_rank_is_as_if_learned_at_once():
    """With all directions kept, statistics of two visits are those of one."""
    X, y = blobs(4, 80, width=6, spread=3.0)
    at_once, twice = (taer.zoo.GaussFrozen(rank=6) for _ in range(2))
    first, third = y < 2, y == 2
    half = np.flatnonzero(third)[:40]
    for head in (at_once, twice):
        head.partial_fit(X[first], y[first])
    at_once.partial_fit(X[third], y[third])
    twice.partial_fit(X[half], y[half]).partial_fit(X[np.flatnonzero(third)[40:]], y[np.flatnonzero(third)[40:]])
    np.testing.assert_allclose(at_once.spectra_[2], twice.spectra_[2], rtol=2e-2)  # directions are float16
    np.testing.assert_allclose(at_once.decision_function(X), twice.decision_function(X), rtol=1e-2, atol=0.05)


def test_gaussian_scores_are_log_densities(harder_tasks):
    """With every direction kept, gauss-frozen is the density that its docstring states, up to a shared term."""
    from scipy.stats import multivariate_normal

    head = learn(taer.zoo.GaussFrozen(rank=10, normalize="none"), harder_tasks[:3])
    assert len(head.whiteners_) == 1  # the covariance of the first task is kept once, not once a task
    X = union(harder_tasks)[0][:20]
    nu, expected = head.strength_ * 10, []
    for label in range(6):
        rows = harder_tasks[label // 2][0][harder_tasks[label // 2][1] == label]
        centered = rows - rows.mean(0)
        covariance = (centered.T @ centered + nu * head.covariance_) / (len(rows) + nu)
        expected.append(multivariate_normal(rows.mean(0), covariance).logpdf(X))
    apart = head.decision_function(X) - np.array(expected).T
    np.testing.assert_allclose(apart - apart[:, :1], 0, atol=0.02)


def test_new_classes_are_chained_to_the_frozen_scores_of_their_neighbors(harder_tasks):
    head = learn(taer.zoo.GaussChain(normalize="none"), harder_tasks[:2])
    frozen, offsets = head.weights_, head.offsets_
    head.partial_fit(*harder_tasks[2])
    means = head.statistics_.means
    pooled = head.statistics_.scatter / (head.statistics_.n_samples - 6)
    level, g = np.trace(pooled) / 10, head.shrinkage_
    inverse = np.linalg.inv((1 - g) * pooled + g * level * np.eye(10))

    def present(c, x):
        return means[c] @ inverse @ x - means[c] @ inverse @ means[c] / 2

    def old(c, x):
        return frozen[c] @ x + offsets[c]

    pairs = [(c, other) for c in range(4) for other in range(4)]
    was = np.array([old(other, means[c]) - old(c, means[c]) for c, other in pairs])
    now = np.array([present(other, means[c]) - present(c, means[c]) for c, other in pairs])
    beta = (was * now).sum() / (now * now).sum()
    assert beta == pytest.approx(head.betas_[2])
    for c in (4, 5):
        odds = (
            beta
            * np.array([present(o, means[c]) - present(c, means[c]) for o in range(4)])
            / head.first_temperature_
        )
        neighbors = np.exp(odds - odds.max()) / np.exp(odds - odds.max()).sum()
        for x in head.embedding_(harder_tasks[0][0][:5]):
            apart = np.array([old(o, x) - beta * present(o, x) for o in range(4)])
            expected = beta * present(c, x) + neighbors @ apart
            assert head.weights_[c] @ x + head.offsets_[c] == pytest.approx(expected)


def test_bound_holds_and_its_gradient_is_right():
    rng = np.random.default_rng(0)
    means, columns = rng.normal(size=(3, 4)), rng.normal(size=(3, 4))
    A = rng.normal(size=(4, 4)) / 3
    bound, W = Bound(means, columns, A @ A.T), rng.normal(size=(2, 4))
    value, gradient = bound(W)
    np.testing.assert_allclose(gradient, numerical_gradient(lambda W: bound(W)[0], W), atol=1e-7)
    every, losses = np.concatenate([columns, W]), []
    for label in range(3):
        h = rng.multivariate_normal(means[label], A @ A.T, 20000)
        scores = h @ every.T
        losses.append(np.mean(np.log(np.exp(scores - scores[:, [label]]).sum(1))))
    assert np.mean(losses) <= value
    at_mean = Bound(means, columns, np.zeros((4, 4)))(W)[0]  # without variance the bound is the loss itself
    scores = means @ every.T
    assert at_mean == pytest.approx(np.mean(np.log(np.exp(scores - np.diag(scores)[:, None]).sum(1))))


@pytest.mark.parametrize(
    "name",
    ["slda", "ridge", "ranpac", "klda", "rgda", *(name for name in FROZEN if name not in ("fecam", "ncm", "teen"))],
)
def test_better_than_the_nearest_mean(name):
    """On features of strongly unequal variance, which FeCAM divides away."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(10), 100)
    stretch = np.linspace(0.2, 6, 12)
    X = (rng.normal(size=(10, 12)) * 2)[y] + rng.normal(size=(1000, 12)) * stretch
    X, held, held_y = X[::2], X[1::2], y[1::2]
    y = y[::2]
    tasks = [(X[(y // 2) == t], y[(y // 2) == t]) for t in range(5)]
    ours, mean = learn(small_head(name, random_state=0), tasks), learn(taer.NCM(), tasks)
    assert ours.score(held, held_y) > mean.score(held, held_y)


@pytest.mark.parametrize(
    "name",
    ["ncm", "slda", "ridge", "ranpac", "klda", "rgda", "fecam", "lda-frozen", "gauss-frozen", "gauss-chain"],
)
def test_probabilities_stay_calibrated_while_classes_come(name):
    """On samples never seen, after the first task and after all."""
    X, y = blobs(12, 120, width=10, spread=3.0)
    held, X, y, held_y = X[::2], X[1::2], y[1::2], y[::2]
    head = small_head(name, random_state=0)
    for classes in np.arange(12).reshape(3, 4):
        head.partial_fit(X[np.isin(y, classes)], y[np.isin(y, classes)])
        known = np.isin(held_y, head.classes_)
        error = taer.metrics.expected_calibration_error(head.predict_proba(held[known]), held_y[known])
        assert error < 0.15


@pytest.mark.parametrize(("make", "matrices"), [(taer.zoo.GaussFrozen, 20), (taer.zoo.GaussChain, 8 + 4 * 6)])
def test_a_budget_in_bytes_says_the_rank(make, matrices, harder_tasks):
    """The bytes per head in docs/evidence/beyond.md."""
    head = learn(make(rank=3), harder_tasks)
    arrays = [value.nbytes for name, value in vars(head).items() if hasattr(value, "nbytes") and name != "classes_"]
    per_class = (2 * 3 + 16) * 10 + 8 * 3 + 48
    assert sum(arrays) - head.betas_.nbytes == 12 * per_class + matrices * 10**2


def held_back(y):
    return np.concatenate([np.flatnonzero(y == c)[:12] for c in np.unique(y)])


def losses_held_back(make, tasks, temperature):
    """Log losses of a fifth of each task, by heads that have not seen it, among all classes up to that task."""
    found = []
    for t, (X, y) in enumerate(tasks):
        held = held_back(y)
        trial = learn(make(), tasks[:t]).partial_fit(np.delete(X, held, axis=0), np.delete(y, held))
        scores = trial.decision_function(X[held])
        if scores.ndim == 1:
            scores = np.column_stack([np.zeros(len(held)), scores])
        found.append(log_loss(y[held], softmax(scores / temperature, axis=1), labels=trial.classes_))
    return np.array(found)


@pytest.mark.parametrize(
    ("make", "of_tasks"), [(taer.SLDA, [5]), (taer.zoo.FeCAM, range(6)), (taer.zoo.GaussChain, range(6))]
)
def test_the_temperature_is_that_of_samples_not_counted_in(make, of_tasks, harder_tasks):
    """The lowest log loss on the held-out samples of the last task or, if scores never move, of all tasks."""
    head = learn(make(), harder_tasks)

    def loss(temperature):
        return losses_held_back(make, harder_tasks, temperature)[of_tasks].mean()

    assert loss(head.temperature_) <= min(loss(head.temperature_ * 1.1), loss(head.temperature_ / 1.1))


def test_tasks_too_small_to_calibrate_leave_no_trace(harder_tasks):
    """Nothing can be held out of them, so the assumed value must not have an effect later."""
    tiny = [(X[:4], y[:4]) for X, y in harder_tasks[:3]]
    for make in (taer.zoo.FeCAM, taer.zoo.GaussChain, taer.zoo.GaussFrozen):
        head = learn(make(), tiny)
        assert not hasattr(head, "held_out_")
        head.partial_fit(*harder_tasks[3])
        X, y = harder_tasks[3]
        trial = learn(make(), tiny).partial_fit(np.delete(X, held_back(y), axis=0), np.delete(y, held_back(y)))
        scores = trial.decision_function(X[held_back(y)])
        assert head.temperature_ == pytest.approx(
            best_temperature(scores, np.searchsorted(head.classes_, y[held_back(y)])), rel=0.1
        )


@pytest.mark.parametrize("name", ["lda-frozen", "fecam", "gauss-frozen", "gauss-chain", "slda"])
@pytest.mark.parametrize("first", ["copies of one sample", "two classes with one mean", "constant"])
def test_a_first_task_without_variance_does_not_spoil_later_ones(name, first, harder_tasks):
    row = harder_tasks[0][0][0]
    start = {
        "copies of one sample": (np.tile(row, (7, 1)), np.zeros(7, int)),
        "two classes with one mean": (np.stack([row, row]), np.arange(2)),
        "constant": (np.ones((8, 10)), np.repeat([0, 1], 4)),
    }[first]
    head = learn(taer.make_head(name), [start, *harder_tasks[1:]])
    X, y = union(harder_tasks[1:])
    assert np.isfinite(head.decision_function(X)).all()
    assert np.isfinite(head.predict_proba(X)).all()
    assert head.score(X, y) > 0.5


def test_what_was_held_back_counts_in_the_end(harder_tasks):
    head = learn(taer.SLDA(), harder_tasks)
    everything = learn(taer.SLDA(), [union(harder_tasks)])
    np.testing.assert_allclose(relative(head.coef_.T), relative(everything.coef_.T), rtol=1e-8, atol=1e-12)


def test_fecam_is_a_mahalanobis_distance_by_correlations():
    rng = np.random.default_rng(0)
    X, y = rng.uniform(size=(60, 5)) ** 3, np.repeat([0, 1, 2], 20)
    scores = taer.zoo.FeCAM(gamma1=1.5, gamma2=0.5).fit(X, y).decision_function(X)
    rows = np.sqrt(X) / np.linalg.norm(np.sqrt(X), axis=1, keepdims=True)
    for label in range(3):
        covariance = np.cov(rows[y == label].T)
        variance, between = np.diag(covariance).mean(), covariance[~np.eye(5, dtype=bool)].mean()
        shrunk = covariance + 1.5 * variance * np.eye(5) + 0.5 * between * (1 - np.eye(5))
        deviations = np.sqrt(np.diag(shrunk))
        inverse = np.linalg.inv(shrunk / deviations / deviations[:, None])
        mean = rows[y == label].mean(0)
        apart = rows - mean / np.linalg.norm(mean)
        np.testing.assert_allclose(scores[:, label], -0.5 * np.sum(apart @ inverse * apart, axis=1), rtol=1e-3)
    with pytest.raises(ValueError, match="gamma2 must be at most gamma1"):
        taer.zoo.FeCAM(gamma1=0.5).fit(X, y)


def test_covariance_from_unlabeled_samples(harder_tasks):
    X, _ = union(harder_tasks)
    head = learn(taer.LDAFrozen(normalize="none", shrinkage=0.2).fit_covariance(X), harder_tasks)
    covariance = np.cov(X.T)
    shrunk = 0.8 * covariance + 0.2 * np.trace(covariance) / 10 * np.eye(10)
    means = np.array([X_[y == c].mean(0) for X_, y in harder_tasks for c in np.unique(y)])
    expected = (means - X.mean(axis=0)) @ np.linalg.inv(shrunk)
    np.testing.assert_allclose(head.coef_, expected, rtol=1e-8)
    chosen = learn(taer.LDAFrozen().fit_covariance(X), harder_tasks)
    assert chosen.score(*union(harder_tasks)) > 0.6
    with pytest.raises(ValueError, match="must come before"):
        head.fit_covariance(X)
    with pytest.raises(ValueError, match="of 10 features, X has 4"):
        taer.LDAFrozen().fit_covariance(X).partial_fit(X[:, :4], np.arange(len(X)) % 3)


@pytest.mark.parametrize("name", ["slda", "fecam", "lda-frozen", "rgda", "gauss-chain"])
def test_samples_far_from_every_class_are_novel(name):
    """A point where probabilities are confident and wrong: beyond a class, away from the others."""
    X, y = blobs(6, 80, spread=1.0)
    head = learn(taer.make_head(name, normalize="none"), [(X[y < 3], y[y < 3])])
    new, old = head.novelty(X[y >= 3]), head.novelty(X[y < 3])
    assert taer.metrics.novelty_auroc(old, new) > 0.95
    beyond = X[y == 0].mean(0) + 3 * (X[y == 0].mean(0) - X[y == 1].mean(0))
    assert head.predict_proba([beyond]).max() > 0.99
    assert head.novelty([beyond])[0] > np.quantile(old, 0.95)


@pytest.mark.parametrize("name", ["slda", "ncm", "rgda", "gauss-chain"])
def test_distances_of_novelty_are_those_of_the_state_that_answers(name, harder_tasks):
    """They are kept between answers, because they need two inverse covariances."""
    X, _ = union(harder_tasks)
    head = learn(taer.make_head(name), harder_tasks[:-1])
    before = head.novelty(X)
    assert (head._scores_with_novelty(X)[1] == before).all()
    copied = copy.copy(head)
    head.partial_fit(*harder_tasks[-1])
    assert (head.novelty(X) == copy.deepcopy(head).novelty(X)).all()
    assert (head.novelty(X) != before).any()
    assert (copied.novelty(X) == before).all()
    forgotten = head.forget(0).novelty(X)
    assert (forgotten == copy.deepcopy(head).novelty(X)).all()


@pytest.mark.parametrize(("name", "params"), [("ridge", {}), ("ranpac", {"width": 40})])
def test_a_strength_is_chosen_once_a_task_and_gives_the_same_if_it_is_given(
    name, params, harder_tasks, monkeypatch
):
    """Eigenvectors, from which it is chosen, take ten times as long as the solution for one strength."""
    found, eigen = [], least_squares.eigen
    monkeypatch.setattr(least_squares, "eigen", lambda matrix: found.append(1) or eigen(matrix))
    X, _ = union(harder_tasks)
    chosen = learn(taer.make_head(name, random_state=0, **params), harder_tasks)
    assert len(found) == len(harder_tasks)
    given = learn(taer.make_head(name, random_state=0, gamma=chosen.gamma_, **params), harder_tasks)
    assert len(found) == len(harder_tasks)
    np.testing.assert_allclose(given.scores(X), chosen.scores(X), rtol=1e-7, atol=1e-9)


def test_a_chain_compares_no_more_than_some_old_classes(harder_tasks, monkeypatch):
    """All pairs of ten thousand classes would take gigabytes; the slope from some of them is nearly the same."""
    whole = learn(taer.zoo.GaussChain(), harder_tasks)
    monkeypatch.setattr(gauss_chain, "_PAIRED", 4)
    some = learn(taer.zoo.GaussChain(), harder_tasks)
    assert (some.betas_ != whole.betas_).any()
    np.testing.assert_allclose(some.betas_, whole.betas_, rtol=0.2)


@pytest.mark.parametrize("name", ["bayes", "factor-analyzer"])
def test_where_lapack_finds_no_leading_eigenvectors_all_are_computed(name, monkeypatch):
    """Its method for a few fails on some processors, for classes of fewer samples than features."""

    failed = []

    def fail(*args, **options):
        failed.append(args)
        raise np.linalg.LinAlgError("Internal Error.")

    X, y = blobs(9, 8, width=20)
    params = {"rank": 2} if name == "bayes" else {}
    expected = taer.make_head(name, **params).fit(X, y).scores(X)
    monkeypatch.setattr(linalg, "_LARGE", 4)  # so that it is asked for some of so few
    monkeypatch.setattr(linalg, "_MANY_MORE", 1)
    monkeypatch.setattr(linalg, "eigh", fail)
    np.testing.assert_allclose(taer.make_head(name, **params).fit(X, y).scores(X), expected, rtol=1e-4, atol=1e-4)
    assert failed
