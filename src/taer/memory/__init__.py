"""Episodic memories: policies that select which samples of earlier tasks are stored.

A memory has rows of features ``X``, integer labels ``y`` and optional arrays with one row per sample (``extra``, for
example the logits at the time of storing). It is never changed in place: ``add`` replaces its arrays, so a shallow
copy is a snapshot.
"""

from __future__ import annotations

from taer.memory.base import Memory, draw
from taer.memory.everything import Everything
from taer.memory.gradient_based import GradientBased, gradient_similarity
from taer.memory.greedy import GreedyBalanced
from taer.memory.herding import Herding, herd
from taer.memory.reservoir import Reservoir

POLICIES: dict[str, type[Memory]] = {
    "greedy": GreedyBalanced,
    "reservoir": Reservoir,
    "herding": Herding,
    "gss": GradientBased,
}

__all__ = [
    "POLICIES",
    "Everything",
    "GradientBased",
    "GreedyBalanced",
    "Herding",
    "Memory",
    "Reservoir",
    "draw",
    "gradient_similarity",
    "herd",
]
