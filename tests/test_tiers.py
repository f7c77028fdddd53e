"""The tests of the zoo are told from the others."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

import taer
from tests import tiers


def item(place="heads/test_x.py", **params):
    """A test that pytest has found."""
    marks: list[str] = []
    found = SimpleNamespace(path=Path(__file__).parent / place, nodeid=f"{place}[{params}]", marks=marks)
    found.add_marker, found.callspec = marks.append, SimpleNamespace(params=params)
    return found


@pytest.mark.parametrize(
    ("found", "of_zoo"),
    [
        (item(name="bayes"), False),
        (item(name="derpp", seed=0), True),
        (item(head=taer.zoo.UCIR()), True),
        (item(kind=taer.zoo.UCIR), True),
        (item("zoo/test_x.py"), True),
        (item("zoo/test_x.py", name="taer"), False),
        (item(Path(taer.__file__).parent / "zoo" / "derpp.py"), True),
    ],
)
def test_a_test_of_the_zoo_is_marked(found, of_zoo):
    tiers.mark([found])
    assert found.marks == ["zoo"] * of_zoo


def test_tests_that_aim_by_the_clock_run_alone():
    found = [item("serve/test_load.py"), item("serve/test_page.py")]
    tiers.mark(found)
    assert [each.marks for each in found] == [["alone"], []]


def test_a_third_of_the_tests_on_heads_of_the_zoo_is_run_and_on_request_all(monkeypatch):
    found = [item(name=name, seed=seed) for name in ("derpp", "bayes") for seed in range(300)]
    monkeypatch.delenv("TAER_TESTS", raising=False)
    assert 150 < len(tiers.mark(found)) < 250
    monkeypatch.setenv("TAER_TESTS", "long")
    assert tiers.mark(found) == []
