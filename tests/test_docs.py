"""The Python in the documents runs."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import taer

ROOT = Path(__file__).parent.parent


def python_blocks(name):
    return re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(), re.S)


def test_readme_example_keeps_its_promise():
    (code,) = python_blocks("README.md")
    assert "assert (head.scores(data.test_x, range(40)) == before).all()" in code
    space: dict = {}
    exec(code, space)
    head, data = space["head"], space["data"]
    assert len(head.classes_) == 50
    new = (data.test_y >= 40) & (data.test_y < 50)
    assert head.score(data.test_x[new], data.test_y[new]) > 0.3  # of five examples each, among fifty classes


def test_the_method_of_contributing_is_a_method(tasks):
    (code,) = python_blocks("CONTRIBUTING.md")
    space: dict = {}
    exec(code, space)
    head = space["LogitAdjustedER"](random_state=0)
    for X, y in tasks:
        head.partial_fit(X, y)
    X, y = np.concatenate([X for X, _ in tasks]), np.concatenate([y for _, y in tasks])
    assert head.score(X, y) > 0.9
    with pytest.raises(ValueError, match="tau must be a number, 0 or more"):
        space["LogitAdjustedER"](tau=-1).partial_fit(X, y)


@pytest.mark.slow
def test_the_head_of_scaling_learns_on_a_cluster(capsys):
    (code,) = python_blocks("docs/scaling.md")
    space: dict = {}
    exec(code, space)
    here = taer.SLDA().fit(space["data"].train_x, space["data"].train_y)
    np.testing.assert_array_equal(space["head"].coef_, here.coef_)


def test_every_head_is_in_the_readme_and_public():
    text = (ROOT / "README.md").read_text()
    for name, head in taer.HEADS.items():
        assert f"`{name}`" in text
        assert getattr(taer, head.__name__) is head
