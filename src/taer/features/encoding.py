"""A frozen backbone over the items of a source, chunk by chunk, on this machine."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, Protocol

import numpy as np

from taer.extras import reason
from taer.features.backbones import Backbone
from taer.features.sources import Part, Source
from taer.threads import cores

CHUNK = 256  # items that are computed together
_AHEAD = 4  # batches decoded in advance; more would only take memory

Chunk = tuple[str, range]  # a part and some of its rows


class Encoded(NamedTuple):
    """The features of a chunk, and the rows that could be read."""

    chunk: Chunk
    features: np.ndarray
    rows: np.ndarray


def chunks_of(data: Source) -> list[Chunk]:
    """All items of a source."""
    return [
        (name, range(start, min(start + CHUNK, len(part))))
        for name, part in (("train", data.train), ("test", data.test))
        for start in range(0, len(part), CHUNK)
    ]


class Workers(Protocol):
    """Where the encoder runs."""

    engine: str

    def encoded(self, chunks: Sequence[Chunk], tell: Callable[[int], None]) -> Iterator[Encoded]:
        """Features of the chunks, in any order; ``tell`` is called with a number of items that are done."""


class Here:
    """Runs the encoder in this process, while threads read the items of the next batches."""

    def __init__(self, data: Source, model: Backbone, skip_bad: bool, half: bool) -> None:
        self._parts, self._prepare, self._skip_bad = (
            {"train": data.train, "test": data.test},
            model.prepare,
            skip_bad,
        )
        self._encoder = model.load(half=half)
        self.engine = self._encoder.engine

    def encoded(self, chunks: Sequence[Chunk], tell: Callable[[int], None]) -> Iterator[Encoded]:
        """Yield chunk by chunk; ``tell`` is called after each batch."""
        size, in_flight = self._encoder.batch_size, self._encoder.in_flight
        batches = [
            [(name, rows[start : start + size]) for start in range(0, len(rows), size)] for name, rows in chunks
        ]
        reading = (partial(self._read, name, row) for name, rows in chunks for row in rows)
        with contextlib.closing(_in_order(reading, cores(), _AHEAD * size)) as items:
            computing = (
                partial(self._encode, self._good(name, rows, items)) for chunk in batches for name, rows in chunk
            )
            with contextlib.closing(_in_order(computing, in_flight, in_flight)) as results:
                for chunk, of_chunk in zip(chunks, batches, strict=True):
                    kept: list[int] = []
                    features = []
                    for (_, rows), (good, block) in zip(of_chunk, results, strict=False):
                        kept += good
                        features.append(block)
                        tell(len(rows))
                    yield Encoded(chunk, concatenated(features), np.array(kept, np.int64))

    def _read(self, part: str, row: int) -> Any:
        try:
            return self._prepare(self._parts[part].read(row))
        except Exception as error:  # decoders raise whatever they like on damaged files
            return _Unreadable(reason(error), isinstance(error, FileNotFoundError))

    def _good(self, part: str, rows: range, items: Iterator[Any]) -> list[tuple[int, Any]]:
        """The items of the next batch that could be read, with their rows."""
        batch = zip(rows, items, strict=False)
        return [(row, item) for row, item in batch if self._is_good(self._parts[part], row, item)]

    def _encode(self, good: list[tuple[int, Any]]) -> tuple[list[int], np.ndarray | None]:
        if not good:
            return [], None
        rows, items = zip(*good, strict=True)
        return list(rows), np.asarray(self._encoder(items), np.float32)

    def _is_good(self, part: Part, row: int, item: Any) -> bool:
        if not isinstance(item, _Unreadable):
            return True
        if item.is_missing:  # not damaged data, but another machine or a missing disk
            raise ValueError(f"{part.where(row)}: {item.why}; the data must lie on a path that every worker sees")
        if self._skip_bad:
            return False
        raise ValueError(
            f"{part.where(row)}: cannot be read ({item.why}). Repair or remove it and start again, or leave "
            "such items out with skip_bad=True, which goes on from what is finished"
        )


@dataclass(frozen=True)
class _Unreadable:
    why: str
    is_missing: bool


def _in_order(calls: Iterable[Callable[[], Any]], threads: int, ahead: int) -> Generator[Any]:
    """The results of the calls, in order. Threads run the next calls while the caller waits for the current one."""
    pool = ThreadPoolExecutor(threads)
    todo = iter(calls)
    try:
        pending: deque[Future[Any]] = deque(pool.submit(call) for call in islice(todo, ahead))
        while pending:
            yield pending.popleft().result()
            pending.extend(pool.submit(call) for call in islice(todo, 1))
    finally:
        pool.shutdown(cancel_futures=True)


def concatenated(blocks: Sequence[np.ndarray | None]) -> np.ndarray:
    found = [block for block in blocks if block is not None]
    return np.concatenate(found) if found else np.zeros((0, 0), np.float32)
