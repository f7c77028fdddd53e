"""Small class-incremental problems and fixtures that all tests share."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

import taer
import taer.cli
from taer import FeatureSet
from taer.features import extractor, save_features
from taer.features.backbones import NAMED, Backbone
from taer.features.backbones.named import Named
from tests import tiers

# Of properties: the same examples on every machine, and few enough for every day.
everyday = settings(max_examples=50, deadline=None, derandomize=True, database=None)

# Folders that browsers, notebooks and their libraries make in a home.
OF_OTHERS = {".cache", ".config", ".ipython", ".jupyter", ".local", ".mozilla", ".npm", ".pki", ".ray", ".rustup"}

# Random features by the thousand and hundreds of units are for real data; the contract holds for a few.
SMALL = {
    "ranpac": {"width": 50},
    "klda": {"width": 30, "draws": 2},
    "gacl": {"width": 50, "gamma": 1.0},  # its own strength is for thousands of samples
    "loranpac": {"width": 50},
    "anacp": {"width": 50, "drawn": 20},
    **{name: {"width": 32} for name, head in taer.HEADS.items() if head.card.group == "adapter"},
}
SMALL["der-adapter"]["balanced_epochs"] = 10


def wait_until(condition: Callable[[], object], seconds: float = 60) -> None:
    """Return as soon as something holds, and fail if it does not for long."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"it did not happen within {seconds:g} seconds"
        time.sleep(0.01)


def small_head(name: str, **params):
    return taer.make_head(name, **SMALL.get(name, {}), **params)


def accuracy(head, X, y, classes=None) -> float:
    """Accuracy on samples of one task; a head that guesses the task may only predict ``classes``, or those of ``y``."""
    if not head.card.guesses_task:
        return head.score(X, y)
    classes = np.unique(y if classes is None else classes)
    return float(np.mean(classes[head.scores(X, classes).argmax(axis=1)] == y))


def heads_with(**facts) -> list[str]:
    """Names of the heads whose cards have these values."""
    wanted = facts.items()
    return [name for name, head in taer.HEADS.items() if all(getattr(head.card, key) == it for key, it in wanted)]


def blobs(n_classes: int, per_class: int, width: int = 12, seed: int = 0, spread: float = 1.0):
    """Gaussian classes, well apart, in random order of samples."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(n_classes, width)) * 3
    y = rng.permutation(np.repeat(np.arange(n_classes), per_class))
    return centers[y] + spread * rng.normal(size=(len(y), width)), y


def pytest_collection_modifyitems(config, items):
    left_out = set(tiers.mark(items))
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session", autouse=True)
def _home(tmp_path_factory):
    """Tests have a home and a cache of their own. A browser or a notebook may leave its folders in it, taer nothing."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("HOME", str(home))
        yield
    left = {path for path in home.iterdir() if path.name not in OF_OTHERS} | set(home.rglob("*taer*"))
    assert not left, f"tests left files in the home folder: {sorted(map(str, left))[:5]}"


@pytest.fixture(scope="session", autouse=True)
def _no_network():
    """This process may connect to this machine only. Processes that it starts find a proxy that takes no connection."""
    own = {"localhost", "127.0.0.1", socket.gethostname()}

    def watched(connect):
        def checked(sock, address):
            if sock.family in (socket.AF_INET, socket.AF_INET6) and sock.type == socket.SOCK_STREAM:
                host = address[0]
                known = host in {*own, "::1"} or host.startswith("127.") or host in _addresses()
                assert known, f"a test connects to {host}"
            return connect(sock, address)

        return checked

    with pytest.MonkeyPatch.context() as patch:
        for name in ("connect", "connect_ex"):
            patch.setattr(socket.socket, name, watched(getattr(socket.socket, name)))
        for name in ("HTTP_PROXY", "HTTPS_PROXY"):
            patch.setenv(name, "http://127.0.0.1:9")  # where nothing listens
        patch.setenv(
            "NO_PROXY", ",".join(sorted(own | {"127.0.0.2"} | {host for host in _addresses() if ":" not in host}))
        )
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield


@cache
def _addresses() -> set[str]:
    """Of this machine: a Ray cluster on it is reached by one of them."""
    try:
        return {found[4][0] for found in socket.getaddrinfo(socket.gethostname(), None)}
    except OSError:
        return set()


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """The wheel and the source distribution, made from the tree as it is."""
    for package in ("build", "hatchling", "twine"):
        pytest.importorskip(package)
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, Path(__file__).parents[1]]
    subprocess.run(command, check=True, capture_output=True)
    return folder


def three_tasks():
    """Three tasks of two classes each, labels not in order of arrival."""
    X, y = blobs(6, 40)
    return [(X[np.isin(y, pair)], y[np.isin(y, pair)]) for pair in ([4, 1], [0, 5], [3, 2])]


@pytest.fixture
def tasks():
    return three_tasks()


@pytest.fixture
def features():
    return small_features()


def small_features(name: str = "features") -> FeatureSet:
    """Ten classes, 30 training and 10 test samples each."""
    X, y = blobs(10, 40, width=16, seed=1)
    test = np.concatenate([np.flatnonzero(y == c)[:10] for c in range(10)])
    train = np.setdiff1d(np.arange(len(y)), test)
    names = tuple(f"class{c}" for c in range(10))
    X = X.astype(np.float32)
    return FeatureSet(X[train], y[train], X[test], y[test], classes=names, name=name)


@pytest.fixture
def cli(capsys, tmp_path, monkeypatch):
    """Run a command in an empty folder; returns exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        with pytest.raises(SystemExit) as stop:
            taer.cli.main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return stop.value.code, captured.out, captured.err

    return call


class Letters:
    """A text backbone that counts letters."""

    engine, batch_size, in_flight = "letters", 2, 1

    def __call__(self, items):
        return np.array([[item.count(letter) for letter in "abcdefgh"] for item in items], np.float32)


class Gray:
    """An image backbone with four by two gray pixels as features."""

    engine, batch_size, in_flight = "gray", 2, 1

    def __call__(self, items):
        return np.stack([np.asarray(item, np.float32).ravel() / 255 - 0.5 for item in items])


@pytest.fixture
def backbones(monkeypatch):
    """Two cheap backbones with eight features: ``letters`` for texts, ``gray`` for images."""
    found = [
        Backbone("letters", "text", "counted", "here sha256:1e77", str, lambda half=False: Letters()),
        Backbone(
            "gray",
            "image",
            "shrunk",
            "here sha256:94a7",
            lambda i: i.convert("L").resize((4, 2)),
            lambda half=False: Gray(),
        ),
    ]
    for item in found:
        named = Named(item.name, item.kind, 0, 8, "none", "here", lambda: True, lambda weights, item=item: item)
        monkeypatch.setitem(NAMED, item.name, named)
    extractor._found.cache_clear()
    extractor._encoder.cache_clear()
    return {item.name: item for item in found}


@pytest.fixture
def file(features, tmp_path):
    """The small features on disk."""
    save_features(features, tmp_path / "set.safetensors")
    return str(tmp_path / "set.safetensors")


@pytest.fixture(scope="session")
def paper_features(tmp_path_factory):
    """A feature file with the headers of CIFAR-100 and ResNet18: 100 classes of six and three random samples."""
    folder = tmp_path_factory.mktemp("features")
    X, y = blobs(100, 9, width=8)
    rows = y.argsort(kind="stable").reshape(100, 9)
    train, test = rows[:, :6].ravel(), rows[:, 6:].ravel()
    X, names = X.astype(np.float32), tuple(f"class {c}" for c in range(100))
    meta = {"dataset": "cifar100", "backbone": "resnet18"}
    features = FeatureSet(X[train], y[train], X[test], y[test], classes=names, meta=meta)
    save_features(features, folder / "any-name.safetensors")
    (folder / "half-written.safetensors").write_bytes(b"not a feature file")
    return folder
