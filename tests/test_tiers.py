"""The tests of the zoo are told from the others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.tiers import in_share


def collected(*options, monkeypatch, long=False):
    monkeypatch.setenv("TAER_TESTS", "long" if long else "")
    command = [sys.executable, "-m", "pytest", "--collect-only", "-p", "no:cacheprovider", *options]
    tests = ["tests/heads/test_structure.py", "tests/golden"]
    done = subprocess.run([*command, *tests], cwd=Path(__file__).parents[1], capture_output=True, text=True)
    return {line.partition("::")[2] for line in done.stdout.splitlines() if "::" in line}


@pytest.mark.system
def test_the_zoo_is_marked_and_a_share_of_it_is_run(monkeypatch):
    core = collected("-m", "not zoo", monkeypatch=monkeypatch)
    share = collected("-m", "zoo", monkeypatch=monkeypatch)
    everything = collected(monkeypatch=monkeypatch, long=True)
    assert "test_a_head_answers_as_recorded[bayes]" in core
    assert not [name for name in core if "derpp" in name]
    assert len(share) < 0.5 * len(everything - core)
    assert share | core < everything
    assert "test_a_head_answers_as_recorded[derpp]" in everything


def test_the_share_is_a_third_of_each_test():
    assert 200 < sum(in_share(f"tests/test_x.py::test_y[{number}]") for number in range(900)) < 400
