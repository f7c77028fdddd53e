"""``taer report``: a page that stands alone, its files, and comparing two directories."""

from __future__ import annotations

import csv
import json
import re
import shutil

import html5lib
import pytest

from taer.cli import main
from taer.features import save_features
from taer.paper.measured import Number
from taer.report.tables import Table, text


@pytest.fixture
def cli(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        with pytest.raises(SystemExit) as stop:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return stop.value.code, captured.out, captured.err

    return call


@pytest.fixture
def results(cli, features, tmp_path):
    """Two heads, two seeds, five tasks."""
    save_features(features, tmp_path / "set.safetensors")
    run = ("run", "set.safetensors", "--tasks", 5, "--seeds", 2, "--methods", "taer,er", "--epochs", 1)
    assert cli(*run, "--memory", 20, "--out", "made")[0] == 0
    return tmp_path / "made"


def check_page(page):
    """The page is valid HTML5 by a strict parser, has each id once, and asks nothing of the network."""
    source = page.read_text(encoding="utf-8")
    tree = html5lib.HTMLParser(strict=True).parse(source)
    ids = [element.attrib["id"] for element in tree.iter() if "id" in element.attrib]
    assert len(ids) == len(set(ids))
    for element in tree.iter():
        for name, value in element.attrib.items():
            if name.split("}")[-1] in ("src", "href", "srcset", "action", "data", "poster"):
                assert value.startswith(("#", "data:")), value[:80]
                assert not value.startswith("#") or value[1:] in ids
            for target in re.findall(r"url\(([^)]*)\)", value):
                assert target.startswith("#")
    assert "@import" not in source
    assert not re.search(r"url\((?!#)", source)
    assert not re.search(r"<(script|link|iframe|object|embed)[^>]+(src|href)", source)
    return source


def test_a_report_of_any_results_stands_alone(cli, results):
    code, out, err = cli("report", results)
    assert code == 0, err
    report = results / "report"
    assert out.strip() == str(report / "index.html")
    page = check_page(report / "index.html")
    for words in ("set: 10 classes in 5 tasks", "Learning curves", "Preserved accuracy", "Accuracies a[t, k]",
                  "Confusion matrices", "class7", "Class orders", "fingerprint", "taer run set.safetensors",
                  "--set memory_size=20"):  # fmt: skip
        assert words in page, words
    names = {path.name for path in report.rglob("*.*")}
    for kind in ("learning", "preserved", "accuracies", "confusion"):
        assert {f"set-tasks-5-{kind}.svg", f"set-tasks-5-{kind}.pdf"} <= names
    assert {"set-tasks-5-methods.csv", "set-tasks-5-methods.tex", "report.md"} <= names
    assert (report / "figures" / "set-tasks-5-learning.pdf").read_bytes().startswith(b"%PDF")
    assert "![Learning curves" in (report / "report.md").read_text()
    assert "\\toprule" in (report / "tables" / "set-tasks-5-methods.tex").read_text()


def test_numbers_are_those_of_the_results(cli, results):
    cli("report", results)
    with (results / "report" / "tables" / "set-tasks-5-methods.csv").open() as file:
        rows = {row["Method"]: row for row in csv.DictReader(file)}
    runs = [json.loads(path.read_text()) for path in results.glob("taer-*.json")]
    assert float(rows["taer"]["A_T (%)"]) == pytest.approx(sum(50 * run["A_T"] for run in runs))
    assert rows["taer"]["A_T (%) runs"] == "2"
    assert rows["taer"]["A_T (%) published"] == ""
    with (results / "report" / "confusion" / "set-tasks-5-confusion-taer.csv").open() as file:
        matrix = list(csv.reader(file))
    first = next(run for run in runs if run["seed"] == 0)
    assert matrix[0][1:] == first["classes"]
    assert [list(map(int, row[1:])) for row in matrix[1:]] == first["confusion"]


def test_parameters_that_differ_tell_groups_apart(cli, results):
    run = ("run", "set.safetensors", "--tasks", 5, "--seeds", 2, "--methods", "taer", "--epochs", 1)
    cli(*run, "--memory", 10, "--out", results)
    cli("report", results)
    table = (results / "report" / "tables" / "set-tasks-5-methods.csv").read_text()
    assert "taer (memory_size 10)" in table
    assert "taer (memory_size 20)" in table
    assert "\ner," in table


def test_of_runs_of_an_edited_method_the_newest_counts(cli, results):
    path = next(results.glob("taer-*.json"))
    old = json.loads(path.read_text())
    old |= {"A_T": 0.0, "source": "before", "created": "2000-01-01T00:00:00+00:00"}
    (results / "taer-before.json").write_text(json.dumps(old))
    cli("report", results)
    with (results / "report" / "tables" / "set-tasks-5-methods.csv").open() as file:
        rows = {row["Method"]: row for row in csv.DictReader(file)}
    assert rows["taer"]["Runs"] == "2"
    assert float(rows["taer"]["A_T (%)"]) > 20


def test_two_directories_are_compared(cli, results, tmp_path):
    run = ("run", "set.safetensors", "--tasks", 5, "--seeds", 2, "--methods", "taer,finetune", "--epochs", 2)
    cli(*run, "--memory", 10, "--out", "other")
    code, _, err = cli("report", results, tmp_path / "other", "--out", "compared")
    assert code == 0, err
    page = check_page(tmp_path / "compared" / "index.html")
    assert "made and other compared" in page
    assert "er [made]" in page
    table = (tmp_path / "compared" / "tables" / "set-tasks-5-comparison.csv").read_text().splitlines()
    assert len(table) == 2  # only taer is in both
    assert table[1].startswith("taer,")


def test_results_of_the_paper_are_beside_the_published_numbers(cli, paper_features, tmp_path):
    for variant in ("raw", "standardised"):
        paper = ("paper", "table3", "figure2", "figure4", "--features", paper_features, "--variant", variant)
        assert cli(*paper, "--seeds", 2, "--out", "made")[0] == 0
    code, _, err = cli("report", "made")
    assert code == 0, err
    page = check_page(tmp_path / "made" / "report" / "index.html")
    for words in ("paper 71.37", "Figure 2: Estimates", "raw features", "standardised by the first task",
                  "taer extract core50 --backbone vit-small", "Statements of the paper, tested",
                  "largest difference 0.0e+00"):  # fmt: skip
        assert words in page, words
    with (tmp_path / "made" / "report" / "tables" / "paper-statements.csv").open() as file:
        verdicts = {row["Statement"]: row for row in csv.DictReader(file)}
    beats = next(row for claim, row in verdicts.items() if claim.startswith("TaER beats"))
    assert "CUB200 ViT-S/16: TaER 84.47, UCIR 85.26" in beats["Published numbers"]
    assert beats["Published numbers"].startswith("holds only for CIFAR100 ViT-S/16, CORe50 ViT-S/16, CIFAR100 Res")
    assert next(row for claim, row in verdicts.items() if claim.startswith("TaER's preserved"))[
        "Raw features"
    ].startswith("holds.")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["empty"], "empty: no results there; 'taer run --out empty' puts some"),
        (["nowhere"], "nowhere: no such folder"),
        (["empty", "empty"], "two folders of results need --out"),
        (["a", "b", "c"], "one folder of results, or two to compare; got 3"),
    ],
)
def test_mistakes_are_one_line(cli, tmp_path, arguments, message):
    (tmp_path / "empty").mkdir()
    code, out, err = cli("report", *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert not list((tmp_path / "empty").iterdir())


def test_a_report_is_made_anew(cli, results):
    cli("report", results)
    figures = results / "report" / "figures"
    (figures / "stale.svg").write_text("")
    for path in results.glob("er-*.json"):
        path.unlink()
    cli("report", results)
    assert not (figures / "stale.svg").exists()
    shutil.rmtree(results / "report")


def test_texts_of_numbers():
    assert text(Number(54.8, 0.81, 3, 55.42)) == "54.80 ± 0.81 (paper 55.42, −0.62)"
    assert text(Number(None, 0.0, 0, 71.37)) == "missing (paper 71.37)"
    assert text(Number(None, 0.0, 0, 73.21, quoted=True)) == "quoted (paper 73.21)"
    assert text(Number(50.0, 0.0, 1)) == "50.00"
    table = Table("t", "Title", "Note.", [("", "M"), ("G", "x_1")], [["a|b", Number(1.5, 0.25, 2, 2.0)]])
    assert table.csv().splitlines() == ["M,G x_1,G x_1 std,G x_1 runs,G x_1 published,G x_1 difference",
                                        "a|b,1.5,0.25,2,2.0,-0.5"]  # fmt: skip
    assert "a\\|b" in table.markdown()
    assert r"\multicolumn{1}{c}{G}" in table.latex()
    assert r"x\_1" in table.latex()
