"""Vanilla experience replay and the two halves of TaER: the other rows of the paper's ablation."""

from __future__ import annotations

from dataclasses import dataclass

from taer.heads.replay import ReplayHead


@dataclass(kw_only=True, eq=False, repr=False)
class ER(ReplayHead):
    """Experience replay: the sum of both losses, all columns move.

    ``mean over D_t of CE + mean over the memory of CE``, the paper's form of Rolnick et al., "Experience
    Replay for Continual Learning"; the memory is filled when a task ends.
    """

    balanced = False
    detached = False


@dataclass(kw_only=True, eq=False, repr=False)
class ERFixed(ReplayHead):
    """Experience replay with fixed old columns: the sum of both losses, current columns move."""

    balanced = False
    detached = True


@dataclass(kw_only=True, eq=False, repr=False)
class ERBalanced(ReplayHead):
    """Experience replay with TaER's weights: ``(1 - λ)`` and ``λ``, all columns move."""

    balanced = True
    detached = False
