"""Which tests are about the zoo, the share of them that runs where not everything does, and which run alone.

``make test`` leaves those of the zoo out, ``make test-all`` runs a share of those that run on every head, ``make
test-long`` (``TAER_TESTS=long``) runs all.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

import taer
from taer.heads import Head
from taer.heads.registry import CORE

ZOO = set(taer.HEADS) - set(CORE)
_FOLDERS = Path(__file__).parent / "zoo", Path(taer.__file__).parent / "zoo"
_ONE_IN = 3
# Slow tests that would disturb others, or be disturbed: they aim by the clock, measure memory or fill both cores.
_ALONE = {
    "test_connection.py",
    "test_crash.py",
    "test_large_tasks.py",
    "test_load.py",
    "test_many.py",
    "test_parallel.py",
    "test_replicas_nginx.py",
}


def mark(items: list[pytest.Item]) -> list[pytest.Item]:
    """Mark the tests of the zoo and those that run alone; returns those that this run leaves out."""
    left_out = []
    for item in items:
        if item.path.name in _ALONE:
            item.add_marker("alone")
        values = list(getattr(getattr(item, "callspec", None), "params", {}).values())
        of_zoo = any(map(_of_zoo, values))
        beside = any(folder in item.path.parents for folder in _FOLDERS) and not any(map(_of_core, values))
        if of_zoo or beside:
            item.add_marker("zoo")
        if of_zoo and os.environ.get("TAER_TESTS") != "long" and not in_share(item.nodeid):
            left_out.append(item)
    return left_out


def in_share(nodeid: str) -> bool:
    """Whether a test is in the share: always the same third, of every test and of every head."""
    return crc32(nodeid.encode()) % _ONE_IN == 0


def _of_zoo(value: Any) -> bool:
    if isinstance(value, str):
        return value in ZOO
    kind = value if isinstance(value, type) else type(value)
    return issubclass(kind, Head) and kind.__module__.startswith("taer.zoo.")


def _of_core(value: Any) -> bool:
    return isinstance(value, str) and value in CORE
