"""Heads by name: the core's are at hand, the zoo's are loaded when they are asked for."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys

import pytest

import taer
from taer.heads.registry import CORE

LOADED = "import sys; print(*(name for name in sys.modules if name.startswith('taer.zoo')))"


def loaded_after(code):
    """The modules of the zoo that some code loads."""
    done = subprocess.run([sys.executable, "-c", f"{code}\n{LOADED}"], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_the_core_loads_nothing_of_the_zoo():
    assert loaded_after("import taer, taer.cli\ntaer.Bayes(), taer.make_head('er'), 'taer' in taer.HEADS") == []


def test_a_name_of_the_zoo_loads_its_file_alone():
    assert loaded_after("import taer; taer.make_head('derpp')") == ["taer.zoo", "taer.zoo.derpp"]


def test_few_names_are_public_and_the_heads_of_the_core_among_them():
    public = [name for name in dir(taer) if not name.startswith("_")]
    assert len(public) <= 35
    assert {taer.HEADS[name].__name__ for name in CORE} | {"zoo"} <= set(public)
    assert all(hasattr(taer, name) for name in public)


@pytest.mark.parametrize("module", [taer, taer.zoo])
def test_type_checkers_see_every_public_name(module):
    tree = ast.parse(inspect.getsource(module))
    (typed,) = (node.body for node in tree.body if isinstance(node, ast.If))
    assert {alias.asname for node in typed for alias in node.names} == {n for n in dir(module) if n[0] != "_"}


def test_a_file_of_the_zoo_is_named_like_its_head():
    zoo = {name: head for name, head in taer.HEADS.items() if name not in CORE}
    assert {name: head.__module__ for name, head in zoo.items()} == {
        name: f"taer.zoo.{name.replace('-', '_')}" for name in zoo
    }


def test_a_name_of_the_zoo_is_taken_before_its_file_is_loaded():
    code = (
        "import taer\ntry:\n    class Own(taer.TaER, name='derpp'): ...\nexcept ValueError as error:\n    assert "
    )
    assert loaded_after(f"{code}\"two heads are named 'derpp'\" in str(error)") == []
    with pytest.raises(ValueError, match="two heads are named 'derpp': Own and that of taer"):
        type("Own", (taer.TaER,), {"__annotations__": {}}, name="derpp")


def test_a_name_that_no_head_has():
    assert "shared" not in taer.HEADS
    with pytest.raises(
        AttributeError, match=r"'taer.zoo' has no attribute 'Nothing'; dir\(taer.zoo\) lists its heads"
    ):
        taer.zoo.Nothing  # noqa: B018
    with pytest.raises(AttributeError, match=r"module 'taer.zoo' has no attribute 'Bayes'; it is taer.Bayes"):
        taer.zoo.Bayes  # noqa: B018
    with pytest.raises(AttributeError, match=r"module 'taer' has no attribute 'DERPP'; it is taer.zoo.DERPP"):
        taer.DERPP  # noqa: B018
    with pytest.raises(AttributeError, match=r"module 'taer' has no attribute 'Nothing'$"):
        taer.Nothing  # noqa: B018
