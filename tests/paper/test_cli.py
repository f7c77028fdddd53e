"""``taer paper``: what is missing, what is shared, and stopping half way."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest


def test_a_table_with_missing_features_keeps_its_published_numbers(cli, paper_features, tmp_path):
    code, out, err = cli("paper", "table3", "--features", paper_features, "--seeds", 2)
    assert code == 0, err
    for published in ("52.70", "80.50", "78.90"):  # on features that are missing
        assert published in out
    assert out.count("missing") == 4 * 5
    assert "taer extract cub200 --backbone vit-small --out cub200-vit-small.safetensors" in out
    assert "taer extract cifar100 --backbone resnet18" not in out
    assert len(list((tmp_path / "results").glob("*.json"))) == 4 * 2
    assert " ± " in out


def test_a_second_run_runs_nothing_and_taer_run_shares(cli, paper_features, tmp_path):
    arguments = ("paper", "table3", "--features", paper_features, "--seeds", 1)
    assert "4 runs, 0 of them from disk" in cli(*arguments)[1]
    assert "4 runs, 4 of them from disk" in cli(*arguments)[1]
    file = paper_features / "any-name.safetensors"
    same = ("--epochs", 1, "--seeds", 1, "--set", "standardize=none", "--set", "init=zero")
    _, out, _ = cli("run", file, "--methods", "taer", *same)
    assert "1 of them from disk" in " ".join(out.split())
    assert "4 runs, 0 of them from disk" in cli(*arguments, "--variant", "standardised")[1]


def test_dry_run_shows_the_plan_and_runs_nothing(cli, paper_features, tmp_path):
    code, out, _ = cli("paper", "table3", "figure2", "--features", paper_features, "--dry-run")
    assert code == 0
    assert "table3     12 runs, 60 more need features that are missing" in out
    assert "12 runs in all" in out  # figure 2 needs nothing that table 3 has not
    assert "taer extract core50 --backbone resnet18" in out
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["table7"], "unknown table or figure 'table7'"),
        (["table3", "--variant", "boiled"], "unknown variant 'boiled'; there are raw, standardised"),
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
    deadline = time.monotonic() + 60
    while len(list(out.glob("*.json"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
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
