"""``taer compare``."""

from __future__ import annotations

import json

import numpy as np
import pytest

import taer
from taer.features import FeatureSet, save_features
from taer.loop.compare import compare
from tests.conftest import blobs


@pytest.fixture
def versions(cli, tmp_path):
    """Overlapping classes, 20 training and 40 test samples of each: three are learned, then two more."""
    X, y = blobs(6, 60, width=6, spread=2.5)
    order = np.argsort(y, kind="stable").reshape(6, 60)
    train, test = order[:, :20].ravel(), order[:, 20:].ravel()
    X, names = X.astype(np.float32), tuple("abcdef")
    data = FeatureSet(X[train], y[train], X[test], y[test], classes=names, name="x")
    save_features(data, tmp_path / "x.safetensors")
    assert cli("fit", "x.safetensors", "--classes", "a,b,c", "--out", "old")[0] == 0
    assert cli("learn", "old", "x.safetensors", "--classes", "d,e", "--out", "new")[0] == 0
    return X[test], np.array(names)[y[test]]


def test_two_versions_are_compared(cli, versions, tmp_path):
    X, y = versions
    expected = compare(taer.load(tmp_path / "old"), taer.load(tmp_path / "new"), X, y)
    assert expected.losing  # so that there is something to print
    code, out, err = cli("compare", "old", "new", "x.safetensors", "--count", "2")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[:3] == [
        expected.sentence(),
        "a loss of a point or more is not excluded: look at what changed",
        "new classes: d, e",
    ]
    assert lines[3] == f"of their 80 examples, {100 * expected.new_accuracy:.1f} % are right"
    assert lines[4] == "40 examples of classes that the new version does not know: not counted"
    worst = expected.losing[0]
    assert lines[5] == f"loses: {worst.label}, {worst.before} of 40 right before, {worst.after} after"
    first = expected.differing[0]
    assert f"x.safetensors row {first.row + 1}\t{first.truth}\t{first.before}\t{first.after}" in out
    assert lines[-1] == f"… and {len(expected.differing) - 2} more; --count lists more"

    shown = json.loads(cli("compare", "old", "new", "x.safetensors", "--format", "json")[1])
    assert (shown["not_worse"], shown["compared"], shown["gained"], shown["lost"]) == (False, 120, 0, expected.lost)
    assert len(shown["differing"]) == len(expected.differing)


def test_the_same_version_differs_in_nothing(cli, versions):
    code, out, _ = cli("compare", "new", "new", "x.safetensors")
    assert code == 0
    assert "differ" not in out
    assert "loses" not in out
    assert "new classes: none" in out


def test_one_label_per_sample_is_expected(versions, tmp_path):
    X, y = versions
    head = taer.load(tmp_path / "new")
    with pytest.raises(ValueError, match="expected one label per sample, got 240 samples"):
        compare(head, head, X, y[:-1])


def test_texts_are_shown_and_few_comparisons_have_no_interval(cli, backbones, tmp_path):
    rows = ["aab,a", "aaab,a", "bba,b", "bbba,b"]
    (tmp_path / "t.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    (tmp_path / "u.csv").write_text(
        "\n".join(["text,label", *(f"{row[:-1]}{'ba'[row[-1] == 'b']}" for row in rows)]) + "\n"
    )
    for table in "tu":
        assert cli("fit", f"{table}.csv", "--backbone", "letters", "--out", table)[0] == 0
    code, out, err = cli("compare", "t", "u", "t.csv")
    assert (code, err) == (0, "")
    assert "change" not in out
    assert "fewer than 30 comparisons decide nothing" in out
    assert "\naab\ta\ta\tb\n" in out
    shown = json.loads(cli("compare", "t", "u", "t.csv", "--format", "json")[1])["differing"][0]
    assert (shown["input"], shown["text"]) == ("t.csv row 1", "aab")


def test_the_part_of_a_table_that_fit_held_out_is_compared(cli, backbones, tmp_path):
    texts = ["a" * n + "b" for n in range(1, 21)] + ["b" * n + "a" for n in range(1, 21)]
    rows = [f"{text},{text[0]}" for text in texts]
    (tmp_path / "t.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    split = ("--test-fraction", 0.25)
    assert cli("fit", "t.csv", "--backbone", "letters", "--out", "head", *split)[0] == 0
    out = cli("compare", "head", "head", "t.csv", *split, "--format", "json")[1]
    assert json.loads(out)["compared"] == 10
    assert json.loads(cli("compare", "head", "head", "t.csv", "--format", "json")[1])["compared"] == 40
