"""Heads that the user defines, imported from their modules."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from taer.heads import Head


def import_own(module: str) -> None:
    """Import a module that the user named. The current folder is searched, too, unlike in other installed programs."""
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)  # last, so that no file there hides an installed package
    try:
        import_module(module)
    except ImportError as error:
        raise ValueError(f"the module {module} cannot be imported: {error}") from None


def find_method(name: str) -> type[Head]:
    """The head class for a name, or for ``module:Class``, where the module may be in the current folder."""
    from taer.heads import find_head

    if ":" in name:
        import_own(name.partition(":")[0])
    return find_head(name)
