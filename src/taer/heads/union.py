"""Heads that learn from the current task and the memory shuffled together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from taer.heads.base import Task
from taer.heads.replay import Remembering
from taer.heads.sgd import Samples
from taer.rows import StackedRows


@dataclass(kw_only=True, eq=False, repr=False)
class UnionHead(Remembering):
    """Epochs run over ``D_t ∪ M`` in one random order; a memory sample counts as much as any other."""

    def _union(self, X: Any, task: Task) -> Samples:
        old_X, old_classes = self._old_memory(task)
        return Samples(StackedRows(X, old_X), {"target": np.concatenate([task.y, old_classes])})
