"""Parameters of a head: a default, a range, and a line of help, declared once."""

from __future__ import annotations

import inspect
import re
import textwrap
from dataclasses import field, fields
from functools import cache
from numbers import Integral, Real
from typing import Any

import numpy as np

from taer.heads.fitted import Fitted, declared, listed


def param(
    default: Any,
    help: str,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    above: float | None = None,
    below: float | None = None,
    options: tuple[str | None, ...] | None = None,
) -> Any:
    """A dataclass field with a range. With an integer default only integers are valid, with a float any number."""
    return field(
        default=default,
        metadata={
            "help": help,
            "at_least": at_least,
            "at_most": at_most,
            "above": above,
            "below": below,
            "options": options,
        },
    )


def documented(head: type) -> str:
    """The docstring of a head, with numpydoc sections for its parameters and attributes added."""
    text = inspect.cleandoc(head.__dict__.get("__doc__") or "")
    if "\nParameters\n" in text:
        return text
    about, *rest = re.split(r"\n\n(?=References?\n-|Examples?\n-)", text, maxsplit=1)
    parameters = [_entry(item.name, _type(item), item.metadata["help"]) for item in fields(head)]
    stored = {name: item for name, item in declared(head).items() if _is_state(item)}
    attributes = [_entry(name, it.described, it.help) for name, it in declared(head).items() if name not in stored]
    sections = [("Parameters", parameters), ("Attributes", [*attributes, *_coefficients(head)])]
    described = ["\n".join([title, "-" * len(title), *entries]) for title, entries in sections if entries]
    names = ", ".join(f"``{name}``" for name in stored)
    also = textwrap.fill(f"Also stored, if any: {names}.", 116)
    return "\n\n".join([about, also, *described, *rest]) + "\n"


def shorten_routing(head: type) -> None:
    """Short help of ``set_fit_request`` and so on, in place of scikit-learn's, which fills a screen for each of them."""
    for name, made in list(vars(head).items()):
        if name.startswith("set_") and name.endswith("_request"):
            kind: Any = type(made)
            setattr(head, name, _brief(kind)(made.name, made.keys))


@cache
def _brief(kind: type) -> Any:
    """scikit-learn's descriptor of such a method, with other words."""

    class Brief(kind):
        def __get__(self, instance: Any, owner: type) -> Any:
            method = super().__get__(instance, owner)
            method.__doc__ = f"Whether metadata routing passes these on to ``{self.name}``; see scikit-learn."
            return method

    return Brief


def _is_state(item: Fitted) -> bool:
    """Whether an attribute is named without a description: it may be missing, or methods are the way to use it."""
    return item.optional or any(kind.__module__.startswith("taer.") for kind in item.kinds)


def _entry(name: str, kind: str, help: str) -> str:
    sentence = f"{help[0].upper()}{help[1:]}."
    return f"{name} : {kind}\n" + textwrap.fill(sentence, 100, initial_indent="    ", subsequent_indent="    ")


def _coefficients(head: Any) -> list[str]:
    """The entries for ``coef_`` and ``intercept_``, if the head's scores are linear in the user's features."""
    embedding = declared(head).get("embedding_")
    folds = [] if embedding is None else [getattr(kind, "folds", "never") for kind in embedding.kinds]
    if not folds or "never" in folds or not (hasattr(head, "card") and head.card.linear):
        return []
    when = "" if folds == ["always"] else f"; {folds[0]}"
    weights = f"weights in the units of your features, one row per class of ``classes_``{when}"
    return [
        _entry("coef_", "array of shape (n_classes, n_features)", weights),
        _entry("intercept_", "array of shape (n_classes,)", f"constants of the scores with these weights{when}"),
    ]


def _type(item: Any) -> str:
    default, rule = item.default, item.metadata
    kinds = []
    if isinstance(default, bool):
        kinds.append("bool")
    elif _takes_numbers(default, rule):
        kinds.append(_range("int" if _whole(default) else "float", rule))
        kinds += ["None"] * (default is None)
    if rule["options"]:
        options = ", ".join(map(repr, rule["options"]))
        kinds.append(options if len(rule["options"]) == 1 else f"one of {options}")
    annotated = listed([kind.strip().rpartition(".")[2] for kind in str(item.type).split("|")])
    return f"{', or '.join(kinds) or annotated}, default={default!r}"


def check_params(head: Any) -> None:
    """Raise ValueError with the first parameter out of its range."""
    for item in fields(head):
        value, rule = getattr(head, item.name), item.metadata
        if not _fits(value, item.default, rule) and (expected := _expected(item.default, rule)):
            raise ValueError(f"{type(head).__name__}: {item.name} must be {expected}, got {value!r}")


def _fits(value: Any, default: Any, rule: Any) -> bool:
    if value is None and default is None:
        return True
    if isinstance(value, str) or not _takes_numbers(default, rule):
        return value in (rule["options"] or ())
    if isinstance(default, bool):
        return isinstance(value, bool | np.bool_)
    wanted = Integral if _whole(default) else Real
    if isinstance(value, bool) or not isinstance(value, wanted) or not np.isfinite(float(value)):
        return False
    return not (
        (rule["at_least"] is not None and value < rule["at_least"])
        or (rule["at_most"] is not None and value > rule["at_most"])
        or (rule["above"] is not None and value <= rule["above"])
        or (rule["below"] is not None and value >= rule["below"])
    )


def _whole(default: Any) -> bool:
    """Whether a number is a whole one; where the default is None, it is the number of something."""
    return default is None or isinstance(default, int)


def _takes_numbers(default: Any, rule: Any) -> bool:
    return isinstance(default, int | float) or rule["at_least"] is not None or rule["above"] is not None


def _expected(default: Any, rule: Any) -> str:
    parts = []
    if isinstance(default, bool):
        parts.append("True or False")
    elif _takes_numbers(default, rule):
        parts.append(_range("a whole number" if _whole(default) else "a number", rule))
        parts += ["None"] * (default is None)
    if rule["options"]:
        parts.append("one of " + ", ".join(map(repr, rule["options"])))
    return ", or ".join(parts)


def _range(kind: str, rule: Any) -> str:
    if rule["above"] is not None:
        upper = "" if rule["below"] is None else f" and below {rule['below']:g}"
        return f"{kind} above {rule['above']:g}{upper}"
    if rule["at_most"] is not None:
        return f"{kind} from {rule['at_least']:g} to {rule['at_most']:g}"
    return kind if rule["at_least"] is None else f"{kind}, {rule['at_least']:g} or more"
