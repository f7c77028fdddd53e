"""What is computed from the state of a head once, and kept for all its answers."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from threading import Lock
from typing import Any, TypeVar

import numpy as np


class _Place:
    """Where something is kept, once it is made."""

    def __init__(self) -> None:
        self.making = Lock()
        self.made: Any = None


_made: dict[tuple[int, type], _Place] = {}
_placing = Lock()

Made = TypeVar("Made")


def kept(array: np.ndarray, kind: type[Made], make: Callable[[], Made]) -> Made:
    """An object of this kind, made from a fitted array when it is first asked for, kept as long as the array is.

    Fitted arrays are replaced, never written into, so those of a head that has learned more are others. The object must
    not refer to the array, or to a view of it.
    """
    key = id(array), kind
    place = _made.get(key)
    if place is None:
        with _placing:
            if key not in _made:
                _made[key] = _Place()
                weakref.finalize(array, _made.pop, key, None)
            place = _made[key]
    if place.made is None:
        with place.making:  # several parts of the rows may ask at once, and other heads do not wait
            if place.made is None:
                place.made = make()
    found: Made = place.made
    return found
