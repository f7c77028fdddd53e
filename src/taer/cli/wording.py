"""Words for numbers."""

from __future__ import annotations


def counted(number: int, noun: str, ending: str = "s") -> str:
    """A number with its noun.

    Examples
    --------
    >>> counted(1, "class", "es"), counted(5, "sample")
    ('1 class', '5 samples')
    """
    return f"{number} {noun}{ending * (number != 1)}"
