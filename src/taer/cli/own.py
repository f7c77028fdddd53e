"""Heads of the user's own, by the modules they are in."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from taer.heads import Head


def import_own(module: str) -> None:
    """Import a module that the user named, from the present folder too: an installed program does not look there."""
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)  # last, so that no file there takes the place of a package
    try:
        import_module(module)
    except ImportError as error:
        raise ValueError(f"the module {module} cannot be imported: {error}") from None


def find_method(name: str) -> type[Head]:
    """A head by the name that a user gave, or ``module:Class`` of a module that may lie in the present folder."""
    from taer.heads import find_head

    if ":" in name:
        import_own(name.partition(":")[0])
    return find_head(name)
