"""``taer automate``, ``taer predict --errors-at-most`` and ``taer explain``."""

from __future__ import annotations

import csv
import itertools
import json

import numpy as np
import pytest

import taer
from taer.features import FeatureSet, save_features
from tests.conftest import blobs


@pytest.fixture
def labeled(tmp_path):
    """Overlapping classes: 20 training and 100 test samples of each."""
    X, y = blobs(5, 120, width=6, spread=2.0)
    order = np.argsort(y, kind="stable").reshape(5, 120)
    train, test = order[:, :20].ravel(), order[:, 20:].ravel()
    X, names = X.astype(np.float32), tuple("abcde")
    save_features(
        FeatureSet(X[train], y[train], X[test], y[test], classes=names, name="x"), tmp_path / "x.safetensors"
    )
    return X[test], np.array(names)[y[test]], X[train], np.array(names)[y[train]]


def test_a_threshold_is_found_kept_and_used(cli, labeled, tmp_path):
    X = labeled[0]
    cli("fit", "x.safetensors", "--out", "h")
    code, _, err = cli("predict", "h", "x.safetensors", "--errors-at-most", "0.1")
    assert (code, err) == (
        2,
        "taer: --errors-at-most 0.1: h keeps no threshold; learning drops it; 'taer automate h EXAMPLES "
        "--errors-at-most 0.1' finds a threshold with held-out examples\n",
    )
    code, out, err = cli("automate", "h", "x.safetensors", "--errors-at-most", "0.1", "--confidence", "0.9")
    assert (code, err) == (0, "")
    head = taer.load(tmp_path / "h")
    coverage = head.automation_["coverage"]
    assert 0.2 < coverage < 1
    assert out.startswith(f"h: {100 * coverage:.1f} % need no person; at most 10 % of these answers are wrong")
    assert f"\n10 %            {100 * coverage:.1f} %  (promised)\n" in out
    others = cli("automate", "h", "x.safetensors", "--errors-at-most", "0.02", "--confidence", "0.9", "--out", "g")[
        1
    ]
    assert others.replace("  (promised)", "").split("\n\n")[1:] == out.replace("  (promised)", "").split("\n\n")[1:]
    alone = head.automatic(X)
    assert alone.mean() == coverage
    assert f"{100 * coverage:.1f} % of the held-out samples: at most 10 % wrong" in cli("info", "h")[1]

    lines = cli("predict", "h", "x.safetensors", "--errors-at-most", "0.1")[1].splitlines()
    who = np.where(alone, "automatic", "ask")
    assert lines == [f"{label}\t{each}" for label, each in zip(head.predict(X), who, strict=True)]
    rows = list(
        csv.DictReader(
            cli("predict", "h", "x.safetensors", "--errors-at-most", "0.1", "--format", "csv")[1].splitlines()
        )
    )
    assert [row["automatic"] == "True" for row in rows] == alone.tolist()
    shown = cli("predict", "h", "x.safetensors", "--errors-at-most", "0.1", "--format", "json")[1].splitlines()
    assert [json.loads(line)["automatic"] for line in shown] == alone.tolist()
    assert "automatic" not in cli("predict", "h", "x.safetensors", "--format", "json")[1]

    code, out, _ = cli("predict", "h", "x.safetensors", "--errors-at-most", "0.1", "--out", "t.csv", "--top", "2")
    assert out.endswith(f", {(~alone).sum()} for a person\n")
    rows = list(csv.DictReader((tmp_path / "t.csv").open()))
    assert [row["automatic"] == "true" for row in rows] == alone.tolist()
    assert [row["label 1"] for row in rows] == head.predict(X).tolist()

    code, _, err = cli("predict", "h", "x.safetensors", "--errors-at-most", "0.09")
    assert (code, err[:43]) == (2, "taer: --errors-at-most 0.09: h promises 0.1")
    for command, share in itertools.product(("predict", "automate"), ("2", "0", "nan")):
        code, _, err = cli(command, "h", "x.safetensors", "--errors-at-most", share)
        expected = f"taer: --errors-at-most must be above 0 and below 1, got {float(share)}\n"
        assert (code, err) == (2, expected)
    assert cli("predict", "h", "x.safetensors", "--errors-at-most", "0.2")[1].splitlines() == lines

    cli("learn", "h", "x.safetensors")
    assert cli("predict", "h", "x.safetensors", "--errors-at-most", "0.1")[0] == 2


def test_examples_without_a_test_part_and_of_no_class(cli, labeled, tmp_path):
    X, y, seen, seen_y = labeled
    taer.Bayes().fit(seen, seen_y).save(tmp_path / "h")
    strange = np.full((50, 6), 40, np.float32)
    everything, names = np.concatenate([X, strange]), (*"abcde", "none")
    numbers = np.searchsorted(names[:5], y)
    data = FeatureSet(
        everything, np.concatenate([numbers, np.full(50, 5)]), everything[:0], numbers[:0], classes=names, name="x"
    )
    save_features(data, tmp_path / "all.safetensors")
    code, _, err = cli("automate", "h", "all.safetensors")
    assert (code, err[:38]) == (2, "taer: 'none' is not a known class; lea")
    code, out, _ = cli(
        "automate", "h", "all.safetensors", "--errors-at-most", "0.1", "--unknown", "none", "--out", "g"
    )
    assert code == 0
    assert "of 550 held-out samples, " in out
    assert hasattr(taer.load(tmp_path / "g"), "automation_")
    assert not hasattr(taer.load(tmp_path / "h"), "automation_")
    assert (
        "of 500 held-out"
        in cli("automate", "h", "all.safetensors", "--errors-at-most", "0.1", "--classes", "0:5")[1]
    )


def test_that_all_answers_need_no_person_is_said(cli, labeled):
    cli("fit", "x.safetensors", "--out", "h")
    out = cli("automate", "h", "x.safetensors", "--errors-at-most", "0.9")[1]
    assert "They are all that are not unknown\n" in out
    assert "They have a probability above 0." in cli("automate", "h", "x.safetensors", "--errors-at-most", "0.1")[1]


def test_what_cannot_be_promised_is_said(cli, labeled):
    cli("fit", "x.safetensors", "--out", "h")
    code, _, err = cli("automate", "h", "x.safetensors", "--errors-at-most", "0.001")
    assert code == 2
    assert err.startswith("taer: nothing can be automated with this many samples: at least 2995 are needed")
    code, out, _ = cli("automate", "h", "x.safetensors", "--errors-at-most", "0.006")
    assert code == 0
    assert out.startswith("h: nothing can be automated: at most 0.6 % of errors cannot be promised; the least is ")
    assert "automatic" not in cli("predict", "h", "x.safetensors", "--errors-at-most", "0.1")[1]
    cli("fit", "x.safetensors", "--method", "slda", "--out", "s")
    for command in ("automate", "explain"):
        code, _, err = cli(command, "s", "x.safetensors")
        assert (code, err) == (2, "taer: s: a head of the method slda; only bayes and bayes-replay can do this\n")


def test_an_answer_is_explained(cli, labeled, tmp_path):
    X, _, seen, labels = labeled
    cli("fit", "x.safetensors", "--out", "h")
    head = taer.load(tmp_path / "h")
    head.novelty_threshold()
    expected = head.explain(X[[2, 16]], (seen, labels))
    code, out, err = cli("explain", "h", "x.safetensors", "--rows", "3,17", "--examples", "x.safetensors")
    assert (code, err) == (0, "")
    parts = out.strip().split("\n\n")
    assert len(parts) == 2
    for part, found in zip(parts, expected, strict=True):
        assert str(found) in part
        assert f"nearest examples of {found.answer.label}: " in part
    code, out, _ = cli(
        "explain", "h", "x.safetensors", "--examples", "x.safetensors", "--count", "1", "--format", "json"
    )
    shown = [json.loads(line) for line in out.splitlines()]
    assert len(shown) == len(X)
    assert shown[2]["answer"]["label"] == expected[0].answer.label
    assert shown[2]["ahead"] == expected[0].ahead
    assert len(shown[2]["runner_up"]["examples"]) == 1
    cli("fit", "x.safetensors", "--out", "r", "--method", "bayes-replay")
    assert ": kept sample " in cli("explain", "r", "x.safetensors", "--rows", "1")[1]


def test_texts_are_shown_in_place_of_their_rows(cli, backbones, tmp_path):
    long = "a" * 45
    texts = [*("a" * n + "b" for n in range(1, 21)), *("b" * n + "a" for n in range(1, 21)), long]
    (tmp_path / "t.csv").write_text("\n".join(["text,label", *(f"{text},{text[0]}" for text in texts)]) + "\n")
    assert cli("fit", "t.csv", "--backbone", "letters", "--out", "h")[0] == 0
    code, out, err = cli("explain", "h", "t.csv", "--rows", "2,41", "--examples", "t.csv", "--count", "1")
    assert (code, err) == (0, "")
    assert out.startswith("aab: a (")
    assert "\nnearest examples of a: aab (0.00)\n" in out
    assert f"\n{'a' * 39}…: a (" in out
    shown = json.loads(cli("explain", "h", "t.csv", "--rows", "41", "--format", "json")[1])
    assert (shown["input"], shown["text"]) == ("t.csv row 41", long)


def test_mistakes_of_explain_are_told(cli, labeled):
    cli("fit", "x.safetensors", "--out", "h")
    for arguments, message in (
        (("--rows", "0"), "--rows 0: expected numbers from 1 on, separated by commas, such as 3,17"),
        (("--rows", "3,501"), "--rows: there is no sample 501, only 500 samples"),
        (("--format", "csv"), "Invalid value for '--format': Value error, 'csv' is not one of 'text', 'json'."),
    ):
        code, _, err = cli("explain", "h", "x.safetensors", *arguments)
        assert (code, err) == (2, f"taer: {message}\n")
