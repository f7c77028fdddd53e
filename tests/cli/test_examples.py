"""Tables of texts and folders of photos that a head learns directly, without a feature file and without a test part."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

import taer

QUESTIONS = [("aaab", "a"), ("aab", "a"), ("aaaab", "a"), ("ccd", "c"), ("cccd", "c"), ("ccdd", "c")]


def write(path, rows, header="text,label"):
    path.write_text(f"{header}\n" + "".join(f"{','.join(row)}\n" for row in rows))


def letters(*texts):
    return taer.Extractor("letters").transform(list(texts))


@pytest.fixture
def model(cli, backbones, tmp_path):
    """A head that learned a table of two classes."""
    write(tmp_path / "questions.csv", QUESTIONS)
    code, out, err = cli("fit", "questions.csv", "--backbone", "letters", "--method", "slda", "--out", "head")
    assert (code, err) == (0, "")
    assert out == "head: 6 samples of 2 classes learned as task 1\n"
    return "head"


def test_five_examples_in_a_table_make_a_better_head(cli, model, tmp_path):
    write(tmp_path / "week1.csv", [("effff", "e"), ("eeff", "e"), ("fffe", "e"), ("eef", "e"), ("aaaa", "a")])
    assert cli("predict", model, "eeef")[1] != "e\n"
    code, out, err = cli("learn", model, "week1.csv")
    assert (code, out, err) == (0, "head: 5 samples of 2 classes learned as task 2\n", "")
    assert cli("predict", model, "eeef")[1] == "e\n"
    head = taer.load(tmp_path / model)
    assert head.statistics_.counts.tolist() == [4, 3, 4]  # nothing was held out
    assert head.feature_origin_.backbone == "letters"


def test_a_table_is_learned_as_its_feature_file_is(cli, model, tmp_path):
    cli("extract", "questions.csv", "--backbone", "letters", "--out", "questions.safetensors")
    assert cli("fit", "questions.safetensors", "--method", "slda", "--out", "same")[0] == 0
    np.testing.assert_array_equal(taer.load(tmp_path / "same").coef_, taer.load(tmp_path / model).coef_)


def test_accuracy_is_told_only_if_there_is_a_test_part(cli, model, tmp_path):
    rows = [(*row, "train") for row in QUESTIONS] + [("aaa", "a", "test")]
    write(tmp_path / "split.csv", rows, "text,label,split")
    out = cli("fit", "split.csv", "--backbone", "letters", "--method", "ncm", "--out", "h")[1]
    assert out == (
        "h: 6 samples of 2 classes learned as task 1; accuracy on the 1 test samples of its 2 classes 100.00 %\n"
    )
    out = cli("fit", "split.csv", "--backbone", "letters", "--method", "ncm", "--out", "h", "--test-fraction", 0)[1]
    assert out == "h: 7 samples of 2 classes learned as task 1\n"


def test_a_folder_of_photos_is_learned_directly(cli, backbones, tmp_path):
    for label, shade in (("dark", 10), ("light", 220), ("gray", 120)):
        for number in range(3):
            path = tmp_path / ("later" if label == "gray" else "photos") / label / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (8, 8), (shade + number,) * 3).save(path)
    code, out, err = cli("fit", "photos", "--backbone", "gray", "--method", "ncm", "--out", "head")
    assert (code, out, err) == (0, "head: 6 samples of 2 classes learned as task 1\n", "")
    assert cli("learn", "head", "later")[1] == "head: 3 samples of 1 class learned as task 2\n"
    assert cli("predict", "head", "later/gray/1.png")[1] == "gray\n"
    assert (
        "the images have no labels; expected a label for each: one subfolder"
        in cli("learn", "head", "later/gray")[2]
    )


def test_other_columns_are_named(cli, model, tmp_path):
    write(tmp_path / "other.csv", [("eef", "e")], "body,queue")
    assert "other.csv: no column text; it has body, queue" in cli("learn", model, "other.csv")[2]
    assert "the texts have no labels" in cli("learn", model, "other.csv", "--text-column", "body")[2]
    assert cli("learn", model, "other.csv", "--text-column", "body", "--label-column", "queue")[0] == 0


def test_another_backbone_than_that_of_the_head_is_refused(cli, model, file):
    assert "gray reads images, the data are texts" in cli("learn", model, "questions.csv", "--backbone", "gray")[2]
    cli("fit", file, "--method", "ncm", "--out", "numbers")
    assert "the head does not know its backbone" in cli("learn", "numbers", "questions.csv")[2]


def test_rows_are_taken_back(cli, model, tmp_path):
    code, out, err = cli("unlearn", model, "questions.csv", "--rows", "1, 3", "--out", "less")
    assert (code, out, err) == (0, "less: 2 samples taken back; 2 classes\n", "")
    assert taer.load(tmp_path / "less").statistics_.counts.tolist() == [1, 3]
    expected = taer.load(tmp_path / model).unlearn(letters("aaab", "aaaab"), ["a", "a"])
    np.testing.assert_array_equal(taer.load(tmp_path / "less").coef_, expected.coef_)


def test_rows_of_a_feature_file_are_those_of_its_table(cli, model, tmp_path):
    """They are numbered in the table, also if some of its rows are in the test part."""
    rows = [(*row, "test" if row[0] == "aaab" else "train") for row in QUESTIONS]
    write(tmp_path / "split.csv", rows, "text,label,split")
    cli("extract", "split.csv", "--backbone", "letters", "--out", "split.safetensors")
    for source in ("split.csv", "split.safetensors"):
        assert cli("unlearn", model, source, "--rows", "2", "--out", "less")[0] == 0
        expected = taer.load(tmp_path / model).unlearn(letters("aab"), ["a"])
        np.testing.assert_array_equal(taer.load(tmp_path / "less").coef_, expected.coef_)
        assert (
            "--rows: 1 is in the test part, which was not learned" in cli("unlearn", model, source, "--rows", 1)[2]
        )
        assert "--rows: 99 is not there" in cli("unlearn", model, source, "--rows", 99)[2]
        assert cli("unlearn", model, source, "--rows", "split.csv row 3", "--out", "less")[0] == 0


def test_a_wrong_label_is_corrected(cli, backbones, tmp_path):
    write(tmp_path / "wrong.csv", [*QUESTIONS, ("ccccd", "a")])
    cli("fit", "wrong.csv", "--backbone", "letters", "--method", "slda", "--out", "head")
    assert "wrong.csv row 7  train  a      c" in cli("diagnose", "head", "wrong.csv")[1]
    code, out, err = cli("relabel", "head", "wrong.csv", "--rows", 7, "--to", "c")
    assert (code, err) == (0, "")
    assert out == "head: 1 sample of a relabeled as c (wrong.csv still has the old label); 2 classes\n"
    assert taer.load(tmp_path / "head").statistics_.counts.tolist() == [3, 4]
    assert "wrong.csv has that label already" in cli("relabel", "head", "wrong.csv", "--rows", 7, "--to", "a")[2]


def test_diagnose_needs_no_test_part(cli, model):
    out = cli("diagnose", model, "questions.csv")[1]
    assert out.startswith("accuracy on 6 training samples of 2 classes ")
    assert "Most confused, in the training part:" in out


def test_features_without_a_test_part_have_nothing_to_predict(cli, model):
    cli("extract", "questions.csv", "--backbone", "letters", "--out", "questions.safetensors")
    code, _, err = cli("predict", model, "questions.safetensors")
    assert (code, err) == (
        2,
        "taer: questions.safetensors: has no test samples to predict, only training samples\n",
    )
    assert (
        "no test samples" in cli("run", "questions.safetensors", "--methods", "ncm", "--tasks", 2, "--jobs", 1)[2]
    )


def test_a_pipeline_is_described(cli, model, tmp_path):
    pipe = taer.make_pipeline(taer.Extractor("letters"), taer.NCM())
    pipe.partial_fit([text for text, _ in QUESTIONS], [label for _, label in QUESTIONS])
    pipe.save(tmp_path / "pipe.safetensors")
    code, out, err = cli("info", "pipe.safetensors")
    assert (code, err) == (0, "")
    assert "step extractor      Extractor(backbone='letters')\n" in out
    assert "method              ncm (" in out
    assert "classes             2 in 1 task\n" in out
