"""A grid of four small runs."""

from __future__ import annotations

import json

import pytest

from taer.experiment import Run
from taer.stream import class_stream

NOT_REPRODUCIBLE = ("seconds", "created")


def same(a, b):
    """A result without its timings."""
    strip = lambda r: json.dumps({k: v for k, v in r.items() if k not in NOT_REPRODUCIBLE}, sort_keys=True)  # noqa: E731
    return strip(a) == strip(b)


@pytest.fixture
def runs(features):
    return [
        Run(class_stream(features, tasks=5, order=seed), name, {"memory_size": 20}, seed)
        for name in ("taer", "er")
        for seed in range(2)
    ]
