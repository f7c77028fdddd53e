"""``taer unlearn`` and ``taer merge``."""

from __future__ import annotations

import numpy as np
import pytest

import taer


@pytest.fixture
def model(cli, file):
    """A head of the first five classes."""
    code, _, err = cli("fit", file, "--method", "slda", "--classes", "0:5", "--out", "old.safetensors")
    assert code == 0, err
    return "old.safetensors"


def test_a_task_is_taken_back(cli, file, features, model, tmp_path):
    cli("learn", model, file, "--classes", "5:", "--out", "new.safetensors")
    code, out, err = cli("unlearn", "new.safetensors", file, "--classes", "5:", "--out", "back.safetensors")
    assert (code, err) == (0, "")
    assert out == "back.safetensors: 150 samples taken back, 5 without samples forgotten; 5 classes\n"
    old, back = (taer.load(tmp_path / name) for name in (model, "back.safetensors"))
    np.testing.assert_allclose(back.scores(features.test_x), old.scores(features.test_x), rtol=1e-4, atol=1e-4)
    code, _, err = cli("unlearn", model, file)
    assert (code, err) == (2, "taer: 'class5' is not a known class\n")
    cli("fit", file, "--method", "taer", "--out", "sgd")
    assert "TaER cannot unlearn single samples" in cli("unlearn", "sgd", file, "--classes", "0:1")[2]


def test_two_heads_become_one(cli, file, features, model, tmp_path):
    cli("fit", file, "--method", "slda", "--classes", "5:", "--out", "other.safetensors")
    code, out, err = cli("merge", model, "other.safetensors", "--out", "both.safetensors")
    assert (code, err) == (0, "")
    assert out == "both.safetensors: old.safetensors and other.safetensors are merged; 10 classes\n"
    cli("fit", file, "--method", "slda", "--out", "all.safetensors")
    both, everything = (taer.load(tmp_path / name) for name in ("both.safetensors", "all.safetensors"))
    np.testing.assert_array_equal(both.predict(features.test_x), everything.predict(features.test_x))


def test_copies_need_their_base(cli, file, features, model, tmp_path):
    cli("learn", model, file, "--classes", "5:7", "--out", "here.safetensors")
    cli("learn", model, file, "--classes", "7:", "--out", "there.safetensors")
    code, _, err = cli("merge", "here.safetensors", "there.safetensors", "--out", "both.safetensors")
    assert code == 2
    assert "give the head they were copied from as base" in err
    assert not (tmp_path / "both.safetensors").exists()
    assert (
        cli("merge", "here.safetensors", "there.safetensors", "--base", model, "--out", "both.safetensors")[0] == 0
    )
    cli("learn", "here.safetensors", file, "--classes", "7:", "--out", "all.safetensors")
    both, everything = (taer.load(tmp_path / name) for name in ("both.safetensors", "all.safetensors"))
    np.testing.assert_allclose(
        both.scores(features.test_x), everything.scores(features.test_x), rtol=1e-4, atol=1e-4
    )
