"""Hugging Face data sets, from the hub or from a local folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from taer.extras import reason, require
from taer.features.images import decode_image
from taer.features.sources.base import Kind, Part, Source, digest

REMEDY = "Without a network, give a local folder of its Parquet files: hf:path/to/folder"


def open_hub(name: str, text_column: str | None, label_column: str | None) -> Source:
    """The splits ``train`` and ``test`` (or ``validation``) of a data set with images or texts and labels.

    ``owner/name@revision`` is the data set at a commit, tag or branch of the hub.
    """
    datasets = require("datasets", "hf")
    repository, _, revision = (name, "", "") if Path(name).is_dir() else name.partition("@")
    try:
        data = datasets.load_dataset(repository, revision=revision or None)
    except Exception as error:  # the hub fails in many ways
        raise ValueError(f"hf:{name} could not be loaded ({reason(error)}). {REMEDY}") from None
    test_name = next((split for split in ("test", "validation") if split in data), None)
    if "train" not in data or test_name is None:
        raise ValueError(f"hf:{name}: needs the splits train and test (or validation), has {', '.join(data)}")
    features = data["train"].features
    if label_column is None:
        kinds = [key for key, value in features.items() if isinstance(value, datasets.ClassLabel)]
        label_column = _only(name, "label", "label_column", kinds or [key for key in features if key == "label"])
    if text_column is None:
        kinds = [key for key, value in features.items() if isinstance(value, datasets.Image)]
        kinds = kinds or [key for key in features if key == "text"]
        text_column = _only(name, "image or text", "text_column", kinds)
    for column in (text_column, label_column):
        if column not in features:
            raise ValueError(f"hf:{name}: no column {column}; it has {', '.join(features)}")

    kind: Kind = "image" if isinstance(features[text_column], datasets.Image) else "text"
    raw = [data[split] for split in ("train", test_name)]
    labels = [list(split[label_column]) for split in raw]
    if isinstance(features[label_column], datasets.ClassLabel):
        classes = list(features[label_column].names)
        ids = [np.array(part, np.int64) for part in labels]
    else:
        classes = sorted({str(value) for part in labels for value in part})
        ids = [np.array([classes.index(str(value)) for value in part], np.int64) for part in labels]
    if kind == "image":
        raw = [split.cast_column(text_column, datasets.Image(decode=False)) for split in raw]
    parts = [
        _part(split, text_column, part, kind, f"hf:{name} {split_name}")
        for split, part, split_name in zip(raw, ids, ("train", test_name), strict=True)
    ]
    # datasets has no public name for the hash of a data set's content
    content = digest(split._fingerprint.encode() for split in (data["train"], data[test_name]))  # noqa: SLF001
    license = str(data["train"].info.license or "see the data set's card")
    return Source(name, kind, tuple(classes), parts[0], parts[1], content, license)


def _part(split: Any, column: str, labels: np.ndarray, kind: Kind, where: str) -> Part:
    def read(row: int) -> Any:
        value = split[row][column]
        if kind == "text":
            return value
        if value["bytes"] is not None:
            return decode_image(value["bytes"])
        with open(value["path"], "rb") as file:
            return decode_image(file.read())

    return Part(labels, read, lambda row: f"{where} row {row}")


def _only(name: str, what: str, parameter: str, found: list[str]) -> str:
    if len(found) != 1:
        raise ValueError(
            f"hf:{name}: which column is the {what}? Say so with {parameter}=NAME "
            f"({', '.join(found) or 'none was recognized'})"
        )
    return found[0]
