"""What reads files and requests of others: each takes any bytes, and answers or raises a clear error."""

from __future__ import annotations

import base64
import tempfile
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path

import msgspec
import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file
from starlette.exceptions import HTTPException

import taer
from taer.experiment import results as of_results
from taer.features.images import decode_image
from taer.persist import save as of_heads
from taer.serve import bodies, inputs, protocol
from taer.serve.tokens import stored

CORPUS = Path(__file__).parent / "corpus"
_work = tempfile.TemporaryDirectory(prefix="taer-fuzz-")


class _Anything(str):
    """A checksum or a name that every other one equals: whoever makes a file on purpose gives it the right one."""

    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False


BUGS = (AttributeError, IndexError, RecursionError, NameError, AssertionError)  # never the fault of a file


def _refused(error: BaseException, *named: str) -> None:
    """Raise an error that does not name its file, or that is a bug of the reader in the words of a refusal."""
    if named and not any(name in str(error) for name in named):
        raise error
    seen: BaseException | None = error
    while (seen := seen.__cause__ or seen.__context__) and "nested too deeply" not in str(error):
        if isinstance(seen, BUGS):
            raise seen


def _file(name: str, data: bytes) -> Path:
    path = Path(_work.name) / name
    path.write_bytes(data)
    return path


def _load(path: Path) -> None:
    """Load a head, and let it answer."""
    checked, of_heads.checksum = of_heads.checksum, lambda *_: _Anything()
    try:
        head = taer.load(path)
    except ValueError as error:
        _refused(error, str(path))
        return
    finally:
        of_heads.checksum = checked
    try:
        head.predict(np.ones((2, head.n_features_in_), np.float32))
    except ValueError as error:
        _refused(error, "scale the features", "no longer", "features")


def heads(data: bytes) -> None:
    """A file of a head."""
    _load(_file("head.safetensors", data))


@cache
def _tensors() -> dict[str, np.ndarray]:
    """The tensors of all seeds, so that a header finds those that it names."""
    found = {}
    for path in sorted((CORPUS / "heads").glob("seed-*")):
        with safe_open(path, framework="numpy") as file:
            found |= {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    return found


def headers(data: bytes) -> None:
    """The header of a head: what it says about the tensors of its file."""
    text = data.decode("utf-8", "replace")
    path = Path(_work.name) / "header.safetensors"
    named = {name: it for name, it in _tensors().items() if f'"{name}"' in text}
    save_file(named, path, {"format": of_heads.FORMAT, "head": text})
    _load(path)


def _features(path: Path) -> None:
    try:
        found = taer.load_features(path, labeled=False)
        np.asarray(found.train_x[:2]), np.asarray(found.test_x[:2])
    except ValueError as error:
        _refused(error, path.stem, path.parent.name)


def features(data: bytes) -> None:
    """A feature file."""
    _features(_file("features.safetensors", data))


def npy(data: bytes) -> None:
    """An array in a folder of a feature set."""
    labels = Path(_work.name) / "y_train.npy"
    if not labels.exists():
        np.save(labels, np.array([0, 1, 0, 1]))
    _features(_file("X_train.npy", data))


def npz(data: bytes) -> None:
    """Arrays in an archive."""
    _features(_file("features.npz", data))


def parquet(data: bytes) -> None:
    """A table of embeddings."""
    _features(_file("features.parquet", data))


def results(data: bytes) -> None:
    """A result of a run."""
    folder = Path(_work.name) / "results"
    folder.mkdir(exist_ok=True)
    (folder / "result.json").write_bytes(data)
    hashed, named = of_results._hash, of_results.file_name
    of_results._hash = lambda value: (hashed(value), _Anything())[1]
    of_results.file_name = lambda identity: (named(identity), _Anything())[1]
    try:
        of_results.read_results(folder)
    except ValueError as error:
        _refused(error, str(folder))
    finally:
        of_results._hash, of_results.file_name = hashed, named


_BODIES = [
    bodies.Body(kind)
    for kind in (
        inputs.PredictRequest,
        inputs.ExamplesRequest,
        inputs.LabelRequest,
        inputs.NameRequest,
        inputs.PurgeRequest,
        protocol.InferRequest,
    )
]


def requests(data: bytes) -> None:
    """The body of a request in JSON; the first byte chooses to whom."""
    body = _BODIES[data[0] % len(_BODIES)] if data else _BODIES[0]
    try:
        found = body._parse(data[1:])
        if isinstance(found, inputs.Items):
            found.check()
            if found.vectors:
                inputs.vectors_to_matrix(found.vectors, None)
        if isinstance(found, inputs.ExamplesRequest | inputs.LabelRequest):
            inputs.check_label(found.label, None)
        if isinstance(found, protocol.InferRequest):
            protocol._wanted(found)
            for tensor in found.inputs:
                protocol._texts(tensor) if tensor.datatype == "BYTES" else protocol._vectors(tensor)
        msgspec.json.encode(found)
    except (inputs.BadInput, HTTPException) as error:
        _refused(error)


def arrays(data: bytes) -> None:
    """The body of a request as an array."""
    try:
        found = bodies._from_array(inputs.PredictRequest, data, {})
        found.check()
        inputs.vectors_to_matrix(found.vectors, None)
    except (inputs.BadInput, HTTPException) as error:
        _refused(error)


def images(data: bytes) -> None:
    """An image, sent to the service and read from a file."""
    try:
        assert inputs.decode(base64.b64encode(data).decode()).mode == "RGB"
    except inputs.BadInput:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            decode_image(data)
        except (ValueError, OSError, SyntaxError):  # taer extract tells each with the name of the file
            return


def tokens(data: bytes) -> None:
    """The tokens of a service."""
    try:
        stored(_file("tokens.json", data).parent)
    except ValueError as error:
        _refused(error, "tokens.json")


TARGETS: dict[str, Callable[[bytes], None]] = {
    target.__name__: target
    for target in (heads, headers, features, npy, npz, parquet, results, requests, arrays, images, tokens)
}
