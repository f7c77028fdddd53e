"""A hash of the code that decides what a head computes, so that results of edited code are never taken for its own."""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
from functools import cache
from textwrap import dedent
from types import FunctionType, ModuleType

from taer.heads import Head, find_head


@cache
def source_digest(method: str) -> str:
    """Hash of the code of a head, its bases, and all code of this package that they import.

    So results of an edited method are never mixed with results from before. Comments, docstrings, formatting and the
    order of definitions do not count.
    """
    found: dict[str, ModuleType] = {}
    homes = {cls.__module__ for cls in find_head(method).__mro__ if issubclass(cls, Head)}  # also those of the user
    waiting = [sys.modules[home] for home in homes]
    while waiting:
        module = waiting.pop()
        if module.__name__ not in found:
            found[module.__name__] = module
            # What was imported from taer itself is known by the home of its value.
            used = {str(getattr(value, "__module__", "")) for value in vars(module).values()}
            waiting += [sys.modules[home] for home in used if home in homes or home.startswith("taer.")]
            waiting += _imports(_source(module, method))
    sources = [_source(module, method) for module in found.values()]
    definitions = sorted(text for source in sources for text in _definitions(source))
    return hashlib.sha256("\n".join(definitions).encode()).hexdigest()


def _source(module: ModuleType, method: str) -> str:
    """The text of a module; of a notebook, which has no file, that of the functions of the head's classes in it."""
    try:
        return inspect.getsource(module)
    except (OSError, TypeError):
        name = module.__name__
        own = [cls for cls in find_head(method).__mro__ if cls.__module__ == name]
        written = [value for cls in own for value in vars(cls).values() if inspect.isfunction(value)]
        written = [function for function in written if function.__module__ == name]
        return "\n".join(dedent(inspect.getsource(function)) for function in written if _has_lines(function))


def _has_lines(function: FunctionType) -> bool:
    """Whether it was written, and not made by ``dataclass``."""
    return not function.__code__.co_filename.startswith("<string>")


@cache  # heads share most of their modules
def _parsed(source: str) -> ast.Module:
    return ast.parse(source)


def _imports(source: str) -> list[ModuleType]:
    """The modules of this package that a module imports, or from which it imports something."""
    statements = [node for node in _parsed(source).body if isinstance(node, ast.ImportFrom) and not node.level]
    names = {f"{node.module}.{alias.name}" for node in statements for alias in node.names}
    names |= {str(node.module) for node in statements}
    return [sys.modules[name] for name in names if name.startswith("taer.") and name in sys.modules]


@cache
def _definitions(source: str) -> list[str]:
    """The statements of a module as trees, without imports, docstrings and help texts."""
    tree = _parsed(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            node.keywords = [keyword for keyword in node.keywords if keyword.arg != "help"]
            if isinstance(node.func, ast.Name) and node.func.id == "param":
                del node.args[1:2]  # its help
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return [ast.dump(node) for node in tree.body if not isinstance(node, ast.Import | ast.ImportFrom)]
