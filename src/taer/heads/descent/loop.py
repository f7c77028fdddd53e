"""The loop that every head of this family runs, and the plan that tells it what to do in a task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from scipy.special import log_softmax

from taer.heads.embedding import Standardize
from taer.heads.params import param
from taer.memory import draw

_BLOCK = 1 << 19  # values whose random draws are made, and which are read from storage, together


@dataclass(frozen=True)
class Samples:
    """Rows to learn from and, per row, the constants that the objective needs (its target column, …)."""

    X: Any
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.X)


class Batch(NamedTuple):
    """One step: the mapped rows of the current batch, then those of each replay draw."""

    rows: np.ndarray
    constants: Mapping[str, np.ndarray]  # of all rows, or of the replayed ones if only those have it
    weight: np.ndarray  # of each row in the loss
    parts: tuple[slice, ...]  # the current batch and each draw
    fraction: float = 1.0  # of the learning rate in this step: below 1 for a smaller batch that is weighed
    own: np.ndarray | None = None  # where the score of each row's target lies among the scores, class by class


@dataclass(frozen=True)
class Plan:
    """What a head does in one task."""

    current: Samples  # the epochs run over these, in the user's space
    gradient: Callable[[np.ndarray, Batch], np.ndarray]  # of the loss by the scores; may overwrite the scores
    # the constant that enters the scores as one more column, which never moves; with the entropy in the loss there must
    # be another, NAME_entropy, of the probabilities among the classes that it stands for
    resting: str | None = None
    offsets: np.ndarray | None = None  # constants of the scores, one per moving column
    replay: Samples | None = None  # batches are drawn from these, already mapped
    replay_size: int = 0  # samples in a draw
    weights: tuple[float, ...] = (1.0,)  # of the mean loss on the current batch and on each draw
    lr: float | None = None  # the head's if not given
    # moves the columns, given the gradient and the learning rate; plain descent if not given
    step: Callable[[np.ndarray, np.ndarray, float], None] | None = None


def last_batch() -> Any:
    """The declaration of a parameter that every head with this loop has."""
    return param(
        "weigh",
        "the last batch of an epoch, if smaller than batch_size: a step like any other, no step, or a step with the "
        "learning rate times its size / batch_size; the only batch of an epoch is always a whole step",
        options=("keep", "drop", "weigh"),
    )


def standardize() -> Any:
    """The same, of the map before the loop."""
    return param(
        "scale",
        "fixed map learned from the first task: subtract its mean, or also divide by its (shrunk) standard deviation",
        options=("none", "center", "scale"),
    )


def entropy() -> Any:
    """The same, of the term of CPR."""
    return param(
        0.0,
        "weight of the entropy of the probabilities, which is taken off the loss of each sample (CPR); 0 for none",
        at_least=0,
    )


@dataclass(frozen=True)
class Loop:
    """Stochastic gradient descent in batches of the current task, each with draws from a memory."""

    embedding: Standardize
    rng: np.random.Generator
    lr: float
    epochs: int
    batch_size: int
    last_batch: str
    entropy: float = 0.0  # weight of the entropy of the probabilities, which is taken off the loss

    def descend(self, columns: np.ndarray, plan: Plan) -> None:
        """Move ``columns`` in place, as the plan says."""
        moving, resting = len(columns), plan.resting
        full_step = self.lr if plan.lr is None else plan.lr
        scores, change = np.empty((0, 0), columns.dtype), np.empty_like(columns)
        with np.errstate(all="ignore"):
            for batch in (batch for _ in range(self.epochs) for batch in self.batches(plan)):
                rows = batch.rows
                if len(rows) != scores.shape[1]:
                    # Class by class in memory: what is summed over classes is then summed a whole batch at a time.
                    scores = np.empty((moving + (resting is not None), len(rows)), columns.dtype)
                    of_moving = scores[:moving]
                np.matmul(columns, rows.T, out=of_moving)
                if resting is not None:
                    scores[moving] = batch.constants[resting]
                if plan.offsets is not None:
                    of_moving += plan.offsets[:, None]
                if self.entropy:
                    inside = None if resting is None else batch.constants[f"{resting}_entropy"]
                    spread = entropy_gradient(scores.T, self.entropy * batch.weight, inside).T[:moving]
                gradient = plan.gradient(scores.T, batch).T[:moving]
                if self.entropy:
                    gradient += spread
                lr = full_step * batch.fraction
                if plan.step is None:
                    gradient *= lr
                    columns -= np.matmul(gradient, rows, out=change)
                else:
                    plan.step(columns, gradient @ rows, lr)
        check_finite(columns, full_step)

    def batches(self, plan: Plan) -> Iterator[Batch]:
        """One epoch in random order. A batch is valid until the next is asked for."""
        order, size = self.rng.permutation(len(plan.current)), self.batch_size
        whole = len(order) - len(order) % size
        at_once = max(1, _BLOCK // (2 * size * plan.current.X.shape[1])) * size
        for start in range(0, whole, at_once):
            picks = order[start : min(start + at_once, whole)]
            yield from self._block(plan, picks.reshape(-1, size))
        rest = len(order) - whole
        if rest and not whole:  # the only batch, never shortened: a small task would hardly be learned
            yield from self._block(plan, order[None])
        elif rest and self.last_batch != "drop":
            fraction = rest / size if self.last_batch == "weigh" else 1.0
            yield from self._block(plan, order[None, whole:], fraction)

    def _block(self, plan: Plan, picks: np.ndarray, fraction: float = 1.0) -> Iterator[Batch]:
        """Several batches of one size, whose draws and constants are gathered together."""
        (steps, size), X, replay = picks.shape, plan.current.X, plan.replay
        constants = {name: values.take(picks, axis=0) for name, values in plan.current.constants.items()}
        sizes, drawn = [size], None
        if replay is not None and len(replay):
            draws = [draw(len(replay), plan.replay_size, steps, self.rng) for _ in plan.weights[1:]]
            sizes += [each.shape[1] for each in draws]
            drawn = np.concatenate(draws, axis=1)
            for name, values in replay.constants.items():
                of_current = [constants[name]] if name in constants else []
                constants[name] = np.concatenate([*of_current, values.take(drawn, axis=0)], axis=1)
        shares = [weight / part for weight, part in zip(plan.weights, sizes, strict=False)]
        weight = np.repeat(np.array(shares, self.embedding.dtype), sizes)
        ends = list(accumulate(sizes))
        parts = tuple(slice(end - part, end) for end, part in zip(ends, sizes, strict=True))
        n, target = ends[-1], constants.get("target")
        own = target * n + np.arange(n) if target is not None and target.shape == (steps, n) else None
        # One small buffer for all steps stays in the cache; arrays are read row by row, other storage once a block.
        rows = np.empty((n, X.shape[1]), self.embedding.dtype)
        current, replayed = rows[:size], rows[size:]
        stored = None if isinstance(X, np.ndarray) else X[picks.ravel()].reshape(steps, size, -1)
        in_place = stored is None and X.dtype == rows.dtype
        for at in range(steps):
            if in_place:
                X.take(picks[at], axis=0, out=current, mode="clip")  # clip spares a copy; all are in range
            else:
                current[:] = X[picks[at]] if stored is None else stored[at]
            self.embedding.apply(current)
            if replay is not None and drawn is not None:
                replay.X.take(drawn[at], axis=0, out=replayed, mode="clip")
            of_step = {name: values[at] for name, values in constants.items()}
            yield Batch(rows, of_step, weight, parts, fraction, None if own is None else own[at])


def entropy_gradient(scores: np.ndarray, weight: np.ndarray, inside: np.ndarray | None = None) -> np.ndarray:
    """``weight · p · (log p + H)``: the gradient by the scores of ``-weight · H(p)``, with p their softmax.

    If the last column stands for many classes, ``inside`` is the entropy of the probabilities among them.
    """
    logs = log_softmax(scores, axis=1)
    p = np.exp(logs)
    entropy = -(p * logs).sum(axis=1)
    if inside is not None:
        entropy += p[:, -1] * inside
    found: np.ndarray = p * (logs + entropy[:, None]) * weight[:, None]
    return found


def check_finite(columns: np.ndarray, lr: float) -> None:
    """Descent with too long steps ends in infinities, not in a classifier."""
    if not np.isfinite(columns).all():
        raise ValueError(f"learning diverged; a smaller lr (it is {lr:g}) helps, and so does standardize='scale'")
