"""The methods that the paper cites, each checked by hand against its own paper."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import entr
from scipy.stats import multivariate_normal
from sklearn.decomposition import FactorAnalysis

import taer
from taer.heads.descent import losses
from taer.heads.descent.base import DescentHead
from taer.heads.descent.loop import Samples, entropy_gradient
from taer.heads.embedding import Standardize
from taer.zoo.factor_analyzer import factor_analysis
from taer.zoo.rwalk import EPSILON
from taer.zoo.shared.adapter_network import Network, NetworkLoop, NetworkPlan
from taer.zoo.shared.consolidation import pulled_back
from tests.conftest import blobs, small_head
from tests.heads.test_objectives import learn, mean_cross_entropy, numerical_gradient
from tests.zoo.test_baselines import OLD, ONE_STEP, OneStep, columns, cross_entropy, softmax

STEPS = {**ONE_STEP, "epochs": 3, "init": "zero"}  # each epoch is one step on everything


@pytest.fixture
def near_tasks():
    """Overlapping classes, so that every step has an effect."""
    X, y = blobs(6, 40, width=5, spread=4.0)
    return [(X[np.isin(y, pair)], y[np.isin(y, pair)]) for pair in ([4, 1], [0, 5], [3, 2])]


def by_arrival(head, y):
    labels = [label for label, _ in head.learning_order_]
    return np.array([labels.index(label) for label in y])


# A penalty on weights that mattered


def test_the_implicit_step_minimizes_loss_and_penalty():
    """``g·W + Σ s (W - W*)² + |W - W_0|² / (2 lr)`` is least where the step goes."""
    rng = np.random.default_rng(0)
    anchor, start, gradient, strength = (rng.normal(size=(2, 3)) for _ in range(4))
    strength = np.square(strength)
    step, moved = pulled_back(anchor, strength), start.copy()
    step(moved, gradient, 0.3)

    def loss(W):
        return np.sum(gradient * W + strength * (W - anchor) ** 2 + (W - start) ** 2 / 0.6)

    np.testing.assert_allclose(numerical_gradient(loss, moved), 0, atol=1e-8)


class ByHand:
    """Three steps of a task as the paper writes them, the gradient by finite differences."""

    def __init__(self, start, X, y, strength):
        self.start, self.W, self.gradients, self.moves = start, start.copy(), [], []
        for _ in range(3):
            g = numerical_gradient(lambda W: mean_cross_entropy(W, X, y), self.W)
            pull = 2 * 0.3 * strength
            new = (self.W - 0.3 * g + pull * start) / (1 + pull)
            self.gradients.append(g)
            self.moves.append(new - self.W)
            self.W = new


def two_tasks(head, tasks, importance, after):
    """Follow two tasks step by step: ``importance()`` is the strength of the penalty, ``after`` updates it."""
    for number, (X, y) in enumerate(tasks[:2], start=1):
        start = np.zeros((2 * number, X.shape[1]))
        start[: 2 * number - 2] = head.weights_ if number > 1 else 0
        replayed = (head.memory_.X, head.memory_.y) if hasattr(head, "memory_") and len(head.memory_) else None
        head.partial_fit(X, y)
        target = by_arrival(head, y)
        if replayed is not None:
            X, target = np.concatenate([X, replayed[0]]), np.concatenate([target, replayed[1]])
        walk = ByHand(start, X, target, importance(start.shape))
        np.testing.assert_allclose(head.weights_, walk.W, atol=1e-7)
        after(walk)


def padded(values, shape):
    found = np.zeros(shape)
    found[: len(values)] = values
    return found


def test_si_follows_its_path(near_tasks):
    head, omega = taer.zoo.SI(**STEPS, c=2.0, xi=0.1), np.zeros((0, 5))

    def after(walk):
        nonlocal omega
        path = -sum(g * move for g, move in zip(walk.gradients, walk.moves, strict=True))
        omega = np.maximum(0, padded(omega, walk.W.shape) + path / ((walk.W - walk.start) ** 2 + 0.1))
        np.testing.assert_allclose(head.importance_, omega, rtol=1e-5, atol=1e-9)
        assert omega.max() > 0

    two_tasks(head, near_tasks, lambda shape: 2.0 * padded(omega, shape), after)


def test_rwalk_scores_its_path_and_keeps_the_fisher_information(near_tasks):
    head = taer.zoo.RWalk(**STEPS, strength=3.0, alpha=0.7, memory_size=10)
    fisher, score = np.zeros((0, 5)), np.zeros((0, 5))

    def scaled(values):
        return (values - values.min()) / (np.ptp(values) or 1)

    def after(walk):
        nonlocal fisher, score
        fisher, found = padded(fisher, walk.W.shape), np.zeros(walk.W.shape)
        for g, move in zip(walk.gradients, walk.moves, strict=True):
            fisher = 0.7 * g**2 + 0.3 * fisher
            found += np.maximum(0, -g * move / (0.5 * fisher * move**2 + EPSILON))
        score = found if len(score) == 0 else (padded(score, walk.W.shape) + found) / 2
        np.testing.assert_allclose(head.fisher_, fisher, rtol=1e-5, atol=1e-9)
        np.testing.assert_allclose(head.path_, score, rtol=1e-4, atol=1e-7)

    two_tasks(
        head, near_tasks, lambda shape: 3.0 * (scaled(padded(fisher, shape)) + scaled(padded(score, shape))), after
    )


def test_mas_importance_is_the_gradient_of_the_squared_outputs(near_tasks):
    torch = pytest.importorskip("torch")
    head, expected = taer.zoo.MAS(**STEPS), 0
    for X, y in near_tasks[:2]:
        head.partial_fit(X, y)
        grown = np.zeros(head.weights_.shape)
        for row in torch.tensor(X):
            W = torch.tensor(head.weights_, requires_grad=True)
            (W @ row).square().sum().backward()
            grown += np.abs(W.grad.numpy()) / len(X)
        expected = padded(expected, grown.shape) + grown if np.ndim(expected) else grown
        np.testing.assert_allclose(head.importance_, expected, rtol=1e-10)


def test_mas_follows_its_penalty(near_tasks):
    head = taer.zoo.MAS(**STEPS, strength=0.5)
    known = np.zeros((0, 5))

    def after(walk):
        nonlocal known
        known = head.importance_

    two_tasks(head, near_tasks, lambda shape: 0.5 * padded(known, shape), after)


@pytest.mark.parametrize("name", ["si", "mas", "rwalk"])
def test_a_huge_penalty_holds_what_mattered_and_none_is_plain_training(name, near_tasks):
    strength, memory = "c" if name == "si" else "strength", {"memory_size": 0} if name == "rwalk" else {}
    drift = {}
    for value in (0.0, 1e9):
        head = taer.make_head(name, **STEPS, **memory, **{strength: value}).partial_fit(*near_tasks[0])
        before = head.weights_.copy()
        weight = head.fisher_ + head.path_ if name == "rwalk" else head.importance_
        head.partial_fit(*near_tasks[1])
        drift[value] = float((weight * (head.weights_[:2] - before) ** 2).sum())
        if value == 0:
            plain = learn(taer.Finetune(**STEPS), near_tasks[:2])
            np.testing.assert_allclose(head.weights_, plain.weights_, atol=1e-12)
    assert drift[1e9] < drift[0.0] / 1e4


# Meta-experience replay


def mer_by_hand(W, batch, memory, lr, batches, beta, gamma):
    """Algorithm 1 of the paper by torch's optimizer, a step being one on a whole batch."""
    torch = pytest.importorskip("torch")
    layer = torch.nn.Linear(W.shape[1], W.shape[0], bias=False, dtype=torch.float64)
    layer.weight.data = torch.tensor(W)
    optimizer = torch.optim.SGD(layer.parameters(), lr)
    first = layer.weight.detach().clone()
    for _ in range(batches):
        start = layer.weight.detach().clone()
        for X, y in [memory, batch] if memory is not None else [batch]:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(layer(torch.tensor(X)), torch.tensor(y)).backward()
            optimizer.step()
        layer.weight.data = start + (layer.weight.data - start) * beta
    return (first + (layer.weight.data - first) * gamma).numpy()


@pytest.mark.parametrize(("batches", "beta", "gamma"), [(3, 0.4, 0.7), (1, 1.0, 0.3)])  # the latter is algorithm 6
def test_mer_takes_a_part_of_its_steps(batches, beta, gamma, near_tasks):
    params = {**ONE_STEP, "init": "zero", "memory_size": 1000, "replay_batch_size": 1000}
    head = taer.zoo.MER(**params, batches=batches, beta=beta, gamma=gamma)
    W, memory = np.zeros((0, 5)), None
    for X, y in near_tasks[:2]:
        head.partial_fit(X, y)
        W = padded(W, (len(W) + 2, 5))
        W = mer_by_hand(W, (X, by_arrival(head, y)), memory, 0.3, batches, beta, gamma)
        np.testing.assert_allclose(head.weights_, W, atol=1e-10)
        memory = head.memory_.X, head.memory_.y
    assert len(head.memory_) == 160


# Threshold moving


def threshold_loss(step, W):
    everything, target = np.concatenate([step.X, step.memory_X]), np.concatenate([step.y, step.memory_y])
    now, before = everything @ W.T, everything @ step.start[OLD].T
    p = softmax(before / 2)
    divergence = np.sum(p * (np.log(p) - np.log(softmax(now / 2)[:, OLD])), axis=1).mean()
    return cross_entropy(now, target).mean() + 0.6 * 4 * divergence


def test_threshold_moving_learns_its_objective():
    X, y = blobs(6, 60, spread=6.0)
    pairs = [(X[np.isin(y, pair)], y[np.isin(y, pair)]) for pair in ([4, 1], [0, 5])]
    step = OneStep("threshold-moving", pairs, epochs=2, alpha=0.6, memory_size=8)
    W = step.start
    for _ in range(2):
        W = W - 0.3 * numerical_gradient(lambda W: threshold_loss(step, W), W)
    np.testing.assert_allclose(columns(step.head), W, atol=1e-6)


def test_threshold_moving_step_is_torchs_gradient(tasks):
    torch = pytest.importorskip("torch")
    F = torch.nn.functional
    step = OneStep("threshold-moving", tasks, alpha=0.6, memory_size=8)
    X, y = torch.tensor(np.concatenate([step.X, step.memory_X])), np.concatenate([step.y, step.memory_y])
    W = torch.tensor(step.start, requires_grad=True)
    soft = torch.zeros(len(X), 4, dtype=torch.float64)
    soft[:, OLD] = F.softmax(X @ torch.tensor(step.start[OLD]).T / 2, 1)
    loss = F.cross_entropy(X @ W.T, torch.tensor(y))
    (loss + 0.6 * 4 * F.kl_div(F.log_softmax(X @ W.T / 2, 1), soft, reduction="batchmean")).backward()
    np.testing.assert_allclose(step.direction, W.grad.numpy(), atol=1e-10)


def test_threshold_moving_divides_by_what_was_taught(near_tasks):
    head = taer.zoo.ThresholdMoving(**STEPS, alpha=0.6, memory_size=10).partial_fit(*near_tasks[0])
    before, memory = head.weights_, head.memory_
    X, y = near_tasks[1]
    head.partial_fit(X, y)
    union = np.concatenate([X, memory.X])
    taught = np.bincount(np.concatenate([by_arrival(head, y), memory.y])).astype(float)
    taught[:2] += 0.6 * 4 * softmax(union @ before.T / 2).sum(axis=0)
    probabilities = softmax(union @ head.weights_.T) / taught
    expected = (probabilities / probabilities.sum(axis=1, keepdims=True))[:, head.arrival_]
    np.testing.assert_allclose(head.predict_proba(union), expected, atol=1e-12)


def test_threshold_moving_takes_the_bias_of_distillation_away():
    """A strong distillation favors old classes; the division undoes it."""
    X, y = blobs(6, 200, spread=3.0)
    head = taer.zoo.ThresholdMoving(alpha=3.0, memory_size=60, random_state=0)
    for pair in ([0, 1], [2, 3], [4, 5]):
        head.partial_fit(X[np.isin(y, pair)], y[np.isin(y, pair)])
    newest = np.isin(y, [4, 5])
    as_newest = np.isin(head.predict(X), [4, 5])[newest].mean()
    head.offsets_ = np.zeros(6)
    assert np.isin(head.predict(X), [4, 5])[newest].mean() < as_newest - 0.1


# Feature replay


def test_feature_replay_steps_on_its_draws(near_tasks, monkeypatch):
    head = taer.zoo.FeatureReplay(**ONE_STEP, init="zero", replay_batch_size=1000).partial_fit(*near_tasks[0])
    start = padded(head.weights_, (4, 5))
    rng = np.random.default_rng(1)
    drawn, target = rng.normal(size=(7, 5)), rng.integers(0, 2, 7)
    monkeypatch.setattr(taer.zoo.FeatureReplay, "_drawn", lambda *_: Samples(drawn, {"target": target}))
    X, y = near_tasks[1]
    head.partial_fit(X, y)
    expected = numerical_gradient(
        lambda W: mean_cross_entropy(W, X, by_arrival(head, y)) + mean_cross_entropy(W, drawn, target), start
    )
    np.testing.assert_allclose((start - head.weights_) / 0.3, expected, atol=1e-7)


def test_feature_replay_draws_from_the_gaussians_of_old_classes(near_tasks, monkeypatch):
    seen, drawn = [], taer.zoo.FeatureReplay._drawn
    monkeypatch.setattr(taer.zoo.FeatureReplay, "_drawn", lambda *a: seen.append(drawn(*a)) or seen[-1])
    head = learn(taer.zoo.FeatureReplay(random_state=0, draws=20_000), near_tasks[:2])
    X, y = near_tasks[0]
    rows, target = head.embedding_(X), by_arrival(head, y)
    (replay,) = seen
    within = rows - np.array([rows[target == c].mean(axis=0) for c in (0, 1)])[target]
    for c in (0, 1):
        draws = replay.X[replay.constants["target"] == c]
        assert len(draws) == 20_000
        np.testing.assert_allclose(draws.mean(axis=0), rows[target == c].mean(axis=0), atol=0.05)
        np.testing.assert_allclose(np.cov(draws.T), within.T @ within / (len(X) - 2), atol=0.05)


# Factor analyzers


def likelihood(covariance, loadings, noise):
    """Mean log-density of samples with this covariance about their mean, up to a constant."""
    model = loadings @ loadings.T + np.diag(noise)
    return -0.5 * (np.linalg.slogdet(model)[1] + np.trace(np.linalg.solve(model, covariance)))


@pytest.fixture
def factored():
    """Samples of a factor model: three directions in ten features, with unequal noise."""
    rng = np.random.default_rng(0)
    loadings, noise = rng.normal(size=(10, 3)), rng.uniform(0.1, 2, 10)
    return rng.normal(size=(500, 3)) @ loadings.T + rng.normal(size=(500, 10)) * np.sqrt(noise) + 4


def test_em_of_a_factor_analyzer_never_loses_likelihood_and_ends_where_sklearns_does(factored):
    covariance = np.cov(factored.T, bias=True)
    found = [likelihood(covariance, *factor_analysis(covariance, 3, steps)) for steps in (1, 2, 4, 8, 16, 500)]
    assert (np.diff(found) > 0).all()
    other = FactorAnalysis(3, tol=1e-8, max_iter=5000).fit(factored)
    assert found[-1] == pytest.approx(likelihood(covariance, other.components_.T, other.noise_variance_), abs=1e-4)


def test_the_score_of_a_factor_analyzer_is_its_log_density(factored):
    y = np.repeat([0, 1], 250)
    X = factored + y[:, None]
    head = taer.zoo.FactorAnalyzer(factors=3, normalize="none", shrinkage=0.05, random_state=0).fit(X, y)
    expected = []
    for c in (0, 1):
        covariance = np.cov(X[y == c].T, bias=True)
        covariance = 0.95 * covariance + 0.05 * np.trace(covariance) / 10 * np.eye(10)
        loadings, noise = factor_analysis(covariance, 3, head.iterations)
        expected.append(
            multivariate_normal(X[y == c].mean(axis=0), loadings @ loadings.T + np.diag(noise)).logpdf(X)
        )
    constant = 5 * np.log(2 * np.pi)
    np.testing.assert_allclose(head.scores(X), np.array(expected).T + constant, rtol=1e-8)


def test_more_factors_than_features_are_all_of_them(tasks):
    head = learn(taer.zoo.FactorAnalyzer(factors=99), tasks)
    assert head.factors_.shape == (6, 12, 12)
    head.set_params(factors=3).partial_fit(*tasks[0])  # fixed by the first task
    assert head.factors_.shape == (6, 12, 12)


# The entropy of CPR

WITH_ENTROPY = [name for name in taer.HEADS if "entropy" in taer.make_head(name).get_params()]
SPREAD = [name for name in WITH_ENTROPY if issubclass(taer.HEADS[name], DescentHead)]


def test_every_head_learned_by_sgd_has_the_entropy_except_sigmoids():
    learned = [name for name in taer.HEADS if "epochs" in taer.make_head(name).get_params()]
    assert sorted({*learned} - {*WITH_ENTROPY}) == ["icarl"]


def test_entropy_gradient_against_finite_differences():
    rng = np.random.default_rng(0)
    scores, weight = 3 * rng.normal(size=(4, 5)), rng.random(4)

    def loss(scores):
        return -np.sum(weight * entr(softmax(scores)).sum(axis=1))

    expected = numerical_gradient(loss, scores)
    np.testing.assert_allclose(entropy_gradient(scores, weight), expected, atol=1e-8)
    # the last three classes as one column, and the entropy among them
    together = np.column_stack([scores[:, :2], np.logaddexp.reduce(scores[:, 2:], axis=1)])
    inside = entr(softmax(scores[:, 2:])).sum(axis=1)
    np.testing.assert_allclose(entropy_gradient(together, weight, inside)[:, :2], expected[:, :2], atol=1e-8)


@pytest.mark.parametrize("name", [name for name in WITH_ENTROPY if name not in SPREAD])
def test_an_adapter_with_entropy_is_less_sure(name):
    X, y = blobs(6, 40, spread=2.0)
    plain, spread = (small_head(name, random_state=0, entropy=beta).fit(X, y) for beta in (0.0, 0.5))
    entropies = [entr(head.predict_proba(X)).sum(axis=1).mean() for head in (plain, spread)]
    assert entropies[1] > 1.2 * entropies[0]
    assert spread.score(X, y) > 0.5


def test_a_step_of_a_network_takes_the_entropy_off_the_loss():
    """Only of the columns that predict; the last one is auxiliary."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(8, 5)), rng.integers(0, 3, 8)
    hidden, outgoing, moved = rng.normal(size=(6, 5)), rng.normal(size=(4, 6)), []
    for beta in (0.0, 0.4):
        as_they_are = Standardize(np.zeros(5), np.ones(5), "float64")
        loop = NetworkLoop(as_they_are, np.random.default_rng(0), 0.3, 1, 8, "keep", beta)
        network = Network(hidden.copy(), outgoing.copy(), np.ones(6))
        loop.train(network, NetworkPlan(Samples(X, {"target": y}), losses.cross_entropy, answering=3))
        moved.append(network)

    def lost(W, A):
        scores = np.maximum(X @ A.T, 0) @ W[:3].T
        return -0.4 * entr(softmax(scores)).sum(axis=1).mean()

    for name, start, loss in (
        ("columns", outgoing, lambda W: lost(W, hidden)),
        ("hidden", hidden, lambda A: lost(outgoing, A)),
    ):
        step = (getattr(moved[0], name) - getattr(moved[1], name)) / 0.3
        np.testing.assert_allclose(step, numerical_gradient(loss, start), atol=1e-6)


@pytest.mark.parametrize("name", SPREAD)
def test_the_entropy_is_taken_off_the_loss(name, near_tasks):
    """The first step with it, less that without it, is the gradient of the entropy."""
    X, y = near_tasks[0]
    params = {k: v for k, v in STEPS.items() if k != "init"} | {"epochs": 1}
    params |= {"momentum": 0.0, "weight_decay": 0.0} if name == "ucir" else {"init": "mean"}
    params |= {"batches": 1, "beta": 1.0} if name == "mer" else {}
    params |= {"memory_size": 1000} if name == "gdumb" else {}
    plain, spread = (taer.make_head(name, **params, entropy=beta).partial_fit(X, y) for beta in (0.0, 0.4))
    if name == "ucir":
        bound = 1 / np.sqrt(5)
        start = np.random.default_rng(0).uniform(-bound, bound, (2, 5))
        unit = lambda rows: rows / np.linalg.norm(rows, axis=1, keepdims=True)  # noqa: E731
        scores = lambda W: unit(X) @ unit(W).T  # noqa: E731
    else:
        start = np.array([X[by_arrival(plain, y) == c].mean(axis=0) for c in (0, 1)])
        scores = lambda W: X @ W.T  # noqa: E731
    expected = numerical_gradient(lambda W: -0.4 * entr(softmax(scores(W))).sum(axis=1).mean(), start)
    assert np.abs(expected).max() > 1e-3
    np.testing.assert_allclose((plain.weights_ - spread.weights_) / 0.3, expected, atol=1e-6)


@pytest.mark.parametrize("name", ["taer", "er-fixed"])
def test_the_entropy_of_resting_classes_counts(name, near_tasks):
    """The form with one column for all old classes equals the one with all columns."""
    params = {"epochs": 2, "memory_size": 30, "standardize": "none", "entropy": 0.7, "lr": 0.05, "random_state": 0}
    head = learn(taer.make_head(name, **params), near_tasks[:2])
    start, (X, y) = padded(head.weights_, (6, 5)), near_tasks[2]
    head.set_params(epochs=1, batch_size=1000, replay_batch_size=1000, init="zero")
    replayed, target = head.memory_.X, head.memory_.y
    head.partial_fit(X, y)
    weights = (1 / 3, 2 / 3) if name == "taer" else (1.0, 1.0)

    def loss(new):
        W = np.concatenate([start[:4], new])
        parts = ((X, by_arrival(head, y)), (replayed, target))
        return sum(
            w * (mean_cross_entropy(W, rows, c) - 0.7 * entr(softmax(rows @ W.T)).sum(axis=1).mean())
            for w, (rows, c) in zip(weights, parts, strict=True)
        )

    np.testing.assert_allclose(
        (start[4:] - head.weights_[4:]) / 0.05, numerical_gradient(loss, start[4:]), atol=1e-6
    )


def test_bic_takes_the_entropy_of_corrected_scores(near_tasks, monkeypatch):
    monkeypatch.setattr(taer.zoo.BiC, "_hold_out", lambda *_: np.empty(0, np.int64))
    found = []
    for beta in (0.0, 0.4):
        head = taer.zoo.BiC(**{**STEPS, "epochs": 1}, entropy=beta, memory_size=10).partial_fit(*near_tasks[0])
        head.offsets_ = np.array([0.5, -1.0])
        if beta == 0:
            start = padded(head.weights_, (4, 5))
        head.weights_ = start[:2]
        memory = head.memory_
        found.append(head.partial_fit(*near_tasks[1]).weights_)
    union = np.concatenate([near_tasks[1][0], memory.X])

    def loss(W):
        return -0.4 * entr(softmax(union @ W.T + np.array([0.5, -1.0, 0, 0]))).sum(axis=1).mean()

    np.testing.assert_allclose((found[0] - found[1]) / 0.3, numerical_gradient(loss, start), atol=1e-6)


@pytest.mark.parametrize(
    ("name", "bad", "message"),
    [
        ("si", {"c": -1}, "c must be a number, 0 or more"),
        ("si", {"xi": 0}, "xi must be a number above 0"),
        ("mas", {"strength": -1}, "strength must be a number, 0 or more"),
        ("rwalk", {"alpha": 0}, "alpha must be a number above 0"),
        ("mer", {"beta": 0}, "beta must be a number above 0"),
        ("mer", {"batches": 0}, "batches must be a whole number, 1 or more"),
        ("threshold-moving", {"alpha": -1}, "alpha must be a number, 0 or more"),
        ("feature-replay", {"draws": 0}, "draws must be a whole number, 1 or more"),
        ("factor-analyzer", {"factors": 0}, "factors must be a whole number, 1 or more"),
        ("taer", {"entropy": -0.1}, "entropy must be a number, 0 or more"),
    ],
)
def test_bad_parameters_are_named(name, bad, message, tasks):
    with pytest.raises(ValueError, match=message):
        taer.make_head(name, **bad).partial_fit(*tasks[0])
