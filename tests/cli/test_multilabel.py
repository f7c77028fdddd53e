"""Several labels per sample on the command line."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

import taer


@pytest.fixture
def table(tmp_path, backbones):
    """Texts whose letters are their labels, some without any."""

    def write(name, separator=";", letters="abcd", n=60):
        rng = np.random.default_rng(len(letters))
        with (tmp_path / name).open("w", newline="") as file:
            write = csv.writer(file)
            write.writerow(["text", "label", "split"])
            for row in range(n):
                inside = [letter for letter in letters if rng.random() < 0.4]
                text = "".join(letter * rng.integers(8, 12) for letter in inside) + "h" * 6
                write.writerow([text, separator.join(inside) or separator, "test" if row % 3 == 0 else "train"])
        return name

    return write


def test_fit_learn_predict(cli, table, tmp_path):
    code, out, err = cli(
        "fit", table("first.csv"), "--multi-label", "--backbone", "letters", "--out", "m.safetensors"
    )
    assert code == 0, err
    assert out.startswith("m.safetensors: 40 samples learned; 4 labels; F1 on the 20 test samples ")
    model = taer.load(tmp_path / "m.safetensors")
    assert model.classes_ == list("abcd")
    old = model.scores(np.eye(8, dtype=np.float32))
    code, _, err = cli(
        "learn", "m.safetensors", table("more.csv", "|", "abcde"), "--separator", "|", "--classes", "e"
    )
    assert code == 0, err
    model = taer.load(tmp_path / "m.safetensors")
    assert model.classes_ == list("abcde")
    np.testing.assert_array_equal(model.scores(np.eye(8, dtype=np.float32))[:, :4], old)
    assert "5: a, b, c, d, e" in cli("info", "m.safetensors")[1]
    code, out, err = cli("predict", "m.safetensors", "aaaaaaaaaaccccccccchhhhhh", "--separator", "+")
    assert (code, out) == (0, "a+c\n"), err
    found = json.loads(cli("predict", "m.safetensors", "bbbbbbbbbbhhhhhh", "--format", "json")[1])
    assert found["labels"] == ["b"]
    assert found["probabilities"]["b"] > 0.5 > found["probabilities"]["a"]
    code, out, err = cli("predict", "m.safetensors", "first.csv", "--out", "answers.csv")
    assert (code, out) == (0, "answers.csv: 60 rows labeled\n"), err
    with (tmp_path / "answers.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    asked = model.predict(taer.Extractor("letters").transform([row["text"] for row in rows]))
    assert [row["labels"] for row in rows] == [";".join(labels) for labels in asked]
    assert all(row["labels"].count(";") == row["probabilities"].count(";") for row in rows)


def test_what_does_not_fit_several_labels_is_refused(cli, table):
    path = table("first.csv")
    fit = ("fit", path, "--multi-label", "--backbone", "letters", "--out", "m.safetensors")
    for more, words in (
        (("--method", "taer"), "MultiLabel takes a Bayes"),
        (("--unknown", "?"), "--unknown is for heads of one label"),
        (("--separator", " "), "expected a character that is not a space"),
    ):
        code, _, err = cli(*fit, *more)
        assert (code, words in err) == (2, True), err
    assert cli(*fit)[0] == 0
    assert "--top is for heads of one label" in cli("predict", "m.safetensors", "aa", "--top", 2)[2]
    refusal = "which only fit, learn, predict and serve take"
    assert refusal in cli("forget", "m.safetensors", "a")[2]
