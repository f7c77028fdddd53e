"""Grids: workers, failures and resuming."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time

import joblib
import pytest

from taer import threads
from taer.experiment import Run, grid, run_grid
from taer.features import save_features
from tests.conftest import wait_until
from tests.experiment.conftest import same


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


@pytest.mark.slow
@pytest.mark.system
def test_a_killed_grid_goes_on_where_it_was(features, tmp_path):
    save_features(features, tmp_path / "set.safetensors")
    command = [sys.executable, "-m", "taer", "run", str(tmp_path / "set.safetensors"), "--tasks", "5",
               "--methods", "taer,er,joint", "--epochs", "60", "--seeds", "4", "--format", "json"]  # fmt: skip
    out = tmp_path / "results"
    process = subprocess.Popen([*command, "--out", str(out)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: len(list(out.glob("*.json"))) >= 3 or process.poll() is not None, 300)
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


@pytest.mark.system
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_with_the_process_that_started_them(features, tmp_path, how):
    save_features(features, tmp_path / "set.safetensors")
    command = [sys.executable, "-m", "taer", "run", str(tmp_path / "set.safetensors"), "--tasks", "5", "--jobs", "2",
               "--methods", "joint", "--epochs", "60", "--seeds", "500", "--out", str(tmp_path / "out")]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: len(list(tmp_path.glob("out/*.json"))) >= 4 or process.poll() is not None, 300)
    workers = {pid for pid, parent in processes().items() if parent == process.pid}
    assert len(workers) >= 2
    process.send_signal(how)
    process.wait()
    deadline = time.monotonic() + 60
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


def test_workers_share_the_cores(runs, tmp_path, monkeypatch):
    """Each of them may use threads of its own, and together no more than there are cores."""
    begun = []
    monkeypatch.setattr(grid, "cores", lambda: 5)
    monkeypatch.setattr(joblib, "Parallel", lambda **options: begun.append(options) or (lambda calls: []))
    list(run_grid(runs, tmp_path, jobs=2))
    assert (begun[0]["n_jobs"], begun[0]["initargs"]) == (2, (os.getpid(), 2))
    used = set()
    monkeypatch.setattr(threads, "_most", 8)
    monkeypatch.setattr(threads, "cores", lambda: 8)
    threads.use_threads(1)
    threads.spread(lambda _: used.add(threading.get_ident()), range(50))
    assert len(used) == 1
