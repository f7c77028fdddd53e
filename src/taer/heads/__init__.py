"""Heads: scikit-learn classifiers whose set of classes grows. One file a method; found here by name."""

from __future__ import annotations

from typing import Any

from taer.heads.base import Head
from taer.heads.er import ER, ERBalanced, ERFixed
from taer.heads.finetune import Finetune
from taer.heads.joint import Joint
from taer.heads.taer import TaER

HEADS: dict[str, type[Head]] = {
    "taer": TaER,
    "er": ER,
    "er-fixed": ERFixed,
    "er-balanced": ERBalanced,
    "finetune": Finetune,
    "joint": Joint,
}


def make_head(name: str, **params: Any) -> Head:
    """A head by its name in ``HEADS``.

    Examples
    --------
    >>> import taer
    >>> taer.make_head("taer", memory_size=500)
    TaER(memory_size=500)
    """
    if name not in HEADS:
        raise ValueError(f"unknown method {name!r}; there are {', '.join(HEADS)}")
    known = HEADS[name]().get_params()
    if unknown := [param for param in params if param not in known]:
        raise ValueError(f"{name} has no parameter {unknown[0]!r}; it has {', '.join(known)}")
    return HEADS[name](**params)
