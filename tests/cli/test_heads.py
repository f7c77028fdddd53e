"""The commands that make, teach, change and export a head."""

from __future__ import annotations

import csv
import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import taer
from taer.features import save_features


@pytest.fixture
def model(cli, file):
    """A head of the first five classes."""
    code, _, err = cli("fit", file, "--classes", "0:5", "--out", "old.safetensors")
    assert code == 0, err
    return "old.safetensors"


def test_fit_learn_predict_audit_export(cli, file, features, tmp_path):
    pytest.importorskip("onnx")
    code, out, err = cli("fit", file, "--classes", "0:5", "--out", "old.safetensors")
    assert (code, err) == (0, "")
    assert "150 samples of 5 classes learned as task 1" in out
    code, out, _ = cli("learn", "old.safetensors", file, "--classes", "5:", "--out", "new.safetensors")
    assert "150 samples of 5 classes learned as task 2" in out
    head = taer.load(tmp_path / "new.safetensors")
    assert [label for label, _ in head.learning_order_] == list(features.classes)
    code, out, err = cli("predict", "new.safetensors", file)
    assert out.split() == head.predict(features.test_x).tolist()
    assert "of 100 right" in err
    assert "of 50 right" in (err := cli("predict", "old.safetensors", file)[2])
    assert "50 are of classes it does not know" in err
    code, out, _ = cli("audit", "old.safetensors", "new.safetensors", file)
    assert "5 new classes; nothing changed for the 5 classes it knew; 0 of 100 decisions among them differ" in out
    assert "classes whose scores changed: none" in out
    found = json.loads(cli("audit", "old.safetensors", "new.safetensors", file, "--format", "json")[1])
    assert (found["moved"], found["compared"], found["changed"]) == ([], 100, 0)
    code, out, err = cli("export", "new.safetensors", "--out", "head.onnx")
    assert (code, out) == (0, "head.onnx: onnx, 16 features to 10 classes\n"), err
    assert (tmp_path / "head.onnx").is_file()


def test_the_same_as_in_python(cli, file, features, tmp_path):
    cli("fit", file, "--method", "er", "--set", "memory_size=30", "--set", "lr=0.05", "--seed", 7, "--out", "h")
    names = np.array(features.classes)
    ours = taer.ER(memory_size=30, lr=0.05, random_state=7).partial_fit(features.train_x, names[features.train_y])
    np.testing.assert_array_equal(taer.load(tmp_path / "h").coef_, ours.coef_)


def test_learn_writes_over_the_old_head_unless_told(cli, file, model, tmp_path):
    assert cli("learn", model, file, "--classes", "class7,class9")[0] == 0
    head = taer.load(tmp_path / model)
    assert [label for label, task in head.learning_order_ if task == 2] == ["class7", "class9"]


def test_audit_shows_what_another_method_moves(cli, file):
    cli("fit", file, "--classes", "0:5", "--method", "finetune", "--out", "a")
    cli("learn", "a", file, "--classes", "5:10", "--out", "b")
    out = cli("audit", "a", "b", file)[1]
    assert "the scores of 5 of the 5 classes it knew changed" in out
    assert "classes whose scores changed: class0, class1, class2, class3, class4" in out
    cli("fit", file, "--classes", "0:5", "--method", "ucir", "--out", "c")
    cli("learn", "c", file, "--classes", "5:10", "--out", "d")
    out = cli("audit", "c", "d", file)[1]  # the common scale of all columns
    assert "the scores of 5 of the 5 classes it knew changed; 0 of 100 decisions among them differ" in out
    code, _, err = cli("audit", "a", "d", file)
    assert (code, err) == (2, "taer: Finetune and UCIR are not two versions of one head\n")


def test_audit_of_a_head_that_forgot(cli, file, model, tmp_path):
    head = taer.load(tmp_path / model)
    head.forget("class2").save(tmp_path / "less.safetensors")
    out = cli("audit", model, "less.safetensors", file)[1]
    assert "0 new classes, 1 forgotten; nothing changed for the 4 other classes it knew; 0 of 100 decisions" in out
    assert "forgotten classes: class2" in out


def test_classes_are_forgotten_and_renamed(cli, file, features, model, tmp_path):
    assert cli("rename", model, "class1", "novel", "--out", "b")[:2] == (
        0,
        "b: class1 is called novel; 5 classes\n",
    )
    assert cli("forget", "b", "class0")[:2] == (0, "b: class0 is forgotten; 4 classes\n")
    assert taer.load(tmp_path / "b").classes_.tolist() == ["class2", "class3", "class4", "novel"]
    assert len(taer.load(tmp_path / model).classes_) == 5
    assert cli("forget", model, "class9")[2] == "taer: 'class9' is not a known class\n"
    assert "another class already" in cli("rename", model, "class1", "class2")[2]
    taer.NCM().fit(features.train_x, features.train_y).save(tmp_path / "numbers")
    assert cli("rename", "numbers", "3", "33")[0] == 0
    assert 33 in taer.load(tmp_path / "numbers").classes_
    assert "labels are int64" in cli("rename", "numbers", "4", "four")[2]


def test_a_saved_head_is_described(cli, file, model):
    cli("learn", model, file, "--classes", "5:7")
    code, out, _ = cli("info", model)
    assert code == 0
    assert "method              bayes (normalize=" in out
    assert "7 in 2 tasks" in out
    assert "task 2              class5, class6\n" in out
    assert "samples kept        0" in out


def test_nothing_of_another_kind_is_written_over(cli, file, model, tmp_path):
    before = {name: (tmp_path / name).read_bytes() for name in (Path(file).name, model)}
    (tmp_path / "notes.txt").write_text("of value")
    for command in (
        ("fit", file, "--out", file),
        ("fit", file, "--out", "notes.txt"),
        ("learn", model, file, "--out", file),
        ("export", model, "--out", model),
    ):
        code, _, err = cli(*command)
        assert code == 2
        assert "exists and is something else" in err
    assert {name: (tmp_path / name).read_bytes() for name in before} == before
    assert (tmp_path / "notes.txt").read_text() == "of value"
    assert cli("fit", file, "--out", model)[0] == 0  # a head for a head


def test_forms_of_samples_and_answers(cli, file, features, model, tmp_path):
    np.save(tmp_path / "rows.npy", features.test_x[:4])
    np.savetxt(tmp_path / "rows.csv", features.test_x[:4], delimiter=",")
    plain = cli("predict", model, "rows.npy")[1]
    assert cli("predict", model, "rows.csv")[1] == plain
    table = list(csv.DictReader(cli("predict", model, "rows.npy", "--format", "csv")[1].splitlines()))
    objects = [json.loads(line) for line in cli("predict", model, "rows.npy", "--format", "json")[1].splitlines()]
    assert [row["label"] for row in table] == [row["label"] for row in objects] == plain.split()
    proba = taer.load(tmp_path / model).predict_proba(features.test_x[:4])
    np.testing.assert_allclose([[float(row[f"class{c}"]) for c in range(5)] for row in table], proba)
    np.testing.assert_allclose([list(row["probabilities"].values()) for row in objects], proba)


def test_a_head_with_numbers_for_labels(cli, features, tmp_path):
    first = features.train_y < 5
    head = taer.TaER(random_state=0).partial_fit(features.train_x[first], features.train_y[first])
    head.save(tmp_path / "numbers")
    named = replace(features, classes=tuple(map(str, range(10))))
    save_features(named, tmp_path / "named.safetensors")
    code, _, err = cli("learn", "numbers", "named.safetensors", "--classes", "5:10")
    assert code == 0, err
    assert taer.load(tmp_path / "numbers").classes_.tolist() == list(range(10))
    save_features(features, tmp_path / "set.safetensors")
    assert "the file's are names" in cli("learn", "numbers", "set.safetensors")[2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "FILE"], "--out"),
        (["fit", "FILE", "--out", "x", "--method", "magic"], "unknown method 'magic'"),
        (["fit", "FILE", "--out", "x", "--set", "wings=2"], "parameter 'wings'"),
        (["fit", "FILE", "--out", "x", "--classes", "cow"], "has no class 'cow'"),
        (["fit", "FILE", "--out", "x", "--classes", "20:30"], "no class of set, which has 10"),
        (["fit", "FILE", "--out", "x", "--classes", "a:b"], "a range of numbers such as 0:10"),
        (["fit", "FILE", "--out", "nowhere/x"], "nowhere"),
        (["learn", "missing", "FILE"], "missing: no such file"),
        (["learn", "FILE", "FILE"], "not a saved head"),
        (["predict", "MODEL", "missing.npy"], "missing.npy: no such file"),
        (["predict", "MODEL", "notes.csv"], "not rows of numbers"),
        (["predict", "MODEL", "MODEL"], "not a feature file"),
        (["audit", "MODEL", "FILE"], "not a saved head"),
        (["export", "MODEL", "--out", "x.onnx", "--backbone", "no.onnx"], "no.onnx: no such file"),
        (["serve", "DIR", "--host", "256.1.1.1"], "cannot listen on 256.1.1.1"),
        (["serve", "DIR", "--model", "FILE"], "not a saved head"),
        (["serve", "DIR", "--port", "99999"], "--port"),
    ],
)
def test_mistakes_are_one_line_on_stderr_and_code_2(cli, file, model, tmp_path, arguments, message):
    for package in {"export": ["onnx"], "serve": ["uvicorn"]}.get(arguments[0], []):
        pytest.importorskip(package)
    (tmp_path / "notes.csv").write_text("some,words\n")
    names = {"FILE": file, "MODEL": model}
    code, out, err = cli(*[names.get(argument, argument) for argument in arguments])
    assert (code, out) == (2, "")
    assert message in err
    assert err.startswith("taer: ")
    assert err.count("\n") == 1


def test_few_samples_are_warned_of_in_one_line(cli, file, features, tmp_path):
    few = np.concatenate([np.flatnonzero(features.train_y < 5), np.flatnonzero(features.train_y == 7)[:3]])
    save_features(
        replace(features, train_x=features.train_x[few], train_y=features.train_y[few]),
        tmp_path / "few.safetensors",
    )
    assert cli("fit", file, "--method", "gauss-chain", "--classes", "0:5", "--out", "head")[2] == ""
    code, out, err = cli("learn", "head", "few.safetensors", "--classes", "class7")
    assert code == 0
    assert "3 samples of 1 class learned as task 2" in out
    assert err.startswith("taer: warning: gauss-chain: 1 new class has fewer than 20 samples (class7: 3) beside")
    assert err.count("\n") == 1


@pytest.mark.parametrize("mask", [0o022, 0o027, 0o077])
def test_a_head_has_the_permissions_of_any_new_file(cli, file, tmp_path, mask):
    before = os.umask(mask)
    try:
        cli("fit", file, "--method", "ncm", "--out", "head")
    finally:
        os.umask(before)
    assert (tmp_path / "head").stat().st_mode & 0o777 == 0o666 & ~mask


def test_someone_who_looks_sees_that_it_learns(cli, file, monkeypatch):
    monkeypatch.setattr("rich.console.Console.is_terminal", True)
    err = cli("fit", file, "--method", "ncm", "--out", "head")[2]
    assert "learning 300 samples of 10 classes" in err
    assert "measuring on 100 test samples" in err
