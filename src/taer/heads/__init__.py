"""Heads: scikit-learn classifiers whose set of classes grows. One folder per family, one file per method."""

from taer.heads.base import Head, Learned, Task
from taer.heads.card import Card
from taer.heads.registry import HEADS, find_head, make_head, name_of

__all__ = ["HEADS", "Card", "Head", "Learned", "Task", "find_head", "make_head", "name_of"]
