"""A method is one file in the package, or a class outside it: found by name, run, saved, loaded, exported."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import taer
from taer.features import save_features
from taer.heads import Head
from tests.conftest import small_features

pytestmark = pytest.mark.system

ROOT = Path(__file__).parents[2]
PROGRAM = "import sys; sys.path.remove(''); import taer.cli; taer.cli.main()"  # as installed: not from this folder
OWN = '''
import taer
from taer.heads.descent.loop import Plan


class Own(taer.TaER{options}):
    """Own: TaER, but the memory weighs as much as the task."""

    def _plan(self, task, columns):
        plan = super()._plan(task, columns)
        return Plan(**{{**vars(plan), "weights": (1.0, 1.0)}})
'''


def example() -> str:
    """The method of CONTRIBUTING."""
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.S)
    return code


def run(*arguments, folder, path=()):
    """Run a command in a separate process, in a folder, with the modules of that folder or of ``path``."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path)), "TAER_TESTS": "long"}
    done = subprocess.run(
        [sys.executable, *map(str, arguments)], cwd=folder, env=environment, capture_output=True, text=True
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A copy of the project with one more file: the method of CONTRIBUTING."""
    folder = tmp_path_factory.mktemp("clone")
    for name in ("src", "tests", "tools", "docs"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("README.md", "CONTRIBUTING.md", "pyproject.toml"):
        shutil.copy(ROOT / name, folder / name)
    (folder / "src" / "taer" / "zoo" / "logit_adjusted.py").write_text(example())
    save_features(small_features(), folder / "set.safetensors")
    return folder


@pytest.fixture
def in_clone(clone):
    return lambda *arguments: run(*arguments, folder=clone, path=[clone / "src"])


def test_one_file_is_listed_and_run(in_clone):
    code, out, err = in_clone("-m", "taer", "methods", "--all")
    assert code == 0, err
    assert re.search(r"^  logit-adjusted +memory_size .*\n    ER with logit adjustment", out, re.M)
    methods = ("--methods", "logit-adjusted", "--set", "logit-adjusted.tau=0.5", "--format", "csv")
    code, out, err = in_clone("-m", "taer", "run", "set.safetensors", "--tasks", 5, "--seeds", 1, *methods)
    assert code == 0, err
    assert float(re.search(r"^logit-adjusted,([\d.]+)", out, re.M)[1]) > 50
    code, _, err = in_clone(
        "-m", "taer", "run", "set.safetensors", "--set", "tau=-1", "--methods", "logit-adjusted"
    )
    assert (code, err) == (2, "taer: LogitAdjustedER: tau must be a number, 0 or more, got -1\n")


@pytest.mark.slow
def test_one_file_is_saved_loaded_and_exported(in_clone, clone):
    pytest.importorskip("onnx")
    head = ("-m", "taer", "fit", "set.safetensors", "--method", "logit-adjusted", "--out", "head.safetensors")
    assert in_clone(*head)[0] == 0
    code, out, err = in_clone("-m", "taer", "predict", "head.safetensors", "set.safetensors")
    assert (code, len(out.splitlines())) == (0, 100), err
    code, _, err = in_clone("-m", "taer", "export", "head.safetensors", "--out", "head.onnx")
    assert code == 0, err
    assert (clone / "head.onnx").is_file()


@pytest.mark.slow
def test_one_file_passes_all_checks(in_clone, clone):
    """Those of every head, of scikit-learn, of cards and help, of saving and of ONNX; its example runs."""
    names = ("test_saving.py", "test_save.py", "test_export.py", "test_onnx.py")
    checks = ["tests/heads", *(path for path in clone.glob("tests/**/test_*.py") if path.name in names)]
    options = ("-p", "no:cacheprovider", "-k", "logit-adjusted or LogitAdjustedER")
    code, out, err = in_clone("-m", "pytest", *options, *checks, "src/taer/zoo/logit_adjusted.py")
    assert code == 0, out + err
    assert int(re.search(r"(\d+) passed", out)[1]) > 80
    assert in_clone("tools/fill_docs.py", "cards")[0] == 0
    assert "`logit-adjusted`" in (clone / "CONTRIBUTING.md").read_text()


@pytest.fixture
def outside(tmp_path):
    """A folder with a user's module and features, in which commands run."""
    (tmp_path / "mymodule.py").write_text(OWN.format(options=""))
    save_features(small_features(), tmp_path / "set.safetensors")
    np.save(tmp_path / "X.npy", small_features().test_x)

    def call(*arguments, site=()):
        return run("-c", PROGRAM, *arguments, folder=tmp_path, path=[Path(taer.__file__).parents[1], *site])

    return call


def test_a_class_by_its_import_path_is_run_saved_and_loaded(outside):
    methods = ("--methods", "mymodule:Own", "--format", "csv")
    code, out, err = outside("run", "set.safetensors", "--tasks", 5, "--seeds", 1, *methods)
    assert code == 0, err
    assert re.search(r"^mymodule:Own,[\d.]+", out, re.M)
    code, out, err = outside("fit", "set.safetensors", "--method", "mymodule:Own", "--out", "head.safetensors")
    assert code == 0, err
    code, _, err = outside("predict", "head.safetensors", "X.npy")
    assert code == 2
    assert "it is a head of the class 'mymodule:Own', which is not one of ours; import the module" in err
    code, out, err = outside("--import", "mymodule", "predict", "head.safetensors", "X.npy")
    assert (code, len(out.splitlines())) == (0, 100), err


@pytest.mark.slow
def test_a_name_of_ones_own_is_known_once_its_module_is_imported(outside, tmp_path):
    (tmp_path / "mymodule.py").write_text(OWN.format(options=', name="own"'))
    listed = outside("--import", "mymodule", "methods")[1]
    assert re.search(r"^Heads of your own:\n\n.*\n  own +memory_size .*\n    Own: TaER, but", listed, re.M)
    methods = ("--methods", "own,taer", "--format", "csv", "--jobs", 2)
    code, out, err = outside("--import", "mymodule", "run", "set.safetensors", "--tasks", 5, "--seeds", 1, *methods)
    assert code == 0, err
    assert re.search(r"^own,[\d.]+", out, re.M)
    assert outside("--import", "mymodule", "fit", "set.safetensors", "--method", "own", "--out", "h")[0] == 0
    code, _, err = outside("predict", "h", "X.npy")
    assert code == 2
    assert "it is a head of the class 'own', which is not one of ours; import the module" in err
    assert outside("--import", "mymodule", "predict", "h", "X.npy")[0] == 0


@pytest.mark.slow
def test_a_report_says_what_to_import_for_a_name_of_ones_own(outside, tmp_path):
    pytest.importorskip("matplotlib")
    (tmp_path / "mymodule.py").write_text(OWN.format(options=', name="own"'))
    options = ("run", "set.safetensors", "--methods", "own", "--tasks", 5, "--seeds", 1, "--epochs", 1)
    code, _, err = outside("--import", "mymodule", *options)
    assert code == 0, err
    code, _, err = outside("report", "results")
    assert code == 0, err
    (command,) = re.findall(r"^taer (.*run .*)", (tmp_path / "results/report/report.md").read_text(), re.M)
    assert command.startswith("--import mymodule run FEATURES --methods own --tasks 5 --seeds 1")
    code, out, err = outside(*command.replace("FEATURES", "set.safetensors").split())
    assert code == 0, err
    assert "1 of them from disk" in " ".join(out.split())


def test_modules_that_cannot_be_imported(outside):
    for arguments in (("--import", "nowhere", "methods"), ("run", "set.safetensors", "--methods", "nowhere:Own")):
        code, _, err = outside(*arguments)
        assert (code, err) == (2, "taer: the module nowhere cannot be imported: No module named 'nowhere'\n")
    code, _, err = outside("run", "set.safetensors", "--methods", "mymodule:Other")
    assert (code, err[:40]) == (2, "taer: mymodule:Other: cannot be imported")


@pytest.mark.slow
def test_a_package_offers_heads_by_an_entry_point(outside, tmp_path):
    """By the names of their classes or, if they have none, by those of the entry points."""
    site = tmp_path / "site"
    (site / "theirs-1.dist-info").mkdir(parents=True)
    (site / "theirs-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1\n")
    entries = "[taer.heads]\nown = theirs:Own\nplain = theirs:Plain\nbroken = theirs:Nothing\n"
    (site / "theirs-1.dist-info" / "entry_points.txt").write_text(entries)
    code = OWN.format(options=', name="own"') + "\n\nclass Plain(taer.TaER):\n    pass\n"
    (site / "theirs.py").write_text(code)
    code, out, err = outside("methods", site=[site])
    assert code == 0, err
    assert re.search(r"^Heads of your own:\n\n.*\n  own +memory_size .*\n    Own: TaER, but", out, re.M)
    assert "  taer " in out
    assert "the head 'broken' (theirs:Nothing) cannot be loaded" in err
    assert "  plain " in out
    assert outside("fit", "set.safetensors", "--method", "plain", "--out", "head.safetensors", site=[site])[0] == 0
    code, out, err = outside("predict", "head.safetensors", "X.npy", site=[site])
    assert (code, len(out.splitlines())) == (0, 100), err


@pytest.mark.slow
def test_editing_a_head_of_ones_own_makes_another_run(outside, tmp_path):
    (tmp_path / "mymodule.py").write_text(OWN.format(options=', name="own"'))
    code = "import mymodule; from taer.experiment import source_digest as d; print(d('own') == d('taer'), d('own'))"

    def digest():
        return run("-c", code, folder=tmp_path, path=[Path(taer.__file__).parents[1]])[1].split()

    same, before = digest()
    assert same == "False"
    with (tmp_path / "mymodule.py").open("a") as file:
        file.write("\nEDITED = 1\n")
    assert digest()[1] != before


def test_a_head_without_a_card_is_refused():
    with pytest.raises(ValueError, match="the head 'silent' has no card: class Silent"):
        type("Silent", (Head,), {"__annotations__": {}}, name="silent")
    assert "silent" not in taer.HEADS
    with pytest.raises(ValueError, match="it has no card"):
        taer.make_head("taer.heads.descent.base:DescentHead")
