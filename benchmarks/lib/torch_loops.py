"""The methods as one would write them in torch: autograd, tensors of features, no data loader, no framework.

Each function learns a list of tasks ``(X, y)`` with classes numbered in order of arrival and returns a function
that predicts. They share the objectives of the heads with the same names, at learning rate ``lr``, batch 32 + 32,
a balanced random memory of 200, plain SGD.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

BATCH = REPLAY = 32
MEMORY = 200
Predict = Callable[[Any], Any]


class Memory:
    """A balanced random memory: the same number of samples of each class."""

    def __init__(self) -> None:
        self.X: Any = None
        self.y: Any = torch.empty(0, dtype=torch.long)

    def refill(self, X: Any, y: Any) -> Any:
        """Returns which of the stored samples followed by the new ones are kept."""
        everything = X if self.X is None else torch.cat([self.X, X])
        labels = torch.cat([self.y, y])
        classes = labels.unique()
        quota = max(1, MEMORY // len(classes))
        picks = torch.cat([(labels == c).nonzero()[:, 0][:quota] for c in classes[:MEMORY]])
        self.X, self.y = everything[picks], labels[picks]
        return picks

    def draw(self, size: int = REPLAY) -> Any:
        return torch.randperm(len(self.y))[:size]


def _steps(n: int, epochs: int) -> Any:
    for _ in range(epochs):
        yield from torch.randperm(n).split(BATCH)


def _grown(W: Any, y: Any, width: int) -> tuple[Any, int]:
    """The weights with rows for new classes, and how many there were."""
    old = 0 if W is None else len(W)
    new = torch.zeros(int(y.max()) + 1 - old, width)
    return (new if W is None else torch.cat([W.detach(), new])), old


def taer(tasks: list[Any], epochs: int = 1, lr: float = 0.1, **_: Any) -> Predict:
    W, memory = None, Memory()
    for X, y in tasks:
        W, old = _grown(W, y, X.shape[1])
        fixed, own = W[:old].clone(), W[old:].clone().requires_grad_()
        optimizer = torch.optim.SGD([own], lr=lr)
        share = old / len(W)
        for rows in _steps(len(X), epochs):
            columns = torch.cat([fixed, own])
            loss = (1 - share) * F.cross_entropy(X[rows] @ columns.T, y[rows])
            if old:
                drawn = memory.draw()
                loss = loss + share * F.cross_entropy(memory.X[drawn] @ columns.T, memory.y[drawn])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        W = torch.cat([fixed, own.detach()])
        memory.refill(X, y)
    return lambda X: (X @ W.T).argmax(1)


def er(tasks: list[Any], epochs: int = 1, lr: float = 0.1, **_: Any) -> Predict:
    W, memory = None, Memory()
    for X, y in tasks:
        W, old = _grown(W, y, X.shape[1])
        W.requires_grad_()
        optimizer = torch.optim.SGD([W], lr=lr)
        for rows in _steps(len(X), epochs):
            loss = F.cross_entropy(X[rows] @ W.T, y[rows])
            if old:
                drawn = memory.draw()
                loss = loss + F.cross_entropy(memory.X[drawn] @ W.T, memory.y[drawn])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        memory.refill(X, y)
    return lambda X: (X @ W.detach().T).argmax(1)


def derpp(tasks: list[Any], epochs: int = 1, lr: float = 0.03, **_: Any) -> Predict:
    W, memory, logits = None, Memory(), None
    for X, y in tasks:
        W, old = _grown(W, y, X.shape[1])
        W.requires_grad_()
        optimizer = torch.optim.SGD([W], lr=lr)
        for rows in _steps(len(X), epochs):
            loss = F.cross_entropy(X[rows] @ W.T, y[rows])
            if old:
                first, second = memory.draw(), memory.draw()
                difference = (memory.X[first] @ W.T)[:, :old] - logits[first]
                known = ~difference.isnan()
                squares = torch.where(known, difference, 0.0).square().sum(1) / known.sum(1)
                loss = loss + 0.1 * squares.mean()
                loss = loss + 0.5 * F.cross_entropy(memory.X[second] @ W.T, memory.y[second])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        stored, picks = len(memory.y), memory.refill(X, y)
        now = memory.X @ W.detach().T
        if old:  # a sample keeps the logits of the task it came with
            kept = picks < stored
            now[kept] = F.pad(logits, (0, len(W) - old), value=torch.nan)[picks[kept]]
        logits = now
    return lambda X: (X @ W.detach().T).argmax(1)


def ssil(tasks: list[Any], epochs: int = 1, lr: float = 0.1, **_: Any) -> Predict:
    W, memory, ends = None, Memory(), [0]
    for number, (X, y) in enumerate(tasks):
        W, old = _grown(W, y, X.shape[1])
        before = W.clone()
        W.requires_grad_()
        optimizer = torch.optim.SGD([W], lr=lr / (number + 1))
        for rows in _steps(len(X), epochs):
            h = X[rows]
            if old:
                drawn = memory.draw(8)
                h = torch.cat([h, memory.X[drawn]])
            z, n = h @ W.T, len(rows)
            loss = F.cross_entropy(z[:n, old:], y[rows] - old, reduction="sum")
            if old:
                loss = loss + F.cross_entropy(z[n:, :old], memory.y[drawn], reduction="sum")
            loss = loss / len(h)
            if old:
                with torch.no_grad():
                    z_before = h @ before.T
                for start, end in itertools.pairwise(ends):
                    loss = loss + 4 * F.kl_div(
                        F.log_softmax(z[:, start:end] / 2, 1), F.softmax(z_before[:, start:end] / 2, 1),
                        reduction="batchmean",
                    )  # fmt: skip
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        ends.append(len(W))
        memory.refill(X, y)
    return lambda X: (X @ W.detach().T).argmax(1)


def ucir(tasks: list[Any], epochs: int = 1, lr: float = 0.1, memory: Any = None, **_: Any) -> Predict:
    W, memory, eta = None, memory or Memory(), torch.ones(1, requires_grad=True)
    for X, y in tasks:
        W, old = _grown(W, y, X.shape[1])
        if old:
            means = torch.stack([F.normalize(X[y == c], dim=1).mean(0) for c in range(old, len(W))])
            own = F.normalize(means, dim=1) * W[:old].norm(dim=1).mean()
        else:
            own = torch.empty_like(W).uniform_(-(X.shape[1] ** -0.5), X.shape[1] ** -0.5)
        own.requires_grad_()
        fixed = F.normalize(W[:old], dim=1) if old else W[:old]
        optimizer = torch.optim.SGD([own, eta], lr=lr, momentum=0.9, weight_decay=5e-4)
        everything, labels = (X, y) if not old else (torch.cat([X, memory.X]), torch.cat([y, memory.y]))
        for rows in _steps(len(everything), epochs):
            h, target = F.normalize(everything[rows], dim=1), labels[rows]
            cosines = h @ torch.cat([fixed, F.normalize(own, dim=1)]).T
            loss = F.cross_entropy(eta * cosines, target)
            past = target < old
            if past.any():
                truth = cosines[past].gather(1, target[past][:, None])
                nearest = cosines[past][:, old:].topk(2, 1).values
                loss = loss + F.relu(0.5 - truth + nearest).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        W = torch.cat([W[:old], own.detach()])
        memory.refill(X, y)
    return lambda X: (F.normalize(X, dim=1) @ F.normalize(W, dim=1).T).argmax(1)


def oewc(tasks: list[Any], epochs: int = 1, lr: float = 0.03, **_: Any) -> Predict:
    W, fisher = None, None
    for X, y in tasks:
        W, old = _grown(W, y, X.shape[1])
        anchor = W.clone()
        penalty = torch.zeros_like(W)
        if fisher is not None:
            penalty[:old] = fisher
        W.requires_grad_()
        optimizer = torch.optim.SGD([W], lr=lr)
        for rows in _steps(len(X), epochs):
            loss = F.cross_entropy(X[rows] @ W.T, y[rows])
            if old:
                loss = loss + 10 * (penalty.clamp(max=1 / (20 * lr)) * (W - anchor).square()).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        task_fisher = torch.zeros_like(W)
        for i in range(len(X)):  # as the public code: one backward pass a sample
            optimizer.zero_grad()
            log_p = F.log_softmax(X[i : i + 1] @ W.T, 1)[0, y[i]]
            log_p.backward()
            task_fisher += log_p.exp().item() * W.grad.square()
        fisher = penalty + task_fisher / len(X)
        W = W.detach()
    return lambda X: (X @ W.T).argmax(1)


def gss(tasks: list[Any], epochs: int = 1, lr: float = 0.03, **_: Any) -> Predict:
    W: Any = None
    memory_X, memory_y, scores = None, torch.empty(0, dtype=torch.long), torch.empty(0)

    def gradients(X: Any, y: Any) -> Any:  # as the public code: one backward pass a sample
        found = []
        for i in range(len(X)):
            (g,) = torch.autograd.grad(F.cross_entropy(X[i : i + 1] @ W.T, y[i : i + 1]), W)
            found.append(g.flatten())
        return torch.stack(found)

    for X, y in tasks:
        W, _old = _grown(W, y, X.shape[1])
        W.requires_grad_()
        optimizer = torch.optim.SGD([W], lr=lr)
        for rows in _steps(len(X), epochs):
            h, target = X[rows], y[rows]
            if len(memory_y):
                drawn = torch.randperm(len(memory_y))[:REPLAY]
                h, target = torch.cat([h, memory_X[drawn]]), torch.cat([target, memory_y[drawn]])
            optimizer.zero_grad()
            F.cross_entropy(h @ W.T, target).backward()
            optimizer.step()
            whole, single = 0.1, torch.full((len(rows),), 0.1)
            if len(memory_y):
                drawn = torch.randperm(len(memory_y))[:REPLAY]
                stored, own = gradients(memory_X[drawn], memory_y[drawn]), gradients(X[rows], y[rows])
                whole = float(F.cosine_similarity(own.mean(0, keepdim=True), stored).max()) + 1
                single = F.cosine_similarity(own[:, None], stored[None], dim=2).max(1).values + 1
            for i, row in enumerate(rows):
                if len(memory_y) < MEMORY:
                    memory_X = X[row][None] if memory_X is None else torch.cat([memory_X, X[row][None]])
                    memory_y, scores = (
                        torch.cat([memory_y, y[row][None]]),
                        torch.cat([scores, torch.tensor([whole])]),
                    )
                elif whole < 1:
                    rival = int(torch.multinomial(scores.clamp(min=1e-9), 1))
                    if torch.rand(1) < scores[rival] / (scores[rival] + single[i]):
                        memory_X[rival], memory_y[rival], scores[rival] = X[row], y[row], single[i]
        W = W.detach()
    return lambda X: (X @ W.T).argmax(1)


LOOPS: dict[str, Callable[..., Predict]] = {
    "taer": taer, "er": er, "derpp": derpp, "ssil": ssil, "ucir": ucir, "oewc": oewc, "gss": gss,
}  # fmt: skip
