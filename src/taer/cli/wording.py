"""Words for numbers, and texts in a line."""

from __future__ import annotations

_WIDE = 40  # characters of a text in a line


def counted(number: int, noun: str, ending: str = "s") -> str:
    """A number with its noun.

    Examples
    --------
    >>> counted(1, "class", "es"), counted(5, "sample")
    ('1 class', '5 samples')
    """
    return f"{number} {noun}{ending * (number != 1)}"


def short(text: str) -> str:
    """A text as one short line.

    Examples
    --------
    >>> short("Where is\\nmy card?"), short("a" * 50)[-3:]
    ('Where is my card?', 'aa…')
    """
    line = " ".join(text.split())
    return line if len(line) <= _WIDE else f"{line[: _WIDE - 1]}…"
