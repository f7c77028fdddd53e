"""``taer report``: a self-contained page, its files, and the comparison of two directories."""

from __future__ import annotations

import csv
import json
import re
import shlex
import sys

import pytest

pytest.importorskip("html5lib")
pytest.importorskip("matplotlib")
import html5lib

from taer.experiment import Run, Spread, read_result, read_results, run_grid, write_result
from taer.report import write_report
from taer.report.collect import sort_results
from taer.report.tables import Number, Table, text
from taer.stream import class_stream
from tests.conftest import small_features


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Results of two heads, two seeds, five tasks, and their report."""
    folder = tmp_path_factory.mktemp("any") / "made"
    run_heads(folder, {"taer": {"memory_size": 20}, "er": {"memory_size": 20}})
    write_report([folder], folder / "report")
    return folder


def run_heads(folder, heads):
    features = small_features("set")
    streams = [class_stream(features, tasks=5, order=seed) for seed in range(2)]
    runs = [
        Run(streams[seed], name, {"epochs": 1, **params}, seed)
        for name, params in heads.items()
        for seed in range(2)
    ]
    for _ in run_grid(runs, folder):
        pass


def check_page(page):
    """The page is valid HTML5 for a strict parser, has unique ids, and loads nothing from the network."""
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


def test_a_report_of_any_results_stands_alone(made):
    page = check_page(made / "report" / "index.html")
    for words in ("set: 10 classes in 5 tasks", "Learning curves", "Preserved accuracy", "Accuracies a[t, k]",
                  "Confusion matrices", "class7", "Class orders", "fingerprint", "taer run FEATURES --methods taer",
                  "--set memory_size=20"):  # fmt: skip
        assert words in page, words
    names = {path.name for path in (made / "report").rglob("*.*")}
    for kind in ("learning", "preserved", "accuracies", "confusion"):
        assert {f"set-tasks-5-{kind}.svg", f"set-tasks-5-{kind}.pdf"} <= names
    assert {"set-tasks-5-methods.csv", "set-tasks-5-methods.tex", "report.md"} <= names
    assert (made / "report" / "figures" / "set-tasks-5-learning.pdf").read_bytes().startswith(b"%PDF")
    assert "![Learning curves" in (made / "report" / "report.md").read_text()
    assert "\\toprule" in (made / "report" / "tables" / "set-tasks-5-methods.tex").read_text()


def test_the_embedded_features_are_run_again_without_a_file(tmp_path, cli):
    """The command in the report works as printed."""
    options = ("--methods", "ncm", "--tasks", 2, "--seeds", 1)
    assert cli("run", *options, "--out", "made")[0] == 0
    assert cli("report", "made")[0] == 0
    page = (tmp_path / "made" / "report" / "report.md").read_text()
    (command,) = re.findall(r"taer (run --methods ncm .*)", page)
    code, _, err = cli(*command.split(), "--out", "made", "--format", "markdown")
    assert code == 0, err
    assert len(list((tmp_path / "made").glob("*.json"))) == 1  # the same run
    assert "FEATURES" not in command


def commands_of(folder, file):
    page = (folder / "report" / "report.md").read_text().replace("FEATURES", file)
    return [shlex.split(command) for command in re.findall(r"^taer (.*run .*)", page, re.M)]


@pytest.mark.parametrize("imported", [False, True])
def test_results_of_ones_own_head_are_reported(imported, tmp_path, file, cli, monkeypatch):
    """The module is imported only if the user says so, and the command in the report works as printed."""
    monkeypatch.setattr(sys, "path", [*sys.path])  # to which the command line adds the folder
    (tmp_path / "ownheads.py").write_text("import taer\n\n\nclass Own(taer.NCM):\n    pass\n")
    options = ("--methods", "ownheads:Own,ncm", "--tasks", 2, "--seeds", 1, "--out", "made")
    # In this process: workers that an earlier test left behind do not look for modules in this folder.
    code, _, err = cli("run", file, *options, "--jobs", 1)
    assert code == 0, err
    sys.modules.pop("ownheads")
    code, _, err = cli(*(["--import", "ownheads"] if imported else []), "report", "made")
    assert code == 0, err
    assert ("ownheads" in sys.modules) == imported
    _, command = commands_of(tmp_path / "made", file)
    assert "ownheads:Own" in command
    assert ("--set" in command) != imported  # defaults of a class that is not there are spelled out
    code, _, err = cli(*command, "--out", "made", "--jobs", 1)
    assert code == 0, err
    assert len(list((tmp_path / "made").glob("*.json"))) == 2  # the same run
    sys.modules.pop("ownheads")


def test_results_cannot_make_a_report_import_anything(made, tmp_path):
    result = read_result(next(made.glob("er-*.json")))
    for method in ("antigravity:Own", "os:system"):
        write_result(tmp_path, result | {"method": method})
    write_report([tmp_path], tmp_path / "report")
    assert "antigravity" not in sys.modules


def test_a_sweep_is_labeled_and_run_again_value_by_value(tmp_path, file, cli):
    options = ("--tasks", 2, "--seeds", 1, "--set", "shrinkage=0.1,0.9", "--set", "metric=cosine,euclidean")
    code, out, err = cli("run", file, "--methods", "slda,ncm", *options, "--format", "csv", "--out", "made")
    assert code == 0, err
    labels = ["slda (shrinkage 0.1)", "slda (shrinkage 0.9)", "ncm (metric cosine)", "ncm (metric euclidean)"]
    assert [row["method"] for row in csv.DictReader(out.splitlines())] == labels
    assert cli("report", "made")[0] == 0
    table = read_csv(next((tmp_path / "made" / "report" / "tables").glob("*-methods.csv")))
    assert set(table) == set(labels)
    for command in commands_of(tmp_path / "made", file):
        code, _, err = cli(*command, "--out", "made")
        assert code == 0, err
    assert len(list((tmp_path / "made").glob("*.json"))) == 4  # the same runs


def test_values_of_a_sweep_are_in_order(tmp_path):
    for value in (10, 2, 0.5):
        run_heads(tmp_path, {"er": {"lr": value}})
    (setting,) = sort_results({"": read_results(tmp_path)})
    assert [group.label for group in setting.groups] == ["er (lr 0.5)", "er (lr 2)", "er (lr 10)"]


def test_few_shot_runs_have_a_section_of_their_own(tmp_path, cli):
    """With separate numbers for old and new classes, and a command that works as printed."""
    options = ("--methods", "ncm", "--first", 60, "--tasks", 7, "--seeds", 1, "--order", "natural", "--out", "made")
    assert cli("run", *options)[0] == 0
    assert cli("run", *options, "--shots", 5)[0] == 0
    (tmp_path / "few.json").write_text('{"sessions": {"0": [0, 100, 200, 300], "1": [1000, 1001]}}')
    assert cli("run", "--methods", "ncm", "--samples", "few.json", "--seeds", 1, "--out", "made")[0] == 0
    code, _, err = cli("report", "made")
    assert code == 0, err
    check_page(tmp_path / "made" / "report" / "index.html")
    page = (tmp_path / "made" / "report" / "report.md").read_text()
    for words in ("60 classes, then 7 tasks of 6 or 5", "tasks of 6 or 5, 5 samples per class after the first task",
                  "given samples", "| last (%) | base (%) | new (%) | harmonic (%) | AIA (%) |",
                  "taer run --methods ncm --samples FILE --seeds 1"):  # fmt: skip
        assert words in page, words
    assert "taer run --methods ncm --tasks 7 --first 60 --order natural --seeds 1\n" in page
    (command,) = re.findall(r"taer (run .*--shots.*)", page)
    code, _, err = cli(*command.split(), "--out", "made", "--format", "markdown")
    assert code == 0, err
    assert len(list((tmp_path / "made").glob("*.json"))) == 3  # the same run


@pytest.mark.parametrize("order", [(), ("--order", "natural"), ("--order", "given.txt")])
def test_a_blurry_stream_is_listed_by_seed_and_run_again(order, tmp_path, file, cli):
    (tmp_path / "given.txt").write_text("5 4 3 2 1 0 9 8 7 6")
    options = ("--methods", "ncm", "--stream", "blurry", "--tasks", 2, "--seeds", 2, *order)
    code, _, err = cli("run", file, *options, "--out", "made")
    assert code == 0, err
    assert cli("report", "made")[0] == 0
    page = (tmp_path / "made" / "report" / "report.md").read_text()
    for run in read_results(tmp_path / "made"):
        listed = " | ".join(" ".join(map(str, task)) for task in run["tasks"])
        assert re.search(rf"^[01, ]*\b{run['seed']}[01, ]*: {re.escape(listed)}$", page, re.M)
    (command,) = commands_of(tmp_path / "made", file)
    code, _, err = cli(*("given.txt" if word == "FILE" else word for word in command), "--out", "made")
    assert code == 0, err
    assert len(list((tmp_path / "made").glob("*.json"))) == 2  # the same runs


def test_numbers_are_those_of_the_results(made):
    rows = read_csv(made / "report" / "tables" / "set-tasks-5-methods.csv")
    runs = [json.loads(path.read_text()) for path in made.glob("taer-*.json")]
    assert float(rows["taer"]["A_T (%)"]) == pytest.approx(sum(50 * run["A_T"] for run in runs))
    assert rows["taer"]["A_T (%) runs"] == "2"
    assert float(rows["taer"]["ECE (%)"]) == pytest.approx(sum(50 * run["ece"][-1] for run in runs))
    areas = [sum(run["novelty_auroc"]) / 4 for run in runs]
    assert float(rows["taer"]["Novelty AUROC (%)"]) == pytest.approx(50 * sum(areas))
    assert rows["taer"]["A_T (%) published"] == ""
    with (made / "report" / "confusion" / "set-tasks-5-confusion-taer.csv").open() as file:
        matrix = list(csv.reader(file))
    first = next(run for run in runs if run["seed"] == 0)
    assert matrix[0][1:] == first["classes"]
    assert [list(map(int, row[1:])) for row in matrix[1:]] == first["confusion"]


def read_csv(path):
    with path.open() as file:
        return {row["Method"]: row for row in csv.DictReader(file)}


def test_parameters_that_differ_tell_groups_apart(made, tmp_path):
    run_heads(tmp_path, {"taer": {"memory_size": 10}})
    (setting,) = sort_results({"": read_results(made) + read_results(tmp_path)})
    assert [group.label for group in setting.groups] == ["taer (memory_size 10)", "taer (memory_size 20)", "er"]
    assert [len(group.results) for group in setting.groups] == [2, 2, 2]


def test_of_runs_of_an_edited_method_the_newest_counts(made, tmp_path):
    new = read_result(next(made.glob("taer-*.json")))
    old = new | {"A_T": 0.0, "source": "before", "created": "2000-01-01T00:00:00+00:00"}
    kept = write_result(tmp_path, new)
    write_result(tmp_path, old)
    (tmp_path / "damaged.json").write_text("{")
    (tmp_path / "of-another-run.json").write_text(kept.read_text())
    assert read_results(tmp_path) == [new]


def test_two_directories_are_compared(cli, made, tmp_path):
    run_heads(tmp_path / "other", {"taer": {"memory_size": 10}, "finetune": {}})
    (tmp_path / "compared" / "figures").mkdir(parents=True)
    (tmp_path / "compared" / "figures" / "stale.svg").touch()
    code, out, err = cli("report", made, "other", "--out", "compared")
    assert code == 0, err
    assert out.strip() == "compared/index.html"
    page = check_page(tmp_path / "compared" / "index.html")
    assert "made and other compared" in page
    assert "er [made]" in page
    table = (tmp_path / "compared" / "tables" / "set-tasks-5-comparison.csv").read_text().splitlines()
    assert len(table) == 2  # only taer is in both
    assert table[1].startswith("taer,")
    assert not (tmp_path / "compared" / "figures" / "stale.svg").exists()  # a report is made anew


def test_results_of_the_paper_are_beside_the_published_numbers(cli, paper_features, tmp_path):
    for variant in ("raw", "standardized"):
        paper = ("paper", "table3", "figure2", "--features", paper_features, "--variant", variant)
        assert cli(*paper, "--seeds", 1, "--out", "made")[0] == 0
    code, _, err = cli("report", "made")
    assert code == 0, err
    page = check_page(tmp_path / "made" / "report" / "index.html")
    for words in ("paper 71.37", "Figure 2: Estimates", "raw features", "standardized by the first task",
                  "taer extract core50 --backbone vit-small", "What the verdicts rest on",
                  "largest difference 0.0e+00"):  # fmt: skip
        assert words in page, words
    tables = tmp_path / "made" / "report" / "tables"
    verdicts = list(csv.DictReader((tables / "paper-verdicts.csv").open()))
    beats = next(row for row in verdicts if row["Statement"].startswith("TaER beats"))
    assert beats["Published numbers"].startswith("holds only for CIFAR100 ViT-S/16, CORe50 ViT-S/16, CIFAR100 Res")
    kept = next(row for row in verdicts if row["Statement"].startswith("TaER's preserved"))
    assert (kept["Raw features"], kept["Standardized features"]) == ("holds", "holds")
    assert "CUB200 ViT-S/16: TaER 84.47, UCIR 85.26" in (tables / "paper-evidence.csv").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["empty"], "empty: no results there; run something that keeps its results in this folder"),
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


def test_texts_of_numbers():
    assert text(Number(Spread(54.8, 0.81, [54.8] * 3), 55.42)) == "54.80 ± 0.81 (paper 55.42, −0.62)"
    assert text(Number.of([], 71.37)) == "missing (paper 71.37)"
    assert text(Number.of([], 73.21, quoted=True)) == "quoted (paper 73.21)"
    assert text(Number.of([0.5])) == "50.00"
    table = Table(
        "t", "Title", "Note.", [("", "M"), ("G", "x_1")], [["a|b", Number(Spread(1.5, 0.25, [1.25, 1.75]), 2.0)]]
    )
    assert table.csv().splitlines() == ["M,G x_1,G x_1 std,G x_1 runs,G x_1 published,G x_1 difference",
                                        "a|b,1.5,0.25,2,2.0,-0.5"]  # fmt: skip
    assert "a\\|b" in table.markdown()
    assert r"\multicolumn{1}{c}{G}" in table.latex()
    assert r"x\_1" in table.latex()
    lost = Table("t", "", "", [("", "er-fixed"), ("", "b")], [["task-free", Number.of([-0.05])]])
    assert r"task-free & $-$5.00 \\" in lost.latex()
