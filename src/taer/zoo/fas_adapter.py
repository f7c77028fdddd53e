"""Filter atom swapping."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np
from scipy.special import log_softmax, logsumexp

from taer.heads import exact
from taer.heads.base import Task
from taer.heads.descent.loop import Samples
from taer.heads.descent.losses import cross_entropy
from taer.heads.fitted import Fitted, array
from taer.heads.numerics import grown
from taer.heads.params import param
from taer.zoo.shared.adapter_network import Network, NetworkPlan, descend
from taer.zoo.shared.adapter_tasks import GUESSING, TaskHead

SPREAD = 0.1  # of the noise that is added to the identity to initialize the atoms


class FASAdapter(TaskHead, name="fas-adapter", card=GUESSING):
    """FAS: incoming weights are shared coefficients times a few atoms, and each task has its own atoms.

    ``CE over Y_t of weights_ @ relu(D_t A h)``: ``A`` has groups of ``atoms`` rows, and ``D_t``, a square matrix of that
    size, mixes the rows of each group in the same way. The first task learns ``A`` with ``D_1`` the identity; later tasks
    learn ``D_t`` and their columns. A task has several members, each with its own atoms and columns, whose probabilities
    are averaged. The predicted task is the one whose average has the lowest entropy.

    Departures: groups of units above frozen features take the place of the channels of a convolution. Members start at
    the identity plus noise. The gradient of the atoms is divided by the number of groups that share them.

    References
    ----------
    Z. Miao et al., "Continual Learning with Filter Atom Swapping", ICLR 2022.

    Examples
    --------
    >>> import numpy as np, taer
    >>> X, y = np.repeat(np.eye(4), 20, axis=0), np.repeat([0, 1, 2, 3], 20)
    >>> head = taer.zoo.FASAdapter(random_state=0).partial_fit(X[:40], y[:40]).partial_fit(X[40:], y[40:])
    >>> head.scores(np.eye(4)[2:], classes=[2, 3]).argmax(axis=1)  # the task given
    array([0, 1])
    """

    atoms: int = param(16, "number of rows per group, which the atoms mix; fixed by the first task", at_least=1)
    members: int = param(2, "networks per task, which are averaged; fixed by the first task", at_least=1)

    fitted: ClassVar[dict[str, Fitted]] = {
        "weights_": array("classes", "answers", help="weight vectors on the units of all members, one per class"),
        "atoms_": array("tasks", "members", "atoms", "atoms", help="atoms of each member in each task"),
    }

    def _open(self, task: Task) -> None:
        super()._open(task)
        if task.number == 1:
            if self.width % self.atoms:
                raise ValueError(f"FASAdapter: atoms must divide width, got {self.atoms} and {self.width}")
            self.weights_ = np.zeros((task.n_classes, self.members * self.width), self.dtype_)
            self.atoms_: np.ndarray = np.zeros((0, self.members, self.atoms, self.atoms), self.dtype_)

    def _train(self, task: Task, network: Network) -> Network:
        """Train one member after the other; atoms and columns are views that change in place."""
        self.atoms_ = grown(self.atoms_, self.n_tasks_)
        members = zip(self.atoms_[task.number - 1], self._by_member(network.columns), strict=True)
        for number, (atoms, columns) in enumerate(members):
            first = self.n_tasks_ == 1 and number == 0
            if self._is_new(task):
                noise = self.rng_.normal(size=atoms.shape)
                atoms[:] = np.eye(len(atoms)) + (0 if first else SPREAD * noise)
            hidden = network.hidden if first else mixed(network.hidden, atoms)
            move = None if first else swapping(network.hidden, atoms)
            plan = NetworkPlan(Samples(task.X, {"target": task.y}), cross_entropy, move=move)
            self._loop().train(Network(hidden, columns, np.ones_like(network.gates)), plan)
        return network

    def _store_task(self, task: Task, network: Network) -> None:
        self.hidden_ = network.hidden

    def _check_fitted(self) -> None:
        super()._check_fitted()
        units, (members, atoms) = len(self.hidden_), self.atoms_.shape[1:3]
        if not atoms or units % atoms or not members or self.weights_.shape[1] != members * units:
            raise ValueError(
                f"atoms_: expected atoms that mix groups of {units} units, for members of as many columns"
            )

    def _by_member(self, columns: np.ndarray) -> list[np.ndarray]:
        return np.split(columns, self.atoms_.shape[1], axis=1)

    def _units(self, X: np.ndarray) -> np.ndarray:
        """The products with the shared coefficients, before any atoms."""
        return exact.products(self.embedding_(X), exact.rounded(self.hidden_, self.dtype_))

    def _answers(self, units: np.ndarray, number: int, own: np.ndarray) -> np.ndarray:
        logs = []
        for atoms, columns in zip(self.atoms_[number - 1], self._by_member(self.weights_[own]), strict=True):
            grouped = units.reshape(len(units), -1, len(atoms)) @ atoms.T
            relu = np.maximum(grouped.reshape(units.shape), 0)
            logs.append(log_softmax(exact.products(relu, exact.rounded(columns, self.dtype_)), axis=1))
        return logsumexp(logs, axis=0) - np.log(len(logs))


def swapping(coefficients: np.ndarray, atoms: np.ndarray) -> Callable[[Network, Network, float], None]:
    """A step that moves only the atoms and the columns."""

    def move(network: Network, gradients: Network, lr: float) -> None:
        descend(network.columns, gradients.columns, lr)
        atoms[:] -= lr * by_atoms(gradients.hidden, coefficients, len(atoms))
        network.hidden[:] = mixed(coefficients, atoms)

    return move


def mixed(hidden: np.ndarray, atoms: np.ndarray) -> np.ndarray:
    """The incoming weights from coefficients and atoms."""
    return (atoms @ hidden.reshape(-1, len(atoms), hidden.shape[1])).reshape(hidden.shape)


def by_atoms(by_mixed: np.ndarray, hidden: np.ndarray, size: int) -> np.ndarray:
    """The gradient of the atoms from that of the incoming weights; the mean over the groups."""
    groups, coefficients = (rows.reshape(-1, size, rows.shape[1]) for rows in (by_mixed, hidden))
    found: np.ndarray = (groups @ coefficients.transpose(0, 2, 1)).mean(axis=0)
    return found
