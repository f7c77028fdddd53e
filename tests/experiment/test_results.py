"""Result files, which are read only if their name and checksum are right."""

from __future__ import annotations

import json

import numpy as np
import pytest

from taer.experiment import Run, execute, read_results, run_grid, summarize, write_result
from taer.report import write_report
from taer.stream import class_stream
from tests.experiment.conftest import same


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
    "nothing but a format": _written('{"format": "taer-run/6"}'),
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


def test_a_stream_of_one_task_has_nothing_to_detect(features, tmp_path):
    pytest.importorskip("matplotlib")
    result = execute(Run(class_stream(features, tasks=1), "slda"))
    assert result["novelty_auroc"] == []
    assert summarize([result])[0]["novelty_AUROC"]["mean"] is None
    write_result(tmp_path, result)
    assert "missing" in write_report([tmp_path], tmp_path / "report").read_text()


def test_summary_is_in_percent_with_sample_deviation(runs, tmp_path):
    results = [result for _, result, _ in run_grid(runs, tmp_path)]
    rows = summarize(results)
    assert [row["method"] for row in rows] == ["taer", "er"]
    values = [100 * result["A_T"] for result in results[:2]]
    assert rows[0]["A_T"]["values"] == values
    assert rows[0]["A_T"]["std"] == pytest.approx(np.std(values, ddof=1))
    assert summarize(results[:1])[0]["A_T"]["std"] == 0
