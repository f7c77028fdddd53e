"""Numbers that decide are the same on every BLAS kernel and number of threads, also of a head that another one saved."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from taer.heads.registry import CORE
from tests.conftest import blobs, small_head

# Their novelty needs a factorization, which the machine that loads the head computes: the last bits are that machine's.
FACTORED = {"lda-frozen", "ridge", "slda"}
KERNELS = {"Nehalem": "sse4_2", "Haswell": "avx2", "SkylakeX": "avx512dq"}
# What heads say of rows alone and among others: a threshold compares such numbers, and a bit more or less decides.
ASK = """
import json, pathlib, sys
import numpy as np
import scipy.linalg
from threadpoolctl import threadpool_info
import taer

X = np.load(sys.argv[2])
found = {}
for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    head = taer.load(path)
    answers = {asked: getattr(head, asked)(X) for asked in ("scores", "predict_proba", "novelty")}
    for asked, whole in answers.items():
        alone = np.concatenate([getattr(head, asked)(X[i : i + 1]) for i in range(len(X))])
        assert (whole == alone).all(), (path.name, asked)
    known = head.predict(X, unknown=-1)  # with the threshold that was saved
    found[path.name] = {asked: whole.tobytes().hex() for asked, whole in answers.items()} | {"known": known.tolist()}
kernels = sorted({library["architecture"] for library in threadpool_info() if "architecture" in library})
print(json.dumps({"kernels": kernels, "found": found}))
"""


def kernels():
    try:
        with open("/proc/cpuinfo") as file:
            flags = next((line.split() for line in file if line.startswith("flags")), [])
    except OSError:
        flags = []
    return [name for name, needs in KERNELS.items() if needs in flags]


def asked(folder, rows, kernel, threads):
    environment = {**os.environ, "OPENBLAS_CORETYPE": kernel, "OPENBLAS_NUM_THREADS": str(threads)}
    command = [sys.executable, "-c", ASK, str(folder), str(rows)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.system
@pytest.mark.skipif(len(kernels()) < 2, reason="needs a processor with the kernels of another one")
def test_saved_heads_answer_with_the_same_bits_on_every_kernel(tmp_path):
    X, y = blobs(8, 30, width=72, seed=3, spread=3.0)
    X = X.astype(np.float32)
    (tmp_path / "heads").mkdir()
    for name in CORE:
        head = small_head(name, random_state=0)
        for task in (y < 5, y >= 5):
            head.partial_fit(X[task], y[task])
        head.novelty_threshold(X[40:], false_alarms=0.5)  # of other rows than those that are asked
        head.save(tmp_path / "heads" / name)
    np.save(tmp_path / "rows.npy", X[:40])
    every = {
        kernel: asked(tmp_path / "heads", tmp_path / "rows.npy", kernel, 1 + number % 2)
        for number, kernel in enumerate(kernels())
    }
    took = {kernel: answer["found"] for kernel, answer in every.items() if answer["kernels"] == [kernel]}
    if len(took) < 2:
        pytest.skip(f"this OpenBLAS took {[answer['kernels'] for answer in every.values()]} for {[*every]}")
    first, *others = took.values()
    for other in others:
        differing = {
            (name, what) for name in first for what in first[name] if first[name][what] != other[name][what]
        }
        assert differing <= {(name, "novelty") for name in FACTORED}
        for name, what in differing:
            one, two = (np.frombuffer(bytes.fromhex(found[name][what])) for found in (first, other))
            np.testing.assert_allclose(one, two, rtol=1e-12)
    assert all(0 < answers["known"].count(-1) < 40 for answers in first.values())
    assert len(first) == len(CORE)
