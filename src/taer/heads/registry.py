"""Heads by name: those of this package, those of installed packages, and any class by its import path.

The file of a head registers it: ``class TaER(MemoryHead, name="taer", card=Card(…))``. The core's heads are listed here;
every other head is a file of ``taer.zoo``, named like the head and imported when it is asked for. Other packages may
offer heads in the entry point group ``taer.heads``. ``module:Class`` works wherever a name does.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from taer.heads.card import GROUPS, Card

if TYPE_CHECKING:
    from taer.heads.base import Head

CORE = {
    "bayes": "taer.heads.bayes.head",
    "bayes-replay": "taer.heads.bayes.replay",
    "taer": "taer.heads.descent.taer",
    "er": "taer.heads.descent.er",
    "slda": "taer.heads.closed_form.slda",
    "ncm": "taer.heads.closed_form.ncm",
    "lda-frozen": "taer.heads.closed_form.lda_frozen",
    "ridge": "taer.heads.closed_form.ridge",
    "finetune": "taer.heads.descent.finetune",
    "joint": "taer.heads.descent.joint",
}  # what a user chooses from, and their modules
_heads: dict[str, type[Head]] = {}


def register(name: str, head: type[Head]) -> None:
    """Register a class by its name; called when the class is defined."""
    if not hasattr(head, "card"):
        raise ValueError(f"the head {name!r} has no card: class {head.__name__}(…, card=Card(…))")
    if (home := _home(name)) not in (None, head.__module__):
        raise ValueError(f"two heads are named {name!r}: {head.__qualname__} and that of {home}")
    known = _heads.get(name)
    if known is not None and (known.__module__, known.__qualname__) != (head.__module__, head.__qualname__):
        raise ValueError(f"two heads are named {name!r}: {known.__qualname__} and {head.__qualname__}")
    head.name = name
    _heads[name] = head


@cache
def _zoo() -> dict[str, str]:
    """The modules of the zoo's heads by their names, found without importing any."""
    files = iter_modules([str(Path(__file__).parents[1] / "zoo")])
    return {file.name.replace("_", "-"): f"taer.zoo.{file.name}" for file in files if not file.ispkg}


def _home(name: str) -> str | None:
    """The module of a head of this package."""
    return CORE.get(name) or _zoo().get(name)


class Registry(Mapping[str, "type[Head]"]):
    """All heads by name, sorted by group and name. Asking for one imports its module, asking for all imports all."""

    _complete = False

    def _all(self) -> dict[str, type[Head]]:
        if not self._complete:
            for module in (*CORE.values(), *_zoo().values()):
                import_module(module)
            self._complete = True  # set first, because a module that is imported below may ask for heads
            for entry in entry_points(group="taer.heads"):
                _offered(entry)
        order = list(GROUPS)
        return dict(sorted(_heads.items(), key=lambda item: (order.index(item[1].card.group), item[0])))

    def __getitem__(self, name: str) -> type[Head]:
        if ":" in name:
            return _imported(name)
        if name not in _heads and (home := _home(name)) is not None:
            import_module(home)
        return _heads[name] if name in _heads else self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())


HEADS = Registry()


def _offered(entry: EntryPoint) -> None:
    """Register the head of an installed package, by its own name or, if it has none, by that of the entry point."""
    try:
        head = entry.load()
        if _heads.get(head.name) is not head:
            register(entry.name, head)
    except Exception as error:  # an error in another package must not disable all heads
        warnings.warn(f"the head {entry.name!r} ({entry.value}) cannot be loaded: {error}", stacklevel=2)


def _imported(path: str) -> type[Head]:
    module, _, name = path.partition(":")
    try:
        head = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{path}: cannot be imported ({error})") from None
    if not isinstance(head, type) or not hasattr(head, "_class_arrays"):
        raise ValueError(f"{path}: not a subclass of taer.heads.Head")
    if not isinstance(getattr(head, "card", None), Card):
        raise ValueError(f"{path}: it has no card: class {name}(…, card=taer.Card(…))")
    kind: type[Head] = head
    return kind


def find_head(name: str) -> type[Head]:
    """The class of a head, by its name or its import path ``module:Class``."""
    if ":" not in name and name not in HEADS:
        near = get_close_matches(name, HEADS, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(HEADS)}."
        raise ValueError(f"unknown method {name!r}; {hint} For a class of your own, give module:Class")
    return HEADS[name]


def name_of(head: type[Head]) -> str:
    """The name with which :func:`find_head` finds a class: its own, or its import path."""
    return head.name if _heads.get(head.name) is head else f"{head.__module__}:{head.__qualname__}"


def make_head(name: str, **params: Any) -> Head:
    """Make a head by its name, or by the import path ``module:Class`` of your own class.

    Examples
    --------
    >>> import taer
    >>> taer.make_head("taer", memory_size=500)
    TaER(memory_size=500)
    """
    kind = find_head(name)
    known = kind().get_params()
    if unknown := [param for param in params if param not in known]:
        raise ValueError(f"{name} has no parameter {unknown[0]!r}; it has {', '.join(known)}")
    return kind(**params)
