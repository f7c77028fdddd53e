"""Write the seeds of the corpus: small files of each kind that taer reads. ``python -m tests.fuzz.seeds``."""

from __future__ import annotations

import io
import json
import tempfile
from pathlib import Path

import numpy as np
import pillow_heif
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image
from safetensors import safe_open

from taer.experiment import Run, execute
from taer.features import features_from_arrays, save_features
from taer.stream import class_stream
from tests.conftest import blobs, small_head
from tests.fuzz.targets import CORPUS

HEADS = ("bayes", "taer", "slda", "ncm", "lda-frozen", "ridge", "er")


def put(target: str, name: str, data: bytes) -> None:
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"seed-{name}").write_bytes(data)


def write_heads(work: Path) -> None:
    X, y = blobs(3, 6, width=2)
    for name in HEADS:
        head = small_head(name, random_state=0, **({"memory_size": 3} if name in ("taer", "er") else {}))
        labels = np.array(["ant", "bee", "cat"])[y] if name == "ncm" else y
        for task in (y < 2, y >= 2):
            head.partial_fit(X[task].astype(np.float32), labels[task])
        head.save(work / "head")
        put("heads", name, (work / "head").read_bytes())
        with safe_open(work / "head", framework="numpy") as file:
            put("headers", name, file.metadata()["head"].encode())


def write_features(work: Path) -> None:
    X, y = blobs(2, 3, width=2)
    X = X.astype(np.float32)
    parts = {"X_train": X[:4], "y_train": y[:4], "X_test": X[4:], "y_test": y[4:]}
    save_features(features_from_arrays(X[:4], [0, 1, 0, 1], X[4:], [0, 1]), work / "set.safetensors")
    put("features", "set", (work / "set.safetensors").read_bytes())
    for save, name in ((np.savez, "plain"), (np.savez_compressed, "packed")):
        save(work / "set.npz", **{**parts, "y_train": np.array([0, 1, 0, 1]), "y_test": np.array([0, 1])})
        put("npz", name, (work / "set.npz").read_bytes())
    for kind in ("float16", "float32", "float64", "int8", "bool", "complex64", "U2"):
        file = io.BytesIO()
        np.save(file, X[:4].astype(kind))
        put("npy", kind, file.getvalue())
        put("arrays", kind, file.getvalue())
    columns = {"embedding": X.tolist(), "label": list("ababab"), "split": ["train"] * 4 + ["test"] * 2}
    for kind in ("none", "snappy", "zstd"):
        pq.write_table(pa.table(columns), work / "set.parquet", compression=kind)
        put("parquet", kind, (work / "set.parquet").read_bytes())
    fixed = {**columns, "embedding": pa.array(X.tolist(), pa.list_(pa.float32(), 2)), "label": list(range(2)) * 3}
    pq.write_table(pa.table(fixed), work / "set.parquet")
    put("parquet", "fixed", (work / "set.parquet").read_bytes())


def write_results() -> None:
    X, y = blobs(4, 6, width=2)
    found = execute(Run(class_stream(features_from_arrays(X, y, X, y), tasks=2), "ncm"))
    put("results", "ncm", json.dumps({**found, "sha256": "0" * 64}).encode())


def write_requests() -> None:
    sent = [
        {"vectors": [[1.0, 2.5e3], [0, -1]], "top": 2, "preview": True, "why": False},
        {"label": "cat", "texts": ["a", "ü"]},
        {"label": -3},
        {"label": "dog", "ids": [1, 2]},
        {"ids": [1]},
        {
            "id": "1",
            "inputs": [{"name": "vectors", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}],
            "outputs": [{"name": "label"}],
        },
    ]
    for number, body in enumerate(sent):
        put("requests", str(number), bytes([number]) + json.dumps(body).encode())
    texts = {"inputs": [{"name": "texts", "shape": [1], "datatype": "BYTES", "data": ["a"]}]}
    put("requests", "6", b"\x05" + json.dumps(texts).encode())
    token = {"name": "anna", "role": "teach", "sha256": "0" * 64, "made": "2026-11-18", "requests": 3}
    put("tokens", "one", json.dumps({"tokens": [token]}).encode())


def write_images() -> None:
    for format, mode in (
        ("PNG", "RGBA"), ("PNG", "P"), ("PNG", "I;16"), ("JPEG", "RGB"), ("WEBP", "RGB"), ("GIF", "P"), ("BMP", "RGB"),
        ("TIFF", "RGB"), ("PPM", "RGB"), ("HEIF", "RGB"), ("AVIF", "RGB"),
    ):  # fmt: skip
        file = io.BytesIO()
        Image.new(mode, (5, 4), 1).save(file, format)
        put("images", f"{format.lower()}-{mode.lower().replace(';', '')}", file.getvalue())


if __name__ == "__main__":
    for seed in CORPUS.glob("*/seed-*"):
        seed.unlink()
    with tempfile.TemporaryDirectory() as work:
        write_heads(Path(work))
        write_features(Path(work))
    write_results()
    write_requests()
    pillow_heif.register_heif_opener()
    write_images()
