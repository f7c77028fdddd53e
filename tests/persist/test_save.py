"""Saved heads are bit-identical, also after further tasks, and no file can do harm."""

from __future__ import annotations

import json
import struct
import sys
import tempfile
import time
import tracemalloc
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import save_file

import taer
from taer.persist.encoding import Decoder, Encoder
from taer.persist.save import FORMAT, checksum
from tests.conftest import everyday, small_head
from tests.heads.test_every_head import learn


@pytest.fixture
def saved(tasks, tmp_path):
    """A TaER head of two tasks and its file."""
    head = learn(taer.TaER(random_state=0), tasks[:2])
    head.save(tmp_path / "head.safetensors")
    return head, tmp_path / "head.safetensors"


def metadata(path):
    with safe_open(path, framework="numpy") as file:
        return file.metadata()


@pytest.mark.parametrize("name", list(taer.HEADS))
@pytest.mark.parametrize(("dtype", "labels"), [(np.float32, "strings"), (np.float64, "integers")])
def test_every_head_goes_on_as_if_never_saved(name, dtype, labels, tasks, tmp_path):
    names = np.array(["ant", "bee", "cat", "dog", "eel", "a fox, and — ünïcödé"])
    tasks = [(X.astype(dtype), names[y] if labels == "strings" else y) for X, y in tasks]
    head, path = learn(small_head(name, random_state=0), tasks[:1]), tmp_path / "head.safetensors"
    for X, y in [*tasks[1:], tasks[0]]:  # also a class that returns
        head.save(path)
        loaded = taer.load(path)
        assert type(loaded) is type(head)
        assert loaded.get_params() == head.get_params()
        assert loaded.learning_order_ == head.learning_order_
        assert loaded.classes_.tolist() == head.classes_.tolist()
        np.testing.assert_array_equal(loaded.predict_proba(X), head.predict_proba(X))
        np.testing.assert_array_equal(loaded.predict(X), head.predict(X))
        loaded.save(tmp_path / "again")
        assert metadata(tmp_path / "again")["sha256"] == metadata(path)["sha256"]
        head.partial_fit(X, y)
        loaded.partial_fit(X, y)
        np.testing.assert_array_equal(loaded.decision_function(X), head.decision_function(X))
        assert loaded.rng_.bit_generator.state == head.rng_.bit_generator.state
        head = loaded
    assert sorted(file.name for file in tmp_path.iterdir()) == ["again", "head.safetensors"]


def test_the_header_tells_a_reader_what_it_is(saved):
    described = json.loads(metadata(saved[1])["head"])
    assert described["name"] == "taer"
    assert described["tasks"] == [[1, 4], [0, 5]]
    assert described["label_type"] == "int64"
    assert described["params"]["memory_size"] == 200
    assert described["versions"]["taer"] == taer.__version__


def test_feature_names_generators_and_parameters(tasks, tmp_path):
    X, y = tasks[0]
    frame = pd.DataFrame(X, columns=[f"f{i}" for i in range(X.shape[1])])
    head = taer.ER(random_state=np.random.Generator(np.random.MT19937(3)), lr=0.05).partial_fit(frame, y)
    head.save(tmp_path / "head")
    loaded = taer.load(tmp_path / "head")
    assert loaded.feature_names_in_.tolist() == head.feature_names_in_.tolist()
    assert loaded.lr == 0.05
    assert loaded.predict(frame).tolist() == head.predict(frame).tolist()


def test_a_matrix_lies_in_memory_as_before(saved):
    head, path = saved
    head.weights_ = np.asfortranarray(head.weights_)
    head.save(path)
    loaded = taer.load(path).weights_
    assert loaded.flags.f_contiguous
    np.testing.assert_array_equal(loaded, head.weights_)


@dataclass
class Foreign:
    size: int = 1


@pytest.mark.parametrize(
    ("attribute", "value", "message"),
    [
        ("random_state", np.random.RandomState(0), "random_state is a RandomState"),
        ("stray", 1, "'stray' would be lost"),
        ("extra_", 1, "'extra_' would be lost, as no 'fitted' declares it"),
        ("weights_", np.full((4, 12), np.nan), "weights_: it contains NaN"),
        ("n_tasks_", np.int64(2), "n_tasks_: expected a whole number"),
    ],
)
def test_what_cannot_be_saved_is_named_and_leaves_the_old_file(saved, attribute, value, message):
    head, path = saved
    before = path.read_bytes()
    setattr(head, attribute, value)
    with pytest.raises(ValueError, match=message):
        head.save(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({1, 2}, "extra_ is a set"),
        ([{"a": object()}], "is a object"),
        (Foreign(), "is a Foreign"),
        (np.zeros(2, complex), "array of complex128"),
        (np.array([1, "a"], object), "array of object"),
    ],
)
def test_values_that_no_file_can_hold(value, message):
    with pytest.raises(ValueError, match=message):
        Encoder().encode(value, "extra_")


class Own(taer.TaER):
    """A head outside the package."""


def test_a_head_of_ones_own_is_saved_by_its_import_path(tasks, tmp_path, monkeypatch):
    head = Own(random_state=0).partial_fit(*tasks[0])
    head.save(tmp_path / "head")
    loaded = taer.load(tmp_path / "head")
    assert type(loaded) is Own
    np.testing.assert_array_equal(loaded.scores(tasks[0][0]), head.scores(tasks[0][0]))
    monkeypatch.delitem(sys.modules, __name__)  # a file alone imports nothing
    with pytest.raises(ValueError, match="import the module that defines it first"):
        taer.load(tmp_path / "head")
    assert __name__ not in sys.modules


def test_unfitted_and_local_heads_are_not_saved(tasks, tmp_path):
    class Local(taer.TaER):
        pass

    fitted = Local(random_state=0).partial_fit(*tasks[0])
    for head, message in ((taer.TaER(), "nothing yet"), (fitted, "at the top of a module")):
        with pytest.raises(ValueError, match=message):
            head.save(tmp_path / "head")
    assert not list(tmp_path.iterdir())


def test_values_of_every_kind_come_back():
    value = {
        ("a", 1): [None, True, -1, 2.5, float("inf"), "text", (1, (2,))],
        3: {"$array": "not a tensor"},
        "empty": [np.zeros((0, 4), np.float16), np.array(7, np.uint8), np.array([], str), {}, [], ()],
        "scalars": [np.float32(0.1), np.int64(2), np.bool_(True)],
    }
    encoder = Encoder()
    described = json.loads(json.dumps(encoder.encode(value, "value")))
    loaded = Decoder(encoder.tensors).decode(described)
    assert repr(loaded) == repr(value)
    assert type(loaded["scalars"][0]) is np.float32


# Files that are not what `save` wrote.


def rewrite(path, change_meta=lambda meta: None, change_tensors=lambda tensors: None):
    with safe_open(path, framework="numpy") as file:
        meta, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    change_meta(meta)
    change_tensors(tensors)
    save_file(tensors, path, metadata=meta)


def test_every_cut_is_refused(saved):
    _, path = saved
    whole = path.read_bytes()
    for size in [*range(0, 200, 7), *range(200, len(whole), len(whole) // 150), len(whole) - 1]:
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match="not a saved head"):
            taer.load(path)


def test_every_altered_byte_is_refused(saved):
    _, path = saved
    whole = path.read_bytes()
    for place in np.random.default_rng(0).integers(8, len(whole), 300):
        altered = bytearray(whole)
        altered[place] ^= 1 << (place % 8)
        path.write_bytes(altered)
        with pytest.raises(ValueError, match=r"saved head|altered|another version|not a valid"):
            taer.load(path)


def test_foreign_older_and_newer_formats_are_refused(saved, features, tmp_path):
    from taer.features import save_features

    _, path = saved
    save_features(features, tmp_path / "features.safetensors")
    with pytest.raises(ValueError, match="not a saved head: its header lacks"):
        taer.load(tmp_path / "features.safetensors")
    for other in ("taer-head/3", "taer-head/5"):
        rewrite(path, lambda meta, other=other: meta.update(format=other))
        with pytest.raises(
            ValueError, match=f"another version of taer .format '{other}'.; this one reads {FORMAT}"
        ):
            taer.load(path)
    with pytest.raises(ValueError, match="no such file"):
        taer.load(tmp_path / "nothing")
    with pytest.raises(ValueError, match="not a file"):
        taer.load(tmp_path)


def test_altered_weights_and_headers_are_refused(saved):
    _, path = saved
    whole = path.read_bytes()
    for change in (
        {"change_meta": lambda meta: meta.update(head=meta["head"].replace('"lr": 0.1', '"lr": 0.2'))},
        {"change_meta": lambda meta: meta.pop("sha256")},
        {"change_tensors": lambda tensors: tensors.update(weights_=tensors["weights_"] + 1)},
        {"change_tensors": lambda tensors: tensors.pop("weights_")},
    ):
        path.write_bytes(whole)
        rewrite(path, **change)
        with pytest.raises(ValueError, match="altered"):
            taer.load(path)


HOSTILE = {
    "no head": {"name": "os"},
    "no parameters": {"params": {}, "state": None},
    "unknown parameter": {"params": {"wings": 2}},
    "bad parameter": {"params": {"lr": -1}},
    "not fitted": {"state": {}},
    "method": {"state": {"predict": 1}},
    "missing tensor": {"state": {"weights_": {"$array": "nowhere"}}},
    "unknown kind": {"state": {"weights_": {"$pickle": "gASV"}}},
    "two kinds": {"state": {"weights_": {"$array": "weights_", "$tuple": []}}},
    "function": {"state": {"weights_": {"$value": ["os:system", ["true"]]}}},
    "our function": {"state": {"weights_": {"$value": ["softmax", [1]]}}},
    "our import": {"state": {"weights_": {"$value": ["learned", []]}}},
    "our head": {"state": {"weights_": {"$value": ["taer", {"$dict": []}]}}},
    "huge strings": {"state": {"classes_": {"$strings": ["U", [1 << 40], ["a"]]}}},
    "huge count": {"state": {"classes_": {"$strings": ["U", [1 << 62, 0], []]}}},
    "huge scalar": {"state": {"n_tasks_": {"$scalar": ["int64", 10**30]}}},
    "generator": {"state": {"rng_": {"$generator": {"$dict": [["bit_generator", "seed"]]}}}},
    "list": [1, 2],
    "object": {"state": {"__dict__": {"$dict": []}}},
    "class": {"state": {"__class__": 1}},
    "place of a random number": {
        "params": {
            "random_state": {
                "$generator": {
                    "$dict": [["bit_generator", "Philox"], ["buffer_pos", 10**6], ["state", {"$dict": []}]]
                }
            }
        }
    },
}


@pytest.mark.parametrize("case", list(HOSTILE))
def test_hostile_headers_with_a_right_checksum_are_refused(saved, case):
    _, path = saved
    with safe_open(path, framework="numpy") as file:
        meta, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    header = HOSTILE[case]
    if isinstance(header, dict):
        whole = json.loads(meta["head"])
        header = {
            key: {**whole[key], **change} if isinstance(change, dict) and change else change
            for key, change in (whole | header).items()
        }
    meta["head"] = json.dumps(header)
    meta["sha256"] = checksum(meta["head"], tensors)
    save_file(tensors, path, metadata=meta)
    with pytest.raises(ValueError, match="not a valid head"):
        taer.load(path)


def test_deep_nesting_is_refused(saved):
    _, path = saved
    for deep in ("[" * 200_000, '{"name":' * 200_000, '{"state":' + "[" * 5000 + "]" * 5000 + "}"):
        rewrite(path, lambda meta: None, lambda tensors: tensors.clear())
        rewrite(path, lambda meta, deep=deep: meta.update(head=deep, sha256=checksum(deep, {})))
        with pytest.raises(ValueError, match="not a valid head"):
            taer.load(path)


def test_fuzz_never_crashes_hangs_or_allocates_without_bound(saved):
    _, path = saved
    whole = path.read_bytes()
    rng = np.random.default_rng(1)
    sizes = [0, 1, 7, 8, 9, 2**16, 2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1, len(whole)]
    files = [struct.pack("<Q", size) + whole[8:] for size in sizes]
    files += [struct.pack("<Q", size) + b"{}" for size in sizes]
    files += [rng.bytes(int(size)) for size in rng.integers(0, 3000, 200)]
    for shape in ([1 << 62], [1 << 32, 1 << 32], [-1], [1e30], [1 << 62, 0]):
        for offsets in ([0, 8], [0, 1 << 62], [8, 0], [-8, 0]):
            tensor = {"dtype": "F64", "shape": shape, "data_offsets": offsets}
            header = json.dumps({"__metadata__": {"format": FORMAT, "head": "{}"}, "a": tensor}).encode()
            files.append(struct.pack("<Q", len(header)) + header + bytes(8))
    for _ in range(300):  # several random bytes of a real file
        altered = bytearray(whole)
        for place in rng.integers(0, len(whole), rng.integers(1, 20)):
            altered[place] = rng.integers(256)
        files.append(bytes(altered))
    tracemalloc.start()
    start = time.process_time()
    for content in files:
        path.write_bytes(content)
        try:
            taer.load(path)
        except ValueError as error:
            assert len(str(error)) < 2000  # noqa: PT017
        else:
            assert content == whole
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert time.process_time() - start < 30
    assert peak < 20 * len(whole) + (4 << 20)


LABELS = {
    "integers": st.integers(-(2**63), 2**63 - 1),
    "strings": st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6).filter(
        lambda text: not text.endswith("\0")
    ),
}


@everyday
@given(
    st.sampled_from(sorted(taer.HEADS)),
    st.sampled_from(sorted(LABELS)).flatmap(
        lambda kind: st.lists(LABELS[kind], min_size=2, max_size=6, unique=True)
    ),
    st.lists(st.integers(1, 5), min_size=1, max_size=3),
    st.sampled_from(["float16", "float32", "float64"]),
    st.integers(0, 1000),
)
def test_any_head_with_any_labels_comes_back(name, labels, cuts, dtype, seed):
    rng = np.random.default_rng(seed)
    head, labels = small_head(name, random_state=seed), np.array(labels)
    tasks = [task for task in np.split(rng.permutation(len(labels)), sorted(set(cuts))) if len(task)]

    def teach(head, task, rng):
        numbers = np.repeat(task, rng.integers(1, 5, len(task)))
        rows = rng.normal(size=(len(numbers), 4)) + 3 * np.cos(numbers[:, None] * np.arange(1, 5))
        return head.partial_fit(rows.astype(dtype), labels[numbers])

    for task in tasks:
        teach(head, task, rng)
    X = rng.normal(size=(7, 4)).astype(dtype)
    with tempfile.TemporaryDirectory() as folder:
        head.save(f"{folder}/head.safetensors")
        same = taer.load(f"{folder}/head.safetensors")
    assert same.classes_.dtype.kind == head.classes_.dtype.kind
    for _ in range(2):
        assert same.classes_.tolist() == head.classes_.tolist()
        assert same.learning_order_ == head.learning_order_
        np.testing.assert_array_equal(same.scores(X), head.scores(X))
        np.testing.assert_array_equal(same.predict_proba(X), head.predict_proba(X))
        for each in (head, same):  # and it goes on as if never saved
            teach(each, np.arange(len(labels)), np.random.default_rng(seed))
