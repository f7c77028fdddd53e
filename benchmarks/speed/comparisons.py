"""Speed of the heads: against Avalanche, plain torch, scikit-learn, and the matrix products alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.linalg.blas import sgemm
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import RidgeClassifier, SGDClassifier

import taer
from benchmarks.lib import torch_loops
from benchmarks.lib.measuring import Predict, Problem, Side, equally_good, in_turn

BATCH = 32
MEMORY = 200


def ours(name: str, problem: Problem, lr: float, epochs: int) -> Callable[[int], Predict]:
    """A head in the form of the loops it is compared with: features as they are, columns from zero."""

    def run(seed: int) -> Predict:
        head = taer.make_head(name, epochs=epochs, standardize="none", random_state=seed)
        params = {"lr": lr, "init": "zero", "replay_batch_size": 8 if name == "ssil" else BATCH}
        head.set_params(**{key: value for key, value in params.items() if key in head.get_params()})
        for X, y in problem.tasks:
            head.partial_fit(X, y)
        return head.predict

    return run


def _loop(loop: Callable[..., Any], tasks: Any, lr: float, epochs: int) -> Callable[[int], Predict]:
    def run(seed: int) -> Predict:
        predict = loop(tasks, lr=lr, epochs=epochs)
        return lambda X: predict(torch.tensor(X)).numpy()

    return run


def runs_of(
    name: str, problem: Problem, epochs: int = 1, lr: float = 1.0, avalanche: bool = False
) -> dict[str, Callable[[int], Predict]]:
    """A head, the torch loop with its objective and, if asked for, Avalanche with it."""
    tensors = problem.tensors()
    runs = {"taer": ours(name, problem, lr, epochs), "torch": _loop(torch_loops.LOOPS[name], tensors, lr, epochs)}
    if avalanche:
        from benchmarks.lib import avalanche_loops  # which only the environment of `make bench` has

        stream = avalanche_loops.experiences(tensors)
        runs["Avalanche"] = _loop(avalanche_loops.LOOPS[name], stream, lr, epochs)
    return runs


def against_torch(
    name: str, problem: Problem, repeats: int, lr: float = 1.0, avalanche: bool = False
) -> dict[str, Side]:
    """A head, the torch loop and, where they are known, the matrix products alone."""
    runs = runs_of(name, problem, lr=lr, avalanche=avalanche)
    products = {"products": Products(problem, STEPS[name]).in_epochs(1)} if name in STEPS else {}
    found = in_turn({**runs, **products}, problem, repeats)
    equally_good({side: found[side] for side in runs})
    return found


def taer_by_epochs(problem: Problem, repeats: int, numbers: Sequence[int]) -> dict[int, dict[str, Side]]:
    """TaER, torch, Avalanche, the matrix products alone and the calls of numpy alone, with each number of epochs."""
    alone = {"products": Products(problem, STEPS["taer"]), "numpy": Calls(problem)}
    runs = {}
    for epochs in numbers:
        for side, run in runs_of("taer", problem, epochs, avalanche=True).items():
            runs[f"{side} {epochs}"] = run
        for side, work in alone.items():
            runs[f"{side} {epochs}"] = work.in_epochs(epochs)
    found = in_turn(runs, problem, repeats)
    by_epochs = {}
    for epochs in numbers:
        learners = {side: found[f"{side} {epochs}"] for side in ("taer", "torch", "Avalanche")}
        by_epochs[epochs] = {**equally_good(learners), **{side: found[f"{side} {epochs}"] for side in alone}}
    return by_epochs


def against_sklearn(problem: Problem, repeats: int) -> Iterator[tuple[str, str, dict[str, Side]]]:
    """Heads that see each sample once; what was compared, with what, and how long each took."""
    X, y = problem.together()
    classes = np.unique(y)
    mixed = np.array_split(np.random.default_rng(0).permutation(len(X)), len(problem.tasks))

    def descent(seed: int) -> Predict:
        head = taer.Finetune(epochs=1, lr=1.0, standardize="none", init="zero", random_state=seed)
        for rows in mixed:
            head.partial_fit(X[rows], y[rows])
        return head.predict

    def sgd(seed: int) -> Predict:
        other = SGDClassifier(
            loss="log_loss", penalty=None, learning_rate="constant", eta0=0.001, random_state=seed
        )
        for rows in mixed:
            other.partial_fit(X[rows], y[rows], classes=classes)
        return other.predict

    yield (
        "`finetune`, batches of mixed classes",
        "`SGDClassifier(loss='log_loss').partial_fit`",
        equally_good(in_turn({"taer": descent, "scikit-learn": sgd}, problem, repeats)),
    )
    solved: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        "slda": (
            lambda: taer.SLDA(shrinkage=0.1, random_state=0),
            lambda: LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.1),
        ),
        "ridge": (lambda: taer.Ridge(gamma=1.0, random_state=0), lambda: RidgeClassifier(alpha=1.0)),
    }
    for name, (make, make_other) in solved.items():
        other_name = f"`{type(make_other()).__name__}.fit`"

        def task_by_task(seed: int, make: Callable[[], Any] = make) -> Predict:
            head = make()
            for X, y in problem.tasks:
                head.partial_fit(X, y)
            predict: Predict = head.predict
            return predict

        def anew_each_time(seed: int, make: Callable[[], Any] = make_other) -> Predict:
            end = 0
            for task_X, _ in problem.tasks:
                end += len(task_X)
                predict: Predict = make().fit(X[:end], y[:end]).predict
            return predict

        once = {
            "taer": lambda seed, make=make: make().fit(X, y).predict,
            "scikit-learn": lambda seed, make=make_other: make().fit(X, y).predict,
        }
        yield f"`{name}`, all at once", other_name, equally_good(in_turn(once, problem, repeats))
        always = {"taer": task_by_task, "scikit-learn": anew_each_time}
        yield f"`{name}`, up to date after each task", other_name, equally_good(in_turn(always, problem, repeats))


def slda_against_one_product(problem: Problem, repeats: int) -> dict[str, Side]:
    """SLDA at once and task after task, and the least it could do: convert to float64 and multiply once."""
    X, y = problem.together()

    def learn(seed: int) -> Predict:
        return taer.SLDA().fit(X, y).predict

    def learn_tasks(seed: int) -> Predict:
        head = taer.SLDA()
        for task_X, task_y in problem.tasks:
            head.partial_fit(task_X, task_y)
        return head.predict

    def product(seed: int) -> Predict:
        rows = X.astype(np.float64)
        rows.T @ rows
        return _learned_nothing

    return in_turn({"at once": learn, "in tasks": learn_tasks, "product": product}, problem, repeats)


def _learned_nothing(X: np.ndarray) -> np.ndarray:
    return np.full(len(X), -1)


@dataclass(frozen=True)
class Step:
    """What a head multiplies in a step, of ten new classes per task."""

    draws: int = 1  # batches from the memory; without one, the memory is part of the epoch
    scores_all: bool = True  # columns that are multiplied with the rows: all, or those of the task
    moves_all: bool = True  # columns that get a gradient


STEPS = {
    "taer": Step(scores_all=False, moves_all=False),
    "er": Step(),
    "derpp": Step(draws=2),
    "ucir": Step(draws=0, moves_all=False),
}


class Products:
    """The two matrix products of each step of a head, and nothing else: on rows that lie ready in their order."""

    def __init__(self, problem: Problem, step: Step) -> None:
        rng, width = np.random.default_rng(0), problem.test_X.shape[1]
        self.steps: list[tuple[np.ndarray, int, int]] = []  # rows, columns scored, columns moved
        for number, (X, _) in enumerate(problem.tasks):
            order = rng.permutation(len(X))
            if number and not step.draws:
                order = np.append(order, rng.integers(0, len(X), MEMORY))
            sizes = 10 * (number + 1 if step.scores_all else 1), 10 * (number + 1 if step.moves_all else 1)
            for start in range(0, len(order), BATCH):
                replayed = rng.integers(0, len(X), BATCH * step.draws if number else 0)
                rows = X[np.append(order[start : start + BATCH], replayed)]
                self.steps.append((rows, *sizes))
        n_classes = 10 * len(problem.tasks)
        self.columns, self.gradient = np.zeros((2, n_classes, width), np.float32)
        self.scores = np.zeros((3 * BATCH, n_classes), np.float32)

    def run(self, epochs: int) -> None:
        for _ in range(epochs):
            for rows, scored, moved in self.steps:
                scores = self.scores.reshape(-1)[: len(rows) * scored].reshape(scored, len(rows))
                sgemm(1.0, rows.T, self.columns[:scored].T, 0.0, scores.T, 1, 0, 1)
                sgemm(1.0, rows.T, scores[:moved].T, 0.0, self.gradient[:moved].T, 0, 0, 1)

    def in_epochs(self, epochs: int) -> Callable[[int], Predict]:
        def run(seed: int) -> Predict:
            self.run(epochs)
            return _learned_nothing

        return run


class Calls(Products):
    """The steps of TaER as bare calls of numpy and BLAS, written out: the least that a loop in Python can take.

    Draws, constants and positions of targets lie ready; there are no checks, options and tasks.
    """

    def __init__(self, problem: Problem) -> None:
        rng = np.random.default_rng(0)
        self.tasks = []
        for number, (X, y) in enumerate(problem.tasks):
            order = rng.permutation(len(X))
            full = order[: len(order) // BATCH * BATCH].reshape(-1, BATCH)
            drawn = rng.integers(0, MEMORY, (len(full), BATCH if number else 0))
            n = BATCH + drawn.shape[1]
            target = np.hstack([y[full] - 10 * number, np.full(drawn.shape, 10)])
            old = np.zeros((len(full), n), np.float32)
            self.tasks.append((X, X[:MEMORY].copy(), full, drawn, target * n + np.arange(n), old))

    def run(self, epochs: int) -> None:
        for X, memory, picks, drawn, own, old in self.tasks:
            n = BATCH + drawn.shape[1]
            columns, rows = np.zeros((10, X.shape[1]), np.float32), np.empty((n, X.shape[1]), np.float32)
            current, replayed, scores = rows[:BATCH], rows[BATCH:], np.empty((11, n), np.float32)
            flat, moving, ones = scores.reshape(-1), scores[:10].T, np.ones(11, np.float32)
            weight = np.full(n, 1 / n, np.float32)
            for _ in range(epochs):
                for at in range(len(picks)):
                    X.take(picks[at], 0, current, "clip")
                    memory.take(drawn[at], 0, replayed, "clip")
                    sgemm(1.0, rows.T, columns.T, 0.0, moving, 1, 0, 1)
                    scores[10] = old[at]
                    scores -= np.maximum.reduce(scores)
                    np.exp(scores, scores)
                    scores *= weight / ones.dot(scores)
                    flat[own[at]] -= weight
                    sgemm(-1.0, rows.T, moving, 1.0, columns.T, 0, 0, 1)
