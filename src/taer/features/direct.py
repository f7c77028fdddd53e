"""Features of a source in memory, for a head that learns them at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from taer.features.backbones import Backbone
from taer.features.encoding import Here, chunks_of
from taer.features.set import FeatureSet
from taer.features.sources import Part, Source


def encoded(data: Source, model: Backbone, progress: Callable[[int, int], None]) -> FeatureSet:
    """The features of all items. An item that cannot be read raises ValueError."""
    workers = Here(data, model, skip_bad=False, half=False)
    done, total = 0, len(data.train) + len(data.test)

    def tell(items: int) -> None:
        nonlocal done
        done += items
        progress(done, total)

    blocks: dict[str, list[np.ndarray]] = {"train": [], "test": []}
    for (part, _), features, _ in workers.encoded(chunks_of(data), tell):
        blocks[part].append(features)
    width = next(block.shape[1] for each in blocks.values() for block in each)
    train, test = (np.concatenate([np.zeros((0, width), np.float32), *blocks[part]]) for part in ("train", "test"))
    return FeatureSet(
        train,
        data.train.labels,
        test,
        data.test.labels,
        classes=data.classes,
        meta={"dataset": data.name, **model.origin._asdict(), "engine": workers.engine},
        name=data.name,
    )


def some_for_training(data: Source, rows: Iterable[int]) -> Source:
    """Some rows of the training part alone."""
    chosen = np.array(list(rows), np.int64)
    part = data.train
    train = Part(
        part.labels[chosen], lambda row: part.read(int(chosen[row])), lambda row: part.where(int(chosen[row]))
    )
    nothing = Part(part.labels[:0], part.read, part.where)
    return replace(data, train=train, test=nothing)
