"""``taer run`` and the command line in general."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys

import numpy as np
import pytest

import taer


def rows(text):
    return {row["method"]: row for row in json.loads(text)["rows"]}


@pytest.mark.system
def test_run_without_arguments_uses_the_embedded_default(cli, tmp_path):
    code, out, err = cli("run", "--seeds", 1)
    assert code == 0, err
    for method in ("taer", "er", "finetune", "joint"):
        assert method in out
    assert "0 of them from disk" in " ".join(out.split())
    assert len(list((tmp_path / "results").glob("*.json"))) == 5
    _, again, _ = cli("run", "--seeds", 1)
    assert "5 of them from disk" in " ".join(again.split())
    _, fresh, _ = cli("run", "--seeds", 1, "--fresh")
    assert "0 of them from disk" in " ".join(fresh.split())


def test_json_is_one_object_and_nothing_else(cli, file):
    code, out, _ = cli("run", file, "--tasks", 5, "--format", "json", "--seeds", 2)
    assert code == 0
    summary = json.loads(out)
    assert set(summary) == {"features", "stream", "rows"}
    assert [row["method"] for row in summary["rows"]] == ["bayes", "taer", "er", "finetune", "joint"]
    first = summary["rows"][0]
    assert {"A_T", "AIA", "ECE", "novelty_AUROC", "seconds", "memory_bytes"} <= set(first)
    assert set(first["A_T"]) == {"mean", "std", "values"}
    assert len(first["A_T"]["values"]) == 2
    assert 1 < first["A_T"]["mean"] <= 100


def test_formats(cli, file):
    arguments = ("run", file, "--tasks", 5, "--seeds", 1, "--methods", "taer")
    table = cli(*arguments, "--format", "csv")[1]
    assert table.splitlines()[0].startswith("method,A_T,A_T std,AIA")
    assert "\r" not in table  # as in all other tables
    assert "| method | A_T (%) |" in cli(*arguments, "--format", "markdown")[1]
    assert "A_T: mean over tasks" in cli(*arguments, "--format", "table")[1]


def test_npz_and_half_first_and_jobs(cli, features, tmp_path):
    np.savez(tmp_path / "set.npz", X_train=features.train_x, y_train=features.train_y,
             X_test=features.test_x, y_test=features.test_y)  # fmt: skip
    code, out, err = cli(
        "run", "set.npz", "--first", 4, "--tasks", 3, "--jobs", 2, "--format", "json", "--seeds", 1
    )
    assert code == 0, err
    assert json.loads(out)["stream"]["tasks"] == 4


def test_parameters_reach_the_heads_that_have_them(cli, file, tmp_path):
    arguments = ("run", file, "--tasks", 5, "--seeds", 1, "--methods", "taer,finetune", "--format", "json")
    cli(*arguments, "--memory-size", 7, "--epochs", 2, "--lr", 0.05, "--batch-size", 16,
        "--set", "standardize=none", "--set", "taer.init=mean", "--out", "made")  # fmt: skip
    params = {}
    for path in (tmp_path / "made").glob("*.json"):
        result = json.loads(path.read_text())
        params[result["method"]] = result["params"]
    assert params["taer"]["memory_size"] == 7
    assert "memory_size" not in params["finetune"]
    for name in ("taer", "finetune"):
        given = {key: params[name][key] for key in ("epochs", "lr", "batch_size", "standardize")}
        assert given == {"epochs": 2, "lr": 0.05, "batch_size": 16, "standardize": "none"}
    assert params["taer"]["init"] == "mean"
    assert params["finetune"]["init"] == taer.Finetune().init


def test_every_combination_of_several_values_is_run(cli, file):
    options = ("--set", "taer.lr=0.05,0.1", "--set", "memory_size=7,9", "--set", "epochs=1")
    arguments = ("run", file, "--tasks", 5, "--seeds", 1, "--methods", "taer,er,ncm", "--format", "json")
    code, out, err = cli(*arguments, *options)
    assert code == 0, err
    found = [(row["method"], row["label"], row["params"].get("lr")) for row in json.loads(out)["rows"]]
    assert [label for _, label, _ in found] == [
        *(f"taer (lr {lr}, memory_size {size})" for lr in (0.05, 0.1) for size in (7, 9)),
        "er (memory_size 7)", "er (memory_size 9)", "ncm",
    ]  # fmt: skip
    assert [lr for _, _, lr in found] == [0.05, 0.05, 0.1, 0.1, *[taer.ER().lr] * 2, None]
    code, _, err = cli(*arguments, "--set", "lr=0.1,")
    assert (code, err) == (2, "taer: --set lr=0.1,: expected a value on each side of a comma\n")
    code, _, err = cli(*arguments, "--set", "lr=0.1,high")
    assert (code, err) == (2, "taer: TaER: lr must be a number above 0, got 'high'\n")


def test_orders(cli, file, tmp_path):
    arguments = ("run", file, "--tasks", 5, "--seeds", 2, "--methods", "finetune")
    (tmp_path / "order.txt").write_text("9 8 7 6 5, 4 3 2 1 0")
    for order, first in (("torch", {4}), ("1993", None), ("order.txt", {9})):
        assert cli(*arguments, "--order", order, "--out", order + "-out")[0] == 0
        stored = [json.loads(path.read_text()) for path in (tmp_path / (order + "-out")).glob("*.json")]
        if first:
            assert first <= {result["tasks"][0][0] for result in stored}
        assert len({str(result["tasks"]) for result in stored}) == (2 if order == "torch" else 1)


def test_few_shots_show_old_and_new_classes(cli, file):
    arguments = ("run", file, "--first", 4, "--tasks", 3, "--shots", 2, "--order", "natural", "--methods", "ncm")
    code, out, err = cli(*arguments, "--format", "json")
    assert code == 0, err
    (row,) = json.loads(out)["rows"]
    for name in ("last", "base", "new", "harmonic", "ece_new"):
        assert set(row[name]) == {"mean", "std", "values"}
        assert len(row[name]["values"]) == 3
    assert row["last"]["mean"] == pytest.approx((40 * row["base"]["mean"] + 60 * row["new"]["mean"]) / 100)
    described = json.loads(out)["stream"]
    counts = {"classes": 10, "training_samples": [4 * 30 + 6 * 2] * 3, "test_samples": [100] * 3}
    options = {"tasks": 4, "first": 4, "shots": 2, "order": "natural", "seeds": 3}
    assert described == {"kind": "tasks", "returning": False, **options, **counts}
    assert "| method | last (%) | base (%) | new (%) | AIA (%) |" in cli(*arguments, "--format", "markdown")[1]
    table = " ".join(cli(*arguments)[1].split())
    assert "3 of them from disk" in table
    assert "base and new: on those of classes of the first and of later tasks" in table
    header = cli(*arguments, "--format", "csv")[1].splitlines()[0]
    assert ",last,last std,base,base std,new,new std,harmonic,harmonic std,ece new," in header


def test_samples_from_a_file(cli, file, features, tmp_path):
    sessions = {"0": np.flatnonzero(features.train_y < 4).tolist()}
    sessions |= {str(t): np.flatnonzero(features.train_y == t + 3)[:5].tolist() for t in range(1, 7)}
    (tmp_path / "sessions.json").write_text(json.dumps({"sessions": sessions}))
    arguments = ("run", file, "--samples", "sessions.json", "--methods", "ncm", "--seeds", 2)
    code, out, err = cli(*arguments, "--format", "json")
    assert code == 0, err
    assert json.loads(out)["stream"]["tasks"] == 7
    (stored, _) = [json.loads(path.read_text()) for path in (tmp_path / "results").glob("*.json")]
    assert stored["samples"] == [120, 5, 5, 5, 5, 5, 5]
    assert stored["tasks"][1] == [4]
    assert "last (%)" in cli(*arguments, "--format", "markdown")[1]


def written_sessions(folder, features, *sessions):
    """A file of sessions with some samples of some classes."""
    rows = {
        str(t): [int(np.flatnonzero(features.train_y == label)[place]) for label, place in session]
        for t, session in enumerate(sessions)
    }
    (folder / "sessions.json").write_text(json.dumps({"sessions": rows}))
    return "sessions.json"


def test_samples_of_some_classes_are_counted(cli, file, features, tmp_path):
    samples = written_sessions(tmp_path, features, [(0, 0), (0, 1), (1, 0)], [(2, 0), (2, 1)])
    code, out, err = cli("run", file, "--samples", samples, "--methods", "ncm", "--format", "markdown")
    assert code == 0, err
    assert "3 classes in 2 tasks, 16 features, 5 training and 30 test samples, 3 runs" in out


def test_samples_of_returning_classes_show_what_was_forgotten(cli, file, features, tmp_path):
    samples = written_sessions(tmp_path, features, [(0, 0), (1, 0)], [(0, 1), (2, 0)])
    code, out, err = cli("run", file, "--samples", samples, "--methods", "ncm")
    assert code == 0, err
    for name in ("last (%)", "A_AUC (%)", "forgetting (%)"):  # at 80 columns
        assert name in out


def test_samples_of_one_session_have_no_new_classes(cli, file, tmp_path):
    (tmp_path / "one.json").write_text('{"sessions": {"0": [0, 1, 2, 3, 4, 5, 6, 7]}}')
    code, out, err = cli("run", file, "--samples", "one.json", "--methods", "ncm", "--format", "markdown")
    assert code == 0, err
    assert "| – |" in out


def test_methods_and_info(cli, file):
    _, out, _ = cli("methods", "--all")
    for name in taer.HEADS:
        assert f"{name} " in out
    assert "`" not in cli("methods")[1]
    _, out, _ = cli("info", file)
    for words in ("300 × 16 float32", "10: class0, class1", "mean feature norm", "fingerprint"):
        assert words in out


def test_version_and_help(cli):
    assert cli("--version")[1] == f"taer {taer.__version__}\n"
    for command in ("run", "methods", "info"):
        assert command in cli("--help")[1]
    panels = cli("--help")[1].partition("Heads:")[2]
    starts = (
        "  fit",
        "  learn",
        "  predict",
        "  merge",
        "  audit",
        "  export",
        "Data:",
        "Compare:",
        "  run",
        "  paper",
        "Serve:",
        "  serve",
    )
    places = [panels.index(f"\n{start}") for start in starts]
    assert places == sorted(places)
    assert "More:" not in panels
    assert "--memory-size" in cli("run", "--help")[1]
    assert cli("-h")[1] == cli("--help")[1]
    assert cli("run", "-h")[1] == cli("run", "--help")[1]


def test_options_of_a_command_are_in_panels_after_its_own(cli):
    own, _, rest = cli("fit", "--help")[1].partition("\nSeveral labels per sample:\n")
    labels, _, reading = rest.partition("\nTables, images and backbone:\n")
    assert "--out" in own
    assert "--help" in own
    assert "--separator" in labels
    assert "--text-column" in reading
    assert "--text-column" not in own + labels
    assert "{MODEL} [EXAMPLES]" in cli("learn", "--help")[1]


def test_the_help_fits_80_columns_and_says_how_to_start(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    start, _, panels = cli("--help")[1].partition("Heads:")
    assert "..." not in panels
    assert "…" not in panels
    assert "Start with 'taer run'" in start.partition("Options:")[0]


def test_the_shell_can_complete_commands(cli, monkeypatch):
    assert "--install-completion" in cli("--help")[1]
    monkeypatch.setenv("_TAER_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "taer pre")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert cli()[1].split() == ["predict"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "missing.safetensors"], "missing.safetensors: no such file"),
        (["run", "FILE", "--methods", "magic"], "unknown method 'magic'"),
        (["run", "FILE", "--methods", ","], "no method given"),
        (["run", "FILE", "--tasks", "3"], "10 classes do not divide into 3 equal tasks"),
        (["run", "FILE", "--first", "10"], "first task must have"),
        (["run", "FILE", "--memory-size", "-5"], "memory_size must be a whole number, 0 or more, got -5"),
        (["run", "FILE", "--lr", "0"], "lr must be a number above 0"),
        (["run", "FILE", "--set", "color=red"], "no method of this run has parameter 'color'"),
        (["run", "FILE", "--set", "finetune.memory_size=3"], "finetune has no parameter 'memory_size'"),
        (["run", "FILE", "--set", "er-fixed.lr=3"], "'er-fixed' is not among the methods of this run"),
        (["run", "FILE", "--set", "lr"], "expected NAME=VALUE"),
        (["run", "FILE", "--set", "init=ones"], "init must be one of"),
        (["run", "FILE", "--order", "nowhere"], "neither a known order nor a file"),
        (["run", "FILE", "--order", "nowhere"], "expected torch, natural, 1993, icarl or a file"),
        (["run", "FILE", "--shots", "0"], "--shots"),
        (["run", "FILE", "--samples", "nowhere.json"], "--samples nowhere.json: no such file"),
        (["run", "FILE", "--samples", "FILE"], "expected JSON such as"),
        (
            ["run", "FILE", "--samples", "x.json", "--tasks", "10"],
            "--samples gives the samples of every task; leave out --tasks",
        ),
        (["run", "FILE", "--samples", "x.json", "--first", "5"], "leave out --first"),
        (["run", "FILE", "--samples", "x.json", "--shots", "5", "--order", "torch"], "leave out --shots, --order"),
        (["run", "FILE", "--seeds", "0"], "--seeds"),
        (["run", "FILE", "--epochs", "many"], "--epochs"),
        (["run", "FILE", "--format", "yaml"], "--format"),
        (["fly"], "No such command 'fly'"),
        (["run", "--wings"], "No such option: --wings"),
        (["info", "missing.npz"], "missing.npz: no such file"),
    ],
)
def test_mistakes_are_one_line_on_stderr_and_code_2(cli, file, tmp_path, arguments, message):
    code, out, err = cli(*[file if argument == "FILE" else argument for argument in arguments])
    assert code == 2
    assert out == ""
    assert message in err
    assert err.startswith("taer: ")
    assert err.count("\n") == 1
    assert not (tmp_path / "results").exists()


def test_import_and_help_stay_light():
    """Neither scikit-learn nor anything heavier is loaded before it is needed."""
    for code in ("import taer", "import taer.cli"):
        check = f"import sys; {code}; print(*sorted(set(sys.modules) & {{'sklearn', 'scipy', 'torch', 'joblib'}}))"
        out = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
        assert out.stdout.strip() == ""
    listed = subprocess.run([sys.executable, "-c", "import taer; print(dir(taer))"], capture_output=True, text=True)
    assert "TaER" in listed.stdout


def test_every_public_name_loads():
    for name in taer.__all__:
        assert getattr(taer, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        taer.nothing  # noqa: B018


@pytest.mark.parametrize(("given", "expected"), [((), 7), (("--jobs", 3), 3)])
def test_all_cores_are_used_unless_fewer_are_asked_for(given, expected, cli, monkeypatch):
    asked = []

    def stop(runs, out, **options):
        asked.append(options["jobs"])
        raise ValueError("enough")

    monkeypatch.setattr("taer.threads.cores", lambda: 7)
    monkeypatch.setattr("taer.experiment.run_grid", stop)
    cli("run", "--methods", "ncm", *given)
    assert asked == [expected]


def test_the_help_names_every_stream(cli):
    from taer.stream.kinds import KINDS

    told = " ".join(re.sub(r"[│╭╰─]", " ", cli("run", "--help")[1]).split())
    assert f"{', '.join(list(KINDS)[:-1])} or {list(KINDS)[-1]}" in told.replace("- ", "-")


@pytest.mark.parametrize("kind", ["online", "recurring", "blurry-60-20"])
def test_other_streams_give_all_formats_and_a_report(cli, file, kind, tmp_path):
    arguments = ("run", file, "--stream", kind, "--tasks", 5, "--seeds", 1, "--methods", "ncm,taer")
    code, out, err = cli(*arguments, "--format", "json")
    assert code == 0, err
    found = rows(out)
    assert json.loads(out)["stream"]["kind"] == kind
    assert {"A_AUC", "forgetting", "backward_transfer", "forward_transfer", "harmonic"} <= set(found["ncm"])
    table = cli(*arguments, "--format", "csv")[1]
    assert "A_AUC,A_AUC std,forgetting" in table
    if kind != "recurring":
        assert found["taer"]["skipped"] == "needs task boundaries"
        assert "taer,needs task boundaries" in table
        shown = cli(*arguments)[1]
        assert re.search(r"taer +needs +task +boundaries", shown)
        assert "harmonic (%)" in shown
        assert "backward" not in shown.lower()  # a narrow terminal explains what it shows
    else:
        assert found["taer"]["A_AUC"]["mean"] > 0
    assert "AIA (%) | backward (%) | forward (%)" in cli(*arguments, "--format", "markdown")[1]
    assert set(found["ncm"]["class_accuracy"]) == {f"class{label}" for label in range(10)}
    code, _, err = cli("report", "results", "--out", "page")
    assert code == 0, err
    page = next(tmp_path.rglob("page*/index.html")).read_text()
    assert f"{kind} stream" in page
    assert "Classes by session" in page
    (by_class,) = tmp_path.rglob("page*/tables/*-classes.csv")
    measured = {row["Class"]: float(row["ncm (%)"]) for row in csv.DictReader(by_class.read_text().splitlines())}
    assert measured == {name: spread["mean"] for name, spread in found["ncm"]["class_accuracy"].items()}
    assert f"--stream {kind} --seeds 1" in page


def test_a_report_repeats_the_number_of_passes_over_samples_that_come_once(cli, file, tmp_path):
    options = ("--stream", "blurry", "--tasks", 5, "--seeds", 1, "--methods", "finetune", "--set", "epochs=1,10")
    assert cli("run", file, *options)[0] == 0
    assert cli("report", "results", "--out", "page")[0] == 0
    page = next(tmp_path.rglob("page*/report.md")).read_text()
    assert [line.rpartition(" ")[2] for line in page.splitlines() if line.startswith("taer run")] == [
        "epochs=1", "epochs=10"]  # fmt: skip


def test_a_narrow_terminal_folds_long_names_and_loses_nothing_of_them(cli, file, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    sweep = ("--set", "er.lr=0.001,0.01", "--set", "er.init=zero,uniform", "--set", "er.standardize=center,scale")
    options = ("--stream", "blurry", "--tasks", 5, "--seeds", 2, "--methods", "er,taer", *sweep)
    code, out, err = cli("run", file, *options)
    assert code == 0, err
    assert "…" not in out
    assert "in 5 sessions (blurry-50-10)" in " ".join(out.split())
    table = out[: out.index("last: ")]
    assert table.count("last (%)") == 1
    assert [table.count(word) for word in ("0.001", "0.01", "zero", "uniform", "center")] == [4, 4, 4, 4, 4]
    assert max(map(len, out.splitlines())) <= 80


def test_a_latex_table_has_every_column(cli, file):
    options = ("run", file, "--stream", "blurry", "--tasks", 5, "--seeds", 2, "--methods", "finetune,taer")
    out = cli(*options, "--format", "latex")[1]
    assert r"\begin{tabular}{lrrrrrrrrrr}" in out
    (line,) = [line for line in out.splitlines() if line.startswith("finetune")]
    row = rows(cli(*options, "--format", "json")[1])["finetune"]
    assert f"{row['last']['mean']:.2f} $\\pm$ {row['last']['std']:.2f}" in line
    assert line.endswith(r"& 0 & 0 \\")
    assert "taer & needs task boundaries" in out
    assert out.endswith("\\end{tabular}\n")


def test_a_long_tail_says_its_ratio_and_its_samples(cli, file, tmp_path):
    options = ("run", file, "--stream", "long-tailed", "--tasks", 5, "--seeds", 1, "--methods", "ncm")
    labels = taer.load_features(file).train_y
    fewest = int(np.unique(labels, return_counts=True)[1].min())
    assert fewest < 100  # so the least frequent class keeps one sample
    assert f"has {fewest} times the samples" in " ".join(cli(*options)[1].split())
    described = json.loads(cli(*options, "--format", "json")[1])["stream"]
    assert described["ratio"] == fewest
    (stored,) = [json.loads(path.read_text()) for path in (tmp_path / "results").glob("*.json")]
    assert described["training_samples"] == [sum(stored["samples"])]
    assert f"{sum(stored['samples'])} training and 100 test samples" in " ".join(cli(*options)[1].split())


def test_a_stream_does_not_combine_with_what_it_decides(cli, file):
    code, _, err = cli("run", file, "--stream", "blurry", "--shots", 5)
    assert code != 0
    assert "leave out --shots" in " ".join(err.split())
