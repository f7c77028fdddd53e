"""Declarations of the fitted attributes of a head, for its documentation and for the checks when a file is loaded.

Each head class has a dictionary ``fitted`` of the attributes that it adds. Sizes are numbers or names: ``classes`` and
``width`` are those of the head, ``embedding`` is the width after the embedding, and any other name is a size that
several attributes share.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from taer.heads.task import Learned

FLOATS = ("float32", "float64")
Sizes = dict[str, int]
_SIZES = {
    "classes": "n_classes",
    "width": "n_features",
    "embedding": "n_embedded",
    "blocks": "n_blocks",
}  # in documents


@dataclass(frozen=True)
class Fitted:
    """A check that raises ValueError, whether the attribute may be missing, and its documentation."""

    check: Callable[[Any, Sizes], None]
    described: str  # its type, for the documentation
    help: str
    optional: bool = False
    per_class: bool = False  # whether it is an array with one row per class, in order of arrival
    kinds: tuple[type, ...] = ()  # of a value that is neither an array nor a number


def array(
    *shape: str | int,
    types: tuple[str, ...] = FLOATS,
    at_least: float | None = None,
    above: float | None = None,
    triangular: bool = False,
    optional: bool = False,
    help: str,
) -> Fitted:
    """An array of finite numbers with a shape, a type and a range; or of lower triangular matrices."""

    def check(value: Any, sizes: Sizes) -> None:
        if not isinstance(value, np.ndarray) or value.dtype.name not in types or value.ndim != len(shape):
            raise ValueError(f"expected an array of {' or '.join(types)} of {len(shape)} dimensions")
        expected = [
            sizes.setdefault(size, found) if isinstance(size, str) else size
            for size, found in zip(shape, value.shape, strict=True)
        ]
        if list(value.shape) != expected:
            raise ValueError(f"expected the shape {tuple(expected)}, got {value.shape}")
        if not np.isfinite(value).all():
            raise ValueError("it contains NaN or infinity")
        if (at_least is not None and (value < at_least).any()) or (above is not None and (value <= above).any()):
            raise ValueError(f"expected numbers {f'above {above}' if at_least is None else f'from {at_least} on'}")
        if triangular and np.triu(value, 1).any():
            raise ValueError("expected lower triangular matrices")

    sizes = ", ".join(_SIZES.get(str(size), str(size)) for size in shape)
    described = f"array of shape ({sizes}{',' * (len(shape) == 1)})"
    return Fitted(check, described, help, optional, per_class=shape[:1] == ("classes",))


def number(
    *, above: float | None = None, at_least: float | None = None, optional: bool = False, help: str
) -> Fitted:
    """A finite floating-point number."""

    def check(value: Any, sizes: Sizes) -> None:
        if not isinstance(value, float) or not np.isfinite(value):
            raise ValueError("expected a finite number")
        if (above is not None and value <= above) or (at_least is not None and value < at_least):
            raise ValueError(f"expected a number {f'above {above}' if at_least is None else f'from {at_least} on'}")

    return Fitted(check, "float", help, optional)


def numbers(*names: str, optional: bool = False, help: str) -> Fitted:
    """A dictionary with a finite floating-point number for each name."""

    def check(value: Any, sizes: Sizes) -> None:
        if type(value) is not dict or set(value) != set(names):
            raise ValueError(f"expected a dictionary with {', '.join(names)}")
        if not all(type(each) is float and np.isfinite(each) for each in value.values()):
            raise ValueError("expected finite numbers")

    return Fitted(check, "dict", help, optional)


def count(*, at_least: int = 1, optional: bool = False, help: str) -> Fitted:
    """An integer."""

    def check(value: Any, sizes: Sizes) -> None:
        if type(value) is not int or not at_least <= value < 1 << 62:
            raise ValueError(f"expected a whole number from {at_least} on")

    return Fitted(check, "int", help, optional)


def word(*options: str, help: str) -> Fitted:
    """One of a few strings."""

    def check(value: Any, sizes: Sizes) -> None:
        if not isinstance(value, str) or value not in options:
            raise ValueError(f"expected {' or '.join(options)}")

    return Fitted(check, f"{{{', '.join(map(repr, options))}}}", help)


def value_of(*kinds: type, width: str | None = None, more: int = 0, optional: bool = False, help: str) -> Fitted:
    """A value of one of these types. With ``width``, its ``check`` is called with that width and the number of classes."""

    def check(value: Any, sizes: Sizes) -> None:
        if not isinstance(value, kinds):
            raise ValueError(f"expected a {' or '.join(kind.__name__ for kind in kinds)}")
        if width is not None:
            value.check(sizes[width] + more, sizes["classes"])  # type: ignore[attr-defined]

    return Fitted(check, listed([kind.__name__ for kind in kinds]), help, optional, kinds=kinds)


def listed(words: list[str]) -> str:
    """``a, b or c``."""
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last


def declared(kind: type) -> dict[str, Fitted]:
    """The fitted attributes of a head class, those of its bases first."""
    return {name: item for base in reversed(kind.__mro__) for name, item in vars(base).get("fitted", {}).items()}


def check_declared(state: dict[str, Any], attributes: dict[str, Fitted], sizes: Sizes) -> None:
    """Raise ValueError with the first attribute that is unknown, missing or not as declared."""
    if unknown := sorted(state.keys() - attributes.keys()):
        raise ValueError(f"{unknown[0]} is no fitted attribute of this head")
    for name, item in attributes.items():
        if name not in state and not item.optional:
            raise ValueError(f"{name} is missing")
        if name in state:
            try:
                item.check(state[name], sizes)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None


def check_classes(head: Any) -> None:
    """Raise ValueError unless the classes of a head and the order in which they were learned are consistent."""
    classes, names = head.classes_, getattr(head, "feature_names_in_", None)
    if classes.ndim != 1 or not len(classes) or classes.dtype.kind not in "biufU":
        raise ValueError("classes_: expected a list of strings or of whole numbers")
    if not (classes[:-1] < classes[1:]).all() or (classes.dtype.kind == "f" and not np.isfinite(classes).all()):
        raise ValueError("classes_: expected each class once, sorted")
    if not all(isinstance(entry, Learned) and type(entry.task) is int for entry in head.learning_order_):
        raise ValueError("learning_order_: expected pairs of a class and a task")
    labels, tasks = [label for label, _ in head.learning_order_], [task for _, task in head.learning_order_]
    known = [(type(label), label) for label in classes.tolist()]
    if len(labels) != len(classes) or {(type(label), label) for label in labels} != set(known):
        raise ValueError("learning_order_: expected every class once")
    if tasks != sorted(tasks) or tasks[0] < 1 or tasks[-1] > head.n_tasks_:
        raise ValueError(f"learning_order_: expected tasks from 1 to {head.n_tasks_}, in order")
    place = {label: number for number, label in enumerate(labels)}
    if head.arrival_.dtype != np.int64 or head.arrival_.tolist() != [place[label] for _, label in known]:
        raise ValueError("arrival_: expected the place of each class in learning_order_")
    if names is not None and (names.shape != (head.n_features_in_,) or {type(name) for name in names} != {str}):
        raise ValueError(f"feature_names_in_: expected {head.n_features_in_} names")
