"""Tasks larger than memory: heads read them in pieces, except where the method needs all samples."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from taer.heads import HEADS
from taer.rows import Rows
from tests.conftest import small_head

N, CLASSES, WIDTH, PIECE = 3000, 6, 16, 256
# Joint keeps everything by definition, herding compares all samples of a class, klda a thousand pairs.
HERDING = [name for name in HEADS if small_head(name).get_params().get("memory") == "herding"]
MOST = {"joint": N, "joint-adapter": N, "klda": 1000} | dict.fromkeys(HERDING, N // CLASSES)

ROOT = Path(__file__).parents[2]


class Recorded(Rows):
    """Rows that record how many were read at once."""

    def __init__(self, X):
        self.X, self.shape, self.dtype, self.most = X, X.shape, X.dtype, 0

    def _take(self, numbers):
        self.most = max(self.most, len(numbers))
        return self.X[numbers]


@pytest.fixture
def small_pieces(monkeypatch):
    for module, name, value in [
        ("rows", "_CHUNK", PIECE * WIDTH),
        ("heads.descent.loop", "_BLOCK", 2 * PIECE * WIDTH),
        ("heads.closed_form.selection", "_TRIAL_ROWS", PIECE),
        ("heads.closed_form.calibration", "_HELD_OUT", PIECE),
        ("zoo.shared.gaussians", "_READ_TOGETHER", PIECE),
        ("zoo.taer_gauss", "_IN_MEMORY", PIECE * WIDTH),
        ("heads.closed_form.slda", "_ROWS", PIECE),
    ]:
        monkeypatch.setattr(importlib.import_module(f"taer.{module}"), name, value)


@pytest.mark.parametrize("name", HEADS)
def test_no_head_reads_a_whole_task(name, small_pieces):
    rng = np.random.default_rng(0)
    centers = 6 * rng.normal(size=(2 * CLASSES, WIDTH))
    head, tasks = small_head(name, random_state=0), []
    for number in range(2):
        y = rng.permutation(np.repeat(np.arange(CLASSES), N // CLASSES)) + number * CLASSES
        rows = Recorded((centers[y] + rng.normal(size=(N, WIDTH))).astype(np.float16))
        tasks.append((rows, y))
        head.partial_fit(rows, y)
        assert PIECE // 2 < rows.most <= MOST.get(name, 2 * PIECE)
    # … and learns from pieces what there is to learn
    (first, y_first), (second, y_second) = tasks
    assert np.mean(head.predict(second) == y_second) > 0.9
    if HEADS[name].card.keeps != "nothing":
        assert np.mean(head.predict(first) == y_first) > 0.6


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux says what is anonymous memory")
def test_a_million_samples_are_learned_without_holding_them(tmp_path):
    command = [
        sys.executable,
        "-m",
        "benchmarks.speed.large",
        "--json",
        "--classes",
        "0",
        "--folder",
        tmp_path,
        "--methods",
        "taer,slda",
    ]
    lines = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout.splitlines()
    found = {case["head"]: case for case in map(json.loads, lines)}
    for name, allowed in (("taer", 150), ("slda", 200)):
        assert found[name]["samples"] == 1_000_000
        assert found[name]["features_mb"] == 512  # in float16; twice that as float32
        assert found[name]["anonymous_mb"] < allowed
        assert found[name]["accuracy"] > 0.95
