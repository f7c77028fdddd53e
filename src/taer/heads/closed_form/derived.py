"""What is computed from the fitted arrays of a head once, for all its answers."""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from typing import Any, TypeVar

import numpy as np

Made = TypeVar("Made")


class Derived:
    """One object per kind, with the fitted array that it was made from.

    Fitted arrays are replaced, never written into, so the object is right as long as the array is the same. A copy of
    a head shares it; it is not saved.
    """

    def __init__(self) -> None:
        self._made: dict[type, tuple[np.ndarray, Any]] = {}
        self._making = RLock()

    def of(self, array: np.ndarray, kind: type[Made], make: Callable[[], Made]) -> Made:
        """The object of this kind, made when it is first asked for."""
        found = self._made.get(kind)
        if found is None or found[0] is not array:
            with self._making:  # several parts of the rows may ask at once
                found = self._made.get(kind)
                if found is None or found[0] is not array:
                    found = self._made[kind] = array, make()
        made: Made = found[1]
        return made

    def __reduce__(self) -> tuple[type[Derived], tuple[()]]:
        return Derived, ()
