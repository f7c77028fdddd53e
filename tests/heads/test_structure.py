"""The structure of method files: shallow inheritance, one screen of code, no imports of other methods."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

import taer
from taer.heads import Head

SOURCES = Path(inspect.getfile(taer)).parent
SCREEN = 60
LONGER = {"taer-gauss": 100, "ucir": 80, "lda-frozen": 70, "bayes": 80, "bayes-replay": 146}  # may only shrink


@pytest.mark.parametrize("name", list(taer.HEADS))
def test_at_most_four_levels_with_one_base_each(name):
    ours = [base for base in taer.HEADS[name].__mro__ if issubclass(base, Head)]
    assert len(ours) <= 4, [base.__name__ for base in ours]
    for base in ours:  # with one base there is no order of bases that could matter
        assert len([parent for parent in base.__bases__ if issubclass(parent, Head)]) == (base is not Head)


@pytest.mark.parametrize("name", list(taer.HEADS))
def test_a_method_fits_on_a_screen(name):
    source = inspect.getsource(inspect.getmodule(taer.HEADS[name]))
    assert code_lines(source) <= LONGER.get(name, SCREEN)


def code_lines(source: str) -> int:
    """Lines of code, without imports, docstrings, comments and blanks."""
    tree = ast.parse(source)
    prose = set()
    for node in ast.walk(tree):
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if is_docstring or isinstance(node, ast.Import | ast.ImportFrom):
            prose |= set(range(node.lineno, node.end_lineno + 1))
    lines = enumerate(source.splitlines(), start=1)
    return sum(bool(line.strip()) and not line.strip().startswith("#") for n, line in lines if n not in prose)


def test_lines_of_code_are_counted_without_prose():
    source = '"""About."""\n\nimport os\n\n# a remark\ndef f(x):\n    """What."""\n    return (\n        x\n    )  # why\n'
    assert code_lines(source) == 4


def test_no_code_asks_which_method_a_head_has():
    """``type(head)._scores is Head._scores`` knows what a class should say of itself."""
    found = []
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Is | ast.IsNot | ast.Eq | ast.NotEq):
                sides = [node.left, *node.comparators]
                if all(isinstance(side, ast.Attribute) and side.attr.startswith("_") for side in sides):
                    found.append(f"{path.name}:{node.lineno}: {ast.unparse(node)}")
    assert not found
