"""The central promise: a score depends on its class and its sample alone, bit for bit.

In all heads whose scores are exact products, the batch and the processor change nothing. In heads whose old scores
never move, later tasks change nothing.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import taer
from taer.inspection.audit import audit
from tests.conftest import blobs

OLD, LATER, WIDTH = 6, (5, 3, 7), 48
HEADS = {
    **{name: (name, {}) for name, head in taer.HEADS.items() if head.card.frozen},
    "taer-raw": ("taer", {"standardize": "none", "init": "zero"}),
    "ncm-euclidean": ("ncm", {"metric": "euclidean"}),
    "lda-frozen-none": ("lda-frozen", {"normalize": "none"}),
    "gauss-chain-rank-3": ("gauss-chain", {"rank": 3}),
}
# One product with columns, and no random features before it: exact, too, until the columns move.
EXACT = {name: (name, {}) for name, head in taer.HEADS.items() if head.card.linear} | HEADS
for random_features in ("ranpac", "gacl", "loranpac"):
    del EXACT[random_features]


def cases(heads):
    return pytest.mark.parametrize(
        ("case", "dtype"), [(case, dtype) for case in heads for dtype in ("float32", "float64")]
    )


frozen, exact = cases(HEADS), cases(EXACT)


@cache
def samples(dtype):
    X, y = blobs(OLD + sum(LATER), 24, width=WIDTH, spread=3.0)
    return X.astype(dtype), y * 10


@cache
def versions(case, dtype):
    """The head after each task; labels do not arrive in sorted order."""
    X, y = samples(dtype)
    labels = np.random.default_rng(1).permutation(np.unique(y))
    name, params = EXACT[case]
    head, found = taer.make_head(name, random_state=0, **params), []
    for task in np.split(labels, np.cumsum([OLD, *LATER])[:-1]):
        members = np.isin(y, task)
        found.append(copy.deepcopy(head.partial_fit(X[members], y[members])))
    return found


def assert_same_bits(found, expected):
    assert found.dtype == expected.dtype
    different = found != expected
    assert not different.any(), (
        f"{different.sum()} of {found.size} differ, by up to {np.abs(found - expected).max()}"
    )


def layouts(X, tmp_path):
    """The same values, stored in other ways."""
    yield np.asfortranarray(X)
    wide = np.zeros((2 * len(X), 3 * X.shape[1]), X.dtype)
    wide[::2, ::3] = X
    yield wide[::2, ::3]
    yield np.ascontiguousarray(X[::-1, ::-1])[::-1, ::-1]
    np.save(tmp_path / "X.npy", X)
    yield np.load(tmp_path / "X.npy", mmap_mode="r")
    np.save(tmp_path / "F.npy", np.asfortranarray(X))
    yield np.load(tmp_path / "F.npy", mmap_mode="r")
    packed = np.zeros(len(X), np.dtype([("tag", "u1"), ("row", X.dtype, (X.shape[1],))]))
    packed["row"] = X
    yield packed["row"]


@exact
def test_however_samples_are_asked(case, dtype, tmp_path):
    head, X = versions(case, dtype)[-1], samples(dtype)[0][:130]
    batch = head.scores(X)
    assert_same_bits(np.concatenate([head.scores(row[None]) for row in X]), batch)
    for size in (2, 7, 64, 129):
        parts = np.array_split(X, range(size, len(X), size))
        assert_same_bits(np.concatenate([head.scores(part) for part in parts]), batch)
    for same in layouts(X, tmp_path):
        np.testing.assert_array_equal(same, X)
        assert_same_bits(head.scores(same), batch)
    short = X.astype(np.float16)
    for other in (np.float32, np.float64):
        assert_same_bits(head.scores(short), head.scores(short.astype(other)))
        assert_same_bits(head.scores(short[:1]), head.scores(short.astype(other))[:1])


@exact
def test_asked_alone_or_with_all_classes(case, dtype):
    head, X = versions(case, dtype)[-1], samples(dtype)[0][:130]
    scores, labels = head.scores(X), head.classes_.tolist()
    for wanted in (labels[3:4], labels[::-1], labels[::4], [labels[5], labels[0]]):
        columns = [labels.index(label) for label in wanted]
        assert_same_bits(head.scores(X, classes=wanted), scores[:, columns])
        assert_same_bits(head.scores(X[:1], classes=wanted), scores[:1, columns])


@frozen
def test_whatever_comes_later(case, dtype):
    """Tasks, a class that returns, another class that is renamed or forgotten."""
    heads, (X, y) = versions(case, dtype), samples(dtype)
    old = heads[0].classes_.tolist()
    expected = heads[0].scores(X)
    for head in heads[1:]:
        assert_same_bits(head.scores(X)[:, np.searchsorted(head.classes_, old)], expected)
        assert_same_bits(head.scores(X[:1], classes=old), expected[:1])
    head = copy.deepcopy(heads[-1])
    newest = [label for label, _ in head.learning_order_ if label not in old]
    head.rename(newest[0], -5).rename(newest[1], 1_000_000)
    assert_same_bits(head.scores(X, classes=old), expected)
    for label in newest[2:6]:
        head.forget(label)
        assert_same_bits(head.scores(X, classes=old), expected)
    returned = y == old[0]
    head.partial_fit(X[returned] + np.asarray(0.25, dtype), y[returned])
    assert (head.scores(X, classes=old[:1]) != expected[:, :1]).any()
    assert_same_bits(head.scores(X, classes=old[1:]), expected[:, 1:])
    head.forget(old[0])
    assert_same_bits(head.scores(X, classes=old[1:]), expected[:, 1:])


def near_ties(head, X, count=200):
    """Samples between two classes, so near to both that the best of them hangs on the last bits of a score."""
    scores = head.scores(X)
    best = scores.argmax(axis=1)
    rng = np.random.default_rng(0)
    one, other = rng.integers(0, len(X), (2, 20 * count))
    apart = np.flatnonzero(best[one] != best[other])[:count]
    low, high = X[one[apart]].copy(), X[other[apart]].copy()
    winner = best[one[apart]]
    for _ in range(70):  # the middle is won by the first class, or not
        middle = (low + high) / 2
        won = head.scores(middle).argmax(axis=1) == winner
        low[won], high[~won] = middle[won], middle[~won]
    # a step of one bit in one feature, many times, walks through the places where rounding decides
    around = [low, high]
    for feature in range(8):
        for direction in (-np.inf, np.inf):
            moved = low.copy()
            moved[:, feature] = np.nextafter(moved[:, feature], np.asarray(direction, X.dtype))
            around.append(moved)
    return np.concatenate(around)


@frozen
def test_no_decision_among_old_classes_changes(case, dtype):
    heads, X = versions(case, dtype), samples(dtype)[0]
    old = heads[0]
    ties = near_ties(old, X)
    scores = np.sort(old.scores(ties), axis=1)
    margins = (scores[:, -1] - scores[:, -2]) / np.abs(scores).max(axis=1)
    assert np.median(margins) < 1e-6
    decisions = old.predict(ties)
    for new in heads[1:]:
        among_old = old.classes_[new.scores(ties, classes=old.classes_).argmax(axis=1)]
        np.testing.assert_array_equal(among_old, decisions)
        answers = new.predict(ties)
        stays = np.isin(answers, old.classes_)
        np.testing.assert_array_equal(answers[stays], decisions[stays])
        one_by_one = np.concatenate([new.predict(row[None]) for row in ties[::25]])
        np.testing.assert_array_equal(one_by_one, answers[::25])
        found = audit(old, new, ties)
        assert (found.moved, found.compared, found.changed) == ([], len(ties), 0)


CORES = {"Nehalem": "sse4_2", "Haswell": "avx2", "Zen": "avx2", "SkylakeX": "avx512dq"}
SCORED_ELSEWHERE = """
import hashlib, json, sys
from pathlib import Path
import numpy as np, taer

found = {}
for path in sorted(Path(sys.argv[1]).glob("*.safetensors")):
    head, X = taer.load(path), np.load(path.with_suffix(".npy"))
    scores = head.scores(X)
    assert (np.concatenate([head.scores(row[None]) for row in X[:20]]) == scores[:20]).all(), path
    found[path.stem] = hashlib.sha256(scores.tobytes()).hexdigest()
print(json.dumps(found))
"""


def cpu_flags():
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return set()
    return set(next((line for line in lines if line.startswith("flags")), "").split())


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    """A folder with a file of each head, and the digests of its scores under each kernel this processor has."""
    folder, found = tmp_path_factory.mktemp("heads"), {}
    for case, dtype in exact.args[1]:
        versions(case, dtype)[-1].save(folder / f"{case}-{dtype}.safetensors")
        np.save(folder / f"{case}-{dtype}.npy", near_ties(versions(case, dtype)[0], samples(dtype)[0], count=20))
    flags = cpu_flags()
    settings = [
        {"OPENBLAS_CORETYPE": core, "OPENBLAS_NUM_THREADS": threads}
        for core, needs in CORES.items()
        if needs in flags
        for threads in ("1", "2")
    ]
    if "avx512f" in flags:  # elementary functions of numpy have other forms, too
        settings.append({"NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_SKX AVX512_ICL AVX512_SPR"})
    for setting in settings:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", SCORED_ELSEWHERE, folder],
            env={**os.environ, **setting}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        found[" ".join(setting.values())] = json.loads(done.stdout)
    return folder, found


@pytest.mark.system
@exact
def test_one_file_has_the_same_scores_on_every_kernel(case, dtype, elsewhere):
    folder, digests = elsewhere
    scores = versions(case, dtype)[-1].scores(np.load(folder / f"{case}-{dtype}.npy"))
    here = hashlib.sha256(scores.tobytes()).hexdigest()
    assert {name: found[f"{case}-{dtype}"] for name, found in digests.items()} == dict.fromkeys(digests, here)
