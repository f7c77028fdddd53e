"""Loss of power: what a disk may hold after a crash, from a record of the calls that changed it.

What was written to a file since its last sync may be there, be lost or be torn, each write by itself. What was created,
renamed or removed in a folder since the folder's last sync may be lost from some point on. This is what POSIX promises;
file systems promise more.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from tests.faults import KINDS, compiled

_HEAD = struct.Struct("4q")
_NAMES = {number: name for name, number in KINDS.items()}
_MARK = 1 << 20


class Call(NamedTuple):
    """A write (at an offset), a sync, …, or a mark that the test has set."""

    kind: str
    at: int
    path: str
    data: bytes


class Recorder:
    """The calls of processes with :attr:`environment` that changed files below a folder."""

    def __init__(self, work: Path, under: Path) -> None:
        self._file = work / "record"
        self._file.touch()
        self.environment = {
            "LD_PRELOAD": str(compiled(work)),
            "FAULTS_RECORD": str(self._file),
            "FAULTS_UNDER": str(under),
        }

    def mark(self, number: int) -> None:
        """Remember what has happened so far."""
        with self._file.open("ab", buffering=0) as file:
            file.write(_HEAD.pack(_MARK, number, 0, 0))

    def calls(self) -> list[Call]:
        found, data, at = [], self._file.read_bytes(), 0
        while at < len(data):
            kind, value, n_path, n_data = _HEAD.unpack_from(data, at)
            at += _HEAD.size
            path = data[at : at + n_path].decode()
            found.append(Call(_NAMES.get(kind, "mark"), value, path, data[at + n_path : at + n_path + n_data]))
            at += n_path + n_data
        return found


class Fate(Protocol):
    """What decides what is lost: numpy's generator, or one that loses all."""

    def random(self) -> float: ...

    def integers(self, high: int, /) -> Any: ...


@dataclass
class _File:
    """What is safe, and what was written since the last sync: offset and data, or a size it was cut to."""

    safe: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)

    def after(self, rng: Fate | None) -> bytearray:
        """With all that is pending, or with some of it."""
        found = bytearray(self.safe)
        for at, data in self.pending:
            if rng is not None:
                fate = rng.random()
                if fate < 1 / 3:
                    continue
                if fate < 1 / 2 and data is not None:
                    data = data[: len(data) // 2]
            if data is None:
                del found[at:]
                found.extend(bytes(max(0, at - len(found))))
            else:
                found.extend(bytes(max(0, at + len(data) - len(found))))
                found[at : at + len(data)] = data
        return found


class Disk:
    """A folder as processes see it, and as it may be found after a crash."""

    def __init__(self) -> None:
        self._seen: dict[str, _File | None] = {}  # None: a folder
        self._safe: dict[str, _File | None] = {}
        self._pending: dict[str, list[tuple[str, _File | bool | None]]] = {}  # by folder: entries; False: removed

    def do(self, call: Call) -> None:
        match call.kind:
            case "write" if call.path in self._seen:
                self._file(call.path).pending.append((call.at, call.data))
            case "truncate" if call.path in self._seen:
                self._file(call.path).pending.append((call.at, None))
            case "open":
                if call.path not in self._seen:
                    self._enter(call.path, _File())
                elif call.at:
                    self._file(call.path).pending.append((0, None))
            case "mkdir":
                self._enter(call.path, None)
            case "rename":
                source = call.data.decode()
                self._enter(call.path, self._seen[source])
                if not call.at:  # otherwise a link
                    self._enter(source, False)
            case "unlink":
                self._enter(call.path, False)
            case "sync":
                if call.path.endswith(".partial") and call.path not in self._seen:
                    self._enter(call.path, self._taken(call.path))
                self._sync(call.path)

    def _taken(self, path: str) -> _File | None:
        """The last temporary file of safetensors, which renames it by a system call that no library sees."""
        own = [name for name in self._seen if Path(name).parent == Path(path).parent and "/.tmp" in name]
        found = self._seen[own[-1]]
        self._enter(own[-1], False)
        return found

    def _file(self, path: str) -> _File:
        found = self._seen[path]
        assert found is not None
        return found

    def _enter(self, path: str, entry: _File | bool | None) -> None:
        self._pending.setdefault(str(Path(path).parent), []).append((path, entry))
        _put(self._seen, path, entry)

    def _sync(self, path: str) -> None:
        found = self._seen.get(path)
        if isinstance(found, _File):
            found.safe, found.pending = found.after(None), []
        for name, entry in self._pending.pop(path, []):
            _put(self._safe, name, entry)

    def found(self, rng: Fate | None) -> dict[str, bytes | None]:
        """All files: as they are seen, or with a random part of what is not safe."""
        if rng is None:
            entries = self._seen
        else:
            entries = dict(self._safe)
            for pending in self._pending.values():
                for name, entry in pending[: rng.integers(len(pending) + 1)]:
                    _put(entries, name, entry)
        made = {path: None if file is None else bytes(file.after(rng)) for path, file in entries.items()}
        return {path: data for path, data in made.items() if _reachable(path, made)}


def _put(entries: dict[str, _File | None], path: str, entry: _File | bool | None) -> None:
    if entry is False:
        entries.pop(path, None)
    else:
        assert entry is not True
        entries[path] = entry


def _reachable(path: str, made: dict[str, bytes | None]) -> bool:
    """Whether all folders above a path exist, up to the one that was there before."""
    top = min(made, key=len)
    return path == top or (len(path) > len(top) and made.get(str(Path(path).parent), b"") is None)


class _AllLost:
    """In place of a generator: nothing that is not safe is there."""

    def random(self) -> float:
        return 0.0

    def integers(self, _high: int) -> int:
        return 0


def crashes(calls: list[Call], per_call: int, seed: int = 0) -> Iterator[tuple[int, int, dict[str, bytes | None]]]:
    """The number of calls done, the last mark, and what may be found then: for each call the disk that has nothing which
    is not safe, and several that have some of it. Those that are the same since the same mark come once."""
    disk, rng, last, seen = Disk(), np.random.default_rng(seed), 0, set()
    for number, call in enumerate(calls, 1):
        if call.kind == "mark":
            last = call.at
        disk.do(call)
        for fate in (_AllLost(), *[rng] * per_call):
            found = disk.found(fate)
            if (one := (last, hash(frozenset(found.items())))) not in seen:
                seen.add(one)
                yield number, last, found


def lay(found: dict[str, bytes | None], top: Path, at: Path) -> None:
    """Write what was found below ``top`` to another folder."""
    for path, data in sorted(found.items()):
        there = at / Path(path).relative_to(top)
        if data is None:
            there.mkdir(parents=True)
        else:
            there.write_bytes(data)
