"""Work on a real Ray cluster of two nodes on one machine: the same bits, and no work lost when a node dies."""

from __future__ import annotations

import http.server
import json
import os
import socket
import threading
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from joblib import Parallel, delayed
from sklearn.base import clone

pytest.importorskip("ray")
import taer
from taer import parallel
from taer.experiment import Run, run_grid
from taer.features import save_features
from taer.heads.embedding import Normalize
from taer.stream import class_stream
from tests.conftest import blobs, small_features
from tests.features.conftest import tiny_onnx as tiny_onnx  # a fixture of theirs
from tests.features.conftest import write_drawings

NODE = {
    "num_cpus": 1,
    "object_store_memory": 80 << 20,
    "node_ip_address": "127.0.0.2",  # Ray takes 127.0.0.1 for the machine's outer address
}


class TwoNodes:
    """A head node that stays, and one that can be killed and replaced."""

    def __init__(self, **second) -> None:
        from ray.cluster_utils import Cluster

        self._cluster = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
        self.address = self._cluster.address
        try:
            self._second = self._cluster.add_node(**NODE, **second)
        except Exception:  # Ray's own: on a busy machine, a node may not register in time
            self._second = self._cluster.add_node(**NODE, **second)

    def kill_one(self) -> None:
        self._cluster.remove_node(self._second, allow_graceful=False)  # SIGKILL
        self._second = None

    def mend(self) -> None:
        if self._second is None:
            self._second = self._cluster.add_node(**NODE)
            self._cluster.wait_for_nodes(60)  # until the death of the other is known, too

    def shutdown(self) -> None:
        self._cluster.shutdown()


@contextmanager
def two_nodes(**second):
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    nodes = TwoNodes(**second)
    try:
        yield nodes
    finally:
        nodes.shutdown()


@pytest.fixture(scope="module")
def shared_nodes():
    with two_nodes() as nodes:
        yield nodes


@pytest.fixture
def nodes(shared_nodes):
    shared_nodes.mend()
    return shared_nodes


def results_of(runs, out):
    """Results by file, without their timings."""
    return {
        run.file_name: json.dumps({k: v for k, v in result.items() if k not in ("seconds", "created")})
        for run, result, _ in run_grid(runs, out)
    }


def grid(epochs, seeds=2, methods=("taer", "slda")):
    features = small_features()
    streams = [class_stream(features, tasks=5, order=seed) for seed in range(seeds)]
    params = {"taer": {"memory_size": 20, "epochs": epochs}}
    return [Run(streams[seed], name, params.get(name, {}), seed) for name in methods for seed in range(seeds)]


class SlowStart(Normalize):
    """An embedding that finishes the first block last."""

    def __call__(self, X):
        time.sleep(1.0 * (X[0, 0] == blobs(6, 50, width=40)[0][0, 0]))
        return super().__call__(X)


@pytest.mark.slow
def test_the_same_bits_as_on_one_machine(tmp_path, monkeypatch):
    """A grid and a head in small: quick enough for every change."""
    import ray

    runs = grid(epochs=2)
    X, y = blobs(6, 50, width=40)
    monkeypatch.setattr("taer.heads.closed_form.collect._CHUNKS", 1)
    monkeypatch.setattr("taer.heads.closed_form.collect._PIECES", 1)
    monkeypatch.setattr("taer.rows._CHUNK", 40 * 64)  # five blocks
    here, head_here = results_of(runs, tmp_path / "here"), taer.SLDA().fit(X, y)
    put, puts = ray.put, []
    monkeypatch.setattr(ray, "put", lambda value: puts.append(type(value).__name__) or put(value))
    with two_nodes() as nodes, taer.ray_cluster(nodes.address):
        assert str(parallel.workers()) == "2 workers on 2 nodes"
        there = results_of(runs, tmp_path / "there")
        assert puts == ["FeatureSet"]  # sent once, not with each of four runs
        monkeypatch.setattr("taer.heads.closed_form.base.Normalize", SlowStart)
        head_there = taer.SLDA().fit(X, y)
    assert there == here
    assert len(list((tmp_path / "there").glob("*.json"))) == len(runs)
    np.testing.assert_array_equal(head_there.statistics_.scatter, head_here.statistics_.scatter)
    np.testing.assert_array_equal(head_there.coef_, head_here.coef_)
    assert not parallel.on_cluster()


def marked(folder, number, seconds):
    import ray

    Path(folder, f"{number} {ray.get_runtime_context().get_node_id()} {os.getpid()}").touch()
    time.sleep(seconds)
    return number


def busy_nodes(folder):
    return {path.name.split()[1] for path in folder.iterdir()}


def warm_up(folder):
    """Wait until both nodes have a process that has loaded its model, so that a kill hits running work."""
    folder.mkdir()
    while len(busy_nodes(folder)) < 2:
        Parallel()(delayed(marked)(folder, number, 0.5) for number in range(4))


@pytest.mark.slow
def test_work_of_a_dead_node_is_done_again_elsewhere(nodes, tmp_path):
    with taer.ray_cluster(nodes.address):
        warm_up(tmp_path / "warm")
        work = tmp_path / "work"
        work.mkdir()

        def kill_when_both_are_at_work():
            while len(busy_nodes(work)) < 2:
                time.sleep(0.02)
            nodes.kill_one()

        killer = threading.Thread(target=kill_when_both_are_at_work)
        killer.start()
        calls = (delayed(marked)(work, number, 2.0) for number in range(4))
        assert sorted(Parallel(return_as="generator_unordered")(calls)) == [0, 1, 2, 3]
        killer.join()
        begun = Counter(path.name.split()[0] for path in work.iterdir())
        assert sorted(begun.values()) == [1, 1, 1, 2]  # what the dead node had in hand was begun again
        deadline = time.monotonic() + 60
        while str(parallel.workers()) != "1 worker on 1 node":  # Ray takes a while to believe it
            assert time.monotonic() < deadline
            time.sleep(0.1)


@pytest.mark.slow
def test_a_grid_survives_the_death_of_a_node(nodes, tmp_path):
    runs = grid(epochs=150, seeds=6)
    finished = 0
    with taer.ray_cluster(nodes.address):
        warm_up(tmp_path / "warm")
        for finished, _ in enumerate(run_grid(runs, tmp_path / "there"), start=1):
            assert len(list((tmp_path / "there").glob("*.json"))) >= finished  # on disk as soon as it is told of
            if finished == 2:
                nodes.kill_one()
    assert finished == len(runs)
    assert results_of(runs, tmp_path / "there") == results_of(runs, tmp_path / "here")


@pytest.fixture(scope="module")
def slow_onnx(tiny_onnx):
    """The tiny model with a wide extra layer, which takes a good part of a second per batch."""
    import onnx
    from onnx import helper, numpy_helper

    model = onnx.load(tiny_onnx)
    rng = np.random.default_rng(0)
    wide = {"in": rng.normal(size=(512, 5, 1, 1)), "mid": rng.normal(size=(512, 512, 3, 3)) / 70}
    wide["out"] = rng.normal(size=(5, 512, 1, 1)) / 20
    for name, kernel in wide.items():
        model.graph.initializer.append(numpy_helper.from_array(kernel.astype(np.float32), name))
    steps = [("positive", "in", "a"), ("a", "mid", "b"), ("b", "out", "narrow")]
    for before, name, after in steps:
        model.graph.node.append(helper.make_node("Conv", [before, name], [after], auto_pad="SAME_UPPER"))
    model.graph.output[0].name = "narrow"
    path = tiny_onnx.parent / "slow.onnx"
    onnx.save(model, path)
    return path


@pytest.mark.slow
def test_an_extraction_survives_the_death_of_a_node(nodes, slow_onnx, tmp_path, monkeypatch):
    monkeypatch.setattr("taer.features.encoding.CHUNK", 8)
    images = write_drawings(tmp_path / "many", train=160, test=40)
    seen = []

    def watch(done, total):
        seen.append((done, parallel.workers().nodes))
        if done == 200:
            nodes.kill_one()

    with taer.ray_cluster(nodes.address):
        warm_up(tmp_path / "warm")
        taer.extract(images, str(slow_onnx), tmp_path / "there.safetensors", progress=watch)
    taer.extract(images, str(slow_onnx), tmp_path / "here.safetensors")
    assert (tmp_path / "there.safetensors").read_bytes() == (tmp_path / "here.safetensors").read_bytes()
    assert [done for done, _ in seen] == list(range(0, 401, 8))
    assert seen[0][1] == 2
    assert not (tmp_path / "there.safetensors.parts").exists()


@pytest.mark.slow
def test_an_extraction_begun_here_is_finished_there(nodes, tiny_onnx, tmp_path, monkeypatch):
    monkeypatch.setattr("taer.features.encoding.CHUNK", 8)
    images = write_drawings(tmp_path / "many", train=20, test=10)
    out = tmp_path / "features.safetensors"

    def stop(done, total):
        if done >= 24:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        taer.extract(images, str(tiny_onnx), out, progress=stop)
    calls = []
    with taer.ray_cluster(nodes.address):
        taer.extract(images, str(tiny_onnx), out, progress=lambda done, total: calls.append(done))
    assert calls[0] == 16  # what was finished here counts there
    taer.extract(images, str(tiny_onnx), tmp_path / "whole.safetensors")
    assert out.read_bytes() == (tmp_path / "whole.safetensors").read_bytes()


@pytest.mark.slow
def test_a_mistake_there_is_told_as_here(nodes, tiny_onnx, tmp_path):
    images = write_drawings(tmp_path / "some")
    bad = sorted(images.glob("train/circle/*.png"))[2]
    bad.write_bytes(b"no image")
    out = tmp_path / "features.safetensors"
    with taer.ray_cluster(nodes.address):
        with pytest.raises(ValueError, match=rf"^{bad}: cannot be read .*skip_bad=True"):
            taer.extract(images, str(tiny_onnx), out)
        assert taer.extract(images, str(tiny_onnx), out, skip_bad=True).meta["skipped"] == "1"


@pytest.mark.slow
def test_statistics_of_blocks_survive_the_death_of_a_node(nodes, monkeypatch):
    monkeypatch.setattr("taer.heads.closed_form.collect._CHUNKS", 1)
    monkeypatch.setattr("taer.heads.closed_form.collect._PIECES", 1)
    monkeypatch.setattr("taer.rows._CHUNK", 256 * 256)
    X, y = blobs(20, 500, width=256)
    heads = [taer.SLDA(), taer.zoo.RanPAC(width=300, random_state=0), taer.zoo.GACL(width=300, random_state=0)]
    here = [clone(head).fit(X, y) for head in heads]
    with taer.ray_cluster(nodes.address):
        killer = threading.Timer(1.0, nodes.kill_one)
        killer.start()
        for head, same in zip(heads, here, strict=True):
            head.fit(X, y)
            for name, array in same.statistics_.to_arrays().items():
                np.testing.assert_array_equal(array, head.statistics_.to_arrays()[name], err_msg=name)
            np.testing.assert_array_equal(head.decision_function(X[:50]), same.decision_function(X[:50]))
        killer.join()


@pytest.mark.slow
def test_small_features_are_sent_and_large_ones_opened_by_their_path(nodes, tmp_path, monkeypatch):
    path = tmp_path / "set.safetensors"
    save_features(small_features(), path)
    (small,) = grid(epochs=2, seeds=1, methods=["slda"])
    runs = {}
    with taer.ray_cluster(nodes.address):
        for name, size in (("sent", 1 << 30), ("opened", 1000)):
            monkeypatch.setattr("taer.experiment.grid._SMALL", size)
            features = taer.load_features(path)
            runs[name] = Run(class_stream(features, tasks=5, order=0), "slda")
            assert results_of([runs[name]], tmp_path / name).keys() == {small.file_name}
        path.rename(tmp_path / "elsewhere.safetensors")  # as if the nodes did not see it
        with pytest.raises(ValueError, match=r"set\.safetensors.*is it on a path that all nodes see"):
            results_of([runs["opened"]], tmp_path / "again")
        monkeypatch.setattr("taer.experiment.grid._SMALL", 1 << 30)
        results_of([runs["sent"]], tmp_path / "again")


@pytest.mark.slow
def test_a_head_learns_from_shards_on_the_nodes(nodes, tmp_path):
    save_features(small_features(), tmp_path / "shards", shard_rows=70)
    features = taer.load_features(tmp_path / "shards")
    here = taer.SLDA().fit(features.train_x, features.train_y)
    with taer.ray_cluster(nodes.address):
        there = taer.SLDA().fit(features.train_x, features.train_y)
        for task in class_stream(features, tasks=5):
            taer.SLDA().fit(task.X_train, task.y_train)
    np.testing.assert_array_equal(there.coef_, here.coef_)


@pytest.mark.slow
def test_the_command_line_keeps_its_output_clean_when_a_node_dies(nodes, cli, file, tmp_path):
    arguments = (
        "run",
        file,
        "--tasks",
        5,
        "--seeds",
        6,
        "--methods",
        "taer,er",
        "--epochs",
        150,
        "--format",
        "json",
    )

    def kill_when_it_has_begun():
        while not list((tmp_path / "there").glob("*.json")):
            time.sleep(0.02)
        nodes.kill_one()

    killer = threading.Thread(target=kill_when_it_has_begun)
    killer.start()
    code, there, err = cli(*arguments, "--engine", "ray", "--address", nodes.address, "--out", "there")
    killer.join()
    assert code == 0, err
    _, here, _ = cli(*arguments, "--out", "here")
    strip = [[{k: v for k, v in row.items() if k != "seconds"} for row in json.loads(text)["rows"]]
             for text in (there, here)]  # fmt: skip
    assert strip[0] == strip[1]


@pytest.mark.parametrize(
    ("nodes", "share", "workers"),
    [
        ([{"CPU": 8}, {"CPU": 4}, {"memory": 1}], {"CPU": 4}, "3 workers on 2 nodes"),
        ([{"CPU": 8, "GPU": 2}, {"CPU": 4}], {"GPU": 1, "CPU": 1}, "2 workers on 1 node"),
    ],
)
def test_a_frozen_model_takes_a_gpu_or_a_node(monkeypatch, nodes, share, workers):
    monkeypatch.setattr(parallel, "_nodes", lambda: nodes)
    assert parallel.device_share() == share
    assert str(parallel.workers(share)) == workers


@pytest.mark.slow
def test_an_extraction_on_a_cluster_with_gpus(tiny_onnx, tmp_path):
    """Ray is told that one node has a GPU; the model does not find it and runs on the CPU of that node."""
    images = write_drawings(tmp_path / "some")
    with two_nodes(num_gpus=1) as nodes, taer.ray_cluster(nodes.address):
        assert str(parallel.workers(parallel.device_share())) == "1 worker on 1 node"
        there = taer.extract(images, str(tiny_onnx), tmp_path / "there.safetensors")
    here = taer.extract(images, str(tiny_onnx), tmp_path / "here.safetensors")
    np.testing.assert_array_equal(there.train_x, here.train_x)


@pytest.fixture
def silent_port():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        yield unused.getsockname()[1]


@pytest.fixture
def web_port():
    silent = type("Silent", (http.server.BaseHTTPRequestHandler,), {"log_message": lambda *_: None})
    server = http.server.HTTPServer(("127.0.0.1", 0), silent)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


def test_a_wrong_address_is_one_line_within_seconds(cli, file, silent_port, web_port, monkeypatch):
    find = socket.getaddrinfo

    def unknown(host, *more, **options):  # a resolver without a network may take its time
        if host.endswith(".invalid"):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return find(host, *more, **options)

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    for address, message in (
        ("no-such-host.invalid:6379", "no Ray cluster answers there"),
        ("localhost", "expected HOST:PORT"),
        ("ray://localhost:10001", "expected HOST:PORT"),
        (f"127.0.0.1:{silent_port}", "no Ray cluster answers there"),
        (f"127.0.0.1:{web_port}", "answers, but is not a Ray cluster"),
    ):
        if str(silent_port) in address:
            started = time.monotonic()  # Ray is imported
        code, out, err = cli("run", file, "--tasks", 5, "--engine", "ray", "--address", address)
        assert (code, out) == (2, "")
        assert f"{address}: {message}" in err
        assert err.count("\n") == 1
    assert time.monotonic() - started < 30


def test_a_wrong_address_in_the_environment_is_told_as_well(cli, file, silent_port, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{silent_port}")
    code, _, err = cli("run", file, "--tasks", 5, "--engine", "ray")
    assert code == 2
    assert f"127.0.0.1:{silent_port}: no Ray cluster answers there" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--address", "localhost:6379"], "--address goes with --engine ray"),
        (["--engine", "ray", "--jobs", "2"], "--jobs goes with --engine local"),
    ],
)
def test_options_that_do_not_go_together(cli, file, arguments, message):
    code, out, err = cli("run", file, "--tasks", 5, *arguments)
    assert (code, out) == (2, "")
    assert message in err


def test_without_ray_the_command_that_installs_it_is_named(cli, file, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    code, _, err = cli("run", file, "--tasks", 5, "--engine", "ray")
    assert code == 2
    assert "pip install 'taer[cluster]'" in err
