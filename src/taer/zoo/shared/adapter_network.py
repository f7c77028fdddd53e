"""The network of this family, its gradients, and the loop that trains it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from taer.heads import exact
from taer.heads.descent.loop import Loop, Plan, check_finite, entropy_gradient
from taer.threads import one_blas_thread


@dataclass(frozen=True)
class Network:
    """Scores ``columns @ (gates * relu(hidden @ h))``, and the gradients of these arrays."""

    hidden: np.ndarray  # incoming weights, one row per unit
    columns: np.ndarray  # outgoing weights, one row per class
    gates: np.ndarray  # a factor per unit

    def gradients(self, rows: np.ndarray, units: np.ndarray, by_scores: np.ndarray, resting: int = 0) -> Network:
        """Backpropagate the gradient of the scores; the first rows of ``hidden``, which are frozen, are left out."""
        by_gated = by_scores.T @ units  # by the products of columns and gates
        by_sums = (self.columns * self.gates).T[resting:] @ by_scores.T  # unit by unit, as units lie in memory
        by_sums *= units.T[resting:] > 0
        return Network(
            hidden=by_sums @ rows,
            columns=by_gated * self.gates,
            gates=(by_gated * self.columns).sum(axis=0),
        )


def units_of(hidden: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """``relu(hidden @ h)`` of each row; unit by unit in memory, which is the faster product for few rows."""
    units: np.ndarray = hidden @ rows.T
    return np.maximum(units, 0, out=units).T


def exact_units(hidden: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """:func:`units_of` with exact products, so that the units of a row do not depend on the other rows."""
    units = exact.products(rows, exact.rounded(hidden, hidden.dtype))
    return np.maximum(units, 0, out=units).astype(hidden.dtype)


def descend(weights: np.ndarray, gradient: np.ndarray, lr: float) -> None:
    """A step of plain descent, in place; the gradient is overwritten."""
    gradient *= lr
    weights -= gradient


def shrunk(rows: np.ndarray, by: np.ndarray) -> np.ndarray:
    """Group soft thresholding, the proximal map of the norm of each row."""
    lengths = np.sqrt(np.square(rows).sum(axis=1))
    factors = np.maximum(1 - by / np.where(lengths > 0, lengths, 1), 0)
    return rows * factors[:, None].astype(rows.dtype)


@dataclass(frozen=True)
class NetworkPlan(Plan):
    """The training of a network in one task."""

    answering: int | None = None  # number of first columns in the softmax, if the others are auxiliary
    resting_units: int = 0  # number of first units whose incoming weights are frozen
    # called before each step with the fraction of the epoch's steps that are done; 1 at the last
    prepare: Callable[[float], None] | None = None
    # updates the network from its gradients and the learning rate; plain SGD if not given
    move: Callable[[Network, Network, float], None] | None = None


@dataclass(frozen=True)
class NetworkLoop(Loop):
    """Stochastic gradient descent of a network."""

    def train(self, network: Network, plan: NetworkPlan) -> None:
        """Train the arrays of the network in place, following the plan."""
        full_step = self.lr if plan.lr is None else plan.lr
        steps = math.ceil(len(plan.current) / self.batch_size)
        with one_blas_thread(), np.errstate(all="ignore"):
            for _ in range(self.epochs):
                for at, batch in enumerate(self.batches(plan)):
                    if plan.prepare is not None:
                        plan.prepare(at / (steps - 1) if steps > 1 else 1.0)
                    units = units_of(network.hidden, batch.rows)
                    scores = ((network.columns * network.gates) @ units.T).T
                    if self.entropy:
                        spread = entropy_gradient(scores[:, : plan.answering], self.entropy * batch.weight)
                    by_scores = plan.gradient(scores, batch)
                    if self.entropy:
                        by_scores[:, : plan.answering] += spread
                    gradients = network.gradients(batch.rows, units, by_scores, plan.resting_units)
                    lr = full_step * batch.fraction
                    if plan.move is not None:
                        plan.move(network, gradients, lr)
                    else:
                        descend(network.hidden[plan.resting_units :], gradients.hidden, lr)
                        descend(network.columns, gradients.columns, lr)
        check_finite(network.hidden, full_step)
        check_finite(network.columns, full_step)
