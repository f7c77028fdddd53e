"""``taer predict`` on images, texts and features, and the backbone that a head records."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

import taer
from taer.features import save_features
from taer.features.backbones import NAMED
from taer.origin import Origin

ROWS = [("aaab", "a"), ("aab", "a"), ("aaaab", "a"), ("ccd", "c"), ("cccd", "c"), ("ccdd", "c")]


@pytest.fixture
def texts(cli, backbones, tmp_path):
    """A head that learned texts of two classes."""
    table = "".join(f"{text},{label}\n" for text, label in ROWS)
    (tmp_path / "texts.csv").write_text(f"text,label\n{table}")
    assert (
        cli("extract", "texts.csv", "--backbone", "letters", "--out", "texts.safetensors", "--test-fraction", 0.3)[
            0
        ]
        == 0
    )
    assert cli("fit", "texts.safetensors", "--method", "ncm", "--out", "head")[0] == 0
    return "head"


@pytest.fixture
def images(cli, backbones, tmp_path):
    """A head that tells dark images from light ones, and a folder ``new`` with one of each."""
    for part, shades in (("train", (0, 20, 40)), ("test", (10,))):
        for label, base in (("dark", 0), ("light", 200)):
            (tmp_path / "set" / part / label).mkdir(parents=True)
            for shade in shades:
                image = Image.new("RGB", (8, 8), (base + shade,) * 3)
                image.save(tmp_path / "set" / part / label / f"{shade}.png")
    assert cli("extract", "set", "--backbone", "gray", "--out", "set.safetensors")[0] == 0
    assert cli("fit", "set.safetensors", "--method", "ncm", "--out", "head")[0] == 0
    (tmp_path / "new" / "deep").mkdir(parents=True)
    Image.new("RGB", (30, 20), "black").save(tmp_path / "new" / "b.png")
    Image.new("RGB", (30, 20), "white").save(tmp_path / "new" / "deep" / "w.png")
    return "head"


def answers(out):
    return [json.loads(line) for line in out.splitlines()]


def test_a_head_remembers_its_backbone(cli, texts, tmp_path):
    head = taer.load(tmp_path / texts)
    assert head.feature_origin_ == Origin("letters", "here sha256:1e77", "counted")
    out = cli("info", texts)[1]
    assert "backbone            letters\nweights             here sha256:1e77\npreprocess          counted\n" in out
    cli("learn", texts, "texts.safetensors", "--out", "more")
    assert taer.load(tmp_path / "more").feature_origin_ == head.feature_origin_


def test_a_head_of_arrays_knows_no_backbone(cli, file):
    cli("fit", file, "--method", "ncm", "--out", "head")
    assert "backbone            not known\n" in cli("info", "head")[1]
    code, _, err = cli("predict", "head", "some words")
    assert (code, "the head does not know its backbone" in err, "--backbone" in err) == (2, True, True)


@pytest.mark.parametrize(
    ("meta", "why"),
    [
        ({"backbone": "other"}, "backbone other, not letters"),
        (
            {"backbone": "letters", "weights": "here sha256:ffff"},
            "backbone letters (sha256 ffff…), not letters (sha256 1e77…)",
        ),
        ({"weights": "sha256:1e77", "backbone": "letters", "preprocess": "x"}, "preprocess 'x', not 'counted'"),
    ],
)
def test_features_of_another_backbone_are_refused(cli, texts, tmp_path, meta, why):
    data = replace(taer.load_features(tmp_path / "texts.safetensors"), meta=meta)
    save_features(data, tmp_path / "other.safetensors")
    before = (tmp_path / texts).read_bytes()
    for command in ("learn", "predict"):
        code, _, err = cli(command, texts, "other.safetensors")
        assert code == 2
        assert err == f"taer: features of another backbone than the head has learned: {why}\n"
    assert (tmp_path / texts).read_bytes() == before


def test_the_same_weights_are_the_same_backbone_under_any_name(cli, texts, tmp_path):
    meta = {"backbone": "hf:folder", "weights": "elsewhere sha256:1e77", "preprocess": "counted"}
    data = replace(taer.load_features(tmp_path / "texts.safetensors"), meta=meta)
    save_features(data, tmp_path / "same.safetensors")
    assert cli("learn", texts, "same.safetensors")[0] == 0


def test_texts_tables_and_stdin(cli, texts, tmp_path, monkeypatch):
    (tmp_path / "new.csv").write_text("id,text\n1,aaa\n2,ccc\n")
    monkeypatch.setattr("sys.stdin", io.StringIO("aaad\r\n\ncc/c.txt\n"))
    code, out, err = cli("predict", texts, "aa, bb. Or 3.50", "new.csv", "-", "--format", "json")
    assert (code, err) == (0, "")
    found = answers(out)
    assert [answer["input"] for answer in found] == [
        "aa, bb. Or 3.50",
        "new.csv row 1",
        "new.csv row 2",
        "aaad",
        "cc/c.txt",
    ]
    assert [answer["label"] for answer in found] == ["a", "a", "c", "a", "c"]
    head = taer.load(tmp_path / texts)
    X = taer.Extractor("letters").transform(["aaa"])
    assert found[1]["probabilities"] == dict(zip(["a", "c"], head.predict_proba(X)[0].tolist(), strict=True))
    assert found[1]["novelty"] == head.novelty(X)[0]
    assert "unknown" not in found[1]  # the head keeps no threshold


def test_images_and_folders(cli, images):
    code, out, err = cli("predict", images, "new/b.png", "new", "--format", "csv")
    assert (code, err) == (0, "")
    found = list(csv.DictReader(out.splitlines()))
    assert [row["input"] for row in found] == ["new/b.png", "new/b.png", "new/deep/w.png"]
    assert [row["label"] for row in found] == ["dark", "dark", "light"]
    assert list(found[0]) == ["input", "label", "novelty", "dark", "light"]


def test_an_image_on_stdin(cli, images, tmp_path, monkeypatch):
    content = (tmp_path / "new" / "deep" / "w.png").read_bytes()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
    assert cli("predict", images, "-")[1] == "light\n"


def test_the_most_likely_classes(cli, file, tmp_path):
    cli("fit", file, "--out", "head")
    head, X = taer.load(tmp_path / "head"), taer.load_features(file).test_x
    order = np.argsort(-head.scores(X), axis=1)[:, :3]
    out = cli("predict", "head", file, "--top", 3)[1]
    assert [line.split("\t") for line in out.splitlines()] == head.classes_[order].tolist()
    found = answers(cli("predict", "head", file, "--top", 3, "--format", "json")[1])
    assert [list(answer["probabilities"]) for answer in found] == head.classes_[order].tolist()
    rows = list(csv.reader(cli("predict", "head", file, "--top", 2, "--format", "csv")[1].splitlines()))
    assert rows[0][:5] == ["input", "label", "novelty", "above_limit", "unknown"]
    assert rows[0][5:] == ["label 1", "probability 1", "label 2", "probability 2"]
    assert [[row[5], row[7]] for row in rows[1:]] == head.classes_[order[:, :2]].tolist()


def test_a_threshold_of_the_head_tells_what_is_unknown(cli, texts, monkeypatch):
    monkeypatch.setattr(taer.NCM, "threshold_", -np.inf, raising=False)
    assert answers(cli("predict", texts, "aaa", "--format", "json")[1])[0]["unknown"] is True
    monkeypatch.setattr(taer.NCM, "threshold_", np.inf, raising=False)
    assert cli("predict", texts, "aaa", "--format", "csv")[1].startswith(
        "input,label,novelty,above_limit,unknown,a,c\naaa,a,"
    )


def test_many_rows_are_answered_some_at_a_time(cli, file, features, tmp_path):
    cli("fit", file, "--out", "head")
    np.save(tmp_path / "many.npy", np.tile(features.test_x, (30, 1)))
    assert len(features.test_x) * 30 > 2048
    expected = taer.load(tmp_path / "head").predict(features.test_x).tolist() * 30
    assert cli("predict", "head", "many.npy")[1].split() == expected


@pytest.mark.parametrize("header", ["", "f0,f1,f2,f3,f4,f5,f6,f7,f8,f9,f10,f11,f12,f13,f14,f15\n", "\ufeff"])
def test_numbers_with_and_without_a_header(cli, file, features, tmp_path, header, monkeypatch):
    cli("fit", file, "--method", "ncm", "--out", "head")
    numbers = io.StringIO()
    np.savetxt(numbers, features.test_x[:4], delimiter=",")
    (tmp_path / "rows.csv").write_text(header + numbers.getvalue(), encoding="utf-8")
    expected = taer.load(tmp_path / "head").predict(features.test_x[:4]).tolist()
    assert cli("predict", "head", "rows.csv")[1].split() == expected
    monkeypatch.setattr("sys.stdin", io.StringIO(numbers.getvalue()))
    assert cli("predict", "head", "-")[1].split() == expected


@pytest.mark.parametrize("input", ["missing.jpg", "missing/", "a/b", "my photo.jpg"])
def test_what_looks_like_a_path_must_exist(cli, texts, input):
    code, out, err = cli("predict", texts, "a", input)
    assert (code, out) == (2, "")  # nothing is answered before all inputs are found
    assert err.startswith(f"taer: {input}: no such file")


def test_inputs_of_another_kind_than_the_backbone_reads(cli, images, tmp_path):
    (tmp_path / "new.csv").write_text("text\naaa\n")
    (tmp_path / "notes.pdf").write_text("")
    assert "'word': neither a file nor a folder, and the head reads images" in cli("predict", images, "word")[2]
    assert "new.csv row 1: the head reads images, and this is of texts" in cli("predict", images, "new.csv")[2]
    assert "notes.pdf: expected an image, a table" in cli("predict", images, "notes.pdf")[2]
    (tmp_path / "bad.png").write_bytes(b"no image")
    assert "bad.png: cannot be read (not a readable PNG" in cli("predict", images, "bad.png")[2]


def test_the_backbone_must_be_here_and_the_same(cli, texts, backbones, monkeypatch):
    assert "another backbone than the head has learned" in cli("predict", texts, "aaa", "--backbone", "gray")[2]
    assert cli("predict", texts, "aaa", "--backbone", "letters")[1] == "a\n"
    monkeypatch.delitem(NAMED, "letters")
    taer.features.extractor._found.cache_clear()
    code, _, err = cli("predict", texts, "aaa")
    assert code == 2
    assert "the head's backbone is not here (letters: not a backbone." in err
    assert "--backbone or --weights" in err


def test_unlabeled_data_are_extracted_and_predicted(cli, texts, tmp_path):
    (tmp_path / "new.csv").write_text("text\naaa\nccc\n")
    code, out, _ = cli("extract", "new.csv", "--backbone", "letters", "--out", "new.safetensors")
    assert (code, out) == (0, "new.safetensors: 2 without labels, 8 features\n")
    found = answers(cli("predict", texts, "new.safetensors", "--format", "json")[1])
    assert [(answer["input"], answer["label"]) for answer in found] == [
        ("new.csv row 1", "a"),
        ("new.csv row 2", "c"),
    ]
    assert "unlabeled samples   2 × 8 float32" in cli("info", "new.safetensors")[1]
    for command in (["fit", "new.safetensors", "--out", "x"], ["run", "new.safetensors"]):
        code, _, err = cli(*command)
        assert (code, err) == (
            2,
            "taer: new.safetensors: its samples have no labels; such features are for predicting\n",
        )


def test_a_flat_folder_has_no_labels(cli, images, tmp_path):
    (tmp_path / "new" / "deep" / "w.png").rename(tmp_path / "new" / "w.png")
    code, out, err = cli("extract", "new", "--backbone", "gray", "--out", "new.safetensors")
    assert (code, out) == (0, "new.safetensors: 2 without labels, 8 features\n"), err
    found = answers(cli("predict", images, "new.safetensors", "--format", "json")[1])
    assert [(answer["input"], answer["label"]) for answer in found] == [
        ("new/b.png", "dark"),
        ("new/w.png", "light"),
    ]
    assert "no images here; expected one subfolder per class" in cli(
        "extract", "new", "--backbone", "gray", "--out", "x.safetensors", "--test-fraction", 0.5
    )[2]  # fmt: skip


def test_inputs_are_named_in_a_feature_file_with_labels(cli, images):
    found = answers(cli("predict", images, "set.safetensors", "--format", "json")[1])
    assert [answer["input"] for answer in found] == ["set/test/dark/10.png", "set/test/light/10.png"]


def test_classes_of_one_sample_are_answered(cli, tmp_path):
    """They have no novelty of their own to make a threshold from."""
    X = np.eye(4, 6, dtype=np.float32) * 5
    y = np.arange(4)
    save_features(taer.FeatureSet(X, y, X, y, classes=tuple("abcd"), name="x"), tmp_path / "x.safetensors")
    assert cli("fit", "x.safetensors", "--out", "h")[0] == 0
    code, out, err = cli("predict", "h", "x.safetensors")
    assert (code, out.splitlines(), err) == (0, list("abcd"), "4 of 4 right (100.00 %)\n")
    code, out, err = cli("predict", "h", "x.safetensors", "--unknown", "?")
    assert (code, out) == (2, "")
    assert err == "taer: no class has two samples yet: novelty_threshold needs held-out samples\n"
    assert cli("predict", "h", "x.safetensors", "--out", "t.csv")[0] == 0
    assert [row["label"] for row in csv.DictReader((tmp_path / "t.csv").open())] == list("abcd")
