"""Forged files of heads with a valid checksum: refused, or loaded as a head that works."""

from __future__ import annotations

import contextlib
import copy
import json
import warnings

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

import taer
from taer.persist.save import FORMAT, checksum
from tests.conftest import blobs, small_head

WORDS = [
    None,
    True,
    0,
    -1,
    3,
    10**30,
    0.5,
    -1.0,
    float("nan"),
    float("inf"),
    "",
    "text",
    "float16",
    [],
    [[]],
    [0],
    {},
]
KINDS = [
    {"$tuple": [1, 2]},
    {"$dict": []},
    {"$scalar": ["float32", 3]},
    {"$scalar": ["int64", 2]},
    {"$dtype": "float32"},
    {"$strings": ["U", [2], ["a", "b"]]},
    {"$array": "nowhere"},
    {"$value": ["learned", [1, 1]]},
    {"$value": ["memory-reservoir", {"$dict": []}]},
]
NAMES = [
    "__dict__",
    "__class__",
    "extra_",
    "predict_",
    "_scores",
    "__doc__",
    "held_out_",
    "unlabeled_",
    "coef_",
]


@pytest.fixture(scope="module")
def samples():
    return blobs(6, 20)


@pytest.fixture(scope="module")
def files(samples, tmp_path_factory):
    """The header and the tensors of every head after two tasks, with labels of several kinds."""
    X, y = samples
    found = {}
    for number, name in enumerate(taer.HEADS):
        head = small_head(name, random_state=number, **({"memory_size": 15} if name in ("taer", "derpp") else {}))
        labels = np.array(["ant", "bee", "cat", "dog", "eel", "fox"])[y] if number % 2 else y
        for pair in ([4, 1], [0, 5]):
            rows = np.isin(y, pair)
            head.partial_fit(X[rows].astype([np.float32, np.float64][number % 3 == 0]), labels[rows])
        path = tmp_path_factory.mktemp("heads") / "head"
        head.save(path)
        with safe_open(path, framework="numpy") as file:
            header = json.loads(file.metadata()["head"])
            found[name] = header, {key: file.get_tensor(key).copy() for key in file.keys()}  # noqa: SIM118
    return found


def forge_tensor(rng, header, tensors):
    name = rng.choice(sorted(tensors))
    array = tensors[name].copy()
    change = rng.integers(12)
    if change == 0:
        del tensors[name]
        return
    if change == 1:
        tensors[name] = tensors[rng.choice(sorted(tensors))]
        return
    if change < 6 and array.size:  # one number becomes another
        value = rng.choice([np.nan, np.inf, -1, 0, 1e6, 10**9])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            array.reshape(-1)[rng.integers(array.size)] = np.array(value).astype(array.dtype)
    elif change == 6:
        array = array.reshape(-1)
    elif change == 7:
        array = array[None]
    elif change == 8:
        array = array[:-1] if array.ndim else np.array([1])
    elif change == 9 and array.ndim:
        array = np.repeat(array, 2, axis=rng.integers(array.ndim))
    elif change == 10:
        array = np.ascontiguousarray(array.T)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            array = array.astype(rng.choice(["float16", "float32", "float64", "int64", "int32", "uint8", "bool"]))
    tensors[name] = np.ascontiguousarray(array).reshape(array.shape)


def places(value, path=()):
    """Every place in a tree of JSON."""
    if path:
        yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*path, key))


def forge_header(rng, header, tensors):
    part = rng.choice(["state", "params", "state", "state", "tasks", "name"])
    if not isinstance(header.get(part), dict | list | str):  # forged away before
        return
    tree = {part: header[part]}
    found = list(places(tree))
    *way, last = found[rng.integers(len(found))]
    for key in way:
        tree = tree[key]
    change = rng.integers(6)
    if change == 0 and isinstance(tree, dict):
        del tree[last]
        if not way:
            del header[part]
            return
    elif change == 1:
        tree[last] = copy.deepcopy(KINDS[rng.integers(len(KINDS))])
    elif change == 2:
        *other, end = found[rng.integers(len(found))]
        source = {part: header[part]}
        for key in other:
            source = source[key]
        tree[last] = copy.deepcopy(source[end])
    elif change == 3 and isinstance(header.get("state"), dict):
        header["state"][str(rng.choice(NAMES))] = copy.deepcopy([*KINDS, *WORDS][rng.integers(len(KINDS + WORDS))])
    elif part == "name":
        tree[last] = str(rng.choice(list(taer.HEADS)))
    else:
        tree[last] = copy.deepcopy(WORDS[rng.integers(len(WORDS))])
    if not way:
        header[part] = tree[last]


def check_forged(number, files, samples, path):
    """Make one file from a seed; whether it was loaded."""
    rng = np.random.default_rng(number)
    name = list(files)[number % len(files)]
    header, tensors = copy.deepcopy(files[name][0]), dict(files[name][1])
    for _ in range(rng.integers(1, 3)):
        (forge_tensor if tensors and rng.random() < 0.5 else forge_header)(rng, header, tensors)
    text = json.dumps(header)
    save_file(tensors, path, metadata={"format": FORMAT, "head": text, "sha256": checksum(text, tensors)})
    try:
        head = taer.load(path)
    except ValueError as error:
        assert "not a valid head" in str(error), (name, number)  # noqa: PT017
        return False
    X = samples[0]
    known = set(head.classes_.tolist())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of numbers that are large
        assert set(head.predict(X).tolist()) <= known, (name, number)
        probabilities = head.predict_proba(X)
        assert probabilities.shape == (len(X), len(known)), (name, number)
        np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-5, err_msg=f"{name} {number}")
        one = head.predict_proba(X[:1])
        np.testing.assert_allclose(one, probabilities[:1], atol=1e-4, err_msg=f"{name} {number}")
        head.save(path)  # what was loaded can be kept
        if hasattr(head, "epochs"):
            head.epochs = min(head.epochs, 10)  # a forged number of them is learned, but not in our time
        with contextlib.suppress(ValueError):  # such as numbers so large that learning diverges
            head.partial_fit(X, np.array(["ant", "gnu"])[np.arange(len(X)) % 2] if "ant" in known else samples[1])
    return True


@pytest.mark.parametrize("name", ["fecam", "gauss-frozen", "hycal", "rgda"])
def test_a_factor_that_is_not_triangular_is_refused(name, files, tmp_path):
    """One row and many are multiplied in other ways, which agree for triangular factors only."""
    header, tensors = files[name][0], dict(files[name][1])
    tensors["whiteners_"] = tensors["whiteners_"].copy()
    tensors["whiteners_"][0, 0, -1] = 1
    text = json.dumps(header)
    metadata = {"format": FORMAT, "head": text, "sha256": checksum(text, tensors)}
    save_file(tensors, tmp_path / "head", metadata=metadata)
    with pytest.raises(ValueError, match="whiteners_: expected lower triangular matrices"):
        taer.load(tmp_path / "head")


def test_forged_heads_are_refused_or_work(files, samples, tmp_path):
    loaded = [check_forged(number, files, samples, tmp_path / "head") for number in range(300)]
    assert 10 < sum(loaded) < 290


@pytest.mark.slow
def test_many_forged_heads_are_refused_or_work(files, samples, tmp_path):
    for number in range(300, 2300):
        check_forged(number, files, samples, tmp_path / "head")
