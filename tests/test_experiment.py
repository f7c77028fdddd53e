"""Runs, their files, and resuming."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest

import taer
from taer.experiment import Run, execute, read_results, run_grid, source_digest, summarize, write_result
from taer.features import save_features
from taer.report import write_report
from taer.stream import class_stream

NOT_REPRODUCIBLE = ("seconds", "created")


def same(a, b):
    """Equal but for what a clock decides."""
    strip = lambda r: json.dumps({k: v for k, v in r.items() if k not in NOT_REPRODUCIBLE}, sort_keys=True)  # noqa: E731
    return strip(a) == strip(b)


@pytest.fixture
def runs(features):
    return [
        Run(class_stream(features, tasks=5, order=seed), name, {"memory_size": 20}, seed)
        for name in ("taer", "er")
        for seed in range(2)
    ]


def test_a_result_holds_what_was_measured(features):
    result = execute(Run(class_stream(features, tasks=5), "taer", {"memory_size": 20}))
    assert [len(row) for row in result["accuracy_matrix"]] == [1, 2, 3, 4, 5]
    assert result["A_T"] == pytest.approx(np.mean(result["accuracy_matrix"][-1]))
    assert result["AIA"] == pytest.approx(np.mean(result["phase_accuracy"]))
    assert np.sum(result["confusion"]) == len(features.test_y)
    assert np.trace(result["confusion"]) / len(features.test_y) == pytest.approx(result["phase_accuracy"][-1])
    assert len(result["old_mass"]["test"]) == len(result["old_mass"]["memory"]) == 4
    assert all(0 <= mass <= 1 for mass in result["old_mass"]["test"])
    assert result["memory_samples"] == 20
    assert result["memory_bytes"] == 20 * (16 * 4 + 8)
    assert sorted(result["classes"]) == sorted(features.classes)


def test_measurements_agree_with_a_loop_by_hand(features):
    stream = class_stream(features, tasks=5, order=3)
    head = taer.TaER(memory_size=20, random_state=7)
    for task in stream:
        head.partial_fit(task.X_train, task.y_train)
    by_hand = [head.score(task.X_test, task.y_test) for task in stream]
    result = execute(Run(stream, "taer", {"memory_size": 20}, seed=7))
    np.testing.assert_allclose(result["accuracy_matrix"][-1], by_hand)
    X, y = (np.concatenate([getattr(task, name) for task in stream]) for name in ("X_test", "y_test"))
    error = taer.metrics.expected_calibration_error(head.predict_proba(X), np.searchsorted(head.classes_, y))
    assert result["ece"][-1] == pytest.approx(error)
    assert len(result["ece"]) == 5


@pytest.mark.parametrize("method", ["taer", "slda", "gauss-chain"])
def test_detection_of_later_classes_agrees_with_a_loop_by_hand(method, features):
    stream, expected = class_stream(features, tasks=5, order=3), []
    head, learned = taer.make_head(method, random_state=7), []
    for task in list(stream)[:-1]:
        head.partial_fit(task.X_train, task.y_train)
        learned += task.classes
        known = np.isin(features.test_y, learned)
        novelty = head.novelty(features.test_x)
        expected.append(taer.metrics.novelty_auroc(novelty[known], novelty[~known]))
    result = execute(Run(stream, method, {}, seed=7))
    np.testing.assert_allclose(result["novelty_auroc"], expected)
    assert summarize([result])[0]["novelty_AUROC"]["mean"] == pytest.approx(100 * np.mean(expected))


def test_a_stream_of_one_task_has_nothing_to_detect(features, tmp_path):
    result = execute(Run(class_stream(features, tasks=1), "slda"))
    assert result["novelty_auroc"] == []
    assert summarize([result])[0]["novelty_AUROC"]["mean"] is None
    write_result(tmp_path, result)
    assert "missing" in write_report([tmp_path], tmp_path / "report").read_text()


def test_a_task_without_test_samples_is_refused(features):
    keep = features.test_y != 3
    few = replace(features, test_x=features.test_x[keep], test_y=features.test_y[keep])
    with pytest.raises(ValueError, match="task 4 has no test samples"):
        execute(Run(class_stream(few, tasks=10, order=list(range(10))), "ncm"))


class Watched(taer.GaussChain):
    """A head of someone else's, found by its import path."""

    scored: ClassVar[list[tuple[int, int]]] = []

    def _scores(self, X, classes=None):
        if classes is not None:
            self.scored.append((len(X), len(classes)))
        return super()._scores(X, classes)


def test_frozen_scores_are_computed_once_and_right(features):
    stream = class_stream(features, tasks=5, order=3)
    head = taer.GaussChain(random_state=7)
    Watched.scored.clear()
    for task in stream:
        head.partial_fit(task.X_train, task.y_train)
    by_hand = [head.score(task.X_test, task.y_test) for task in stream]
    result = execute(Run(stream, "tests.test_experiment:Watched", {}, seed=7))
    np.testing.assert_allclose(result["accuracy_matrix"][-1], by_hand)
    assert (
        Watched.scored == [(len(features.test_y), 2)] * 5
    )  # at each task, all test samples for the new classes only


def test_the_number_of_workers_changes_no_bit(runs, tmp_path):
    alone = {run.file_name: result for run, result, _ in run_grid(runs, tmp_path / "a")}
    together = {run.file_name: result for run, result, _ in run_grid(runs, tmp_path / "b", jobs=2)}
    assert alone.keys() == together.keys()
    assert all(same(alone[name], together[name]) for name in alone)


def test_only_what_is_missing_is_run(runs, tmp_path):
    assert [stored for _, _, stored in run_grid(runs, tmp_path)] == [False] * 4
    assert [stored for _, _, stored in run_grid(runs, tmp_path)] == [True] * 4
    (tmp_path / runs[2].file_name).unlink()
    (tmp_path / runs[3].file_name).write_text('{"format": "taer-run/1", "A_T"')  # damaged
    assert [stored for _, _, stored in run_grid(runs, tmp_path)] == [True, True, False, False]
    assert [stored for _, _, stored in run_grid(runs, tmp_path, fresh=True)] == [False] * 4


def _another_run(folder, runs):
    (folder / runs[0].file_name).write_text((folder / runs[1].file_name).read_text())


def _edited(folder, runs):
    path = folder / runs[0].file_name
    path.write_text(json.dumps(json.loads(path.read_text()) | {"A_T": 0.999}))


def _written(content):
    return lambda folder, runs: (folder / runs[0].file_name).write_text(content)


BELIEVED = {
    "another run": _another_run,
    "edited": _edited,
    "nothing but a format": _written('{"format": "taer-run/4"}'),
    "a list": _written("[1, 2]"),
    "nested": _written("[" * 200_000),
}


@pytest.mark.parametrize("case", list(BELIEVED))
def test_a_result_that_is_not_what_its_name_says_is_run_again(case, runs, tmp_path):
    first = {run.seed: result for run, result, _ in run_grid(runs[:2], tmp_path)}
    BELIEVED[case](tmp_path, runs)
    again = list(run_grid(runs[:2], tmp_path))
    assert sorted(stored for _, _, stored in again) == [False, True]
    assert all(same(result, first[run.seed]) for run, result, _ in again)
    assert len(read_results(tmp_path)) == 2


@pytest.mark.parametrize("case", list(BELIEVED))
def test_a_report_leaves_out_a_result_that_is_not_what_its_name_says(case, runs, tmp_path):
    list(run_grid(runs[:2], tmp_path))
    BELIEVED[case](tmp_path, runs)
    (kept,) = read_results(tmp_path)
    assert kept["seed"] == runs[1].seed
    assert kept["method"] == runs[1].method


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_run_that_fails_does_not_stop_the_others(runs, tmp_path, jobs):
    diverging = Run(runs[0].stream, "derpp", {"alpha": 1e9, "standardize": "none"}, seed=7)
    found = []
    with pytest.raises(
        ValueError, match=r"1 of 5 runs failed, the others are kept in .*derpp, run 8: learning div"
    ):
        found.extend(run_grid([diverging, *runs], tmp_path, jobs=jobs))
    assert len(found) == 4
    assert sum(stored for _, _, stored in run_grid(runs, tmp_path)) == 4


def test_what_decides_a_result_decides_its_name(features, runs):
    base = runs[0]
    changed = taer.FeatureSet(
        features.train_x + 1, features.train_y, features.test_x, features.test_y, features.classes
    )
    others = [
        Run(base.stream, "er", base.params, base.seed),
        Run(base.stream, "taer", {"memory_size": 21}, base.seed),
        Run(base.stream, "taer", base.params, 5),
        Run(class_stream(features, tasks=2, order=0), "taer", base.params, base.seed),
        Run(class_stream(features, tasks=5, order=1), "taer", base.params, base.seed),
        Run(class_stream(changed, tasks=5, order=0), "taer", base.params, base.seed),
    ]
    names = {run.file_name for run in [base, *others]}
    assert len(names) == len(others) + 1
    assert Run(base.stream, "taer", dict(base.params), base.seed).file_name == base.file_name
    default = Run(base.stream, "taer", {}, 0).file_name
    assert Run(base.stream, "taer", {"lr": 0.1}, 0).file_name == default  # a default given is the same run


def test_editing_a_method_or_its_bases_makes_another_run(tmp_path):
    """In a copy of the package: the digest follows the sources that a head is made of, and no others."""
    import shutil

    package = tmp_path / "taer"
    shutil.copytree(os.path.dirname(taer.__file__), package)

    def digests():
        code = "from taer.experiment import source_digest as d; print(d('taer'), d('finetune'))"
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        out = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        )
        return out.stdout.split()

    before = digests()
    assert before == [source_digest("taer"), source_digest("finetune")]
    with (package / "heads" / "descent" / "taer.py").open("a") as file:
        file.write("\n# a remark\n")
    assert digests() == before  # prose is no part of a method
    with (package / "heads" / "descent" / "taer.py").open("a") as file:
        file.write("\nEDITED = 1\n")
    own = digests()
    assert (own[0] != before[0], own[1] != before[1]) == (True, False)
    with (package / "memory.py").open("a") as file:
        file.write("\nEDITED = 1\n")
    memory = digests()
    assert (memory[0] != own[0], memory[1] != own[1]) == (True, True)  # the loop draws from it
    with (package / "heads" / "descent" / "memory.py").open("a") as file:
        file.write("\nEDITED = 1\n")
    base = digests()
    assert (base[0] != memory[0], base[1] != memory[1]) == (True, False)


def test_a_killed_grid_goes_on_where_it_was(features, tmp_path):
    save_features(features, tmp_path / "set.safetensors")
    command = [sys.executable, "-m", "taer", "run", str(tmp_path / "set.safetensors"), "--tasks", "5",
               "--methods", "taer,er,joint", "--epochs", "60", "--seeds", "4", "--format", "json"]  # fmt: skip
    out = tmp_path / "results"
    process = subprocess.Popen([*command, "--out", str(out)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while len(list(out.glob("*.json"))) < 3 and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    finished = {path.name: path.stat().st_mtime_ns for path in out.glob("*.json")}
    assert 3 <= len(finished) < 12
    resumed = subprocess.run([*command, "--out", str(out)], capture_output=True, text=True, check=True)
    straight = subprocess.run([*command, "--out", str(tmp_path / "b")], capture_output=True, text=True, check=True)
    for name, modified in finished.items():
        assert (out / name).stat().st_mtime_ns == modified  # not run again
    strip = [[{k: v for k, v in row.items() if k != "seconds"} for row in json.loads(text)["rows"]]
             for text in (resumed.stdout, straight.stdout)]  # fmt: skip
    assert strip[0] == strip[1]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_with_the_process_that_started_them(features, tmp_path, how):
    save_features(features, tmp_path / "set.safetensors")
    command = [sys.executable, "-m", "taer", "run", str(tmp_path / "set.safetensors"), "--tasks", "5", "--jobs", "2",
               "--methods", "joint", "--epochs", "60", "--seeds", "500", "--out", str(tmp_path / "out")]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while len(list(tmp_path.glob("out/*.json"))) < 4 and time.monotonic() < deadline:
        time.sleep(0.05)
    workers = {pid for pid, parent in processes().items() if parent == process.pid}
    assert len(workers) >= 2
    process.send_signal(how)
    process.wait()
    deadline = time.monotonic() + 10
    while (alive := workers & processes().keys()) and time.monotonic() < deadline:
        time.sleep(0.05)
    for pid in alive:
        os.kill(pid, signal.SIGKILL)
    assert not alive


def processes():
    """The parent of every process that has not ended."""
    listed = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,state="], capture_output=True, text=True, check=True
    ).stdout
    found = (line.split() for line in listed.splitlines())
    return {int(pid): int(parent) for pid, parent, state in found if not state.startswith("Z")}


def test_summary_is_in_percent_with_sample_deviation(runs, tmp_path):
    results = [result for _, result, _ in run_grid(runs, tmp_path)]
    rows = summarize(results)
    assert [row["method"] for row in rows] == ["taer", "er"]
    values = [100 * result["A_T"] for result in results[:2]]
    assert rows[0]["A_T"]["values"] == values
    assert rows[0]["A_T"]["std"] == pytest.approx(np.std(values, ddof=1))
    assert summarize(results[:1])[0]["A_T"]["std"] == 0


@pytest.mark.parametrize("method", ["taer", "lda-frozen"])
def test_old_and_new_classes_agree_with_a_loop_by_hand(method, features):
    stream = class_stream(features, first=4, tasks=3, order="natural", shots=2, seed=3)
    head = taer.make_head(method, random_state=3)
    for task in stream:
        head.partial_fit(task.X_train, task.y_train)
    X, y = np.asarray(features.test_x), features.test_y
    result = execute(Run(stream, method, {}, seed=3))
    assert (result["shots"], result["samples"]) == (2, [120, 4, 4, 4])
    assert result["last"] == pytest.approx(head.score(X, y)) == result["phase_accuracy"][-1]
    assert result["base"] == pytest.approx(head.score(X[y < 4], y[y < 4]))
    assert result["new"] == pytest.approx(head.score(X[y >= 4], y[y >= 4]))
    assert result["harmonic"] == pytest.approx(2 / (1 / result["base"] + 1 / result["new"]))
    error = taer.metrics.expected_calibration_error(head.predict_proba(X[y >= 4]), y[y >= 4])
    assert result["ece_new"] == pytest.approx(error)
    row = summarize([result])[0]
    assert row["new"] == {"mean": 100 * result["new"], "std": 0, "values": [100 * result["new"]]}


def test_a_stream_of_one_task_has_no_new_classes(features):
    result = execute(Run(class_stream(features, tasks=1), "ncm"))
    assert result["base"] == result["last"]
    assert result["new"] is result["harmonic"] is result["ece_new"] is None
    assert summarize([result])[0]["new"] == {"mean": None, "std": 0, "values": []}


def test_workers_get_the_samples_of_a_stream(features, tmp_path):
    stream = class_stream(features, first=4, tasks=3, order="natural", shots=2)
    runs = [Run(stream, name) for name in ("ncm", "slda")]
    found = {run.method: result for run, result, _ in run_grid(runs, tmp_path, jobs=2)}
    assert all(same(found[run.method], execute(run)) for run in runs)
