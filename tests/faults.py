"""Storage that fails on purpose: the n-th write, sync, rename or other change to files of a folder.

``faults.c`` is compiled and loaded with ``LD_PRELOAD`` into the processes that are tested, so that it reaches Python,
SQLite and safetensors alike. Which call fails, and how, is set from here while they run.
"""

from __future__ import annotations

import errno
import mmap
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

KINDS = {"write": 1, "sync": 2, "rename": 4, "unlink": 8, "open": 16, "truncate": 32, "mkdir": 64}
_ONCE, _FROM_THEN_ON, _SHORT = range(3)
_CONTROL = struct.Struct("7q")


@dataclass
class Seen:
    """The calls that were counted, how many of them failed, and which kinds these were.

    Calls on SQLite's index of its log, which processes share, have a kind of their own.
    """

    calls: int = 0
    failed: int = 0
    kinds: frozenset[str] = frozenset()


def compiled(work: Path) -> Path:
    """The library that is loaded into tested processes."""
    compiler = shutil.which("cc") or pytest.skip("needs a C compiler")
    library, source = work / "faults.so", Path(__file__).with_name("faults.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return library


class Faults:
    """Faults in the files below ``under``, for processes with :attr:`environment`."""

    def __init__(self, work: Path, under: Path) -> None:
        library, control = compiled(work), work / "faults.control"
        control.write_bytes(bytes(_CONTROL.size))
        with control.open("r+b") as file:
            self._control = mmap.mmap(file.fileno(), _CONTROL.size)
        self.environment = {"LD_PRELOAD": str(library), "FAULTS": str(control), "FAULTS_UNDER": str(under)}

    @contextmanager
    def failing(
        self,
        nth: int,
        *kinds: str,
        error: int = errno.EIO,
        from_then_on: bool = False,
        short: bool = False,
    ) -> Iterator[Seen]:
        """Inside, the n-th call of these kinds fails (all of them by default), or writes half of its data."""
        mode = _FROM_THEN_ON if from_then_on else _SHORT if short else _ONCE
        bits = sum(KINDS[kind] for kind in kinds or KINDS)
        seen = Seen()
        self._control[:] = _CONTROL.pack(bits, nth, error, mode, 0, 0, 0)
        try:
            yield seen
        finally:
            *_, seen.calls, seen.failed, failed = _CONTROL.unpack(self._control[:])
            seen.kinds = frozenset(kind for kind, bit in {**KINDS, "shared": 128}.items() if failed & bit)
            self._control[:] = bytes(_CONTROL.size)
