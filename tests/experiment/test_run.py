"""The measurements of a run, and the inputs of its file name."""

from __future__ import annotations

import linecache
import os
import subprocess
import sys
import types
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest

import taer
from taer.experiment import Run, execute, run_grid, source_digest, summarize
from taer.stream import class_stream
from taer.stream.kinds import make_stream
from tests.experiment.conftest import same


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


def test_what_bayes_keeps_is_counted(features, tmp_path):
    """Its state is not one array per attribute; it takes about as much in memory as on disk."""
    head = taer.Bayes()
    for task in (stream := class_stream(features, 2, order=0)):
        head.partial_fit(task.X_train, task.y_train)
    head.save(tmp_path / "head")
    kept = execute(Run(stream, "bayes", {}, 0))["memory_bytes"]
    assert 0.5 < kept / (tmp_path / "head").stat().st_size < 1


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
    answered = novelty[known] <= np.quantile(novelty[known], 0.95)
    right = (head.predict(features.test_x) == features.test_y)[known]
    assert result["coverage"][-2] == pytest.approx(answered.mean())
    assert result["selective_accuracy"][-2] == pytest.approx(right[answered].mean())
    assert len(result["coverage"]) == len(result["selective_accuracy"]) == 5
    assert summarize([result])[0]["coverage"]["mean"] == pytest.approx(100 * result["coverage"][-1])
    assert summarize([result])[0]["novelty_AUROC"]["mean"] == pytest.approx(100 * np.mean(expected))


def test_a_task_without_test_samples_is_refused(features):
    keep = features.test_y != 3
    few = replace(features, test_x=features.test_x[keep], test_y=features.test_y[keep])
    with pytest.raises(ValueError, match="task 4 has no test samples"):
        execute(Run(class_stream(few, tasks=10, order=list(range(10))), "ncm"))


class Watched(taer.zoo.GaussChain):
    """A head outside the package, found by its import path."""

    scored: ClassVar[list[tuple[int, int]]] = []

    def _scores(self, X, classes=None):
        if classes is not None:
            self.scored.append((len(X), len(classes)))
        return super()._scores(X, classes)


def test_frozen_scores_are_computed_once_and_right(features):
    stream = class_stream(features, tasks=5, order=3)
    head = taer.zoo.GaussChain(random_state=7)
    Watched.scored.clear()
    for task in stream:
        head.partial_fit(task.X_train, task.y_train)
    by_hand = [head.score(task.X_test, task.y_test) for task in stream]
    result = execute(Run(stream, "tests.experiment.test_run:Watched", {}, seed=7))
    np.testing.assert_allclose(result["accuracy_matrix"][-1], by_hand)
    # at each task, all test samples for the new classes only
    assert Watched.scored == [(len(features.test_y), 2)] * 5


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


def test_samples_that_come_once_are_learned_in_one_pass(features):
    """On streams in batches of ten, unless the number of passes is given."""
    online, tasks = make_stream(features, "online", 5), class_stream(features, tasks=5)
    assert Run(online, "er").head().epochs == 1
    assert Run(online, "er").identity["params"]["epochs"] == 1
    assert Run(online, "er", {"epochs": 3}).head().epochs == 3
    assert Run(tasks, "er").head().epochs == taer.ER().epochs > 1
    assert Run(online, "er").file_name == Run(online, "er", {"epochs": 1}).file_name
    assert "epochs" not in Run(online, "ncm").head().get_params()


@pytest.mark.slow
@pytest.mark.system
def test_editing_a_method_or_its_bases_makes_another_run(tmp_path):
    """In a copy of the package, the digest depends on the sources that a head imports, and on no others."""
    import shutil

    package = tmp_path / "taer"
    shutil.copytree(os.path.dirname(taer.__file__), package)

    (tmp_path / "own.py").write_text(
        "from taer import ClassStatistics, NCM\nfrom taer.heads import Head\n\n"
        "class Own(Head, name='own', card=NCM.card):\n    kept = ClassStatistics\n"
    )

    def digests():
        code = "from taer.experiment import source_digest as d; print(d('taer'), d('finetune'), d('own:Own'))"
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        out = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        )
        return out.stdout.split()

    before = digests()
    assert before[:2] == [source_digest("taer"), source_digest("finetune")]
    with (package / "heads" / "descent" / "taer.py").open("a") as file:
        file.write("\n# a remark\n")
    assert digests() == before  # prose is no part of a method
    with (package / "heads" / "descent" / "taer.py").open("a") as file:
        file.write("\nEDITED = 1\n")
    own = digests()
    assert (own[0] != before[0], own[1] != before[1]) == (True, False)
    with (package / "memory" / "greedy.py").open("a") as file:
        file.write("\nEDITED = 1\n")
    memory = digests()
    assert (memory[0] != own[0], memory[1] != own[1]) == (True, True)  # the loop draws from a memory
    with (package / "heads" / "descent" / "memory.py").open("a") as file:
        file.write("\nEDITED = 1\n")
    base = digests()
    assert (base[0] != memory[0], base[1] != memory[1]) == (True, False)
    with (package / "heads" / "exact.py").open("a") as file:  # imported as a module
        file.write("\nEDITED = 1\n")
    scores = digests()
    assert (scores[0] != base[0], scores[1] != base[1]) == (True, True)
    with (package / "statistics.py").open("a") as file:  # imported from the package itself
        file.write("\nEDITED = 1\n")
    statistics = digests()
    assert (statistics[0] != scores[0], statistics[2] != scores[2]) == (False, True)


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


@pytest.mark.parametrize("method", ["finetune", "ridge"])
def test_the_bytes_of_a_linear_head_are_those_of_its_stored_columns(method, features):
    """Also where the columns of normalized features cannot be folded into coefficients."""
    result = execute(Run(class_stream(features, 2), method, {"normalize": "l2"} if method == "ridge" else {}, 0))
    classes, width = len(features.classes), features.n_features
    assert result["head_bytes"][-1] == classes * (width * 4 + 8)


def test_a_head_of_a_notebook_is_known_by_its_functions(monkeypatch):
    """A kernel's module has no file; its cells are known to ``linecache`` alone."""

    def digest(number, body):
        text = f"import taer\nclass InCell(taer.NCM):\n    def _more(self):\n        {body}\n"
        module, cell = types.ModuleType(f"kernel{number}"), f"<cell {number}>"
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setitem(linecache.cache, cell, (len(text), None, text.splitlines(keepends=True), cell))
        exec(compile(text, cell, "exec"), module.__dict__)
        return source_digest(f"kernel{number}:InCell")

    one, same_again, other = digest(1, "return 1"), digest(2, "return 1"), digest(3, "return 2")
    assert one == same_again
    assert one != other
