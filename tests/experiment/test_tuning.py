"""Parameters are chosen on training samples alone, and written into the results."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

import taer
from taer.experiment import Run, Trial, execute, read_results, summarize, trial_stream
from taer.stream import class_stream
from taer.stream.kinds import make_stream

GRID = ({"lr": 1e-6}, {"lr": 0.1})


@pytest.fixture
def data():
    y = np.random.default_rng(0).permutation(np.repeat(np.arange(12), 20))
    X = (np.eye(12)[y] + 0.2 * np.random.default_rng(1).normal(size=(240, 12))).astype(np.float32)
    return taer.FeatureSet(X, y, X[::4] + 0.1, y[::4], tuple("abcdefghijkl"))


def chosen(stream, on):
    trial = Trial(Run(stream, "er", {"init": "zero"}, 0), GRID, on)
    return trial.chosen([execute(run) for run in trial.runs()])


def test_a_fifth_of_the_training_samples_is_asked_and_not_learned(data):
    stream = class_stream(data, 4)
    tried = trial_stream(stream, "held-out")
    learned = np.concatenate([tried.train_rows(t) for t in range(len(tried))])
    assert tried.tasks == stream.tasks
    assert np.bincount(tried.features.test_y).tolist() == [4] * 12
    assert len(learned) == 240 - 48
    learned_rows = {row.tobytes() for row in data.train_x[learned]}
    asked_rows = {row.tobytes() for row in tried.features.test_x[:]}
    assert not learned_rows & asked_rows
    assert learned_rows | asked_rows == {row.tobytes() for row in data.train_x}


def test_the_first_task_alone_is_cut_into_tasks_of_its_own(data):
    stream = class_stream(data, first=6, tasks=3)
    tried = trial_stream(stream, "first-task")
    assert [len(task) for task in tried.tasks] == [2, 2, 2]
    assert set(tried.order) == set(stream.tasks[0])
    assert set(tried.features.test_y.tolist()) == set(stream.tasks[0])
    rows = np.concatenate([tried.train_rows(t) for t in range(3)])
    assert set(rows.tolist()) <= set(stream.train_rows(0).tolist())


@pytest.mark.parametrize("on", ["held-out", "first-task"])
def test_no_test_sample_can_influence_the_choice(data, on):
    """Test samples that would favor another value, or that cannot be read at all, change nothing."""

    class Unreadable(np.ndarray):
        def __getitem__(self, key):
            raise AssertionError("a test sample was read")

    stream = class_stream(data, first=8, tasks=4)
    expected = chosen(stream, on)
    assert expected.params["lr"] == 0.1
    wrong = dataclasses.replace(data, test_x=-data.test_x, test_y=data.test_y[::-1].copy())
    unreadable = dataclasses.replace(data)
    object.__setattr__(unreadable, "test_x", data.test_x.view(Unreadable))
    object.__setattr__(unreadable, "test_y", data.test_y.view(Unreadable))
    for other in (wrong, unreadable):
        found = chosen(dataclasses.replace(stream, features=other), on)
        assert found.tuned == expected.tuned
    assert [accuracy for _, accuracy in expected.tuned["tried"]][1] > 0.9


def test_the_best_value_on_training_samples_is_chosen_even_if_another_is_better_on_test(data):
    stream = class_stream(data, 4)
    flipped = dataclasses.replace(data, test_y=(data.test_y + 1) % 12)  # whoever learns well is wrong here
    run = chosen(dataclasses.replace(stream, features=flipped), "held-out")
    by_test = {
        lr: execute(dataclasses.replace(run, params={"init": "zero", "lr": lr}))["last"] for lr in (1e-6, 0.1)
    }
    assert by_test[1e-6] > by_test[0.1]
    assert run.params["lr"] == 0.1


def test_the_first_of_equal_candidates_is_taken(data):
    trial = Trial(Run(class_stream(data, 4), "er", {}, 0), ({"lr": 0.1}, {"lr": 0.01}, {"lr": 0.02}), "held-out")
    results = [execute(run) for run in trial.runs()]
    for result, accuracy in zip(results, (0.5, 0.75, 0.75), strict=True):
        result["last"] = accuracy
    assert trial.chosen(results).params == {"lr": 0.01}


def test_a_tuned_run_is_another_than_one_with_the_same_parameters(data):
    run = chosen(class_stream(data, 4), "held-out")
    plain = dataclasses.replace(run, tuned=None)
    assert run.file_name != plain.file_name
    assert execute(run)["tuned"] == run.tuned
    assert "tuned" not in execute(plain)


@pytest.mark.parametrize("kind", ["online", "blurry", "si-blurry", "recurring", "long-tailed"])
def test_every_stream_can_be_tuned_on(data, kind):
    stream = make_stream(data, kind, sessions=3)
    tried = trial_stream(stream, "held-out")
    assert (tried.kind, tried.batch, len(tried)) == (stream.kind, stream.batch, 3)
    if stream.batch is not None:  # the samples come in the same order
        learned = [row for row in stream.rows[0] if row in set(tried.rows[0])]
        assert learned == list(tried.rows[0])


def test_single_samples_cannot_be_held_out(data):
    stream = class_stream(data, first=6, tasks=3, shots=1)
    with pytest.raises(ValueError, match=r"task 2 has a single training sample.*--on first-task"):
        trial_stream(stream, "held-out")
    assert len(trial_stream(stream, "first-task")) == 3


def test_runs_with_different_choices_are_one_row(cli, file, tmp_path):
    grid = ("--set", "lr=0.000001,0.1", "--jobs", 1)
    arguments = ("tune", file, "--methods", "taer,ncm", "--tasks", 5, "--seeds", 2, *grid)
    code, out, err = cli(*arguments, "--format", "json")
    assert code == 0, err
    assert err.count("taer, run") == 2
    rows = {row["method"]: row for row in json.loads(out)["rows"]}
    assert list(rows) == ["taer", "ncm"]
    assert rows["taer"]["params"]["lr"] == "tuned on held-out"
    assert len(rows["taer"]["last"]["values"]) == 2
    stored = [result for result in read_results(tmp_path / "results") if result["method"] == "taer"]
    assert all(result["tuned"]["chosen"] == {"lr": result["params"]["lr"]} for result in stored)
    assert [len(result["tuned"]["tried"]) for result in stored] == [2, 2]
    _, _, again = cli(*arguments)
    assert again.count("taer, run") == 2
    assert summarize(stored)[0]["label"] == "taer"
    assert cli("report", "results")[0] == 0


def test_a_grid_of_one_is_refused(cli, file):
    code, _, err = cli("tune", file, "--set", "lr=0.1")
    assert code == 2
    assert "there is nothing to choose; give several values, such as --set lr=0.01,0.1" in err
