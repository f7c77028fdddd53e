"""Optional packages: imported when they are used, with errors in one line."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType


def require(module: str, extra: str) -> ModuleType:
    """Import ``module``. If it is missing, the error names the command that installs it.

    Examples
    --------
    >>> require("json", "images").loads("[1]")
    [1]
    >>> require("no_such_module", "images")
    Traceback (most recent call last):
    ValueError: the package no_such_module is missing: pip install 'taer[images]'
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or module.partition(".")[0] != error.name.partition(".")[0]:
            raise  # the package is there, but broken
        raise ValueError(f"the package {error.name} is missing: pip install 'taer[{extra}]'") from None


def reason(error: Exception) -> str:
    """The message of an error, in one line.

    Examples
    --------
    >>> reason(OSError("not found:\\n  a.txt"))
    'not found: a.txt'
    """
    return " ".join(str(error).split())[:300] or type(error).__name__
