"""Gradients of losses with respect to the scores: cross-entropy, and distillation of the scores before the task."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import numpy as np

from taer.heads.base import Learned, Task
from taer.heads.descent.loop import Batch, entropy_gradient

TEMPERATURE = 2.0  # of all published distillation losses used here
MARGIN = 0.5  # between the cosines of a replayed sample with its own class and with new classes


def cross_entropy(scores: np.ndarray, batch: Batch) -> np.ndarray:
    """The gradient of the weighted cross-entropy for the targets of the batch."""
    if batch.own is None:
        return cross_entropy_gradient(scores, batch.constants["target"], batch.weight)
    return _softmax_less_one(scores, batch.own, batch.weight)


def cross_entropy_gradient(scores: np.ndarray, target: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """``weight · (softmax(scores) - onehot(target))``; the scores may be overwritten."""
    return _softmax_less_one(scores, target * len(target) + np.arange(len(target)), weight)


def _softmax_less_one(scores: np.ndarray, own: np.ndarray, weight: np.ndarray) -> np.ndarray:
    by_class = np.ascontiguousarray(scores.T)  # the loop stores scores in this order, so nothing is copied there
    by_class -= np.maximum.reduce(by_class)
    np.exp(by_class, by_class)
    by_class *= weight / _ones(len(by_class), by_class.dtype).dot(by_class)
    by_class.reshape(-1)[own] -= weight
    return by_class.T


@cache
def _ones(n: int, dtype: np.dtype[Any]) -> np.ndarray:
    """With these, sums over classes are products, which are faster."""
    return np.ones(n, dtype)


def spread_cross_entropy(scores: np.ndarray, target: np.ndarray, weight: np.ndarray, entropy: float) -> np.ndarray:
    """The gradient of cross-entropy minus ``entropy`` times the entropy; the scores may be overwritten."""
    if not entropy:
        return cross_entropy_gradient(scores, target, weight)
    spread = entropy_gradient(scores, entropy * weight)
    return spread + cross_entropy_gradient(scores, target, weight)


class Blocks:
    """Disjoint groups of columns, each with its own softmax."""

    def __init__(self, groups: Iterable[np.ndarray]) -> None:
        groups = [group for group in groups if len(group)]
        self.sizes = np.array([len(group) for group in groups], np.int64)
        self.columns = np.concatenate([*groups, np.empty(0, np.int64)]).astype(np.int64)
        self.starts = np.cumsum(self.sizes) - self.sizes

    def softmax(self, scores: np.ndarray) -> np.ndarray:
        """The softmax of each block, with columns in the order of ``self.columns``; the scores are not overwritten."""
        by_class = scores.T[self.columns]
        by_class -= np.repeat(np.maximum.reduceat(by_class, self.starts, axis=0), self.sizes, axis=0)
        np.exp(by_class, out=by_class)
        by_class /= np.repeat(np.add.reduceat(by_class, self.starts, axis=0), self.sizes, axis=0)
        return by_class.T

    def distillation(self, scores: np.ndarray, teacher: np.ndarray) -> np.ndarray:
        """``softmax(scores / T) - softmax(teacher / T)`` in each block: the gradient of ``T·Σ KL``."""
        return self.softmax(scores / TEMPERATURE) - self.softmax(teacher / TEMPERATURE)


def old_task_blocks(task: Task, learning_order: list[Learned]) -> Blocks:
    """The old classes, grouped by the task in which they were first seen."""
    learned_in = np.array([at for _, at in learning_order])[task.old]
    return Blocks([task.old[learned_in == at] for at in range(1, task.number)])


def separated(
    task: Task, old_tasks: Blocks, teacher: np.ndarray, kd_weight: float
) -> Callable[[np.ndarray, Batch], np.ndarray]:
    """The gradient of separate cross-entropies over the current and over the old classes, plus distillation.

    ``kd_weight`` multiplies ``softmax(z / T) - softmax(before / T)``: T if the loss has a factor T², else 1 / T.
    """
    own = [Blocks([task.current]), Blocks([task.old])]

    def gradient(scores: np.ndarray, batch: Batch) -> np.ndarray:
        found, n = np.zeros_like(scores), len(scores)
        for part, block in zip(batch.parts, own, strict=False):
            found[part, block.columns] = block.softmax(scores[part])
        found[np.arange(n), batch.constants["target"]] -= 1
        if len(old_tasks.columns):
            before = batch.rows @ teacher.T
            found[:, old_tasks.columns] += kd_weight * old_tasks.distillation(scores, before)
        found /= n
        return found

    return gradient


def margin_gradient(
    cosines: np.ndarray, target: np.ndarray, is_old: np.ndarray, new: np.ndarray, k: int
) -> np.ndarray:
    """The gradient of the mean over replayed samples and their k nearest new classes of max(0, 1/2 - own + new)."""
    found, replayed = np.zeros_like(cosines), np.flatnonzero(is_old)
    if len(replayed):
        own = target[replayed]
        nearest, violated = margin_violations(cosines[replayed[:, None], new], cosines[replayed, own], k)
        found[replayed[:, None], new[nearest]] = violated
        found[replayed, own] = -violated.sum(axis=1)
    return found


def margin_violations(of_new: np.ndarray, own: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k nearest new classes of each replayed sample, and the gradient of the mean with respect to their cosines.

    ``of_new`` are the cosines of the samples with the new classes, ``own`` those with their own classes.
    """
    k = min(k, of_new.shape[1])
    nearest = (-of_new).argpartition(k - 1, axis=1)[:, :k]
    violated = MARGIN - own[:, None] + of_new[np.arange(len(own))[:, None], nearest] > 0
    return nearest, violated / violated.size
