"""``taer predict --out``: the user's table, with the answers in new columns."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

pytest.importorskip("pyarrow")
import pyarrow
import pyarrow.parquet

import taer
from tests.conftest import Letters

NEW = ["label", "probability", "novelty", "unknown"]


@pytest.fixture
def model(cli, backbones, tmp_path):
    rng = np.random.default_rng(0)
    rows = [(letter * rng.integers(3, 9) + "bdh"[rng.integers(3)], letter) for letter in "ace" for _ in range(12)]
    (tmp_path / "questions.csv").write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows))
    assert cli("fit", "questions.csv", "--backbone", "letters", "--out", "head")[0] == 0
    return "head"


@pytest.fixture
def tickets(tmp_path):
    """A table of 600 rows, with other columns around the texts."""
    with (tmp_path / "tickets.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["id", "body", "note"])
        for row in range(600):
            table.writerow(
                [row, "ace"[row % 3] * (3 + row % 5) + "b", 'said "no", twice\nthen left' if row == 4 else ""]
            )
    return "tickets.csv"


def read(path):
    with path.open(newline="", encoding="utf-8-sig") as file:
        return list(csv.reader(file))


@pytest.mark.parametrize("mark", [";", "\t"])
def test_cells_may_be_separated_by_semicolons_or_tabs(cli, backbones, tmp_path, mark):
    rows = [["aaab, a", "a"], ["aab", "a"], ["ccd", "c"], [f"c{mark}cd", "c"]]
    for name, header in (("taught.csv", "text label"), ("asked.csv", "text what"), ("columns.csv", "body label")):
        with (tmp_path / name).open("w", newline="") as file:
            csv.writer(file, delimiter=mark).writerows([header.split(), *rows])
    fit = ("fit", "taught.csv", "--backbone", "letters", "--method", "ncm", "--out", "head")
    assert "4 samples of 2 classes" in cli(*fit)[1]
    assert cli("predict", "head", "asked.csv", "--out", "answers.csv")[0] == 0
    with (tmp_path / "answers.csv").open(newline="") as file:
        answers = list(csv.reader(file, delimiter=mark))
    assert [row[:3] for row in answers[1:]] == [[*row, row[1]] for row in rows]
    code, _, err = cli("fit", "columns.csv", *fit[2:])
    words = {";": "semicolons", "\t": "tabs"}[mark]
    assert (code, f"no column text; it has body, label (cells separated by {words})" in err) == (2, True)
    (tmp_path / "columns.csv").write_text("text|label\naaab|a\n")
    assert (
        "it has text|label (cells are separated by commas, semicolons or tabs)"
        in cli("fit", "columns.csv", *fit[2:])[2]
    )


def test_columns_and_order_are_kept_and_answers_follow(cli, model, tickets, tmp_path):
    code, out, err = cli("predict", model, tickets, "--text-column", "body", "--out", "labeled.csv")
    assert (code, err) == (0, "")
    before, after = read(tmp_path / tickets), read(tmp_path / "labeled.csv")
    assert after[0] == ["id", "body", "note", *NEW]
    assert [row[:3] for row in after] == before
    head = taer.load(tmp_path / model)
    head.novelty_threshold()
    X = Letters()([row[1] for row in before[1:]])
    assert [row[3] for row in after[1:]] == head.predict(X).tolist()
    np.testing.assert_allclose([float(row[4]) for row in after[1:]], head.predict_proba(X).max(axis=1), rtol=1e-5)
    np.testing.assert_allclose([float(row[5]) for row in after[1:]], head.novelty(X), rtol=1e-5)
    unknown = head.predict(X, unknown="?") == "?"
    assert [row[6] == "true" for row in after[1:]] == unknown.tolist()
    assert out == f"labeled.csv: 600 rows labeled, {unknown.sum()} of them unknown\n"
    assert not (tmp_path / "labeled.csv.parts").exists()


def test_parquet_keeps_its_types(cli, model, tickets, tmp_path):
    before = pyarrow.table({"text": ["aaab", "cccb"], "n": pyarrow.array([7, None], pyarrow.int16())})
    pyarrow.parquet.write_table(before, tmp_path / "t.parquet")
    assert cli("predict", model, "t.parquet", "--out", "l.parquet", "--top", 2)[0] == 0
    after = pyarrow.parquet.read_table(tmp_path / "l.parquet")
    pairs = ["label 1", "probability 1", "label 2", "probability 2"]
    assert after.column_names == ["text", "n", *NEW, *pairs]
    assert after.select(["text", "n"]).equals(before)
    assert after["label"].to_pylist() == after["label 1"].to_pylist() == ["a", "c"]
    assert after.schema.field("unknown").type == pyarrow.bool_()
    assert cli("predict", model, "t.parquet", "--out", "l.csv")[0] == 0
    assert [row[:3] for row in read(tmp_path / "l.csv")[1:]] == [["aaab", "7", "a"], ["cccb", "", "c"]]
    assert cli("predict", model, tickets, "--text-column", "body", "--out", "t.parquet.new.parquet")[0] == 0


def test_a_head_without_a_threshold_leaves_unknown_empty(cli, model, tickets, tmp_path):
    cli("fit", "questions.csv", "--backbone", "letters", "--method", "ncm", "--out", "plain")
    out = cli("predict", "plain", tickets, "--text-column", "body", "--out", "l.csv")[1]
    assert out == "l.csv: 600 rows labeled\n"
    assert {row[6] for row in read(tmp_path / "l.csv")[1:]} == {""}


def test_the_word_for_unknown(cli, model, tmp_path):
    (tmp_path / "t.csv").write_text("text\naaaab\ngggggggggggggggg\n")
    cli("predict", model, "t.csv", "--out", "l.csv", "--unknown", "?")
    assert [(row[1], row[4]) for row in read(tmp_path / "l.csv")[1:]] == [("a", "false"), ("?", "true")]


def test_a_taken_name_is_an_error_that_names_the_prefix(cli, model, tmp_path):
    code, _, err = cli("predict", model, "questions.csv", "--out", "l.csv")
    assert code == 2
    assert "questions.csv: already has a column label; choose other names with --prefix" in err
    assert cli("predict", model, "questions.csv", "--out", "l.csv", "--prefix", "new_")[0] == 0
    assert read(tmp_path / "l.csv")[0] == ["text", "label", *(f"new_{name}" for name in NEW)]


def test_a_missing_column_is_named(cli, model, tickets):
    for out in ([], ["--out", "l.csv"]):
        code, _, err = cli("predict", model, tickets, "--text-column", "bdy", *out)
        assert (code, err) == (2, "taer: tickets.csv: no column bdy; it has id, body, note\n")
        assert (
            "name the column of the texts with --text-column (it has id, body, note)"
            in cli("predict", model, tickets, *out)[2]
        )


def test_an_interrupted_command_goes_on_where_it_stopped(cli, model, tickets, tmp_path, monkeypatch):
    command = ("predict", model, tickets, "--text-column", "body", "--out", "l.csv")
    assert cli(*command)[0] == 0
    whole = (tmp_path / "l.csv").read_bytes()
    (tmp_path / "l.csv").unlink()
    plain, seen = Letters.__call__, []

    def encode(self, items):
        seen.extend(items)
        if len(seen) > 300:
            raise KeyboardInterrupt
        return plain(self, items)

    monkeypatch.setattr(Letters, "__call__", encode)
    assert cli(*command)[0] == 130
    assert not (tmp_path / "l.csv").exists()
    with (tmp_path / "l.csv.parts").open("a") as parts:
        parts.write('["a", 0.')  # a line that a kill cut short
    seen.clear()
    monkeypatch.setattr(Letters, "__call__", lambda self, items: (seen.extend(items), plain(self, items))[1])
    assert cli(*command)[0] == 0
    assert len(seen) == 600 - 256
    assert (tmp_path / "l.csv").read_bytes() == whole


def test_answers_of_another_head_are_not_gone_on_with(cli, model, tickets, tmp_path):
    (tmp_path / "l.csv.parts").write_text('"another key"\n["z", 1.0, 0.0, false]\n')
    assert cli("predict", model, tickets, "--text-column", "body", "--out", "l.csv")[0] == 0
    assert "z" not in {row[3] for row in read(tmp_path / "l.csv")}


def test_only_earlier_answers_are_written_over(cli, model, tickets, tmp_path):
    (tmp_path / "mine.csv").write_text("of value\n")
    before = (tmp_path / tickets).read_bytes()
    for out in ("mine.csv", tickets):
        code, _, err = cli("predict", model, tickets, "--text-column", "body", "--out", out)
        assert (code, err) == (2, f"taer: {out}: exists and is not a table of earlier answers; name another file\n")
    assert (tmp_path / tickets).read_bytes() == before
    for _ in range(2):
        assert cli("predict", model, tickets, "--text-column", "body", "--out", "l.csv")[0] == 0


def test_a_row_that_cannot_be_read_is_told_before_any_work(cli, model, tmp_path):
    for content, message in (
        ("id,text\n1,aaab\n2,\n", "t.csv: row 2 has no text"),
        ("id,text\n1,aaab,no quotes\n", "t.csv: line 2 has 3 cells, and the header 2"),
        ("id,text\n", "t.csv: no rows, only a header"),
    ):
        (tmp_path / "t.csv").write_text(content)
        code, _, err = cli("predict", model, "t.csv", "--out", "l.csv")
        assert (code, message in err) == (2, True), err
        assert not (tmp_path / "l.csv.parts").exists()


def test_features_and_their_names_become_a_table(cli, file, tmp_path):
    cli("fit", file, "--method", "ncm", "--out", "head")
    assert cli("predict", "head", file, "--out", "l.csv")[0] == 0
    rows = read(tmp_path / "l.csv")
    assert rows[0] == ["input", *NEW]
    assert rows[1][0] == f"{file} row 1"
    assert len(rows) == 101


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tickets.csv", "--out", "l.xlsx"], "expected a name that ends in .csv or .parquet"),
        (["tickets.csv", "more.csv", "--out", "l.csv"], "--out takes one table"),
        (["some words", "--out", "l.csv"], "some words: no such file"),
        (["tickets.csv", "--out", "l.csv", "--format", "json"], "--format is for what is printed"),
    ],
)
def test_mistakes_are_told(cli, model, tickets, arguments, message):
    code, _, err = cli("predict", model, "--text-column", "body", *arguments)
    assert code == 2
    assert message in err


def test_formulas_are_escaped_if_asked(cli, model, tmp_path):
    cli("rename", model, "a", "=cmd|' /C calc'!A0")
    rows = '"=HYPERLINK(""http://x"")",aaab,-3.5\n'
    (tmp_path / "t.csv").write_text(f"note,text,n\n{rows}")
    cli("predict", model, "t.csv", "--out", "l.csv")
    assert read(tmp_path / "l.csv")[1][:4] == ['=HYPERLINK("http://x")', "aaab", "-3.5", "=cmd|' /C calc'!A0"]
    cli("predict", model, "t.csv", "--out", "l.csv", "--escape-formulas")
    assert read(tmp_path / "l.csv")[1][:4] == ['\'=HYPERLINK("http://x")', "aaab", "-3.5", "'=cmd|' /C calc'!A0"]
    assert "'=cmd" not in cli("predict", model, "aaab", "--format", "csv")[1]
    assert "aaab,'=cmd" in cli("predict", model, "aaab", "--format", "csv", "--escape-formulas")[1]


def test_someone_who_looks_sees_how_far_it_is(cli, model, tickets, monkeypatch):
    monkeypatch.setattr("rich.console.Console.is_terminal", True)
    assert "600/600" in cli("predict", model, tickets, "--text-column", "body", "--out", "l.csv")[2]


def test_a_header_of_npy_that_is_no_python(cli, file, tmp_path):
    cli("fit", file, "--method", "ncm", "--out", "head")
    header = b"{'descr': '<f4', 'shape': (3,"
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    code, _, err = cli("predict", "head", "x.npy")
    assert (code, err.startswith("taer: x.npy: not a readable .npy file (")) == (2, True)
    assert json.dumps(err).count("\\n") == 1
