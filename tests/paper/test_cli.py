"""``taer paper``: missing features, shared runs, and interruption."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import taer.paper
from taer import FeatureSet
from taer.experiment import read_results
from taer.features import load_features, save_features
from taer.paper import experiment
from taer.paper.measured import Library
from taer.stream import read_sessions
from tests.conftest import wait_until


def test_a_table_with_missing_features_keeps_its_published_numbers(cli, paper_features, tmp_path):
    code, out, err = cli("paper", "table3", "--features", paper_features, "--seeds", 2)
    assert code == 0, err
    for published in ("52.70", "80.50", "78.90"):  # on features that are missing
        assert published in out
    assert out.count("missing") == 4 * 7
    assert "taer extract cub200 --backbone vit-small --out cub200-vit-small.safetensors" in out
    assert "taer extract cifar100 --backbone resnet18" not in out
    assert len(list((tmp_path / "results").glob("*.json"))) == 4 * 2
    assert " ± " in out


def test_a_second_run_runs_nothing_and_taer_run_shares(cli, paper_features):
    arguments = ("paper", "table3", "--features", paper_features, "--seeds", 1)
    assert "4 runs, 0 of them from disk" in cli(*arguments)[1]
    assert "4 runs, 4 of them from disk" in cli(*arguments)[1]
    file = paper_features / "any-name.safetensors"
    same = ("--epochs", 1, "--seeds", 1, "--set", "standardize=none", "--set", "init=zero")
    _, out, _ = cli("run", file, "--methods", "taer", *same)
    assert "1 of them from disk" in " ".join(out.split())
    assert "4 runs, 0 of them from disk" in cli(*arguments, "--variant", "standardized")[1]


def test_dry_run_shows_the_plan_and_runs_nothing(cli, paper_features, tmp_path):
    code, out, _ = cli("paper", "table3", "figure2", "--features", paper_features, "--dry-run")
    assert code == 0
    assert "table3     12 runs, 84 more need features that are missing" in out
    assert "12 runs in all" in out  # figure 2 needs nothing that table 3 has not
    assert "taer extract core50 --backbone resnet18" in out
    assert not (tmp_path / "results").exists()


def test_missing_features_are_made_first(cli, paper_features, monkeypatch):
    """One command for the ViT columns; the extraction itself has its own tests."""
    from taer.features import extraction

    made = []

    def extracted(dataset, backbone, out):
        made.append((dataset, backbone, out.name))
        data = load_features(paper_features / "any-name.safetensors")
        meta = {**data.meta, "dataset": dataset, "backbone": backbone}
        parts = (np.asarray(part) for part in (data.train_x, data.train_y, data.test_x, data.test_y))
        return FeatureSet(*parts, classes=data.classes, meta=meta)

    monkeypatch.setattr(extraction, "extract", extracted)
    code, out, err = cli("paper", "figure6", "--features", paper_features, "--seeds", 1, "--extract")
    assert code == 0, err
    assert ("cifar100", "vit-small", "cifar100-vit-small.safetensors") in made
    assert "missing" not in out


def test_a_backbone_is_found_by_another_name_in_its_header(cli, paper_features, tmp_path):
    data = load_features(paper_features / "any-name.safetensors")
    renamed = replace(data, meta={**data.meta, "backbone": "deit-ti"})
    save_features(renamed, tmp_path / "deit.safetensors")
    code, out, err = cli("paper", "table4", "--features", tmp_path, "--seeds", 1)
    assert code == 0, err
    assert "12 runs, 0 of them from disk" in out
    assert "--backbone deit-tiny" not in out
    assert out.count("missing") == 6 * 4  # the other two backbones
    measured = Library(read_results("results"))
    assert all(measured[trial] for trial in experiment("table4").trials if trial.backbone == "deit-tiny")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["table7"], "unknown table or figure 'table7'"),
        (["table3", "--variant", "boiled"], "unknown variant 'boiled'; there are raw, standardized"),
        (["table3", "--features", "nowhere"], "nowhere: no such folder"),
    ],
)
def test_mistakes_are_one_line(cli, tmp_path, arguments, message):
    (tmp_path / "features").mkdir()
    code, out, err = cli("paper", *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_two_files_of_the_same_data_are_refused(cli, paper_features, tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.safetensors").write_bytes((paper_features / "any-name.safetensors").read_bytes())
    code, _, err = cli("paper", "table3", "--features", tmp_path)
    assert code == 2
    assert "both cifar100 seen by resnet18" in err


def heed_interrupts():
    """A shell's background jobs, and so the tests run by one, ignore SIGINT, and their children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.system
@pytest.mark.parametrize("jobs", [1, 2])
def test_an_interrupted_grid_keeps_what_is_finished_and_goes_on(paper_features, tmp_path, jobs):
    out = tmp_path / "results"
    command = [
        sys.executable,
        "-m",
        "taer",
        "paper",
        "table3",
        "--features",
        str(paper_features),
        "--out",
        str(out),
    ]
    process = subprocess.Popen(
        [*command, "--seeds", "60", "--jobs", str(jobs)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_interrupts,
    )
    wait_until(lambda: len(list(out.glob("*.json"))) >= 2 or process.poll() is not None, 300)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "of 240 runs are finished and kept in" in err
    assert "the same command goes on from there" in err
    assert "Traceback" not in err
    finished = {path.name: path.stat().st_mtime_ns for path in out.glob("*.json")}
    assert 2 <= len(finished) < 240
    assert not list(out.glob("*.partial"))
    # Two workers may finish the second run before the first, so look at a few.
    again = subprocess.run([*command, "--seeds", "5"], capture_output=True, text=True, check=True)
    assert "20 runs, " in again.stdout
    assert "20 runs, 0 of" not in again.stdout
    assert all((out / name).stat().st_mtime_ns == modified for name, modified in finished.items())


def test_few_shot_heads_are_beside_the_methods_of_others(cli, tmp_path, monkeypatch):
    """On features with the headers and the row numbers of CUB-200."""
    pytest.importorskip("matplotlib")
    sessions = read_sessions(Path(taer.paper.__file__).parent / "cub200-sessions.json")
    y = np.zeros(5994, np.int64)  # rows in no session are never learned
    y[sessions[0]] = np.repeat(np.arange(100), 30)
    for t, rows in enumerate(sessions[1:]):
        y[rows] = np.repeat(np.arange(100 + 10 * t, 110 + 10 * t), 5)
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(200, 8))
    X, tested = (centers[y] + 0.3 * rng.normal(size=(5994, 8))).astype(np.float32), np.arange(200)
    meta = {"dataset": "cub200", "backbone": "resnet18"}
    features = FeatureSet(X, y, centers.astype(np.float32), tested, tuple(map(str, tested)), meta)
    save_features(features, tmp_path / "cub.safetensors")
    table = taer.paper._read("fscil-cub")
    heads = ("ncm", "lda-frozen")
    few = table | {"rows": [row for row in table["rows"] if row.get("method", "ncm") in heads]}
    read = taer.paper._read
    monkeypatch.setattr(taer.paper, "_read", lambda name: few if name == "fscil-cub" else read(name))

    code, out, err = cli("paper", "fscil-cub", "--features", tmp_path, "--seeds", 1)
    assert code == 0, err
    assert "2 runs, 0 of them from disk" in out
    assert "fscil-cub: Few-shot" in out
    for words in ("FACT (CVPR 2022)", "56.94 quoted", "new classes", "ncm"):
        assert words in out
    assert "missing" not in out
    stored = [json.loads(path.read_text()) for path in (tmp_path / "results").glob("*.json")]
    assert {tuple(result["samples"]) for result in stored} == {(3000, *[50] * 10)}
    ncm = next(result for result in stored if result["method"] == "ncm")
    for value in (ncm["phase_accuracy"][0], ncm["last"], ncm["AIA"], ncm["base"], ncm["new"]):
        assert f"{100 * value:.2f}" in out
    samples = Path(taer.paper.__file__).parent / "cub200-sessions.json"
    _, out, _ = cli("run", tmp_path / "cub.safetensors", "--samples", samples, "--methods", "ncm", "--seeds", 1)
    assert "1 of them from disk" in " ".join(out.split())
    assert cli("report", "results")[0] == 0
    page = (tmp_path / "results" / "report" / "report.md").read_text()
    assert "| TEEN (NeurIPS 2023) |" in page
    assert "The paper, raw" not in page
