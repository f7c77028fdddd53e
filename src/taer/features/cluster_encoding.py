"""A frozen backbone over the items of a source, on the workers of a cluster, each of which encodes as one machine does."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from joblib import Parallel, delayed

from taer.features.backbones import Backbone, find_backbone
from taer.features.encoding import Chunk, Encoded, Here
from taer.features.sources import Source
from taer.parallel import Shared, device_share, sharing


class OnCluster:
    """Runs one encoder per GPU, or per node if there are no GPUs."""

    def __init__(
        self,
        data: Source,
        model: Backbone,
        backbone: str,
        weights: str | os.PathLike[str] | None,
        skip_bad: bool,
        half: bool,
    ) -> None:
        identity = (model.name, model.weights, model.preprocess)
        path = None if weights is None else Path(weights)
        self._order = Shared((data, backbone, path, identity, skip_bad, half))
        self._share = device_share()
        with sharing(self._share):
            (self.engine,) = Parallel()([delayed(_engine_there)(self._order)])

    def encoded(self, chunks: Sequence[Chunk], tell: Callable[[int], None]) -> Iterator[Encoded]:
        calls = (delayed(_encoded_there)(self._order, chunk) for chunk in chunks)
        with sharing(self._share):
            results = Parallel(return_as="generator_unordered")(calls)
        for engine, encoded in results:
            if engine != self.engine:
                raise ValueError(
                    f"workers differ: {engine} and {self.engine}; install the same packages on all nodes"
                )
            yield encoded
            tell(len(encoded.chunk[1]))


_loaded: dict[str, Any] = {}  # the encoder of this worker process


def _worker(order: Shared) -> Here:
    data, backbone, weights, identity, skip_bad, half = order.value
    key = json.dumps([data.digest, identity, skip_bad, half])
    if _loaded.get("key") != key:
        model = find_backbone(backbone, data.kind, weights)
        if (model.name, model.weights, model.preprocess) != identity:
            raise ValueError(
                f"{backbone}: a worker finds {model.weights}, but the extraction was started with {identity[1]}"
            )
        _loaded.update(key=key, worker=Here(data, model, skip_bad, half))
    worker: Here = _loaded["worker"]
    return worker


def _engine_there(order: Shared) -> str:
    return _worker(order).engine


def _encoded_there(order: Shared, chunk: Chunk) -> tuple[str, Encoded]:
    worker = _worker(order)
    (encoded,) = worker.encoded([chunk], lambda items: None)
    return worker.engine, encoded
