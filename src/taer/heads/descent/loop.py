"""The training loop of all heads in this family, and the plan of one task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate, chain
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.linalg.blas import dgemm, sgemm
from scipy.special import log_softmax

from taer.heads.descent.watch import watch
from taer.heads.embedding import Standardize, in_type
from taer.heads.params import param
from taer.memory import draw

GEMM = {"f": sgemm, "d": dgemm}  # their arrays are in Fortran order: the transposes of ours
_BLOCK = 1 << 19  # values that are drawn and read from storage together


@dataclass(frozen=True)
class Samples:
    """Rows to learn from and, per row, the constants of the objective (its target column, …)."""

    X: Any
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.X)


class Batch(NamedTuple):
    """One step: the embedded rows of the current batch, then those of each replay draw."""

    rows: np.ndarray
    constants: Mapping[str, np.ndarray]  # of all rows, or only of the replayed ones
    weight: np.ndarray  # of each row in the loss
    parts: tuple[slice, ...]  # the current batch and each draw
    fraction: float = 1.0  # of the learning rate in this step; below 1 for a smaller, weighted batch
    # Position of the score of each row's target among the scores, stored class by class.
    own: np.ndarray | None = None


@dataclass(frozen=True)
class Plan:
    """The training of a head in one task."""

    current: Samples  # the epochs run over these; not embedded yet
    # Of the loss with respect to the scores, which it may overwrite.
    gradient: Callable[[np.ndarray, Batch], np.ndarray]
    # the constant that is one more score, without a column; with an entropy term there must be another constant,
    # NAME_entropy, for the entropy among the classes that it stands for
    resting: str | None = None
    offsets: np.ndarray | None = None  # intercepts of the scores, one per moving column
    replay: Samples | None = None  # batches are drawn from these, already embedded
    replay_size: int = 0  # samples per draw
    weights: tuple[float, ...] = (1.0,)  # of the mean loss on the current batch and on each draw
    lr: float | None = None  # default: that of the head
    # updates the columns from the gradient and the learning rate; plain SGD if not given
    step: Callable[[np.ndarray, np.ndarray, float], None] | None = None


def last_batch() -> Any:
    """The declaration of the parameter ``last_batch``."""
    return param(
        "weigh",
        "the last batch of an epoch, if smaller than batch_size: a full step, no step, or a step with the learning rate "
        "multiplied by its size / batch_size; the only batch of an epoch is always a full step",
        options=("keep", "drop", "weigh"),
    )


def standardize() -> Any:
    """The declaration of the parameter ``standardize``."""
    return param(
        "scale",
        "fixed map fitted on the first task: subtract the mean, or also divide by the (shrunk) standard deviation",
        options=("none", "center", "scale"),
    )


def entropy() -> Any:
    """The declaration of the parameter ``entropy``."""
    return param(
        0.0,
        "weight of the entropy of the probabilities, which is subtracted from the loss (CPR); 0 for none",
        at_least=0,
    )


def balance_classes() -> Any:
    """The parameter for how often each class is seen."""
    return param(False, "draw every class of a task equally often in an epoch, instead of every sample once")


@dataclass(frozen=True)
class Loop:
    """SGD on batches of the current task, each with draws from a memory."""

    embedding: Standardize
    rng: np.random.Generator
    lr: float
    epochs: int
    batch_size: int
    last_batch: str
    entropy: float = 0.0  # weight of the entropy of the probabilities, which is subtracted from the loss
    balance_classes: bool = False

    @classmethod
    def of(cls, head: Any, epochs: int | None = None) -> Self:
        """A loop with the parameters of a head, and its number of epochs unless another is given."""
        return cls(
            head.embedding_,
            head.rng_,
            head.lr,
            head.epochs if epochs is None else epochs,
            head.batch_size,
            head.last_batch,
            head.entropy,
            head.balance_classes,
        )

    def descend(self, columns: np.ndarray, plan: Plan) -> None:
        """Train ``columns``, an array in C order, in place, following the plan."""
        moving, resting = len(columns), plan.resting
        full_step = self.lr if plan.lr is None else plan.lr
        scores = np.empty((0, 0), columns.dtype)
        gemm, watched = GEMM[columns.dtype.char], watch()
        with np.errstate(all="ignore"):
            for batch in chain.from_iterable(self.batches(plan) for _ in range(self.epochs)):
                rows = batch.rows
                if len(rows) != len(scores):
                    # Scores are stored class by class, so that sums over classes run over whole batches.
                    by_class = np.empty((moving + (resting is not None), len(rows)), columns.dtype)
                    scores, of_moving = by_class.T, by_class[:moving].T
                gemm(1.0, rows.T, columns.T, 0.0, of_moving, 1, 0, 1)
                if resting is not None:
                    by_class[moving] = batch.constants[resting]
                if plan.offsets is not None:
                    of_moving += plan.offsets
                if self.entropy:
                    inside = None if resting is None else batch.constants[f"{resting}_entropy"]
                    spread = entropy_gradient(scores, self.entropy * batch.weight, inside)[:, :moving]
                gradient = plan.gradient(scores, batch)[:, :moving]
                if self.entropy:
                    gradient += spread
                if watched is not None:
                    watched.step(gradient, batch.weight)
                lr = full_step * batch.fraction
                if plan.step is None:
                    step_down(columns, gradient, rows, lr)
                else:
                    plan.step(columns, gradient.T @ rows, lr)
        check_finite(columns, full_step)

    def batches(self, plan: Plan) -> Iterator[Batch]:
        """One epoch in random order. A batch is valid until the next one is requested."""
        order, size = self._order(plan.current), self.batch_size
        whole = len(order) - len(order) % size
        at_once = max(1, _BLOCK // (2 * size * plan.current.X.shape[1])) * size
        for start in range(0, whole, at_once):
            picks = order[start : min(start + at_once, whole)]
            yield from self._block(plan, picks.reshape(-1, size))
        rest = len(order) - whole
        if rest and not whole:  # the only batch is never shortened: a small task would hardly be learned
            yield from self._block(plan, order[None])
        elif rest and self.last_batch != "drop":
            fraction = rest / size if self.last_batch == "weigh" else 1.0
            yield from self._block(plan, order[None, whole:], fraction)
        if (watched := watch()) is not None:
            watched.end()

    def _order(self, samples: Samples) -> np.ndarray:
        """The samples of an epoch."""
        if not self.balance_classes:
            return self.rng.permutation(len(samples))
        _, groups, sizes = np.unique(samples.constants["target"], return_inverse=True, return_counts=True)
        return self.rng.choice(len(samples), len(samples), p=1 / (len(sizes) * sizes[groups]))

    def _block(self, plan: Plan, picks: np.ndarray, fraction: float = 1.0) -> Iterator[Batch]:
        """Several batches of equal size, whose draws and constants are gathered together."""
        (steps, size), X, replay = picks.shape, plan.current.X, plan.replay
        constants = {name: values.take(picks, axis=0) for name, values in plan.current.constants.items()}
        sizes, drawn = [size], None
        if replay is not None and len(replay):
            draws = [draw(len(replay), plan.replay_size, steps, self.rng) for _ in plan.weights[1:]]
            sizes += [each.shape[1] for each in draws]
            drawn = draws[0] if len(draws) == 1 else np.concatenate(draws, axis=1)
            for name, values in replay.constants.items():
                of_replay = values.take(drawn, axis=0)
                joined = name in constants
                constants[name] = np.concatenate([constants[name], of_replay], axis=1) if joined else of_replay
        shares = [weight / part for weight, part in zip(plan.weights, sizes, strict=False)]
        weight = np.repeat(np.array(shares, self.embedding.dtype), sizes)
        ends = list(accumulate(sizes))
        parts = tuple(slice(end - part, end) for end, part in zip(ends, sizes, strict=True))
        n, target = ends[-1], constants.get("target")
        own = target * n + np.arange(n) if target is not None and target.shape == (steps, n) else None
        # One small buffer for all steps stays in the cache; arrays are read row by row, other storage once per block.
        rows, stored = np.empty((n, X.shape[1]), self.embedding.dtype), None
        current, replayed = rows[:size], rows[size:]
        if not isinstance(X, np.ndarray) or X.dtype != rows.dtype:
            stored = in_type(X[picks.ravel()], self.embedding.dtype).reshape(steps, size, -1)
        for at in range(steps):
            if stored is not None and drawn is None:
                rows = self.embedding(stored[at])
            elif stored is not None:
                current[:] = stored[at]
                self.embedding.apply(current)
            else:
                X.take(picks[at], 0, current, "clip")  # clip avoids a copy; all indices are in range
                self.embedding.apply(current)
            if drawn is not None:
                replay.X.take(drawn[at], 0, replayed, "clip")  # type: ignore[union-attr]
            of_step = {name: values[at] for name, values in constants.items()}
            yield Batch(rows, of_step, weight, parts, fraction, None if own is None else own[at])


def step_down(columns: np.ndarray, gradient: np.ndarray, rows: np.ndarray, lr: float) -> None:
    """``columns -= lr * gradient.T @ rows`` in place, where ``gradient`` is that of the scores of the rows.

    BLAS adds the product to the columns itself, which saves passes over them. They must be in C order.
    """
    assert columns.flags.c_contiguous  # else BLAS would change a copy
    GEMM[columns.dtype.char](-lr, rows.T, gradient, 1.0, columns.T, 0, 0, 1)


def entropy_gradient(scores: np.ndarray, weight: np.ndarray, inside: np.ndarray | None = None) -> np.ndarray:
    """``weight · p · (log p + H)``: the gradient of ``-weight · H(p)``, with p the softmax of the scores.

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
    """Raise if training diverged, because the learning rate was too high."""
    if not np.isfinite(columns).all():
        raise ValueError(f"learning diverged; a smaller lr (it is {lr:g}) helps, and so does standardize='scale'")
