"""The benchmarks on small data, without Avalanche: their own checks must pass."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.pages import beyond
from benchmarks.speed import check
from taer.features import save_features
from tests.conftest import small_features

ROOT = Path(__file__).parents[1]


def run(code: str) -> subprocess.CompletedProcess[str]:
    """Run in a separate process, because they set its number of threads."""
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)


@pytest.mark.slow
def test_heads_and_torch_loops_learn_the_same():
    done = run(
        "from benchmarks.lib import measuring, torch_loops\n"
        "from benchmarks.speed import comparisons\n"
        "problem = measuring.gaussian_classes(3, 500, 64, noise=1)\n"
        "for name in torch_loops.LOOPS:\n"
        "    few = problem.first(2) if name in ('oewc', 'gss') else problem\n"
        "    comparisons.against_torch(name, few, 3, lr=0.1 if name == 'ucir' else 1.0)\n"
        "assert len(list(comparisons.against_sklearn(problem, 1))) == 5\n"
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_sides_that_learn_something_else_are_refused():
    done = run(
        "from benchmarks.lib import measuring\n"
        "from benchmarks.speed import comparisons\n"
        "problem = measuring.gaussian_classes(3, 500, 64, noise=1)\n"
        "runs = {name: comparisons.ours(name, problem, 1.0, 1) for name in ('taer', 'finetune')}\n"
        "measuring.equally_good(measuring.in_turn(runs, problem, 1))\n"
    )
    assert done.returncode == 1
    assert "the sides do not learn the same" in done.stderr


@pytest.mark.slow
def test_profile_and_growth_find_the_parts_of_a_head():
    done = run(
        "from benchmarks.lib import measuring, profiling\n"
        "from benchmarks.speed import growth\n"
        "spent = profiling.parts(measuring.gaussian_classes(3, 500, 64))\n"
        "assert min(spent.values()) > 0, spent\n"
        "steps, samples, widths = growth.measure(1, quick=True)\n"
        "assert min(steps.medians('taer')) > min(steps.medians('products alone')) > 0\n"
        "assert growth.picture([steps, samples, widths]).svg.count('old classes') == 1\n"
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_growth_of_the_heads_is_measured_with_its_exponent():
    done = run(
        "from benchmarks.speed import sizes\n"
        "assert round(sizes.exponent([1, 10, 100, 1000], [5, 1, 100, 10_000]), 9) == 2\n"
        "assert len(sizes.with_classes('bayes', 3000).classes_) == 3000\n"
        "classes, samples, widths = list(sizes.measure(quick=True))[1::3]\n"
        "assert [part.count('\\n| `') for part in (classes, samples, widths)] == [9, 3, 6]\n"
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_every_idea_that_was_tried_can_be_tried_again():
    done = run(
        "import numpy as np, taer\n"
        "from benchmarks.notes import tried\n"
        "data = taer.load_features()\n"
        "train, test = (np.asarray(y) < 12 for y in (data.train_y, data.test_y))\n"
        "few = taer.FeatureSet(data.train_x[train, :64], data.train_y[train], data.test_x[test, :64],\n"
        "                      data.test_y[test], classes=data.classes[:12])\n"
        "found = {idea: tried.IDEAS[idea](tried.class_stream(few, 4)) for idea in tried.IDEAS}\n"
        "assert min(found.values()) > 2 / 12, found\n"
        "assert len(set(found.values())) > 12, found\n"
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.system
def test_few_shot_tables_and_their_resumption(tmp_path):
    """Heads and classifiers of scikit-learn on a set of ten small classes."""
    save_features(small_features(), tmp_path / "set.safetensors")
    command = [sys.executable, "-m", "benchmarks.pages.fewshot", "--features", str(tmp_path / "set.safetensors"),
               "--seeds", "2", "--methods", "bayes,ncm,logistic regression,linear SVM,nearest neighbors",
               "--shots", "all,5,1", "--out", str(tmp_path / "out"), "--figure", str(tmp_path / "fewshot.svg")]  # fmt: skip
    first = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert first.returncode == 0, first.stderr
    assert "**New classes, set** (5 classes, then 5 tasks of 1; accuracy after the last task, %)" in first.stdout
    for row in ("| `bayes` |", "| `ncm` |", "| logistic regression |", "| linear SVM |", "| nearest neighbors |"):
        assert first.stdout.count(row) == (4 if "`" in row else 3)  # a classifier of scikit-learn is not calibrated
    assert "–" not in first.stdout
    assert "<svg" in (tmp_path / "fewshot.svg").read_text()
    again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert (again.stdout, again.stderr) == (first.stdout, "")  # nothing is run again
    (tmp_path / "page.md").write_text("<!-- measured: set / New classes -->\n<!-- end -->\n")
    (tmp_path / "out.md").write_text(first.stdout)
    fill = [sys.executable, str(ROOT / "tools" / "fill_docs.py"), "page.md", "out.md"]
    subprocess.run(fill, cwd=tmp_path, check=True)
    assert "| samples per new class | all | 5 | 1 |" in (tmp_path / "page.md").read_text()


@pytest.mark.system
def test_cards_of_heads_that_find_classes_of_few_samples_are_checked(tmp_path):
    save_features(small_features(), tmp_path / "set.safetensors")
    command = [sys.executable, "-m", "benchmarks.pages.fewshot", "--cards", "--methods", "ncm,slda",
               "--features", str(tmp_path / "set.safetensors"), "--out", str(tmp_path / "out")]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("| yes |") == 2  # on classes that are far apart
    assert "slda: its card says few_shot=False" in done.stderr
    assert "ncm: its card" not in done.stderr


@pytest.mark.system
def test_the_newer_closed_forms_are_one_table_per_set_and_backbone(tmp_path):
    data = small_features()
    save_features(replace(data, meta={**data.meta, "backbone": "small"}), tmp_path / "set.safetensors")
    command = [sys.executable, "-m", "benchmarks.pages.fewshot", "--newer", "--methods", "ncm,teen",
               "--features", str(tmp_path / "set.safetensors"), "--out", str(tmp_path / "out")]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "**set, small** (5 classes, then 5 tasks of 1)" in done.stdout
    assert done.stdout.count("| `ncm` |") == done.stdout.count("| `teen` |") == 1
    assert "–" not in done.stdout
    assert done.stdout.count("**") >= 2 + 2 * 6  # the title, and the best of every column
    missing = subprocess.run(
        [*command, "--stored", "--methods", "ncm,teen,slda"], cwd=ROOT, capture_output=True, text=True
    )
    assert "| `slda` | – | – | – | – | – | – |" in missing.stdout


@pytest.mark.system
def test_other_readings_are_what_they_say():
    done = run(
        "import numpy as np, taer\n"
        "from benchmarks.pages import reproduction as readings\n"
        "from taer.heads.base import Task\n"
        "rng = np.random.default_rng(0)\n"
        "X, y = rng.normal(size=(80, 5)) + np.repeat(np.eye(4, 5), 20, axis=0), np.repeat([0, 1, 2, 3], 20)\n"
        "def learned(head):\n"
        "    return head.partial_fit(X[:40], y[:40]).partial_fit(X[40:], y[40:]).weights_\n"
        "plain = learned(taer.Finetune(random_state=0))\n"
        "assert np.allclose(learned(readings.LwFOverAll(lambda_old=0.0, random_state=0)), plain)\n"
        "held = learned(readings.LwFOverAll(lambda_old=300.0, lr=0.01, random_state=0))\n"
        "free = learned(readings.LwFOverAll(lambda_old=0.0, lr=0.01, random_state=0))\n"
        "first = taer.Finetune(lr=0.01, random_state=0).partial_fit(X[:40], y[:40]).weights_\n"
        "apart = [np.ptp((columns[:2] - first) @ X[40:].T, axis=0).mean() for columns in (held, free)]\n"
        "assert apart[0] < apart[1] / 3, apart\n"
        "task = Task(X[40:], y[40:], n_known=2, n_classes=4, number=3)\n"
        "assert readings.BiCByTask()._old_share(task) == 1 / 3\n"
        "assert taer.zoo.BiC()._old_share(task) == 1 / 2\n"
    )
    assert done.returncode == 0, done.stderr


def test_figures_of_a_page_are_drawn_from_its_tables():
    def legend(svg):
        return set(re.findall(r">([a-z]+(?:[- ][a-z]+)?)</text>", svg)) - {"number of tasks"}

    pytest.importorskip("matplotlib")
    drawn = dict(beyond.figures())
    for file, svg in drawn.items():
        assert {"bayes", "gauss-chain", "taer", "joint softmax"} <= legend(svg)
        assert legend(svg) == legend((beyond.IMAGES / file).read_text()), (
            "python -m benchmarks.pages.beyond --parts figures"
        )
    assert len(drawn) == 2


def test_a_slow_down_is_found():
    recorded = {"a": 2.0, "b": 1.0}
    assert check.slower({"a": 2.0 * check.TOLERANCE, "b": 0.1}, recorded) == []
    (found,) = check.slower({"a": 2.01 * check.TOLERANCE, "b": 1.0}, recorded)
    assert found.startswith("a: 3.01, more than 1.5 times the 2.00")
    assert check.slower({"a": 2.0, "c": 1.0}, recorded) == [
        "b: recorded, but not measured",
        "c: measured, but not recorded",
    ]
