"""The adapters: gradients, and facts from each paper that can be checked by hand."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from scipy.special import entr, expit, log_softmax, softmax

import taer
from taer.experiment import Run, execute, summarize
from taer.heads.base import Task
from taer.heads.descent.losses import margin_gradient
from taer.heads.embedding import unit_rows
from taer.stream import class_stream
from taer.zoo.den_adapter import split, thresholded
from taer.zoo.fas_adapter import by_atoms, mixed
from taer.zoo.hat_adapter import annealed, compensation
from taer.zoo.shared.adapter_branches import Branches
from taer.zoo.shared.adapter_network import Network, shrunk, units_of
from tests.conftest import heads_with
from tests.heads.test_objectives import learn, numerical_gradient

torch = pytest.importorskip("torch")

# A task is one step on all of its samples, whose gradient is what was learned.
LR = 0.3
ONE_STEP = {"width": 6, "lr": LR, "epochs": 1, "batch_size": 1000, "standardize": "none", "random_state": 0}


def tensor(array, learned=True):
    return torch.tensor(np.asarray(array, np.float64), requires_grad=learned)


def forward(hidden, columns, gates, X):
    return (torch.relu(X @ hidden.T) * gates) @ columns.T


def targets(head, y):
    """Labels as class numbers in order of arrival."""
    return head.arrival_[np.searchsorted(head.classes_, y)]


def given(head, X, y):
    """Accuracy if only the classes of the samples may be predicted."""
    classes = np.unique(y)
    return np.mean(classes[head.scores(X, classes).argmax(axis=1)] == y)


@pytest.fixture
def network():
    rng = np.random.default_rng(0)
    return Network(rng.normal(size=(5, 4)), rng.normal(size=(3, 5)), rng.uniform(size=5))


def test_gradients_of_the_network(network):
    """Against finite differences and torch, by every weight and gate."""
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(7, 4)), rng.integers(0, 3, 7)
    units = units_of(network.hidden, X)
    by_scores = (softmax((units * network.gates) @ network.columns.T, axis=1) - np.eye(3)[y]) / len(y)
    found = network.gradients(X, units, by_scores)

    def loss(hidden, columns, gates):
        scores = (np.maximum(X @ hidden.T, 0) * gates) @ columns.T
        return -np.mean(log_softmax(scores, axis=1)[np.arange(len(y)), y])

    hidden, columns, gates = network.hidden, network.columns, network.gates
    for by, function in (
        (found.hidden, lambda it: loss(it, columns, gates)),
        (found.columns, lambda it: loss(hidden, it, gates)),
        (found.gates[None], lambda it: loss(hidden, columns, it[0])),
    ):
        start = {id(found.hidden): hidden, id(found.columns): columns}.get(id(by), gates[None])
        np.testing.assert_allclose(by, numerical_gradient(function, start), atol=1e-6)
    weights = [tensor(each) for each in (hidden, columns, gates)]
    torch.nn.functional.cross_entropy(forward(*weights, tensor(X, False)), torch.tensor(y)).backward()
    for by, weight in zip((found.hidden, found.columns, found.gates), weights, strict=True):
        np.testing.assert_allclose(by, weight.grad.numpy(), atol=1e-12)
    np.testing.assert_array_equal(network.gradients(X, units, by_scores, resting=2).hidden, found.hidden[2:])


def test_finetune_takes_the_step_of_its_objective(tasks):
    head = taer.zoo.FinetuneAdapter(**ONE_STEP).partial_fit(*tasks[0])
    hidden, columns = tensor(head.hidden_), tensor(np.pad(head.weights_, [(0, 2), (0, 0)]))
    X, y = tasks[1]
    head.partial_fit(X, y)
    scores = forward(hidden, columns, 1, tensor(X, False))
    torch.nn.functional.cross_entropy(scores, torch.tensor(targets(head, y))).backward()
    assert hidden.grad.abs().max() > 1e-3
    np.testing.assert_allclose(head.hidden_, (hidden - LR * hidden.grad).detach().numpy(), atol=1e-9)
    np.testing.assert_allclose(head.weights_, (columns - LR * columns.grad).detach().numpy(), atol=1e-9)


def test_joint_starts_again_with_every_sample(tasks):
    one, other = (taer.zoo.JointAdapter(random_state=0).partial_fit(*tasks[0]) for _ in range(2))
    other.hidden_ = other.hidden_ + 1
    for head in (one, other):
        head.partial_fit(*tasks[1])
    np.testing.assert_array_equal(one.hidden_, other.hidden_)
    assert len(one.memory_) == len(tasks[0][1]) + len(tasks[1][1])


# HAT


def test_hat_anneals_from_the_inverse_to_the_largest_steepness():
    """Equation 3 of the paper: s = 1/s_max + (s_max - 1/s_max) (b - 1) / (B - 1)."""
    assert [annealed(done, 400.0) for done in (0.0, 1.0)] == [1 / 400, 400.0]
    assert annealed(0.5, 4.0) == 0.25 + 3.75 / 2


def test_hat_compensates_the_gradient_of_the_embedding():
    """Section 2.5: whatever s is, the product with the slope of the mask is s_max times that of a plain sigmoid."""
    e = np.array([-1.5, 0.0, 0.4, 2.0])
    for s in (1 / 400, 1.0, 8.0):
        slope = s * expit(s * e) * expit(-s * e)
        np.testing.assert_allclose(slope * compensation(e, s, 400.0), 400 * expit(e) * expit(-e), rtol=1e-6)
    # |s e| ≤ 50
    assert compensation(np.array([6.0]), 400.0, 400.0) == compensation(np.array([6.0]), 50 / 6, 50 / 6)


def test_hat_takes_the_steps_of_its_objective(tasks):
    """Two steps of the second task, with a penalty on the units that the first one left free."""
    s_max, sparsity = 3.0, 0.6  # so flat that every unit is a little free
    head = taer.zoo.HATAdapter(**ONE_STEP | {"epochs": 2}, s_max=s_max, sparsity=sparsity).partial_fit(*tasks[0])
    hidden, columns, free = tensor(head.hidden_), tensor(np.zeros((2, 6))), tensor(1 - head.masks_[0], False)
    e = tensor(copy.deepcopy(head.rng_).normal(size=6))  # what the head draws next
    X, y = tasks[1]
    head.partial_fit(X, y)
    own = torch.tensor(np.unique(y, return_inverse=True)[1])
    for _ in range(2):
        gates = torch.sigmoid(s_max * e)  # the only batch of an epoch has the largest steepness
        loss = torch.nn.functional.cross_entropy(forward(hidden, columns, gates, tensor(X, False)), own)
        loss = loss + sparsity * (gates * free).sum() / free.sum()
        by = torch.autograd.grad(loss, [hidden, columns, e])
        factors = (free[:, None], 1, torch.tensor(compensation(e.detach().numpy(), s_max, s_max)))
        hidden, columns, e = (
            tensor((weight - LR * factor * g).detach())
            for weight, factor, g in zip((hidden, columns, e), factors, by, strict=True)
        )
    np.testing.assert_allclose(head.masks_[1], torch.sigmoid(s_max * e).detach().numpy(), atol=1e-9)
    np.testing.assert_allclose(head.weights_[2:], columns.detach().numpy(), atol=1e-9)
    np.testing.assert_allclose(head.hidden_, hidden.detach().numpy(), atol=1e-9)


def test_hat_protects_the_units_of_earlier_tasks(tasks):
    head = taer.zoo.HATAdapter(random_state=0).partial_fit(*tasks[0])
    hidden, used, scores = head.hidden_, head.masks_[0] == 1, head.scores(tasks[0][0])
    assert 20 < used.sum() < 236
    assert np.mean(np.minimum(head.masks_[0], 1 - head.masks_[0]) < 1e-3) > 0.95  # all but binary
    learn(head, tasks[1:])
    np.testing.assert_array_equal(head.hidden_[used], hidden[used])
    assert (head.hidden_[~used] != hidden[~used]).any()
    after = head.scores(tasks[0][0], classes=[1, 4])
    np.testing.assert_allclose(np.diff(after), np.diff(scores), atol=1e-3)  # given the task, nothing is forgotten


# XdG


def test_xdg_shuts_a_fixed_fraction_of_the_units(tasks):
    head = taer.zoo.XdGAdapter(width=50, random_state=0).partial_fit(*tasks[0])
    hidden, shut = head.hidden_, head.masks_[0] == 0
    assert shut.sum() == 40
    head.partial_fit(*tasks[1])
    assert (head.masks_[1] == 0).sum() == 40
    assert (head.masks_[1] != head.masks_[0]).any()
    both = head.masks_[1] == 0
    np.testing.assert_array_equal(head.hidden_[both], hidden[both])


def test_xdg_weighs_the_path_and_pulls_back(tasks):
    """Synaptic intelligence by hand: one step of the first task, one of the second."""
    head = taer.zoo.XdGAdapter(**ONE_STEP, gated=0.5, c=2.0)
    X, y = tasks[0]
    head.partial_fit(X, y)  # columns start at zero, so the first step moves nothing below them
    assert not head.importance_.any()
    start = head.hidden_
    head.partial_fit(X, y)
    moved = head.hidden_ - start  # = -lr · g, so that ω = -g · ΔA = ΔA² / lr
    assert np.abs(moved).max() > 1e-3
    np.testing.assert_allclose(head.importance_, moved**2 / LR / (moved**2 + 0.01), atol=1e-12)
    before, importance = head.hidden_, head.importance_
    free = taer.zoo.XdGAdapter(**ONE_STEP, gated=0.5, c=0.0)
    free._restore(head._state()).partial_fit(X, y)
    head.partial_fit(X, y)
    pull = LR * 2 * 2.0 * importance
    np.testing.assert_allclose(head.hidden_, (free.hidden_ + pull * before) / (1 + pull), rtol=1e-9)


# DER


def test_der_freezes_the_units_of_earlier_tasks_and_adds_new_ones(tasks):
    head = taer.zoo.DERAdapter(width=7, random_state=0).partial_fit(*tasks[0])
    first = head.hidden_
    learn(head, tasks[1:])
    assert head.hidden_.shape == (21, 12)
    np.testing.assert_array_equal(head.hidden_[:7], first)
    assert (head.hidden_[7:14] != first).any()  # where the second layer started


def test_der_trains_both_classifiers(tasks):
    """Two steps of the second task, as torch takes them: the auxiliary layer starts at zero and counts from the second."""
    settings = ONE_STEP | {"epochs": 2, "aux_weight": 0.7, "memory_size": 8, "balanced_epochs": 0}
    head = taer.zoo.DERAdapter(**settings).partial_fit(*tasks[0])
    first, memory = head.hidden_, head.memory_
    newest, columns = tensor(first), tensor(np.pad(head.weights_, [(0, 2), (0, 6)]))
    auxiliary = tensor(np.zeros((3, 6)))
    X, y = tasks[1]
    head.partial_fit(X, y)
    everything = tensor(np.concatenate([X, memory.X]), False)
    target = np.concatenate([targets(head, y), memory.y])
    in_task = torch.tensor(np.where(target >= 2, target - 2, 2))
    for _ in range(2):
        old, new = (torch.relu(everything @ layer.T) for layer in (tensor(first, False), newest))
        loss = torch.nn.functional.cross_entropy(torch.cat([old, new], 1) @ columns.T, torch.tensor(target))
        loss = loss + 0.7 * torch.nn.functional.cross_entropy(new @ auxiliary.T, in_task)
        by = torch.autograd.grad(loss, [newest, columns, auxiliary])
        newest, columns, auxiliary = (
            tensor((weight - LR * g).detach()) for weight, g in zip((newest, columns, auxiliary), by, strict=True)
        )
    np.testing.assert_allclose(head.hidden_[6:], newest.detach().numpy(), atol=1e-9)
    np.testing.assert_allclose(head.weights_, columns.detach().numpy(), atol=1e-9)


def test_der_balances_its_columns_on_the_memory(tasks):
    """The first step from zero: all classes are equally likely."""
    settings = ONE_STEP | {"memory_size": 8, "balanced_epochs": 1, "temperature": 2.5}
    head = learn(taer.zoo.DERAdapter(**settings), tasks[:2])
    assert np.bincount(head.memory_.y).tolist() == [2, 2, 2, 2]
    units = np.maximum(head.memory_.X @ head.hidden_.T, 0)
    residuals = np.eye(4)[head.memory_.y] - 1 / 4
    np.testing.assert_allclose(head.weights_, LR / 2.5 * residuals.T @ units / 8, atol=1e-9)


# FAS


def test_fas_mixes_the_rows_of_each_group():
    """By hand: two groups of two rows, whose atoms swap the rows and double the second."""
    hidden, atoms = np.array([[1.0, 0], [0, 1], [2, 2], [0, 3]]), np.array([[0.0, 1], [2, 0]])
    np.testing.assert_array_equal(mixed(hidden, atoms), [[0, 1], [2, 0], [0, 3], [4, 4]])


def test_fas_descends_the_atoms():
    """The gradient by the atoms, against finite differences, is the sum over the groups that share them."""
    rng = np.random.default_rng(0)
    hidden, atoms, wanted = rng.normal(size=(6, 5)), rng.normal(size=(2, 2)), rng.normal(size=(6, 5))
    found = by_atoms(mixed(hidden, atoms) - wanted, hidden, 2)
    expected = numerical_gradient(lambda it: np.square(mixed(hidden, it) - wanted).sum() / 2, atoms)
    np.testing.assert_allclose(3 * found, expected, atol=1e-6)


def test_fas_swaps_the_atoms_alone(tasks):
    head = taer.zoo.FASAdapter(width=32, atoms=4, members=3, random_state=0).partial_fit(*tasks[0])
    hidden = head.hidden_
    before = head.scores(tasks[0][0])
    np.testing.assert_array_equal(head.atoms_[0, 0], np.eye(4))
    learn(head, tasks[1:])
    np.testing.assert_array_equal(head.hidden_, hidden)
    assert head.atoms_.shape == (3, 3, 4, 4)
    assert head.weights_.shape == (6, 96)
    after = head.scores(tasks[0][0], classes=[1, 4])
    np.testing.assert_allclose(np.diff(after), np.diff(before), atol=1e-12)  # given the task, nothing is forgotten
    X = tasks[2][0][:5]
    members = [
        softmax(np.maximum(head.embedding_(X) @ mixed(hidden, atoms).T, 0) @ columns.T, axis=1)
        for atoms, columns in zip(head.atoms_[2], np.split(head.weights_[4:], 3, axis=1), strict=True)
    ]
    np.testing.assert_allclose(softmax(head.scores(X, classes=[2, 3]), axis=1), np.mean(members, axis=0), atol=1e-9)


def test_fas_says_which_widths_it_can_have(tasks):
    with pytest.raises(ValueError, match="atoms must divide width, got 4 and 30"):
        taer.zoo.FASAdapter(width=30, atoms=4).partial_fit(*tasks[0])


# AANets


def test_gradients_of_two_branches_under_cosines():
    """The whole objective, as torch differentiates it: cross-entropy, margin and the pull of the old features."""
    rng = np.random.default_rng(0)
    X, y, old, new = rng.normal(size=(9, 4)), np.arange(9) % 4, [0, 1], np.array([2, 3])
    arrays = [rng.normal(size=shape) for shape in ((6, 4), (6, 4), (6,), (4, 6))]
    branches, before = Branches(*arrays, blend=0.3, eta=2.0), unit_rows(rng.normal(size=(9, 6)))
    answer, weight = branches(X), np.full(9, 1 / 9)
    by_scores = (softmax(2.0 * answer.cosines, axis=1) - np.eye(4)[y]) * weight[:, None]
    margin = margin_gradient(answer.cosines, y, np.isin(y, old), new, k=2)
    by = branches.gradients(X, answer, by_scores, margin, -0.7 * weight[:, None] * before)

    stable, plastic, scales, columns = map(tensor, arrays)
    blend, eta, rows = tensor(0.3), tensor(2.0), tensor(X, False)
    f = blend * scales * torch.relu(rows @ stable.T) + (1 - blend) * torch.relu(rows @ plastic.T)
    f = torch.nn.functional.normalize(f)
    cosines = f @ torch.nn.functional.normalize(columns).T
    loss = torch.nn.functional.cross_entropy(eta * cosines, torch.tensor(y))
    loss = loss + 0.7 * (1 - (f * tensor(before, False)).sum(1)).mean()
    replayed = np.isin(y, old)
    own = cosines[replayed, y[replayed]][:, None]
    loss = loss + torch.relu(0.5 - own + cosines[replayed][:, new]).mean()
    loss.backward()
    assert margin.any()
    for found, weight in (
        (by.plastic, plastic),
        (by.scales, scales),
        (by.columns, columns),
        (by.blend, blend),
        (by.eta, eta),
    ):
        np.testing.assert_allclose(found, weight.grad.numpy(), atol=1e-9)


def test_branches_that_start_from_the_same_weights_are_trained_apart():
    weights, by = np.ones((6, 4)), [np.ones(shape) for shape in ((6, 4), (6, 4), (6,), (4, 6))]
    start = Branches(weights, weights, np.ones(6), np.ones((4, 6)), 0.5, 1.0)
    trained = start.copied()
    trained.move(Branches(*by, 0.1, 0.1), lr=0.5, classes=np.array([2]))
    assert (trained.plastic == 0.5).all()
    for each in (trained.stable, start.plastic, start.scales, start.columns, trained.columns[:2]):
        assert (each == 1).all()


def test_aanets_has_a_stable_and_a_plastic_branch(tasks):
    head = taer.zoo.AANetsAdapter(width=8, random_state=0).partial_fit(*tasks[0])
    np.testing.assert_array_equal(head.hidden_, head.plastic_)  # both start from what the first task learned
    assert (head.scales_.tolist(), head.blend_) == ([1] * 8, 0.5)
    stable, columns = head.hidden_, head.weights_
    learn(head, tasks[1:])
    np.testing.assert_array_equal(head.hidden_, stable)
    np.testing.assert_array_equal(head.weights_[:2], columns)  # old columns rest
    assert (head.plastic_ != stable).any()
    assert (head.scales_ != 1).all()
    assert head.blend_ != 0.5


def test_aanets_imprints_new_columns(tasks):
    head = taer.zoo.AANetsAdapter(**ONE_STEP | {"lr": 1e-12}).partial_fit(*tasks[0])
    lengths = np.linalg.norm(head.weights_, axis=1)
    X, y = tasks[1]
    head.partial_fit(X, y)
    means = unit_rows(np.array([unit_rows(np.maximum(X[y == c] @ head.hidden_.T, 0)).mean(axis=0) for c in (0, 5)]))
    np.testing.assert_allclose(head.weights_[2:], means * lengths.mean(), atol=1e-6)


def test_the_balanced_set_has_as_many_samples_of_every_class(tasks):
    head = taer.zoo.AANetsAdapter(memory_size=12, random_state=0).partial_fit(*tasks[0])
    task = Task(tasks[1][0], 2 + (tasks[1][1] == 5), n_known=2, n_classes=4, number=2)
    assert np.bincount(head._balanced(task).constants["target"]).tolist() == [6, 6, 6, 6]


# AGS-CL


def test_the_proximal_map_of_a_norm():
    """By hand: a row of length 5 loses 1, one that is shorter than that becomes zero."""
    found = shrunk(np.array([[3.0, 4], [0.3, 0.4], [0, 0]]), np.array([1.0, 1.0, 1.0]))
    np.testing.assert_allclose(found, [[2.4, 3.2], [0, 0], [0, 0]])
    # It minimizes by · |z| + |z - row|² / 2.
    row = np.array([[1.0, -2.0, 0.5]])
    at = shrunk(row, np.array([0.7]))
    gradient = numerical_gradient(lambda z: 0.7 * np.linalg.norm(z) + np.square(z - row).sum() / 2, at)
    np.testing.assert_allclose(gradient, 0, atol=1e-8)


def test_ags_cl_holds_important_units_and_empties_the_others(tasks):
    """With very large penalties, important units do not move and all others become zero."""
    settings = {"width": 40, "random_state": 0, "lam": 1e6}
    head = taer.zoo.AGSCLAdapter(mu=0.55, **settings).partial_fit(*tasks[0])
    units = np.maximum(head.embedding_(tasks[0][0]) @ head.hidden_.T, 0)
    np.testing.assert_allclose(head.importance_, units.mean(axis=0), rtol=1e-9)
    empty = ~head.hidden_.any(axis=1)
    assert 0 < empty.sum() < 40
    np.testing.assert_array_equal(head.importance_ == 0, ~units.any(axis=0))
    np.testing.assert_array_equal(head.masks_[0], head.importance_ > 0)
    hidden, importance = head.hidden_, head.importance_
    head.set_params(rho=1.0).partial_fit(*tasks[1])
    np.testing.assert_array_equal(head.hidden_[importance > 0], hidden[importance > 0])
    assert head.hidden_[importance == 0].any()  # they started again
    units = np.maximum(head.embedding_(tasks[1][0]) @ head.hidden_.T, 0)
    np.testing.assert_allclose(head.importance_, 0.9 * importance + units.mean(axis=0), rtol=1e-9)
    np.testing.assert_array_equal(head.masks_[0], importance > 0)  # new life in a unit does not reach old classes


# DEN


def test_den_thresholds_single_weights():
    np.testing.assert_allclose(thresholded(np.array([0.5, -0.2, 0.05, -0.05]), 0.1), [0.4, -0.1, 0, 0])


def test_den_splits_the_units_that_drifted():
    """By hand: the second of two units moved by 5; its copy takes the columns of the new classes along."""
    before, moved = np.array([[1.0, 0], [0, 1]]), np.array([[1.0, 0.1], [3, 5]])
    found = split(Network(moved, np.array([[7.0, 8]]), np.ones(2)), before, drift=0.2)
    np.testing.assert_array_equal(found.hidden, [[1, 0.1], [0, 1], [3, 5]])
    np.testing.assert_array_equal(found.columns, [[7, 0, 8]])


def test_den_adds_units_only_above_a_loss(tasks):
    settings = {"width": 8, "added": 3, "drift": 1e9, "random_state": 0}
    enough = learn(taer.zoo.DENAdapter(tau=1e9, **settings), tasks[:2])
    assert len(enough.hidden_) == 8
    more = learn(taer.zoo.DENAdapter(tau=0.0, group=0.0, **settings), tasks[:2])
    assert len(more.hidden_) == 11
    # a task answers with the units of its time
    np.testing.assert_array_equal(more.masks_, [[1] * 8 + [0] * 3, [1] * 11])
    emptied = learn(taer.zoo.DENAdapter(tau=0.0, group=1e3, **settings), tasks[:2])
    assert len(emptied.hidden_) == 8


def test_den_selects_the_units_that_reach_a_new_output(tasks):
    """With a very large penalty no column leaves zero, so nothing is retrained and the first task keeps its units."""
    head = taer.zoo.DENAdapter(width=8, tau=1e9, random_state=0).partial_fit(*tasks[0])
    hidden = head.hidden_
    head.set_params(l1=1e9).partial_fit(*tasks[1])
    np.testing.assert_array_equal(head.hidden_, hidden)
    head.set_params(l1=0.0, drift=1e9).partial_fit(*tasks[2])
    assert (head.hidden_ != hidden).any()


def test_den_keeps_the_answers_of_earlier_tasks_when_every_unit_splits(tasks):
    head = taer.zoo.DENAdapter(width=8, drift=0.0, random_state=0).partial_fit(*tasks[0])
    before = head.scores(tasks[0][0])
    learn(head, tasks[1:])
    assert len(head.hidden_) > 16
    after = head.scores(tasks[0][0], classes=[1, 4])
    np.testing.assert_allclose(np.diff(after), np.diff(before), atol=1e-12)


# The task, guessed and given


@pytest.mark.parametrize("name", heads_with(guesses_task=True))
def test_the_task_is_guessed_by_the_least_entropy(name, tasks):
    head = learn(taer.make_head(name, width=32, random_state=0), tasks)
    X = np.concatenate([X for X, _ in tasks])
    by_task = [softmax(head.scores(X, classes=pair), axis=1) for pair in ([1, 4], [0, 5], [2, 3])]
    guessed = np.argmin([entr(p).sum(axis=1) for p in by_task], axis=0)
    assert len(set(guessed)) == 3
    answers = np.array([[1, 4], [0, 5], [2, 3]])[guessed, np.array(by_task).argmax(axis=2)[guessed, range(len(X))]]
    np.testing.assert_array_equal(head.predict(X), answers)


@pytest.mark.parametrize("name", heads_with(guesses_task=True))
def test_classes_that_return(name, tasks):
    """With new ones they are classes of the new task; alone they train their own."""
    head = learn(taer.make_head(name, width=32, random_state=0), tasks[:2])
    assert head.tasks_.tolist() == [1, 1, 2, 2]
    X, y = tasks[0]
    head.partial_fit(X, y)
    assert head.tasks_.tolist() == [1, 1, 2, 2]
    head.partial_fit(np.concatenate([X, tasks[2][0]]), np.concatenate([y, tasks[2][1]]))
    assert head.tasks_.tolist() == [4, 4, 2, 2, 4, 4]
    assert given(head, *tasks[0]) > 0.9
    assert given(head, *tasks[2]) > 0.9


@pytest.mark.parametrize("name", heads_with(guesses_task=True))
def test_a_task_of_one_class_is_guessed_last(name, tasks):
    X, y = tasks[1]
    head = taer.make_head(name, width=32, random_state=0).partial_fit(*tasks[0])
    head.partial_fit(X[y == 0], y[y == 0])
    assert 0 not in head.predict(np.concatenate([tasks[0][0], X]))


def test_a_run_measures_the_task_given(features):
    result = execute(Run(class_stream(features, tasks=5), "hat-adapter", {"width": 32}))
    (row,) = summarize([result])
    assert row["task_given"]["mean"] == 100 * result["decomposition"][-1]["within_task"]
    assert row["task_given"]["mean"] > row["A_T"]["mean"]
