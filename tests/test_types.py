"""What a user's type checker says of code that uses the package: the documentation, and a call of every head."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import taer
from tests.test_docs import ROOT, python_blocks

CALLS = """
import numpy as np
import taer
from taer.client import Client

X, y = np.eye(4), np.arange(4)
bayes, tuned = taer.Bayes(), taer.TaER(lr=0.1)
answers: np.ndarray = bayes.partial_fit(X, y).partial_fit([[1.0, 2.0]], ["cat"]).predict(X, unknown="?")
again: taer.TaER = tuned.fit(X, y, sample_weight=[1, 2, 3, 4]).forget(3).rename(0, 9)
width: int = taer.features_from_arrays(X, y, X, y).n_features
pipe = taer.make_pipeline(taer.Extractor("minilm"), taer.Bayes()).partial_fit(("a", "b"), ["x", "y"])
rows: np.ndarray = taer.Extractor("minilm").transform(np.array(["a", "b"]))
with Client("http://127.0.0.1:8000") as client:
    label: str = client.predict(texts=["a"])["predictions"][0]["label"]
"""
# What pages leave to the reader.
GIVEN = {
    "docs/guides/features.md": "import numpy as np\nX_train = X_test = np.eye(4)\ny_train = y_test = np.arange(4)\n",
    "docs/reference/feature-files.md": "import taer\nfeatures = taer.load_features()\n",
    "docs/guides/text.md": 'texts, topics = ["a", "b"], ["x", "y"]\n',
}
NEEDS_MORE = "mlflow_head.py"  # mlflow, which has an environment of its own


def every_head() -> str:
    lines = ["import numpy as np", "import taer", "X, y = np.eye(4), np.arange(4)"]
    for kind in dict.fromkeys(taer.HEADS.values()):
        home = "taer" if getattr(taer, kind.__name__, None) is kind else kind.__module__
        lines += [
            f"from {home} import {kind.__name__}",
            f"{kind.__name__}(random_state=0).partial_fit(X, y).predict(X).tolist()",
        ]
    return "\n".join(lines)


@pytest.fixture
def code(tmp_path):
    """A folder with the calls."""
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "calls.py").write_text(CALLS)
    (folder / "every_head.py").write_text(every_head())
    return folder


def add_documentation(folder):
    """The code of each page in a file, the notebooks, and the recipes."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for page in (str(path.relative_to(ROOT)) for path in pages):
        if blocks := python_blocks(page):
            name = re.sub(r"\W", "_", page.removesuffix(".md"))
            (folder / f"page_{name}.py").write_text(GIVEN.get(page, "") + "\n".join(blocks))
    for script in [*(ROOT / "docs/notebooks").glob("*.py"), *(ROOT / "docs/recipes").glob("*.py")]:
        if script.name != NEEDS_MORE:
            (folder / f"script_{script.stem.replace('-', '_')}.py").write_text(script.read_text())


def mypy(files, *options, cwd, **environment):
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy", *options, *map(str, files)]
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def pyright(folder, python, **settings):
    """Pyright as it is without settings, which its package calls standard."""
    pytest.importorskip("basedpyright")
    (folder / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": "standard", **settings}))
    command = [sys.executable, "-m", "basedpyright", "--pythonpath", str(python)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.system
def test_mypy_finds_nothing_wrong_with_the_usual_calls(code):
    """With the settings of the linter, so that what it has just read is not read again."""
    mypy(sorted(code.iterdir()), cwd=ROOT, MYPYPATH="src")


@pytest.mark.system
def test_pyright_finds_nothing_wrong_with_the_usual_calls(code):
    pyright(code, sys.executable, extraPaths=[str(ROOT / "src")])


@pytest.mark.system
def test_pyright_finds_a_parameter_that_does_not_exist(tmp_path):
    """So the check above is one."""
    (tmp_path / "wrong.py").write_text("import taer\n\ntaer.Bayes(normalise='l2')\n")
    with pytest.raises(AssertionError, match='No parameter named "normalise"'):
        pyright(tmp_path, sys.executable, extraPaths=[str(ROOT / "src")])


@pytest.fixture
def installed(built, tmp_path):
    """The Python of an environment with the wheel, and with the packages that are here."""
    venv.create(tmp_path / "env", symlinks=True)
    (packages,) = (tmp_path / "env").glob("lib/python3*/site-packages")
    (wheel,) = built.glob("*.whl")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", packages]
    subprocess.run([*install, wheel], check=True)
    others = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    (packages / "others.pth").write_text("\n".join(others))
    python = tmp_path / "env/bin/python"
    where = subprocess.run([python, "-c", "import taer; print(taer.__file__)"], capture_output=True, text=True)
    assert where.stdout.startswith(str(packages)), where
    return python


@pytest.mark.slow
def test_type_checkers_find_nothing_wrong_with_the_documentation_and_the_installed_wheel(code, installed):
    add_documentation(code)
    pyright(code, installed)
    # scikit-learn has no types, so what a head inherits from it, such as score, returns Any.
    (code / "mypy.ini").write_text(
        "[mypy]\nstrict = true\nwarn_return_any = false\n[mypy-sklearn.*]\nignore_missing_imports = true\n"
    )
    mypy(sorted(code.glob("*.py")), "--python-executable", str(installed), cwd=code)
