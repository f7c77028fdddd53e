"""Callbacks per epoch and per task, and the loggers on them, each with the real package."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import taer
from taer.experiment import Callback, Callbacks, Run, execute, run_grid
from taer.stream import class_stream


class Told(Callback):
    def __init__(self):
        self.calls = []

    def on_start(self, run):
        self.calls.append(("start", run.method))

    def on_epoch(self, run, task, epoch, gradient):
        self.calls.append(("epoch", task, epoch, gradient))

    def on_task(self, run, task, measured):
        self.calls.append(("task", task, dict(measured)))

    def on_end(self, run, result):
        self.calls.append(("end", result["last"]))

    def of(self, kind):
        return [call[1:] for call in self.calls if call[0] == kind]


@pytest.fixture
def stream():
    y = np.random.default_rng(0).permutation(np.repeat(np.arange(6), 30))
    X = np.eye(6)[y] + 0.3 * np.random.default_rng(1).normal(size=(180, 6))
    return class_stream(taer.FeatureSet(X, y, X[::3], y[::3], tuple("abcdef")), 3)


def test_every_epoch_and_task_is_told_in_order(stream):
    told = Told()
    result = execute(Run(stream, "taer", {"epochs": 4}, 0), told)
    assert [call[0] for call in told.calls] == ["start", *(["epoch"] * 4 + ["task"]) * 3, "end"]
    assert [(task, epoch) for task, epoch, _ in told.of("epoch")] == [
        (t, e) for t in range(3) for e in (1, 2, 3, 4)
    ]
    assert [measured["accuracy"] for _, measured in told.of("task")] == result["phase_accuracy"]
    assert [measured["classes"] for _, measured in told.of("task")] == [2, 4, 6]
    assert told.of("end") == [(result["last"],)]


def test_the_gradient_that_is_told_is_that_of_the_objective():
    """Cross-entropy from zero columns, one batch: |p - y| summed over three classes is 4/3."""
    X, y = np.repeat(np.eye(3), 10, axis=0), np.repeat([0, 1, 2], 10)
    stream = class_stream(taer.FeatureSet(X, y, X, y, tuple("abc")), 1)
    told = Told()
    params = {"init": "zero", "epochs": 5, "batch_size": 30, "standardize": "none"}
    execute(Run(stream, "finetune", params, 0), told)
    gradients = [gradient for _, _, gradient in told.of("epoch")]
    assert gradients[0] == pytest.approx(4 / 3)
    assert gradients == sorted(gradients, reverse=True)


@pytest.mark.parametrize("name", ["ncm", "bayes"])
def test_closed_forms_have_tasks_but_no_epochs(stream, name):
    told = Told()
    execute(Run(stream, name, {}, 0), told)
    assert [call[0] for call in told.calls] == ["start", "task", "task", "task", "end"]


def test_methods_with_a_loop_of_their_own_tell_their_epochs(stream):
    told = Told()
    execute(Run(stream, "ucir", {"epochs": 2}, 0), told)
    assert [(task, epoch) for task, epoch, _ in told.of("epoch")] == [(t, e) for t in range(3) for e in (1, 2)]


def test_watching_changes_no_bit_of_a_result(stream):
    plain, watched = (execute(Run(stream, "er", {}, 0), told) for told in (None, Told()))
    for name in ("accuracy_matrix", "confusion", "ece"):
        assert plain[name] == watched[name]


def test_a_grid_passes_its_runs_on(stream, tmp_path):
    told = Told(), Told()
    runs = [Run(stream, "ncm", {}, seed) for seed in (0, 1)]
    assert len(list(run_grid(runs, tmp_path, jobs=1, callback=Callbacks(*told)))) == 2
    assert len(told[0].of("end")) == len(told[1].of("end")) == 2
    list(run_grid(runs, tmp_path, jobs=1, callback=told[0]))  # from disk: nothing runs
    assert len(told[0].of("end")) == 2


def test_a_package_that_is_missing_is_named(cli, file, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    code, _, err = cli("run", file, "--methods", "ncm", "--tasks", 5, "--log", "wandb")
    assert code != 0
    assert "the package wandb is missing: pip install 'taer[wandb]'" in " ".join(err.split())


def test_logs_follow_runs_one_by_one(cli, file):
    code, _, err = cli("run", file, "--methods", "ncm", "--tasks", 5, "--log", "tensorboard", "--jobs", 2)
    assert code != 0
    assert "--log tensorboard follows runs one by one; leave out --jobs" in " ".join(err.split())


TENSORBOARD = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
found = {}
events = EventAccumulator(sys.argv[1]); events.Reload()
for tag in events.Tags()["tensors"]:
    values = [(event.step, event.tensor_proto) for event in events.Tensors(tag)]
    from tensorboard.util.tensor_util import make_ndarray
    found[tag] = [(step, float(make_ndarray(value))) for step, value in values]
print(json.dumps(found))
"""
# wandb's own reader is part of its binary. The file is a log as LevelDB writes it, with a header of 7 bytes.
WANDB = """
import json, struct, sys
from pathlib import Path
from wandb.proto import wandb_internal_pb2 as pb

def records(data, block=32768):
    at, whole = 7, b""
    while at + 7 <= len(data):
        if block - at % block < 7:
            at += block - at % block
            continue
        size, kind = struct.unpack("<HB", data[at + 4 : at + 7])
        whole += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):
            yield whole
            whole = b""

named = lambda items: {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}
rows, config, summary = [], {}, {}
for data in records(Path(sys.argv[1]).read_bytes()):
    record = pb.Record()
    record.ParseFromString(data)
    kind = record.WhichOneof("record_type")
    if kind == "history":
        rows.append(named(record.history.item))
    elif kind == "run":
        config |= named(record.run.config.update)
    elif kind == "summary":
        summary |= named(record.summary.update)
print(json.dumps({"rows": rows, "config": config, "summary": summary}))
"""


@pytest.fixture
def logging_python():
    python = os.environ.get("LOGS_PYTHON")
    if not python:
        pytest.skip("LOGS_PYTHON is not set: make test-all sets it")
    return python


def logged(python, tmp_path, package, **env):
    """Run the command there; returns the result."""
    command = ["-m", "taer", "run", "--methods", "taer", "--seeds", "1", "--tasks", "5", "--epochs", "2"]
    done = subprocess.run(
        [python, *command, "--log", package, "--out", "results"],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, env=os.environ | env,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (path,) = (tmp_path / "results").glob("taer-*.json")
    return path, json.loads(path.read_text())


def read_back(python, script, path):
    done = subprocess.run([python, "-c", script, str(path)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_tensorboard_has_every_epoch_and_task(logging_python, tmp_path):
    path, result = logged(logging_python, tmp_path, "tensorboard")
    found = read_back(logging_python, TENSORBOARD, tmp_path / "results/logs/tensorboard" / path.stem)
    assert [step for step, _ in found["epoch/gradient"]] == list(range(1, 11))
    assert [value for _, value in found["epoch/task"]] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    np.testing.assert_allclose([value for _, value in found["task/accuracy"]], result["phase_accuracy"], rtol=1e-6)
    assert found["run/A_T"][0][1] == pytest.approx(100 * result["A_T"], rel=1e-6)


@pytest.mark.slow
def test_wandb_offline_has_every_epoch_and_task(logging_python, tmp_path):
    _, result = logged(logging_python, tmp_path, "wandb", WANDB_MODE="offline", WANDB_SILENT="true")
    (path,) = (tmp_path / "results/logs/wandb/wandb").glob("offline-run-*/run-*.wandb")
    found = read_back(logging_python, WANDB, path)
    assert [row["epoch/epoch"] for row in found["rows"] if "epoch/epoch" in row] == [1, 2] * 5
    assert [row["task/accuracy"] for row in found["rows"] if "task/accuracy" in row] == result["phase_accuracy"]
    assert found["config"]["method"] == "taer"
    assert found["config"]["params"]["epochs"] == 2
    assert found["summary"]["run/A_T"] == pytest.approx(100 * result["A_T"])
