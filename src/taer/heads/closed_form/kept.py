"""What is computed from the state of a head once, and kept for all its answers."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from threading import Lock
from typing import Any, TypeVar

import numpy as np

_made: dict[tuple[int, type], Any] = {}
_making = Lock()

Made = TypeVar("Made")


def kept(array: np.ndarray, kind: type[Made], make: Callable[[], Made]) -> Made:
    """An object of this kind, made from a fitted array when it is first asked for, kept as long as the array is.

    Fitted arrays are replaced, never written into, so those of a head that has learned more are others. The object must
    not refer to the array, or to a view of it.
    """
    key = id(array), kind
    with _making:  # several parts of the rows may ask at once
        if key not in _made:
            _made[key] = make()
            weakref.finalize(array, _made.pop, key, None)
        found: Made = _made[key]
        return found
