"""Each baseline's objective against finite differences and torch, and consequences of frozen features."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax as scipy_softmax

import taer
from taer.heads.descent.losses import Blocks
from taer.heads.numerics import log_sum_exp
from taer.zoo.bic import fit_correction
from taer.zoo.oewc import fisher_sum
from tests.conftest import blobs, heads_with
from tests.heads.test_objectives import learn, numerical_gradient

ONE_STEP = {"lr": 0.3, "epochs": 1, "batch_size": 1000, "standardize": "none", "random_state": 0}
CLASSES = [0, 1, 4, 5]
OLD, NEW = np.array([1, 2]), np.array([0, 3])  # positions of classes 1, 4 (first task) and 0, 5 (second)


def softmax(scores):
    return scipy_softmax(scores, axis=-1)


def columns(head):
    """In the order of ``classes_``."""
    return head.weights_[head.arrival_]


def cross_entropy(scores, target):
    return log_sum_exp(scores) - scores[np.arange(len(scores)), target]


def distillation(scores, before, temperature=2.0):
    """Mean over samples of the KL divergence between softened outputs."""
    p = softmax(before / temperature)
    q = scores / temperature
    return np.mean(np.sum(p * (np.log(p) - q + log_sum_exp(q)[:, None]), axis=1))


class OneStep:
    """The second task of a head as one full-batch step, with the columns before and after."""

    def __init__(self, name, tasks, init="zero", epochs=1, **params):
        self.head = taer.make_head(name.partition(",")[0], **{**ONE_STEP, "epochs": epochs}, init=init, **params)
        if "replay_batch_size" in self.head.get_params():
            self.head.set_params(replay_batch_size=1000)
        self.head.partial_fit(*tasks[0])
        self.start = np.zeros((4, 12))
        self.start[OLD] = columns(self.head)
        memory = getattr(self.head, "memory_", None)
        if memory is not None:
            self.memory_X, self.memory_y = memory.X.copy(), OLD[memory.y]
            if "logits" in memory.extra:  # were they those of the head, their term would start without a gradient
                memory.extra["logits"] = memory.extra["logits"] + np.random.default_rng(0).normal(
                    size=(len(memory), 2)
                )
            self.logits = memory.extra.get("logits")
        self.X, self.y = tasks[1][0], np.searchsorted(CLASSES, tasks[1][1])
        self.head.partial_fit(*tasks[1])
        self.direction = (self.start - columns(self.head)) / 0.3

    def scores(self, W, X=None):
        return (self.X if X is None else X) @ W.T


def ssil_loss(step, W):
    current, replayed = step.scores(W), step.scores(W, step.memory_X)
    n = len(current) + len(replayed)
    own = cross_entropy(current[:, NEW], np.searchsorted(NEW, step.y)).sum()
    past = cross_entropy(replayed[:, OLD], np.searchsorted(OLD, step.memory_y)).sum()
    everything = np.concatenate([step.X, step.memory_X])
    now, before = (step.scores(weights, everything)[:, OLD] for weights in (W, step.start))
    return (own + past) / n + 4 * distillation(now, before)


def lwf_loss(step, W):
    now, before = step.scores(W), step.scores(step.start)
    own = cross_entropy(now[:, NEW], np.searchsorted(NEW, step.y)).mean()
    return own + distillation(now[:, OLD], before[:, OLD])


def all_logits(step):
    """Those stored in the first task, and zero for the classes of the second."""
    found = np.zeros((len(step.logits), 4))
    found[:, OLD] = step.logits
    return found


def derpp_loss(step, W):
    replayed = step.scores(W, step.memory_X)
    if step.head.unseen_logits == "ignore":
        by_logits = np.mean((replayed[:, OLD] - step.logits) ** 2)
    else:
        by_logits = np.mean((replayed - all_logits(step)) ** 2)
    current = cross_entropy(step.scores(W), step.y).mean()
    return current + 0.2 * by_logits + 0.7 * cross_entropy(replayed, step.memory_y).mean()


def eeil_loss(step, W):
    everything, target = np.concatenate([step.X, step.memory_X]), np.concatenate([step.y, step.memory_y])
    now, before = step.scores(W, everything), step.scores(step.start, everything)
    return cross_entropy(now, target).mean() + distillation(now[:, OLD], before[:, OLD])


def icarl_loss(step, W):
    everything, target = np.concatenate([step.X, step.memory_X]), np.concatenate([step.y, step.memory_y])
    now, before = step.scores(W, everything), step.scores(step.start, everything)
    wanted = np.zeros_like(now)
    wanted[np.arange(len(now)), target] = 1
    wanted[:, OLD] = 1 / (1 + np.exp(-before[:, OLD]))
    return np.mean(np.logaddexp(0, now) - wanted * now)


def bic_loss(step, W):
    everything, target = np.concatenate([step.X, step.memory_X]), np.concatenate([step.y, step.memory_y])
    now, before = step.scores(W, everything), step.scores(step.start, everything)
    return cross_entropy(now, target).mean() / 2 + distillation(now[:, OLD], before[:, OLD]) / 2


OBJECTIVES = {
    "bic": (bic_loss, {"memory_size": 8}),
    "ssil": (ssil_loss, {"lr_decay_per_task": False, "memory_size": 8}),
    "lwf": (lwf_loss, {}),
    "derpp": (derpp_loss, {"alpha": 0.2, "beta": 0.7, "memory_size": 8}),
    "derpp, ignore": (derpp_loss, {"alpha": 0.2, "beta": 0.7, "memory_size": 8, "unseen_logits": "ignore"}),
    "eeil": (eeil_loss, {"memory_size": 8, "balanced_epochs": 0}),
    "icarl": (icarl_loss, {"memory_size": 8}),
}


@pytest.mark.parametrize("init", ["zero", "mean"])
@pytest.mark.parametrize("name", list(OBJECTIVES))
def test_one_step_is_the_gradient_of_the_objective(name, init, tasks, monkeypatch):
    monkeypatch.setattr(taer.zoo.BiC, "_hold_out", lambda *_: np.empty(0, np.int64))
    loss, params = OBJECTIVES[name]
    step = OneStep(name, tasks, init, **params)
    if init == "mean":
        step.start[NEW] = [step.X[step.y == c].mean(axis=0) for c in NEW]
        step.direction = (step.start - columns(step.head)) / 0.3
    expected = numerical_gradient(lambda W: loss(step, W), step.start)
    if name == "icarl":
        np.testing.assert_allclose(expected[OLD], 0, atol=1e-8)  # the targets of old classes are met already
    np.testing.assert_allclose(step.direction, expected, atol=1e-6)


@pytest.mark.parametrize("name", list(OBJECTIVES))
def test_two_steps_follow_the_objective(name, biased_tasks, monkeypatch):
    """Distillation has no gradient before the first step, and one after it."""
    monkeypatch.setattr(taer.zoo.BiC, "_hold_out", lambda *_: np.empty(0, np.int64))  # everything is learned from
    loss, params = OBJECTIVES[name]
    step = OneStep(name, biased_tasks, epochs=2, **params)
    W = step.start
    for _ in range(2):
        W = W - 0.3 * numerical_gradient(lambda W: loss(step, W), W)
    np.testing.assert_allclose(columns(step.head), W, atol=1e-6)


def torch_losses(torch):
    """The same objectives by torch's own functions."""
    F = torch.nn.functional

    def kd(now, before):
        return F.kl_div(F.log_softmax(now / 2, 1), F.softmax(before / 2, 1), reduction="batchmean")

    def ssil(step, W, X, y, mX, my, W0):
        n = len(X) + len(mX)
        own = F.cross_entropy((X @ W.T)[:, NEW], torch.tensor(np.searchsorted(NEW, y)), reduction="sum")
        past = F.cross_entropy((mX @ W.T)[:, OLD], torch.tensor(np.searchsorted(OLD, my)), reduction="sum")
        both = torch.cat([X, mX])
        return (own + past) / n + 4 * kd((both @ W.T)[:, OLD], (both @ W0.T)[:, OLD])

    def derpp(step, W, X, y, mX, my, W0):
        current = F.cross_entropy(X @ W.T, torch.tensor(y))
        return (current + 0.2 * F.mse_loss(mX @ W.T, torch.tensor(all_logits(step)))
                + 0.7 * F.cross_entropy(mX @ W.T, torch.tensor(my)))  # fmt: skip

    def eeil(step, W, X, y, mX, my, W0):
        both, target = torch.cat([X, mX]), torch.tensor(np.concatenate([y, my]))
        return F.cross_entropy(both @ W.T, target) + kd((both @ W.T)[:, OLD], (both @ W0.T)[:, OLD])

    return {"ssil": ssil, "derpp": derpp, "eeil": eeil}


@pytest.mark.parametrize("name", ["ssil", "derpp", "eeil"])
def test_one_step_is_torchs_gradient(name, tasks):
    torch = pytest.importorskip("torch")
    step = OneStep(name, tasks, **OBJECTIVES[name][1])
    W = torch.tensor(step.start, requires_grad=True)
    arrays = torch.tensor(step.X), step.y, torch.tensor(step.memory_X), step.memory_y, torch.tensor(step.start)
    torch_losses(torch)[name](step, W, *arrays).backward()
    np.testing.assert_allclose(step.direction, W.grad.numpy(), atol=1e-10)


def test_gss_steps_on_the_mean_of_both_batches(tasks):
    """In the first task every batch except the first is combined with samples from the memory."""
    X, y = tasks[0]
    head = taer.zoo.GSS(**{**ONE_STEP, "batch_size": 40}, init="zero", memory_size=100, replay_batch_size=1000)
    head.partial_fit(X, y)
    order = np.random.default_rng(0).permutation(len(X))
    first, second = order[:40], order[40:]
    target, W = np.searchsorted([1, 4], y), np.zeros((2, 12))
    for rows in (first, np.concatenate([second, first])):
        residuals = softmax(X[rows] @ W.T)
        residuals[np.arange(len(rows)), target[rows]] -= 1
        W -= 0.3 * residuals.T @ X[rows] / len(rows)
    np.testing.assert_allclose(head.coef_, W, atol=1e-12)
    assert len(head.memory_) == 80


def ucir_loss(head, rows, eta, moving, h, target, k=2):
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    cosines = (h / np.linalg.norm(h, axis=1, keepdims=True)) @ unit.T
    loss = cross_entropy(eta * cosines, target).mean()
    replayed = np.flatnonzero(np.isin(target, OLD))
    if len(replayed):
        nearest = np.sort(cosines[np.ix_(replayed, moving)], axis=1)[:, ::-1][:, :k]
        loss += np.maximum(0, 0.5 - cosines[replayed, target[replayed]][:, None] + nearest).mean()
    return loss


def test_ucir_step_is_the_gradient_of_its_loss(tasks):
    rates = {"lr": 0.05, "epochs": 1, "batch_size": 1000, "standardize": "none", "random_state": 0}
    head = taer.zoo.UCIR(**rates, momentum=0.9, weight_decay=0.01, memory_size=8).partial_fit(*tasks[0])
    old, eta, memory = columns(head), head.eta_, head.memory_
    X, y = tasks[1][0], np.searchsorted(CLASSES, tasks[1][1])
    h, target = np.concatenate([X, memory.X]), np.concatenate([y, OLD[memory.y]])
    start = np.zeros((4, 12))
    start[OLD] = old
    for position in NEW:
        members = X[y == position] / np.linalg.norm(X[y == position], axis=1, keepdims=True)
        mean = members.mean(axis=0)
        start[position] = mean / np.linalg.norm(mean) * np.linalg.norm(old, axis=1).mean()
    head.partial_fit(*tasks[1])

    def by_rows(new):
        rows = start.copy()
        rows[NEW] = new
        decay = 0.005 * np.square(new).sum()
        return ucir_loss(head, rows, eta, NEW, h, target) + decay

    expected = numerical_gradient(by_rows, start[NEW])
    np.testing.assert_allclose((start[NEW] - columns(head)[NEW]) / 0.05, expected, atol=1e-6)
    np.testing.assert_array_equal(columns(head)[OLD], old)
    by_eta = numerical_gradient(lambda e: ucir_loss(head, start, e[0], NEW, h, target) + 0.005 * e[0] ** 2,
                                np.array([eta]))  # fmt: skip
    assert (eta - head.eta_) / 0.05 == pytest.approx(by_eta[0], abs=1e-6)


def test_ucir_less_forget_term_is_zero_on_frozen_features(tasks):
    """``1 - cos(feature now, feature before)``: the extractor is frozen, so both are the same vector."""
    head = taer.zoo.UCIR(random_state=0).partial_fit(*tasks[0])
    before = head.embedding_(tasks[0][0])
    now = head.partial_fit(*tasks[1]).embedding_(tasks[0][0])
    cosine = (now * before).sum(1) / np.linalg.norm(now, axis=1) / np.linalg.norm(before, axis=1)
    np.testing.assert_allclose(1 - cosine, 0, atol=1e-12)


def test_ucir_margin_needs_enough_new_classes(tasks):
    with pytest.raises(ValueError, match="k must be 1 … 2, the classes of the task, got 3"):
        taer.zoo.UCIR(k=3).partial_fit(*tasks[0])
    taer.zoo.UCIR(k=2).partial_fit(*tasks[0])


@pytest.mark.parametrize("name", ["ucir", "icarl"])
def test_old_columns_rest(name, tasks):
    head = taer.make_head(name, random_state=0)
    kept: dict[int, bytes] = {}
    for X, y in tasks:
        head.partial_fit(X, y)
        for label, row in zip(head.classes_, columns(head), strict=True):
            assert kept.setdefault(label, row.tobytes()) == row.tobytes()


def test_ssil_new_block_ignores_what_the_memory_holds(tasks):
    head, other = (learn(taer.zoo.SSIL(random_state=0), tasks[:2]) for _ in range(2))
    other.memory_.X = other.memory_.X + 5
    other.memory_.y = np.random.default_rng(1).permutation(other.memory_.y)
    for each in (head, other):
        each.partial_fit(*tasks[2])
    new = np.isin(head.classes_, [2, 3])
    np.testing.assert_array_equal(head.coef_[new], other.coef_[new])
    assert (head.coef_[~new] != other.coef_[~new]).any()


def test_ssil_learning_rate_decays_with_the_task(tasks):
    step = OneStep("ssil", tasks, memory_size=8, lr_decay_per_task=True)
    steady = OneStep("ssil", tasks, memory_size=8, lr_decay_per_task=False)
    np.testing.assert_allclose(2 * step.direction, steady.direction, atol=1e-9)


def test_icarl_nearest_mean_does_not_depend_on_the_head(tasks):
    X = np.concatenate([X for X, _ in tasks])
    weak, strong = (learn(taer.zoo.ICaRL(lr=lr, random_state=0), tasks) for lr in (1e-9, 5.0))
    np.testing.assert_array_equal(weak.decision_function(X), strong.decision_function(X))
    assert (columns(weak) != columns(strong)).any()
    head = strong.set_params(inference="head")
    np.testing.assert_allclose(head.decision_function(X), head.embedding_(X) @ columns(head).T)


def test_icarl_answers_by_the_nearest_mean_of_exemplars(tasks):
    head = learn(taer.zoo.ICaRL(memory_size=18, standardize="none", random_state=0), tasks)
    X, labels = tasks[0][0], np.array([label for label, _ in head.learning_order_])
    unit = lambda rows: rows / np.linalg.norm(rows, axis=-1, keepdims=True)  # noqa: E731
    means = {c: unit(unit(head.memory_.X[labels[head.memory_.y] == c]).mean(0)) for c in head.classes_}
    by_hand = [min(means, key=lambda c: np.linalg.norm(h - means[c])) for h in unit(X)]
    assert head.predict(X).tolist() == by_hand


@pytest.mark.parametrize("policy", ["greedy", "reservoir", "herding", "gss"])
@pytest.mark.parametrize("name", heads_with(keeps="exemplars"))
def test_any_memory_policy_serves_any_replay_head(name, policy, tasks):
    head = learn(taer.make_head(name, memory=policy, memory_size=30, random_state=0), tasks)
    assert len(head.memory_) == 30
    X, y = np.concatenate([X for X, _ in tasks]), np.concatenate([y for _, y in tasks])
    # A gradient-based memory is not balanced: GDumb and iCaRL have nothing else, BiC corrects its scores by it, and
    # DER trains its columns on it again.
    if policy != "gss" or name not in ("gdumb", "icarl", "bic", "der-adapter"):
        assert head.score(X, y) > 0.6
    labels = np.array([label for label, _ in head.learning_order_])[head.memory_.y]
    rows = [np.flatnonzero((row == X).all(axis=1))[0] for row in head.memory_.X]
    np.testing.assert_array_equal(y[rows], labels)  # stored rows keep their labels


def test_fisher_information_is_one_product():
    rng = np.random.default_rng(0)
    h, p, y = rng.normal(size=(9, 5)), softmax(rng.normal(size=(9, 4))), rng.integers(0, 4, 9)
    expected = np.zeros((4, 5))
    for i in range(9):
        gradient = np.outer(p[i] - np.eye(4)[y[i]], h[i])
        expected += p[i, y[i]] * gradient**2
    np.testing.assert_allclose(fisher_sum(h, p, y), expected)


def test_derpp_stores_the_logits_of_the_moment(tasks):
    head = taer.zoo.DERPP(memory_size=12, random_state=0).partial_fit(*tasks[0])
    np.testing.assert_allclose(head.memory_.extra["logits"], head.scores(head.memory_.X))
    stored = {
        row.tobytes(): logits for row, logits in zip(head.memory_.X, head.memory_.extra["logits"], strict=True)
    }
    head.partial_fit(*tasks[1])
    for row, logits in zip(head.memory_.X, head.memory_.extra["logits"], strict=True):
        if row.tobytes() in stored:  # never refreshed, nothing known of later classes
            np.testing.assert_array_equal(logits[:2], stored[row.tobytes()])
            assert np.isnan(logits[2:]).all()
        else:
            assert np.isfinite(logits).all()


LEARNED_BY_SGD = [name for name in taer.HEADS if "last_batch" in taer.make_head(name).get_params()]


def columns_after(name, **params):
    X, y = blobs(2, 40, spread=5.0)  # so near to each other that every step counts
    head = taer.make_head(name, epochs=1, standardize="none", random_state=0, **params)
    if name == "ucir":
        head.set_params(momentum=0.0)
    if name == "fas-adapter":  # whose second member starts where the first one ended
        head.set_params(members=1)
    if name == "den-adapter":  # whose threshold is not linear in the step
        head.set_params(l1=0.0)
    head.partial_fit(X, y)
    return columns(head)


def test_every_head_learned_by_sgd_has_a_last_batch():
    assert [name for name in taer.HEADS if "epochs" in taer.make_head(name).get_params()] == LEARNED_BY_SGD


@pytest.mark.parametrize("name", LEARNED_BY_SGD)
def test_the_last_smaller_batch_is_kept_dropped_or_weighed(name):
    """80 samples in batches of 64: the second step is whole, none, or a quarter."""
    kept, dropped, weighed = (
        columns_after(name, batch_size=64, last_batch=last) for last in ("keep", "drop", "weigh")
    )
    assert np.abs(kept - dropped).max() > 1e-4
    np.testing.assert_allclose(weighed, dropped + (kept - dropped) / 4, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", LEARNED_BY_SGD)
def test_the_only_batch_of_an_epoch_is_a_whole_step(name):
    kept, dropped, weighed = (
        columns_after(name, batch_size=1000, last_batch=last) for last in ("keep", "drop", "weigh")
    )
    np.testing.assert_array_equal(kept, dropped)
    np.testing.assert_array_equal(kept, weighed)


def test_learning_that_diverges_is_said_and_undone(tasks):
    head = taer.zoo.DERPP(standardize="none", random_state=0).partial_fit(*tasks[0])
    before = head.coef_.copy()
    head.set_params(alpha=1e15)
    with pytest.raises(ValueError, match=r"learning diverged; a smaller lr \(it is 0.03\) helps"):
        head.partial_fit(*tasks[1])
    np.testing.assert_array_equal(head.coef_, before)
    assert head.classes_.tolist() == [1, 4]


def test_block_softmax_is_a_softmax_in_each_block():
    scores = np.random.default_rng(0).normal(size=(5, 6)) * 50
    blocks = Blocks([np.array([4, 1]), np.empty(0, int), np.array([0, 2, 5])])
    found = blocks.softmax(scores)
    np.testing.assert_allclose(found[:, :2], softmax(scores[:, [4, 1]]))
    np.testing.assert_allclose(found[:, 2:], softmax(scores[:, [0, 2, 5]]))


def test_bias_correction_undoes_a_known_bias():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(4000, 4)) * 2
    target = np.array([rng.choice(4, p=p) for p in softmax(scores)])
    biased = scores.copy()
    biased[:, 2:] = scores[:, 2:] * 2 + 3
    alpha, beta = fit_correction(biased, target, np.array([2, 3]))
    assert alpha == pytest.approx(0.5, abs=0.05)
    assert beta == pytest.approx(-1.5, abs=0.15)


def answers_for_the_last_task(head, tasks):
    """Fraction of samples of earlier tasks that are predicted as the last task."""
    learn(head, tasks)
    X = np.concatenate([X for X, _ in tasks[:-1]])
    return np.isin(head.predict(X), tasks[-1][1]).mean()


@pytest.fixture
def biased_tasks():
    """With overlapping classes and a small memory, plain replay is biased towards the last task."""
    X, y = blobs(6, 300, spread=6.0)
    return [(X[np.isin(y, pair)], y[np.isin(y, pair)]) for pair in ([4, 1], [0, 5], [3, 2])]


def test_ewc_penalty_holds_weights_and_is_stable_when_huge(biased_tasks):
    drift = {}
    for strength in (0.0, 10.0, 1e9):
        head = taer.zoo.OnlineEWC(e_lambda=strength, standardize="none", random_state=0).partial_fit(
            *biased_tasks[0]
        )
        before, fisher = head.coef_.copy(), head.fisher_.copy()
        head.partial_fit(*biased_tasks[1])
        assert np.isfinite(head.coef_).all()
        drift[strength] = float((fisher * (head.coef_[OLD] - before) ** 2).sum())
    assert drift[1e9] < drift[10.0] / 10 < drift[0.0] / 100
    finetuned = learn(taer.Finetune(standardize="none", random_state=0), biased_tasks[:2])
    free = learn(taer.zoo.OnlineEWC(e_lambda=0, lr=0.1, standardize="none", random_state=0), biased_tasks[:2])
    np.testing.assert_allclose(free.coef_, finetuned.coef_, atol=1e-12)


def test_balanced_finetuning_takes_bias_away(biased_tasks):
    params = {"memory_size": 120, "random_state": 0}
    before = answers_for_the_last_task(taer.zoo.EEIL(**params, balanced_epochs=0), biased_tasks)
    after = answers_for_the_last_task(taer.zoo.EEIL(**params, balanced_epochs=30), biased_tasks)
    assert after < before - 0.05


def test_bias_correction_takes_bias_away(biased_tasks, monkeypatch):
    params = {"memory_size": 100, "random_state": 0}
    after = answers_for_the_last_task(taer.zoo.BiC(**params), biased_tasks)
    monkeypatch.setattr("taer.zoo.bic.fit_correction", lambda *_: (1.0, 0.0))
    before = answers_for_the_last_task(taer.zoo.BiC(**params), biased_tasks)
    assert after < before - 0.05


def test_gdumb_knows_nothing_but_its_memory(tasks):
    head = learn(taer.zoo.GDumb(memory_size=12, random_state=0), tasks)
    copy = taer.zoo.GDumb(memory_size=12, random_state=0)
    learn(copy, tasks[:2])
    copy.weights_ = copy.weights_ + 1e3  # whatever was learned before is thrown away
    copy.partial_fit(*tasks[2])
    np.testing.assert_array_equal(head.coef_, copy.coef_)


@pytest.mark.parametrize(
    ("name", "bad", "message"),
    [
        ("derpp", {"alpha": -0.1}, "alpha must be a number, 0 or more"),
        ("derpp", {"beta": -1}, "beta must be a number, 0 or more"),
        ("oewc", {"e_lambda": -1}, "e_lambda must be a number, 0 or more"),
        ("ucir", {"momentum": -0.5}, "momentum must be a number, 0 or more"),
        ("icarl", {"memory_size": 0}, "memory_size must be a whole number, 1 or more"),
        ("icarl", {"memory": "random"}, "memory must be one of"),
        ("icarl", {"inference": "both"}, "inference must be one of"),
        ("gdumb", {"memory_size": 0}, "memory_size must be a whole number, 1 or more"),
        ("bic", {"held_out": 1.0}, "held_out must be a number above 0 and below 1"),
        ("eeil", {"balanced_epochs": -1}, "balanced_epochs must be a whole number, 0 or more"),
        ("er", {"memory": "lifo"}, "memory must be one of 'greedy', 'reservoir', 'herding', 'gss'"),
        ("ssil", {"lr_decay_per_task": 2}, "lr_decay_per_task must be True or False"),
    ],
)
def test_bad_parameters_are_named(name, bad, message, tasks):
    with pytest.raises(ValueError, match=message):
        taer.make_head(name, **bad).partial_fit(*tasks[0])


def test_bic_does_not_silence_a_class_of_one_sample(tasks):
    """The correction would be fitted on samples among which that class has none."""
    X, y = tasks[2]
    rows = X[y == 2]
    head = learn(taer.zoo.BiC(random_state=0), tasks[:2]).partial_fit(rows[:1], [2])
    assert (head.predict(rows) == 2).mean() > 0.9
