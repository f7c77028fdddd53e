"""The base class of heads with a small trainable network (an adapter) between the frozen features and the classes.

Some published methods choose which hidden units of a network may change or respond, so they cannot work on a linear
classifier alone. The adapter is the smallest network on which they can: one layer of rectified units, trained by SGD
together with the columns. Their upper bound is ``joint-adapter``, joint training of the same network, because the adapter
itself changes the upper bound.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from taer.heads import exact
from taer.heads.base import Head, Task
from taer.heads.descent import loop
from taer.heads.embedding import Standardize
from taer.heads.fitted import Fitted, array, value_of
from taer.heads.numerics import grown
from taer.heads.params import param
from taer.zoo.shared.adapter_network import Network, NetworkLoop, NetworkPlan, exact_units


class AdapterHead(Head):
    """Scores ``weights_ @ relu(hidden_ @ embedding_(x))``, with one column (weight vector) per class.

    A method implements ``_plan``: which samples, which gradient of the scores and which weights move. It may also add
    units (``_open``) and do something when a task ends (``_finish``).
    """

    width: int = param(256, "hidden units; fixed by the first task", at_least=1)
    epochs: int = param(10, "number of passes over the samples of a task", at_least=1)
    lr: float = param(0.1, "learning rate", above=0)
    batch_size: int = param(32, "number of samples of the current task per step", at_least=1)
    last_batch: str = loop.last_batch()
    standardize: str = loop.standardize()
    entropy: float = loop.entropy()
    balance_classes: bool = loop.balance_classes()

    fitted: ClassVar[dict[str, Fitted]] = {
        "embedding_": value_of(Standardize, width="width", help="map of the features, fixed by the first task"),
        "hidden_": array("units", "width", help="incoming weights of the hidden units, after that map"),
        "weights_": array(
            "classes", "units", help="weight vectors on the units, one per class in order of arrival"
        ),
    }

    def _plan(self, task: Task, network: Network) -> NetworkPlan:
        """Which samples, which gradient and which weights move; ``network`` has the weights at the start of the task."""
        raise NotImplementedError

    def _finish(self, task: Task) -> None:
        """Called after the network has learned a task."""

    def _learn(self, task: Task) -> None:
        self._open(task)
        network = self._network()
        self._loop().train(network, self._plan(task, network))
        self._store(network)
        self._finish(task)

    def _open(self, task: Task) -> None:
        """Fit what the first task fixes, and add columns of zeros for new classes."""
        if task.number == 1:
            self.embedding_ = Standardize.fit(task.X, self.standardize)
            self.hidden_ = self._new_units(self.width, task.X.shape[1])
            self.weights_ = np.zeros((0, len(self.hidden_)), self.dtype_)
        self.weights_ = grown(self.weights_, task.n_classes)

    def _new_units(self, units: int, width: int) -> np.ndarray:
        """Random incoming weights with He's initialization (2015), for standardized rows."""
        return (self.rng_.normal(size=(units, width)) * np.sqrt(2 / width)).astype(self.dtype_)

    def _network(self) -> Network:
        """A copy of the weights for a task to train, with all gates open."""
        return Network(self.hidden_.copy(), self.weights_.copy(), np.ones(len(self.hidden_), self.dtype_))

    def _store(self, network: Network) -> None:
        self.hidden_, self.weights_ = network.hidden, exact.rounded(network.columns, self.dtype_)

    def _loop(self, epochs: int | None = None) -> NetworkLoop:
        return NetworkLoop.of(self, epochs)

    def _scores(self, X: np.ndarray, classes: np.ndarray | None = None) -> np.ndarray:
        columns = self.weights_ if classes is None else self.weights_[classes]
        return exact.products(self._units(X), columns).astype(self.dtype_)

    def _units(self, X: np.ndarray) -> np.ndarray:
        """The activations of the units for some rows of the user's features."""
        return exact_units(self.hidden_, self.embedding_(X))
