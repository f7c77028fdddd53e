"""The structure of method files: shallow inheritance, no imports of other methods."""

from __future__ import annotations

import ast
import inspect
import pydoc
import tomllib
from pathlib import Path

import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.naive_bayes import GaussianNB

import taer
from taer.heads import Head
from taer.heads.registry import CORE

SOURCES = Path(inspect.getfile(taer)).parent


@pytest.mark.parametrize("name", list(taer.HEADS))
def test_at_most_four_levels_with_one_base_each(name):
    ours = [base for base in taer.HEADS[name].__mro__ if issubclass(base, Head)]
    assert len(ours) <= 4, [base.__name__ for base in ours]
    for base in ours:  # with one base there is no order of bases that could matter
        assert len([parent for parent in base.__bases__ if issubclass(parent, Head)]) == (base is not Head)


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


def test_every_shared_module_is_in_the_contract_that_it_imports_no_method():
    contracts = tomllib.loads((SOURCES.parents[1] / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]
    (shared,) = (each["source_modules"] for each in contracts if each["name"].startswith("Code that methods share"))
    modules = {f"taer.heads.{path.stem}" for path in (SOURCES / "heads").glob("*.py")}
    assert modules - set(shared) == {"taer.heads.__init__", "taer.heads.from_linear"}


def test_all_heads_of_the_core_can_be_exported():
    """As the guide about shipping says; of the zoo, ``taer methods --all`` shows it."""
    assert [name for name in CORE if not taer.HEADS[name].card.exports] == []


def test_the_help_of_the_recommended_head_starts_with_one_screen():
    """What it is, its parameters, attributes and an example; then its methods, as many lines as of scikit-learn's own."""
    lines = pydoc.plain(pydoc.render_doc(taer.Bayes)).splitlines()
    assert lines.index(" |  Method resolution order:") <= 60
    assert len(lines) <= len(pydoc.render_doc(GaussianNB).splitlines())


def test_the_recommended_head_has_the_names_of_a_user_alone():
    """They are kept from version 0.2.0 on. What only other modules call of a head begins with an underscore."""
    ours = set(dir(taer.Bayes)) - set(dir(ClassifierMixin)) - set(dir(BaseEstimator))
    learn = "fit partial_fit fit_unlabeled describe forget unlearn merge rename"
    answer = "predict predict_proba predict_with_proba predict_set scores decision_function novelty explain"
    trust = "calibrate novelty_threshold automate automatic discover suggest"
    keep = "save push_to_hub"
    facts = "name card fitted frozen weighs coef_ intercept_ temperature_"
    names = [*f"{learn} {answer} {trust} {keep} {facts}".split(), *taer.Bayes().get_params()]
    routing = {f"set_{verb}_request" for verb in ("fit", "partial_fit", "predict", "predict_proba", "score")}
    assert {name for name in ours if not name.startswith("_")} - routing == set(names)
