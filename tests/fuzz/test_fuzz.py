"""Whatever is in a file or a request: it is read, or refused with a clear error.

The corpus has small files of each kind (``seed-…``), and inputs that once raised something else (``crash-…``).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("starlette")
pytest.importorskip("pyarrow")
from tests.fuzz.targets import CORPUS, TARGETS

LONG = os.environ.get("TAER_TESTS") == "long"
# Short runs have a number of inputs and a seed, so that runs of a change differ by the change alone.
LIMITS = ("-max_total_time=1800", "-seed=0") if LONG else ("-runs=30000", "-seed=1")


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus_is_read_or_refused(name):
    found = sorted((CORPUS / name).iterdir())
    assert any(path.name.startswith("seed-") for path in found)
    for path in found:
        TARGETS[name](path.read_bytes())


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_nothing_new_is_found_by_fuzzing(name, tmp_path, record_property):
    """The same 30,000 inputs of each reader in ``make test-all``, others for half an hour in ``make test-long``."""
    python = os.environ.get("FUZZ_PYTHON")
    if not python:
        pytest.skip("needs FUZZ_PYTHON, a Python with atheris; make test-all makes one")
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [
            python,
            "-m",
            "tests.fuzz.run",
            name,
            str(tmp_path),
            *LIMITS,
            "-print_final_stats=1",
        ],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": f"{root / 'src'}:{root}",
            "OPENBLAS_NUM_THREADS": "1",
            "TMPDIR": str(tmp_path),
            "PYTHONHASHSEED": "random" if LONG else "0",
        },
        capture_output=True,
        text=True,
        errors="replace",
    )
    if name == "parquet" and _ended_by_pyarrow(done.stderr, tmp_path):
        pytest.xfail("pyarrow ends the process at some damaged columns, an error of its own that nobody can catch")
    assert done.returncode == 0, done.stderr[-4000:]
    count = re.search(r"number_of_executed_units: (\d+)", done.stderr)
    record_property("inputs made by fuzzing", int(count[1]))
    print(f"{name}: {count[1]} inputs")
    assert int(count[1]) > 100


def _ended_by_pyarrow(said, folder):
    """Whether an exception in C++ ended the process. A fuzzed process does not always say so, one that is not does."""
    code = "import sys; from tests.fuzz.targets import parquet; parquet(open(sys.argv[1], 'rb').read())"
    root = Path(__file__).parents[2]
    for found in folder.glob("crash-*"):
        said += subprocess.run([sys.executable, "-c", code, found], cwd=root, capture_output=True, text=True).stderr
    return "terminate called" in said
